"""The rules by which chunks become an answer, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import ContextOverflow, ProviderError, StreamDropped
from nbagent.provider.accumulator import Accumulator
from nbagent.provider.provider import Called, Delta, Said, Writing
from tests.streams import Result, summed


def tc(
    args: Any = None,
    *,
    i: int | None = None,
    id: str | None = None,  # noqa: A002 - as on the wire
    name: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """One element of ``delta.tool_calls``."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    place = {key: value for key, value in (("index", i), ("id", id)) if value is not None}
    return {**place, "function": function, **extra}


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def calls_chunk(*elements: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return chunk({"tool_calls": list(elements)}, finish)


def play(*chunks: Any, done: bool = True, needs: dict[str, bool] | None = None, taken: Any = ()) -> Result:
    return summed(deltas(*chunks, done=done, needs=needs, taken=taken))


def deltas(*chunks: Any, done: bool = True, needs: dict[str, bool] | None = None, taken: Any = ()) -> list[Delta]:
    numbers = iter(range(1000))
    answer = Accumulator(needs, taken, new_id=lambda: f"made{next(numbers)}")
    out: list[Delta] = []
    for one in chunks:
        answer.feed(one)
        out += answer.take()
    if done:
        answer.done()
    return out + answer.end()


def calls(*chunks: Any, **options: Any) -> dict[str, dict[str, Any]]:
    return {call.id: call.arguments for call in play(*chunks, **options).calls if not call.problem}


def one(*chunks: Any, **options: Any) -> Called:
    (call,) = play(*chunks, **options).calls
    return call


FINISH = chunk({}, "tool_calls")


# Which call a fragment belongs to


def test_by_id_then_the_last_open_call_when_there_is_no_index() -> None:
    got = calls(
        calls_chunk(tc('{"x"', id="a", name="f")),
        calls_chunk(tc(":1}")),
        calls_chunk(tc("{}", id="b", name="g")),
        FINISH,
    )
    assert got == {"a": {"x": 1}, "b": {}}


def test_a_fragment_without_id_and_name_at_an_unknown_index_goes_on_with_the_last_open_call() -> None:
    assert calls(calls_chunk(tc('{"a"', i=0, id="a", name="f")), calls_chunk(tc(":1}", i=1)), FINISH) == {"a": {"a": 1}}


def test_a_new_id_at_a_used_index_is_a_new_call() -> None:
    got = calls(calls_chunk(tc('{"x":1}', i=0, id="a", name="f"), tc('{"y":2}', i=0, id="b", name="f")), FINISH)
    assert got == {"a": {"x": 1}, "b": {"y": 2}}
    got = calls(
        calls_chunk(tc("", i=0, id="a", name="f")),
        calls_chunk(tc('{"x":1}', i=0)),
        calls_chunk(tc("", i=0, id="b", name="f")),
        calls_chunk(tc('{"y":2}', i=0)),
        FINISH,
    )
    assert got == {"a": {"x": 1}, "b": {"y": 2}}


def test_fragments_of_two_calls_may_be_mixed() -> None:
    got = calls(
        calls_chunk(tc('{"x"', i=0, id="a", name="f"), tc('{"y"', i=1, id="b", name="g")),
        calls_chunk(tc(":1}", i=0), tc(":2}", i=1)),
        FINISH,
    )
    assert got == {"a": {"x": 1}, "b": {"y": 2}}
    got = calls(
        calls_chunk(tc('{"x"', id="a", name="f")),
        calls_chunk(tc('{"y"', id="b", name="g")),
        calls_chunk(tc(":1}", id="a")),
        calls_chunk(tc(":2}", id="b")),
        FINISH,
    )
    assert got == {"a": {"x": 1}, "b": {"y": 2}}


@pytest.mark.parametrize("wire_id", [None, "", "same"])
@pytest.mark.parametrize("index", [None, 0])
def test_missing_empty_and_repeated_ids_get_unique_ones(wire_id: str | None, index: int | None) -> None:
    elements = [tc(json.dumps({"n": n}), i=index, id=wire_id, name="f") for n in range(3)]
    for chunks in ([calls_chunk(*elements)], [calls_chunk(element) for element in elements]):
        got = play(*chunks, FINISH).calls
        assert [call.arguments for call in got] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert len({call.id for call in got}) == 3
        assert all(call.id for call in got)


def test_the_same_id_at_other_indexes_is_another_call() -> None:
    elements = [tc('{"n":1}', i=n, id="call_0", name="f") for n in range(3)]
    assert len(play(calls_chunk(*elements), FINISH).calls) == 3


def test_an_id_of_an_earlier_answer_is_not_used_again() -> None:
    call = one(calls_chunk(tc("{}", i=0, id="call_0", name="f")), FINISH, taken=["call_0"])
    assert call.id == "made0"


def test_an_id_that_comes_late_is_the_calls_id() -> None:
    call = one(calls_chunk(tc('{"a"', i=0, name="f")), calls_chunk(tc(":1}", i=0, id="late")), FINISH)
    assert (call.id, call.arguments) == ("late", {"a": 1})


def test_id_and_name_repeated_in_every_fragment() -> None:
    call = one(*(calls_chunk(tc(part, i=0, id="a", name="read")) for part in ('{"pa', 'th":', '"x"}', "")), FINISH)
    assert (call.id, call.name, call.arguments) == ("a", "read", {"path": "x"})
    call = one(*(calls_chunk(tc(part, name="read")) for part in ('{"pa', 'th":', '"x"}')), FINISH)
    assert (call.name, call.arguments) == ("read", {"path": "x"})


def test_a_name_in_two_pieces() -> None:
    call = one(calls_chunk(tc("", i=0, id="a", name="re")), calls_chunk(tc("{}", i=0, name="ad")), FINISH)
    assert call.name == "read"


def test_a_fresh_id_in_every_fragment() -> None:
    call = one(
        *(calls_chunk(tc(p, i=0, id=f"x{n}", name="f" if n == 0 else None)) for n, p in enumerate(['{"a"', ":1", "}"])),
        FINISH,
    )
    assert (call.id, call.arguments) == ("x0", {"a": 1})


def test_a_call_sent_twice_is_one_call() -> None:
    whole = tc('{"a":1}', i=0, id="a", name="f")
    assert len(play(calls_chunk(whole), calls_chunk(whole), FINISH).calls) == 1


def test_arguments_as_an_object_and_other_shapes() -> None:
    assert one(calls_chunk(tc({"a": [1]}, name="f")), FINISH).arguments == {"a": [1]}
    assert one(chunk({"tool_calls": tc('{"a":1}', name="f")}), FINISH).arguments == {"a": 1}
    assert one(
        chunk({"function_call": {"name": "f", "arguments": '{"a"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        chunk({}, "function_call"),
    ).arguments == {"a": 1}
    assert one(calls_chunk({"id": "a", "name": "f", "arguments": '{"a":1}'}), FINISH).arguments == {"a": 1}
    assert (
        play(calls_chunk({"id": None, "function": None, "type": "function"}), chunk({"content": "x"}, "stop")).calls
        == []
    )


def test_unknown_fields_of_a_call_are_kept() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    call = one(calls_chunk(tc('{"a"', i=0, id="a", name="f", extra_content=extra)), calls_chunk(tc(":1}", i=0)), FINISH)
    assert call.extra == {"extra_content": extra}


# Arguments at the end


def test_arguments_that_do_not_parse_never_run() -> None:
    call = one(calls_chunk(tc('{"path":"a.py","content":"abc', i=0, id="a", name="write")), FINISH)
    assert "arguments incomplete" in call.problem
    assert "smaller pieces" in call.problem
    assert call.arguments == {}
    assert call.raw == '{"path":"a.py","content":"abc'


def test_raw_is_cut() -> None:
    assert len(one(calls_chunk(tc('{"a":"' + "x" * 5000, name="f")), FINISH).raw) == 800


@pytest.mark.parametrize(
    "text", ["[1]", "null", "true", "3", '"word"', '"[1]"', '"\\"{}\\""', "{'a':1}", "{a:1}", '{"a":NaN}']
)
def test_what_is_no_object_is_a_problem(text: str) -> None:
    call = one(calls_chunk(tc(text, name="f")), FINISH)
    assert call.problem
    assert call.arguments == {}


def test_a_json_string_that_holds_json_is_decoded_once() -> None:
    assert one(calls_chunk(tc(json.dumps('{"a":1}'), name="f")), FINISH).arguments == {"a": 1}


def test_nesting_bombs_are_a_problem() -> None:
    assert one(calls_chunk(tc('{"a":' * 100_000, name="f")), FINISH).problem
    assert one(calls_chunk(tc('{"a":' * 50_000 + "1" + "}" * 50_000, name="f")), FINISH).problem


@pytest.mark.parametrize(
    ("finish", "needed", "good"),
    [("tool_calls", False, True), ("stop", False, True), ("tool_calls", True, False), (None, False, False)],
)
def test_empty_arguments(finish: str | None, needed: bool, good: bool) -> None:
    for text in ("", "  ", None):
        call = one(calls_chunk(tc(text, id="a", name="f")), chunk({}, finish), needs={"f": needed})
        assert (call.problem == "") is good
        assert call.arguments == {}


# How answers end


@pytest.mark.parametrize("word", ["stop", "end_turn", "tool_calls", "function_call", "STOP", "eos", "whatever", None])
def test_complete_calls_run_whatever_the_finish_word(word: str | None) -> None:
    result = play(calls_chunk(tc('{"a":1}', id="a", name="f")), chunk({}, word))
    assert result.calls[0].problem == ""
    assert result.reason == "tool-calls"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content-filter"),
        ("SAFETY", "content-filter"),
    ],
)
def test_no_call_runs_after_length_or_a_filter(word: str, reason: str) -> None:
    result = play(calls_chunk(tc('{"a":1}', id="a", name="f"), tc('{"b', id="b", name="f")), chunk({}, word))
    assert result.reason == reason
    assert all(call.problem and not call.arguments for call in result.calls)


def test_done_alone_ends_an_answer_and_a_close_alone_does_not() -> None:
    assert play(chunk({"content": "hi"})).text == "hi"
    with pytest.raises(StreamDropped):
        play(chunk({"content": "hi"}), done=False)
    with pytest.raises(StreamDropped):
        play(calls_chunk(tc('{"a":1}', id="a", name="f")), done=False)
    assert play(chunk({"content": "hi"}, "stop"), done=False).text == "hi"


@pytest.mark.parametrize("word", ["error", "network_error", "insufficient_system_resource", "abort"])
def test_a_finish_word_that_means_trouble(word: str) -> None:
    with pytest.raises(StreamDropped):
        play(chunk({"content": "hi"}), chunk({}, word))


@pytest.mark.parametrize(
    "chunks", [[], [chunk({}, "stop")], [chunk({"content": " \n"}, "stop")], [chunk({"content": ""})]]
)
def test_an_empty_answer_is_an_error(chunks: list[Any]) -> None:
    with pytest.raises(ProviderError, match="empty answer") as caught:
        play(*chunks)
    assert not isinstance(caught.value, StreamDropped)


def test_an_empty_answer_at_the_limit_says_so() -> None:
    with pytest.raises(ProviderError, match="output limit"):
        play(chunk({}, "length"))
    with pytest.raises(ProviderError, match="filter"):
        play(chunk({}, "content_filter"))


def test_reasoning_alone_is_an_answer() -> None:
    result = play(chunk({"reasoning_content": "hm"}), chunk({}, "stop"))
    assert (result.reasoning, result.reason) == ("hm", "stop")


# What is tolerated


def test_odd_chunks_change_nothing() -> None:
    odd = [
        {"choices": []},
        {"choices": None},
        {},
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]},
        {"choices": [], "prompt_filter_results": [{}]},
        chunk(None),
        chunk({"content": None, "tool_calls": None, "reasoning_content": None, "role": None}),
        chunk({"tool_calls": []}),
        {"choices": [None, 3, "x"]},
        {"choices": {"0": 1}},
        {"object": "ping"},
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        {"usage": None, "choices": []},
        {"error": None, "choices": []},
        [],
        [1, 2],
        None,
        7,
        "text",
    ]
    plain = [chunk({"role": "assistant", "content": "Hell"}), chunk({"content": "o"}), chunk({}, "stop")]
    mixed: list[Any] = []
    for one_plain in plain:
        mixed += [*odd, one_plain]
    assert play(*mixed, *odd).plain() == play(*plain).plain()


