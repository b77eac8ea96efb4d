"""Agents as Markdown files: settings between two ``---`` lines, the prompt below.

The settings are the part of YAML that settings need: ``key: value`` lines, tables by indentation, quoted or bare words, numbers,
``true`` and ``false``, text blocks after ``|`` and ``>``, comments. Everything else is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.errors import ConfigError

LARGEST = 200_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#\[\]{}&!|>%@`-][^:#]*?|[*?.~][^:#]*?)\s*:(?:\s+|$)"""
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True)
class AgentFile:
    """One file: ``settings`` as in ``[agents.name]`` of a settings file, the prompt among them."""

    name: str
    path: Path
    settings: dict[str, Any] = field(default_factory=dict)


def agent_files(folder: Path, inside: Path) -> Iterator[AgentFile]:
    """The agents of a folder's ``*.md`` files, by name. Raises ``ConfigError`` for one that cannot be used.

    A file that is a link to somewhere outside ``inside`` is refused: its text would be sent to the model server.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".md")
    except OSError:
        return
    for path in paths:
        yield _agent_file(path, inside)


def _agent_file(path: Path, inside: Path) -> AgentFile:
    if not path.resolve().is_relative_to(inside.resolve()):
        raise ConfigError(f"{path} is a link to {path.resolve()}, outside {inside}. Put the file itself there.")
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise ConfigError(f"{path} is no plain file of at most {LARGEST // 1000} KB. Remove it or make it shorter.")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text. Save it as UTF-8; nothing was run.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Make it readable or remove it.") from None
    head, body = _split(text, path)
    settings = front_matter(head, path)
    name = str(settings.pop("name", path.stem))
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{path}: {name!r} is no name for an agent. Use letters, digits, - and _.")
    if body.strip():
        settings["prompt"] = body.strip()
    return AgentFile(name, path, settings)


def _split(text: str, path: Path) -> tuple[list[str], str]:
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        raise ConfigError(
            f"{path} must begin with a line --- and its settings (description: …), closed by another ---."
        )
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return lines[1:number], "\n".join(lines[number + 1 :])
    raise ConfigError(f"{path}: the settings that begin with --- are never closed by another line ---.")


def front_matter(lines: list[str], path: Path) -> dict[str, Any]:
    """The settings that ``lines`` hold. ``path`` is for what is said about mistakes; line numbers count from the file's first."""
    reader = _Lines(lines, path)
    table = _table(reader, 0)
    if reader.more():
        raise reader.wrong("is indented like nothing above it")
    return table


class _Lines:
    """Lines that hold something, with a place in them."""

    def __init__(self, lines: list[str], path: Path) -> None:
        self.path = path
        self.lines = lines
        self.at = 0
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self.lines) and (
            not self.lines[self.at].strip() or self.lines[self.at].lstrip().startswith("#")
        ):
            self.at += 1

    def more(self) -> bool:
        return self.at < len(self.lines)

    @property
    def indent(self) -> int:
        line = self.lines[self.at]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise self.wrong("is indented with a tab; use spaces")
        return len(line) - len(line.lstrip(" "))

    def take(self) -> str:
        line = self.lines[self.at].strip()
        self.at += 1
        self._skip()
        return line

    def block(self, indent: int) -> Iterator[str]:
        """Lines deeper than ``indent`` as they are, empty ones too."""
        while self.more():
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            yield line
            self.at += 1
        self._skip()

    def wrong(self, what: str, line: int | None = None) -> ConfigError:
        number = self.at if line is None else line
        text = self.lines[min(number, len(self.lines) - 1)].strip()
        return ConfigError(f"{self.path}:{number + 2}: {text!r} {what}.")


def _table(reader: _Lines, indent: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    while reader.more() and reader.indent == indent:
        number = reader.at
        line = reader.lines[number].strip()
        found = _KEY.match(line)
        if found is None:
            raise reader.wrong("is no line of the form key: value")
        key = _text(found["key"])
        if key in table:
            raise reader.wrong("says again what was said before")
        table[key] = _value(reader, line[found.end() :], indent, number)
    return table


def _value(reader: _Lines, rest: str, indent: int, number: int) -> Any:
    bare = rest if rest.startswith(("'", '"')) else re.split(r"(?:^|\s)#", rest)[0].strip()
    if bare[:1] in ("|", ">") and len(bare) <= 2:
        reader.at += 1
        return _block(list(reader.block(indent)), folded=bare[0] == ">")
    reader.take()
    if not bare and reader.more() and reader.indent > indent:
        return _table(reader, reader.indent)
    if bare[:1] in ("[", "{", "&", "*", "!", "%", "@", "`") or bare.startswith("- "):
        raise reader.wrong("has a value of a kind that is not understood here; put text in quotes", number)
    return _scalar(bare, reader, number)


def _block(lines: list[str], folded: bool) -> str:
    filled = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    cut = [line[min(filled, default=0) :].rstrip() for line in lines]
    text = "\n".join(cut).strip("\n")
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text) if folded else text


def _scalar(text: str, reader: _Lines, number: int) -> Any:
    if text.startswith(('"', "'")):
        end = re.match(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(#.*)?$""", text)
        if end is None:
            raise reader.wrong("has a quote that is not closed", number)
        return _text(end[1])
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def _text(token: str) -> str:
    if token.startswith('"'):
        return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), token[1:-1])
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    return token.strip()
