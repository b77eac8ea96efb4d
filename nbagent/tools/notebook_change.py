"""Operations on the cells of a notebook: checked against what was read, then carried out on drafts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from nbagent.errors import ArgumentError, ToolError
from nbagent.tools.notebook_file import (
    Draft,
    NotebookFile,
    content_hash,
    drafts_of,
    new_draft,
    with_id,
    with_kind,
    with_source,
)

CellType = Literal["code", "markdown", "raw"]
What = Literal["inserted", "changed", "deleted", "moved", "retyped"]

_WHAT: dict[str, What] = {
    "insert": "inserted",
    "replace": "changed",
    "edit": "changed",
    "delete": "deleted",
    "move": "moved",
    "type": "retyped",
}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one cell."""

    op: Literal["insert", "replace", "edit", "delete", "move", "type"]
    id: Annotated[str, Meta(description="the cell, as notebook_read names it (not for insert)")] = ""
    hash: Annotated[str, Meta(description="its hash in notebook_read (not for insert)")] = ""
    cell_type: Annotated[CellType, Meta(description="for insert and type")] | UnsetType = UNSET
    source: Annotated[str, Meta(description="for insert and replace")] | UnsetType = UNSET
    old: Annotated[str, Meta(description="for edit: text in the cell")] = ""
    new: Annotated[str, Meta(description="for edit: what it becomes")] | UnsetType = UNSET
    all: Annotated[bool, Meta(description="for edit: every occurrence")] = False
    after: Annotated[str, Meta(description="anchor: id of the cell before the place")] = ""
    before: Annotated[str, Meta(description="anchor: id of the cell behind the place")] = ""
    at: Annotated[Literal["start", "end"], Meta(description="anchor: an end of the notebook")] | UnsetType = UNSET

    @property
    def what(self) -> What:
        return _WHAT[self.op]

    def check(self) -> None:
        """Raises ``ArgumentError`` that says what this operation lacks."""
        if self.op != "insert" and (not self.id or not self.hash):
            raise ArgumentError(f"{self.op} needs id and hash of the cell, as notebook_read shows them.")
        if self.op in ("insert", "replace") and self.source is UNSET:
            raise ArgumentError(f"{self.op} needs source.")
        if self.op in ("insert", "type") and self.cell_type is UNSET:
            raise ArgumentError(f"{self.op} needs cell_type: code, markdown or raw.")
        if self.op == "edit" and (not self.old or self.new is UNSET):
            raise ArgumentError("edit needs old (text that is in the cell) and new.")
        anchors = sum(map(bool, (self.after, self.before, self.at)))
        if self.op in ("insert", "move") and anchors != 1:
            raise ArgumentError(f"{self.op} needs exactly one anchor: after, before or at.")

    def words(self) -> str:
        """The operation for a person who decides about it."""
        anchor = (
            f"after {self.after}" if self.after else f"before {self.before}" if self.before else f"at the {self.at}"
        )
        where = f" {anchor}" if self.op in ("insert", "move") else ""
        kind = f" {self.cell_type}" if self.cell_type else ""
        head = f"{self.op}{kind} cell{' ' + self.id if self.id else ''}{where}"
        if self.op == "edit":
            return f"{head}\n- {self.old}\n+ {self.new}"
        return f"{head}\n{self.source}" if self.source is not UNSET else head


@dataclass(frozen=True, slots=True)
class Change:
    """One cell before and after, for a person to look at."""

    name: str
    what: What
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Done:
    """The cells as they become, a line an operation, the ids of new cells, and what changed."""

    drafts: list[Draft]
    lines: tuple[str, ...]
    new_ids: tuple[str, ...]
    changes: tuple[Change, ...]


def changed(notebook: NotebookFile, operations: list[Operation], new_id: Callable[[int], str]) -> Done:
    """Carry out ``operations`` on the cells of ``notebook``. Raises ``ToolError`` when one of them cannot be."""
    work = _Work(notebook, new_id)
    for operation in operations:
        operation.check()
        work.carry_out(operation)
    return Done(work.drafts, tuple(work.lines), tuple(work.new_ids), tuple(work.changes))


