"""Streams of each server, whole and cut in every way: the same answer, or an error that says so; never half a call."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from nbagent.errors import ProviderError, StreamDropped
from nbagent.provider.provider import Called
from nbagent.provider.sse import Done, EventReader
from tests.streams import NAMES, ODD_VALUES, Result, byte_cuts, chunk_cuts, places, read, replaced, stream, summed

CHAT = [name for name in NAMES if stream(name)[1].get("api", "chat") == "chat"]


def result(name: str, pieces: list[bytes]) -> Result:
    return summed(read(pieces, stream(name)[1].get("api", "chat")))


def check(got: Result, expected: dict[str, Any]) -> None:
    for key in ("text", "reasoning", "field", "opaque", "tokens", "reason"):
        assert getattr(got, key) == expected[key], key
    assert len(got.calls) == len(expected["calls"])
    for call, wanted in zip(got.calls, expected["calls"], strict=True):
        assert call.name == wanted["name"]
        assert call.id == wanted["id"] or (not wanted["id"] and call.id)
        if wanted.get("problem"):
            assert wanted["problem"] in call.problem
            assert call.arguments == {}
        else:
            assert (call.problem, call.arguments, call.extra) == ("", wanted["arguments"], wanted["extra"])
    ids = [call.id for call in got.calls]
    assert len(set(ids)) == len(ids)


def test_there_is_a_stream_of_every_server() -> None:
    servers = {
        "openai",
        "azure",
        "ollama",
        "vllm",
        "llamacpp",
        "lmstudio",
        "deepseek",
        "gemini",
        "openrouter",
        "litellm",
    }
    assert servers <= {name.partition("_")[0] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_stream(name: str) -> None:
    data, expected = stream(name)
    check(result(name, [data]), expected)


@pytest.mark.parametrize("name", NAMES)
def test_cut_at_any_byte_border_it_says_the_same(name: str) -> None:
    data, expected = stream(name)
    for seed in range(25):
        check(result(name, byte_cuts(data, seed)), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"])
def test_any_line_ending(name: str, ending: bytes) -> None:
    data, expected = stream(name)
    data = data.replace(b"\r\n", b"\n").replace(b"\n", ending)
    for seed in range(3):
        check(result(name, byte_cuts(data, seed)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_without_blank_lines_or_with_comments_between(name: str) -> None:
    data, expected = stream(name)
    plain = data.replace(b"\r\n", b"\n")
    check(result(name, [plain.replace(b"\n\n", b"\n")]), expected)
    check(
        result(name, [b"\xef\xbb\xbf: hello\n\n" + plain.replace(b"\n\n", b"\n\n: ping\n\nretry: 5\nid: 1\n\n")]),
        expected,
    )


@pytest.mark.parametrize("name", CHAT)
def test_cut_into_other_chunks_it_says_the_same(name: str) -> None:
    data, expected = stream(name)
    for seed in range(1, 26):
        recut = chunk_cuts(data, seed)
        check(result(name, byte_cuts(chunk_cuts(recut, seed), seed)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_cut_off_at_every_byte_it_never_runs_half_a_call(name: str) -> None:
    data, expected = stream(name)
    api = expected.get("api", "chat")
    wanted = {**summed(read([data], api)).plain(), "tokens": None}
    outcomes = set()
    for end in range(len(data)):
        try:
            got = summed(read([data[:end]], api))
        except StreamDropped:
            outcomes.add("dropped")
            continue
        assert {**got.plain(), "tokens": None} == wanted, f"cut after {end} bytes"
        outcomes.add("complete")
    assert "dropped" in outcomes


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_came_before_a_drop_is_a_call(name: str) -> None:
    data, expected = stream(name)
    for end in range(0, len(data), 7):
        seen: list[object] = []
        deltas = read([data[:end]], expected.get("api", "chat"))
        try:
            while True:
                seen.append(next(deltas))
        except StopIteration:
            continue
        except ProviderError:
            assert not any(isinstance(delta, Called) for delta in seen)


@pytest.mark.parametrize("name", NAMES)
def test_a_value_of_a_wrong_kind_anywhere_is_an_answer_or_a_sentence(name: str) -> None:
    data, expected = stream(name)
    source = EventReader()
    events = [*source.feed(data), *source.end()]
    chance = random.Random(name)
    ways = [(at, way) for at, (_, value) in enumerate(events) if isinstance(value, dict) for way in places(value)]
    for at, way in chance.sample(ways, min(len(ways), 250)):
        odd = replaced(events[at][1], way, chance.choice(ODD_VALUES))
        body = b"".join(sent(event, odd if place == at else value) for place, (event, value) in enumerate(events))
        try:
            calls = [delta for delta in read([body], expected.get("api", "chat")) if isinstance(delta, Called)]
        except ProviderError:
            continue
        assert all(isinstance(call.arguments, dict) for call in calls), (at, way)


def sent(event: str, value: Any) -> bytes:
    told = "[DONE]" if isinstance(value, Done) else json.dumps(value)
    return f"{f'event: {event}' if event else ': none'}\ndata: {told}\n\n".encode()
