"""A process of nbagent that a test ends with ``kill -9``, and what is then found: rows, files, processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from nbagent.cli import session_line
from nbagent.message import Message, ToolPart
from nbagent.store.store import Store
from tests.project import Project, Ran

REPOSITORY = Path(__file__).parents[1]


def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait for something that another process brings about; returns it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)
    return found


class Program:
    """``python -m …`` at work in a project, printing JSON lines into a file."""

    def __init__(self, project: Project, *arguments: str, module: str = "nbagent.cli") -> None:
        self.out = project.root.parent / f"out-{time.monotonic_ns()}.jsonl"
        self.err = self.out.with_suffix(".err")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=project.root,
                env={**project.environment, "PYTHONPATH": str(REPOSITORY)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has printed so far, whole lines only."""
        lines = self.out.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def has(self, kind: str, **fields: Any) -> bool:
        return any(e["type"] == kind and all(e.get(k) == v for k, v in fields.items()) for e in self.events)

    def kill(self) -> list[int]:
        """``kill -9``; the numbers of the processes that it had below it."""
        try:
            below = [each.pid for each in psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            below = []
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        return below

    def end(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)


def gone(pids: list[int]) -> bool:
    """Whether none of these runs any more (a zombie does not run)."""
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            continue
    return True


def processes_with(words: str) -> list[int]:
    """Processes whose command line holds ``words``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line and psutil.pid_exists(int(entry.name)):
                found.append(int(entry.name))
    return found


def sessions(project: Project) -> list[dict[str, Any]]:
    """``nbagent sessions --json`` of this project."""
    listed = project.nbagent("sessions", "--json", "--root", str(project.root))
    assert listed.status == 0, listed.err
    rows: list[dict[str, Any]] = json.loads(listed.out)
    return rows


def the_session(project: Project) -> dict[str, Any]:
    (row,) = sessions(project)
    return row


def resume(project: Project, session_id: str = "", **more: Any) -> Ran:
    return project.nbagent("resume", session_id or the_session(project)["id"], "--format", "json", **more)


def messages(project: Project, session_id: str = "") -> list[Message]:
    store = Store.open(project.home / "sessions.db")
    try:
        return store.messages(session_id or store.sessions()[0].id)
    finally:
        store.close()


def calls(found: list[Message]) -> list[ToolPart]:
    return [part for message in found for part in message.parts if isinstance(part, ToolPart)]


def session_id(project: Project) -> str:
    store = Store.open(project.home / "sessions.db")
    try:
        return store.sessions()[0].id
    finally:
        store.close()


def status(project: Project) -> str:
    """What ``nbagent sessions --json`` would say of the one session."""
    store = Store.open(project.home / "sessions.db")
    try:
        (row,) = store.sessions()
        return str(session_line(store, row)["status"])
    finally:
        store.close()


def inputs(project: Project) -> list[tuple[str, bool]]:
    """Every accepted input in order: (its text, whether it was delivered)."""
    db = sqlite3.connect(project.home / "sessions.db")
    try:
        rows = db.execute("SELECT content, time_delivered FROM inbox ORDER BY rowid").fetchall()
    finally:
        db.close()
    return [(json.loads(content)["text"], delivered is not None) for content, delivered in rows]


def attempts(project: Project) -> list[int]:
    db = sqlite3.connect(project.home / "sessions.db")
    try:
        return [row[0] for row in db.execute("SELECT attempts FROM execution")]
    finally:
        db.close()
