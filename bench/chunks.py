"""What small chunks cost: nbagent's provider and a whole run, side by side with the ``openai`` client alone."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bench.figure import Figure, Found, median
from bench.place import ground
from bench.server import Model

CLAIM = (
    "An answer of small chunks, one HTTP chunk each, from a server in a process of its own: CPU of the reader. "
    "*Whole run*: session, store and a frontend that only counts."
)
CHEAP = True
SECONDS = 300


async def _provider(url: str) -> int:
    from nbagent.provider.openai import make_provider
    from nbagent.provider.provider import Request, Say, Text, UserTurn
    from nbagent.provider.settings import ServerSettings

    provider = make_provider(ServerSettings(base_url=url, api_key="sk-none"))
    request = Request(model="m", system="s", turns=(UserTurn((Text("go"),)),))
    characters = 0
    async for delta in provider.stream(request):
        if isinstance(delta, Say):
            characters += len(delta.text)
    await provider.close()
    return characters


async def _client(url: str) -> int:
    from openai import AsyncOpenAI

    characters = 0
    async with AsyncOpenAI(base_url=url, api_key="sk-none") as client:
        messages: Any = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
        stream: AsyncIterator[Any] = await client.chat.completions.create(
            model="m", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                characters += len(chunk.choices[0].delta.content)
    return characters


def _run(url: str) -> int:
    from nbagent.event import TextDelta
    from nbagent.frontend import Nobody
    from nbagent.runtime import Runtime
    from nbagent.session.session import Prompt

    with ground() as place:
        place.use(url)
        runtime = Runtime.open(place.root, environment=place.environment)
        characters = 0

        def show(event: Any) -> None:
            nonlocal characters
            characters += len(event.text) if isinstance(event, TextDelta) else 0

        runtime.start(Prompt("go", "build"), Nobody(show)).done.result(120)
        runtime.close()
        return characters


READERS: dict[str, Callable[[str], int]] = {
    "provider": lambda url: asyncio.run(_provider(url)),
    "openai client alone": lambda url: asyncio.run(_client(url)),
    "whole run": _run,
}


def _from_here(peak: bool = False) -> float:
    """Megabytes of memory now, from where the peak is counted anew; ``peak``: the most since then. 0 where it cannot be known."""
    try:
        if not peak:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _cpu(read: Callable[[str], int], url: str, expected: int) -> float:
    gc.collect()
    begin = time.process_time()
    assert read(url) == expected
    return time.process_time() - begin


def measure(quick: bool) -> Found:
    found: Found = []
    for chunks in (500,) if quick else (5_000, 50_000):
        text = "".join(f"tok{n % 100:02d} " for n in range(chunks))
        taken: dict[str, list[float]] = {name: [] for name in READERS}
        growth: list[float] = []
        with Model([[{"say": text, "size": 6}]], every=True) as model:
            for turn in range(2 if quick else 6):
                for name, read in READERS.items():
                    before = _from_here()
                    cpu = _cpu(read, model.url, len(text))
                    if turn == 0:  # connections, imports
                        continue
                    taken[name].append(cpu)
                    if name == "provider":
                        growth.append(_from_here(peak=True) - before)
        bound = 1.5 * chunks / 50_000 if chunks == 50_000 else None
        ours, client, whole = (median(taken[name]) for name in ("provider", "openai client alone", "whole run"))
        found += [
            Figure(f"{chunks:,} chunks, provider", ours, "s CPU", most=bound),
            Figure(f"{chunks:,} chunks, whole run", whole, "s CPU", most=bound),
            Figure(f"{chunks:,} chunks, `openai` client alone", client, "s CPU"),
            Figure(f"{chunks:,} chunks, provider against client", ours / client, "times", most=None if quick else 2.0),
            Figure(f"{chunks:,} chunks, memory that the provider takes at most meanwhile", median(growth), "MB"),
        ]
    return found
