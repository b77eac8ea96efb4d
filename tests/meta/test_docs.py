"""The reference says what the code says; links in the documentation lead somewhere; the project speaks of itself alone."""

from __future__ import annotations

import re
import subprocess
import tomllib
import unicodedata
from pathlib import Path

import pytest

from docs.generate import stale

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def test_generated_pages_are_what_the_code_says() -> None:
    assert list(stale()) == [], "run `python -m docs.generate`"


def anchors(page: Path) -> set[str]:
    """The ids that the headings of a page get."""
    text = re.sub(r"```.*?```|~~~.*?~~~", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|~~~.*?~~~|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {target}"


def test_every_walkthrough_is_in_the_wheel() -> None:
    """Each leads on to the next one, so one that is left out is a dead link for whoever installed nbagent."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        taken = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    listed = subprocess.run(["git", "ls-files", "notebooks"], cwd=ROOT, capture_output=True, text=True, check=True)
    parts = {"/".join(name.split("/")[:2]) for name in listed.stdout.splitlines()} - {"notebooks/.gitignore"}
    assert taken == {part: part.replace("notebooks/", "nbagent/walkthroughs/", 1) for part in parts}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "docs/*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    pages = [name.removeprefix("docs/") for name in listed.splitlines()]
    assert [page for page in pages if not re.search(rf"[ :]{re.escape(page)}$", navigation, re.MULTILINE)] == []


def test_no_machine_paths_and_no_package_hosts() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    host = "|".join(
        (
            "files." + "pythonhosted",
            "pypi" + r"\.org",
            "registry" + r"\.npmjs",
            "registry" + r"\.yarnpkg",
            "deb" + r"\.debian",
        )
    )
    wrong = re.compile(rf"/work/(main|shared)\b|{host}")
    found = []
    for name in filter(None, listed):
        path = ROOT / name
        if path.suffix in (".png", ".ipynb", ".parquet") or not path.is_file():
            continue
        found += [
            f"{name}: {hit.group(0)}" for hit in wrong.finditer(path.read_text(encoding="utf-8", errors="replace"))
        ]
    assert found == []
