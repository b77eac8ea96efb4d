"""The database as a file: opened, kept aside when it is damaged, and its errors as sentences."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from nbagent.errors import StoreError

PATIENCE = 15.0
"""Seconds that a locked database is waited for: another kernel may be giving the room of deleted sessions back to the disk."""


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA foreign_keys = ON")
    return db


def written_again(lost: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """A connection to a new file at ``path`` with all that the database of ``lost`` held. ``lost`` is closed."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)  # of no use to any other file
    fresh = connect(path)
    lost.backup(fresh)
    lost.close()
    return fresh


def keep_aside_if_corrupt(path: Path) -> Path | None:
    """Move a file that SQLite cannot read out of the way; returns where it is kept."""
    if not path.exists() or path.stat().st_size == 0 or _sound(path):
        return None
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm"):
        file = Path(f"{path}{suffix}")
        if file.exists():
            file.rename(f"{kept}{suffix}")
    _flag(path).unlink(missing_ok=True)
    return kept


_CHECKED_WHOLE = 8_000_000
"""Bytes up to which a database is read through when it is opened; a larger one is found out when it is used."""


def is_damaged(path: Path) -> bool:
    """Whether damage was found in the file while it was used."""
    return _flag(path).exists()


def _sound(path: Path) -> bool:
    if is_damaged(path):
        return False
    check = (
        "PRAGMA quick_check(1)" if path.stat().st_size <= _CHECKED_WHOLE else "SELECT 'ok' FROM sqlite_master LIMIT 1"
    )
    try:
        db = sqlite3.connect(path, timeout=PATIENCE)
        try:
            row = db.execute(check).fetchone()
        finally:
            db.close()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        return False
    return row is None or row[0] == "ok"


def _flag(path: Path) -> Path:
    """Its presence says that SQLite found damage while the file was used."""
    return path.with_name(f"{path.name}.is-damaged")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if _damaged(error):
            with contextlib.suppress(OSError):
                _flag(path).touch()
        raise StoreError(_sentence(path, error)) from error
    except OSError as error:
        raise StoreError(
            f"The session database's folder {path.parent} cannot be used ({error.strerror or error}). "
            "Make it writable, or set NBAGENT_HOME to another folder."
        ) from error


def _damaged(error: sqlite3.Error) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)


def _sentence(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return (
            f"The session database {path} is locked by another program. Close it, or set NBAGENT_HOME to another folder, "
            "and run the cell again."
        )
    if "full" in text:
        return (
            f"The disk that holds the session database {path} is full. Free some space and run the cell again; "
            "what was accepted is kept."
        )
    if "readonly" in text or "read-only" in text or "unable to open" in text:
        return (
            f"The session database {path} cannot be written. Make it writable, or set NBAGENT_HOME to another folder."
        )
    if _damaged(error):
        return f"The session database {path} is damaged. Run the cell again: it will be kept aside and a new one begun."
    return f"The session database {path} failed: {text}. Set NBAGENT_HOME to another folder, or move the file away."
