"""Request → body: what goes on the wire, and that the strictest server takes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Image,
    Request,
    ResultTurn,
    Text,
    Thought,
    ToolSpec,
    Turn,
    UserTurn,
)
from nbagent.provider.quirks import Memory, MemoryLearned, Quirks
from nbagent.provider.responses import responses_body
from nbagent.provider.wire import NO_OUTPUT, arguments_text, chat_body, short_id, size_note
from tests import strict

TOOL = ToolSpec("read", "Reads.", {"properties": {"path": {"type": "string"}}, "required": ["path"]})
DOT = Image("image/png", "AAAA" * 10_000, "dot.png")


def request(*turns: Turn, **more: Any) -> Request:
    return Request(**{"model": "m", "system": "s", "turns": turns, "tools": (TOOL,), **more})


def messages(*turns: Turn, quirks: Quirks | None = None, **more: Any) -> list[dict[str, Any]]:
    body = chat_body(request(*turns, **more), quirks or Quirks())
    assert strict.check(body) == []
    return body["messages"][1:]


def test_the_forms_of_turns() -> None:
    got = messages(
        UserTurn((Text("a"), Text("b"), Text(" "))),
        AssistantTurn(
            "I look.", (Thought("hm", "reasoning_content"),), (CallTurn("c", "read", {"path": "ä"}, {"x": 1}),)
        ),
        ResultTurn("c", "read", (Text("one"), Text("two"))),
    )
    assert got == [
        {"role": "user", "content": "a\n\nb"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path":"ä"}'}, "x": 1}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "one\n\ntwo"},
    ]


def test_an_answer_of_calls_alone_and_an_empty_result() -> None:
    got = messages(
        UserTurn((Text("a"),)), AssistantTurn(calls=(CallTurn("c", "read", {}),)), ResultTurn("c", "read", ())
    )
    assert got[1]["content"] is None
    assert got[2]["content"] == NO_OUTPUT


def test_schemas_without_properties_get_them() -> None:
    body = chat_body(request(UserTurn((Text("a"),)), tools=(ToolSpec("t", "d", {}),)), Quirks())
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_pictures_of_results_follow_all_results_and_join_the_next_user_turn() -> None:
    calls = AssistantTurn(calls=(CallTurn("c", "read", {}), CallTurn("d", "read", {})))
    results = (ResultTurn("c", "read", (Text("plot"), DOT)), ResultTurn("d", "read", (DOT,)))
    got = messages(UserTurn((Text("a"),)), calls, *results)
    assert [m["role"] for m in got] == ["user", "assistant", "tool", "tool", "user"]
    assert [part["type"] for part in got[-1]["content"]] == ["text", "image_url", "image_url"]
    longer = messages(UserTurn((Text("a"),)), calls, *results, UserTurn((Text("and now?"),)))
    assert longer[:4] == got[:4]
    assert longer[4]["content"][:3] == got[4]["content"]
    assert longer[4]["content"][3] == {"type": "text", "text": "and now?"}
    answered = messages(UserTurn((Text("a"),)), calls, *results, AssistantTurn("fine"), UserTurn((Text("x"),)))
    assert answered[:5] == got


def test_blind_models_get_notes_and_no_extra_message() -> None:
    got = messages(UserTurn((DOT,)), AssistantTurn("x"), UserTurn((DOT, Text("?"))), quirks=Quirks(vision=False))
    assert got[0]["content"] == size_note(DOT)
    assert "29 KB" in got[0]["content"]
    assert "dot.png" in got[2]["content"]


def test_parameters_and_quirks() -> None:
    full = request(UserTurn((Text("a"),)), temperature=0.0, effort="low", max_output=5)
    assert {"temperature", "reasoning_effort", "max_tokens"} <= chat_body(full, Quirks()).keys()
    assert chat_body(full, Quirks(), modern=True)["max_completion_tokens"] == 5
    quirks = Quirks(drop=("temperature",), rename={"max_tokens": "max_completion_tokens"})
    body = chat_body(full, quirks, options={"top_k": 3, "seed": None})
    assert "temperature" not in body
    assert "max_tokens" not in body
    assert (body["max_completion_tokens"], body["top_k"]) == (5, 3)
    assert "seed" not in body
    assert "tools" not in chat_body(msgspec.structs.replace(full, tools=()), Quirks())
    body = chat_body(full, Quirks(no_stream=True))
    assert body["stream"] is False
    assert "stream_options" not in body


def test_reasoning_by_quirk() -> None:
    turn = AssistantTurn("x", (Thought("a", "reasoning"), Thought("b", ""), Thought("c", "reasoning")))
    turns = (UserTurn((Text("a"),)), turn, UserTurn((Text("b"),)))
    assert messages(*turns)[1]["reasoning"] == "ac"
    assert messages(*turns, quirks=Quirks(reasoning="never"))[1].keys() == {"role", "content"}
    assert messages(*turns, quirks=Quirks(reasoning="reasoning_content"))[1]["reasoning_content"] == "abc"


def test_short_ids_are_stable_and_nine_long() -> None:
    assert short_id("call_abc") == short_id("call_abc") != short_id("call_xyz")
    assert short_id("D681PevKs") == "D681PevKs"
    for text in ("", "x" * 100, "ünïcode", "call_1"):
        assert len(short_id(text)) == 9
        assert short_id(text).isalnum()


def test_lone_surrogates_never_reach_the_wire() -> None:
    bad = "a\ud800b"
    turns = (
        UserTurn((Text(bad),)),
        AssistantTurn(bad, (Thought(bad, "reasoning"),), (CallTurn("c", "read", {bad: [bad]}),)),
        ResultTurn("c", "read", (Text(bad),)),
    )
    for body in (
        chat_body(request(*turns, system=bad), Quirks()),
        responses_body(request(*turns, system=bad), Quirks()),
    ):
        assert strict.check(body) == []
        assert "a\ufffdb" in json.dumps(body, ensure_ascii=False)


def test_arguments_are_the_same_bytes_every_time() -> None:
    value = {"b": 1, "a": {"z": "é", "y": [1.5, None, True]}}
    assert (
        arguments_text(value)
        == arguments_text(json.loads(json.dumps(value)))
        == '{"b":1,"a":{"z":"é","y":[1.5,null,true]}}'
    )


def test_memory_keeps_what_lasts_and_forgets_the_rest() -> None:
    learned = MemoryLearned()
    memory = Memory(learned, "host:1")
    memory.put("m", Quirks(drop=("temperature",), reasoning="never"), lasting=True)
    assert memory.get("m").reasoning == "never"
    assert Memory(learned, "host:1").get("m") == Quirks(drop=("temperature",))
    assert Memory(learned, "host:2").get("m") == Quirks()
    learned.put("m @ host:1", {"drop": 5})
    assert Memory(learned, "host:1").get("m") == Quirks()


# Any valid history is one that the strictest server takes.

texts = st.text(max_size=12)
parts = st.lists(st.builds(Text, texts) | st.just(DOT), max_size=3).map(tuple)
thoughts = st.lists(st.builds(Thought, texts, st.sampled_from(["", "reasoning", "reasoning_content"])), max_size=2).map(
    tuple
)
arguments = st.dictionaries(texts, texts | st.integers(-9, 9) | st.none(), max_size=3)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Turn, ...]:
    turns: list[Turn] = [UserTurn(draw(parts))]
    for number in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 3))
        calls = tuple(CallTurn(f"call_{number}_{n}", "read", draw(arguments)) for n in range(count))
        turns.append(AssistantTurn(draw(texts), draw(thoughts), calls))
        turns += [ResultTurn(call.id, call.name, draw(parts)) for call in calls]
        if not calls or draw(st.booleans()):
            turns.append(UserTurn(draw(parts)))
    return tuple(turns)


@settings(max_examples=200, deadline=None)
@given(
    histories(),
    st.builds(
        Quirks,
        vision=st.sampled_from([None, True, False]),
        reasoning=st.sampled_from(["", "never", "reasoning_content"]),
        short_ids=st.booleans(),
        empty_content=st.booleans(),
    ),
)
def test_every_body_is_strictly_valid(turns: tuple[Turn, ...], quirks: Quirks) -> None:
    assert strict.check(chat_body(request(*turns), quirks)) == []
    assert strict.check(responses_body(request(*turns), quirks)) == []


@settings(max_examples=100, deadline=None)
@given(histories())
def test_a_longer_history_begins_with_the_shorter_one(turns: tuple[Turn, ...]) -> None:
    whole = chat_body(request(*turns), Quirks())["messages"]
    for end, turn in enumerate(turns):
        if not isinstance(turn, AssistantTurn):
            continue
        before = chat_body(request(*turns[:end]), Quirks())["messages"]
        assert whole[: len(before)] == before


@pytest.mark.parametrize("field", ["temperature", "effort", "max_output", "tools"])
def test_nothing_is_null(field: str) -> None:
    for make in (chat_body, responses_body):
        body = make(request(UserTurn((Text("a"),))), Quirks())
        assert None not in body.values(), field
