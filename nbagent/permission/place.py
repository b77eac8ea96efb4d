"""The files that words of a command line name: wildcards expanded, folders looked into, within a budget."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from nbagent.errors import ToolError
from nbagent.permission.word import Field
from nbagent.root import Place, Root

LOOKS = 20_000
"""Directory entries that one line may make us look at."""
FILES = 5_000
"""Files below a folder that are named one by one."""

_STREAM = re.compile(r"/dev/(null|zero|full|u?random|tty|std(in|out|err)|fd/\d+)|/proc/self/fd/\d+")

_OWN = re.compile(
    r"/+proc/+(?:(self/+cwd|thread-self/+cwd)(?=/|$)|(?:self|thread-self|\d+)/+(?:cwd|fd|task|map_files|ns)(?=/|$))"
)


def is_stream(path: str) -> bool:
    """Whether a path is no file but a stream: writing there changes nothing."""
    return _STREAM.fullmatch(path) is not None


class Finder:
    """Finds places for the words of one line. ``folders`` of a call: where the command may stand, None: not known."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._budget = LOOKS

    def places(self, word: Field, folders: tuple[Path, ...] | None, links: bool = False) -> list[Place] | None:
        """The places that a word names; None when that cannot be told. ``links``: a link's own name is one of them, beside
        the place that it leads to."""
        if not word.known or (folders is None and not word.text.startswith("/")):
            return None
        if own := _OWN.match(word.text):
            # Of the command's process, which is not this one.
            if own[1] is None or folders is None:
                return None
            rest = word.text[own.end() :].lstrip("/")
            word = replace(word, text=f"./{rest}", pattern=f"./{rest}" if word.pattern else "")
        found: list[Place] = []
        for folder in (Path("/"),) if word.text.startswith("/") else folders or ():
            names = [word.text]
            if word.pattern:
                expanded = self._expand(word.pattern, folder)
                if expanded is None:
                    return None
                names = expanded or names
            try:
                for name in names:
                    spelled = f"./{name}" if name.startswith("~") else name
                    found.append(place := self._root.locate(spelled, folder))
                    if links and place.linked and (link := self._root.locate_link(spelled, folder)):
                        found.append(link)
            except ToolError:
                return None
        return list(dict.fromkeys(found))

    def names(self, word: Field, folders: tuple[Path, ...] | None) -> list[str] | None:
        """What a word with wildcards becomes, as the shell spells it; None when that cannot be told."""
        if folders is None or len(folders) != 1 or not word.known:
            return None
        expanded = self._expand(word.pattern, Path("/") if word.text.startswith("/") else folders[0])
        return None if expanded is None else expanded or [word.text]

    def exists(self, text: str, folders: tuple[Path, ...] | None) -> bool:
        """Whether something has this name in one of the folders."""
        if not text or "\0" in text or len(text) > 4096:
            return False
        try:
            return any((folder / text).exists() or (folder / text).is_symlink() for folder in folders or ())
        except (OSError, ValueError):
            return False

    def below(self, place: Place) -> tuple[str, ...] | None:
        """Patterns of all that is below a folder; None when it is too much to look at."""
        found: list[str] = []
        pending = [(str(place.real), "" if place.pattern == "." else f"{place.pattern.rstrip('/')}/")]
        while pending:
            folder, prefix = pending.pop()
            for entry in self._entries(folder):
                found.append(prefix + entry.name)
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, f"{prefix}{entry.name}/"))
                if len(found) > FILES or self._budget <= 0:
                    return None
        return tuple(found)

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._budget -= 1
                    yield entry
                    if self._budget <= 0:
                        return
        except OSError:
            return

    def _expand(self, pattern: str, folder: Path) -> list[str] | None:
        """What the shell makes of a word with wildcards in a folder: existing names, or None when that cannot be told."""
        if "[:" in pattern or "[." in pattern or "[=" in pattern:
            return None
        parts = [part for part in pattern.split("/") if part]
        found = [""]
        for part in parts:
            part = part.replace("[^", "[!")
            following: list[str] = []
            for prefix in found:
                following += self._step(folder, prefix, part)
                if self._budget <= 0 or len(following) > 500:
                    return None
            found = following
        lead = "/" if pattern.startswith("/") else ""
        return [lead + name for name in found]

    def _step(self, folder: Path, prefix: str, part: str) -> list[str]:
        join = f"{prefix}/" if prefix else ""
        if not set("*?[") & set(part) or part in (".", ".."):
            return [join + part] if os.path.lexists(folder / (join + part)) else []
        names = [entry.name for entry in self._entries(str(folder / prefix))]
        names += [".", ".."] if part.startswith(".") else []
        return [join + name for name in names if fnmatchcase(name, part) and (part[0] == "." or name[0] != ".")]
