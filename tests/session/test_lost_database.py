"""The session database is taken away, or damaged, while a kernel works with it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator

import pytest

from nbagent.errors import StoreError
from nbagent.notebook.desk import Desk
from nbagent.runtime import Runtime
from nbagent.session.session import Prompt, Result
from tests.person import Person
from tests.project import Project
from tests.server import ScriptedServer, say

Start = Callable[..., ScriptedServer]


@pytest.fixture
def desk(project: Project, server: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    project.use(server([[say(f"answer {number}")] for number in range(1, 5)]))
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    made = Desk(project.root, {})
    yield made
    made.close()


def cell(desk: Desk, text: str) -> tuple[Result, Runtime, list[str]]:
    """As a cell does it; and what it says beforehand."""
    runtime = desk.runtime()
    result = runtime.start(Prompt(text, "build"), Person()).done.result(30)
    assert result is not None
    return result, runtime, desk.news(runtime)


def test_a_deleted_database_is_written_again(project: Project, desk: Desk) -> None:
    cell(desk, "one")
    for left in project.home.glob("sessions.db*"):
        left.unlink()
    _, runtime, said = cell(desk, "two")
    assert ["was deleted" in each for each in said] == [True]
    session = runtime.session_id
    desk.close()
    again = Runtime.open(project.root, environment=dict(os.environ))
    try:
        assert again.open_session(session).title == "one"
        assert [m.role for m in again.messages(session)] == ["user", "assistant"] * 2
    finally:
        again.close()


def test_a_deleted_data_folder_is_made_again(project: Project, desk: Desk) -> None:
    cell(desk, "one")
    shutil.rmtree(project.home)
    _, runtime, _ = cell(desk, "two")
    assert len(runtime.messages()) == 4
    assert (project.home / "sessions.db").exists()


def test_a_database_damaged_in_use_is_kept_aside_by_the_next_cell(project: Project, desk: Desk) -> None:
    cell(desk, "one")
    path = project.home / "sessions.db"
    with sqlite3.connect(path) as other:
        other.execute("VACUUM")  # so that the kernel's connection reads its pages anew
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (path.stat().st_size - 100))
    with pytest.raises(StoreError, match="Run the cell again"):
        cell(desk, "two")
    result, _, said = cell(desk, "three")
    assert result.reason == "stop"
    assert any("kept as" in each for each in said)
