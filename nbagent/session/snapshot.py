"""The files of a project before and after a cell: what changed, and how to put it back.

Copies are kept in nbagent's own data folder, by content (see ``vault``), whether or not the project is under version control: no git is
run, so nothing that a repository's settings name is executed, and nothing of the repository is touched. What git ignores is left out,
but for files that a tool says it is about to touch (``note``).
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from nbagent.clock import Clock, SystemClock
from nbagent.errors import Stopped, StoreError
from nbagent.ignore import Paths
from nbagent.session.receipt import IGNORED, Changes, differences, files_below, lookup, receipt, row
from nbagent.session.tree import SETTLE, Limits, Look, by_state, opened
from nbagent.session.undo import Step, UndoResult, carry_out
from nbagent.session.vault import NO_COPY, Entry, Seen, Vault

MAX_FILE = 20 * 1024 * 1024
MAX_TOTAL = 1024 * 1024 * 1024
MAX_LARGE = 256 * 1024 * 1024
MAX_ENTRIES = 200_000
MAX_SECONDS = 30.0
NEARLY_FULL = 0.8
KEPT_WHEN_FULL = 10
MAX_NOTES = 20
MAX_REST = 5.0
"""Seconds that one look stands aside in all: other processes may wait to write to the copies meanwhile."""

T = TypeVar("T")


class Precedence:
    """Who goes first: a look at the files stands aside while something else is at work, unless somebody waits for it."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._lock = threading.Lock()
        self._working = self._waiting = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Something that a look would slow down is done inside."""
        self._count(1, 0)
        try:
            yield
        finally:
            self._count(-1, 0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody waits for a look inside."""
        self._count(0, 1)
        try:
            yield
        finally:
            self._count(0, -1)

    def _count(self, working: int, waiting: int) -> None:
        with self._lock:
            self._working += working
            self._waiting += waiting
            if self._working and not self._waiting:
                self._free.clear()
            else:
                self._free.set()

    def rest(self, most: float) -> Callable[[threading.Event], float]:
        """What a look calls between two folders: returns once it may go on, is to stop, or has stood aside for ``most`` seconds in all;
        the seconds that this took."""
        left = most

        def rest(stop: threading.Event) -> float:
            nonlocal left
            begun = left
            while left > 0 and not self._free.is_set() and not stop.is_set():
                began = time.monotonic()
                self._free.wait(0.05)
                left -= time.monotonic() - began
            return begun - left

        return rest


