"""What each step adds on top of the model, from the first to the thousandth; the model is a process of its own."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figure import Figure, Found, median
from bench.kernel import memory
from bench.place import ground, reads
from bench.server import Model, gaps

CLAIM = (
    "From an answer's last byte to the arrival of the next request, with one file read between, as a session grows. *openai client "
    "alone*: the floor: a loop that reads the same file and sends the same answers back by the client library, with no rules, store, or "
    "receipt."
)
CHEAP = True
SECONDS = 400
BOUNDS = {10: 5.0, 1000: 7.5}
ALONE = "openai client alone"
GROWTH = (100, 600)


@dataclass(frozen=True)
class Ran:
    """``gaps``: milliseconds; ``cpu``: milliseconds a step; ``memory``: step → megabytes resident; ``sizes``: bytes of each request."""

    gaps: list[float]
    cpu: float
    memory: dict[int, float]
    sizes: list[int]


def run(steps: int) -> Ran:
    """One run of so many steps."""
    from nbagent.config import LimitSettings
    from nbagent.event import StepEvent
    from nbagent.frontend import Nobody
    from nbagent.runtime import Runtime
    from nbagent.session.run import Options
    from nbagent.session.session import Prompt

    with ground(steps) as place, Model(reads(steps)) as model:
        place.use(model.url)
        runtime = Runtime.open(place.root, environment=place.environment)
        resident: dict[int, float] = {}

        def show(event: Any) -> None:
            if isinstance(event, StepEvent) and event.step in GROWTH:
                resident[event.step] = memory(os.getpid())[0]

        prompt = Prompt("read everything", "build", options=Options(limits=LimitSettings(steps=steps + 10)))
        begin = time.process_time()
        runtime.start(prompt, Nobody(show)).done.result(SECONDS)
        cpu = (time.process_time() - begin) * 1000 / steps
        runtime.close()
        requests = model.requests()
        return Ran(gaps(requests), cpu, resident, [each.size for each in requests])


async def _loop(url: str, root: Path) -> None:
    from openai import AsyncOpenAI

    tool = {"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]}
    tools: Any = [{"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": tool}}]
    messages: Any = [{"role": "system", "content": "You read files."}, {"role": "user", "content": "read everything"}]
    async with AsyncOpenAI(base_url=url, api_key="sk-none") as client:
        while True:
            stream: AsyncIterator[Any] = await client.chat.completions.create(
                model="scripted", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
            )
            call, name, arguments = "", "", ""
            async for chunk in stream:
                for piece in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
                    call, name = piece.id or call, piece.function.name or name
                    arguments += piece.function.arguments or ""
            if not call:
                return
            made = {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            text = (root / json.loads(arguments)["filePath"]).read_text()
            messages.append({"role": "assistant", "tool_calls": [made]})
            messages.append({"role": "tool", "tool_call_id": call, "content": text})


def floor(steps: int) -> tuple[list[float], float]:
    """The same as ``run``, by the client library alone."""
    with ground(steps) as place, Model(reads(steps)) as model:
        begin = time.process_time()
        asyncio.run(_loop(model.url, place.root))
        return gaps(model.requests()), (time.process_time() - begin) * 1000 / steps


def measure(quick: bool) -> Found:
    steps = 12 if quick else 1010
    runs, floors = [], []
    for _ in range(1 if quick else 5):
        runs.append(run(steps))
        gc.collect()
        if len(floors) < 3:  # it takes longer than all else here
            floors.append(floor(steps))
            gc.collect()
    found: Found = []
    around: dict[int, float] = {}
    for number in (10, 100, 500, 1000):
        if number < steps:
            near = slice(max(0, number - 7), number + 6)
            of_runs = [median(ran.gaps[near]) for ran in runs]
            around[number] = median(of_runs)
            found.append(Figure(f"step {number:,} adds", around[number], "ms", most=BOUNDS.get(number)))
            found.append(Figure(f"step {number:,} adds", median([median(gap[near]) for gap, _ in floors]), "ms", ALONE))
            found.append(Figure(f"step {number:,} adds, the quickest run", min(of_runs), "ms"))
    if 1000 in around:
        found.append(Figure("step 1,000 against step 10", around[1000] / around[10], "times", most=1.5))
    found.append(Figure("CPU a step", median([ran.cpu for ran in runs]), "ms"))
    found.append(Figure("CPU a step", median([cpu for _, cpu in floors]), "ms", ALONE))
    return found + _growth(runs[0])


def _growth(first: Ran) -> Found:
    """Of the first run, whose process is fresh: memory beside the history that the session is made of."""
    if len(first.memory) < len(GROWTH):
        return []
    begin, end = GROWTH
    grown = first.memory[end] - first.memory[begin]
    history = (first.sizes[end - 1] - first.sizes[begin - 1]) / 1e6
    return [
        Figure(f"memory from step {begin} to step {end}", grown, "MB"),
        Figure(f"history from step {begin} to step {end}, as it is sent", history, "MB"),
    ]
