"""Streams as each server sends them on a bad day, over HTTP: what comes of them, however the bytes are cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ProviderError
from nbagent.provider.openai import make_provider
from nbagent.provider.provider import Delta, Request, Text, ToolSpec, UserTurn
from nbagent.provider.settings import ServerSettings
from tests.server import ScriptedServer, bare, raw
from tests.streams import byte_cuts, summed

ROWS = json.loads((Path(__file__).parents[1] / "data/odd_streams.json").read_text(encoding="utf-8"))
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
REQUEST = Request(model="m", system="Be brief.", turns=(UserTurn((Text("hi"),)),), tools=(READ,))
Start = Callable[..., ScriptedServer]


async def outcome(server: ScriptedServer) -> dict[str, Any]:
    """What an answer came to: its text, reasoning and calls, and how it ended."""
    provider = make_provider(ServerSettings(base_url=server.url, api_key="sk-test"))
    seen: list[Delta] = []
    found: dict[str, Any] = {}
    try:
        async for delta in provider.stream(REQUEST):
            seen.append(delta)
    except ProviderError as error:
        found = {"error": str(error).replace(f"127.0.0.1:{server.port}", "HOST"), "retryable": error.retryable}
    finally:
        await provider.close()
    said = summed(seen)
    calls = [
        {
            "name": call.name,
            "arguments": call.arguments,
            **({"problem": " ".join(call.problem.split()[:4])} if call.problem else {}),
        }
        for call in said.calls
    ]
    found |= {"text": said.text, "reasoning": said.reasoning, "calls": calls, "reason": said.reason}
    return {key: value for key, value in found.items() if value not in ("", [])}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['server']}: {row['name']}" for row in ROWS])
async def test_what_comes_of_it(server: Start, row: dict[str, Any]) -> None:
    data = row["body"].encode()
    cuts = byte_cuts(data, 1) if len(data) > 1 else [data]
    for pieces in ([data], cuts):
        model = server([[*map(raw, pieces), bare()]])
        assert await outcome(model) == row["expected"]
        assert len(model.requests) == 1
