"""What differs between two snapshots, and how a person is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from nbagent.errors import SessionError
from nbagent.message import FileChange
from nbagent.session.tree import shown
from nbagent.session.vault import NO_COPY, Entry, Vault
from nbagent.tools.diff import unified

MAX_FILES = 500
MAX_DIFF_CHARS = 200_000
MAX_COMPARED = 16 * 1024 * 1024
MAX_NOTES = 20

PRIVATE = (".env", ".env.*", "*.env", "*.pem", "*.key", "id_rsa*", "id_ed25519*", "*credentials*", ".netrc", ".pgpass")
"""Names of files whose lines are not shown in a receipt."""

WITHOUT_COPY = {
    "b": "it is too large",
    "n": "the room for copies was used up",
    "u": "it cannot be read",
    "m": "it was being written",
}

IGNORED = Entry("i", 0, b"")


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two snapshots, by path, and what a person should know about it."""

    files: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """One path that is not the same before and after; None: nothing there."""

    path: str
    before: Entry | None
    after: Entry | None


def receipt(db: sqlite3.Connection, before: str, after: str, leave_out: Sequence[str] = ()) -> Changes:
    """What changed between two snapshots. Raises ``SessionError`` when one of them is not kept any more."""
    found, notes = differences(db, before, after, leave_out)
    files = [each for each in found if _file(each.before) or _file(each.after)]
    changes = tuple(_described(db, files[:MAX_FILES]))
    if len(files) > MAX_FILES:
        notes.append(f"{len(files) - MAX_FILES} more files changed; undo covers them too")
    notes += [*_moves(files), *(note for each in files for note in _warnings(each))]
    told = list(dict.fromkeys([*row(db, before)[1], *row(db, after)[1], *notes]))
    if len(told) > MAX_NOTES:
        told[MAX_NOTES - 1 :] = [f"and {len(told) - MAX_NOTES + 1} more notes of this kind"]
    return Changes(changes, tuple(told))


def differences(
    db: sqlite3.Connection, before: str, after: str, leave_out: Sequence[str] = ()
) -> tuple[list[Difference], list[str]]:
    """Files and folders that differ, sorted by path, and notes on what cannot be told."""
    trees = row(db, before)[0], row(db, after)[0]
    extras = Vault.extras(db, before), Vault.extras(db, after)
    sides = {path: (b, a) for path, b, a in _walk(db, trees[0], trees[1], "")}
    for path in extras[0].keys() | extras[1].keys():
        one, other = (
            extra[path] if path in extra else lookup(db, tree, path) for extra, tree in zip(extras, trees, strict=True)
        )
        sides[path] = one, other
    found: list[Difference] = []
    hidden: list[str] = []
    for path, (b, a) in sorted(sides.items()):
        if any(fnmatchcase(path, pattern) for pattern in leave_out):
            continue
        if IGNORED in (b, a):
            if b is not None and a is not None and a != b:
                hidden.append(path)
        elif not (a is b or (a is not None and a.same(b))):
            found.append(Difference(path, b, a))
    if not hidden:
        return found, []
    return found, [f"not compared, because ignored before or after: {_some(hidden)}"]


# ── reading snapshots ──


def row(db: sqlite3.Connection, snapshot: str) -> tuple[bytes, list[str]]:
    """The listing of a snapshot's root, and the notes that were made when it was taken."""
    found = db.execute("SELECT folder, notes FROM snapshot WHERE id = ?", (snapshot,)).fetchone()
    if found is None:
        raise SessionError(
            f"The snapshot {snapshot} is not kept any more, so there is nothing to compare with or to undo."
        )
    return found[0], msgspec.json.decode(found[1], type=list[str])


def lookup(db: sqlite3.Connection, tree: bytes, path: str) -> Entry | None:
    """What a snapshot's tree says of one path; an ignored entry where it does not look."""
    if Path(path).is_absolute():
        return IGNORED
    entry: Entry | None = Entry("d", 0, tree)
    for name in path.split("/"):
        if entry is None or entry.kind == "i":
            return entry
        if entry.kind != "d":
            return None
        entry = dict(_listing(db, entry.ident)).get(name)
    return entry


def files_below(db: sqlite3.Connection, tree: bytes, prefix: str = "") -> Iterator[str]:
    """The paths of all files and links that a tree has."""
    for name, entry in _listing(db, tree):
        if entry.kind == "d":
            yield from files_below(db, entry.ident, f"{prefix}{name}/")
        elif entry.kind != "i":
            yield prefix + name


