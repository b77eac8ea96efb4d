"""Stop, at any moment: the cell ends at once, nothing is left running, and the next cell goes on."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import pytest

from nbagent.event import FinishEvent, SessionEvent, ToolEvent
from nbagent.permission.ask import Ask, Reply
from nbagent.session.run import Options
from nbagent.session.session import Prompt
from tests.crash import calls, processes_with, until
from tests.person import Desk, Person, at_work
from tests.project import Project
from tests.server import ScriptedServer, call, fault, last_user_text, pause, say
from tests.session.scripts import told

Start = Callable[..., ScriptedServer]
MARK = f"sleep 43.{os.getpid()}"
SETTINGS = """
[permission]
bash = "allow"
webfetch = "ask"
edit = {"asked.txt" = "ask"}
[models.small]
window = 9000
"""


@dataclass
class Kind:
    """Something that a run can be in the middle of. ``ready``: whether it is, by the events."""

    name: str
    ready: Callable[[Person], Any]
    options: Options = field(default_factory=Options)
    agent: str = "build"


def running(name: str) -> Callable[[Person], Any]:
    return lambda person: person.tools(name, "running")


def event(kind: str) -> Callable[[Person], Any]:
    return lambda person: any(type(each).__name__ == kind for each in person.events)


KINDS = (
    Kind("streaming", event("TextDelta")),
    Kind("shell", running("bash")),
    Kind("walled shell", running("bash"), agent="plan"),
    Kind("ask", lambda person: person.asked),
    Kind("compaction", event("CompactionEvent"), Options(model="small")),
    Kind("countdown", event("RetryEvent")),
    Kind("child", running("task")),
    Kind("search", running("grep")),
)


def model(body: dict[str, Any]) -> Any:
    """Does what the prompt names, without end."""
    prompt = re.findall(r"Do this: ([a-z ]+)", last_user_text(body))
    slowly: list[Any] = [each for number in range(60) for each in (say(f"word {number} "), pause(0.05))]
    steps = len(body["messages"])
    if "Write the notes now" in told(body):
        return slowly
    match prompt[-1] if prompt else "":
        case "streaming" | "part of it":
            return slowly
        case "countdown":
            return fault(429, headers={"retry-after": "200"})
        case "compaction":
            return [call("read", {"filePath": "big.txt", "offset": steps * 100, "limit": 1000})]
        case "ask":
            return [call("read", {"filePath": "README.md"}), call("write", {"filePath": "asked.txt", "content": "x"})]
        case "child":
            return [call("task", {"description": "d", "prompt": "Do this: part of it", "subagent_type": "explore"})]
        case "search":
            return [call("grep", {"pattern": f"(a+)+b{steps}", "path": "."})]
        case "shell" | "walled shell":
            return [call("bash", {"command": f"({MARK} & {MARK} & wait) & echo begun; {MARK}", "description": "wait"})]
    return [say("I go on.")]


async def never(ask: Ask) -> Reply:
    await asyncio.sleep(60)
    return Reply("once")


def stop_at(desk: Desk, kind: Kind, chance: random.Random) -> None:
    """Start a cell, stop it in the middle of ``kind`` or on the way there, and look at what is left."""
    person = Person(asks=[never, never])
    task = desk.runtime.start(Prompt(f"Do this: {kind.name}", kind.agent, options=kind.options), person)
    if chance.random() < 0.75:
        until(lambda: kind.ready(person) or task.done.done())
        assert not task.done.done(), (kind.name, task.done)
    time.sleep(chance.uniform(0, 0.25))
    began = time.monotonic()
    task.stop()
    with pytest.raises(CancelledError):
        task.done.result(10)
    took = time.monotonic() - began
    assert took < 1.0, (kind.name, took)
    until(lambda: not processes_with(MARK), seconds=3)
    assert not (desk.project.root / "asked.txt").exists()
    if any(isinstance(each, SessionEvent) for each in person.events):
        assert [e.reason for e in person.events if isinstance(e, FinishEvent) and not e.parent] == ["stopped"]
    for part in calls(desk.runtime.messages()):
        assert part.status in ("completed", "error"), (kind.name, part)
    opened = {e.call_id for e in person.events if isinstance(e, ToolEvent)}
    closed = {e.call_id for e in person.events if isinstance(e, ToolEvent) and e.state in ("completed", "error")}
    assert opened == closed, kind.name
    assert desk.runtime.store.crashed() == []
    assert desk.cell(kind.agent, "Do this: go on", Person(), options=Options()).text == "I go on."


def _moments(project: Project, server: Start, count: int, seed: int) -> None:
    project.write("nbagent.toml", SETTINGS)
    project.write("big.txt", "a line of the file\n" * 3000)
    for number in range(60):
        project.write(f"many/{number}.txt", "aaaaaaaaaaaaaaaa\n" * 200)
    chance = random.Random(seed)
    with at_work(project, server(model)) as desk:
        desk.runtime.resources.patience = 1.0
        for number in range(count):
            desk.runtime.new_session()
            desk.cell("build", "Do this: go on", Person(), options=Options())
            stop_at(desk, KINDS[number % len(KINDS)], chance)


@pytest.mark.timeout(240)
def test_stopped_at_random_moments(project: Project, server: Start) -> None:
    _moments(project, server, 16, seed=4)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_stopped_at_many_random_moments(project: Project, server: Start) -> None:
    _moments(project, server, 64, seed=5)


def test_a_receipt_of_a_large_project_does_not_hold_up_a_stop(project: Project, server: Start) -> None:
    """What a stopped cell changed can be undone although its files were still being compared when it ended."""
    project.write("nbagent.toml", SETTINGS)
    for number in range(4000):
        path = project.root / f"many/{number % 50}/{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")

    def answer(body: dict[str, Any]) -> Any:
        if len(body["messages"]) > 2:
            return [say("Now "), pause(20)]
        return [call("write", {"filePath": "new.txt", "content": "x"})]

    person = Person()
    with at_work(project, server(answer)) as desk:
        task = desk.runtime.start(Prompt("write", "build", options=Options()), person)
        until(lambda: person.texts() or event("TextDelta")(person))
        began = time.monotonic()
        task.stop()
        with pytest.raises(CancelledError):
            task.done.result(10)
        assert time.monotonic() - began < 1.0
        assert (project.root / "new.txt").exists()
        desk.runtime.undo()
        assert not (project.root / "new.txt").exists()
