"""Where copies of files are kept: contents by their hash, folders by the hash of what they list, snapshots by id. One SQLite file.

Nothing in it is needed for a session to go on: it is only what undo gives back. So it is written without waiting for the disk, and one
that is broken is put aside and begun anew.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from nbagent.errors import StoreError

Kind = Literal["f", "l", "d", "b", "n", "u", "m", "i"]
"""``f`` file with a copy kept, ``l`` link, ``d`` folder, ``i`` not looked at (ignored); files without a copy: ``b`` too large,
``n`` no room, ``u`` not readable, ``m`` changed while it was read."""

NO_COPY = frozenset("bnum")
SCHEMA = 1
WAIT_SECONDS = 30
COMPRESSED_FROM = 512


class Entry(NamedTuple):
    """What stands at one path. ``mode``: permission bits. ``ident``: hash of the content, the link's target or the folder's list;
    size and time for a file without a copy."""

    kind: Kind
    mode: int
    ident: bytes

    def same(self, other: Entry | None) -> bool:
        """Whether nothing tells the two apart. The reason why there is no copy does not."""
        if other is None:
            return False
        alike = self.kind == other.kind or (self.kind in NO_COPY and other.kind in NO_COPY)
        return alike and self.ident == other.ident and self.mode == other.mode


Listing = list[tuple[bytes, Entry]]
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[tuple[bytes, Entry]]).decode


class Seen(NamedTuple):
    """A file as it was when it was last read: its state on disk (size, times, inode), and what was made of it."""

    state: tuple[int, int, int, int]
    kind: Kind
    ident: bytes


def ident_of(data: bytes) -> bytes:
    """The name of a content."""
    return hashlib.blake2b(data, digest_size=20).digest()


_TABLES = """
CREATE TABLE content(ident BLOB NOT NULL UNIQUE, packed INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE folder(ident BLOB NOT NULL UNIQUE, listing BLOB NOT NULL);
CREATE TABLE snapshot(id TEXT PRIMARY KEY, folder BLOB NOT NULL, time REAL NOT NULL, notes BLOB NOT NULL);
CREATE TABLE extra(snapshot TEXT NOT NULL, path BLOB NOT NULL, entry BLOB, PRIMARY KEY (snapshot, path)) WITHOUT ROWID;
CREATE TABLE noted(path BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE seen(
  path BLOB PRIMARY KEY, size INTEGER, modified INTEGER, changed INTEGER, inode INTEGER, kind TEXT, ident BLOB
) WITHOUT ROWID;
CREATE TABLE sweep(number INTEGER NOT NULL);
INSERT INTO sweep VALUES (0);
"""


class Vault:
    """The file at ``path``, opened at first use. Blocking; one thread at a time. Raises ``StoreError``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; other processes wait for its end."""
        with self._said():
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One state of the file, whatever other processes do meanwhile."""
        with self._said():
            db = self._connection()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def prune(self, before: float) -> int:
        """Forget snapshots taken before ``before`` and give the room back to the disk; how many."""
        with self.writing() as db:
            count = db.execute("DELETE FROM snapshot WHERE time < ?", (before,)).rowcount
            self.sweep(db)
            db.execute("DELETE FROM noted WHERE path NOT IN (SELECT path FROM extra)")
        with self._said():
            self._connection().executescript("PRAGMA incremental_vacuum")  # a plain execute would free one page
        return count

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            self.close()
            raise StoreError(
                f"Copies for undo cannot be kept in {self.path}: {error}. Make room there, make it writable, or delete it."
            ) from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreError(f"The copies for undo in {self.path} are damaged ({error}). Delete that file.") from error
        except OSError as error:
            raise StoreError(f"Copies for undo cannot be kept in {self.path}: {error.strerror or error}.") from error

    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            try:
                self._open = self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError:
                self.path.replace(self.path.with_suffix(".broken"))
                self._open = self._connect()
        return self._open

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # copies of private files are for nobody else
        db = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN IMMEDIATE")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA):
                raise sqlite3.DatabaseError(f"written by another version of nbagent ({version})")
            if version == 0:
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA}")
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        return db

    # Inside ``writing`` or ``reading``; ``db`` is what they gave.

    @staticmethod
    def put(db: sqlite3.Connection, data: bytes, room: int) -> tuple[bytes, int] | None:
        """Keep a copy, if it takes no more than ``room`` bytes: the name by which ``get`` gives it back, and the bytes taken."""
        ident = ident_of(data)
        if db.execute("SELECT 1 FROM content WHERE ident = ?", (ident,)).fetchone() is not None:
            return ident, 0
        small = zlib.compress(data, 1) if len(data) >= COMPRESSED_FROM else data
        packed = len(small) < len(data) * 0.9
        stored = small if packed else data
        if len(stored) > room:
            return None
        db.execute("INSERT INTO content VALUES (?, ?, ?)", (ident, packed, stored))
        return ident, len(stored)

    @staticmethod
    def get(db: sqlite3.Connection, ident: bytes) -> bytes | None:
        """The content that was put, checked against its name; None when it is not there any more."""
        row = db.execute("SELECT packed, data FROM content WHERE ident = ?", (ident,)).fetchone()
        if row is None:
            return None
        try:
            data = zlib.decompress(row[1]) if row[0] else bytes(row[1])
        except zlib.error:
            return None
        return data if ident_of(data) == ident else None

    @staticmethod
    def put_folder(db: sqlite3.Connection, listing: Listing) -> bytes:
        data = _pack(listing)
        ident = ident_of(data)
        db.execute("INSERT OR IGNORE INTO folder VALUES (?, ?)", (ident, data))
        return ident

    @staticmethod
    def folder(db: sqlite3.Connection, ident: bytes) -> Listing:
        row = db.execute("SELECT listing FROM folder WHERE ident = ?", (ident,)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError("a folder of a snapshot is missing")
        return _unpack(row[0])

    @staticmethod
    def put_snapshot(db: sqlite3.Connection, snapshot: str, folder: bytes, time: float, notes: list[str]) -> None:
        """A replay makes the same ids again: the newer one stands."""
        db.execute("DELETE FROM extra WHERE snapshot = ?", (snapshot,))
        row = (snapshot, folder, time, msgspec.json.encode(notes))
        db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", row)

    @staticmethod
    def extras(db: sqlite3.Connection, snapshot: str) -> dict[str, Entry | None]:
        """What was put beside a snapshot's tree, by path; None: known not to be there."""
        rows = db.execute("SELECT path, entry FROM extra WHERE snapshot = ?", (snapshot,))
        return {os.fsdecode(path): msgspec.msgpack.decode(entry, type=Entry) if entry else None for path, entry in rows}

    @staticmethod
    def put_extra(db: sqlite3.Connection, snapshot: str, path: str, entry: Entry | None) -> None:
        """The first word on a path stands."""
        row = (snapshot, os.fsencode(path), _pack(entry) if entry else None)
        db.execute("INSERT OR IGNORE INTO extra VALUES (?, ?, ?)", row)

    @staticmethod
    def load_seen(db: sqlite3.Connection) -> dict[str, Seen]:
        rows = db.execute("SELECT path, size, modified, changed, inode, kind, ident FROM seen")
        return {os.fsdecode(row[0]): Seen((row[1], row[2], row[3], row[4]), row[5], row[6]) for row in rows}

    @staticmethod
    def save_seen(db: sqlite3.Connection, new: Iterable[tuple[str, Seen]], gone: Iterable[str]) -> None:
        db.executemany("DELETE FROM seen WHERE path = ?", ((os.fsencode(path),) for path in gone))
        rows = ((os.fsencode(path), *seen.state, seen.kind, seen.ident) for path, seen in new)
        db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    @staticmethod
    def sweeps(db: sqlite3.Connection) -> int:
        """How often contents were thrown away: what is remembered of ``seen`` holds only while this stays the same."""
        return int(db.execute("SELECT number FROM sweep").fetchone()[0])

    @staticmethod
    def used(db: sqlite3.Connection) -> int:
        """Bytes in use, without free pages."""
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    @classmethod
    def sweep(cls, db: sqlite3.Connection) -> None:
        """Throw away what no snapshot needs any more."""
        folders, contents = cls._needed(db)
        db.execute("DELETE FROM extra WHERE snapshot NOT IN (SELECT id FROM snapshot)")
        cls._delete_others(db, "folder", folders)
        cls._delete_others(db, "content", contents)
        db.execute("DELETE FROM seen WHERE kind = 'f' AND ident NOT IN (SELECT ident FROM content)")
        db.execute("UPDATE sweep SET number = number + 1")

    @classmethod
    def _needed(cls, db: sqlite3.Connection) -> tuple[set[bytes], set[bytes]]:
        folders: set[bytes] = set()
        contents: set[bytes] = set()
        todo = [row[0] for row in db.execute("SELECT DISTINCT folder FROM snapshot")]
        while todo:
            ident = todo.pop()
            if ident in folders:
                continue
            folders.add(ident)
            for _, entry in cls.folder(db, ident):
                if entry.kind == "d":
                    todo.append(entry.ident)
                elif entry.kind in ("f", "l"):
                    contents.add(entry.ident)
        for (packed,) in db.execute(
            "SELECT entry FROM extra WHERE snapshot IN (SELECT id FROM snapshot) AND entry NOT NULL"
        ):
            contents.add(msgspec.msgpack.decode(packed, type=Entry).ident)
        return folders, contents

    @staticmethod
    def _delete_others(db: sqlite3.Connection, table: str, needed: set[bytes]) -> None:
        idents = [row[0] for row in db.execute(f"SELECT ident FROM {table}") if row[0] not in needed]  # noqa: S608
        db.executemany(f"DELETE FROM {table} WHERE ident = ?", ((ident,) for ident in idents))  # noqa: S608
