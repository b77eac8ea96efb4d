"""A notebook file as text with known places, so that changing one cell leaves every other byte alone. Pure.

The JSON is read once with the places of the cells and of their values; a change replaces just those, in the style of the
file (indent, separators, key order, escapes, list or string sources, line breaks, byte order mark).
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nbagent.errors import ToolError
from nbagent.tools.json_places import Element, Span, elements_at, object_at, skip, value_at

_CONFLICT = re.compile(r"^(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|) ", re.MULTILINE)
_ID = re.compile(r"^[a-zA-Z0-9-_]{1,64}$")
_LONE = re.compile("[\ud800-\udfff]")


def content_hash(source: str) -> str:
    """The version of a cell's source: eight hex digits."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:8]


@dataclass
class FileCell:
    """A cell of the file. ``name``: its id, else ``#3`` by its place (from 0). ``spans``: its values by key."""

    name: str
    start: int
    end: int
    value: dict[str, Any]
    spans: dict[str, Span]

    @property
    def kind(self) -> str:
        return str(self.value.get("cell_type", ""))


@dataclass
class NotebookFile:
    """``text``: without the byte order mark. ``array``: where the list of cells stands."""

    text: str
    bom: bytes
    value: dict[str, Any]
    major: int
    minor: int
    cells: list[FileCell]
    array: Span
    style: Style
    ids: bool = field(default=False)

    def source(self, cell: FileCell) -> str:
        """A cell's source as one string."""
        return joined(cell.value.get(self.source_key(cell.kind), ""))

    def source_key(self, kind: str) -> str:
        return "input" if self.major < 4 and kind == "code" else "source"

    def find(self, name: str) -> FileCell:
        """Raises ``ToolError`` naming the cells there are."""
        for cell in self.cells:
            if cell.name == name:
                return cell
        known = ", ".join(cell.name for cell in self.cells[:30]) + (" …" if len(self.cells) > 30 else "")
        raise ToolError(f"There is no cell {name!r}. The cells are: {known or 'none'}. Read the notebook again.")

    def encode(self, text: str) -> bytes:
        return self.bom + text.encode("utf-8")


def joined(source: Any) -> str:
    """An nbformat text (one string or a list of lines) as one string."""
    if isinstance(source, list):
        return "".join(piece for piece in source if isinstance(piece, str))
    return source if isinstance(source, str) else ""


# reading


def parse(data: bytes, shown: str) -> NotebookFile:
    """Raises ``ToolError`` that says what is wrong with the file and what to do."""
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = data[len(bom) :].decode("utf-8")
    except UnicodeDecodeError:
        raise ToolError(f"{shown} is not UTF-8 text, so it is no notebook that can be read.") from None
    if not text.strip():
        raise ToolError(f"{shown} is empty, so it is no notebook.")
    cells: list[Element] = []

    def member(key: str, at: int) -> Span:
        if key != "cells" or text[at] != "[":
            return value_at(text, at)
        cells[:], end = elements_at(text, at)
        return Span(at, end, [element.value for element in cells])

    try:
        top, end = object_at(text, skip(text, 0), member)
        if skip(text, end) != len(text):
            raise ValueError("something follows the notebook")
    except (ValueError, RecursionError, IndexError) as error:
        raise ToolError(_broken(text, shown, error)) from None
    return _notebook(text, bom, top, cells, shown)


