"""What a crash left behind, settled before anything else is done."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from nbagent.errors import SessionError
from nbagent.message import CompactionPart, Message, PatchPart, StepFinishPart, ToolPart
from nbagent.session.history import History
from nbagent.session.request import INTERRUPTED
from nbagent.store.owner import this_process
from nbagent.store.store import MAX_ATTEMPTS, Store

UNTOLD = (
    "What was changed before the interruption is not in this cell's receipt, and `%agent undo` does not put it back: "
    "look at what the calls above it did."
)


def take_over(store: Store, session_id: str) -> int:
    """This process goes on with a session whose kernel died. Counts the attempt first; beyond three it is marked failed."""
    store.start(session_id, resuming=True)
    attempts = store.count_attempt(session_id)
    if attempts > MAX_ATTEMPTS:
        store.finish(session_id, "failed")
        raise SessionError(
            f"Session {session_id} was resumed {MAX_ATTEMPTS} times and its kernel died each time, so it is marked as failed. "
            "Look at what it was doing with `%agent export`, and go on in a new session."
        )
    return attempts


def settle_children(store: Store, session_id: str, now: float) -> None:
    """Close what the children of a crashed session left open; each can be gone on with by its ``task_id``."""
    for row in store.children(session_id):
        mark = store.mark(row.id)
        if mark is None or (mark.owner != this_process() and mark.owner.alive()):
            continue
        settle(History(store, row.id), now)
        store.finish(row.id)
        settle_children(store, row.id, now)


def is_answered(history: History) -> bool:
    """Whether the newest prompt has its whole answer: nothing is left to ask the model."""
    last = next((message for message in reversed(history.messages) if message.agent != "compaction"), None)
    if last is None or last.role != "assistant" or last.error or any(isinstance(p, ToolPart) for p in last.parts):
        return False
    ends = [part for part in last.parts if isinstance(part, StepFinishPart)]
    return bool(last.text().strip()) and bool(ends) and ends[-1].reason == "stop"


def is_open(history: History) -> bool:
    """Whether the newest messages hold something that never ended."""
    return any(_unsettled(part) for message in history.messages[-3:] for part in message.parts)


def _unsettled(part: object) -> bool:
    if isinstance(part, ToolPart):
        return part.status in ("pending", "running")
    return isinstance(part, CompactionPart) and part.status == "running"


def without_receipt(history: History, changing: Collection[str]) -> list[str]:
    """A sentence when calls of the tools named ``changing`` began after the last receipt: the look at the files that went before them
    ended with the kernel, and what changed since could be anybody's work."""
    for message in reversed(history.messages):
        if any(isinstance(part, PatchPart) for part in message.parts):
            return []
        if any(isinstance(part, ToolPart) and part.tool in changing and _ran(part) for part in message.parts):
            return [UNTOLD]
    return []


def _ran(part: ToolPart) -> bool:
    """Whether a call was under way at some time; one that was refused or could not be read never was."""
    return part.status == "completed" or bool(part.title and part.rule is None and not part.metadata.get("refused"))


def settle(history: History, now: float) -> list[str]:
    """Close what is open; returns a sentence for each thing that a person should know.

    Calls that were pending or running may or may not have happened; a running compaction failed; a message without an end
    gets one.
    """
    notes: list[str] = []
    for message in list(history.messages):
        for part in message.parts:
            if isinstance(part, ToolPart) and part.status in ("pending", "running"):
                closed = msgspec.structs.replace(part, status="error", error=INTERRUPTED, time_end=now)
                history.put(message.id, closed)
                if part.status == "running":
                    notes.append(
                        f"{part.title or part.tool} was interrupted: it may or may not have happened. Check before it is done again."
                    )
            elif isinstance(part, CompactionPart) and part.status == "running":
                history.put(message.id, msgspec.structs.replace(part, status="failed", error="interrupted"))
        _close(history, message, now)
    return notes


def _close(history: History, message: Message, now: float) -> None:
    if message.role == "assistant" and message.time_completed is None and message.agent != "compaction":
        error = message.error or (
            "" if any(isinstance(part, ToolPart) for part in message.parts) else "stopped: interrupted"
        )
        history.change(message.id, time_completed=now, error=error)
