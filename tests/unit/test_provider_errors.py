"""Recorded error bodies of each server → one plain sentence, whether to try again, and when."""

from __future__ import annotations

import email.utils
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import ContextOverflow, ProviderError
from nbagent.mask import Masker
from nbagent.provider.errors import Context, in_stream, translate
from nbagent.provider.failure import duration, read
from nbagent.provider.overflow import PHRASES, is_overflow
from tests.streams import ODD_VALUES, places, replaced

KEY = "sk-proj-THE-SECRET-KEY-0001"
FOLDER = Path(__file__).parents[1] / "data" / "errors"
ROWS: list[tuple[str, dict[str, Any]]] = [
    (f"{path.stem}: {row['name']}", row)
    for path in sorted(FOLDER.glob("*.json"))
    for row in json.loads(path.read_text(encoding="utf-8"))
]


def error_of(row: dict[str, Any]) -> ProviderError:
    context = Context(
        url="http://127.0.0.1:11434/v1" if "ollama" in str(row["body"]) else "https://models.example/v1",
        model="some-model",
        has_key=row.get("has_key", True),
        estimate=row.get("estimate", 0),
        window=row.get("window", 0),
        masker=Masker([KEY], shapes=True),
    )
    if row["status"] is None:
        return in_stream(row["body"], context)
    body = row["body"]
    data = body.encode("utf-8", "replace") if isinstance(body, str) else json.dumps(body).encode()
    return translate(read(row["status"], data, row["headers"]), context)


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
def test_recorded_bodies(row: dict[str, Any]) -> None:
    error = error_of(row)
    text = str(error)
    assert type(error).__name__ == row["kind"], text
    if not row.get("any_retryable"):
        assert error.retryable is row["retryable"], text
    assert error.retry_after == (
        pytest.approx(row["retry_after"]) if row["retry_after"] is not None else error.retry_after
    )
    for words in row["says"]:
        assert words.lower() in text.lower(), text
    assert text[0].isupper() or text[0].isdigit() or "." in text.split()[0] or text.startswith("some-model"), text
    assert len(text) < 800
    assert "\n" not in text
    assert not re.search(r"[{}<>]", text.split("The server said")[0]), text


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
def test_the_key_is_masked_wherever_the_server_repeats_it(row: dict[str, Any]) -> None:
    text = json.dumps(row["body"]).replace("message", "message", 1)
    body = json.loads(text)
    if isinstance(body, dict):
        body = {**body, "detail": KEY, "message": f"bad key {KEY}"}
    elif isinstance(body, str):
        body = f"{body} {KEY}"
    error = error_of({**row, "body": body})
    assert KEY not in str(error)
    assert KEY not in repr(error)
    assert KEY not in error.code


def test_overflow_phrases_with_any_digits_and_never_for_rates() -> None:
    for phrase in PHRASES:
        assert is_overflow(400, f"Error: {phrase} of 8,192 tokens ({phrase})")
        assert is_overflow(None, phrase.upper())
        assert not is_overflow(429, phrase)
        assert not is_overflow(400, f"Too many tokens, please wait. {phrase}")
    assert is_overflow(400, "the request EXCEEDS the available context size: 4096")
    assert is_overflow(400, "anything", "context_length_exceeded")
    assert is_overflow(400, "anything", "exceed_context_size_error")
    assert not is_overflow(429, "anything", "context_length_exceeded")
    assert not is_overflow(429, "too many tokens, please wait")


@pytest.mark.parametrize(
    ("status", "estimate", "window", "expected"),
    [(400, 81, 100, True), (413, 81, 100, True), (400, 80, 100, False), (500, 99, 100, False), (400, 99, 0, False)],
)
def test_a_refusal_without_a_body(status: int, estimate: int, window: int, expected: bool) -> None:
    assert is_overflow(status, "", "", estimate, window) is expected
    assert is_overflow(status, " \n", "", estimate, window) is expected


def test_waiting_times() -> None:
    def wait(headers: dict[str, str]) -> float | None:
        return read(429, b"", headers).retry_after

    assert wait({"Retry-After": "12"}) == 12
    assert wait({"retry-after": "1.5"}) == 1.5
    assert wait({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert wait({"retry-after": "-5"}) == 0
    assert wait({"retry-after": "soon"}) is None
    assert wait({"retry-after": "nan"}) is None
    assert wait({"retry-after": "inf"}) is None
    assert wait({}) is None
    date = email.utils.formatdate(time.time() + 90, usegmt=True)
    assert wait({"retry-after": date}) == pytest.approx(90, abs=3)
    assert wait({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert duration("1m3.5s") == 63.5
    assert duration("350ms") == pytest.approx(0.35)
    assert duration("2 hours") == 7200
    assert duration("x") is None


def test_an_unknown_model_names_the_ones_there_are() -> None:
    failure = read(404, b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}')
    context = Context(url="http://localhost:8000/v1", model="x", available=tuple(f"m{n}" for n in range(20)))
    text = str(translate(failure, context))
    assert "It has: m0, m1," in text
    assert "m12" not in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "status", "detail", "metadata", "raw", "details", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([None, 200, 400, 401, 404, 413, 429, 500, 599]), json_values | st.binary(max_size=60))
def test_any_body_becomes_a_sentence(status: int | None, body: Any) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    for error in (translate(read(status, data), Context()), in_stream(body)):
        assert isinstance(error, (ProviderError, ContextOverflow))
        assert str(error).strip()


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[name for name, _ in ROWS])
def test_a_value_of_a_wrong_kind_anywhere_in_a_body_is_a_sentence(row: dict[str, Any]) -> None:
    body = row["body"]
    for way in places(body):
        for odd in (
            *ODD_VALUES,
            "<html>x</html>",
            "a" * 200_000,
            {"error": {"error": {"message": {"message": "deep"}}}},
        ):
            error = error_of({**row, "body": replaced(body, way, odd)})
            text = str(error)
            assert text.strip() and "\n" not in text and len(text) < 1500, (way, odd)
            assert text.encode()
