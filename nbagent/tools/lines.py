"""Numbered lines of a text file, as many as one answer holds; reading stops where the answer ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from nbagent.errors import ToolError
from nbagent.tools.textfile import counted, encoding_of

MAX_LINE = 2_000
MAX_BYTES = 49 * 1024
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Lines:
    """``text``: numbered lines; ``first`` and ``last``: their numbers (last < first: none). ``more``: the file goes on.

    ``cut``: how many lines were too long to show whole. ``full``: the size cap ended the answer, not the limit.
    """

    text: str
    first: int
    last: int
    more: bool
    cut: int = 0
    full: bool = False


def read_lines(file: BinaryIO, offset: int, limit: int) -> Lines:
    """Lines ``offset`` (from 1) and on, at most ``limit`` and 49 KB. Raises ``ToolError`` when the file ends before them."""
    head = file.read(4)
    skip, encoding = encoding_of(head)
    file.seek(skip)
    if encoding.startswith(("utf-16", "utf-32")):
        return _transcoded(file, encoding, offset, limit)
    passed = _pass_lines(file, offset - 1)
    if passed < offset - 1:
        raise past_end(offset, passed)
    return _take(file, offset, limit)


def past_end(offset: int, total: int) -> ToolError:
    """``total`` lines are too few for ``offset``."""
    if total == 0:
        return ToolError("The file is empty.")
    return ToolError(
        f"offset {offset} is past the end: the file has {counted(total, 'line')}. Send an offset of at most {total}."
    )


def _pass_lines(file: BinaryIO, count: int) -> int:
    """Leave ``count`` lines behind; fewer when the file has no more. A last line without a break counts."""
    passed, ended = 0, True
    while passed < count:
        chunk = file.read(_CHUNK)
        if not chunk:
            return passed if ended else passed + 1
        here = chunk.count(b"\n")
        if passed + here >= count:
            at = -1
            for _ in range(count - passed):
                at = chunk.index(b"\n", at + 1)
            file.seek(at + 1 - len(chunk), 1)
            return count
        passed += here
        ended = chunk.endswith(b"\n")
    return passed


def _take(file: BinaryIO, offset: int, limit: int) -> Lines:
    out: list[str] = []
    room, number, cut = MAX_BYTES, offset, 0
    while number < offset + limit:
        raw = file.readline(MAX_LINE * 4 + 2)
        if not raw:
            break
        text, size = _line(raw)
        numbered = f"{number:>6}\t{text}"
        needed = len(numbered.encode("utf-8", "replace")) + 1
        if needed > room:
            return Lines("\n".join(out), offset, number - 1, True, cut, True)
        out.append(numbered)
        room -= needed
        number += 1
        if size > MAX_LINE or not raw.endswith(b"\n"):
            rest = _rest_of_line(file) if not raw.endswith(b"\n") else 0
            if size > MAX_LINE or rest:
                cut += 1
                out[-1] = f"{out[-1]}… [line cut: {size if not rest else f'{len(raw) + rest:,} bytes'}]"
    if not out and offset > 1:
        raise past_end(offset, offset - 1)
    return Lines("\n".join(out), offset, number - 1, bool(file.read(1)), cut)


def _line(raw: bytes) -> tuple[str, int]:
    """The line without its break, at most 2,000 characters, and how many it has."""
    text = raw.rstrip(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
    return text[:MAX_LINE], len(text)


def _rest_of_line(file: BinaryIO) -> int:
    """Go to the end of the line; how many bytes were passed."""
    passed = 0
    while chunk := file.readline(_CHUNK):
        passed += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return passed


def number_text(text: str, offset: int, limit: int) -> Lines:
    """The same for text that is already in memory (of a PDF, of another encoding)."""
    import io

    return read_lines(io.BytesIO(text.encode("utf-8", "replace")), offset, limit)


def _transcoded(file: BinaryIO, encoding: str, offset: int, limit: int) -> Lines:
    data = file.read(64 * _CHUNK + 1)
    if len(data) > 64 * _CHUNK:
        raise ToolError(f"This {encoding} file is larger than 64 MB; convert it to UTF-8 with a command first.")
    return number_text(data.decode(encoding, "replace"), offset, limit)
