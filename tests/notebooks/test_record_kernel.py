"""A lesson recorded in a notebook from a real server, and replayed elsewhere without one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from nbagent.notebook.replay import replay_one
from tests.project import CANARY_KEY
from tests.server import ScriptedServer, call, fault, say
from tests.session.scripts import EXIT, write_plan

Start = Callable[..., ScriptedServer]


def lesson(folder: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    folder.mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "a.py").write_text("def f():\n    return 1\n")
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), folder / "lesson.ipynb")
    return folder / "lesson.ipynb"


def execute(path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    own = {
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": CANARY_KEY,
        "NBAGENT_MODEL": "scripted",
        "NBAGENT_HOME": str(tmp_path / "home"),
        "NBAGENT_CONFIG": os.devnull,
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, 4)
    NotebookClient(
        notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    return notebook


CELLS = (
    "%load_ext nbagent",
    "%%plan RECORD\nMake f return 2.",
    "%%build RECORD\nDo it.",
    "print(open('a.py').read())",
)
EDIT = [call("edit", {"filePath": "a.py", "oldString": "return 1", "newString": "return 2"})]


def test_two_cells_recorded_into_one_file_replay_elsewhere(
    server: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = lesson(tmp_path / "here", *(cell.replace("RECORD", "--record lesson.cassette") for cell in CELLS))
    read = [say(f"I read {here.parent}/a.py with {CANARY_KEY}."), call("read", {"filePath": str(here.parent / "a.py")})]
    model = server([read, write_plan(), EXIT, [*EDIT], [say("Done.")]])
    notebook = execute(here, model, monkeypatch, tmp_path)
    assert "return 2" in notebook.cells[3].outputs[0]["text"]
    text = (here.parent / "lesson.cassette").read_text()
    assert CANARY_KEY not in text
    assert str(tmp_path) not in text
    assert text.count('"answer"') == 5
    model.close()

    elsewhere = lesson(tmp_path / "far" / "away", *(cell.replace(" RECORD", "") for cell in CELLS))
    shutil.copy(here.parent / "lesson.cassette", elsewhere.parent)
    assert replay_lines(elsewhere, update=True) == ()
    stored: Any = nbformat.read(elsewhere, 4)
    assert "return 2" in stored.cells[3].outputs[0]["text"]
    assert replay_lines(elsewhere) == ()

    (elsewhere.parent / "a.py").write_text("def f():\n    return 1  # one\n")
    lines = replay_lines(elsewhere)
    assert "does not fit" in lines[0]
    assert "message differs: result of read" in lines[0]


def replay_lines(path: Path, update: bool = False) -> tuple[str, ...]:
    import asyncio

    return asyncio.run(replay_one(path, update=update, cell_seconds=60)).lines


def test_a_cell_that_failed_leaves_no_cassette(server: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = lesson(tmp_path / "here", *(cell.replace("RECORD", "--record lesson.cassette") for cell in CELLS))
    with pytest.raises(CellExecutionError):
        execute(here, server([[say("x"), call("read", {"filePath": "a.py"})], fault(401)]), monkeypatch, tmp_path)
    assert sorted(p.name for p in here.parent.iterdir() if "cassette" in p.name) == []
