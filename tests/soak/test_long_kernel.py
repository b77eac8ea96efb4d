"""Two hours' worth of work in one kernel: nothing grows that should not, and nothing is lost.

2,000 steps in 200 cells, 50 of them stopped, 20 compactions. ``NBAGENT_SOAK`` scales it (``NBAGENT_SOAK=0.05``: a twentieth).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbagent.message import Message, TextPart, ToolPart
from nbagent.store.store import Store
from tests.kernel.kernel import Clicker, Done, Kernel, Page
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, hold, say

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(0),
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc"),
]

SCALE = float(os.environ.get("NBAGENT_SOAK", "1"))
CELLS = max(10, round(200 * SCALE))
STEPS = 10
STOP_EVERY = 4
COMPACT_EVERY = 10
NEW_EVERY = 20
WARM = 0.3
"""Share of the cells after which everything that is made once has been made."""

RULES = '[permission]\nedit = "allow"\n[permission.bash]\n"*" = "allow"\n'
LONG = "python3 -c 'import time; time.sleep(60)'"


@dataclass
class Brain:
    """The scripted model: ``STEPS`` calls a cell, then a word; a cell to be stopped holds at its fifth step, or in a command."""

    cell: int = 0
    step: int = 0
    value: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    summaries: int = 0
    gate: Gate = field(default_factory=Gate)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def stops(self) -> bool:
        return self.cell % STOP_EVERY == STOP_EVERY - 1

    def begin(self, cell: int) -> None:
        self.cell, self.step, self.gate = cell, 0, Gate()

    def answer(self, body: dict[str, Any]) -> Any:
        with self.lock:
            if not body.get("tools"):
                self.summaries += 1
                return [say("Files were read, counted and changed; all is as it should be. " * 10)]
            self.step += 1
            if self.stops and self.step == 5:
                if self.cell % (2 * STOP_EVERY) == STOP_EVERY - 1:
                    return [say("I begin to "), hold(self.gate)]
                return [call("bash", {"command": LONG, "description": "wait", "timeout": 70_000})]
            if self.step > STEPS:
                return [say(f"Cell {self.cell} is done.\n\n" + "A sentence about it. " * 20, size=7)]
            return [say("Next. " * 5, size=6), self._call()]

    def _call(self) -> Any:
        number = self.cell * STEPS + self.step
        kind = ("read", "grep", "edit", "bash", "write")[number % 5]
        self.calls[kind] += 1
        if kind == "read":
            return call("read", {"filePath": f"src/f{number % 30}.py"})
        if kind == "grep":
            return call("grep", {"pattern": f"value_{number % 7}"})
        if kind == "edit":
            old, self.value = self.value, self.value + 1
            return call(
                "edit",
                {"filePath": "count.py", "oldString": f"value = {old}\n", "newString": f"value = {self.value}\n"},
            )
        if kind == "bash":
            return call("bash", {"command": f"echo number {number}; wc -l src/f1.py", "description": "count"})
        return call("write", {"filePath": f"out/w{number}.txt", "content": f"written at {number}\n" * 5})


@dataclass(frozen=True)
class State:
    """What the kernel's process holds at one moment. ``memory``: MB; ``rows``, ``size``: parts in the database and its bytes."""

    memory: float
    handles: int
    threads: int
    widgets: int
    comms: int
    children: int
    temporary: int
    rows: int
    size: int


def look(shell: Kernel, project: Project) -> State:
    pid = shell.manager.provisioner.process.pid
    shell.value("1", "import gc; gc.collect()")
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    database = project.home / "sessions.db"
    with sqlite3.connect(database) as db:
        rows = db.execute("SELECT count(*) FROM part").fetchone()[0]
    db.close()
    return State(
        memory=int(status["VmRSS"].split()[0]) / 1024,
        handles=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(status["Threads"]),
        widgets=int(shell.value("len(__import__('ipywidgets').widgets.widget._instances)")),
        comms=int(shell.value("len(get_ipython().kernel.comm_manager.comms)")),
        children=len(psutil.Process(pid).children(recursive=True)),
        temporary=sum(1 for _ in (project.user_home.parent / "tmp").rglob("*")),
        rows=rows,
        size=sum(path.stat().st_size for path in project.home.glob("sessions.db*")),
    )


