"""The session database: one SQLite file for all projects, shared by kernels and terminals.

Every write is one transaction, committed before the call returns. Rows come back in the order in which they were written,
whatever the clock did. Every ``sqlite3.Error`` becomes a ``StoreError`` here and nowhere else.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nbagent.clock import Clock, SystemClock
from nbagent.collector import paused
from nbagent.errors import PlanError, SessionError, StoreError
from nbagent.message import Message, Part, decode_messages, decode_parts, encode
from nbagent.store.file import connect, is_damaged, keep_aside_if_corrupt, translated, written_again
from nbagent.store.owner import this_process
from nbagent.store.rows import (
    PLAN,
    PLAN_FIELDS,
    SESSION,
    UPDATABLE,
    ApprovalRow,
    InboxRow,
    Mark,
    PlanRow,
    SessionRow,
    Status,
    inbox_row,
    mark_row,
    plan_row,
    session_row,
)
from nbagent.store.schema import MIGRATIONS

MAX_ATTEMPTS = 3


_running: set[tuple[str, str]] = set()
_running_lock = threading.Lock()
"""(database, session) of what this process runs now; a mark of ours that is not among them was left by a failure."""


class Store:
    """Open with ``Store.open``; close with ``close``. Safe to use from several threads."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, clock: Clock, migrations: Sequence[str] = MIGRATIONS
    ) -> None:
        self._db = connection
        self.path = path
        self._clock = clock
        self._migrations = migrations
        self._lock = threading.RLock()
        self.notices: list[str] = []

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None, migrations: Sequence[str] = MIGRATIONS) -> Store:
        """The store at ``path``, made or migrated as needed. A corrupt file is kept aside and said in ``notices``.

        ``migrations``: the ordered steps to this version's tables, but in tests of migrating always those of ``schema``.
        """
        clock = clock or SystemClock()
        with translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = keep_aside_if_corrupt(path)
            store = cls(connect(path), path, clock, migrations)
            store._migrate()
        if kept is not None:
            store.notices.append(
                f"The session database was damaged. It is kept as {kept} and a new one was begun; plans and files are untouched."
            )
        return store

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @property
    def damaged(self) -> bool:
        """Whether SQLite found damage while the file was used, here or elsewhere: opening it anew keeps it aside."""
        return is_damaged(self.path)

    def put_back(self) -> None:
        """A database that was deleted while it was open is written again, whole, from what the system still holds of it."""
        if self.path.exists():
            return
        with self._lock, translated(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = written_again(self._db, self.path)
        self.notices.append(
            f"The session database {self.path} was deleted while it was in use. It was written again, and nothing is lost; "
            "to be rid of it, delete it when no kernel uses it, or use `nbagent sessions prune`."
        )

    # -- machinery ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            self._db.commit()

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._lock, translated(self.path):
            return self._db.execute(sql, values).fetchall()

    def _migrate(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(self._migrations):
            raise StoreError(
                f"{self.path} was written by a newer nbagent. Upgrade nbagent, or set NBAGENT_HOME to another folder."
            )
        for number in range(version, len(self._migrations)):
            self._run_migration(number)

    def _run_migration(self, number: int) -> None:
        with self._transaction() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != number:
                return  # another process was faster
            for statement in self._migrations[number].split(";\n"):
                if statement.strip():
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {number + 1}")

    # -- sessions ----------------------------------------------------------------------------------------------------

    def create_session(
        self,
        *,
        directory: str,
        agent: str,
        notebook: str = "",
        title: str = "",
        parent_id: str | None = None,
        state: dict[str, Any] | None = None,
        session_id: str = "",
    ) -> SessionRow:
        now = self._clock.now()
        session_id = session_id or self._clock.new_id("ses")
        with self._transaction() as db:
            db.execute(
                "INSERT INTO session (id, parent_id, directory, notebook, title, agent, state, time_created, time_updated)"
                " VALUES (?,?,?,?,?,?,?,?,?)",
                (session_id, parent_id, directory, notebook, title, agent, _json(state or {}), now, now),
            )
        return self.session(session_id)

    def session(self, session_id: str) -> SessionRow:
        """The session called ``session_id``. Raises ``SessionError`` when there is none."""
        rows = self._rows(f"SELECT {SESSION} FROM session WHERE id = ?", session_id)  # noqa: S608
        if not rows:
            raise SessionError(
                f"There is no session {session_id!r}. `%agent sessions` (or `nbagent sessions`) lists them."
            )
        return session_row(rows[0])

    def find_session(self, start: str) -> SessionRow:
        """The one session whose id is, or begins or ends with, ``start``."""
        like = start.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        rows = self._rows(
            f"SELECT {SESSION} FROM session WHERE id = ? OR id LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\'"  # noqa: S608
            " ORDER BY time_updated DESC LIMIT 3",
            start,
            f"{like}%",
            f"%{like}",
        )
        exact = [row for row in rows if row[0] == start]
        if exact or len(rows) == 1:
            return session_row((exact or rows)[0])
        if not rows:
            return self.session(start)
        raise SessionError(f"{start!r} fits more than one session. Give more of its id.")

    def sessions(
        self,
        directory: str | None = None,
        *,
        archived: bool = False,
        children: bool = False,
        empty: bool = False,
        limit: int = 1000,
    ) -> list[SessionRow]:
        """Sessions, the last used first. ``empty``: those too in which nothing was ever asked, as their only prompt was refused."""
        where = ["1"] if empty else [_HOLDS_ANY]
        values: list[Any] = []
        if directory is not None:
            where.append("directory = ?")
            values.append(directory)
        if not archived:
            where.append("time_archived IS NULL")
        if not children:
            where.append("parent_id IS NULL")
        sql = (
            f"SELECT {SESSION} FROM session WHERE {' AND '.join(where)} ORDER BY time_updated DESC, rowid DESC LIMIT ?"  # noqa: S608
        )
        return [session_row(row) for row in self._rows(sql, *values, limit)]

    def holds_any(self, session_id: str) -> bool:
        """Whether a session has a message, or an input that waits."""
        return bool(self._rows(f"SELECT 1 FROM session WHERE id = ? AND {_HOLDS_ANY}", session_id))  # noqa: S608

    def children(self, parent_id: str) -> list[SessionRow]:
        sql = f"SELECT {SESSION} FROM session WHERE parent_id = ? ORDER BY rowid"  # noqa: S608
        return [session_row(row) for row in self._rows(sql, parent_id)]

    def update_session(self, session_id: str, **changes: Any) -> None:
        """Change columns: ``title``, ``agent``, ``state``, ``status``, ``notebook``, ``time_compacting``, ``time_archived``."""
        if not changes:
            return
        if "state" in changes:
            changes["state"] = _json(changes["state"])
        names = [name for name in changes if name in UPDATABLE]
        if len(names) != len(changes):
            raise ValueError(f"not columns of a session: {set(changes) - set(names)}")
        sets = ", ".join(f"{name} = ?" for name in names)
        with self._transaction() as db:
            db.execute(
                f"UPDATE session SET {sets}, time_updated = ? WHERE id = ?",  # noqa: S608
                (*(changes[name] for name in names), self._clock.now(), session_id),
            )

    def delete_sessions(self, older_than: float) -> int:
        """Delete sessions (children too) last used before ``older_than`` that nobody runs; returns how many."""
        with self._transaction() as db:
            marks = map(mark_row, db.execute(f"SELECT {_MARK} FROM execution e").fetchall())  # noqa: S608
            running = _json([mark.session_id for mark in marks if mark.owner.alive()])
            cursor = db.execute(
                "DELETE FROM session WHERE time_updated < ? AND id NOT IN (SELECT value FROM json_each(?))",
                (older_than, running),
            )
        with self._lock, translated(self.path):
            self._db.execute("VACUUM")
        return cursor.rowcount

    def size(self) -> int:
        """Bytes on disk, write-ahead log included."""
        total = 0
        for suffix in ("", "-wal", "-shm"):
            file = Path(f"{self.path}{suffix}")
            total += file.stat().st_size if file.exists() else 0
        return total

    # -- inbox -------------------------------------------------------------------------------------------------------

    def accept(self, session_id: str, kind: str, content: dict[str, Any], input_id: str = "") -> InboxRow:
        """Store an input before anything is done with it. The same id again returns what was accepted first."""
        with self._transaction() as db:
            return self._accept(db, session_id, kind, content, input_id)

    def _accept(
        self, db: sqlite3.Connection, session_id: str, kind: str, content: dict[str, Any], input_id: str
    ) -> InboxRow:
        input_id = input_id or self._clock.new_id("inp")
        db.execute(
            "INSERT OR IGNORE INTO inbox (id, session_id, kind, content, time_created) VALUES (?,?,?,?,?)",
            (input_id, session_id, kind, msgspec.json.encode(content), self._clock.now()),
        )
        row = db.execute(f"SELECT {_INBOX} FROM inbox WHERE id = ?", (input_id,)).fetchone()  # noqa: S608
        return inbox_row(row)

    def begin(self, session_id: str, kind: str, content: dict[str, Any], input_id: str = "") -> InboxRow:
        """``accept`` an input and ``start`` the session in one transaction, so that a crash right after leaves a mark.

        An input that was delivered before is returned, and nothing is started.
        """
        with self._in_this_process(session_id), self._transaction() as db:
            row = self._accept(db, session_id, kind, content, input_id)
            if row.time_delivered is None:
                self._put_mark(db, session_id, resuming=False)
        if row.time_delivered is not None:
            self.release(session_id)
        return row

    def withdraw(self, input_id: str) -> None:
        """Take back an input that was not delivered: its run was refused or stopped before it began, and that was said."""
        with self._transaction() as db:
            db.execute("DELETE FROM inbox WHERE id = ? AND time_delivered IS NULL", (input_id,))

    def undelivered(self, session_id: str) -> list[InboxRow]:
        rows = self._rows(
            f"SELECT {_INBOX} FROM inbox WHERE session_id = ? AND time_delivered IS NULL ORDER BY rowid",  # noqa: S608
            session_id,
        )
        return [inbox_row(row) for row in rows]

    def deliver(
        self,
        input_id: str,
        message: Message,
        *,
        agent: str = "",
        state: dict[str, Any] | None = None,
        spends: tuple[str, str] | None = None,
    ) -> None:
        """Move an input from the inbox into ``message`` (with its parts), in one transaction with what goes with it: the session's
        ``agent`` and ``state``, and the approved plan (path, hash) that is carried out."""
        now = self._clock.now()
        with self._transaction() as db:
            cursor = db.execute(
                "UPDATE inbox SET time_delivered = ? WHERE id = ? AND time_delivered IS NULL", (now, input_id)
            )
            if cursor.rowcount != 1:
                raise SessionError("That input was delivered before; nothing was run twice.")
            if spends is not None and not self._spend(db, *spends):
                raise PlanError(f"The plan {spends[0]} changed when it was to be carried out. Run the cell again.")
            _insert_message(db, message)
            if state is not None:
                db.execute(
                    "UPDATE session SET agent = ?, state = ?, time_updated = ? WHERE id = ?",
                    (agent or message.agent, _json(state), now, message.session_id),
                )

    # -- messages and parts ------------------------------------------------------------------------------------------

    def add_message(self, message: Message) -> None:
        with self._transaction() as db:
            _insert_message(db, message)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """All of them or none."""
        with self._transaction() as db:
            for message in messages:
                _insert_message(db, message)

    def put_message(self, message: Message) -> None:
        """Write a message's own fields again (its parts are written by ``put_part``)."""
        with self._transaction() as db:
            db.execute("UPDATE message SET data = ? WHERE id = ?", (_bare(message), message.id))

    def put_part(self, session_id: str, message_id: str, part: Part) -> None:
        """Insert a part or write it again in its place."""
        with self._transaction() as db:
            _upsert_part(db, session_id, message_id, part, self._clock.now())

    def put_parts(self, session_id: str, message_id: str, parts: tuple[Part, ...]) -> None:
        with self._transaction() as db:
            for part in parts:
                _upsert_part(db, session_id, message_id, part, self._clock.now())

    def messages(self, session_id: str) -> list[Message]:
        """All messages of a session with their parts, in the order in which they were written."""
        with self._lock, translated(self.path):
            heads = self._db.execute(
                "SELECT id, data FROM message WHERE session_id = ? ORDER BY rowid", (session_id,)
            ).fetchall()
            rows = self._db.execute(
                "SELECT message_id, data FROM part WHERE session_id = ? ORDER BY rowid", (session_id,)
            ).fetchall()
        with paused():
            parts: dict[str, list[Part]] = {message_id: [] for message_id, _ in heads}
            for (message_id, _), part in zip(rows, decode_parts(data for _, data in rows), strict=True):
                parts[message_id].append(part)
            messages = decode_messages(data for _, data in heads)
            return [
                msgspec.structs.replace(message, parts=tuple(parts[message_id])) if parts[message_id] else message
                for (message_id, _), message in zip(heads, messages, strict=True)
            ]

    # -- execution marks ---------------------------------------------------------------------------------------------

    def mark(self, session_id: str) -> Mark | None:
        rows = self._rows(f"SELECT {_MARK} FROM execution e WHERE session_id = ?", session_id)  # noqa: S608
        return mark_row(rows[0]) if rows else None

    def start(self, session_id: str, *, resuming: bool = False) -> Mark:
        """Write the mark that this process runs the session. Raises ``SessionError`` when it, or another live one, does already."""
        with self._in_this_process(session_id), self._transaction() as db:
            return self._put_mark(db, session_id, resuming)

    @contextlib.contextmanager
    def _in_this_process(self, session_id: str) -> Iterator[None]:
        """Claim a session among what this process runs; given back when the mark cannot be written."""
        key = (str(self.path), session_id)
        with _running_lock:
            if key in _running:
                raise SessionError(
                    f"Session {session_id} is running already. Wait for it, stop it, or begin another with `%agent new`."
                )
            _running.add(key)
        try:
            yield
        except BaseException:
            _running.discard(key)
            raise

    def _put_mark(self, db: sqlite3.Connection, session_id: str, resuming: bool) -> Mark:
        me = this_process()
        row = db.execute(f"SELECT {_MARK} FROM execution e WHERE session_id = ?", (session_id,)).fetchone()  # noqa: S608
        old = mark_row(row) if row else None
        if old is not None and old.owner != me and old.owner.alive():
            raise SessionError(
                f"Session {session_id} is being run by process {old.owner.pid} on {old.owner.host}. "
                "Stop it there, or begin another session with `%agent new`."
            )
        now = self._clock.now()
        mark = Mark(
            session_id=session_id,
            owner=me,
            attempts=old.attempts if old is not None and resuming else 0,
            time_started=now,
        )
        db.execute(
            "INSERT OR REPLACE INTO execution (session_id, owner, attempts, time_started) VALUES (?,?,?,?)",
            (session_id, me.text(), mark.attempts, now),
        )
        db.execute("UPDATE session SET status = 'running', time_updated = ? WHERE id = ?", (now, session_id))
        return mark

    def count_attempt(self, session_id: str) -> int:
        """One more attempt to settle what a crash left; returns how many there were, this one included."""
        with self._transaction() as db:
            db.execute("UPDATE execution SET attempts = attempts + 1 WHERE session_id = ?", (session_id,))
            row = db.execute("SELECT attempts FROM execution WHERE session_id = ?", (session_id,)).fetchone()
        return int(row[0]) if row else 0

    def finish(self, session_id: str, status: Status = "idle") -> None:
        """Remove the mark: the run finished, failed or was stopped by a person."""
        _running.discard((str(self.path), session_id))
        with self._transaction() as db:
            db.execute("DELETE FROM execution WHERE session_id = ?", (session_id,))
            db.execute(
                "UPDATE session SET status = ?, time_updated = ? WHERE id = ?", (status, self._clock.now(), session_id)
            )

    def release(self, session_id: str) -> None:
        """This process no longer runs the session, and its mark stays: it is still to be resumed."""
        _running.discard((str(self.path), session_id))

    def crashed(self, directory: str | None = None) -> list[Mark]:
        """Marks whose owner is dead."""
        rows = self._rows(
            f"SELECT {_MARK} FROM execution e JOIN session s ON s.id = e.session_id"  # noqa: S608
            " WHERE (? IS NULL OR s.directory = ?) AND s.parent_id IS NULL AND s.time_archived IS NULL ORDER BY e.rowid",
            directory,
            directory,
        )
        return [mark for mark in map(mark_row, rows) if not mark.owner.alive()]

    # -- "always" replies --------------------------------------------------------------------------------------------

    def approvals(self, session_id: str) -> list[ApprovalRow]:
        rows = self._rows(
            "SELECT id, session_id, agent, permission, pattern, time_created FROM approval WHERE session_id = ? ORDER BY id",
            session_id,
        )
        return [
            ApprovalRow(id=r[0], session_id=r[1], agent=r[2], permission=r[3], pattern=r[4], time_created=r[5])
            for r in rows
        ]

    def add_approval(self, session_id: str, permission: str, pattern: str, agent: str = "") -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT INTO approval (session_id, agent, permission, pattern, time_created) VALUES (?,?,?,?,?)",
                (session_id, agent, permission, pattern, self._clock.now()),
            )

    def revoke_approval(self, session_id: str, approval_id: int) -> bool:
        with self._transaction() as db:
            cursor = db.execute("DELETE FROM approval WHERE session_id = ? AND id = ?", (session_id, approval_id))
        return cursor.rowcount == 1

    # -- plans -------------------------------------------------------------------------------------------------------

    def plan(self, path: str) -> PlanRow | None:
        rows = self._rows(f"SELECT {PLAN} FROM plan WHERE path = ?", path)  # noqa: S608
        return plan_row(rows[0]) if rows else None

    def plans(
        self, directory: str | None = None, *, session_id: str | None = None, cell: str | None = None
    ) -> list[PlanRow]:
        """Plans, the last changed first."""
        rows = self._rows(
            f"SELECT {PLAN} FROM plan WHERE (? IS NULL OR directory = ?) AND (? IS NULL OR session_id = ?)"  # noqa: S608
            " AND (? IS NULL OR cell = ?) ORDER BY time_updated DESC, rowid DESC",
            directory,
            directory,
            session_id,
            session_id,
            cell,
            cell,
        )
        return [plan_row(row) for row in rows]

    def plan_paths(self, folder: str) -> list[str]:
        """The paths of all plans below ``folder``, written yet or not."""
        start = folder.rstrip("/") + "/"
        # "0" is the character after "/": a range, so that the key's index answers.
        rows = self._rows("SELECT path FROM plan WHERE path >= ? AND path < ?", start, start[:-1] + "0")
        return [str(row[0]) for row in rows]

    def put_plan(self, path: str, **fields: str) -> PlanRow:
        """Make or change what is known of a plan; ``fields`` are those of ``PlanRow`` but for the path and the times."""
        now = self._clock.now()
        with self._transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO plan (path, directory, status, time_created, time_updated) VALUES (?,?,?,?,?)",
                (path, fields.get("directory", ""), fields.get("status", "draft"), now, now),
            )
            for name, value in fields.items():
                if name not in PLAN_FIELDS:
                    raise ValueError(f"not a column of a plan: {name}")
                db.execute(f"UPDATE plan SET {name} = ?, time_updated = ? WHERE path = ?", (value, now, path))  # noqa: S608
        row = self.plan(path)
        assert row is not None
        return row

    def use_plan(self, path: str, digest: str) -> bool:
        """Turn *approved with this hash* into *built*, once; False when that is not (or no longer) its state."""
        with self._transaction() as db:
            return self._spend(db, path, digest)

    def _spend(self, db: sqlite3.Connection, path: str, digest: str) -> bool:
        cursor = db.execute(
            "UPDATE plan SET status = 'built', time_updated = ? WHERE path = ? AND status = 'approved' AND hash = ?",
            (self._clock.now(), path, digest),
        )
        return cursor.rowcount == 1

    # -- what was read, what was learned -----------------------------------------------------------------------------

    def put_seen(self, session_id: str, path: str, digest: str, whole: bool) -> None:
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO seen VALUES (?,?,?,?)", (session_id, path, digest, int(whole)))

    def seen(self, session_id: str) -> dict[str, tuple[str, bool]]:
        rows = self._rows("SELECT path, digest, whole FROM seen WHERE session_id = ?", session_id)
        return {path: (digest, bool(whole)) for path, digest, whole in rows}

    def learned(self, model: str) -> dict[str, Any]:
        """What was learned of a model's server (refused parameters, fields it wants back)."""
        return {
            key: msgspec.json.decode(value)
            for key, value in self._rows("SELECT key, value FROM learned WHERE model = ?", model)
        }

    def learn(self, model: str, key: str, value: Any) -> None:
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO learned VALUES (?,?,?)", (model, key, msgspec.json.encode(value).decode())
            )


_HOLDS_ANY = (
    "(EXISTS (SELECT 1 FROM inbox i WHERE i.session_id = session.id)"
    " OR EXISTS (SELECT 1 FROM message m WHERE m.session_id = session.id))"
)
_INBOX = "id, session_id, kind, content, time_created, time_delivered"
_MARK = "e.session_id, e.owner, e.attempts, e.time_started"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _bare(message: Message) -> bytes:
    return encode(msgspec.structs.replace(message, parts=()))


def _insert_message(db: sqlite3.Connection, message: Message) -> None:
    db.execute(
        "INSERT INTO message (id, session_id, time_created, data) VALUES (?,?,?,?)",
        (message.id, message.session_id, message.time_created, _bare(message)),
    )
    for part in message.parts:
        _upsert_part(db, message.session_id, message.id, part, message.time_created)


def _upsert_part(db: sqlite3.Connection, session_id: str, message_id: str, part: Part, now: float) -> None:
    db.execute(
        "INSERT INTO part (id, message_id, session_id, time_created, data) VALUES (?,?,?,?,?)"
        " ON CONFLICT (id) DO UPDATE SET data = excluded.data",
        (part.id, message_id, session_id, now, encode(part)),
    )