def _notebook(text: str, bom: bytes, top: dict[str, Span], elements: list[Element], shown: str) -> NotebookFile:
    value = {key: span.value for key, span in top.items()}
    major, minor = value.get("nbformat"), value.get("nbformat_minor", 0)
    if not isinstance(major, int) or not isinstance(minor, int) or not ("cells" in value or "worksheets" in value):
        raise ToolError(f"{shown} is JSON, but not a notebook (it has no nbformat and cells).")
    if major < 3 or major > 4:
        raise ToolError(
            f"{shown} has notebook format {major}.{minor}; formats 3 and 4 can be read. Open and save it in Jupyter first."
        )
    array = top.get("cells") if major == 4 else _worksheet(text, top.get("worksheets"))
    if array is None or not isinstance(array.value, list):
        raise ToolError(f"{shown} has no list of cells.")
    cells = _cells(elements if major == 4 else elements_at(text, array.start)[0], shown)
    ids = major == 4 and minor >= 5
    if ids:
        _refuse_duplicates(cells, shown)
    for index, cell in enumerate(cells):
        own = cell.value.get("id")
        cell.name = own if ids and isinstance(own, str) and own else f"#{index}"
    return NotebookFile(text, bom, value, major, minor, cells, array, style_of(text, array, cells), ids)


def _worksheet(text: str, span: Span | None) -> Span | None:
    if span is None or not isinstance(span.value, list) or not span.value:
        return None
    first = elements_at(text, span.start)[0][0]
    return first.spans.get("cells") if first.spans is not None else None


def _cells(elements: list[Element], shown: str) -> list[FileCell]:
    cells = []
    for element in elements:
        if element.spans is None:
            raise ToolError(f"{shown} has a cell that is not an object.")
        cells.append(FileCell("", element.start, element.end, element.value, element.spans))
    return cells


def _refuse_duplicates(cells: list[FileCell], shown: str) -> None:
    counts = Counter(cell.value["id"] for cell in cells if isinstance(cell.value.get("id"), str))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ToolError(
            f"{shown} has the same cell id more than once ({', '.join(twice[:10])}), so a cell cannot be named safely. "
            "Was its content doubled? Repair it (opening and saving it in JupyterLab gives new ids), then read it again."
        )


def _broken(text: str, shown: str, error: Exception) -> str:
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        return f"{shown} has merge conflict markers (line {line}), so it is not valid JSON. Resolve the conflict first."
    where = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
    return f"{shown} is not valid JSON{where}, so it cannot be read as a notebook. Nothing was changed."


# style


@dataclass(frozen=True, slots=True)
class Style:
    """How the file is written. ``indent``: of one level, None for everything on one line."""

    indent: str | None
    comma: str
    colon: str
    newline: str
    ascii: bool
    lists: bool
    depth: int
    order: dict[str, tuple[str, ...]]

    def dump(self, value: Any, depth: int) -> str:
        """``value`` as this file would have it, ``depth`` levels deep."""
        layout = {"indent": self.indent, "separators": (self.comma, self.colon)}
        text = json.dumps(value, ensure_ascii=self.ascii, **layout)  # type: ignore[arg-type]
        if _LONE.search(text):  # half a character can only be written as an escape
            text = json.dumps(value, ensure_ascii=True, **layout)  # type: ignore[arg-type]
        if self.indent is not None:
            text = text.replace("\n", self.newline + self.indent * depth)
        return text


