"""What a cell changed: the receipt at its end, and putting it back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from nbagent.errors import NbagentError, PersonError, PlanError
from nbagent.event import ReceiptEvent
from nbagent.message import FileChange, PatchPart
from nbagent.session.plan import PlanFile
from nbagent.session.receipt import Changes
from nbagent.session.resources import Resources
from nbagent.session.run import Run
from nbagent.session.state import state_data, state_from
from nbagent.session.undo import UndoResult
from nbagent.tools.diff import unified

HURRY = 0.5
"""Seconds that a stopped cell waits for its receipt."""


def begin(run: Run) -> None:
    """Look at the files before anything can change them; beside the first model call, so that nobody waits for it.

    A confined run has no need of it: it can write its plan and nothing else.
    """
    snapshots = run.resources.snapshots
    if snapshots is not None and run.parent is None and not run.confined and run.before is None:
        run.before = asyncio.create_task(snapshots.take())


async def note(run: Run, effects: tuple[str, ...]) -> None:
    """A tool is about to write these: wait for the look before, and keep what snapshots leave out (ignored files)."""
    snapshots = run.resources.snapshots
    before = run.top.before
    if before is None or snapshots is None:
        return
    with snapshots.precedence.waiting():
        snapshot = await asyncio.shield(before)
    for effect in effects:
        kind, _, path = effect.partition(":")
        if kind == "write":
            await snapshots.note(run.resources.root.path / path, snapshot)


def aside(run: Run, effect: str) -> contextlib.AbstractContextManager[None]:
    """A tool with ``effect`` is at work inside. While it only reads the look before stands aside, until a tool that changes something
    waits for it."""
    snapshots = run.resources.snapshots
    return contextlib.nullcontext() if snapshots is None or effect != "reads" else snapshots.precedence.working()


async def close(run: Run, plan_before: str | None, *, hurry: bool = False) -> tuple[FileChange, ...]:
    """The receipt: shown, stored, and kept for undo. A receipt that cannot be made is said and loses nothing else.

    ``hurry``: the person pressed Stop; a large project is compared on after the cell has ended, for undo.
    """
    files: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        found = await (_soon(run) if hurry else _compare(run))
        files, notes = (found.files, found.notes) if found is not None else ((), ())
    except asyncio.CancelledError:
        notes = ("Stopped before what changed could be told; `%agent undo` does not cover this cell.",)
    except NbagentError as error:
        notes = (f"What changed could not be told: {error}",)
    plan = run.plan
    if plan is not None and not any(each.path == plan.shown for each in files):
        try:
            change = plan_change(plan, plan_before)
        except PlanError as error:
            change, notes = None, (*notes, str(error))
        files = (*files, change) if change is not None else files
    run.emit(ReceiptEvent(files=files, notes=notes, plan=plan.shown if plan is not None else "", confined=run.confined))
    return files


async def settled(resources: Resources, session_id: str) -> None:
    """Wait until what a stopped cell left to be compared is kept."""
    task = resources.closing.pop(session_id, None)
    if task is not None:
        await asyncio.wait({task})


async def _soon(run: Run) -> Changes | None:
    found: list[Changes | None] = []

    async def work() -> None:
        with contextlib.suppress(NbagentError):
            found.append(await _compare(run))

    task = run.resources.beside(work())
    run.resources.closing[run.session_id] = task
    await asyncio.wait({task}, timeout=HURRY)
    if task.done():
        run.resources.closing.pop(run.session_id, None)
        return found[0] if found else None
    return Changes((), ("The files are still being compared; `%agent undo` waits for that.",))


async def _compare(run: Run) -> Changes | None:
    snapshots = run.resources.snapshots
    if run.before is None or snapshots is None:
        return None
    with snapshots.precedence.waiting():
        before = await asyncio.shield(run.before)
        after = await asyncio.shield(asyncio.create_task(snapshots.take(since=before)))
    changes = await snapshots.compare(before, after)
    if run.history.messages:
        part = PatchPart(id=run.new_id("prt"), before=before, after=after, files=changes.files, notes=changes.notes)
        run.history.put(run.history.messages[-1].id, part)
    if changes.files:
        run.state.undo = [*run.state.undo, {"before": before, "after": after}]
        run.state.redo = []
        run.save()
    return changes


def plan_change(plan: PlanFile, before: str | None) -> FileChange | None:
    """What happened to a plan file since ``before``."""
    now = plan.text()
    if now == before:
        return None
    status: Literal["added", "modified", "deleted"] = "added" if before is None else "modified"
    if now is None:
        status = "deleted"
    diff = unified(before or "", now or "", plan.shown, new=before is None, gone=now is None)
    return FileChange(path=plan.shown, status=status, additions=diff.additions, deletions=diff.deletions)


async def undo(resources: Resources, session_id: str) -> UndoResult:
    """Put files back as they were before the last cell of a session that changed any."""
    return await _turn(resources, session_id, forth=False)


async def redo(resources: Resources, session_id: str) -> UndoResult:
    """Apply again what was undone last."""
    return await _turn(resources, session_id, forth=True)


def _none_left(undone: list[dict[str, str]]) -> str:
    if undone:
        return "undo any more: all that cells of this session changed is undone"
    return "undo: no cell of this session changed a file"


async def _turn(resources: Resources, session_id: str, *, forth: bool) -> UndoResult:
    await settled(resources, session_id)
    snapshots = resources.snapshots
    state = state_from(resources.store.session(session_id).state)
    stack = state.redo if forth else state.undo
    if snapshots is None or not stack:
        raise PersonError(f"There is nothing to {'redo' if forth else _none_left(state.redo)}.")
    entry = stack[-1]
    work = snapshots.redo if forth else snapshots.undo
    result = await work(entry["before"], entry["after"])
    if forth:
        state.redo, state.undo = stack[:-1], [*state.undo, entry]
    else:
        state.undo, state.redo = stack[:-1], [*state.redo, entry]
    resources.store.update_session(session_id, state=state_data(state))
    return result
