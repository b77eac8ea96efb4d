"""The walkthroughs, each run in a real kernel against its cassette and held against what it says when stored."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from nbagent.notebook.compare import settle
from nbagent.notebook.demo import demo
from nbagent.notebook.replay import replay_one
from nbagent.notebook.rerun import Rerun, rerun
from nbagent.sandbox import NoWall, find_wall

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
FIRST = NOTEBOOKS / "01-plan-and-build.ipynb"
NEED_A_WALL = ("03-the-wall",)
NBCLIENT = "from nbclient.cli import main; main()"
LESSONS = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
async def test_a_walkthrough_says_what_it_said_when_it_was_stored(path: Path) -> None:
    if path.stem in NEED_A_WALL and isinstance(find_wall(), NoWall):
        pytest.skip("this machine has no wall")
    result = await replay_one(path, cell_seconds=60)
    assert result.lines == ()


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_walkthrough_is_readable_as_saved(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    text = path.read_text(encoding="utf-8")
    assert "application/vnd.jupyter.widget" not in text
    assert "/tmp/" not in text
    assert re.search(r"by hand|recorded", "".join(c.source for c in notebook.cells if c.cell_type == "markdown"))
    assert all(
        cell.outputs or cell.source.startswith("%load_ext") or "import" in cell.source for cell in code(notebook)
    )
    for link in re.findall(r"\]\(([\w.-]+)\)", text):
        assert (NOTEBOOKS / link).exists(), link


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def stored_text(run: Rerun) -> str:
    settle(run.notebook, run.folder, run.home)
    return json.dumps(run.notebook, sort_keys=True)


async def test_two_runs_of_the_first_one_are_the_same_to_the_byte() -> None:
    one, two = await rerun(FIRST), await rerun(FIRST)
    assert one.error == ""
    assert one.leftovers == ()
    assert one.files == two.files
    assert stored_text(one) == stored_text(two)


async def test_without_answers_nothing_is_approved_and_nothing_is_built(tmp_path: Path) -> None:
    """As in nbclient or papermill, where nobody is there: the plan is written and waits."""
    environment = {**os.environ, "NBAGENT_HOME": str(tmp_path / "home"), "NBAGENT_CONFIG": os.devnull}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    copied = tmp_path / "notebooks"
    subprocess.run(["cp", "-r", str(NOTEBOOKS), str(copied)], check=True)
    command = [sys.executable, "-c", NBCLIENT, "--allow-errors", FIRST.name]
    subprocess.run(command, env=environment, cwd=copied, check=False, capture_output=True, timeout=100)
    assert (copied / "work/churn/metrics.py").read_bytes() == (NOTEBOOKS / "churn/metrics.py").read_bytes()
    plans = [p for p in (copied / "work/churn/.nbagent/plans").iterdir() if p.suffix == ".md"]
    assert len(plans) == 1


@pytest.mark.skipif(os.name == "nt", reason="there, programs are in a folder of their own")
def test_the_python_of_a_command_is_that_of_the_kernel(tmp_path: Path) -> None:
    """JupyterLab may have been started by its path, from an environment that nobody activated."""
    subprocess.run(["cp", "-r", str(NOTEBOOKS), str(tmp_path / "lessons")], check=True)
    code = "from workbench import fresh; fresh('churn'); import shutil; print(shutil.which('python'))"
    environment = {**os.environ, "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path / "lessons", capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1:] == [str(Path(sys.executable).parent / "python")], done.stderr


def test_the_demo_tells_what_happened_cell_by_cell(tmp_path: Path) -> None:
    out = io.StringIO()
    assert demo(open_lab=False, keep=tmp_path / "demo", out=out) == 0
    text = out.getvalue()
    assert text.count("REFUSED") == 3
    assert "by the rule edit *: deny (floor)" in text
    assert "APPROVED" in text
    assert "answered by the cassette" in text
    assert re.search(r"receipt: .*metrics\.py", text)
    assert "ran to its end" in text
    assert "jupyterlab" in text
    assert "CassetteError" not in text
    assert (tmp_path / "demo" / "work" / "churn" / "metrics.py").exists()
    assert not (tmp_path / "demo" / ".nbagent-home").exists()
    saved = nbformat.read(tmp_path / "demo" / FIRST.name, 4)
    assert any(cell.outputs for cell in code(saved))


def test_the_command_replays_several_at_once(tmp_path: Path) -> None:
    """As in CI: two notebooks side by side, a JUnit file, exit status 0; the notebooks' folder is left as it was."""
    before = {path: path.read_bytes() for path in NOTEBOOKS.iterdir() if path.is_file()}
    names = ["02-rules.ipynb", "08-classroom.ipynb"]
    command = [sys.executable, "-m", "nbagent.cli", "replay", *names, "-j", "2", "--junit", str(tmp_path / "out.xml")]
    done = subprocess.run(command, cwd=NOTEBOOKS, capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "out.xml").read_text(encoding="utf-8")
    assert 'tests="2"' in report and 'failures="0"' in report and all(Path(name).stem in report for name in names)
    assert {path: path.read_bytes() for path in NOTEBOOKS.iterdir() if path.is_file()} == before