def _listing(db: sqlite3.Connection, ident: bytes | None) -> list[tuple[str, Entry]]:
    return [] if ident is None else [(_name(raw), entry) for raw, entry in Vault.folder(db, ident)]


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _walk(
    db: sqlite3.Connection, before: bytes | None, after: bytes | None, prefix: str
) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Every path whose two sides are not equal. Below a folder that one side does not look into, nothing."""
    if before == after:
        return
    old, new = dict(_listing(db, before)), dict(_listing(db, after))
    for name in old.keys() | new.keys():
        b, a = old.get(name), new.get(name)
        if b == a:
            continue
        path = prefix + name
        both = _is_folder(b) and _is_folder(a)
        if not both:
            yield path, b, a
        if IGNORED not in (b, a) and (_is_folder(b) or _is_folder(a)):
            yield from _walk(db, _ident(b), _ident(a), path + "/")


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "d"


def _ident(entry: Entry | None) -> bytes | None:
    return entry.ident if entry is not None and entry.kind == "d" else None


def _file(entry: Entry | None) -> Entry | None:
    """The entry, if it is a file or a link."""
    return None if entry is None or entry.kind in "di" else entry


# ── telling ──


def _described(db: sqlite3.Connection, files: Sequence[Difference]) -> Iterator[FileChange]:
    chars, compared = MAX_DIFF_CHARS, MAX_COMPARED
    for each in files:
        sides = _content(db, each.before), _content(db, each.after)
        cost = sum(len(data or b"") for data in sides) if all(sides) else 0  # comparing costs, listing does not
        change = _change(each, sides, cost <= compared, chars)
        compared -= cost
        chars -= len(change.diff)
        yield change


def _change(each: Difference, sides: tuple[bytes | None, bytes | None], affordable: bool, chars: int) -> FileChange:
    before, after = _file(each.before), _file(each.after)
    status: Literal["added", "modified", "deleted"] = (
        "modified" if before and after else "added" if after else "deleted"
    )
    path = shown(each.path)
    texts = _text(sides[0]), _text(sides[1])
    if texts[0] is None or texts[1] is None or not affordable:
        why = "" if affordable else "(not compared: very much changed)\n"
        return FileChange(path=path, status=status, diff=_modes(before, after) + why)
    diff = unified(texts[0], texts[1], path, new=before is None, gone=after is None)
    text = diff.text if diff.additions or diff.deletions else ""
    if text and any(fnmatchcase(each.path.rpartition("/")[2].lower(), pattern) for pattern in PRIVATE):
        text = "(the lines of this file are not shown)\n"
    if len(text) > chars:
        text = "(not shown: the receipt is long enough)\n"
    whole = _modes(before, after) + text
    return FileChange(path=path, status=status, additions=diff.additions, deletions=diff.deletions, diff=whole)


def _content(db: sqlite3.Connection, entry: Entry | None) -> bytes | None:
    """What is in a file or a link; nothing where nothing is; None where it is not known."""
    file = _file(entry)
    if file is None:
        return b""
    return None if file.kind in NO_COPY else Vault.get(db, file.ident)


def _text(data: bytes | None) -> str | None:
    """None for what is not text."""
    if data is None or b"\0" in data[:8192]:
        return None
    return data.decode("utf-8", "replace")


def _modes(before: Entry | None, after: Entry | None) -> str:
    if before is None or after is None or before.mode == after.mode or "l" in (before.kind, after.kind):
        return ""
    return f"mode {before.mode:o} → {after.mode:o}\n"


def _moves(files: Iterable[Difference]) -> list[str]:
    """Files that are gone at one place and stand unchanged at another."""
    gone: dict[bytes, list[str]] = {}
    come: dict[bytes, list[str]] = {}
    for each in files:
        before, after = _file(each.before), _file(each.after)
        if before and not after and before.kind == "f":
            gone.setdefault(before.ident, []).append(each.path)
        if after and not before and after.kind == "f":
            come.setdefault(after.ident, []).append(each.path)
    pairs = [(gone[ident], come[ident]) for ident in gone if ident in come]
    return [f"moved: {shown(old[0])} → {shown(new[0])}" for old, new in pairs if len(old) == len(new) == 1]


def _warnings(each: Difference) -> Iterator[str]:
    """Why undo or redo will not be able to put this file back."""
    before, after = _file(each.before), _file(each.after)
    if before is not None and before.kind in NO_COPY:
        yield f"{shown(each.path)}: no copy of it from before was kept ({WITHOUT_COPY[before.kind]}), so undo cannot put it back"
    elif after is not None and after.kind in NO_COPY:
        yield f"{shown(each.path)}: no copy of it is kept ({WITHOUT_COPY[after.kind]}), so {_limit(before)}"


def _limit(before: Entry | None) -> str:
    return "undo does not delete it" if before is None else "redo cannot bring it back"


def _some(paths: Sequence[str], most: int = 5) -> str:
    told = ", ".join(shown(path) for path in paths[:most])
    return told if len(paths) <= most else f"{told} and {len(paths) - most} more"
