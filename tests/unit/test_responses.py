"""The Responses API: events in odd orders, and bodies."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.errors import ContextOverflow, ProviderError, StreamDropped
from nbagent.provider.errors import in_stream
from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Delta,
    Image,
    Request,
    ResultTurn,
    Text,
    Thought,
    ToolSpec,
    UserTurn,
)
from nbagent.provider.quirks import Quirks
from nbagent.provider.responses import ResponsesReader, responses_body
from nbagent.provider.sse import DONE
from tests import strict
from tests.streams import REQUEST, Result, summed

TEXT = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "read", "arguments": '{"path":"a"}'}
THOUGHT = {
    "type": "reasoning",
    "id": "rs",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "zz",
}


def play(*events: Any, request: Request = REQUEST) -> Result:
    reader = ResponsesReader(request, in_stream, new_id=iter(["made1", "made2", "made3"]).__next__)
    out: list[Delta] = []
    for event in events:
        reader.feed("", event)
        out += reader.take()
    return summed(out + reader.end())


def ended(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.{status}",
        "response": {"object": "response", "status": status, "output": list(output), **more},
    }


def added(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def done(item: dict[str, Any], place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def piece(text: str, place: int = 0, kind: str = "output_text") -> dict[str, Any]:
    return {"type": f"response.{kind}.delta", "output_index": place, "delta": text}


def test_only_the_end_says_everything() -> None:
    result = play(ended(THOUGHT, TEXT, CALL, usage={"input_tokens": 5, "output_tokens": 2}))
    assert (result.text, result.reasoning, result.reason) == ("hi", "hm", "tool-calls")
    assert result.calls[0].arguments == {"path": "a"}
    assert result.opaque["reasoning_item"] == THOUGHT
    assert result.tokens == {"input": 5, "output": 2, "reasoning": 0, "cache_read": 0}


def test_pieces_are_not_said_twice() -> None:
    result = play(
        piece("h"), piece("i"), done(TEXT), added({**CALL, "arguments": ""}, 1), done(CALL, 1), ended(TEXT, CALL)
    )
    assert result.text == "hi"
    assert len(result.calls) == 1


def test_arguments_in_pieces_only() -> None:
    parts = [piece('{"pa', 0, "function_call_arguments"), piece('th":"b"}', 0, "function_call_arguments")]
    assert play(added({**CALL, "arguments": ""}), *parts, ended()).calls[0].arguments == {"path": "b"}


def test_servers_without_an_output_index() -> None:
    events = [
        {"type": "response.output_item.added", "item": {**CALL, "arguments": ""}, "item_id": "fc"},
        {"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": '{"path":"a"}'},
    ]
    assert play(*events, ended()).calls[0].arguments == {"path": "a"}


def test_two_calls_with_one_id_and_none() -> None:
    result = play(done(CALL, 0), done(CALL, 1), done({**CALL, "call_id": "", "id": ""}, 2), ended())
    assert [call.id for call in result.calls] == ["c", "made1", "made2"]


def test_cut_arguments_never_run() -> None:
    result = play(done({**CALL, "arguments": '{"path":"a'}), ended())
    assert "incomplete" in result.calls[0].problem
    result = play(done(CALL), ended(status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    assert result.reason == "length"
    assert result.calls[0].problem
    result = play(done(TEXT), ended(status="incomplete", incomplete_details={"reason": "content_filter"}))
    assert result.reason == "content-filter"


def test_endings() -> None:
    with pytest.raises(StreamDropped):
        play(piece("hi"))
    with pytest.raises(ProviderError, match="empty answer"):
        play(ended())
    assert play(piece("hi"), DONE).text == "hi"
    assert play(piece("hi"), ended(), {"type": "anything"}, None, 5).text == "hi"
    assert play(piece("no", 0, "refusal"), ended()).text == "no"


def test_failures() -> None:
    with pytest.raises(ProviderError, match="boom") as caught:
        play(ended(status="failed", error={"code": "server_error", "message": "boom"}))
    assert caught.value.retryable
    with pytest.raises(ContextOverflow):
        play({"type": "error", "code": "context_length_exceeded", "message": "too big", "param": None})
    with pytest.raises(ProviderError, match="slow"):
        play({"type": "error", "error": {"type": "rate_limit", "message": "slow down"}})


def test_summaries_of_several_parts_are_apart() -> None:
    def part(number: int, text: str) -> list[dict[str, Any]]:
        where = {"output_index": 0, "summary_index": number}
        return [
            {"type": "response.reasoning_summary_part.added", **where, "part": {}},
            {"type": "response.reasoning_summary_text.delta", **where, "delta": text},
        ]

    assert play(*part(0, "a"), *part(1, "b"), done(THOUGHT), piece("x", 1), ended()).reasoning == "a\n\nb"


def test_bodies() -> None:
    tool = ToolSpec("read", "Reads.", {"type": "object", "properties": {}})
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "zz"}
    thought = Thought("hm", "", {"reasoning_item": item})
    turns = (
        UserTurn((Text("look"), Image("image/png", "AAAA"))),
        AssistantTurn("I look.", (thought,), (CallTurn("c", "read", {"a": 1}, {"namespace": "x"}),)),
        ResultTurn("c", "read", (Text("plot"), Image("image/png", "AAAA"))),
    )
    request = Request(model="m", system="s", turns=turns, tools=(tool,), effort="low", max_output=9)
    body = responses_body(request, Quirks())
    assert strict.check(body) == []
    kinds = [entry.get("type") or entry["role"] for entry in body["input"]]
    assert kinds == ["user", "reasoning", "assistant", "function_call", "function_call_output", "user"]
    assert body["input"][1] == item
    assert body["input"][3]["namespace"] == "x"
    assert body["input"][3]["arguments"] == '{"a":1}'
    assert (body["reasoning"], body["max_output_tokens"], body["store"]) == ({"effort": "low"}, 9, False)
    assert "reasoning" not in [e.get("type") for e in responses_body(request, Quirks(reasoning="never"))["input"]]


def test_reasoning_alone_is_not_sent_back() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "zz"}
    turns = (
        UserTurn((Text("a"),)),
        AssistantTurn("", (Thought("", "", {"reasoning_item": item}),)),
        UserTurn((Text("b"),)),
    )
    body = responses_body(Request(model="m", system="s", turns=turns), Quirks())
    assert strict.check(body) == []
    assert item not in body["input"]
