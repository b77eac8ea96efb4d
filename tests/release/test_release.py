"""What is released: the sdist, the wheel made from it, and what that wheel does in a clean environment with no Node.js."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbagent.version import __version__

ROOT = Path(__file__).parents[2]
NODE = re.compile(r"^(node|nodejs|npm|npx|corepack|yarn|yarnpkg|jlpm|pnpm)([-.\d].*)?$")
SHARE = f"jupyter_nbagent-{__version__}.data/data/share/jupyter/labextensions/nbagent"
PACKAGES = 75
MEGABYTES = 230
"""What ``pip install jupyter-nbagent`` may bring at most, itself included."""

pytestmark = pytest.mark.timeout(600)


def run(command: list[str], environment: dict[str, str], folder: Path, seconds: int = 400) -> str:
    """Standard output; what went wrong is the failure's text."""
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def path_without_node(folder: Path) -> str:
    """A folder of links to every program of the PATH but Node.js and what belongs to it."""
    folder.mkdir()
    for place in map(Path, os.get_exec_path()):
        if not place.is_dir() or place == Path(sys.executable).parent:
            continue
        for program in place.iterdir():
            link = folder / program.name
            if not NODE.match(program.name) and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """No Node.js, no settings, no key, a home of its own; pip keeps its settings and its cache."""
    folder = tmp_path_factory.mktemp("environment")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NBAGENT_", "OPENAI_", "PYTHON"))}
    for name in ("VIRTUAL_ENV", "JUPYTER_PATH", "JUPYTER_PREFER_ENV_PATH"):
        kept.pop(name, None)
    (folder / "nbagent").mkdir()
    return {
        **kept,
        "PATH": path_without_node(folder / "bin"),
        "NBAGENT_HOME": str(folder / "nbagent"),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> tuple[Path, Path]:
    """(sdist, wheel). The checkout's assets are there already; the wheel is made from the sdist, where they travel along."""
    dist = tmp_path_factory.mktemp("dist")
    with_node = {**environment, "PATH": os.environ["PATH"]}
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist)], with_node, ROOT)
    (sdist,) = dist.glob("*.tar.gz")
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(dist), str(sdist)], environment, dist)
    (wheel,) = dist.glob("*.whl")
    return sdist, wheel


