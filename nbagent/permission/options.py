"""Arguments of a command, sorted into options and operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nbagent.permission.word import Field


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments, sorted out. ``named``: options with their value (None where they have none)."""

    operands: tuple[Field, ...]
    named: tuple[tuple[str, Field | None], ...]

    def has(self, names: frozenset[str]) -> bool:
        return any(is_option(name, names) for name, _ in self.named)

    def values(self, names: frozenset[str]) -> tuple[Field, ...]:
        return tuple(value for name, value in self.named if value is not None and is_option(name, names))


def is_option(name: str, names: frozenset[str]) -> bool:
    """Long options may be shortened, and a short one may stand in a bundle (``-rf``)."""
    if name in names:
        return True
    if name.startswith("--"):
        return len(name) > 2 and any(each.startswith(name) for each in names)
    return any(len(each) == 2 and each[1] in name[1:] for each in names)


def options(arguments: Sequence[Field], values: frozenset[str]) -> Options:
    """Sort arguments into operands and options; ``values`` names the options whose value is the next word."""
    operands: list[Field] = []
    named: list[tuple[str, Field | None]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.text == "--" and word.known:
            operands.extend(rest)
            break
        if not word.text.startswith("-") or word.text == "-" or word.pipe:
            operands.append(word)
            continue
        name, equals, value = word.text.partition("=")
        if equals:
            named.append((name, Field(value, word.known, "", value)))
        elif name in values or (
            name.startswith("--") and len(name) > 2 and any(each.startswith(name) for each in values)
        ):
            named.append((name, rest.pop(0) if rest else None))
        elif not name.startswith("--") and len(name) > 2 and (name[:2] in values or f"-{name[-1]}" in values):
            named.extend(_bundle(name, word, values, rest))
        else:
            named.append((name, None))
    return Options(tuple(operands), tuple(named))


def _bundle(name: str, word: Field, values: frozenset[str], rest: list[Field]) -> list[tuple[str, Field | None]]:
    """``-ofile``, ``-rno file``: letters up to the one that takes a value, which is what follows it or the next word."""
    found: list[tuple[str, Field | None]] = []
    for at, letter in enumerate(name[1:], 1):
        if f"-{letter}" in values:
            value = name[at + 1 :]
            attached = Field(value, word.known, "", value) if value else rest.pop(0) if rest else None
            found.append((f"-{letter}", attached))
            break
        found.append((f"-{letter}", None))
    return found
