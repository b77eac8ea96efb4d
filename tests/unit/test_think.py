"""Think tags in the text, cut in any way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.provider.think import Piece, ThinkFilter

CASES = {
    "<think>secret</think>Hello": ("Hello", "secret"),
    "<thinking>secret</thinking>\n\nHello": ("Hello", "secret"),
    "  \n<think>\na\n</think>\n\nHello <b>x</b>": ("  \nHello <b>x</b>", "\na\n"),
    "secret</think>Hello": ("Hello", "secret"),
    "<thought>a</thought>b": ("b", "a"),
    "First.\n<think>a</think>Second.": ("First.\nSecond.", "a"),
    "<think>never closed": ("", "never closed"),
    "<think>a < b </th</think>c": ("c", "a < b </th"),
    "no tags at all, a < b and <think": ("no tags at all, a < b and <think", ""),
    "Use `</think>` to close.": ("Use `</think>` to close.", ""),
    "Use <think> inline.": ("Use <think> inline.", ""),
    "```\n<think>\ncode\n</think>\n```\nx": ("```\n<think>\ncode\n</think>\n```\nx", ""),
    'the tag "</think>" is text': ('the tag "</think>" is text', ""),
    "<think>a</think>b</think>c": ("b</think>c", "a"),
    "a</think>b</think>c": ("b</think>c", "a"),
    "</think>Hello": ("Hello", ""),
    "Sure. <think>secret</think> Hello": ("Sure.  Hello", "secret"),
    "A <think>x</think> B <thought>y</thought> C": ("A  B  C", "xy"),
    "First.\n<think>a</think>B <think>c</think> D": ("First.\nB  D", "ac"),
    "A `<think>` is not </thinking> closed": ("closed", "A `<think>` is not "),
    "<think></think>Hello": ("Hello", ""),
    "": ("", ""),
    "<": ("<", ""),
}


def run(pieces: list[str]) -> tuple[str, str]:
    parts = ThinkFilter()
    out: list[Piece] = []
    for piece in pieces:
        out += parts.feed(piece)
    out += parts.end()
    said, thought = "", ""
    for kind, text in out:
        if kind == "say":
            said += text
        elif kind == "think":
            thought += text
        else:
            said = ""
    return said, thought


@pytest.mark.parametrize("text", CASES)
def test_whole(text: str) -> None:
    assert run([text]) == CASES[text]


@pytest.mark.parametrize("text", CASES)
def test_every_letter_alone(text: str) -> None:
    assert run(list(text)) == CASES[text]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<th", "ink>", "\n", "```", "`", "a ", "<", "</", ">", "x"]),
        max_size=12,
    ),
    st.data(),
)
def test_cutting_changes_nothing(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert run(pieces) == run([text])


def test_text_is_shown_as_it_comes() -> None:
    parts = ThinkFilter()
    assert parts.feed("Hello ") == [("say", "Hello ")]
    assert parts.feed("a <") == [("say", "a ")]
    assert parts.feed("b") == [("say", "<b")]


def test_with_a_field_for_reasoning_a_closing_tag_is_text() -> None:
    parts = ThinkFilter()
    parts.no_lone_tags()
    assert parts.feed("a</think>b") == [("say", "a"), ("say", "</think>"), ("say", "b")]
