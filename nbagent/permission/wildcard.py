"""Wildcards in rules: the whole string must match.

``*`` is any run of characters, slashes included; ``?`` is exactly one; ``**/`` (at the start or after a slash) is zero or more
folders; a pattern that ends in `` *`` also matches without that tail, so ``git status *`` covers ``git status``.
``\\`` counts as ``/`` on both sides. A pattern that starts with ``=`` means the rest of it, character by character.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

FOLD = os.name == "nt"
"""Whether case is ignored unless a caller says otherwise."""

STAR, FOLDERS, TAIL = "*", "**/", " *"


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a parsed pattern. ``kind``: ``text`` (``?`` in it is any one character unless ``literal``), or a wildcard."""

    kind: str
    text: str = ""
    literal: bool = False


def pieces(pattern: str) -> tuple[Piece, ...]:
    """A pattern, parsed: texts with the wildcards between them."""
    if pattern.startswith("="):
        return (Piece("text", pattern[1:], literal=True),)
    pattern = pattern.replace("\\", "/")
    tail = pattern.endswith(" *")
    if tail:
        pattern = pattern[:-2]
    found: list[Piece] = []
    for token in re.findall(r"(?:(?<=/)|^)(?:\*\*/)+|\*+|[^*]+", pattern):
        if token.startswith("*"):
            found.append(Piece(FOLDERS if token.endswith("/") else STAR))
        else:
            found.append(Piece("text", token))
    if tail:
        found.append(Piece(TAIL))
    return tuple(found)


def _text(piece: Piece) -> str:
    if piece.literal:
        return re.escape(piece.text)
    return ".".join(re.escape(part) for part in piece.text.split("?"))


def _expression(pattern: str) -> tuple[str, str]:
    """A regular expression that backtracks over its last wildcard alone: the texts before it are found leftmost, then fixed.

    In two pieces: what stands before the first wildcard, and the rest.
    """
    parsed = list(pieces(pattern))
    end = r"\Z"
    if parsed and parsed[-1].kind == TAIL:
        parsed.pop()
        end = r"(?: .*)?\Z"
    wild = [at for at, piece in enumerate(parsed) if piece.kind != "text"]
    written: list[str] = []
    gap = ""
    for at, piece in enumerate(parsed):
        if piece.kind != "text":
            gap = STAR if STAR in (piece.kind, gap) else FOLDERS
        elif not gap:
            written.append(_text(piece))
        elif at > wild[-1]:
            written.append((".*" if gap == STAR else "(?:|.*/)") + _text(piece))
            gap = ""
        else:
            written.append(f"(?>{'.*?' if gap == STAR else '(?:|.*?/)'}{_text(piece)})")
            gap = ""
    if gap:
        written.append(".*" if gap == STAR else "(?:|.*/)")
    begins = 1 if written and parsed[0].kind == "text" else 0
    return "".join(written[:begins]), "".join(written[begins:]) + end


TOGETHER = 256
"""How many patterns one regular expression tries."""


@lru_cache(maxsize=8192)
def first(patterns: tuple[str, ...], fold: bool = FOLD) -> Callable[[str], int]:
    """A function that tells the place of the first pattern that a text matches; ``len(patterns)``: none does.

    Texts without wildcards are looked up, the others are tried by one regular expression. Linear in the text for each pattern.
    """
    last = patterns.index("*") if "*" in patterns else len(patterns)
    exact: dict[str, int] = {}
    plain: dict[str, int] = {}
    wild: list[int] = []
    for place, pattern in enumerate(patterns[:last]):
        if pattern.startswith("="):
            exact.setdefault(pattern[1:].casefold() if fold else pattern[1:], place)
        elif "*" not in pattern and "?" not in pattern and not fold:
            plain.setdefault(pattern.replace("\\", "/"), place)
        else:
            wild.append(place)
    if not exact and not plain and not wild:
        return lambda text: last
    searches = [_search(patterns, wild[at : at + TOGETHER], fold) for at in range(0, len(wild), TOGETHER)]
    if len(searches) == 1 and not exact and not plain:  # nearly always
        (only, whose) = searches[0]

        def find_wild(text: str) -> int:
            hit = only(text.replace("\\", "/") if "\\" in text else text)
            return last if hit is None else whose[hit.lastindex - 1]  # type: ignore[operator]

        return find_wild

    def find(text: str) -> int:
        found = exact.get(text.casefold() if fold else text, last) if exact else last
        if "\\" in text:
            text = text.replace("\\", "/")
        if plain and (place := plain.get(text, last)) < found:
            found = place
        for search, places in searches:
            if places[0] > found:
                break
            if hit := search(text):
                return min(found, places[hit.lastindex - 1])  # type: ignore[operator]
        return found

    return find