class _Work:
    def __init__(self, notebook: NotebookFile, new_id: Callable[[int], str]) -> None:
        self._notebook = notebook
        self._new_id = new_id
        self._made = 0
        self._first = {cell.name: notebook.source(cell) for cell in notebook.cells}
        self.drafts = drafts_of(notebook)
        self.lines: list[str] = []
        self.new_ids: list[str] = []
        self.changes: list[Change] = []

    def carry_out(self, operation: Operation) -> None:
        if operation.op == "insert":
            self._insert(operation)
            return
        index = self._index(operation.id)
        draft = self.drafts[index]
        self._refuse_stale(operation, draft)
        if operation.op in ("replace", "edit"):
            self._change(index, draft, self._source(operation, draft))
        elif operation.op == "delete":
            del self.drafts[index]
            self._note(f"Deleted cell {draft.name}.", Change(draft.name, "deleted", draft.source, ""))
        elif operation.op == "move":
            self._move(operation, index, draft)
        else:
            self._retype(operation, index, draft)

    def _insert(self, operation: Operation) -> None:
        at = self._anchor(operation)
        kind, source = operation.cell_type or "code", operation.source or ""
        draft = new_draft(self._notebook, kind, source, self._fresh_id())
        self.drafts.insert(at, draft)
        self.new_ids.append(draft.name)
        self._note(f"Inserted {kind} cell {draft.name} at place {at}.", Change(draft.name, "inserted", "", source))

    def _change(self, index: int, draft: Draft, source: str) -> None:
        if source == draft.source:
            self.lines.append(f"Cell {draft.name} has this source already.")
            return
        self.drafts[index] = self._named(with_source(self._notebook, draft, source))
        cleared = (
            " Its outputs were of the old source and are cleared." if draft.kind == "code" and draft.origin else ""
        )
        self._note(
            f"Changed cell {draft.name}; its hash is {content_hash(source)} now.{cleared}",
            Change(draft.name, "changed", draft.source, source),
        )

    def _move(self, operation: Operation, index: int, draft: Draft) -> None:
        if draft.name in (operation.after, operation.before):
            raise ToolError(f"Cell {draft.name} cannot be moved next to itself.")
        del self.drafts[index]
        at = self._anchor(operation)
        self.drafts.insert(at, draft)
        self._note(f"Moved cell {draft.name} to place {at}.", Change(draft.name, "moved", draft.source, draft.source))

    def _retype(self, operation: Operation, index: int, draft: Draft) -> None:
        kind = operation.cell_type or draft.kind
        self.drafts[index] = self._named(with_kind(self._notebook, draft, kind))
        self._note(f"Cell {draft.name} is {kind} now.", Change(draft.name, "retyped", draft.source, draft.source))

    def _named(self, draft: Draft) -> Draft:
        """A touched cell that lacks an id where the format wants one gets it."""
        if not self._notebook.ids or not draft.name.startswith("#"):
            return draft
        fresh = self._fresh_id()
        self.lines.append(f"Cell {draft.name} had no id and got {fresh}.")
        return with_id(self._notebook, draft, fresh)

    def _source(self, operation: Operation, draft: Draft) -> str:
        if operation.op == "replace":
            return operation.source or ""
        old, new = operation.old, operation.new or ""
        times = draft.source.count(old)
        if times == 0:
            raise ToolError(f"The text to replace is not in cell {draft.name}. It is now:\n{draft.source}")
        if times > 1 and not operation.all:
            raise ToolError(f"The text to replace is {times} times in cell {draft.name}: give more of it, or send all.")
        return draft.source.replace(old, new)

    def _refuse_stale(self, operation: Operation, draft: Draft) -> None:
        given = operation.hash
        known = {content_hash(draft.source), content_hash(self._first.get(draft.name, draft.source))}
        if given not in known:
            raise ToolError(
                f"Cell {draft.name} is not what you read (its hash is {content_hash(draft.source)}, not {given}); nothing was "
                f"changed. It is now:\n{draft.source}"
            )

    def _index(self, name: str) -> int:
        for index, draft in enumerate(self.drafts):
            if draft.name == name:
                return index
        self._notebook.find(name)
        raise ToolError(f"Cell {name} was deleted by an operation before this one.")

    def _anchor(self, operation: Operation) -> int:
        if operation.after:
            return self._index(operation.after) + 1
        if operation.before:
            return self._index(operation.before)
        return 0 if operation.at == "start" else len(self.drafts)

    def _fresh_id(self) -> str:
        taken = {draft.name for draft in self.drafts} | set(self._first)
        while True:
            self._made += 1
            name = self._new_id(self._made)
            if name not in taken:
                return name

    def _note(self, line: str, change: Change) -> None:
        self.lines.append(line)
        self.changes.append(change)
