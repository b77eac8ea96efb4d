"""A session of many steps: what it keeps in memory is its history, and the last steps take no longer than the first."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
import psutil
import pytest

from nbagent.event import StepEvent
from tests.person import Person, at_work, limits
from tests.project import Project
from tests.server import ScriptedServer, call, say

Start = Callable[..., ScriptedServer]


class Clocked(Person):
    """Notes when each step began, and the memory of the process now and then; keeps no events."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.memory: dict[int, int] = {}

    def show(self, event: Any) -> None:
        if isinstance(event, StepEvent):
            self.steps.append(time.thread_time())
            if len(self.steps) % 100 == 50:
                gc.collect()
                self.memory[len(self.steps)] = psutil.Process().memory_info().rss


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_five_hundred_steps(project: Project, server: Start) -> None:
    for number in range(560):
        project.write(f"many/f{number}.txt", f"line of file {number}\n" * 40)
    count = iter(range(10_000))

    def answer(body: dict[str, Any]) -> Any:
        number = next(count)
        return [call("read", {"filePath": f"many/f{number}.txt"})] if number < 555 else [say("done")]

    model = server(answer, strict=False)
    model.requests = Forgetful()
    model.seen = Forgetful()
    person = Clocked()
    with at_work(project, model) as desk:
        desk.cell("build", "read all", person, options=limits(steps=600), seconds=500)
        history = len(msgspec.json.encode(desk.runtime.messages()))
    grown = person.memory[550] - person.memory[50]
    assert grown < 12 * history + 8_000_000, (grown, history, person.memory)
    gaps = [b - a for a, b in zip(person.steps, person.steps[1:], strict=False)]
    first, last = statistics.median(gaps[5:40]), statistics.median(gaps[-40:])
    assert last < 2 * first, (first, last)


class Forgetful(list[Any]):
    """Keeps nothing: a server that holds every request would be what grows."""

    def append(self, value: Any) -> None:
        pass
