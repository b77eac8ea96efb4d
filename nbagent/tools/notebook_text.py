"""Cells and their outputs as a model reads them: never raw JSON, colours off, progress bars as they ended, long text cut. Pure."""

from __future__ import annotations

import re
from typing import Any

from nbagent.message import Attachment
from nbagent.tools.notebook_file import content_hash, joined

SOURCE = 20_000
OUTPUT = 3_000
CELL_OUTPUT = 6_000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{200,}={0,2}")
_SEEN = ("image/png", "image/jpeg", "image/gif", "image/webp")


def cell_text(
    name: str, kind: str, source: str, outputs: Any, *, number: int, count: Any = None, whole: bool = False
) -> str:
    """One cell: a line with its place, type, id and hash, its source, its outputs."""
    ran = f" [{count}]" if isinstance(count, int) else ""
    head = f"--- cell {number}: {kind}{ran} id={name} hash={content_hash(source)}"
    limit = SOURCE * 10 if whole else SOURCE
    parts = [head, cut(source, limit) if source else "(empty)"]
    shown = outputs_text(outputs, whole=whole)
    if shown:
        parts.append(f"=> output:\n{shown}")
    return "\n".join(parts)


def outputs_text(outputs: Any, *, whole: bool = False) -> str:
    """The outputs of a cell as text; pictures, widgets and HTML as notes of their type and size."""
    if not isinstance(outputs, list):
        return ""
    limit = OUTPUT * 5 if whole else OUTPUT
    pieces = [cut_tail(text, limit) for output in outputs if (text := output_text(output))]
    return cut_tail("\n".join(pieces), CELL_OUTPUT * 5 if whole else CELL_OUTPUT)


def output_text(output: Any) -> str:
    """One output as text, uncut."""
    if not isinstance(output, dict):
        return ""
    kind = output.get("output_type")
    if kind == "stream":
        return plain(joined(output.get("text"))).rstrip("\n")
    if kind in ("error", "pyerr"):
        trace = output.get("traceback")
        shown = "\n".join(line for line in trace if isinstance(line, str)) if isinstance(trace, list) else ""
        return plain(shown or f"{output.get('ename')}: {output.get('evalue')}").rstrip("\n")
    data = output.get("data")
    return bundle_text(data if isinstance(data, dict) else _old_data(output))


def _old_data(output: dict[str, Any]) -> dict[str, Any]:
    """The display data of format 3, by mime type."""
    mimes = {
        "text": "text/plain",
        "html": "text/html",
        "png": "image/png",
        "jpeg": "image/jpeg",
        "svg": "image/svg+xml",
    }
    return {mimes[key]: value for key, value in output.items() if key in mimes}


def bundle_text(data: dict[str, Any]) -> str:
    """A display bundle: its plain text, and a note for everything that is more than text."""
    text = plain(joined(data.get("text/plain") or data.get("text/markdown") or data.get("text/latex") or "")).rstrip(
        "\n"
    )
    notes = []
    for mime, value in data.items():
        if mime.startswith("image/"):
            notes.append(f"[{mime} {_size(value, mime)}]")
        elif mime.startswith("application/vnd.jupyter.widget"):
            notes.append("[widget]")
        elif mime == "application/vnd.nbagent.record+json":
            notes.append("[record of an earlier run]")
        elif not text and mime not in ("text/plain", "text/markdown", "text/latex"):
            notes.append(f"[{mime} {_size(value, mime)}]")
    return "\n".join([*([text] if text else []), *notes])


def _size(value: Any, mime: str) -> str:
    length = len(joined(value)) if isinstance(value, (str, list)) else len(str(value))
    if mime.startswith("image/") and mime != "image/svg+xml":
        length = length * 3 // 4
    return f"{length} B" if length < 1024 else f"{length // 1024} KB"


def pictures(outputs: Any, name: str) -> list[Attachment]:
    """The pictures of a cell's outputs, for a model that sees."""
    found = []
    for output in outputs if isinstance(outputs, list) else ():
        data = output.get("data") if isinstance(output, dict) else None
        for mime in _SEEN:
            value = data.get(mime) if isinstance(data, dict) else None
            if value:
                found.append(Attachment(mime=mime, data="".join(joined(value).split()), filename=f"cell {name}"))
                break
    return found


def plain(text: str) -> str:
    """Text without colours and control characters, with what carriage returns and backspaces wrote over gone."""
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_over(line) for line in text.split("\n"))
    return _BASE64.sub(lambda match: f"[{len(match[0])} characters of base64]", _CONTROL.sub("", text))


def _over(line: str) -> str:
    shown = ""
    for piece in line.split("\r"):
        shown = piece + shown[len(piece) :] if piece else shown
    return shown


def cut(text: str, limit: int) -> str:
    """The head of a long text."""
    return text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} characters more"


def cut_tail(text: str, limit: int) -> str:
    """A little head and most of the tail of a long text, with the number of lines between them."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 4], text[-(limit - limit // 4) :]
    middle = text[len(head) : len(text) - len(tail)]
    return f"{head}\n… {middle.count(chr(10)) + 1:,} lines, {len(middle):,} characters left out …\n{tail}"
