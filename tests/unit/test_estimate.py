"""Estimated tokens against counted ones (two public vocabularies)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from nbagent.provider.estimate import PER_IMAGE, estimate, estimate_request
from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Image,
    Request,
    ResultTurn,
    Text,
    Thought,
    ToolSpec,
    UserTurn,
)

SAMPLES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "tokens.json").read_text("utf-8"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["name"])
def test_text_and_code_within_fifteen_percent(sample: dict[str, Any]) -> None:
    counts = sample["tokens"].values()
    guess = estimate(sample["text"])
    if sample["name"] == "chinese":  # vocabularies differ by a factor of two here: somewhere between them
        assert 0.85 * min(counts) <= guess <= 1.15 * max(counts)
        return
    for count in counts:
        assert abs(guess - count) <= 0.15 * count


def test_everything_together_within_five_percent() -> None:
    text = "\n\n".join(sample["text"] for sample in SAMPLES if sample["name"] != "chinese")
    total = sum(sample["tokens"]["cl100k"] for sample in SAMPLES if sample["name"] != "chinese")
    assert abs(estimate(text) - total) <= 0.05 * total


def test_edges() -> None:
    assert estimate("") == 0
    assert estimate("a") == 1
    assert estimate(" " * 1000) >= 1
    assert estimate("\x00\ud800😀") >= 1


def test_long_texts_are_sampled_and_quick() -> None:
    text = "".join(sample["text"] for sample in SAMPLES) * 40
    parts = sum(estimate(sample["text"]) for sample in SAMPLES) * 40
    start = time.process_time()
    assert abs(estimate(text) - parts) <= 0.1 * parts
    assert time.process_time() - start < 0.5


def test_a_request_counts_everything_in_it() -> None:
    def size(**changes: Any) -> int:
        fields: dict[str, Any] = {"model": "m", "system": "s", "turns": (UserTurn((Text("hi"),)),), **changes}
        return estimate_request(Request(**fields))

    words = "some words that count " * 20
    plain = size()
    assert size(system=words) > plain + 60
    assert size(tools=(ToolSpec("t", words, {"type": "object"}),)) > plain + 60
    assert size(turns=(UserTurn((Text(words),)),)) > plain + 60
    assert size(turns=(UserTurn((Image("image/png", "x"),)),)) >= plain + PER_IMAGE - 10
    call = CallTurn("a", "write", {"content": words})
    assert size(turns=(AssistantTurn(calls=(call,)),)) > plain + 60
    assert size(turns=(AssistantTurn(thoughts=(Thought(words),)),)) > plain + 60
    assert size(turns=(ResultTurn("a", "read", (Text(words),)),)) > plain + 60
