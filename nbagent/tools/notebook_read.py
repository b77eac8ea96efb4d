"""``notebook_read``: the cells of a notebook with ids, hashes, types, sources and outputs cut to size."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.message import Attachment
from nbagent.permission.path import path_needs
from nbagent.tools.access import refused
from nbagent.tools.notebook_file import joined, parse
from nbagent.tools.notebook_place import Found, find, read_file
from nbagent.tools.notebook_text import cell_text, pictures
from nbagent.tools.seen import MAX_HASHED, remember
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread

PICTURES = 4


class NotebookReadArguments(Arguments, frozen=True, kw_only=True):
    filePath: Annotated[str, Meta(description="the notebook; left out: the one this was asked in")] = ""  # noqa: N815
    cells: Annotated[list[str], Meta(description="ids of the cells to show, less cut; left out: all")] = []


class NotebookRead(Tool[NotebookReadArguments]):
    name = "notebook_read"
    permission = "read"
    effect = "reads"
    hint = "read a notebook by cell"
    arguments = NotebookReadArguments
    parallel = True

    def declare(self, arguments: NotebookReadArguments, context: ToolContext) -> Declaration:
        found = find(arguments.filePath, context)
        needs = path_needs("read", found.place)
        title = f"{self.name} {found.place.pattern}"
        if refused(needs, context.rules):
            return Declaration(title, needs, subject=found)
        notes = (f"{found.place.spelled} is a link: it leads to {found.place.pattern}",) if found.place.linked else ()
        return Declaration(title, needs, notes=notes, subject=found)

    async def act(self, arguments: NotebookReadArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        found: Found = declaration.subject
        shown = found.place.pattern
        if found.live is not None:
            cells = _named(await found.live.cells())
            head = f"{shown}, as it is open in the browser (unsaved work included)"
        else:
            head, cells, data = await in_thread(lambda: _from_file(found))
            if len(data) <= MAX_HASHED:
                context.reads.saw(found.place.real, remember(data), False)
        output, images = _told(head, cells, arguments.cells)
        return ToolResult(declaration.title, output, {"path": shown, "cells": len(cells)}, tuple(images))


def _named(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**cell, "id": cell.get("id") or f"#{index}"} for index, cell in enumerate(cells)]


def _from_file(found: Found) -> tuple[str, list[dict[str, Any]], bytes]:
    data = read_file(found.place)
    notebook = parse(data, found.place.pattern)
    cells = [
        {
            **cell.value,
            "id": cell.name,
            "source": notebook.source(cell),
            "execution_count": cell.value.get("execution_count", cell.value.get("prompt_number")),
        }
        for cell in notebook.cells
    ]
    kernel = notebook.value.get("metadata", {})
    kernel = kernel.get("kernelspec", {}) if isinstance(kernel, dict) else {}
    language = kernel.get("name", "") if isinstance(kernel, dict) else ""
    head = (
        f"{found.place.pattern}, nbformat {notebook.major}.{notebook.minor}{', kernel ' + language if language else ''}"
    )
    return head, cells, data


def _told(head: str, cells: list[dict[str, Any]], wanted: list[str]) -> tuple[str, list[Attachment]]:
    known = [str(cell["id"]) for cell in cells]
    names = [name.removeprefix("cell:") for name in wanted]
    missing = [name for name in names if name not in known]
    if missing:
        listed = ", ".join(known[:30]) + (" …" if len(known) > 30 else "")
        raise ToolError(f"There is no cell {', '.join(missing)}. The cells are: {listed or 'none'}.")
    parts = [f"{head}, {len(cells)} cell{'' if len(cells) == 1 else 's'}"]
    images: list[Attachment] = []
    for number, cell in enumerate(cells):
        if names and cell["id"] not in names:
            continue
        parts.append(_cell(cell, number, bool(names)))
        if names:
            images += pictures(cell.get("outputs"), str(cell["id"]))
    if len(images) > PICTURES:
        parts.append(f"({len(images) - PICTURES} more pictures; ask for fewer cells to see them)")
    return "\n\n".join(parts), images[:PICTURES]


def _cell(cell: dict[str, Any], number: int, whole: bool) -> str:
    return cell_text(
        str(cell["id"]),
        str(cell.get("cell_type", "")),
        joined(cell.get("source")),
        cell.get("outputs"),
        number=number,
        count=cell.get("execution_count"),
        whole=whole,
    )
