"""Skills: folders with a ``SKILL.md``. Only names and descriptions are in the prompt; ``skill`` reads one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FOLDERS = (".nbagent/skills", ".claude/skills")
NAME = "SKILL.md"
HEAD = 8_000


def find_skills(root: Path, personal: Path | None) -> dict[str, tuple[str, Path]]:
    """name → (description, folder); a project's skill comes before the person's of the same name. ``personal``: the folder
    of the person's own, None where they do not count."""
    found: dict[str, tuple[str, Path]] = {}
    own = [personal / "skills"] if personal is not None else []
    for folder in [*(root / each for each in FOLDERS), *own]:
        for name, description, place in _in(folder):
            found.setdefault(name, (description, place))
    return found


def _in(folder: Path) -> Iterator[tuple[str, str, Path]]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        text = _head(entry / NAME) if (entry / NAME).is_file() else None  # a pipe would never end
        if text is None:
            continue
        fields = front_matter(text)
        name = fields.get("name") or entry.name
        yield name, fields.get("description", "")[:300], entry


def _head(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(HEAD)
    except OSError:
        return None


def front_matter(text: str) -> dict[str, str]:
    """The texts between two ``---`` at the beginning, by lower-case key; {} where there are none.

    Lines that are indented go on with the text before them, after ``>`` or ``|`` or without. What is written otherwise is passed over: a
    skill is not lost for a colon too many.
    """
    lines = text.lstrip("\ufeff").splitlines()
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if not lines or lines[0].strip() != "---" or end is None:
        return {}
    found: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:end]:
        if line[:1].isspace():
            found.get(key, []).append(line.strip())
            continue
        key, colon, value = line.partition(":")
        key = key.strip().lower() if colon else ""
        if key:
            found[key] = [value.strip()]
    return {key: _text(pieces) for key, pieces in found.items()}


def _text(pieces: list[str]) -> str:
    if re.fullmatch(r"[>|][+-]?", pieces[0]):
        pieces = pieces[1:]
    text = " ".join(" ".join(pieces).split())
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1].replace('\\"', '"')
    return text
