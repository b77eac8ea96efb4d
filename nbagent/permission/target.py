"""Files that a command line writes and reads, collected as it is walked over."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from nbagent.permission.known import base_name
from nbagent.permission.place import Finder, is_stream
from nbagent.permission.state import FOLDERS, State
from nbagent.permission.word import Field
from nbagent.root import Place, Root


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command made plain. ``text``: what rules are matched against. ``others``: spellings that are decided too
    (``sudo rm x`` beside ``rm x``). ``aliases``: spellings for which only a deny counts. ``exact``: ``text`` cannot also be read
    as another command. ``looks``: proven to change nothing. ``below``: what else a loop makes of it."""

    text: str
    words: tuple[str, ...]
    others: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    exact: bool = True
    looks: bool = False
    below: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A file that a command writes or reads. ``place`` None: which one cannot be told. ``below``: what is in it, when the
    command goes into folders. ``text``: as the line says it."""

    text: str
    place: Place | None = None
    below: tuple[str, ...] = ()


class Targets:
    """Collects what is written and read, and turns words into places."""

    def __init__(self, root: Root, cwd: Path, home: Path, environment: Mapping[str, str], temp: Path | None) -> None:
        self._root = root
        self._home = home
        self._environment = environment
        self._temp = temp
        self._finder = Finder(root)
        self._only = ""
        self._source = b""
        self._depth = 0
        self._start = State((cwd,))
        self._fault = ""
        self.commands: list[Simple] = []
        self.writes: list[Target] = []
        self.reads: list[Target] = []
        self.opaque: list[str] = []
        self.hidden: list[str] = []
        self.unknown: list[str] = []
        self.notes: list[str] = []
        self.notebooks: list[str] = []
        self.repositories: list[Path | None] = []

    def _lookup(self, name: str, state: State) -> tuple[str, ...] | None:
        if state.lost or "IFS" in state.values:
            return None
        if name.startswith("~"):
            return self._tilde(name[1:], state)
        if name in state.values:
            return state.values[name]
        if name == "HOME":
            return (str(self._home),)
        if name == "PWD":
            return tuple(map(str, state.folders)) if state.folders is not None and len(state.folders) == 1 else None
        value = self._environment.get(name)
        return None if value is None or name in ("OLDPWD", "RANDOM", "SECONDS", "LINENO", "_") else (value,)

    def _tilde(self, name: str, state: State) -> tuple[str, ...] | None:
        if name == "":
            return self._lookup("HOME", state)
        if name == "+" and not state.posix:
            return self._lookup("PWD", state)
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            return None
        return (os.path.expanduser(f"~{name}"),)  # noqa: PTH111 - an unknown name stays as it is

    def _stand(self, target: Field, state: State) -> State:
        """Go to a folder. One that is there is surely entered; for one that is not, both before and after are possible."""
        places = (
            None if target.text == "-" or (target.pattern and state.odd) else self._finder.places(target, state.folders)
        )
        if places is None or (target.pattern and len(places) != 1):
            state.folders = None
            return state
        moved = tuple(place.real for place in places)
        if not all(folder.is_dir() for folder in moved):
            state.fallback = state.folders
        state.folders = moved if len(moved) <= FOLDERS else None
        return state

    def _operand_write(self, word: Field, state: State, tree: bool) -> None:
        if word.text != "-" and word.text and not word.pipe:
            self._write(word, state, tree, links=True)

    def _write(self, word: Field, state: State, tree: bool, links: bool = False) -> bool:
        """Note a file that is written; False when it is a stream, or a place of the command's own.

        A redirect writes where a link leads; of a command's operand (``links``) the link itself may go (rm, mv), so both are asked about.
        """
        if word.pipe or (word.known and is_stream(word.text)):
            return False
        places = None if word.pattern and state.odd else self._finder.places(word, state.folders, links)
        if places is None:
            self.writes.append(Target(word.text))
            return True
        wrote = False
        for place in places:
            if is_stream(str(place.real)) or self._is_own(place.real):
                continue
            wrote = True
            below = self._below(place) if tree and place.real.is_dir() and not place.real.is_symlink() else ()
            self.writes.append(Target(word.text, place, below or ()))
            if below is None:
                self.writes.append(Target(f"{word.text}/*"))
            if place.pattern.endswith(".ipynb"):
                self.notes.append(f"Writes {place.pattern} directly: this bypasses the notebook editor.")
        return wrote

    def _below(self, place: Place) -> tuple[str, ...] | None:
        found = self._finder.below(place)
        if found is None or not self._only:
            return found
        return tuple(each for each in found if fnmatchcase(base_name(each), self._only))

    def _is_own(self, real: Path) -> bool:
        return self._temp is not None and real.is_relative_to(self._temp)

    def _read(self, word: Field, state: State, tree: bool, sure: bool = False) -> None:
        """Note a file that may be read. ``sure``: the word is a path, whatever it looks like."""
        if word.pipe or not word.text or word.text == "-":
            return
        if not word.known:
            self.reads.append(Target(word.text))
            return
        for text in _candidates(word.text):
            path = replace(word, text=text) if text != word.text else word
            if path is not word:
                path = replace(path, pattern="")
            if is_stream(text) or not (
                _looks_like_path(text) or path.pattern or self._finder.exists(text, state.folders)
            ):
                continue
            places = None if path.pattern and state.odd else self._finder.places(path, state.folders)
            if places is None:
                if _looks_like_path(text) or path.pattern:
                    self.reads.append(Target(text))
                continue
            for place in places:
                if self._is_own(place.real) or is_stream(str(place.real)):
                    continue
                below = self._below(place) if tree and place.real.is_dir() else ()
                self.reads.append(Target(text, place, below or ()))
                if below is None:
                    self.reads.append(Target(f"{text}/*"))


def _candidates(text: str) -> list[str]:
    """The paths that one argument may hold: itself, what follows ``=`` or ``@``, the parts of ``a:b`` when one is absolute."""
    if text.startswith("file://"):
        return [text.removeprefix("file://").removeprefix("localhost")]
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) or "\n" in text or len(text) > 1000:
        return []
    found = [text]
    if "=" in text and not text.startswith(("/", ".", "~")):
        found.append(text.partition("=")[2])
    if text.startswith("@"):
        found.append(text[1:])
    if ":" in text and not text.startswith(("/", ".")):
        found += [part for part in text.split(":") if part.startswith(("/", "~"))]
    elif ":/" in text:
        found += text.split(":")
    return [each for each in found if each]


def _looks_like_path(text: str) -> bool:
    if re.search(r"\s", text) and not text.startswith(("/", "~/", "./", "../")):
        return False
    return text.startswith((".", "/", "~")) or "/" in text or re.search(r"\.\w+$", text) is not None