def _search(
    patterns: tuple[str, ...], places: list[int], fold: bool
) -> tuple[Callable[[str], re.Match[str] | None], list[int]]:
    """One expression for the patterns at some places: the number of its group that took part is that of the first that matches.

    The beginnings stand outside the groups, where the search passes over a choice whose first character is not there.
    """
    choices = ["{}({})".format(*_expression(patterns[place])) for place in places]
    return re.compile("(?s)" + "|".join(choices), re.IGNORECASE if fold else 0).match, places


def match(text: str, pattern: str, fold: bool = FOLD) -> bool:
    """Whether the whole ``text`` matches ``pattern``; ``fold`` ignores case (the default on Windows)."""
    return pattern == "*" or not first((pattern,), fold)(text)


def exactly(text: str) -> str:
    """A pattern that matches ``text`` and nothing else."""
    return f"={text}" if set("*?\\") & set(text) or text.startswith("=") else text


@lru_cache(maxsize=8192)
def within(pattern: str, folder: str) -> tuple[str, ...]:
    """Patterns that together match what ``pattern`` matches of ``folder``, a plain path, and of what is below it; and nothing else."""
    start = f"{folder}/"
    if pattern.startswith("="):
        return (pattern,) if pattern[1:] == folder or pattern[1:].startswith(start) else ()
    if set("*?\\") & set(folder):
        return ()
    pattern = pattern.replace("\\", "/")
    found = [exactly(folder)] if match(folder, pattern) else []
    head = re.split(r"[*?]", pattern, maxsplit=1)[0].rstrip(" ")
    if not start.startswith(head[: len(start)]):
        return tuple(found)
    for at in range(len(pattern) + 1):
        # The start of the pattern takes the folder and its slash; a run may go on after them.
        before, after = pattern[:at], pattern[at:]
        if after.startswith("**/") and before and not before.endswith("/"):
            continue  # a run here, which would be read as folders after the slash; the next step has it
        runs = after.startswith("*") and match(start, f"{before}**")
        if runs or (before.endswith(("/", "?")) and match(start, before)):
            found.append(start + after)
    return tuple(dict.fromkeys(found))


def covers(wide: str, narrow: str, fold: bool = FOLD) -> bool:
    """Whether everything that ``narrow`` matches is matched by ``wide`` too. Sound: True is always true; it may miss some."""
    if wide == "*" or wide == narrow:
        return True
    if fold:
        wide, narrow = wide.casefold(), narrow.casefold()
    wides, narrows = _alternatives(wide), _alternatives(narrow)
    return bool(wides and narrows) and all(any(_absorbs(one, other) for one in wides) for other in narrows)


_ANY, _ONE = "*", "?"
_Symbols = tuple[tuple[str, str], ...]


def _alternatives(pattern: str) -> list[_Symbols]:
    """The pattern as a union of sequences of characters, any-one and any-run symbols; empty when that would be too many."""
    whole: list[_Symbols] = [()]
    if len(pattern) > 2000:
        return []
    for piece in pieces(pattern):
        if piece.kind == "text":
            symbols = tuple(("1", "") if c == "?" and not piece.literal else ("c", c) for c in piece.text)
            ends: list[_Symbols] = [symbols]
        elif piece.kind == STAR:
            ends = [(("*", ""),)]
        elif piece.kind == FOLDERS:
            ends = [(), (("*", ""), ("c", "/"))]
        else:
            ends = [(), (("c", " "), ("*", ""))]
        whole = [start + end for start in whole for end in ends]
        if len(whole) > 16:
            return []
    return whole


def _absorbs(wide: _Symbols, narrow: _Symbols) -> bool:
    """Greedy match of a pattern against a pattern: a run takes anything, any-one takes anything but a run."""
    at = start = 0
    run, taken = -1, 0
    while at < len(narrow):
        if start < len(wide) and wide[start][0] == "*":
            run, taken = start, at
            start += 1
        elif start < len(wide) and narrow[at][0] != "*" and (wide[start][0] == "1" or wide[start] == narrow[at]):
            at, start = at + 1, start + 1
        elif run >= 0:
            taken += 1
            at, start = taken, run + 1
        else:
            return False
    return all(symbol[0] == "*" for symbol in wide[start:])
