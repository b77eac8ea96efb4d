"""Recorded streams, read as the provider reads them but without a server, and cut in every way."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from nbagent.errors import StreamDropped
from nbagent.provider.chat import ChatReader
from nbagent.provider.errors import Context, in_stream, translate, unreadable
from nbagent.provider.provider import (
    Called,
    Delta,
    Ended,
    Request,
    Said,
    Say,
    Text,
    Think,
    ToolSpec,
    Unsaid,
    Used,
    UserTurn,
    Writing,
)
from nbagent.provider.responses import ResponsesReader
from nbagent.provider.sse import Broken, EventReader

FOLDER = Path(__file__).parent / "data" / "streams"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sse"))

REQUIRED = ToolSpec("write", "", {"type": "object", "properties": {"path": {}}, "required": ["path"]})
REQUEST = Request(model="m", system="s", turns=(UserTurn((Text("hi"),)),), tools=(REQUIRED,))


@dataclasses.dataclass
class Result:
    """An answer, summed up."""

    text: str = ""
    reasoning: str = ""
    field: str = ""
    opaque: dict[str, Any] = dataclasses.field(default_factory=dict)
    calls: list[Called] = dataclasses.field(default_factory=list)
    tokens: dict[str, int] | None = None
    reason: str = ""
    writing: int = 0

    def plain(self) -> dict[str, Any]:
        """Everything but ids, which may be made up."""
        calls = [(c.name, c.arguments, bool(c.problem), c.extra) for c in self.calls]
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "field": self.field,
            "opaque": self.opaque,
            "calls": calls,
            "tokens": self.tokens,
            "reason": self.reason,
        }


def summed(deltas: Iterable[Delta]) -> Result:
    result = Result()
    for delta in deltas:
        match delta:
            case Say(text):
                result.text += text
            case Unsaid():
                result.text = ""
            case Think(text, name, opaque):
                result.reasoning += text
                result.field = result.field or name
                result.opaque.update(opaque)
            case Called():
                result.calls.append(delta)
            case Writing():
                result.writing += 1
            case Used(tokens):
                result.tokens = {
                    "input": tokens.input,
                    "output": tokens.output,
                    "reasoning": tokens.reasoning,
                    "cache_read": tokens.cache_read,
                }
            case Ended(reason):
                result.reason = reason
            case Said():
                pass
    return result


def read(pieces: Iterable[bytes], api: str = "chat", request: Request = REQUEST) -> Iterator[Delta]:
    """Deltas of a body that comes in ``pieces``."""
    make = ResponsesReader if api == "responses" else ChatReader
    answer = make(request, in_stream)
    events = EventReader()

    def take(batch: list[tuple[str, Any]]) -> None:
        for event, value in batch:
            if isinstance(value, Broken):
                found = unreadable(value.text, answer.started)
                raise found if isinstance(found, StreamDropped) else translate(found, Context())
            answer.feed(event, value)

    for piece in pieces:
        take(events.feed(piece))
        yield from answer.take()
        if answer.over:
            break
    else:
        take(events.end())
    yield from answer.end()


@cache
def stream(name: str) -> tuple[bytes, dict[str, Any]]:
    """A recorded stream and what it says."""
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return (FOLDER / f"{name}.sse").read_bytes(), expected


def byte_cuts(data: bytes, seed: int) -> list[bytes]:
    """``data`` cut at random byte borders; seed 0 cuts at every byte."""
    if seed == 0:
        return [data[i : i + 1] for i in range(len(data))]
    rng = random.Random(seed)
    borders = sorted(rng.sample(range(1, len(data)), min(len(data) - 1, rng.randrange(1, 40))))
    return [data[a:b] for a, b in zip([0, *borders], [*borders, len(data)], strict=True)]


def chunk_cuts(data: bytes, seed: int) -> bytes:
    """A Chat Completions stream whose texts and arguments are cut into more chunks, at random."""
    rng = random.Random(seed)
    out: list[str] = []
    for line in data.decode().replace("\r\n", "\n").split("\n"):
        if not line.startswith("data: {"):
            out.append(line)
            continue
        chunks = list(_split_chunk(json.loads(line[6:]), rng))
        out.append("\n\n".join("data: " + json.dumps(chunk, ensure_ascii=False) for chunk in chunks))
    return "\n".join(out).encode()


def _split_chunk(chunk: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    choices = chunk.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    for key in ("content", "reasoning_content", "reasoning"):
        text = delta.get(key)
        alone = [k for k, v in delta.items() if v and k not in ("role", key)] == []
        if isinstance(text, str) and len(text) > 1 and alone:
            place = rng.randrange(1, len(text))
            yield _with(chunk, {key: text[:place]})
            yield _with(chunk, {key: text[place:]}, last=True)
            return
    calls = delta.get("tool_calls")
    if calls and len(calls) == 1 and isinstance(calls[0]["function"].get("arguments"), str):
        yield from _split_call(chunk, calls[0], rng)
        return
    yield chunk


def _split_call(chunk: dict[str, Any], call: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    text = call["function"]["arguments"]
    if len(text) < 2:
        yield chunk
        return
    place = rng.randrange(1, len(text))
    head = {**call, "function": {**call["function"], "arguments": text[:place]}}
    tail = {k: v for k, v in call.items() if k == "index"} | {"function": {"arguments": text[place:]}}
    content = {k: v for k, v in chunk["choices"][0]["delta"].items() if k != "tool_calls"}
    yield _with(chunk, {**content, "tool_calls": [head]})
    yield _with(chunk, {"tool_calls": [tail]}, last=True)


def _with(chunk: dict[str, Any], delta: dict[str, Any], last: bool = False) -> dict[str, Any]:
    choice = {**chunk["choices"][0], "delta": delta}
    if not last:
        choice["finish_reason"] = None
    return {**chunk, "choices": [choice]}


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 10**20, 1.5, "", "x", "\ud800"),
    *([], {}, [1], [[]], {"a": 1}, [{"text": 1}], {"error": 1}),
)
"""What no server should send in some place, and one day one does."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything inside a JSON value, itself first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    """A copy of a JSON value with something else at ``path``."""
    if not path:
        return by
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by
    return copy
