"""The lines of a short form: ``key: value``, and what is indented below a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nbagent.provider.cassette import Malformed

KEY = re.compile(r"(?P<key>[A-Za-z_][\w-]*(?: [a-z]+)?):(?: (?P<value>.*))?")
MARKERS = ("|", "|-", "|=", "|=-")
"""Behind a key: a block follows. ``-``: without its last line break; ``=``: its own indent counts."""


@dataclass(slots=True)
class Line:
    """A key line with what is indented below it. ``number`` from 1; ``block``: the raw lines below, or None."""

    number: int
    indent: int
    key: str
    value: str
    block: list[tuple[int, str]] | None = None


def keys(lines: list[tuple[int, str]]) -> Iterator[Line]:
    """The key lines of a block, each with its own block."""
    texts = [text for _, text in lines]
    position = 0
    outer: int | None = None
    while position < len(lines):
        number, raw = lines[position]
        if not raw.strip() or raw.strip().startswith("#"):
            position += 1
            continue
        indent = len(raw) - len(raw.lstrip(" "))
        outer = indent if outer is None else outer
        match = KEY.fullmatch(raw.strip())
        if match is None or indent != outer:
            raise Malformed(
                number, f"{raw.strip()!r} is not understood; an argument is NAME: VALUE, indented like the one above it"
            )
        inner, after = block(texts, position + 1, indent)
        shift = lines[0][0] - 1
        numbered = [(at + shift, text) for at, text in inner]
        yield Line(number, indent, match["key"], match["value"] or "", numbered)
        position = after


def block(lines: list[str], start: int, indent: int) -> tuple[list[tuple[int, str]], int]:
    """The lines from ``start`` that are indented deeper than ``indent`` (empty lines included), and where the next begins."""
    end = start
    for position in range(start, len(lines)):
        raw = lines[position]
        if not raw.strip():
            continue
        if len(raw) - len(raw.lstrip(" ")) <= indent:
            break
        end = position + 1
    return [(at + 1, lines[at]) for at in range(start, end)], max(end, start)


def text_of(line: Line, keep_end: bool = False) -> str:
    """A line's text: behind the key, or the block below it without its indent (``|=``: but for two spaces more than the key's)."""
    marker = line.value.strip()
    raw = [text for _, text in line.block or []]
    if not any(text.strip() for text in raw):
        return "" if marker in MARKERS else marker
    if marker and marker not in MARKERS:
        raise Malformed(line.number, f"{line.key}: has text behind it and lines below it; put all of it below")
    while raw and not raw[0].strip():
        raw.pop(0)
    margin = line.indent + 2 if marker.startswith("|=") else len(raw[0]) - len(raw[0].lstrip(" "))
    for number, text in line.block or []:
        if text.strip() and text[:margin].strip():
            raise Malformed(number, "this line stands left of the block that it belongs to")
    body = "\n".join(text[margin:].rstrip("\r") if text.strip() else "" for text in raw).rstrip("\n")
    return body + "\n" if keep_end and not marker.endswith("-") else body
