"""``read``: a file or a folder, as much of it as one answer holds."""

from __future__ import annotations

import base64
import io
import logging
import os
import stat
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.message import Attachment
from nbagent.permission.path import path_needs
from nbagent.root import Handle, Place
from nbagent.tools.access import Sieve, may_show, refused
from nbagent.tools.dataset import TABLES, describe
from nbagent.tools.lines import Lines, number_text, past_end, read_lines
from nbagent.tools.near import near_names
from nbagent.tools.seen import MAX_HASHED, remember, version_by_stat
from nbagent.tools.textfile import counted, encoding_of, looks_binary
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread

MAX_IMAGE = 5 * 1024 * 1024
MAX_PDF = 64 * 1024 * 1024
LINES = 2_000
_SILENT = logging.NullHandler()
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadArguments(Arguments, frozen=True, kw_only=True):
    filePath: Annotated[str, Meta(description="file or folder, relative to the project root or absolute")]  # noqa: N815
    offset: Annotated[int, Meta(ge=1, description="first line, from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="how many lines, 2000 when left out")] = LINES


class Read(Tool[ReadArguments]):
    name = "read"
    permission = "read"
    effect = "reads"
    hint = "read a file (text, table, image, PDF) or list a folder"
    arguments = ReadArguments
    parallel = True

    def __init__(self) -> None:
        self._pieces = Pieces()

    def declare(self, arguments: ReadArguments, context: ToolContext) -> Declaration:
        place = context.root.locate(arguments.filePath)
        needs = path_needs(self.permission, place)
        title = f"read {place.pattern}"
        notes = (f"{place.spelled} is a link: it leads to {place.pattern}",) if place.linked else ()
        if refused(needs, context.rules):
            return Declaration(title, needs, notes=notes, subject=(place, None))
        if may_show(place, context.rules):
            refuse_missing(place, context)
        if not place.real.parent.is_dir():
            return Declaration(title, needs, notes=notes, subject=(place, None))
        handle = place.open_parent()
        return Declaration(title, needs, notes=notes, subject=(place, handle), close=handle.close)

    async def act(self, arguments: ReadArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        place, handle = declaration.subject

        def work() -> tuple[ToolResult, Version | None]:
            refuse_missing(place, context)
            if handle is not None:
                return _read(place, handle, arguments, declaration.title, context)
            with place.open_parent() as opened:
                return _read(place, opened, arguments, declaration.title, context)

        result, version = await in_thread(work)
        if version is not None:
            whole = version.cut == 0 and self._pieces.add((context.session_id, str(place.real), version.key), version)
            context.reads.saw(place.real, version.key, whole or _known(context, place, version.key))
        nearby = "" if result.metadata.get("folder") else context.host.nearby_instructions(place.real)
        return replace(result, output=f"{result.output}\n\n{nearby}") if nearby else result


@dataclass(frozen=True, slots=True)
class Version:
    """Which lines of which version of a file were shown. ``more``: the file goes on after them; ``cut``: lines not shown whole."""

    key: str
    first: int
    last: int
    more: bool
    cut: int = 0


def _known(context: ToolContext, place: Place, key: str) -> bool:
    """Whether the model knew all of this version before (having written it, say)."""
    seen = context.reads.seen(place.real)
    return seen is not None and seen == (key, True)


def _read(
    place: Place, handle: Handle, arguments: ReadArguments, title: str, context: ToolContext
) -> tuple[ToolResult, Version | None]:
    found = handle.stat()
    if stat.S_ISDIR(found.st_mode):
        return _folder(place, handle, arguments, title, context), None
    suffix = PurePosixPath(place.pattern).suffix.lower()
    if suffix == ".ipynb":
        raise ToolError(f"{place.pattern} is a notebook. Use notebook_read to see its cells without raw JSON.")
    with handle.open_read() as file:
        try:
            head = file.read(8192)
        except OSError as error:  # files of the kernel that cannot be read everywhere, broken disks
            raise ToolError(f"{place.pattern} cannot be read: {error.strerror}.") from None
        file.seek(0)
        if (mime := image_type(head)) is not None:
            return _image(place, file, found.st_size, mime, title), None
        if head.startswith(b"%PDF-"):
            return _pdf(place, file, found.st_size, arguments, title), None
        if suffix in TABLES and _describes(suffix, arguments, found.st_size):
            output, metadata = describe(file, suffix, found.st_size, place.pattern)
            return ToolResult(title, output, {"path": place.pattern, **metadata}), None
        if looks_binary(head):
            told = " Its name says image, its content does not." if suffix in _IMAGE_SUFFIXES else ""
            raise ToolError(
                f"{place.pattern} is a binary file ({found.st_size:,} bytes), so there is no text to show.{told}"
            )
        return _text(place, file, found, arguments, title)


def _text(
    place: Place, file: BinaryIO, found: os.stat_result, arguments: ReadArguments, title: str
) -> tuple[ToolResult, Version]:
    total: int | None = None
    key = version_by_stat(found)
    if found.st_size <= MAX_HASHED:
        data = file.read()
        key, total = remember(data), data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
        if len(data) == encoding_of(data)[0]:  # nothing but a byte order mark, if that
            total = 0
        file = io.BytesIO(data)
    if total == 0:
        return ToolResult(title, f"{place.pattern} is empty.", {"path": place.pattern, "lines": 0}), Version(
            key, 1, 0, False
        )
    shown = read_lines(file, arguments.offset, arguments.limit)
    output = f"{shown.text}\n\n{_ending(shown, total, found.st_size)}"
    version = Version(key, shown.first, shown.last, shown.more, shown.cut)
    return ToolResult(title, output, _metadata(place, shown, total)), version


_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


def _metadata(place: Place, shown: Lines, total: int | None) -> dict[str, Any]:
    return {"path": place.pattern, "first": shown.first, "last": shown.last, "lines": total, "truncated": shown.more}


def _ending(shown: Lines, total: int | None, size: int) -> str:
    """What the answer left out, and how to get it."""
    cut = f" {counted(shown.cut, 'long line')} cut at 2,000 characters." if shown.cut else ""
    if not shown.more:
        return f"[End of file, {counted(shown.last, 'line')}.{cut}]"
    of = f"of {total} lines" if total is not None else f"of a file of {size:,} bytes"
    why = " (50 KB a call)" if shown.full else ""
    return f"[Lines {shown.first}-{shown.last} {of}{why}; there is more: go on with offset {shown.last + 1}.{cut}]"


class Pieces:
    """Which lines of which version of a file were shown, so that a file read in pieces counts as read whole."""

    MAX = 500

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
        self._ends: dict[tuple[str, str, str], int] = {}

    def add(self, key: tuple[str, str, str], shown: Version) -> bool:
        """Remember a piece; whether all of the file has now been shown."""
        if key not in self._shown and len(self._shown) >= self.MAX:
            oldest = next(iter(self._shown))
            del self._shown[oldest]
            self._ends.pop(oldest, None)
        pieces = self._shown.setdefault(key, [])
        pieces.append((shown.first, shown.last))
        if not shown.more:
            self._ends[key] = shown.last
        reached = 0
        for first, last in sorted(pieces):
            if first > reached + 1:
                return False
            reached = max(reached, last)
        return key in self._ends and reached >= self._ends[key]


def refuse_missing(place: Place, context: ToolContext) -> None:
    if not place.real.exists():
        raise ToolError(f"{place.pattern} does not exist.{near_names(place, context)}")


def image_type(head: bytes) -> str | None:
    """The type of a picture that begins with ``head``, by its content; None for anything else."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _IMAGES if head.startswith(magic)), None)


def _image(place: Place, file: BinaryIO, size: int, mime: str, title: str) -> ToolResult:
    if size > MAX_IMAGE:
        raise ToolError(
            f"{place.pattern} is a picture of {size:,} bytes; at most {MAX_IMAGE:,} can be shown. Scale it down first."
        )
    name = PurePosixPath(place.pattern).name
    picture = Attachment(mime=mime, data=base64.b64encode(file.read()).decode("ascii"), filename=name)
    told = f"{place.pattern} is a picture ({mime}, {size:,} bytes); it is attached."
    return ToolResult(title, told, {"path": place.pattern, "mime": mime, "bytes": size}, (picture,))


def _pdf(place: Place, file: BinaryIO, size: int, arguments: ReadArguments, title: str) -> ToolResult:
    if size > MAX_PDF:
        raise ToolError(f"{place.pattern} is a PDF of {size:,} bytes; at most {MAX_PDF:,} are read.")
    text, pages, total = _pdf_text(place, file, arguments.offset + arguments.limit)
    if not text.strip():
        raise ToolError(
            f"{place.pattern} is a PDF of {counted(pages, 'page')} without text (scanned pictures, perhaps)."
        )
    if total is not None and arguments.offset > total:
        raise past_end(arguments.offset, total)
    shown = number_text(text, arguments.offset, arguments.limit)
    if total is None:
        shown = replace(shown, more=True)
    output = f"{place.pattern}: text of a PDF, {counted(pages, 'page')}.\n{shown.text}\n\n{_ending(shown, total, size)}"
    return ToolResult(title, output, {**_metadata(place, shown, total), "pages": pages})


def _pdf_text(place: Place, file: BinaryIO, lines: int) -> tuple[str, int, int | None]:
    """The text of as many pages as ``lines`` lines need, how many pages there are, and the lines of all of them (None: not known)."""
    try:
        from pypdf import PdfReader
    except ImportError:
        raise ToolError(
            f"{place.pattern} is a PDF, and reading one needs pypdf, which is not installed (jupyter-nbagent[pdf])."
        ) from None
    # Its remarks about odd files are not for the person at the notebook, whose screen they would end up on.
    logging.getLogger("pypdf").addHandler(_SILENT)
    found: list[str] = []
    count = size = 0
    try:
        reader = PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{place.pattern} is a PDF that is locked with a password.")
        pages = len(reader.pages)
        for number, page in enumerate(reader.pages, 1):
            text = page.extract_text() or ""
            found.append(f"--- page {number} ---\n{text}")
            count += found[-1].count("\n") + 1
            size += len(text.strip())
            if count >= lines and size:
                break
    except ToolError:
        raise
    except Exception as error:  # whatever a file that was made to break it brings a parser to
        raise ToolError(
            f"{place.pattern} is a PDF that cannot be read: {str(error)[:300] or type(error).__name__}."
        ) from error
    whole = "\n".join(found)
    return whole if size else "", pages, count if len(found) == pages else None


def _describes(suffix: str, arguments: ReadArguments, size: int) -> bool:
    """Whether a table is described: always when it is no text, else when it is over the cap and no lines were asked for."""
    if suffix in {".parquet", ".feather", ".arrow"}:
        return True
    return size > 50 * 1024 and arguments.offset == 1 and arguments.limit == LINES


def _folder(place: Place, handle: Handle, arguments: ReadArguments, title: str, context: ToolContext) -> ToolResult:
    passes = Sieve("read", context.rules).passes
    names, left_out = [], 0
    for name in handle.listdir():
        real = place.real / name
        folder = real.is_dir() and not real.is_symlink()
        pattern = name if place.pattern == "." else f"{place.pattern.rstrip('/')}/{name}"
        if not folder and not passes(pattern):
            left_out += 1
            continue
        names.append(f"{name}/" if folder else f"{name}@" if real.is_symlink() else name)
    if arguments.offset > max(1, len(names)):
        raise ToolError(f"offset {arguments.offset} is past the end: the folder has {len(names)} entries to show.")
    first = arguments.offset - 1
    shown = names[first : first + arguments.limit]
    lines = [f"{place.pattern.rstrip('/')}/", *(f"  {name}" for name in shown)]
    rest = len(names) - first - len(shown)
    notes = [counted(len(names), "entry", "entries")]
    if rest > 0:
        notes.append(f"{rest} more: go on with offset {first + len(shown) + 1}")
    if left_out:
        notes.append(f"{left_out} left out (a rule guards reading them)")
    output = "\n".join([*lines, "", f"[{'; '.join(notes)}.]"]).encode("utf-8", "replace").decode()
    return ToolResult(
        title, output, {"path": place.pattern, "entries": len(names), "left_out": left_out, "folder": True}
    )
