"""Glob patterns as regular expressions over paths with ``/``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

from nbagent.ignore import CLASSES


@lru_cache(maxsize=256)
def path_matcher(pattern: str) -> Callable[[str], bool]:
    """A test for relative paths. ``*`` and ``?`` stay within a name, ``**`` crosses folders, ``{a,b}`` are choices, ``[a-z]`` a set.

    A pattern without ``/`` is matched against the last name at any depth; one with ``/`` against the whole path. A name that is
    spelled just like the pattern matches too: ``[id].tsx`` is a file, whatever the brackets could mean.
    """
    plain = pattern.replace("\\", "/") if os.name == "nt" else pattern
    anchored = "/" in plain.rstrip("/")
    plain = plain.removeprefix("./").lstrip("/").rstrip("/")
    compiled = re.compile("|".join(f"(?:{translate(choice)})" for choice in choices(plain)), re.DOTALL)
    if anchored:
        return lambda path: path == plain or compiled.fullmatch(path) is not None
    return lambda path: (name := path.rpartition("/")[2]) == plain or compiled.fullmatch(name) is not None


def below(pattern: str, folder: str) -> str:
    """The pattern seen from ``folder``: an absolute one that begins with it is understood."""
    base = folder.rstrip("/") + "/"
    return "./" + pattern.removeprefix(base) if pattern.startswith(base) else pattern


MAX_CHOICES = 256


def choices(pattern: str) -> list[str]:
    """``a{b,c}`` as ``ab`` and ``ac``, nested too; a brace without a partner is itself."""
    found = _braces(pattern)
    if found is None:
        return [pattern]
    start, end, commas = found
    edges = [start, *commas, end]
    middles = [pattern[a + 1 : b] for a, b in pairwise(edges)]
    spread = [done for middle in middles for done in choices(pattern[:start] + middle + pattern[end + 1 :])]
    return list(dict.fromkeys(spread))[:MAX_CHOICES]


def _braces(pattern: str) -> tuple[int, int, list[int]] | None:
    depth, start, at = 0, -1, 0
    commas: list[int] = []
    while at < len(pattern):
        mark = pattern[at]
        if mark == "\\":
            at += 1
        elif mark == "{":
            if depth == 0:
                start, commas = at, []
            depth += 1
        elif mark == "," and depth == 1:
            commas.append(at)
        elif mark == "}" and depth:
            depth -= 1
            if depth == 0 and commas:
                return start, at, commas
        at += 1
    return None


def translate(pattern: str) -> str:
    """The regular expression of one glob without braces."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        mark = pattern[at]
        if mark == "*":
            stars = len(pattern) - at - len(pattern[at:].lstrip("*"))
            at += stars
            whole = (at - stars == 0 or pattern[at - stars - 1] == "/") and (at == len(pattern) or pattern[at] == "/")
            if stars < 2 or not whole:
                out.append("[^/]*")
            elif at == len(pattern):
                out.append(".+" if out else ".*")
            else:
                out.append("(?:[^/]+/)*")
                at += 1
            continue
        at += 1
        if mark == "?":
            out.append("[^/]")
        elif mark == "[":
            text, at = _set(pattern, at)
            out.append(text)
        elif mark == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(mark))
    return "".join(out)


def _set(pattern: str, at: int) -> tuple[str, int]:
    """A set that begins before ``at``, and where it ends; an open bracket without a partner is itself."""
    end = at + (pattern[at : at + 1] in ("!", "^"))
    end += pattern[end : end + 1] == "]"
    while end < len(pattern) and pattern[end] != "]":
        if pattern.startswith("[:", end) and ":]" in pattern[end + 2 :]:
            end = pattern.index(":]", end + 2) + 2
        else:
            end += 2 if pattern[end] == "\\" else 1
    if end >= len(pattern):
        return re.escape("["), at
    body = pattern[at:end]
    negated = body[:1] in ("!", "^")
    inner = _set_body(body[1:] if negated else body)
    if not inner:
        return ("[^/]" if negated else "(?!)"), end + 1
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1


def _set_body(body: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(body):
        named = re.match(r"\[:(\w+):\]", body[at:])
        if named:
            out.append(CLASSES.get(named[1], ""))
            at += named.end()
            continue
        first, at = _one(body, at)
        if body[at : at + 1] == "-" and at + 1 < len(body):
            last, at = _one(body, at + 1)
            if first <= last:
                out.append(f"{re.escape(first)}-{re.escape(last)}")
        else:
            out.append(re.escape(first) if first not in "[&~|" else "\\" + first)
    return "".join(out)


def _one(body: str, at: int) -> tuple[str, int]:
    if body[at] == "\\" and at + 1 < len(body):
        return body[at + 1], at + 2
    return body[at], at + 1
