"""What would change, as a unified diff for a person: capped, and counted."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from nbagent.tools.textfile import printable

MAX_LINES = 400
MAX_LINE = 500
# Over this many lines a line-by-line comparison costs more than a preview is worth.
MAX_COMPARED = 20_000


@dataclass(frozen=True, slots=True)
class Diff:
    """``text``: unified diff, cut where it is long; ``additions`` and ``deletions`` count all of it."""

    text: str
    additions: int
    deletions: int


def unified(before: str, after: str, path: str, *, new: bool = False, gone: bool = False, moved: str = "") -> Diff:
    """The diff of one file. ``new``: it was not there; ``gone``: it is deleted; ``moved``: its path afterwards."""
    old, fresh = _lines(before), _lines(after)
    head, foot = _shared(old, fresh)
    middle_old, middle_new = old[head : len(old) - foot], fresh[head : len(fresh) - foot]
    if len(middle_old) + len(middle_new) > MAX_COMPARED:
        body = [
            f"@@ -{head + 1},{len(middle_old)} +{head + 1},{len(middle_new)} @@",
            *(f"-{x}" for x in middle_old),
            *(f"+{x}" for x in middle_new),
        ]
    else:
        lead = max(0, head - 3)
        tail = max(0, foot - 3)
        body = _hunks(old[lead : len(old) - tail], fresh[lead : len(fresh) - tail], lead)
    additions = sum(line.startswith("+") for line in body)
    deletions = sum(line.startswith("-") for line in body)
    names = [
        f"--- {'/dev/null' if new else 'a/' + path}",
        f"+++ {'/dev/null' if gone else 'b/' + (moved or path)}",
    ]
    return Diff(printable("\n".join([*names, *_capped(body)]) + "\n"), additions, deletions)


def _lines(text: str) -> list[str]:
    """Lines without their breaks; a missing last break is told, as ``diff`` tells it."""
    if not text:
        return []
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def _shared(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are the same at the beginning and at the end."""
    least = min(len(old), len(new))
    head = 0
    while head < least and old[head] == new[head]:
        head += 1
    foot = 0
    while foot < least - head and old[-1 - foot] == new[-1 - foot]:
        foot += 1
    return head, foot


def _hunks(old: list[str], new: list[str], offset: int) -> list[str]:
    body: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=True).get_grouped_opcodes(3):
        first, last = group[0], group[-1]
        body.append(f"@@ -{_range(first[1], last[2], offset)} +{_range(first[3], last[4], offset)} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                body.extend(f" {line}" for line in old[i1:i2])
                continue
            body.extend(f"-{line}" for line in old[i1:i2])
            body.extend(f"+{line}" for line in new[j1:j2])
    return body


def _range(start: int, stop: int, offset: int) -> str:
    length = stop - start
    begin = start + offset + (1 if length else 0)
    return str(begin) if length == 1 else f"{begin},{length}"


def _capped(body: list[str]) -> list[str]:
    shown = [line if len(line) <= MAX_LINE else line[:MAX_LINE] + "…" for line in body[:MAX_LINES]]
    if len(body) > MAX_LINES:
        shown.append(f"… {len(body) - MAX_LINES:,} more lines of this diff")
    return shown
