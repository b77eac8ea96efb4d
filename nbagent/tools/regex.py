"""A regular expression as ripgrep reads it, in Python's spelling, so that a search without ripgrep finds the same lines."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

from nbagent.errors import ToolError

Ranges = tuple[tuple[int, int], ...]

_ASCII = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\0\x7f",
    "blank": "\t\t  ",
    "cntrl": "\0\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
}
"""Named sets, ``[:alpha:]``: pairs of first and last characters."""

_CATEGORIES = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "number": "N",
    "decimalnumber": "Nd",
    "digit": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "punct": "P",
    "symbol": "S",
    "currencysymbol": "Sc",
    "mathsymbol": "Sm",
    "separator": "Z",
    "spaceseparator": "Zs",
    "other": "C",
    "control": "Cc",
}
_KNOWN_CATEGORIES = (
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cs Co Cn"
)

_FLAGS = re.compile(r"\(\?([imsx]*(?:-[imsx]+)?)\)")
_NAMED_GROUP = re.compile(r"\(\?P?<(?=[A-Za-z_])")
_NAMED_SET = re.compile(r"\[:(\^?)(\w+):\]")
_CODE = re.compile(r"\\[xuU]\{([0-9A-Fa-f]{1,8})\}")
_PROPERTY = re.compile(r"\\([pP])(?:\{([^{}]*)\}|([A-Za-z]))")
_EDGES = {r"\<": r"\b(?=\w)", r"\>": r"\b(?<=\w)", r"\b{start}": r"\b(?=\w)", r"\b{end}": r"\b(?<=\w)"}


def in_python(pattern: str, tolerant: bool = False) -> str:
    """``pattern`` as Python spells it; what is wrong with it is left for Python to say.

    Raises ``ToolError`` for what only ripgrep can do; ``tolerant`` (ripgrep has refused the pattern): such things mean what Python takes
    them for.
    """
    return _Reader(pattern, tolerant).read()


class _Reader:
    """Walks over a pattern once. ``_open``: for each group the flags that were switched on in the middle of it."""

    def __init__(self, pattern: str, tolerant: bool) -> None:
        self._pattern = pattern
        self._tolerant = tolerant
        self._at = 0
        self._out: list[str] = []
        self._open: list[list[str]] = [[]]
        # A dot that spares line breaks spares the carriage return of a line too.
        self._dot = "." if re.search(r"\(\?[imx]*s", pattern) else r"[^\r\n]"

    def read(self) -> str:
        while self._at < len(self._pattern):
            self._step(self._pattern[self._at])
        return "".join([*self._out, ")" * len(self._open[0])])

    def _step(self, mark: str) -> None:
        if mark == "\\":
            self._out.append(self._escape(inside=False))
        elif mark == "[":
            self._out.append(self._set())
        elif mark == "(":
            self._group()
        elif mark == ")":
            self._take(")" * len(self._open[-1]) + ")")
            if len(self._open) > 1:
                self._open.pop()
        elif mark == "|":
            flags = self._open[-1]
            self._take(")" * len(flags) + "|" + "".join(flags))
        else:
            self._take(self._dot if mark == "." else mark)

    def _take(self, text: str, length: int = 1) -> None:
        self._out.append(text)
        self._at += length

    def _group(self) -> None:
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is not None:
            if self._at == 0 and "-" not in flags[1]:
                self._take(flags[0], len(flags[0]))
            else:  # from here to the end of the group, which Python writes as a group of its own
                opening = f"(?{flags[1]}:"
                self._open[-1].append(opening)
                self._take(opening, len(flags[0]))
            return
        if self._pattern.startswith("(?#", self._at):
            end = self._pattern.find(")", self._at)
            self._at = end + 1 if end >= 0 else len(self._pattern)
            return
        named = _NAMED_GROUP.match(self._pattern, self._at)
        self._open.append([])
        self._take("(?P<" if named else "(", len(named[0]) if named else 1)

    def _set(self) -> str:
        start = self._at
        self._at += 1
        out = ["["]
        if self._pattern.startswith("^", self._at):
            out.append("^")
            self._at += 1
        if self._pattern.startswith("]", self._at):
            out.append(r"\]")
            self._at += 1
        while self._at < len(self._pattern):
            mark = self._pattern[self._at]
            if mark == "]":
                self._at += 1
                return "".join([*out, "]"])
            out.append(self._member(mark))
        self._at = len(self._pattern)
        return self._pattern[start:]

    def _member(self, mark: str) -> str:
        """One thing in a set, or the beginning of a range."""
        if mark == "\\":
            return self._escape(inside=True)
        named = _NAMED_SET.match(self._pattern, self._at)
        if named is not None and named[2] in _ASCII:
            self._at += len(named[0])
            text = _ASCII[named[2]]
            ranges = tuple((ord(a), ord(b)) for a, b in zip(text[::2], text[1::2], strict=True))
            return _spelled(_others(ranges) if named[1] else ranges)
        if mark == "[" or self._pattern[self._at : self._at + 2] in ("&&", "--", "~~"):
            if not self._tolerant and self._closes_twice():
                raise ToolError(
                    f"{self._pattern[:200]!r} has a set within a set, or && -- ~~ in one, which needs ripgrep, and that is not here. "
                    r"Write it without (a [ or & meant as itself needs a backslash)."
                )
            self._at += 1
            return "\\" + mark
        self._at += 1
        return mark

    def _closes_twice(self) -> bool:
        """Whether an inner bracket and the outer one are both closed; an operator needs the outer one alone."""
        needed = 2 if self._pattern[self._at] == "[" else 1
        return self._pattern.count("]", self._at) >= needed

    def _escape(self, inside: bool) -> str:
        at, pattern = self._at, self._pattern
        if (code := _CODE.match(pattern, at)) is not None and int(code[1], 16) <= sys.maxunicode:
            self._at += len(code[0])
            return re.escape(chr(int(code[1], 16)))
        if (found := _PROPERTY.match(pattern, at)) is not None:
            self._at += len(found[0])
            ranges = _property(found[2] or found[3] or "", found[0])
            text = _spelled(_others(ranges) if found[1] == "P" else ranges)
            return text if inside else f"[{text}]"
        for edge, meaning in () if inside else _EDGES.items():
            if pattern.startswith(edge, at):
                self._at += len(edge)
                return meaning
        self._at += 2
        return pattern[at : at + 2]


def _property(name: str, shown: str) -> Ranges:
    plain = re.sub(r"[\s_-]", "", name.rpartition("=")[2])
    negated = plain.startswith("^")
    plain = plain.removeprefix("^")
    category = _CATEGORIES.get(plain.lower(), plain[:1].upper() + plain[1:].lower())
    if category not in _KNOWN_CATEGORIES.split():
        raise ToolError(
            f"{shown} is a property of characters that is not known here: without ripgrep only general categories are (L, Lu, Nd, P …). "
            "Write a range such as [α-ω]."
        )
    ranges = _category(category)
    return _others(ranges) if negated else ranges


@lru_cache(maxsize=8)
def _category(prefix: str) -> Ranges:
    """The characters of a general category."""
    found: list[tuple[int, int]] = []
    first = -1
    category = unicodedata.category
    for code in range(sys.maxunicode + 1):
        if category(chr(code)).startswith(prefix):
            if first < 0:
                first = code
        elif first >= 0:
            found.append((first, code - 1))
            first = -1
    return (*found, (first, sys.maxunicode)) if first >= 0 else tuple(found)


def _others(ranges: Ranges) -> Ranges:
    """All characters that are in none of ``ranges`` (ascending, apart)."""
    found: list[tuple[int, int]] = []
    at = 0
    for first, last in ranges:
        if first > at:
            found.append((at, first - 1))
        at = last + 1
    return (*found, (at, sys.maxunicode)) if at <= sys.maxunicode else tuple(found)


def _spelled(ranges: Ranges) -> str:
    """The inside of a set."""
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
