"""What the tables hold, as values, and how rows become them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from nbagent.store.owner import Owner, owner_from

Status = Literal["idle", "running", "interrupted", "failed"]


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session without its messages. ``state`` is what lives outside the chat (mode notice, plan, todo list, root)."""

    id: str
    parent_id: str | None
    directory: str
    notebook: str
    title: str
    agent: str
    state: dict[str, Any]
    status: Status
    time_created: float
    time_updated: float
    time_compacting: float | None
    time_archived: float | None


class InboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted input. ``content`` is what was accepted the first time under this id."""

    id: str
    session_id: str
    kind: str
    content: dict[str, Any]
    time_created: float
    time_delivered: float | None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An execution mark: this session is being run, or was when its kernel died."""

    session_id: str
    owner: Owner
    attempts: int
    time_started: float


class ApprovalRow(msgspec.Struct, frozen=True, kw_only=True):
    """An "always" reply."""

    id: int
    session_id: str
    agent: str
    permission: str
    pattern: str
    time_created: float


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a plan file beside its text. ``hash`` is of the text that ``status`` speaks of."""

    path: str
    directory: str
    session_id: str
    cell: str
    status: str
    hash: str
    request: str
    by: str
    comment: str
    time_created: float
    time_updated: float


SESSION = "id, parent_id, directory, notebook, title, agent, state, status, time_created, time_updated, time_compacting, time_archived"
UPDATABLE = {"title", "agent", "state", "status", "notebook", "directory", "time_compacting", "time_archived"}
PLAN = "path, directory, session_id, cell, status, hash, request, by, comment, time_created, time_updated"
PLAN_FIELDS = {"directory", "session_id", "cell", "status", "hash", "request", "by", "comment"}


def session_row(row: Any) -> SessionRow:
    return SessionRow(
        id=row[0],
        parent_id=row[1],
        directory=row[2],
        notebook=row[3],
        title=row[4],
        agent=row[5],
        state=msgspec.json.decode(row[6]),
        status=row[7],
        time_created=row[8],
        time_updated=row[9],
        time_compacting=row[10],
        time_archived=row[11],
    )


def inbox_row(row: Any) -> InboxRow:
    return InboxRow(
        id=row[0],
        session_id=row[1],
        kind=row[2],
        content=msgspec.json.decode(row[3]),
        time_created=row[4],
        time_delivered=row[5],
    )


def plan_row(row: Any) -> PlanRow:
    return PlanRow(**dict(zip((name.strip() for name in PLAN.split(",")), row, strict=True)))


def mark_row(row: Any) -> Mark:
    return Mark(session_id=row[0], owner=owner_from(row[1]), attempts=row[2], time_started=row[3])