def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def sdist_names(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def text_files(folder: str, *suffixes: str) -> list[str]:
    """Files of the package that are no Python, as git knows them."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if name.endswith(suffixes)]


def test_the_wheel_has_all_that_it_needs(built: tuple[Path, Path]) -> None:
    names = set(wheel_names(built[1]))
    package = text_files("nbagent", ".py", ".md", ".txt", ".toml", ".json", ".typed", ".ignore")
    assert [name for name in package if name not in names] == []
    assert sum(name.startswith("nbagent/prompts/") for name in names) > 15
    assert sum(bool(re.match(r"nbagent/tools/\w+\.md$", name)) for name in names) > 15
    assert "nbagent/notebook/static/view.js" in names
    assert {f"{SHARE}/install.json", f"{SHARE}/package.json", f"{SHARE}/static/style.js"} <= names
    assert any(re.fullmatch(rf"{SHARE}/static/remoteEntry\.\w+\.js", name) for name in names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    walk = {name.removeprefix("nbagent/walkthroughs/") for name in names if name.startswith("nbagent/walkthroughs/")}
    assert {"01-plan-and-build.ipynb", "01-plan-and-build.cassette", "demo.cassette", "workbench.py"} <= walk
    with zipfile.ZipFile(built[1]) as archive:
        remote = json.loads(archive.read(f"{SHARE}/package.json"))["jupyterlab"]["_build"]["load"]
        assert f"{SHARE}/{remote}" in names, "what JupyterLab is told to load is there"


LEFT_OUT = re.compile(
    r"(^|/)(node_modules|\.git|\.venv|\.nbagent|\.ipynb_checkpoints|__pycache__|test-output|\.yarn)/"
    r"|\.(pyc|pem|key|db|sqlite3?|log|tsbuildinfo)$|(^|/)(\.env[^/]*|id_[a-z0-9]+|[^/]*\.local\.[^/]*)$",
    re.IGNORECASE,
)
SECRET = re.compile(r"secret|credential|passw|private", re.IGNORECASE)
ASSETS = ("nbagent/labextension/", "nbagent/notebook/static/view.js", "PKG-INFO")


def git_files(*options: str) -> set[str]:
    """Files of the checkout as git lists them."""
    done = subprocess.run(["git", "ls-files", *options], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_nothing_is_in_there_that_does_not_belong(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    known = git_files()
    for name in [*wheel_names(wheel), *sdist_names(sdist)]:
        assert not LEFT_OUT.search(name), name
        assert not SECRET.search(name) or name in known, f"{name}: only sources that are about secrets are called so"
    assert not [name for name in wheel_names(wheel) if re.match(r"(nbagent/)?(tests|bench|docs|notebooks)/", name)]
    assert not [name for name in wheel_names(wheel) if name.startswith("nbagent/walkthroughs/work/")]
    assert wheel.stat().st_size < 3e6 and sdist.stat().st_size < 12e6


def test_the_sdist_is_the_checkout(built: tuple[Path, Path]) -> None:
    """Every file that git knows is in there but those of no use outside the repository; what git ignores is not, but the assets."""
    with tarfile.open(built[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive if not member.isdir()}
    known = git_files()
    missing = [n for n in known - names if (ROOT / n).is_file() and not re.match(r"\.(ci|git|pre-commit)", n)]
    assert missing == []
    new = git_files("--others", "--exclude-standard")
    assert [name for name in names - known - new if not name.startswith(ASSETS)] == []


def test_one_version_everywhere(built: tuple[Path, Path]) -> None:
    assert [f"-{__version__}." in built[0].name, f"-{__version__}-" in built[1].name] == [True, True]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"]
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert json.loads((ROOT / "labextension" / "package.json").read_text())["version"] == __version__
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == __version__


class Clean:
    """A virtual environment with nothing but the wheel and what it needs."""

    def __init__(self, folder: Path, environment: dict[str, str], wheel: Path) -> None:
        self.folder = folder
        self.environment = environment
        self.wheel = wheel
        venv.create(folder, with_pip=True)
        self.scripts = folder / "bin"
        self.bare = self.size()
        self.pip("install", "-q", str(wheel))

    def pip(self, *arguments: str) -> str:
        return self.run("python", "-m", "pip", *arguments)

    def run(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        path = os.pathsep.join([str(self.scripts), self.environment["PATH"]])
        return run([str(self.scripts / program), *arguments], {**self.environment, "PATH": path}, folder or self.folder)

    def size(self) -> float:
        """Megabytes."""
        return (
            sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file() and not file.is_symlink())
            / 1e6
        )

    def packages(self) -> list[str]:
        listed = json.loads(self.pip("list", "--format", "json"))
        return [each["name"] for each in listed if each["name"] not in ("pip", "setuptools", "wheel")]


@pytest.fixture(scope="module")
def clean(
    tmp_path_factory: pytest.TempPathFactory, built: tuple[Path, Path], environment: dict[str, str]
) -> Iterator[Clean]:
    yield Clean(tmp_path_factory.mktemp("clean") / "venv", environment, built[1])


def test_a_clean_install_is_small_and_sound(clean: Clean, capsys: pytest.CaptureFixture[str]) -> None:
    packages, size = clean.packages(), clean.size() - clean.bare
    with capsys.disabled():
        wheel = clean.wheel.stat().st_size / 1e6
        print(f"\npip install jupyter-nbagent: wheel {wheel:.1f} MB; {len(packages)} packages, {size:.0f} MB on disk")
    clean.pip("check")
    assert len(packages) <= PACKAGES and size <= MEGABYTES
    assert "jupyterlab" not in packages and "pandas" not in packages
    assert clean.run("nbagent", "--version").split()[-1] == __version__


LICENCES = """
import json
from importlib.metadata import distributions
told = {}
for each in distributions():
    data = each.metadata
    kinds = [kind.rpartition(" :: ")[2] for kind in data.get_all("Classifier", []) if kind.startswith("License ::")]
    told[each.name] = " ".join([data.get("License-Expression") or (data.get("License") or "")[:60], *kinds]).strip()
print(json.dumps(told))
"""
PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|ISC|ISCL|PSF|Python Software Foundation|MPL)\b")


def test_everything_that_it_brings_has_a_permissive_licence(clean: Clean) -> None:
    told = json.loads(clean.run("python", "-c", LICENCES))
    assert len(told) > 20
    assert {name: text for name, text in told.items() if not PERMISSIVE.search(text) or "GPL" in text} == {}


def test_the_demo_runs_from_the_wheel(clean: Clean, tmp_path: Path) -> None:
    told = clean.run("nbagent", "demo", "--no-lab", folder=tmp_path)
    assert "The walkthrough ran to its end." in told
    assert "REFUSED" in told and "APPROVED" in told and "receipt: " in told
    assert list(tmp_path.iterdir()) == [], "the folder that it was called in is left alone"


def test_every_module_can_be_imported_with_the_base_install(clean: Clean) -> None:
    code = (
        "import importlib, pkgutil, nbagent\n"
        "programs = ('nbagent.walkthroughs', 'nbagent.sandbox.attempts', 'nbagent.sandbox.supervisor')\n"
        "found = pkgutil.walk_packages(nbagent.__path__, 'nbagent.')\n"
        "names = [m.name for m in found if not m.name.startswith(programs)]\n"
        "for name in names:\n"
        "    importlib.import_module(name)\n"
        "print(len(names))"
    )
    assert int(clean.run("python", "-c", code)) > 150


def test_commands_that_need_no_server_work(clean: Clean, tmp_path: Path) -> None:
    why = json.loads(clean.run("nbagent", "why", "--agent", "plan", "edit", "src/a.py", "--json", folder=tmp_path))
    assert why["action"] == "deny" and why["rule"]["layer"] == "floor"
    assert "python" in clean.run("nbagent", "tools", "--agent", "build", folder=tmp_path)
    cassette = next(clean.folder.rglob("walkthroughs/demo.cassette"))
    assert clean.run("nbagent", "cassette", "check", str(cassette)).endswith(": fine\n")


def test_jupyterlab_finds_the_extension(clean: Clean) -> None:
    clean.pip("install", "-q", "jupyterlab>=4.4")
    path = os.pathsep.join([str(clean.scripts), clean.environment["PATH"]])
    done = subprocess.run(
        [str(clean.scripts / "jupyter-labextension"), "list"],
        env={**clean.environment, "PATH": path},
        cwd=clean.folder,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    told = done.stdout + done.stderr
    assert re.search(rf"nbagent v{re.escape(__version__)} .*enabled.*OK", told), told
