"""Where in a text an ``oldString`` is meant: exactly, or by the first rung of a ladder of looser readings that finds it.

Each rung is a function ``(Content, old) -> spans``; spans are (start, end) offsets. The first rung that finds anything decides: one span is
the match, several are an error unless all are wanted. Replacement is literal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

from nbagent.errors import ToolError

Span = tuple[int, int]

# A block between two matching anchor lines is taken when its lines, on average over the whole block, are this alike.
BLOCK_LIKENESS = 0.65
# A block may have this share of lines more or fewer than what was asked for.
BLOCK_SLACK = 0.25
# Of the lines between two anchors of a block of the right length, this share must be the same for the context rung.
CONTEXT_SHARE = 0.5
MAX_LEVENSHTEIN = 250_000
# Anchors that stand in more places than this (a lone brace, say) anchor nothing.
MAX_PLACES = 500


class NotFound(ToolError):
    """No rung found the text."""


class Ambiguous(ToolError):
    """A rung found several places, and one was asked for. ``lines``: the line (from 1) where each begins."""

    def __init__(self, message: str, lines: tuple[int, ...]) -> None:
        super().__init__(message)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Match:
    """``strategy``: name of the rung; ``spans``: what to replace, ascending and apart."""

    strategy: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Content:
    """A text and its lines (breaks are ``\\n``)."""

    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def trimmed(self) -> list[str]:
        return [line.strip() for line in self.lines]

    @cached_property
    def starts(self) -> list[int]:
        starts, at = [], 0
        for line in self.lines:
            starts.append(at)
            at += len(line) + 1
        return starts

    def span(self, first: int, last: int) -> Span:
        """From the start of line ``first`` to the end of line ``last`` (from 0), without its break."""
        return self.starts[first], self.starts[last] + len(self.lines[last])

    def line_of(self, offset: int) -> int:
        """The line, from 1, in which ``offset`` lies."""
        return self.text.count("\n", 0, offset) + 1


def replace(text: str, old: str, new: str, every: bool = False) -> tuple[str, str]:
    """``text`` with ``old`` (or every one) replaced by ``new``, and the name of the rung that found it."""
    match = find(text, old, new, every)
    out, at = [], 0
    for start, end in match.spans:
        out += [text[at:start], new]
        at = end
    return "".join([*out, text[at:]]), match.strategy


def find(text: str, old: str, new: str = "", every: bool = False, reveal: bool = True) -> Match:
    """What to replace. Raises ``NotFound``, ``Ambiguous``, and ``ToolError`` for an ``old`` that says nothing.

    ``reveal``: whether an error may quote the text.
    """
    if not old:
        raise ToolError(
            "oldString is empty, but the file exists. Send the exact text to replace, or use write to replace the whole file."
        )
    if old == new:
        raise ToolError("oldString and newString are the same, so there is nothing to change.")
    content = Content(text)
    for name, rung in LADDER:
        found = _distinct(rung(content, old))
        if not found:
            continue
        if len(found) > 1 and not every:
            raise _ambiguous(content, old, found, name)
        spans = _apart(found)
        if name != "Simple":
            spans = [_with_break(text, span, old, new) for span in spans]
        return Match(name, tuple(spans))
    raise NotFound(_not_found(content, old, reveal))


def _distinct(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; of two of which one contains the other, the one that begins first."""
    kept: list[Span] = []
    for start, end in sorted(set(spans)):
        if not kept or (start > kept[-1][0] and end > kept[-1][1]):
            kept.append((start, end))
    return kept


def _apart(spans: list[Span]) -> list[Span]:
    """Of spans in order those that do not begin inside an earlier one."""
    kept: list[Span] = []
    for span in spans:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def _with_break(text: str, span: Span, old: str, new: str) -> Span:
    """A rung that works on lines leaves out the last break; take it along where both texts have it, so none is doubled."""
    start, end = span
    ends = old.endswith("\n") and (not new or new.endswith("\n"))
    return (start, end + 1) if ends and text[end : end + 1] == "\n" and text[end - 1 : end] != "\n" else span


