"""A walkthrough under the programs that run notebooks: nobody is there to answer, and the exit status is right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

PROMPT = "Say hello."
CASSETTE = """cassette: written by hand
model: played

plan
  say: I write the plan.
  call: write
    filePath: {plan}
    content:
      # Hello

      ## How to verify
      Read it.
  expect: completed
  call: plan_exit
"""
WRONG = "cassette: written by hand\nbuild\n  say: another agent's answer\n"


def project(folder: Path, cassette: str) -> Path:
    """A folder with a cassette and a notebook that plans."""
    (folder / ".git").mkdir()
    (folder / "a.cassette").write_text(cassette)
    sources = ["%load_ext nbagent", f"%%plan --cassette a.cassette\n{PROMPT}", "print('went on')"]
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "a.ipynb")
    return folder


NBCLIENT = "from nbclient.cli import main; main()"
RUNNERS: dict[str, tuple[str, list[str]]] = {
    "nbclient": ("nbclient", ["-c", NBCLIENT, "a.ipynb", "--output", "out"]),
    "nbconvert": (
        "nbconvert",
        ["-m", "nbconvert", "--to", "notebook", "--execute", "a.ipynb", "--output", "out.ipynb"],
    ),
    "papermill": ("papermill", ["-m", "papermill", "--no-progress-bar", "a.ipynb", "out.ipynb"]),
    "nbmake": ("nbmake", ["-m", "pytest", "-q", "--nbmake", "-p", "no:cacheprovider", "--rootdir", ".", "a.ipynb"]),
    "jupytext": ("jupytext", ["-m", "jupytext", "--execute", "--to", "notebook", "--output", "out.ipynb", "a.ipynb"]),
}


def run(folder: Path, runner: str) -> subprocess.CompletedProcess[str]:
    module, arguments = RUNNERS[runner]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("NBAGENT_", "OPENAI_", "PYTEST_"))}
    own = {"NBAGENT_HOME": str(folder / "home"), "NBAGENT_CONFIG": os.devnull, "PYTHONPATH": ""}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=kept | own,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_plan_is_written_and_waits_and_the_notebook_goes_on(runner: str, tmp_path: Path) -> None:
    folder = project(tmp_path, CASSETTE)
    done = run(folder, runner)
    assert done.returncode == 0, done.stdout + done.stderr
    [plan] = (folder / ".nbagent" / "plans").glob("*.md")
    assert plan.read_text().startswith("# Hello")
    if (folder / "out.ipynb").exists():
        text = (folder / "out.ipynb").read_text()
        assert "plan not approved yet" in text
        assert "went on" in text
        assert "widget-view" not in text


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_run_that_fails_ends_the_notebook_and_the_program(runner: str, tmp_path: Path) -> None:
    folder = project(tmp_path, WRONG)
    done = run(folder, runner)
    assert done.returncode != 0
    assert "does not fit" in done.stdout + done.stderr
