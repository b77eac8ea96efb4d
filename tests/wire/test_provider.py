"""The provider against a real server: both APIs, every way in which an answer can travel or break."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from nbagent.errors import ContextOverflow, ProviderError, StreamDropped
from nbagent.provider.openai import OpenAIProvider, make_provider
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
    Used,
    UserTurn,
)
from nbagent.provider.settings import ServerSettings
from tests.server import (
    Gate,
    ScriptedServer,
    bare,
    call,
    cut,
    fault,
    finish,
    frame,
    hold,
    raw,
    say,
    think,
    usage,
    whole,
    wire,
)
from tests.streams import NAMES, stream, summed

KEY = "sk-test-THE-SECRET-0001"
READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
REQUEST = Request(model="m", system="Be brief.", turns=(UserTurn((Text("hi"),)),), tools=(READ,))
APIS = pytest.mark.parametrize("api", ["chat", "responses"])
Start = Callable[..., ScriptedServer]


def connect(server: ScriptedServer, **options: Any) -> OpenAIProvider:
    return make_provider(ServerSettings(**{"base_url": server.url, "api_key": KEY, **options}))


async def answer(provider: OpenAIProvider, request: Request = REQUEST) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


async def fails(provider: OpenAIProvider, request: Request = REQUEST) -> tuple[ProviderError, list[Delta]]:
    """The error that a request ends in, and what came before it. It is never a success, and no text of it shows the key."""
    seen: list[Delta] = []
    with pytest.raises(ProviderError) as caught:
        async for delta in provider.stream(request):
            seen.append(delta)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert not any(isinstance(delta, (Ended, Called)) for delta in seen)
    return caught.value, seen


@APIS
async def test_an_answer_in_deltas(server: Start, api: str) -> None:
    s = server(
        [[think("hm"), say("Hello 🙂", size=2), call("read", {"path": "ä"}, id="c1", size=3), usage(50, 7, 40, 3)]]
    )
    provider = connect(s, api=api)
    got = await answer(provider)
    await provider.close()
    result = summed(got)
    assert (result.text, result.reasoning, result.reason) == ("Hello 🙂", "hm", "tool-calls")
    assert result.calls == [Called("c1", "read", {"path": "ä"})]
    assert result.tokens == {"input": 50, "output": 7, "reasoning": 3, "cache_read": 40}
    assert isinstance(got[-1], Ended)
    assert sum(isinstance(delta, Say) for delta in got) > 1
    assert sum(isinstance(delta, Used) for delta in got) == 1
    assert s.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert provider.name in s.url
    assert KEY not in repr(provider) + repr(provider.settings)


@APIS
async def test_only_what_is_set_is_sent(server: Start, api: str) -> None:
    s = server([[say("x")], [say("y")]])
    provider = connect(s, api=api)
    await answer(provider, Request(model="m", system="s", turns=REQUEST.turns))
    full = Request(
        model="m",
        system="s",
        turns=REQUEST.turns,
        temperature=0.0,
        effort="low",
        max_output=100,
        agent="plan",
        session_id="z",
    )
    await answer(provider, full)
    await provider.close()
    plain, more = s.requests
    if api == "chat":
        assert set(plain) == {"model", "messages", "stream", "stream_options"}
        assert {k: more[k] for k in ("temperature", "reasoning_effort", "max_tokens")} == {
            "temperature": 0.0,
            "reasoning_effort": "low",
            "max_tokens": 100,
        }
    else:
        assert set(plain) == {"model", "instructions", "input", "stream", "store", "include"}
        assert (more["temperature"], more["reasoning"], more["max_output_tokens"]) == (0.0, {"effort": "low"}, 100)
    assert "plan" not in json.dumps(more)


@APIS
@pytest.mark.parametrize(
    "how",
    [
        wire(gzip=True),
        wire(http10=True),
        wire(crlf=True),
        wire(size=1),
        wire(size=7, gzip=True),
        wire(content_type="text/plain"),
        wire(content_type="application/json"),
        wire(content_type="application/octet-stream", crlf=True, size=3),
    ],
    ids=str,
)
async def test_however_the_body_travels(server: Start, api: str, how: Any) -> None:
    s = server([[how, think("hm…"), say("naïve 🙂 text", size=3), call("read", {"path": "a"})]])
    provider = connect(s, api=api)
    result = summed(await answer(provider))
    await provider.close()
    assert (result.text, result.reasoning, result.reason) == ("naïve 🙂 text", "hm…", "tool-calls")
    assert result.calls[0].arguments == {"path": "a"}


@APIS
async def test_a_server_that_does_not_stream(server: Start, api: str) -> None:
    call_item = {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path":"a"}'}
    message = {"role": "assistant", "content": "hi", "tool_calls": [{"id": "c", "function": call_item}]}
    chat = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    text_item = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    responses = {"object": "response", "status": "completed", "output": [text_item, call_item]}
    body = chat if api == "chat" else responses
    s = server([whole(body), whole(json.dumps(body, indent=2)), whole(body, "text/event-stream")])
    provider = connect(s, api=api)
    for _ in range(3):
        result = summed(await answer(provider))
        assert (result.text, result.calls[0].arguments, result.reason) == ("hi", {"path": "a"}, "tool-calls")
    await provider.close()


@APIS
@pytest.mark.parametrize("how", [cut(), cut(reset=True), bare()], ids=["close", "reset", "no end"])
async def test_a_broken_connection_is_a_dropped_stream_and_text_stays(server: Start, api: str, how: Any) -> None:
    s = server(
        [[say("Half an ans"), call("read", {"path": "a"}, size=4), how], [how], [wire(http10=True), say("x"), how]]
    )
    provider = connect(s, api=api)
    error, seen = await fails(provider)
    assert isinstance(error, StreamDropped)
    assert error.retryable
    assert summed(seen).text in ("Half an ans", "")  # a reset may overtake what was sent
    for _ in range(2):
        error, _ = await fails(provider)
        assert isinstance(error, StreamDropped)
    await provider.close()
    assert len(s.requests) == 3


@pytest.mark.parametrize("name", NAMES)
async def test_recorded_streams_over_http_cut_here_and_there(server: Start, name: str) -> None:
    data, expected = stream(name)
    places = [*range(3, len(data), max(1, len(data) // 12)), len(data)]
    s = server([[wire(limit=place), raw(data), bare()] for place in places])
    provider = connect(s, api=expected.get("api", "chat"))
    complete = 0
    for _ in places:
        seen: list[Delta] = []
        try:
            seen = await answer(provider, Request(model="m", system="s", turns=REQUEST.turns))
        except StreamDropped:
            continue
        assert summed(seen).text == expected["text"]
        assert [c.arguments for c in summed(seen).calls] == [c.get("arguments", {}) for c in expected["calls"]]
        complete += 1
    await provider.close()
    assert complete >= 1


@APIS
async def test_an_error_inside_a_200(server: Start, api: str) -> None:
    bad = {"error": {"message": f"upstream failed with {KEY}", "type": "server_error"}}
    s = server(
        [
            [say("x"), frame(bad), bare()],
            [say("x"), fault(500, {"message": "it broke", "type": "error"}), bare()],
            [frame({"error": {"message": "too big", "code": "context_length_exceeded"}}), bare()],
            [frame({"error": {"message": "slow down", "code": 429}}, "error"), bare()],
        ]
    )
    provider = connect(s, api=api)
    error, seen = await fails(provider)
    assert "upstream failed with ***" in str(error)
    assert error.retryable
    assert summed(seen).text == "x"
    error, _ = await fails(provider)
    assert "it broke" in str(error)
    error, _ = await fails(provider)
    assert isinstance(error, ContextOverflow)
    error, _ = await fails(provider)
    assert (error.status, error.retryable) == (429, True)
    await provider.close()


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (400, False),
        (401, False),
        (403, False),
        (404, False),
        (408, True),
        (409, True),
        (429, True),
        (500, True),
        (503, True),
        (529, True),
    ],
)
@APIS
async def test_statuses_are_told_apart_and_never_tried_again_inside(
    server: Start, api: str, status: int, retryable: bool
) -> None:
    s = server([fault(status, {"error": {"message": f"no, {KEY}"}}, {"retry-after": "7"})])
    provider = connect(s, api=api)
    error, _ = await fails(provider)
    await provider.close()
    assert (error.status, error.retryable, error.retry_after) == (status, retryable, 7.0)
    assert len(s.requests) == 1


async def test_closing_the_iterator_closes_the_connection(server: Start) -> None:
    gate = Gate()
    s = server([[say("a"), hold(gate), say("b")]])
    provider = connect(s)
    deltas = provider.stream(REQUEST)
    assert await anext(deltas) == Say("a")
    await deltas.aclose()  # type: ignore[attr-defined]
    assert await asyncio.to_thread(s.seen[0].left.wait, 10)
    await provider.close()


async def test_cancelling_closes_the_connection_before_the_first_byte(server: Start) -> None:
    gate = Gate()
    s = server([[hold(gate), say("b")]])
    provider = connect(s)
    task = asyncio.ensure_future(answer(provider))
    await gate.arrived()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(s.seen[0].left.wait, 10)
    await provider.close()


@APIS
async def test_silence_in_the_middle_is_a_dropped_stream(server: Start, api: str) -> None:
    gate = Gate()
    s = server([[say("a"), hold(gate)], [hold(gate)]])
    provider = connect(s, api=api, read_timeout=0.2)
    error, _ = await fails(provider)
    assert isinstance(error, StreamDropped)
    assert "0.2 seconds" in str(error)
    error, _ = await fails(provider)
    assert error.retryable
    gate.open()
    await provider.close()


async def test_text_held_back_is_not_lost_when_the_stream_breaks(server: Start) -> None:
    s = server([[say("a <think"), cut()], [say("b <"), bare()]])
    provider = connect(s)
    _, seen = await fails(provider)
    assert summed(seen).text == "a <think"
    _, seen = await fails(provider)
    assert summed(seen).text == "b <"
    await provider.close()


async def test_silence_after_the_finish_does_not_matter(server: Start) -> None:
    gate = Gate()
    s = server([[say("a"), finish(), hold(gate)], [say("b"), raw("data: [DONE]\n\n"), hold(gate)]])
    provider = connect(s)
    provider.endpoint.linger = 0.1
    assert summed(await answer(provider)).text == "a"
    assert summed(await answer(provider)).text == "b"
    gate.open()
    await provider.close()


async def test_answers_side_by_side_stay_apart(server: Start) -> None:
    gates = [Gate() for _ in range(5)]

    def script(body: dict[str, Any]) -> Any:
        number = int(body["messages"][-1]["content"])
        return [say(f"a{number} "), hold(gates[number]), say(f"b{number}"), call("read", {"path": str(number)})]

    s = server(script)
    provider = connect(s)
    requests = [Request(model="m", system="s", turns=(UserTurn((Text(str(n)),)),)) for n in range(5)]
    tasks = [asyncio.ensure_future(answer(provider, request)) for request in requests]
    for gate in gates:
        await gate.arrived()
    for gate in reversed(gates):
        gate.open()
    results = [summed(await task) for task in tasks]
    await provider.close()
    assert [result.text for result in results] == [f"a{n} b{n}" for n in range(5)]
    assert [result.calls[0].arguments for result in results] == [{"path": str(n)} for n in range(5)]


async def test_a_connection_is_used_again(server: Start) -> None:
    s = server([[say("a")], [say("b")], fault(400, {"error": "x"}), [say("c")]])
    provider = connect(s)
    await answer(provider)
    await answer(provider)
    await fails(provider)
    await answer(provider)
    await provider.close()
    assert len({seen.client for seen in s.seen}) == 1


async def test_a_huge_chunk_and_many_small_ones(server: Start) -> None:
    big = "x" * 8_000_000
    s = server([[call("read", {"path": big})], [say("ab" * 3000, size=1), call("read", {"path": "y" * 3000}, size=1)]])
    provider = connect(s)
    assert summed(await answer(provider)).calls[0].arguments == {"path": big}
    result = summed(await answer(provider))
    assert (result.text, result.calls[0].arguments) == ("ab" * 3000, {"path": "y" * 3000})
    await provider.close()


async def test_empty_answers_and_missing_usage(server: Start) -> None:
    empty = frame({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    s = server([[empty, bare()], [frame({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}), bare()]])
    provider = connect(s)
    error, _ = await fails(provider)
    assert "empty answer" in str(error)
    assert not any(isinstance(delta, Used) for delta in await answer(provider))
    await provider.close()


@APIS
async def test_unreadable_answers(server: Start, api: str) -> None:
    s = server(
        [
            [wire(content_type="text/html"), raw("<html><head><title>My router</title></head></html>"), bare()],
            [say("x"), raw("data: {broken\n\n"), bare()],
            [raw('{"choices": [{"delta"'), bare()],
            [raw(""), bare()],
        ]
    )
    provider = connect(s, api=api)
    error, _ = await fails(provider)
    assert "web page" in str(error)
    assert "base_url" in str(error)
    for _ in range(3):
        error, _ = await fails(provider)
        assert isinstance(error, StreamDropped)
    await provider.close()


async def test_thoughts_and_text_keep_their_order(server: Start) -> None:
    s = server([[think("a"), say("b"), think("c"), say("d")]])
    provider = connect(s)
    kinds = [(type(delta), delta.text) for delta in await answer(provider) if isinstance(delta, (Say, Think))]
    await provider.close()
    assert kinds == [(Think, "a"), (Say, "b"), (Think, "c"), (Say, "d")]


async def test_a_silent_cut_is_said_once(server: Start) -> None:
    s = server([[say("a"), usage(2048, 5)], [say("b"), usage(2048, 5)], [say("c"), usage(20_000, 5)]])
    provider = connect(s)
    long = Request(model="m", system="s", turns=(UserTurn((Text("word and word " * 4000),)),))
    warnings = [delta for delta in await answer(provider, long) if isinstance(delta, Said)]
    assert len(warnings) == 1
    assert warnings[0].level == "warning"
    assert "OLLAMA_CONTEXT_LENGTH" in warnings[0].text
    for _ in range(2):
        assert not any(isinstance(delta, Said) for delta in await answer(provider, long))
    await provider.close()


async def test_no_warning_when_the_numbers_fit(server: Start) -> None:
    s = server([[say("a"), usage(13_000, 5)], [say("a"), usage(30, 5)], [say("a"), usage(10, 5, cached=13_000)]])
    provider = connect(s)
    long = Request(model="m", system="s", turns=(UserTurn((Text("word and word " * 4000),)),))
    for _ in range(3):
        assert not any(isinstance(delta, Said) for delta in await answer(provider, long))
    await provider.close()