def run_cell(shell: Kernel, brain: Brain, cell: int) -> Done:
    brain.begin(cell)
    pressed: list[float] = []
    alive = Clicker()

    def person(page: Page) -> None:
        alive(page)
        if brain.stops and not pressed and _waiting(brain, page):
            pressed.append(time.monotonic())
            shell.interrupt()

    done = shell.run(f"%%build\nWork on part {cell} of everything.", person=person, seconds=120)
    if brain.stops:
        brain.gate.open()
        assert pressed and time.monotonic() - pressed[0] < 5, done.text
        assert done.record["receipt"]["reason"] == "stopped"
    else:
        assert done.status == "ok", done.text
        assert f"Cell {cell} is done." in done.of("text")[-1]["text"]
    for name in [name for name, page in shell.pages.items() if page.closed]:
        del shell.pages[name]
    return done


def _waiting(brain: Brain, page: Page) -> bool:
    if brain.gate.reached.is_set():
        return True
    return any(
        item["kind"] == "tool" and item["state"] == "running" and LONG in str(item) for item in page.record["items"]
    )


def test_a_long_kernel_stays_as_it_is(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "tmp").mkdir()
    project.environment["TMPDIR"] = str(tmp_path / "tmp")
    project.write("nbagent.toml", RULES)
    project.write("count.py", "value = 0\n")
    for number in range(30):
        project.write(f"src/f{number}.py", f"value_{number % 7} = {number}\n" * 60)
    brain = Brain()
    prompts: list[str] = []
    states: list[State] = []
    compactions = 0
    with ScriptedServer(brain.answer) as server:
        project.use(server)
        shell = Kernel(project.root, project.environment)
        try:
            shell.run("%load_ext nbagent")
            for cell in range(CELLS):
                if cell and cell % NEW_EVERY == 0:
                    shell.run("%agent new")
                run_cell(shell, brain, cell)
                prompts.append(f"Work on part {cell} of everything.")
                if cell % COMPACT_EVERY == COMPACT_EVERY - 1:
                    done = shell.run("%agent compact", seconds=60)
                    assert done.status == "ok", done.text
                    compactions += 1
                states.append(look(shell, project))
            assert shell.value("1 + 1") == "2"
        finally:
            shell.close()
        assert not server.violations, server.violations[:3]
    flat(states)
    nothing_lost(project, brain, prompts, compactions)


def flat(states: list[State]) -> None:
    """From the warm part on nothing grows but the history in the database, and that evenly."""
    warm = states[int(len(states) * WARM)]
    last = states[-1]
    print(f"\nfirst {states[0]}\nwarm  {warm}\nlast  {last}")
    assert last.memory - warm.memory < 12 + 0.1 * (len(states) - 1), (warm, last)
    assert last.handles <= warm.handles + 2
    assert last.threads <= warm.threads + 6  # the pool for blocking work fills up by and by
    assert last.widgets <= warm.widgets + 1
    assert last.comms <= warm.comms + 1
    assert last.children <= warm.children
    assert last.temporary <= warm.temporary + 3
    a_part = (warm.size - states[0].size) / max(1, warm.rows - states[0].rows)
    later = (last.size - warm.size) / max(1, last.rows - warm.rows)
    assert later < 1.5 * a_part + 500, (a_part, later)


def nothing_lost(project: Project, brain: Brain, prompts: list[str], compactions: int) -> None:
    store = Store.open(project.home / "sessions.db")
    try:
        messages: list[Message] = []
        for row in store.sessions():
            messages += store.messages(row.id)
            assert store.mark(row.id) is None and not store.undelivered(row.id)
    finally:
        store.close()
    asked = {part.text for m in messages if m.role == "user" for part in m.parts if isinstance(part, TextPart)}
    assert not [prompt for prompt in prompts if prompt not in asked]
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    assert {part.status for part in calls} <= {"completed", "error"}
    done = Counter(part.tool for part in calls if part.status == "completed")
    failed = [part for part in calls if part.status == "error" and LONG not in str(part.input)]
    assert not failed, failed[:2]
    assert done == brain.calls
    assert project.read("count.py") == f"value = {brain.value}\n"
    assert brain.summaries >= compactions
