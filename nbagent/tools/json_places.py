"""JSON read together with the places where its values stand, so that one of them can be replaced in the text. Pure.

Strict as ``json`` is: what is no JSON raises ``ValueError`` or ``IndexError``. Only as deep as it is asked to be; the rest is read
by ``json`` in one go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Span:
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Any


def skip(text: str, at: int) -> int:
    """The place of the next thing that is no space."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def value_at(text: str, at: int) -> Span:
    """The value that begins at ``at``."""
    value, end = _decoder.raw_decode(text, at)
    return Span(at, end, value)


@dataclass(frozen=True, slots=True)
class Element(Span):
    """An element of a list. ``spans``: its values by key, None for what is no object."""

    spans: dict[str, Span] | None = None


def object_at(text: str, at: int, read: Callable[[str, int], Span] | None = None) -> tuple[dict[str, Span], int]:
    """The values of the object that begins at ``at``, by key, the last of equal keys; and where it ends.

    ``read`` reads the value of a key. Strict: what is no JSON raises ``ValueError`` or ``IndexError``.
    """
    if text[at] != "{":
        raise ValueError("an object was expected")
    members: dict[str, Span] = {}
    at = skip(text, at + 1)
    if text[at] == "}":
        return members, at + 1
    while True:
        if text[at] != '"':
            raise ValueError("a key was expected")
        key = value_at(text, at)
        at = skip(text, key.end)
        if text[at] != ":":
            raise ValueError("a colon was expected")
        at = skip(text, at + 1)
        member = value_at(text, at) if read is None else read(key.value, at)
        members[key.value] = member
        at = skip(text, member.end)
        if text[at] == "}":
            return members, at + 1
        if text[at] != ",":
            raise ValueError("a comma was expected")
        at = skip(text, at + 1)


def elements_at(text: str, at: int) -> tuple[list[Element], int]:
    """The elements of the list that begins at ``at``, and where it ends. Strict, as ``object_at``."""
    elements: list[Element] = []
    at = skip(text, at + 1)
    if text[at] == "]":
        return elements, at + 1
    while True:
        element = _element(text, at)
        elements.append(element)
        at = skip(text, element.end)
        if text[at] == "]":
            return elements, at + 1
        if text[at] != ",":
            raise ValueError("a comma was expected")
        at = skip(text, at + 1)


def _element(text: str, at: int) -> Element:
    if text[at] != "{":
        found = value_at(text, at)
        return Element(at, found.end, found.value)
    spans, end = object_at(text, at)
    return Element(at, end, {key: span.value for key, span in spans.items()}, spans)
