"""Tab completion in the cells of the magics: options, models, plans, sessions, commands, ``@paths`` and ``@variables``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from nbagent.notebook.commands import COMMANDS
from nbagent.notebook.options import BUILD, PLAN, Option

LIMIT = 200
_FIRST = re.compile(r"^(?:\s*(?:#[^\n]*)?\n)*\s*(%%?)(nb)?(plan|build|agent)\b")

Names = Callable[[str], Iterable[str]]


def complete(
    text: str, cursor: int, variables: Mapping[str, Any], root: Path, values: Mapping[str, Names]
) -> tuple[str, list[str]] | None:
    """(the piece before the cursor, what it may become), or None when this cell is not ours.

    ``values``: names for ``models``, ``plans`` and ``sessions``, given the piece.
    """
    start = _FIRST.match(text)
    line_start = text.rfind("\n", 0, cursor) + 1
    line = text[line_start:cursor]
    if start is None or cursor < start.end():
        own = re.match(r"\s*%(nb)?(plan|build|agent)\b", line)
        if own is None:
            return None
        start, line_start = own, line_start
        magic, first = own[2], True
    else:
        magic, first = start[3], "\n" not in text[start.end() : cursor]
    piece = re.split(r"\s", line)[-1]
    if piece.startswith("@"):
        return piece, ["@" + name for name in mentions(piece[1:], variables, root)]
    if not first:
        return (piece, []) if start.re is _FIRST and text[start.start(1) : start.end(1)] == "%%" else None
    words = line.split()
    if magic == "agent":
        return piece, _agent(words, piece, values)
    return piece, _options(PLAN if magic == "plan" else BUILD, words, piece, root, values)


def _options(
    options: tuple[Option, ...], words: list[str], piece: str, root: Path, values: Mapping[str, Names]
) -> list[str]:
    before = words[-1] if not piece and words else words[-2] if len(words) > 1 else ""
    chosen = next((option for option in options if before in (option.name, option.short) and option.value), None)
    if chosen is None:
        return (
            [option.name for option in options if option.name.startswith(piece)]
            if piece.startswith("-") or not piece
            else []
        )
    if chosen.name == "--model":
        return sorted(name for name in values["models"](piece) if name.startswith(piece))
    if chosen.name == "--plan":
        return sorted({*(name for name in values["plans"](piece) if name.startswith(piece)), *paths(piece, root)})
    return list(paths(piece, root)) if chosen.value in ("FILE", "DIR") else []


def _agent(words: list[str], piece: str, values: Mapping[str, Names]) -> list[str]:
    given = [word for word in words[1:] if word != piece]
    if not given:
        return [name for name in COMMANDS if name.startswith(piece)]
    if given[0] in ("resume", "export") and not piece.startswith("-"):
        return sorted(name for name in values["sessions"](piece) if name.startswith(piece))
    if given[0] == "plans" and len(given) > 1:
        return sorted(name for name in values["plans"](piece) if name.startswith(piece))
    if given[0] == "model":
        return sorted(name for name in values["models"](piece) if name.startswith(piece))
    command = COMMANDS.get(given[0])
    return [choice for choice in command.choices if choice.startswith(piece)] if command is not None else []


def mentions(piece: str, variables: Mapping[str, Any], root: Path) -> list[str]:
    """Variables and paths that begin with ``piece``."""
    names = (
        [name for name in variables if name.startswith(piece) and not name.startswith("_")] if "/" not in piece else []
    )
    return [*sorted(names)[:LIMIT], *paths(piece, root)]


def paths(piece: str, root: Path) -> list[str]:
    """Paths inside the root that begin with ``piece``; folders end with ``/``. Hidden ones only when asked for."""
    folder, _, name = piece.rpartition("/")
    base = root / folder
    try:
        if not base.resolve().is_relative_to(root.resolve()):
            return []
        entries = sorted(base.iterdir(), key=lambda path: path.name)
    except OSError:
        return []
    shown = [entry for entry in entries if entry.name.startswith(name) and (name or not entry.name.startswith("."))]
    head = f"{folder}/" if folder else ""
    return [head + entry.name + ("/" if entry.is_dir() else "") for entry in shown[:LIMIT]]
