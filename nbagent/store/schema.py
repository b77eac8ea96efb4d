"""The tables, as ordered migrations. Each runs in one transaction; ``user_version`` says how many have run."""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE session (
        id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT NOT NULL, notebook TEXT NOT NULL DEFAULT '',
        title TEXT NOT NULL DEFAULT '', agent TEXT NOT NULL, permission TEXT NOT NULL DEFAULT '[]',
        state TEXT NOT NULL DEFAULT '{}', status TEXT NOT NULL DEFAULT 'idle',
        time_created REAL NOT NULL, time_updated REAL NOT NULL, time_compacting REAL, time_archived REAL
    );
    CREATE INDEX session_directory ON session (directory, time_updated);
    CREATE INDEX session_parent ON session (parent_id);
    CREATE TABLE message (
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        time_created REAL NOT NULL, data BLOB NOT NULL
    );
    CREATE INDEX message_session ON message (session_id);
    CREATE TABLE part (
        id TEXT PRIMARY KEY, message_id TEXT NOT NULL REFERENCES message (id) ON DELETE CASCADE,
        session_id TEXT NOT NULL, time_created REAL NOT NULL, data BLOB NOT NULL
    );
    CREATE INDEX part_session ON part (session_id);
    CREATE TABLE inbox (
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        kind TEXT NOT NULL, content BLOB NOT NULL, time_created REAL NOT NULL, time_delivered REAL
    );
    CREATE INDEX inbox_session ON inbox (session_id);
    CREATE TABLE execution (
        session_id TEXT PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
        owner TEXT NOT NULL, attempts INTEGER NOT NULL, time_started REAL NOT NULL
    );
    CREATE TABLE approval (
        id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        agent TEXT NOT NULL DEFAULT '', permission TEXT NOT NULL, pattern TEXT NOT NULL, time_created REAL NOT NULL
    );
    CREATE INDEX approval_session ON approval (session_id);
    """,
    """
    CREATE TABLE plan (
        path TEXT PRIMARY KEY, directory TEXT NOT NULL, session_id TEXT NOT NULL DEFAULT '', cell TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL, hash TEXT NOT NULL DEFAULT '', request TEXT NOT NULL DEFAULT '',
        by TEXT NOT NULL DEFAULT '', comment TEXT NOT NULL DEFAULT '', time_created REAL NOT NULL, time_updated REAL NOT NULL
    );
    CREATE INDEX plan_directory ON plan (directory, time_updated);
    CREATE TABLE seen (
        session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE, path TEXT NOT NULL,
        digest TEXT NOT NULL, whole INTEGER NOT NULL, PRIMARY KEY (session_id, path)
    ) WITHOUT ROWID;
    CREATE TABLE learned (model TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (model, key)) WITHOUT ROWID;
    """,
)
"""A new version is a new entry; an old entry never changes."""