def style_of(text: str, array: Span, cells: list[FileCell]) -> Style:
    """The style of a notebook's text."""
    head = text[: array.start]
    first = re.match(r"\{(\r?\n)([ \t]*)", text.lstrip())
    indent = first[2] if first else None
    newline = first[1] if first else "\n"
    colon = ": " if re.search(r'":\s', head or text) else ":"
    inline = re.search(r'[\]}"\d],( ?)"', text) if indent is None else None
    comma = ("," if inline is not None and not inline[1] else ", ") if indent is None else ","
    sources = [cell.value.get("source", cell.value.get("input")) for cell in cells]
    filled = [source for source in sources if source]
    lists = sum(isinstance(source, list) for source in filled) * 2 >= len(filled)
    order: dict[str, tuple[str, ...]] = {}
    for cell in cells:
        order.setdefault(cell.kind, tuple(cell.spans))
    plain = text.isascii()
    escaped = plain and re.search(r"(?<!\\)(?:\\\\)*\\u[0-9a-fA-F]{4}", text) is not None
    depth = 2 if indent is not None else 0
    if cells and indent:
        line = text.rfind("\n", 0, cells[0].start)
        lead = text[line + 1 : cells[0].start]
        if not lead.strip():
            depth = max(1, len(lead) // len(indent))
    return Style(indent, comma, colon, newline, escaped, lists, depth, order)


def lines_of(source: str) -> list[str]:
    """A source as nbformat keeps it in a list: lines with their breaks."""
    return re.findall(r"[^\n]*\n|[^\n]+", source)


# writing


@dataclass
class Draft:
    """A cell as it will be written: ``raw``, its JSON text. ``origin``: the cell of the file that it was (None: new)."""

    name: str
    raw: str
    kind: str
    source: str
    origin: FileCell | None = None
    fresh: bool = False


def drafts_of(notebook: NotebookFile) -> list[Draft]:
    """The cells as they stand."""
    return [
        Draft(cell.name, notebook.text[cell.start : cell.end], cell.kind, notebook.source(cell), cell)
        for cell in notebook.cells
    ]


def with_source(notebook: NotebookFile, draft: Draft, source: str) -> Draft:
    """``draft`` with another source; a code cell's outputs and its number, which are of the old one, are cleared."""
    if source == draft.source:
        return draft
    spans, _ = object_at(draft.raw, 0)
    key = notebook.source_key(draft.kind)
    changes: list[tuple[int, int, str]] = []
    old = spans.get(key)
    depth = notebook.style.depth + 1
    if old is None:
        raise ToolError(f"Cell {draft.name} has no {key}.")
    changes.append((old.start, old.end, _source_text(notebook, draft.raw, old, source, depth)))
    if draft.kind == "code":
        for name, empty in (("outputs", []), ("execution_count", None), ("prompt_number", None)):
            span = spans.get(name)
            if span is not None and span.value != empty:
                changes.append((span.start, span.end, notebook.style.dump(empty, depth)))
    return Draft(draft.name, _spliced(draft.raw, changes), draft.kind, source, draft.origin, draft.fresh)


def _source_text(notebook: NotebookFile, raw: str, old: Span, source: str, depth: int) -> str:
    """The new source in the form of the old one; lines that were there keep their very bytes."""
    style = notebook.style
    if isinstance(old.value, str) and not (old.value == "" and style.lists and source):
        return style.dump(source, depth)
    lines = lines_of(source)
    if not lines or style.indent is None or not isinstance(old.value, list):
        return style.dump(lines, depth)
    kept = {
        span.value: raw[span.start : span.end] for span in elements_at(raw, old.start)[0] if isinstance(span.value, str)
    }
    pad = style.newline + style.indent * (depth + 1)
    inner = f",{pad}".join(kept.get(line, style.dump(line, depth + 1)) for line in lines)
    return f"[{pad}{inner}{style.newline}{style.indent * depth}]"


def _spliced(text: str, changes: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def new_draft(notebook: NotebookFile, kind: str, source: str, cell_id: str) -> Draft:
    """A new cell in the style of the file; it has an id only where the format has ids."""
    value = _blank(notebook, kind)
    if notebook.ids:
        value["id"] = cell_id
    key = notebook.source_key(kind)
    value[key] = lines_of(source) if notebook.style.lists else source
    name = cell_id if notebook.ids else f"new {cell_id}"
    return Draft(name, _dump_cell(notebook, kind, value), kind, source, None, fresh=True)


def _blank(notebook: NotebookFile, kind: str) -> dict[str, Any]:
    value: dict[str, Any] = {"cell_type": kind, "metadata": {}}
    if kind == "code" and notebook.major < 4:
        return {**value, "collapsed": False, "language": "python", "outputs": []}
    if kind == "code":
        return {**value, "execution_count": None, "outputs": []}
    return value


def _dump_cell(notebook: NotebookFile, kind: str, value: dict[str, Any]) -> str:
    order = notebook.style.order.get(kind) or tuple(sorted(value))
    keys = [key for key in order if key in value] + [key for key in sorted(value) if key not in order]
    if notebook.style.order and kind not in notebook.style.order:
        keys = sorted(value)
    return notebook.style.dump({key: value[key] for key in keys}, notebook.style.depth)


def with_kind(notebook: NotebookFile, draft: Draft, kind: str) -> Draft:
    """``draft`` as another type of cell: id, metadata and source stay; what only the old type has goes."""
    if kind == draft.kind:
        return draft
    old = json.loads(draft.raw)
    value = _blank(notebook, kind)
    value["metadata"] = old.get("metadata", {})
    if "id" in old:
        value["id"] = old["id"]
    if kind != "code" and draft.kind != "code" and "attachments" in old:
        value["attachments"] = old["attachments"]
    source = old.get(notebook.source_key(draft.kind), "")
    value[notebook.source_key(kind)] = source
    return Draft(draft.name, _dump_cell(notebook, kind, value), kind, draft.source, draft.origin, draft.fresh)


def with_id(notebook: NotebookFile, draft: Draft, cell_id: str) -> Draft:
    """``draft`` with an id, where the format has ids and this cell lacks one."""
    value = json.loads(draft.raw)
    if not notebook.ids or isinstance(value.get("id"), str):
        return draft
    style = notebook.style
    member = f"{json.dumps('id')}{style.colon}{json.dumps(cell_id)}"
    at = skip(draft.raw, 1)
    between = draft.raw[1:at]
    raw = f"{{{between}{member},{between or ('' if style.indent is not None else style.comma[1:])}{draft.raw[at:]}"
    return Draft(draft.name, raw, draft.kind, draft.source, draft.origin, draft.fresh)


def render(notebook: NotebookFile, drafts: list[Draft]) -> str:
    """The file's text with these cells; joints between cells that were neighbours stay as they were."""
    text, array, style = notebook.text, notebook.array, notebook.style
    if not drafts:
        return f"{text[: array.start]}[]{text[array.end :]}"
    cells = notebook.cells
    gap = (style.newline + style.indent * style.depth) if style.indent is not None else ""
    tail = (style.newline + style.indent * (style.depth - 1)) if style.indent is not None else ""
    lead = text[array.start + 1 : cells[0].start] if cells else gap
    close = text[cells[-1].end : array.end - 1] if cells else tail
    joints = {id(a): text[a.end : b.start] for a, b in pairwise(cells)}
    usual = Counter(joints.values()).most_common(1)[0][0] if joints else f"{style.comma}{gap}"
    following = {id(a): b for a, b in pairwise(cells)}
    pieces = [lead]
    for index, draft in enumerate(drafts):
        pieces.append(draft.raw)
        if index + 1 < len(drafts):
            after, here = drafts[index + 1].origin, draft.origin
            together = here is not None and after is not None and following.get(id(here)) is after
            pieces.append(joints[id(here)] if together else usual)
    return f"{text[: array.start]}[{''.join(pieces)}{close}]{text[array.end :]}"


# validity


def problem(value: dict[str, Any]) -> str:
    """What makes a notebook invalid for its own format, in one line; "" when it is valid. Missing ids are allowed."""
    from nbformat.validator import get_validator

    major, minor = int(value["nbformat"]), int(value.get("nbformat_minor", 0))
    validator = get_validator(major, minor if major == 4 else None, relax_add_props=True)
    if validator is None:
        return f"nbformat {major}.{minor} is not known"
    checked = value
    if major == 4 and minor >= 5:
        cells = [
            {**cell, "id": f"missing-{index}"} if isinstance(cell, dict) and "id" not in cell else cell
            for index, cell in enumerate(value.get("cells", []))
        ]
        checked = {**value, "cells": cells}
    for error in validator.iter_errors(checked):
        where = "/".join(str(part) for part in getattr(error, "path", ()))
        return f"{where or 'notebook'}: {str(getattr(error, 'message', error)).splitlines()[0][:200]}"
    return ""


def valid_id(name: str) -> bool:
    """Whether nbformat allows this as a cell's id."""
    return _ID.match(name) is not None
