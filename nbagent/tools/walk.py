"""The files and folders below a folder, without what git ignores, without version control's own, and with no link followed."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbagent.ignore import MAX_RULES_BYTES, VERSION_CONTROL, Rules, above, repository, weakest
from nbagent.permission.wildcard import FOLD


@dataclass(frozen=True, slots=True)
class Entry:
    """``path``: relative to the folder that the walk began at, with ``/``. ``kind``: ``file``, ``folder``, ``link`` or ``other``."""

    path: str
    name: str
    kind: str
    rules: Rules = Rules()


def ignore_top(folder: Path, top: Path) -> Path:
    """Where ignore files begin to count: the top of the repository, else ``top`` when it is above, else the folder itself."""
    return repository(folder) or (top if folder.is_relative_to(top) else folder)


class Walk:
    """A walk below ``folder``. ``top``: see ``ignore_top``."""

    def __init__(self, folder: Path, top: Path, stop: threading.Event | None = None) -> None:
        self.folder = folder
        self._root = str(folder)
        self.stop = stop or threading.Event()
        start = ignore_top(folder, top)
        inside = folder.relative_to(start).as_posix()
        self._base = "" if inside == "." else f"{inside}/"
        self.start = Entry("", folder.name, "folder", self._own(above(start, folder), ""))
        self._folders: dict[str, Entry | None] = {"": self.start}

    def entries(self, within: Entry, wanted: Collection[str] | None = None) -> list[Entry]:
        """What one folder holds, by name. A folder that cannot be read is empty. ``wanted``: see ``files``."""
        prefix = f"{within.path}/" if within.path else ""
        found: list[Entry] = []
        try:
            with os.scandir(f"{self._root}/{within.path}") as scan:
                for each in scan if wanted is None else _chosen(scan, prefix, wanted):
                    path = prefix + each.name
                    kind = _kind(each)
                    if each.name in VERSION_CONTROL or within.rules.ignored(
                        self._base + path, each.name, kind == "folder"
                    ):
                        continue
                    found.append(Entry(path, each.name, kind, within.rules))
        except OSError:
            pass
        return sorted(found, key=lambda entry: entry.name)

    def enter(self, folder: Entry) -> Entry:
        """A folder among ``entries`` made ready to be listed itself. A repository of its own starts afresh."""
        rules = folder.rules
        if os.path.lexists(f"{self._root}/{folder.path}/.git"):
            rules = weakest(self.folder / folder.path, f"{self._base}{folder.path}/")
        return Entry(folder.path, folder.name, folder.kind, self._own(rules, folder.path))

    def _own(self, rules: Rules, path: str) -> Rules:
        """With the ignore file that stands in the folder itself."""
        base = self._base + (f"{path}/" if path else "")
        text = _text(f"{self._root}/{path}/.gitignore")
        return rules.below(base, text) if text else rules

    def keeps(self, path: str) -> bool:
        """Whether a file at ``path`` would be met by the walk."""
        parent, _, name = path.rpartition("/")
        within = self._known(parent)
        return within is not None and not within.rules.ignored(self._base + path, name, False)

    def _known(self, path: str) -> Entry | None:
        """The folder at ``path`` made ready; None when the walk would not enter it."""
        if path not in self._folders:
            parent, _, name = path.rpartition("/")
            within = self._known(parent)
            out = within is None or within.rules.ignored(self._base + path, name, True)
            self._folders[path] = (
                None if out or within is None else self.enter(Entry(path, name, "folder", within.rules))
            )
        return self._folders[path]

    def files(self, wanted: Collection[str] | None = None) -> Iterator[str]:
        """Paths of all regular files, or of those whose path has one of the texts ``wanted`` in it (in small letters where the disk
        tells no difference): the others cost next to nothing."""
        pending = [self.start]
        while pending and not self.stop.is_set():
            within = pending.pop()
            for entry in self.entries(within, wanted):
                if entry.kind == "file":
                    yield entry.path
                elif entry.kind == "folder":
                    pending.append(self.enter(entry))


def _chosen(scan: Iterable[os.DirEntry[str]], prefix: str, wanted: Collection[str]) -> list[os.DirEntry[str]]:
    """The folders, and what has one of ``wanted`` in its path. Most folders hold nothing of it, which one look at all names tells."""
    found = list(scan)

    def wants(text: str) -> bool:
        folded = text.casefold() if FOLD else text
        return any(each in folded for each in wanted)

    if not wants(prefix + f"\n{prefix}".join([each.name for each in found])):
        return [each for each in found if each.is_dir(follow_symlinks=False)]
    return [each for each in found if each.is_dir(follow_symlinks=False) or wants(prefix + each.name)]


def _text(path: str) -> str:
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - asked in every folder; a Path costs five times as much
            return ""
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(MAX_RULES_BYTES).decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    except OSError:
        return ""


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
