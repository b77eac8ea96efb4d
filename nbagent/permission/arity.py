"""How many words of a command name what it does: ``git log`` of ``git log --oneline -5``, ``npm run dev`` of ``npm run dev``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files


@cache
def _table() -> dict[tuple[str, ...], int]:
    text = files("nbagent.permission").joinpath("arity.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {tuple(words): int(number) for *words, number in lines}


def arity_prefix(tokens: Sequence[str]) -> tuple[str, ...]:
    """The words that name the command, for a suggested wider rule. A command that is not in the table is its first word."""
    table = _table()
    longest = max((len(words) for words in table), default=1)
    for size in range(min(longest, len(tokens)), 0, -1):
        number = table.get(tuple(tokens[:size]))
        if number is not None:
            return tuple(tokens[:number])
    return tuple(tokens[:1])
