"""``notebook_edit``: cells inserted, replaced, edited, deleted, moved and retyped, by id and against what was read.

The open notebook is changed in the editor's own document (undoable, unsaved work kept); every other one in its file, where all
bytes but those of the touched cells stay.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from nbagent.errors import ArgumentError, ToolError
from nbagent.frontend import CellResult
from nbagent.permission.ask import Preview
from nbagent.permission.path import path_effects, path_needs
from nbagent.root import Handle
from nbagent.tools.access import may_show, refused
from nbagent.tools.diff import unified
from nbagent.tools.notebook_change import Change, Operation, changed
from nbagent.tools.notebook_file import content_hash, joined, parse, problem, render
from nbagent.tools.notebook_place import MAX_SIZE, Found, find
from nbagent.tools.seen import MAX_HASHED, remember
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread


class NotebookEditArguments(Arguments, frozen=True, kw_only=True):
    operations: Annotated[list[Operation], Meta(description="carried out in this order, all or none")]
    filePath: Annotated[str, Meta(description="the notebook; left out: the one this was asked in")] = ""  # noqa: N815


@dataclass
class Prepared:
    """A file that will be changed: its opened folder, its bytes, and what they become."""

    found: Found
    handle: Handle
    before: bytes
    after: bytes
    result: CellResult
    changes: tuple[Change, ...]


class NotebookEdit(Tool[NotebookEditArguments]):
    name = "notebook_edit"
    permission = "edit"
    effect = "writes"
    hint = "change the cells of a notebook"
    arguments = NotebookEditArguments

    def declare(self, arguments: NotebookEditArguments, context: ToolContext) -> Declaration:
        found = find(arguments.filePath, context)
        place = found.place
        needs = path_needs("edit", place)
        title = f"{self.name} {place.pattern}"
        effects = path_effects("write", place)
        notes = (f"{place.spelled} is a link: it leads to {place.pattern}",) if place.linked else ()
        if refused(needs, context.rules):
            return Declaration(title, needs, effects=effects, notes=notes, subject=found)
        if not arguments.operations:
            raise ArgumentError("operations is empty: send at least one.")
        for operation in arguments.operations:
            operation.check()
        if found.live is not None:
            text = "\n\n".join(operation.words() for operation in arguments.operations)
            return Declaration(title, needs, Preview("text", text), effects, notes, found)
        _refuse_unsaved(found, context)
        reveal = may_show(place, context.rules)
        try:
            prepared = prepare(found, arguments.operations, context)
        except ToolError:
            if reveal:
                raise
            return Declaration(title, needs, effects=effects, notes=notes, subject=found)
        return Declaration(
            title, needs, Preview("diff", diff_of(prepared)), effects, notes, prepared, prepared.handle.close
        )

    async def act(self, arguments: NotebookEditArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        subject = declaration.subject
        if isinstance(subject, Found) and subject.live is not None:
            return await _act_live(subject, arguments, declaration.title)

        def work() -> Prepared:
            # What was found when the call was decided: the spelling may lead elsewhere by now.
            prepared = subject if isinstance(subject, Prepared) else prepare(subject, arguments.operations, context)
            _write(prepared)
            return prepared

        prepared = await in_thread(work)
        if len(prepared.after) <= MAX_HASHED:
            context.reads.saw(prepared.found.place.real, remember(prepared.after), False)
        where = prepared.found.place.pattern
        lines = (
            list(prepared.result.lines)
            if prepared.after != prepared.before
            else [f"{where} is as asked already; nothing was written."]
        )
        if prepared.found.here and prepared.after != prepared.before:
            lines.append("The file was changed on disk: an editor that has it open will ask to reload it.")
        return ToolResult(declaration.title, "\n".join(lines), _metadata(where, prepared.result, diff_of(prepared)))


def _metadata(path: str, result: CellResult, diff: str) -> dict[str, Any]:
    return {"path": path, "diff": diff, "new_ids": list(result.new_ids)}


def _refuse_unsaved(found: Found, context: ToolContext) -> None:
    own = context.frontend.notebook
    if own is not None and str(found.place.real) in own.open_paths():
        raise ToolError(
            f"{found.place.pattern} is open with unsaved changes, which a change of the file would fight with. Ask the person to save it."
        )


def prepare(found: Found, operations: list[Operation], context: ToolContext) -> Prepared:
    """The file opened and the change worked out. Raises ``ToolError``; nothing is written."""
    place = found.place
    if not place.real.exists():
        raise ToolError(f"{place.pattern} does not exist. A notebook is made by the person, in Jupyter.")
    handle = place.open_parent()
    try:
        before = handle.read_bytes(MAX_SIZE + 1)
        if len(before) > MAX_SIZE:
            raise ToolError(f"{place.pattern} is larger than {MAX_SIZE // 1024 // 1024} MB. Clear its outputs first.")
        notebook = parse(before, place.pattern)
        wrong = problem(notebook.value)
        if wrong:
            raise ToolError(
                f"{place.pattern} is not a valid notebook ({wrong}), so it is left alone. Open and save it in Jupyter first."
            )
        done = changed(notebook, operations, _new_ids(context.call_id))
        after = notebook.encode(render(notebook, done.drafts)) if done.drafts is not None else before
        wrong = "" if after == before else problem(parse(after, place.pattern).value)
        if wrong:
            raise ToolError(f"The change would make {place.pattern} invalid ({wrong}); nothing was written.")
    except BaseException:
        handle.close()
        raise
    return Prepared(found, handle, before, after, CellResult(done.lines, done.new_ids), done.changes)


def _new_ids(seed: str) -> Any:
    """Fresh ids that are the same for the same call, so that a played run gives the same file."""

    def make(number: int) -> str:
        return hashlib.sha256(f"{seed}:{number}".encode()).hexdigest()[:8]

    return make


def _write(prepared: Prepared) -> None:
    handle = prepared.handle
    now = handle.read_bytes(MAX_SIZE + 1)
    if now != prepared.before:
        raise ToolError(
            f"{prepared.found.place.pattern} was changed by someone else while this call was decided; nothing was written. Read it again."
        )
    if prepared.after != prepared.before:
        handle.write_bytes(prepared.after)


def diff_of(prepared: Prepared) -> str:
    """What changes, cell by cell, as unified diffs of their sources."""
    return cells_diff(prepared.found.place.pattern, prepared.changes)


def cells_diff(path: str, changes: tuple[Change, ...]) -> str:
    """Unified diffs of sources, one a cell, and a line for what only moved."""
    parts = []
    for change in changes:
        name = f"{path} cell {change.name}"
        if change.before == change.after:
            parts.append(f"# {change.what} cell {change.name}\n")
        else:
            new, gone = change.what == "inserted", change.what == "deleted"
            parts.append(unified(change.before, change.after, name, new=new, gone=gone).text)
    return "".join(parts)


async def _act_live(found: Found, arguments: NotebookEditArguments, title: str) -> ToolResult:
    live = found.live
    assert live is not None
    cells = await live.cells()
    sources = {str(cell.get("id")): joined(cell.get("source")) for cell in cells}
    operations = [_live_operation(operation, sources) for operation in arguments.operations]
    result = await live.apply(operations)
    changes = tuple(_live_change(operation, sources) for operation in arguments.operations)
    lines = [*result.lines, "Changed in the open notebook (undoable there)."]
    return ToolResult(
        title, "\n".join(lines), _metadata(found.place.pattern, result, cells_diff(found.place.pattern, changes))
    )


def _live_operation(operation: Operation, sources: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        key: value for key, value in msgspec.to_builtins(operation).items() if value or key == "source"
    }
    fields.pop("hash", None)
    if operation.op == "edit":
        fields["new"] = operation.new or ""
    if operation.op == "insert":
        return fields
    source = sources.get(operation.id)
    if source is None:
        raise ToolError(f"There is no cell {operation.id} in the open notebook. Read it again.")
    if content_hash(source) != operation.hash:
        raise ToolError(
            f"Cell {operation.id} changed since it was read (hash {content_hash(source)}). It is now:\n{source}"
        )
    return {**fields, "expected": source}


def _live_change(operation: Operation, sources: dict[str, str]) -> Change:
    before = sources.get(operation.id, "")
    what: Literal["inserted", "changed", "deleted", "moved", "retyped"] = operation.what
    if operation.op == "edit":
        after = before.replace(operation.old, operation.new or "", -1 if operation.all else 1)
    elif operation.op in ("insert", "replace"):
        after = operation.source or ""
    else:
        after = "" if operation.op == "delete" else before
    return Change(operation.id or "(new)", what, before, after)
