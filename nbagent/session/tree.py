"""The files under a folder, looked at without following any link and without waiting for anything."""

# This file works on descriptors, which pathlib does not know.
# ruff: noqa: PTH102, PTH116, PTH118

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.errors import RootError, Stopped
from nbagent.ignore import MARKERS, VERSION_CONTROL, Paths, Rules, above, repository, tracked, weakest
from nbagent.session.vault import Entry, Kind, Listing, Seen

BY_HANDLE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PATIENT = _SAFE | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE

SETTLE = 2.0
"""A file written less than this many seconds before it was read may be written again without its times telling: the clocks of file
systems are coarse."""

UNSETTLED = (-1, 0, 0, 0)
DEEPEST = 100
LINK_BYTES = 1 << 16
RULES_BYTES = 1 << 20


class Folder:
    """An opened folder. Names in it are reached through the folder itself, so that nobody can put a link in the way.

    Where the platform has no such thing, by path, and a link in the way is looked for first. Raises ``OSError``.
    """

    __slots__ = ("descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def top(cls, path: Path) -> Folder:
        return cls(str(path), os.open(path, _FOLDER & ~_SAFE) if BY_HANDLE else -1)

    def child(self, name: str) -> Folder:
        path = os.path.join(self.path, name)
        if BY_HANDLE:
            return Folder(path, os.open(name, _FOLDER, dir_fd=self.descriptor))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return Folder(path, -1)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, name: str) -> tuple[str, dict[str, Any]]:
        """``name`` and the keyword that ``os`` functions want with it."""
        if BY_HANDLE:
            return name, {"dir_fd": self.descriptor}
        return os.path.join(self.path, name), {}

    def list(self) -> list[os.DirEntry[str]]:
        with os.scandir(self.descriptor if BY_HANDLE else self.path) as found:
            return sorted(found, key=lambda entry: entry.name)

    def stat(self, name: str) -> os.stat_result | None:
        """Of the thing itself, not of what a link points to; None when there is nothing."""
        where, at = self.at(name)
        try:
            return os.stat(where, follow_symlinks=False, **at)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def link(self, name: str) -> bytes:
        where, at = self.at(name)
        return os.fsencode(os.readlink(where, **at))

    def read(self, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
        """A regular file of at most ``limit`` bytes and its state; None when it is larger, changed meanwhile or is something else."""
        where, at = self.at(name)
        descriptor = os.open(where, os.O_RDONLY | _PATIENT, **at)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode) or before.st_size > limit:
                return None
            pieces: list[bytes] = []
            left = limit + 1
            while left > 0 and (piece := file.read(wanted := min(left, before.st_size + 1))):
                pieces.append(piece)
                left -= len(piece)
                if len(piece) < wanted:  # the end, or else the sizes below tell
                    break
            data = b"".join(pieces)
            after = os.fstat(descriptor)
        return (data, after) if len(data) == after.st_size and state_of(before) == state_of(after) else None


@contextmanager
def opened(root: Path, path: str, create: bool = False) -> Iterator[tuple[Folder | None, str]]:
    """The folder that ``path`` (relative to ``root``, or absolute and real) is in, and its name there; None when there is no such folder.

    ``create``: make the folders that are missing. Raises ``OSError`` when a link or a file stands where a folder should.
    """
    anchor = Path(path).anchor
    *steps, name = path[len(anchor) :].split("/")
    folder = Folder.top(Path(anchor) if anchor else root)
    try:
        for step in steps:
            if create and folder.stat(step) is None:
                where, at = folder.at(step)
                os.mkdir(where, **at)
            elif folder.stat(step) is None:
                yield None, name
                return
            with folder:
                below = folder.child(step)
            folder = below
        yield folder, name
    finally:
        folder.close()


