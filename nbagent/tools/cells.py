"""The lines of a notebook that a search looks at: sources and outputs by cell, never the JSON around them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_SIZE = 64 * 1024 * 1024
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def notebook_lines(path: str) -> list[tuple[str, str]]:
    """(where, line) for every line of a notebook's sources and text outputs; empty for what is no notebook.

    ``where`` is ``cell ID line 3`` or ``cell ID output``; cells without an id go by their number (``#0``).
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            raw = file.read(MAX_SIZE + 1)
        notebook = json.loads(raw.decode("utf-8-sig", "replace")) if len(raw) <= MAX_SIZE else None
    except (OSError, ValueError, RecursionError):
        return []
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return []
    return [pair for index, cell in enumerate(cells) if isinstance(cell, dict) for pair in _cell_lines(index, cell)]


def _cell_lines(index: int, cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    name = cell.get("id") if isinstance(cell.get("id"), str) else f"#{index}"
    for number, line in enumerate(_lines(cell.get("source")), 1):
        yield f"cell {name} line {number}", line
    for output in cell.get("outputs") or ():
        for line in _lines(_output_text(output)):
            yield f"cell {name} output", line


def _output_text(output: Any) -> Any:
    if not isinstance(output, dict):
        return ""
    if output.get("output_type") == "stream":
        return output.get("text")
    if output.get("output_type") == "error":
        traceback = output.get("traceback")
        shown = "\n".join(str(line) for line in traceback) if isinstance(traceback, list) else ""
        return shown or f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data")
    return data.get("text/plain") if isinstance(data, dict) else ""


def _lines(value: Any) -> list[str]:
    """Lines of an nbformat text (one string or a list of them), colours taken off and progress bars folded."""
    text = (
        "".join(str(piece) for piece in value) if isinstance(value, list) else value if isinstance(value, str) else ""
    )
    if not text:
        return []
    lines = _COLOURS.sub("", text).replace("\r\n", "\n").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