def test_usage_after_the_finish_and_the_last_one_counts() -> None:
    result = play(
        chunk({"content": "x"}, usage={"prompt_tokens": 5, "completion_tokens": 0}),
        chunk({}, "stop"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
    )
    assert result.tokens == {"input": 5, "output": 7, "reasoning": 0, "cache_read": 0}


def test_a_whole_answer_in_one_object() -> None:
    body = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "tool_calls": [tc('{"a":1}', id="a", name="f")]},
                "finish_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    result = play(body, done=False)
    assert (result.text, result.calls[0].arguments) == ("hi", {"a": 1})


def test_halves_of_a_surrogate_pair_are_joined_and_lone_ones_replaced() -> None:
    assert (
        play(chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b\ud800c"}), chunk({}, "stop")).text
        == "a😀b\ufffdc"
    )


def test_an_error_in_the_stream_is_raised() -> None:
    with pytest.raises(ProviderError, match="overloaded") as caught:
        play(chunk({"content": "x"}), {"error": {"message": "The engine is overloaded", "type": "server_error"}})
    assert caught.value.retryable
    with pytest.raises(ContextOverflow):
        play({"error": {"message": "too long", "code": "context_length_exceeded"}})
    with pytest.raises(ProviderError, match="boom"):
        play({"object": "error", "message": "boom", "code": 400})
    with pytest.raises(ProviderError, match="odd"):
        play([{"error": {"message": "odd", "code": 500}}])


def test_a_refusal_is_text_and_said() -> None:
    out = deltas(chunk({"refusal": "I can't."}), chunk({}, "stop"))
    assert summed(out).text == "I can't."
    assert any(isinstance(delta, Said) for delta in out)


def test_writing_tells_the_size_of_what_is_being_written() -> None:
    out = deltas(calls_chunk(tc('{"a":', id="a", name="f")), calls_chunk(tc('"bcd"}')), FINISH)
    assert [(d.index, d.name, d.size) for d in out if isinstance(d, Writing)] == [(0, "f", 5), (0, "f", 11)]


# Reasoning


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_fields(field: str) -> None:
    result = play(chunk({field: "se"}), chunk({field: "cret"}), chunk({"content": "Hello"}), chunk({}, "stop"))
    assert (result.text, result.reasoning, result.field) == ("Hello", "secret", field)


def test_the_same_reasoning_in_two_fields_counts_once() -> None:
    result = play(chunk({"reasoning": "hm", "reasoning_content": "hm"}), chunk({"content": "x"}, "stop"))
    assert result.reasoning == "hm"


def test_think_tags_split_over_chunks() -> None:
    text = "<think>secret</think>Hello"
    pieces = [text[:4], text[4:17], text[17:]]
    result = play(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"))
    assert (result.text, result.reasoning) == ("Hello", "secret")


def test_a_lone_closing_tag_makes_reasoning_of_what_came_before() -> None:
    pieces = ["sec", "ret</th", "ink>\n\nHello"]
    result = play(*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop"))
    assert (result.text, result.reasoning) == ("Hello", "secret")


def test_opaque_reasoning_is_kept_whole() -> None:
    result = play(
        chunk({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "zz"}]}),
        chunk({"content": "x"}, "stop"),
    )
    assert result.opaque["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "zz"},
    ]


# Properties

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text("abcdef", min_size=1, max_size=5), json_values, max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_any_way_of_cutting_any_calls_gives_those_calls(wanted: list[dict[str, Any]], data: st.DataObject) -> None:
    style = data.draw(st.sampled_from(["index", "id", "both", "order"]))
    elements: list[dict[str, Any]] = []
    for n, arguments in enumerate(wanted):
        text = json.dumps(arguments)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        for place, part in enumerate(parts):
            index = n if style in ("index", "both") else None
            wire_id = f"id{n}" if style in ("id", "both") and (place == 0 or style == "id") else None
            elements.append(tc(part, i=index, id=wire_id, name="tool" if place == 0 else None))
    chunks = [calls_chunk(element) for element in elements]
    result = play(*chunks, FINISH)
    assert [call.arguments for call in result.calls] == wanted
    assert not any(call.problem for call in result.calls)


@settings(max_examples=150, deadline=None)
@given(st.lists(json_values | st.builds(chunk, json_values), max_size=6))
def test_no_chunk_can_break_it(chunks: list[Any]) -> None:
    try:
        play(*chunks)
    except ProviderError:
        pass


elements = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, None, "x"]),
        "id": st.sampled_from(["a", "b", "", None, 5]),
        "type": st.just("function"),
        "function": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["f", "g", "", None]),
                "arguments": st.sampled_from(["", "{}", '{"a"', ":1}", None, {"x": 1}, 5, [1]]),
            },
        ),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(elements, max_size=3), max_size=6), st.sampled_from(["stop", "tool_calls", "length", None]))
def test_whatever_comes_calls_have_unique_ids_and_objects(parts: list[list[Any]], word: str | None) -> None:
    try:
        result = play(*(calls_chunk(*part) for part in parts), chunk({"content": "x"}, word))
    except StreamDropped:
        return
    assert len({call.id for call in result.calls}) == len(result.calls)
    for call in result.calls:
        assert isinstance(call.arguments, dict)
        assert not (call.problem and call.arguments)
        assert word != "length" or call.problem
