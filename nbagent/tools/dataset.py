"""A table or a JSON document that is too large to show, described: size, columns, types, the first rows."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from nbagent.errors import ToolError
from nbagent.tools.textfile import counted, encoding_of

TABLES = {".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".geojson", ".parquet", ".feather", ".arrow"}
HEAD_ROWS = 5
SAMPLE_ROWS = 1_000
SAMPLE_BYTES = 512 * 1024
# Up to this size a file is read whole for a row count or for its structure.
MAX_WHOLE = 8 * 1024 * 1024
MAX_COLUMNS = 60
MAX_CELL = 60


def describe(file: BinaryIO, suffix: str, size: int, shown: str) -> tuple[str, dict[str, Any]]:
    """Text for the model and metadata (``kind``, ``bytes``, ``columns``, ``rows``). Raises ``ToolError``."""
    if suffix in {".csv", ".tsv"}:
        lines, metadata = _delimited(file, suffix, size)
    elif suffix in {".jsonl", ".ndjson"}:
        lines, metadata = _json_lines(file, size)
    elif suffix in {".json", ".geojson"}:
        lines, metadata = _json(file, size)
    else:
        lines, metadata = _columnar(file, suffix, size, shown)
    kind = suffix.lstrip(".").upper()
    top = f"{shown}: {kind}, {size:,} bytes; described, because it is too large to show."
    if suffix in {".parquet", ".feather", ".arrow"}:
        top = f"{shown}: {kind}, {size:,} bytes; described, because it is not text."
    tail = "" if suffix in {".parquet", ".feather", ".arrow"} else "\n\n[For lines of it, read with offset and limit.]"
    return "\n".join([top, *lines]) + tail, {"kind": suffix.lstrip("."), "bytes": size, "described": True, **metadata}


def _sample(file: BinaryIO, size: int) -> tuple[str, bool]:
    """The first part of the text, ending with a whole line, and whether that is all."""
    head = file.read(min(size, SAMPLE_BYTES) if size > MAX_WHOLE else size)
    skip, encoding = encoding_of(head)
    text = head[skip:].decode(encoding, "replace")
    whole = size <= MAX_WHOLE
    return (text if whole else text[: text.rfind("\n") + 1] or text), whole


# Delimited text.


def _delimited(file: BinaryIO, suffix: str, size: int) -> tuple[list[str], dict[str, Any]]:
    text, whole = _sample(file, size)
    delimiter = "\t" if suffix == ".tsv" else _delimiter(text)
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = next(reader, [])
        rows = [row for _, row in zip(range(SAMPLE_ROWS), reader, strict=False)]
        more = sum(1 for _ in reader) if whole else 0
    except csv.Error as error:
        raise ToolError(f"This table cannot be parsed: {error}. Read lines of it with offset and limit.") from None
    count = len(rows) + more
    if whole:
        told = counted(count, "row")
    else:
        told = f"about {int(size / max(1, len(text.encode('utf-8', 'replace'))) * count):,} rows (estimated)"
        count = 0
    lines = [f"{told}, {counted(len(header), 'column')}, delimiter {delimiter!r}"]
    columns = [(name, _type([row[i] for row in rows if i < len(row)])) for i, name in enumerate(header)]
    lines += _columns(columns)
    if any(kind.startswith(_NUMBERS) and _type([name]).startswith(_NUMBERS) for name, kind in columns):
        lines.append(
            "the first row has numbers where names should be, so it may be data and the table without a header"
        )
    lines.append(f"types are from the first {len(rows):,} rows" if more or not whole else "types are from all rows")
    return lines + _head([header, *rows[:HEAD_ROWS]]), {"columns": header[:MAX_COLUMNS], "rows": count or None}


def _delimiter(text: str) -> str:
    first = text[:4096].split("\n", 1)[0]
    return max(",;\t|", key=first.count) if any(mark in first for mark in ",;\t|") else ","


_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
_TESTS = (
    ("integer", _INTEGER),
    ("number", _NUMBER),
    ("date", _DATE),
    ("boolean", re.compile("true|false", re.IGNORECASE)),
)


def _type(values: list[str]) -> str:
    filled = [
        value.strip() for value in values if value.strip() and value.strip().lower() not in {"na", "null", "none"}
    ]
    if not filled:
        return "empty"
    empty = len(values) - len(filled)
    kind = next((name for name, test in _TESTS if all(test.fullmatch(value) for value in filled)), "text")
    return f"{kind}, {empty} empty" if empty else kind


_NUMBERS = ("integer", "number", "date")

# JSON.


def _json(file: BinaryIO, size: int) -> tuple[list[str], dict[str, Any]]:
    if size > MAX_WHOLE:
        text, _ = _sample(file, size)
        start = text.lstrip()[:1]
        kind = {"[": "a list", "{": "an object"}.get(start, "a value")
        keys = list(dict.fromkeys(re.findall(r'"((?:[^"\\]|\\.){1,80})"\s*:', text[:65536])))[:MAX_COLUMNS]
        return [f"{kind}; too large to parse here", f"keys at its beginning: {', '.join(keys)}", "", text[:1500]], {}
    data = file.read()
    skip, encoding = encoding_of(data)
    try:
        value = json.loads(data[skip:].decode(encoding, "replace"))
    except (ValueError, RecursionError) as error:
        return [f"it is not valid JSON: {error}"], {"error": str(error)}
    return [_shape(value, 0)], {}


def _shape(value: Any, depth: int) -> str:
    """The structure of a JSON value, three levels deep."""
    pad = "  " * (depth + 1)
    if isinstance(value, dict):
        if depth >= 3:
            return f"object of {len(value)} keys"
        shown = [f"{pad}{_clip(key)}: {_shape(item, depth + 1)}" for key, item in list(value.items())[:MAX_COLUMNS]]
        rest = [f"{pad}… {len(value) - MAX_COLUMNS} more keys"] if len(value) > MAX_COLUMNS else []
        return "\n".join([f"object of {len(value)} keys", *shown, *rest])
    if isinstance(value, list):
        if not value or depth >= 3:
            return f"list of {len(value)}"
        kinds = sorted({_kind(item) for item in value[:SAMPLE_ROWS]})
        return f"list of {len(value)} ({', '.join(kinds)}); the first: {_shape(value[0], depth + 1)}"
    return f"{_kind(value)} {_clip(json.dumps(value, ensure_ascii=False))}"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "text", dict: "object", list: "list"}
    return kinds[type(value)]


def _json_lines(file: BinaryIO, size: int) -> tuple[list[str], dict[str, Any]]:
    text, whole = _sample(file, size)
    rows = [line for line in text.split("\n") if line.strip()]
    parsed = list(_parsed(rows[:SAMPLE_ROWS]))
    if whole:
        told = counted(len(rows), "row")
    else:
        told = f"about {int(size / max(1, len(text.encode('utf-8', 'replace'))) * len(rows)):,} rows (estimated)"
    names = list(dict.fromkeys(key for row in parsed if isinstance(row, dict) for key in row))
    columns = [
        (name, ", ".join(sorted({_kind(row[name]) for row in parsed if isinstance(row, dict) and name in row})))
        for name in names
    ]
    head = ["first rows:", *(f"  {row[:300]}" for row in rows[:HEAD_ROWS])]
    return [f"{told}, {len(names)} keys", *_columns(columns), *head], {"columns": names[:MAX_COLUMNS]}


def _parsed(rows: list[str]) -> Iterator[Any]:
    for row in rows:
        try:
            yield json.loads(row)
        except (ValueError, RecursionError):
            continue


# Columnar files, through pyarrow where it is installed.


def _columnar(file: BinaryIO, suffix: str, size: int, shown: str) -> tuple[list[str], dict[str, Any]]:
    try:
        import pyarrow as pa
        from pyarrow import feather, parquet
    except ImportError:
        raise ToolError(
            f"{shown} is a {suffix.lstrip('.')} file ({size:,} bytes); describing it needs pyarrow, which is not installed."
        ) from None
    try:
        if suffix == ".parquet":
            source = parquet.ParquetFile(file)
            schema, rows = source.schema_arrow, source.metadata.num_rows
            batch = next(source.iter_batches(batch_size=HEAD_ROWS), None)
            head = batch.to_pylist() if batch is not None else []
        else:
            if size > 64 * MAX_WHOLE:
                raise ToolError(f"{shown} is too large to describe ({size:,} bytes).")
            table = feather.read_table(file, memory_map=False)
            schema, rows, head = table.schema, table.num_rows, table.slice(0, HEAD_ROWS).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ToolError(f"{shown} cannot be read as {suffix.lstrip('.')}: {str(error)[:200]}") from None
    names = list(schema.names)
    lines = [f"{counted(rows, 'row')}, {counted(len(names), 'column')}"]
    lines += _columns([(item.name, str(item.type)) for item in schema])
    body = [[str(row.get(name)) for name in names] for row in head]
    return lines + _head([names, *body]), {"columns": names[:MAX_COLUMNS], "rows": rows}


# How columns and rows look.


def _columns(columns: list[tuple[str, str]]) -> list[str]:
    lines = ["columns:", *(f"  {_clip(name)}: {kind}" for name, kind in columns[:MAX_COLUMNS])]
    if len(columns) > MAX_COLUMNS:
        lines.append(f"  … {len(columns) - MAX_COLUMNS} more")
    return lines


def _head(rows: list[list[str]]) -> list[str]:
    return ["first rows:", *("  " + " | ".join(_clip(cell) for cell in row[:MAX_COLUMNS]) for row in rows)]


def _clip(value: str) -> str:
    flat = " ".join(value.split())
    return flat if len(flat) <= MAX_CELL else flat[: MAX_CELL - 1] + "…"