def _search_lines(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and lines[-1] == "" else lines


# The rungs, from exact to loose.


def _simple(content: Content, old: str) -> Iterator[Span]:
    """Every place, and with each one that overlaps it: of three braces two are meant, and nothing says which."""
    size = len(old)
    at = content.text.find(old)
    while at >= 0:
        yield at, at + size
        over = content.text.find(old, at + 1, at + 2 * size - 1)
        if over >= 0:
            yield over, over + size
        at = content.text.find(old, at + size)


def _line_trimmed(content: Content, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _search_lines(old)]
    if not any(wanted):
        return
    count = len(wanted)
    for i in range(len(content.trimmed) - count + 1):
        if content.trimmed[i] == wanted[0] and content.trimmed[i : i + count] == wanted:
            yield content.span(i, i + count - 1)


def _block_anchor(content: Content, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _search_lines(old)]
    if len(wanted) < 3 or not wanted[0] or not wanted[-1]:
        return
    best, best_likeness = None, 0.0
    places = list(islice(_anchored(content, wanted), MAX_PLACES + 1))
    for first, last in places if len(places) <= MAX_PLACES else ():
        likeness = _likeness(content.trimmed[first + 1 : last], wanted[1:-1], max(best_likeness, BLOCK_LIKENESS))
        if likeness >= BLOCK_LIKENESS and likeness > best_likeness:
            best, best_likeness = (first, last), likeness
    if best is not None:
        yield content.span(*best)


def _anchored(content: Content, wanted: list[str]) -> Iterator[tuple[int, int]]:
    """Blocks that begin and end with the first and the last wanted line and are about as long.

    A last line such as a lone brace also stands inside the block, so every end is looked at, not only the first.
    """
    slack = max(1, int(len(wanted) * BLOCK_SLACK))
    shortest, longest = max(3, len(wanted) - slack), len(wanted) + slack
    for first, line in enumerate(content.trimmed):
        if line != wanted[0]:
            continue
        for last in range(first + shortest - 1, min(first + longest, len(content.trimmed))):
            if content.trimmed[last] == wanted[-1]:
                yield first, last


def _likeness(middle: list[str], wanted: list[str], least: float) -> float:
    """How alike two runs of lines are, line by line, on average over the longer; gives up when ``least`` is out of reach."""
    longer = max(len(middle), len(wanted))
    total = 0.0
    for i, (a, b) in enumerate(zip(middle, wanted, strict=False)):
        if (total + min(len(middle), len(wanted)) - i) / longer < least:
            return 0.0
        total += 1.0 if a == b else _similarity(a, b)
    return total / longer


@lru_cache(maxsize=4096)
def _similarity(a: str, b: str) -> float:
    longer = max(len(a), len(b))
    return 1.0 - _distance(a, b) / longer if longer else 1.0


def _distance(a: str, b: str) -> int:
    """Levenshtein's distance; for very long lines the length of what differs, which is at least that."""
    head = _shared(a, b)
    a, b = a[head:], b[head:]
    foot = _shared(a[::-1], b[::-1])
    a, b = a[: len(a) - foot], b[: len(b) - foot]
    if not a or not b or len(a) * len(b) > MAX_LEVENSHTEIN:
        return max(len(a), len(b))
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def _shared(a: str, b: str) -> int:
    """How many characters are the same at the beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _whitespace_normalized(content: Content, old: str) -> Iterator[Span]:
    wanted = _folded(old)
    if not wanted:
        return
    inside = re.compile(r"\s+".join(re.escape(word) for word in old.split()))
    for i, line in enumerate(content.lines):
        folded = _folded(line)
        if folded == wanted:
            yield content.span(i, i)
        elif wanted in folded:
            for found in inside.finditer(line):
                span = content.starts[i] + found.start(), content.starts[i] + found.end()
                if _stands_apart(content.text, span, old):
                    yield span
    quoted = _search_lines(old)
    count = len(quoted)
    if count > 1:
        for i in range(len(content.lines) - count + 1):
            # A blank line at either end is one that was quoted: no other is taken along in its place.
            edges = (content.trimmed[i], quoted[0].strip()), (content.trimmed[i + count - 1], quoted[-1].strip())
            if (
                wanted.startswith(_folded(content.lines[i]))
                and all(bool(here) == bool(there) for here, there in edges)
                and _folded(" ".join(content.lines[i : i + count])) == wanted
            ):
                yield content.span(i, i + count - 1)


def _stands_apart(text: str, span: Span, old: str) -> bool:
    """Whether white space at the ends of ``old`` that was left aside does not end up inside a word."""
    start, end = span
    inside = [old[0].isspace() and _is_word(text[start - 1 : start]) and _is_word(text[start])]
    inside.append(old[-1].isspace() and _is_word(text[end : end + 1]) and _is_word(text[end - 1]))
    return not any(inside)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _folded(text: str) -> str:
    return " ".join(text.split())


def _indentation_flexible(content: Content, old: str) -> Iterator[Span]:
    lines = _search_lines(old)
    wanted, count = _outdented(lines), len(lines)
    if not old.strip():
        return
    for i in range(len(content.lines) - count + 1):
        if content.trimmed[i] == lines[0].strip() and _outdented(content.lines[i : i + count]) == wanted:
            yield content.span(i, i + count - 1)


def _outdented(lines: list[str]) -> list[str]:
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[depth:] if line.strip() else line for line in lines]


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "'": "'", '"': '"', "`": "`", "\\": "\\", "\n": "\n", "$": "$"}
_ESCAPE = re.compile(r"\\(n|t|r|'|\"|`|\\|\n|\$)")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES[found[1]], text)


def _escape_normalized(content: Content, old: str) -> Iterator[Span]:
    wanted = _unescaped(old)
    if not wanted.strip():
        return
    if wanted != old:
        yield from _simple(content, wanted)
    if "\\" not in content.text:
        return
    count = wanted.count("\n") + 1
    for i in range(len(content.lines) - count + 1):
        begins = wanted.startswith(_unescaped(content.lines[i].rstrip("\\")))
        if begins and _unescaped("\n".join(content.lines[i : i + count])) == wanted:
            yield content.span(i, i + count - 1)


def _trimmed_boundary(content: Content, old: str) -> Iterator[Span]:
    wanted = old.strip()
    if not wanted or wanted == old:
        return
    found = list(_simple(content, wanted))
    count = old.count("\n") + 1
    for i in range(len(content.lines) - count + 1):
        if wanted.startswith(content.trimmed[i]) and "\n".join(content.lines[i : i + count]).strip() == wanted:
            found.append(content.span(i, i + count - 1))
    for looser in (_line_trimmed, _whitespace_normalized):
        found = found or list(looser(content, wanted))
    yield from (span for span in found if _stands_apart(content.text, span, old))


def _context_aware(content: Content, old: str) -> Iterator[Span]:
    wanted = [line.strip() for line in _search_lines(old)]
    count = len(wanted)
    if count < 3 or not wanted[0] or not wanted[-1]:
        return
    for i in range(len(content.trimmed) - count + 1):
        block = content.trimmed[i : i + count]
        if block[0] != wanted[0] or block[-1] != wanted[-1]:
            continue
        pairs = [(a, b) for a, b in zip(block[1:-1], wanted[1:-1], strict=True) if a or b]
        if not pairs or sum(a == b for a, b in pairs) >= CONTEXT_SHARE * len(pairs):
            yield content.span(i, i + count - 1)


LADDER: tuple[tuple[str, Callable[[Content, str], Iterator[Span]]], ...] = (
    ("Simple", _simple),
    ("LineTrimmed", _line_trimmed),
    ("BlockAnchor", _block_anchor),
    ("WhitespaceNormalized", _whitespace_normalized),
    ("IndentationFlexible", _indentation_flexible),
    ("EscapeNormalized", _escape_normalized),
    ("TrimmedBoundary", _trimmed_boundary),
    ("ContextAware", _context_aware),
)

LOOSELY = {
    "LineTrimmed": "with white space at the ends of lines left aside",
    "BlockAnchor": "by its first and last line, with the lines between only similar",
    "WhitespaceNormalized": "with runs of white space folded",
    "IndentationFlexible": "with another indentation",
    "EscapeNormalized": "with escapes undone",
    "TrimmedBoundary": "with white space at both ends left aside",
    "ContextAware": "by its first and last line and at least half of the lines between",
}


# What to tell when there is not exactly one match.


def _ambiguous(content: Content, old: str, spans: list[Span], strategy: str) -> Ambiguous:
    lines = tuple(content.line_of(start) for start, _ in spans)
    shown = ", ".join(str(line) for line in lines[:20]) + (f" and {len(lines) - 20} more" if len(lines) > 20 else "")
    how = "" if strategy == "Simple" else f" {LOOSELY[strategy]}"
    return Ambiguous(
        f"oldString matches {len(spans)} places{how} (lines {shown}). Quote more of the lines around the one you mean, "
        "or send replaceAll: true to change them all.",
        lines,
    )


def _not_found(content: Content, old: str, reveal: bool) -> str:
    told = "oldString is not in the file, not even with other white space. "
    near = nearest(content, old) if reveal else None
    if near is None:
        return told + "Read the file again and quote it exactly as it is."
    first, last = near
    numbered = "\n".join(f"{i + 1:>6}\t{content.lines[i][:200]}" for i in range(first, min(last, first + 11) + 1))
    return f"{told}The nearest place is lines {first + 1}-{last + 1}:\n{numbered}\nQuote the text exactly as it is."


def nearest(content: Content, old: str) -> tuple[int, int] | None:
    """(first, last) line, from 0, of the place most like ``old``; None when nothing is."""
    wanted = [line.strip() for line in _search_lines(old.strip("\n"))]
    anchor = max(range(len(wanted)), key=lambda i: len(wanted[i]))
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted[anchor][:200])
    best, score = -1, 0.55
    for i, line in enumerate(content.trimmed[:20_000]):
        matcher.set_seq1(line[:200])
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score and (now := matcher.ratio()) > score:
            best, score = i, now
    if best < 0:
        return None
    first = max(0, best - anchor)
    return first, min(len(content.lines) - 1, first + len(wanted) - 1)
