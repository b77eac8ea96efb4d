"""Secrets never come through, in any spelling, however the text is cut."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.mask import SHOWN, Masker, MaskStream

KEY = "sk-te/st+0123 \"k\u00e9y='"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"Incorrect key: {KEY}.",
        quote(KEY),
        quote(KEY, safe=""),
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}, ensure_ascii=False),
        *(base64.b64encode(b"x" * n + KEY.encode() + b"tail").decode() for n in range(4)),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
    ],
)
def test_every_spelling_is_masked(text: str) -> None:
    masked = Masker([KEY]).mask(text)
    assert SHOWN in masked
    assert "0123" not in masked


def test_the_longest_secret_wins_and_short_ones_are_left_alone() -> None:
    masker = Masker(["secret-value", "secret-value-longer", "abc", "", "  "])
    assert masker.mask("a secret-value-longer b secret-value c abc") == "a *** b *** c abc"


def test_innocent_text_is_the_same_object() -> None:
    text = "nothing here " * 100
    assert Masker([KEY]).mask(text) is text
    assert Masker().mask(text) is text
    assert not Masker(["abc"])


def test_shapes_of_keys() -> None:
    masker = Masker(shapes=True)
    for text in ("sk-abcdefghijklmnop1234", "sk-proj-abcdEFGH1234", "ghp_" + "a" * 36, "Bearer abcdefghijklmnop.qrst"):
        assert masker.mask(f"x {text} y") == "x *** y"
    assert masker.mask("Incorrect API key provided: sk-ab****wxyz.") == "Incorrect API key provided: ***."
    for text in ("task-oriented-programming-style", "risk-free", "a sk-short", "**bold** text", "x-***"):
        assert masker.mask(text) == text


def test_json_values() -> None:
    masker = Masker(["hidden-value"])
    value = {"hidden-value": ["a hidden-value", 1, None, {"x": ("hidden-value",)}]}
    assert masker.mask_json(value) == {"***": ["a ***", 1, None, {"x": ("***",)}]}
    assert "hidden" not in repr(masker)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["hid", "den", "-", "value", "hidden-value", "xyzxyz", "x", "yz", " "]), max_size=30))
def test_a_stream_gives_what_the_whole_text_gives(pieces: list[str]) -> None:
    masker = Masker(["hidden-value", "xyzxyzx", "hidden-valuehid"])
    stream = MaskStream(masker)
    shown = "".join([*(stream.feed(piece) for piece in pieces), stream.close()])
    assert shown == masker.mask("".join(pieces))


def test_a_stream_holds_back_only_what_may_be_a_secret() -> None:
    stream = Masker(["hidden-value"]).stream()
    assert stream.feed("hello ") == "hello "
    assert stream.feed("hidden-va") == ""
    assert stream.feed("rious") == "hidden-various"
    assert stream.feed("a hidden-value") == "a ***"


def test_masking_is_fast() -> None:
    masker = Masker([f"secret-value-{n:04d}" for n in range(50)])
    text = "some text that says nothing of the kind\n" * 25_000
    start = time.process_time()
    masker.mask(text)
    assert time.process_time() - start < 1.0
