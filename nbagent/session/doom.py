"""A run that goes in circles: the same call again and again, or the same few calls in turn. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REPEATS = 3
LONGEST = 4


@dataclass(frozen=True, slots=True)
class Loop:
    """``period`` calls (``tools``, in order) that have just come ``repeats`` times over."""

    period: int
    repeats: int
    tools: tuple[str, ...]

    def __str__(self) -> str:
        if self.period == 1:
            return f"{self.tools[0]} was called with the same arguments {self.repeats} times in a row"
        return f"the same {self.period} calls ({', '.join(self.tools)}) came {self.repeats} times over"


def canonical(value: Any) -> str:
    """JSON that is equal for equal arguments: keys sorted, no spaces, ``1.0`` written as ``1``."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr)


def fingerprint(tool: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """What makes two calls the same call: the tool's name and its canonical arguments."""
    return tool, canonical(arguments)


def doom_loop(
    calls: Sequence[tuple[str, Mapping[str, Any]]], *, repeats: int = REPEATS, longest: int = LONGEST
) -> Loop | None:
    """The loop that the newest call closes, or None.

    ``calls``: (tool, arguments) of the whole run in order, across steps, the one about to run last. A loop is a block of
    1 to ``longest`` calls that ends ``calls`` and stands there ``repeats`` times over. ``repeats`` below 2 switches it off.
    After a person lets a loop go on, hand in only the calls that came after.
    """
    if repeats < 2:
        return None
    prints = [fingerprint(tool, arguments) for tool, arguments in calls[-repeats * max(longest, 1) :]]
    for period in range(1, longest + 1):
        if _closes(prints, period, repeats):
            return Loop(period, repeats, tuple(tool for tool, _ in prints[-period:]))
    return None


def _closes(prints: Sequence[tuple[str, str]], period: int, repeats: int) -> bool:
    tail = prints[-period * repeats :]
    return len(tail) == period * repeats and tail[period:] == tail[:-period]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
