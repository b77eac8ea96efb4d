"""Paths as permissions: what a call on a place needs, and rules written so that they meet real places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from nbagent.errors import ConfigError, ToolError
from nbagent.permission.ask import Need
from nbagent.permission.ruleset import PATHS, Rule, Ruleset, check, tidy
from nbagent.permission.wildcard import exactly, match
from nbagent.root import Place, Root

OUTSIDE = "external_directory"


def path_needs(permission: str, *places: Place) -> tuple[Need, ...]:
    """What acting on ``places`` needs: each that is outside the root is first an ``external_directory`` question.

    "Always" remembers exactly these paths; the folder of the first is suggested as the wider choice.
    """
    outside = tuple(dict.fromkeys(place.pattern for place in places if place.outside))
    patterns = tuple(dict.fromkeys(place.pattern for place in places))
    needs = [_need(OUTSIDE, outside)] if outside else []
    return (*needs, _need(permission, patterns)) if patterns else ()


def _need(permission: str, patterns: tuple[str, ...]) -> Need:
    folder = PurePosixPath(patterns[0]).parent
    suggest = f"{folder}/*" if str(folder) not in (".", "/") else ""
    return Need(permission, patterns, tuple(map(exactly, patterns)), suggest)


def path_effects(kind: str, *places: Place) -> tuple[str, ...]:
    """Effect keys of acting on ``places``: ``write:src/a.py``. ``kind`` is ``read`` or ``write``."""
    return tuple(f"{kind}:{place.pattern}" for place in places)


def anchored(ruleset: Sequence[Rule], root: Root, source: str = "") -> Ruleset:
    """The rules, with path patterns as real places are named: relative to the root inside it, absolute outside.

    An absolute pattern under the root becomes relative, ``../x`` absolute, and a pattern that leads through a link is
    followed by one for the folder that the link leads to. Raises ``ConfigError`` for a deny that no path can match,
    and for one that names a folder as if it were a file.
    """
    found: list[Rule] = []
    for rule in ruleset:
        found.append(rule)
        if rule.pattern in ("*", "", "**"):
            continue
        real = _anchor(rule.pattern, root, rule.permission)
        if rule.permission in PATHS:
            if _leads_out(rule.pattern, root):
                found.pop()
            if real != rule.pattern or not found or found[-1] is not rule:
                found.append(replace(rule, pattern=real))
        elif real != rule.pattern and _speaks_of_paths(rule.permission):
            found.append(replace(rule, pattern=real))
    check(found, source)
    _refuse_folders(found, root, source)
    return tuple(found)


def _speaks_of_paths(permission: str) -> bool:
    return "*" in permission and any(match(name, permission) for name in PATHS)


def _leads_out(pattern: str, root: Root) -> bool:
    """Whether the pattern as written could never be the pattern of a place."""
    return pattern.startswith("../") or pattern == ".." or pattern.startswith(f"{root.path.as_posix()}/")


def _anchor(pattern: str, root: Root, permission: str) -> str:
    """The pattern with the folders before its first wildcard resolved."""
    mark = "=" if pattern.startswith("=") else ""
    path = tidy(pattern.removeprefix("=")) if not mark else pattern[1:]
    names = path.split("/")
    fixed = next((at for at, name in enumerate(names) if not mark and ("*" in name or "?" in name)), len(names))
    head, rest = "/".join(names[:fixed]), names[fixed:]
    if not head and not path.startswith("/"):
        return pattern
    try:
        place = root.locate(head or "/")
    except ToolError:
        return mark + path
    start = place.real.as_posix() if permission == OUTSIDE else place.pattern
    if not rest:
        return mark + start
    if start == ".":
        return "/".join(rest)
    return "/".join([start.rstrip("/"), *rest])


def _refuse_folders(ruleset: Sequence[Rule], root: Root, source: str) -> None:
    for rule in ruleset:
        if rule.action != "deny" or rule.permission not in ("read", "edit") or set("*?=") & set(rule.pattern):
            continue
        try:
            place = root.locate(rule.pattern)
        except ToolError:
            continue
        if place.real.is_dir() and rule.pattern != ".":
            told = f"{source}: " if source else ""
            raise ConfigError(
                f'{told}permission.{rule.permission}."{rule.pattern}" is a deny for a folder, and calls are about files; '
                f'write "{rule.pattern}/*".'
            )
