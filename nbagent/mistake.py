"""What is wrong with a table of settings, as a sentence that a person can act on: the key as it is written, and what may stand there."""

from __future__ import annotations

import difflib
import re
import types
import typing
from typing import Any

import msgspec

_WORDS: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_PERMISSION = 'a table of rules, each "allow", "ask" or "deny"'
_Path = list[str | int]


def said(error: msgspec.ValidationError, table: dict[str, Any], kind: type[msgspec.Struct]) -> str:
    """``error`` of converting ``table`` to ``kind``."""
    text, _, place = str(error).partition(" - at `$")
    path = _path(place.rstrip("`"), str(error), table, kind)
    found = _kind(kind, path)
    if "unknown field" in text:
        name = text.split("`")[1]
        known = [field.name for field in msgspec.structs.fields(found)]
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"unknown key {_shown([*path, name])!r}.{hint} Allowed: {', '.join(known)}."
    value = _at(table, path)
    allowed = _PERMISSION if path and path[-1] == "permission" else _allowed(found)
    return f"key {_shown(path)!r}: it must be {allowed}, not {_got(value, text)}."


def _path(place: str, error: str, table: dict[str, Any], kind: type[msgspec.Struct]) -> _Path:
    """The steps to the place. A key of a free table is ``[...]`` in the error: it is the one which fails in the same way alone."""
    path: _Path = []
    for step in re.findall(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+", place):
        if step == "[...]":
            keys = _at(table, path)
            path.append(next((key for key in keys if _fault(_only(table, path, key), kind) == error), step))
        else:
            path.append(int(step[1:-1]) if step.startswith("[") else step)
    return path


def _at(table: Any, path: _Path) -> Any:
    for step in path:
        table = table[step] if isinstance(step, int) else table.get(step, {})
    return table


def _only(table: Any, path: _Path, key: str) -> dict[str, Any]:
    """``table`` with nothing but ``key`` in the table at ``path``."""
    if not path:
        return {key: table[key]}
    return {**table, path[0]: _only(table[path[0]], path[1:], key)}


def _fault(table: dict[str, Any], kind: type[msgspec.Struct]) -> str:
    try:
        msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _kind(kind: Any, path: _Path) -> Any:
    """The type of what belongs at ``path``."""
    for step in path:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[str(step)]
        else:
            kind = typing.get_args(kind)[1 if typing.get_origin(kind) is dict else 0]
    return _bare(kind)


def _bare(kind: Any) -> Any:
    """Without ``| None``: a settings file has no null."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _allowed(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        base, bounds = typing.get_args(kind)
        return f"{_allowed(base)}, {bounds.ge} or more"
    if origin is typing.Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    if origin is tuple:
        return "a list"
    return _WORDS.get(kind, "a table")


def _got(value: Any, text: str) -> str:
    """A value of the wrong type is not shown, only its type: it may be a key in the wrong place."""
    if "got" not in text:
        return repr(value)
    kinds: dict[Any, str] = {str: "text", dict: "a table", list: "a list"}
    return kinds.get(type(value)) or (str(value).lower() if isinstance(value, bool) else repr(value))


def _shown(path: _Path) -> str:
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[\w-]+", step, re.ASCII) else f'"{step}"'
            shown += f".{name}" if shown else name
    return shown