def state_of(found: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file's content changes, and much else."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def by_state(found: os.stat_result, kind: Kind) -> Entry:
    """A file without a copy, known by its size and time."""
    return Entry(kind, stat.S_IMODE(found.st_mode), b"%d:%d" % (found.st_size, found.st_mtime_ns))


@dataclass(slots=True)
class Limits:
    """``file``: bytes of the largest file that is copied. ``room``: bytes of copies that may still be made. ``large``: bytes that files
    over ``small`` may take of it in one look. ``entries``: files and folders looked at. ``seconds``: after which what was not seen before
    is left out."""

    file: int
    room: int
    large: int
    entries: int
    seconds: float = 3600.0
    small: int = 256 * 1024


@dataclass(slots=True)
class Look:
    """One look at a whole tree.

    ``put`` keeps a content, if it may take that many bytes; its name and the bytes taken, or None. ``put_folder`` keeps a listing.
    ``seen``: files as they were at the last look. ``known``: what counts even if ignored. ``again``: a file that had no copy at the last
    look and did not change since has none now, so that the two looks agree. ``never``: paths that are not looked at, whatever is said.
    ``rest``: called before each folder, where the look stands aside for other work; the seconds that it did, which do not count.
    """

    put: Callable[[bytes, int], tuple[bytes, int] | None]
    put_folder: Callable[[Listing], bytes]
    seen: dict[str, Seen]
    limits: Limits
    known: Callable[[], Paths]
    again: bool
    stop: threading.Event
    rest: Callable[[threading.Event], float]
    settle: float = SETTLE
    never: frozenset[str] = frozenset()
    lead: str = ""
    fresh: dict[str, Seen] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int = 0
    left_out: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    device: int = 0
    work_tree: Path | None = None
    repository_base: str = ""
    _tracked: dict[Path, Paths] = field(default_factory=dict)
    _known: Paths | None = None

    def whole(self, root: Path) -> bytes:
        """Look at everything below ``root``; the name of its listing. Raises ``RootError``."""
        try:
            return self._whole(root)
        except OSError as error:
            raise RootError(f"The project root {root} cannot be read: {error.strerror or error}.") from error

    def _whole(self, root: Path) -> bytes:
        top = repository(root)
        self.work_tree = top
        if top is None:
            rules = weakest(None)
        else:
            rules = above(top, root)
            self.lead = "" if top == root else root.relative_to(top).as_posix() + "/"
        self.device = root.stat().st_dev
        with Folder.top(root) as folder:
            listing = self._folder(folder, "", rules, False, 0) or self.put_folder([])
        if self.left_out:
            more = f" and {len(self.left_out) - 1:,} more" if len(self.left_out) > 1 else ""
            self.notes.insert(
                0,
                f"{shown(self.left_out[0])}{more} not looked at: looking at the files took longer than {self.limits.seconds:.0f} s. "
                "What a command changes there is neither told nor undone; a smaller root is looked at whole",
            )
        return listing

    def _is_late(self) -> bool:
        return time.monotonic() - self.began > self.limits.seconds

    def _folder(self, folder: Folder, prefix: str, rules: Rules, ignored: bool, depth: int) -> bytes | None:
        """The name of the listing of one folder; None when a program made it. ``ignored``: only what is known counts."""
        self.began += self.rest(self.stop)
        if self.stop.is_set():
            raise Stopped("The look at the files was stopped.")
        entries = folder.list()
        names = {entry.name for entry in entries}
        if prefix and ".git" in names:
            return self._nested(folder, prefix, entries, ignored, depth)
        if prefix and not MARKERS.isdisjoint(names) and not ignored:
            if not self._is_known(prefix[:-1]):
                return None
            ignored = True
        return self._listing(folder, prefix, self._rules_here(folder, prefix, rules, names), entries, ignored, depth)

    def _nested(
        self, folder: Folder, prefix: str, entries: list[os.DirEntry[str]], ignored: bool, depth: int
    ) -> bytes | None:
        """A repository inside: its own rules and its own tracked files."""
        outer = self.work_tree, self.repository_base
        self.work_tree, self.repository_base = Path(folder.path), self.lead + prefix
        try:
            rules = weakest(self.work_tree, self.lead + prefix)
            names = {entry.name for entry in entries}
            return self._listing(
                folder, prefix, self._rules_here(folder, prefix, rules, names), entries, ignored, depth
            )
        finally:
            self.work_tree, self.repository_base = outer

    def _rules_here(self, folder: Folder, prefix: str, rules: Rules, names: set[str]) -> Rules:
        if ".gitignore" not in names:
            return rules
        try:
            read = folder.read(".gitignore", RULES_BYTES)
        except OSError:
            return rules
        return rules.below(self.lead + prefix, read[0].decode("utf-8", "surrogateescape")) if read else rules

    def _is_known(self, path: str) -> bool:
        """Whether a path counts although it is ignored: git tracks it, or the snapshot to compare with has it."""
        if self._known is None:
            self._known = self.known()
        if path in self._known:
            return True
        if self.work_tree is None:
            return False
        if self.work_tree not in self._tracked:
            self._tracked[self.work_tree] = tracked(self.work_tree)
        return (self.lead + path)[len(self.repository_base) :] in self._tracked[self.work_tree]

    def _listing(
        self, folder: Folder, prefix: str, rules: Rules, entries: list[os.DirEntry[str]], ignored: bool, depth: int
    ) -> bytes:
        listing: Listing = []
        for each in entries:
            entry = self._entry(folder, each, prefix, rules, ignored, depth)
            if entry is not None:
                listing.append((os.fsencode(each.name), entry))
        return self.put_folder(listing)

    def _entry(
        self, folder: Folder, each: os.DirEntry[str], prefix: str, rules: Rules, ignored: bool, depth: int
    ) -> Entry | None:
        try:
            found = each.stat(follow_symlinks=False)
        except OSError:
            return None
        name = each.name
        path = prefix + name
        mode = found.st_mode
        is_folder = stat.S_ISDIR(mode)
        never = name in VERSION_CONTROL or path in self.never
        out = never or ignored or rules.ignored(self.lead + path, name, is_folder)
        if out and (never or not self._is_known(path)):
            return Entry("i", 0, b"")
        if (is_folder or path not in self.seen) and self._is_late():
            self.left_out.append(f"{path}/" if is_folder else path)
            return Entry("i", 0, b"")
        self.count += 1
        if stat.S_ISREG(mode):
            return self.file(folder, name, path, found)
        if is_folder:
            return self._below(folder, name, path, found, rules, out, depth)
        if stat.S_ISLNK(mode):
            return self.link(folder, name)
        return None

    def _below(
        self, folder: Folder, name: str, path: str, found: os.stat_result, rules: Rules, ignored: bool, depth: int
    ) -> Entry | None:
        if self.count > self.limits.entries or depth >= DEEPEST or found.st_dev != self.device:
            why = "is another file system" if found.st_dev != self.device else "would be more than is looked at"
            self.notes.append(f"{shown(path)}/ is not looked into: it {why}")
            return Entry("i", 0, b"")
        try:
            with folder.child(name) as below:
                ident = self._folder(below, path + "/", rules, ignored, depth + 1)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            self.notes.append(f"{shown(path)}/ cannot be read")
            return Entry("i", 0, b"")
        return Entry("i", 0, b"") if ident is None else Entry("d", stat.S_IMODE(found.st_mode), ident)

    def link(self, folder: Folder, name: str) -> Entry | None:
        try:
            kept = self.put(folder.link(name), LINK_BYTES)
        except OSError:
            return None
        return None if kept is None else Entry("l", 0, kept[0])

    def file(self, folder: Folder, name: str, path: str, found: os.stat_result) -> Entry | None:
        """A regular file: as it was seen, or read and copied."""
        state = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        seen = self.seen.get(path)
        if seen is not None and seen.state == state and (seen.kind == "f" or self.again):
            self.fresh[path] = seen
            return Entry(seen.kind, stat.S_IMODE(found.st_mode), seen.ident)
        entry, after = self._copy(folder, name, found, seen is not None and seen.kind == "f")
        if entry is not None:
            settled = max(after.st_mtime_ns, after.st_ctime_ns) + self.settle * 1e9 < time.time_ns()
            self.fresh[path] = Seen(
                state_of(after) if settled or entry.kind != "f" else UNSETTLED, entry.kind, entry.ident
            )
            self.changed.append(path)
        return entry

    def _copy(
        self, folder: Folder, name: str, found: os.stat_result, was_kept: bool
    ) -> tuple[Entry | None, os.stat_result]:
        """What is made of a file that is not as it was seen. ``was_kept``: its content may well be among the copies already."""
        for _ in range(3):
            large = found.st_size > self.limits.small
            room = min(self.limits.room, self.limits.large) if large else self.limits.room
            if found.st_size > self.limits.file:
                return by_state(found, "b"), found
            if room <= 0 and not was_kept:
                return by_state(found, "n"), found
            try:
                read = folder.read(name, self.limits.file)
            except FileNotFoundError:
                return None, found
            except OSError:
                return by_state(found, "u"), found
            if read is not None:
                return self._kept(*read, room, large), read[1]
            now = folder.stat(name)
            if now is None or not stat.S_ISREG(now.st_mode):
                return None, found
            found = now
        return by_state(found, "m"), found

    def _kept(self, data: bytes, found: os.stat_result, room: int, large: bool) -> Entry:
        kept = self.put(data, room)
        if kept is None:
            return by_state(found, "n")
        ident, taken = kept
        self.limits.room -= taken
        self.limits.large -= taken if large else 0
        return Entry("f", stat.S_IMODE(found.st_mode), ident)


def shown(path: str) -> str:
    """A path fit to be shown: what is not UTF-8 and what would move the cursor is written as an escape."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