class Snapshots:
    """Snapshots of the tree at ``root`` (resolved), kept in ``folder``, which is nbagent's own.

    Blocking work is done on a thread, one piece at a time.

    ``max_file``: bytes of the largest file that is copied. ``max_total``: bytes that all copies of this root may take.
    ``max_entries``: files and folders looked at. ``max_seconds``: that one look may take.
    ``settle``: seconds after which a file's times are trusted to tell of a write.
    ``never``: paths that are no part of the project although they are in it, such as nbagent's own data. ``precedence``: for what a look
    would slow down, and for who waits for one.
    Raises ``StoreError`` where copies cannot be kept, ``SessionError`` for a snapshot that is not kept any more.
    """

    def __init__(
        self,
        root: Path,
        folder: Path,
        *,
        max_file: int = MAX_FILE,
        max_total: int = MAX_TOTAL,
        max_entries: int = MAX_ENTRIES,
        max_seconds: float = MAX_SECONDS,
        settle: float = SETTLE,
        never: Sequence[Path] = (),
        clock: Clock | None = None,
    ) -> None:
        self.root = root
        self.max_file = max_file
        self.max_total = max_total
        self.max_entries = max_entries
        self.max_seconds = max_seconds
        self.settle = settle
        self.never = frozenset(self.name_of(path) for path in (folder, *never))
        self.precedence = Precedence()
        self._clock = clock or SystemClock()
        name = hashlib.blake2b(os.fsencode(root), digest_size=10).hexdigest()
        self.folder = folder
        self._vault = Vault(folder / f"{name}.sqlite")
        self._lock = threading.Lock()
        self._seen: dict[str, Seen] = {}
        self._sweeps = -1
        self._last = ""

    async def take(self, since: str | None = None) -> str:
        """Look at all files and keep copies of those not seen before; the new snapshot's id.

        ``since``: the snapshot that this one is going to be compared with; what it has is looked at even if it is ignored by now.
        """
        return await self._away(lambda stop: self._take(since, stop))

    async def note(self, path: Path, snapshot: str | None = None) -> None:
        """A tool is about to change ``path`` (absolute, real): keep it as it is, also where snapshots do not look.

        It goes with ``snapshot``, the one taken before the work began (None: the last one taken). Without one nothing is kept.
        """
        await self._away(lambda stop: self._note(path, snapshot or self._last))

    async def compare(self, before: str, after: str, *, leave_out: Sequence[str] = ()) -> Changes:
        """What changed. ``leave_out``: patterns (``*`` crosses ``/``) of paths that are told elsewhere."""
        return await self._away(lambda stop: self._compare(before, after, leave_out))

    async def undo(self, before: str, after: str, *, leave_out: Sequence[str] = ()) -> UndoResult:
        """Put every file that changed between the two back as it was in ``before``, unless it changed since ``after``."""
        return await self._away(lambda stop: self._restore(after, before, leave_out))

    async def redo(self, before: str, after: str, *, leave_out: Sequence[str] = ()) -> UndoResult:
        """Make every file that changed between the two what it was in ``after`` again, unless it is not as in ``before``."""
        return await self._away(lambda stop: self._restore(before, after, leave_out))

    async def prune(self, before: float) -> int:
        """Forget what was taken before ``before`` (seconds since the epoch), of every root whose copies are in the same folder, and the
        copies that only this needed; how many snapshots.
        """
        return await self._away(lambda stop: self._prune(before))

    async def size(self) -> int:
        """Bytes on disk that the copies in the folder take, those of other roots too."""
        return await self._away(lambda stop: sum(_bytes(path) for path in self.folder.glob("*.sqlite")))

    async def close(self) -> None:
        await self._away(lambda stop: self._vault.close())

    async def _away(self, work: Callable[[threading.Event], T]) -> T:
        """On a thread. When the waiting task is cancelled the work is told, and ends without a trace."""
        stop = threading.Event()

        def locked() -> T:
            with self._lock:
                if stop.is_set():
                    raise Stopped("stopped before it began")
                return work(stop)

        try:
            return await asyncio.to_thread(locked)
        except asyncio.CancelledError:
            stop.set()
            raise

    # ── taking ──

    def _take(self, since: str | None, stop: threading.Event) -> str:
        try:
            return self._taken(since, stop)
        except BaseException:
            self._sweeps = -1  # what is remembered may be of what was rolled back
            raise

    def _taken(self, since: str | None, stop: threading.Event) -> str:
        with self._vault.writing() as db:
            self._remember(db)
            self._make_room(db)
            look = self._look(db, since, stop)
            listing = look.whole(self.root)
            snapshot = self._clock.new_id("snap")
            self._vault.put_snapshot(db, snapshot, listing, self._clock.now(), look.notes[:MAX_NOTES])
            self._add_noted(db, snapshot, listing, look)
            gone = self._seen.keys() - look.fresh.keys()
            self._vault.save_seen(db, ((path, look.fresh[path]) for path in look.changed), gone)
        self._seen = look.fresh
        self._last = snapshot
        return snapshot

    def _remember(self, db: sqlite3.Connection) -> None:
        """What was seen at the last look: in memory, unless another process threw copies away since."""
        sweeps = self._vault.sweeps(db)
        if sweeps != self._sweeps:
            self._seen = self._vault.load_seen(db)
            self._sweeps = sweeps

    def _make_room(self, db: sqlite3.Connection) -> None:
        if self._vault.used(db) <= self.max_total * NEARLY_FULL:
            return
        newest = "SELECT id FROM snapshot ORDER BY time DESC, id DESC LIMIT ?"
        dropped = db.execute(f"DELETE FROM snapshot WHERE id NOT IN ({newest})", (KEPT_WHEN_FULL,)).rowcount  # noqa: S608
        if dropped:
            self._vault.sweep(db)
            self._remember(db)

    def _look(self, db: sqlite3.Connection, since: str | None, stop: threading.Event) -> Look:
        return Look(
            put=lambda data, room: self._vault.put(db, data, room),
            put_folder=lambda listing: self._vault.put_folder(db, listing),
            seen=self._seen,
            limits=self._limits(db),
            known=lambda: self._known(db, since),
            again=since is not None,
            stop=stop,
            rest=self.precedence.rest(MAX_REST),
            settle=self.settle,
            never=self.never,
        )

    def _limits(self, db: sqlite3.Connection) -> Limits:
        room = max(0, self.max_total - self._vault.used(db))
        large = min(room, MAX_LARGE)
        return Limits(self.max_file, room, large, entries=self.max_entries, seconds=self.max_seconds)

    def _known(self, db: sqlite3.Connection, since: str | None) -> Paths:
        if since is None:
            return Paths()
        if since == self._last:
            return Paths.of(self._seen)
        return Paths.of(files_below(db, row(db, since)[0]))

    def _add_noted(self, db: sqlite3.Connection, snapshot: str, listing: bytes, look: Look) -> None:
        """Files that a tool touched where the look does not go are looked at one by one; one that is gone is not looked for again."""
        for (raw,) in db.execute("SELECT path FROM noted").fetchall():
            path = os.fsdecode(raw)
            known = lookup(db, listing, path)
            if path in look.fresh or (known is not None and known.kind == "d"):
                continue
            entry = self._one(path, look)
            self._vault.put_extra(db, snapshot, path, entry)
            if entry is None:
                db.execute("DELETE FROM noted WHERE path = ?", (raw,))

    def _one(self, path: str, look: Look) -> Entry | None:
        """One path as it is now, with a copy; None when there is nothing, or a link on the way."""
        try:
            with opened(self.root, path) as (folder, name):
                found = folder.stat(name) if folder is not None else None
                if folder is None or found is None:
                    return None
                if stat.S_ISREG(found.st_mode):
                    return look.file(folder, name, path, found)
                return look.link(folder, name) if stat.S_ISLNK(found.st_mode) else None
        except OSError as error:
            return None if error.errno in (errno.ENOTDIR, errno.ELOOP) else IGNORED

    def _note(self, path: Path, snapshot: str) -> None:
        if not snapshot:
            return
        name = self.name_of(path)
        if snapshot == self._last and name in self._seen and self._seen[name].kind == "f":
            return
        with self._vault.writing() as db:
            self._remember(db)
            db.execute("INSERT OR IGNORE INTO noted VALUES (?)", (os.fsencode(name),))
            known = lookup(db, row(db, snapshot)[0], name)
            if known is not None and (known.kind == "i" or known.kind in NO_COPY):
                look = self._look(db, None, threading.Event())
                look.limits.large = look.limits.room = max(look.limits.room, self.max_file)
                entry = self._one(name, look)
                if known.kind == "i" or self._is_as_seen(name, known):
                    self._vault.put_extra(db, snapshot, name, entry)

    def _is_as_seen(self, name: str, known: Entry) -> bool:
        """Whether a file without a copy is still what the snapshot saw, so that a copy made now is a copy of that."""
        try:
            with opened(self.root, name) as (folder, last):
                found = folder.stat(last) if folder is not None else None
        except OSError:
            return False
        return found is not None and by_state(found, known.kind).same(known)

    def name_of(self, path: Path) -> str:
        """A path as snapshots name it: relative to the root with ``/``, absolute outside it."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()

    # ── comparing and putting back ──

    def _compare(self, before: str, after: str, leave_out: Sequence[str]) -> Changes:
        with self._vault.reading() as db:
            return receipt(db, before, after, leave_out)

    def _restore(self, now: str, then: str, leave_out: Sequence[str]) -> UndoResult:
        with self._vault.reading() as db:
            found, _ = differences(db, now, then, leave_out)
            steps = [Step(each.path, each.before, each.after) for each in found]
            return carry_out(self.root, steps, lambda ident: self._vault.get(db, ident))

    # ── room ──

    def _prune(self, before: float) -> int:
        count = self._vault.prune(before)
        for path in sorted(self.folder.glob("*.sqlite")):
            if path != self._vault.path:
                count += _prune_other(path, before)
        return count


def _prune_other(path: Path, before: float) -> int:
    """The copies of another root; what cannot be pruned is its own root's to complain about."""
    vault = Vault(path)
    try:
        return vault.prune(before)
    except StoreError:
        return 0
    finally:
        vault.close()


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
