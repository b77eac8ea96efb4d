"""The arguments of a tool call: text that should be a JSON object, judged at the end of the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from nbagent.whole import whole_text

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Parsed:
    """``value``: the object, empty when there is a ``problem`` (a sentence for the model, "" for none)."""

    value: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def parse_arguments(text: str) -> Parsed:
    """A JSON object, or what is wrong with ``text``. A JSON string that holds JSON is decoded once."""
    try:
        value = _decode(whole_text(text))
    except (msgspec.DecodeError, RecursionError) as error:
        return Parsed(problem=_broken(text, error))
    if isinstance(value, str):
        try:
            value = _decode(value)
        except (msgspec.DecodeError, RecursionError):
            return Parsed(problem="the arguments are a JSON string, not an object; send one JSON object")
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}.get(
            type(value), "a number"
        )
        return Parsed(problem=f"the arguments are {kind}, not an object; send one JSON object")
    return Parsed(value)


def _broken(text: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the arguments are nested too deeply; send a flatter JSON object"
    if "truncated" in str(error):
        return (
            f"arguments incomplete: they were cut after {len(text):,} characters and nothing ran; "
            "send the call again, writing smaller pieces"
        )
    return (
        f"the arguments are not valid JSON ({error}) and nothing ran; send the call again as one JSON object, "
        "in smaller pieces if it is long"
    )
