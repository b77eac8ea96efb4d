"""The ``*** Begin Patch`` format: parsed, and applied to the text of one file. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from nbagent.errors import ToolError
from nbagent.tools.textfile import TextFile, refuse_mixed

Kind = Literal["add", "update", "delete"]
BEGIN, END, AT_END = "*** Begin Patch", "*** End Patch", "*** End of File"
_SECTIONS: tuple[tuple[str, Kind], ...] = (
    ("*** Add File:", "add"),
    ("*** Update File:", "update"),
    ("*** Delete File:", "delete"),
)
_MOVE = "*** Move to:"
# Line numbers after ``@@``, as other tools write them, say nothing here.
_RANGE = re.compile(r"^\s*-\d+(?:,\d+)?\s+\+\d+(?:,\d+)?\s*(?:@@|$)")


class PatchError(ToolError):
    """The patch is malformed or does not fit; the message says where."""


@dataclass
class Hunk:
    """Changed lines. ``contexts``: lines to find first, in order (what follows ``@@``). ``lines``: (mark, text), mark one of `` +-``.

    ``at_end``: the lines must be the last of the file. ``number``: its line in the patch.
    """

    number: int
    contexts: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [_bare(text) for mark, text in self.lines if mark != "+"]


@dataclass
class Section:
    """What a patch does to one file. ``lines``: those of a new file; ``move``: its path afterwards ("" when it stays)."""

    kind: Kind
    path: str
    number: int
    move: str = ""
    lines: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)


def parse(patch: str) -> list[Section]:
    """The sections of a patch. What stands before ``*** Begin Patch`` and after ``*** End Patch`` is left aside."""
    lines = patch.split("\n")
    heads = [line.strip() for line in lines]
    if BEGIN not in heads:
        raise PatchError(f"patchText has no line {BEGIN!r}. {SHAPE}")
    start = heads.index(BEGIN)
    if END not in heads[start:]:
        raise PatchError(f"patchText has no line {END!r} at its end; was it cut? Nothing was changed. {SHAPE}")
    reader = _Reader(lines, start + 1, heads.index(END, start))
    sections = reader.sections()
    if not sections:
        raise PatchError(f"The patch is empty. {SHAPE}")
    return sections


SHAPE = (
    "A patch is: *** Begin Patch, then for each file *** Add File: PATH (lines with +), *** Delete File: PATH, or *** Update File: PATH "
    "(@@ and lines with a space, - or +), then *** End Patch."
)


class _Reader:
    """Reads sections from lines ``at`` up to ``end``."""

    def __init__(self, lines: list[str], at: int, end: int) -> None:
        self._lines = lines
        self._at = at
        self._end = end

    def sections(self) -> list[Section]:
        found = []
        while self._more():
            if self._lines[self._at].strip():
                found.append(self._section())
            else:
                self._at += 1
        return found

    def _more(self) -> bool:
        return self._at < self._end

    def _section(self) -> Section:
        head = self._lines[self._at].strip()
        number = self._at + 1
        for mark, kind in _SECTIONS:
            if head.startswith(mark):
                path = head[len(mark) :].strip()
                if not path:
                    raise PatchError(f"Line {number} of the patch names no file: {head!r}.")
                self._at += 1
                section = Section(kind, path, number)
                self._body(section)
                return section
        raise PatchError(f"Line {number} of the patch is not understood: {head[:80]!r}. {SHAPE}")

    def _body(self, section: Section) -> None:
        if section.kind == "add":
            self._added(section)
        elif section.kind == "update":
            self._updated(section)

    def _is_head(self) -> bool:
        return self._lines[self._at].startswith("*** ") and self._lines[self._at].strip() != AT_END

    def _added(self, section: Section) -> None:
        blanks = 0
        while self._more() and not self._is_head():
            line = self._lines[self._at]
            if line.startswith("+"):
                section.lines += ["\r" if line.endswith("\r") else ""] * blanks
                section.lines.append(line[1:])
                blanks = 0
            elif not line.strip():
                blanks += 1  # counts only when another line of the file follows
            elif line.strip() != AT_END:
                raise PatchError(
                    f"Line {self._at + 1} of the patch, in {section.path}, must begin with +: {line[:80]!r}."
                )
            self._at += 1

    def _updated(self, section: Section) -> None:
        if self._more() and self._lines[self._at].strip().startswith(_MOVE):
            section.move = self._lines[self._at].strip()[len(_MOVE) :].strip()
            if not section.move:
                raise PatchError(f"Line {self._at + 1} of the patch names no file to move to.")
            self._at += 1
        while self._more() and not self._is_head():
            if not self._lines[self._at].strip() and self._only_blanks_left():
                break
            section.hunks.append(self._hunk(section))
        while self._more() and not self._lines[self._at].strip():
            self._at += 1

    def _only_blanks_left(self) -> bool:
        """Whether only blank lines stand before the next section."""
        for at in range(self._at, self._end):
            if self._lines[at].strip():
                return self._lines[at].startswith("*** ") and self._lines[at].strip() != AT_END
        return True

    def _hunk(self, section: Section) -> Hunk:
        hunk = Hunk(self._at + 1)
        while self._more() and self._lines[self._at].startswith("@@"):
            context = _RANGE.sub("", _bare(self._lines[self._at][2:]))
            if context.strip():
                hunk.contexts.append(context.removeprefix(" ").removesuffix(" @@"))
            self._at += 1
        while self._more():
            line = self._lines[self._at]
            if line.strip() == AT_END:
                hunk.at_end = True
                self._at += 1
                break
            if line.startswith("@@") or self._is_head() or (not line.strip() and self._only_blanks_left()):
                break
            hunk.lines.append(self._line(line, section))
            self._at += 1
        if not hunk.lines:
            raise PatchError(
                f"The hunk at line {hunk.number} of the patch, in {section.path}, has no lines. "
                "Write the lines to change with a space, - or + before each."
            )
        return hunk

    def _line(self, line: str, section: Section) -> tuple[str, str]:
        if line[:1] in (" ", "+", "-"):
            return line[0], line[1:]
        if not line.strip():
            return " ", line
        raise PatchError(
            f"Line {self._at + 1} of the patch, in {section.path}, must begin with a space, - or +: {line[:80]!r}."
        )


def _bare(line: str) -> str:
    return line.removesuffix("\r")


def new_text(section: Section) -> str:
    """The text of an added file."""
    return "".join(f"{line}\n" for line in section.lines)


@dataclass(frozen=True, slots=True)
class Applied:
    """``file``: the text afterwards; ``loose``: how hunks that did not match exactly were matched."""

    file: TextFile
    loose: tuple[str, ...]


def apply(file: TextFile, section: Section) -> Applied:
    """The text with every hunk of ``section`` applied, in order. Raises ``PatchError`` that says which one does not fit."""
    refuse_mixed(
        file, "".join(text for hunk in section.hunks for mark, text in hunk.lines if mark != " "), section.path
    )
    lines = file.text.split("\n")
    if lines[-1] == "":
        lines.pop()
    runs: list[_Run] = []
    loose: list[str] = []
    at = 0
    for hunk in section.hunks:
        at = _after_contexts(lines, hunk, at, section.path)
        start, how = _place(lines, hunk, at, section.path)
        if how:
            loose.append(how)
        runs += _runs(lines, hunk, start, how, "\r\n" in file.breaks)
        at = start + len(hunk.old)
    return Applied(_spliced(file, lines, runs), tuple(dict.fromkeys(loose)))


@dataclass(frozen=True, slots=True)
class _Run:
    """Lines ``first`` up to ``last`` (exclusive) become ``new``."""

    first: int
    last: int
    new: tuple[str, ...]


def _after_contexts(lines: list[str], hunk: Hunk, at: int, path: str) -> int:
    for context in hunk.contexts:
        found = _seek(lines, [context], at)
        if found is None:
            raise PatchError(
                f"{path}: the context {context.strip()[:80]!r} (patch line {hunk.number}) is not in the file"
                f"{f' after line {at}' if at else ''}. Quote a line of the file as it is."
            )
        at = found[0] + 1
    return at


def _place(lines: list[str], hunk: Hunk, at: int, path: str) -> tuple[int, str]:
    """The line where the old lines of a hunk begin, and how they were matched ("" for exactly)."""
    old = hunk.old
    if not old:
        return (at if hunk.contexts and not hunk.at_end else len(lines)), ""
    earliest = max(at, len(lines) - len(old)) if hunk.at_end else at
    found = _seek(lines, old, earliest)
    if found is not None:
        return found
    where = " at the end of the file" if hunk.at_end else f" after line {at}" if at else ""
    before = " They are earlier in the file: hunks must be in order." if at and _seek(lines, old, 0) else ""
    quoted = "\n".join(old[:5])
    raise PatchError(
        f"{path}: these lines (patch line {hunk.number}) are not in the file{where}:\n{quoted}\n{before}".strip()
    )


_ALIKE = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("‘’‚‛", "'"),
        **dict.fromkeys("“”„‟", '"'),
        "…": "...",
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


def _alike(line: str) -> str:
    return unicodedata.normalize("NFC", line.translate(_ALIKE)).strip()


_READINGS: tuple[tuple[Callable[[str], str], str], ...] = (
    (lambda line: line, ""),
    (str.rstrip, "white space at the ends of lines"),
    (str.strip, "indentation"),
    (_alike, "quotation marks, dashes, dots or spaces"),
)


def _seek(lines: list[str], wanted: list[str], at: int) -> tuple[int, str] | None:
    """Where ``wanted`` stands from line ``at`` on, read exactly first and then ever more loosely."""
    count = len(wanted)
    for reading, how in _READINGS:
        read = [reading(line) for line in wanted]
        here = [reading(line) for line in lines[at:]] if how else lines[at:]
        for start in range(len(here) - count + 1):
            if here[start] == read[0] and here[start : start + count] == read:
                return at + start, how
    return None


def _runs(lines: list[str], hunk: Hunk, start: int, how: str, crlf: bool) -> list[_Run]:
    """What changes, without the context lines: those stay as the file has them."""
    shift = _shift(lines[start : start + len(hunk.old)], hunk.old) if how else _same
    runs: list[_Run] = []
    at = first = start
    new: list[str] = []
    for mark, text in [*hunk.lines, (" ", "")]:
        if mark == "+":
            new.append(shift(_bare(text) if crlf else text))
            continue
        if mark == "-":
            at += 1
            continue
        if new or at > first:
            runs.append(_Run(first, at, tuple(new)))
        new, at = [], at + 1
        first = at
    return runs


def _same(line: str) -> str:
    return line


def _shift(found: list[str], old: list[str]) -> Callable[[str], str]:
    """How to indent new lines when the file indents its lines otherwise than the patch."""
    pairs = [(_indent(a), _indent(b)) for a, b in zip(found, old, strict=True) if a.strip()]
    more = {a.removesuffix(b) for a, b in pairs if a.endswith(b)} if all(a.endswith(b) for a, b in pairs) else set()
    less = {b.removesuffix(a) for a, b in pairs if b.endswith(a)} if all(b.endswith(a) for a, b in pairs) else set()
    if len(more) == 1 and (extra := more.pop()):
        return lambda line: extra + line if line.strip() else line
    if len(less) == 1 and (extra := less.pop()):
        return lambda line: line.removeprefix(extra)
    return _same


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _spliced(file: TextFile, lines: list[str], runs: list[_Run]) -> TextFile:
    if any(run.last >= len(lines) for run in runs) and file.text and not file.text.endswith("\n"):
        # The last line is changed or followed by others: it ends like the lines before it.
        last = file.breaks[-1] if file.breaks else file.default_break
        file = TextFile(file.text + "\n", (*file.breaks, last), file.bom, file.encoding, file.default_break)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    spans = [(starts[run.first], starts[run.last], "".join(f"{line}\n" for line in run.new)) for run in runs]
    return file.replaced(spans)
