"""Putting files back. What changed meanwhile is never overwritten, no link is followed, each file comes back in one rename."""

# This file works on descriptors, which pathlib does not know.
# ruff: noqa: PTH101, PTH102, PTH105, PTH211

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.session.tree import Folder, by_state, opened, shown, state_of
from nbagent.session.vault import NO_COPY, Entry, ident_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

Contents = Callable[[bytes], bytes | None]


@dataclass(frozen=True, slots=True)
class Step:
    """One path: what should stand there now, and what stood there then. None: nothing."""

    path: str
    now: Entry | None
    then: Entry | None


@dataclass(frozen=True, slots=True)
class UndoResult:
    """``restored``: paths that were put back (or removed). ``kept``: (path, why) that were left alone. ``same``: paths that were as
    wanted already."""

    restored: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    same: tuple[str, ...] = ()


class _Kept(Exception):
    """Leave this path alone; the message says why."""


def carry_out(root: Path, steps: Sequence[Step], contents: Contents) -> UndoResult:
    """Take ``steps`` (sorted by path): remove what was not there, then make what was. Blocking; never raises ``OSError``."""
    restored: list[str] = []
    kept: list[tuple[str, str]] = []
    same: list[str] = []

    def each(step: Step, act: Callable[[Path, Step, Contents], bool]) -> None:
        path = shown(step.path)
        try:
            (restored if act(root, step, contents) else same).append(path)
        except _Kept as why:
            kept.append((path, str(why)))
        except OSError as error:
            kept.append((path, f"it could not be changed: {error.strerror or error}"))

    files = [step for step in steps if _file(step.now) or _file(step.then)]
    for step in reversed(files):
        if not _file(step.then):
            each(step, _remove)
    for step in reversed(steps):
        if _folder(step.now) and not _folder(step.then):
            _remove_folder(root, step)
    for step in steps:
        if _folder(step.then) and not _folder(step.now):
            _make_folder(root, step)
    for step in files:
        if _file(step.then):
            each(step, _put_back)
    return UndoResult(tuple(sorted(restored)), tuple(sorted(kept)), tuple(sorted(same)))


def _file(entry: Entry | None) -> bool:
    return entry is not None and entry.kind not in "di"


def _folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "d"


def _remove(root: Path, step: Step, contents: Contents) -> bool:
    with opened(root, step.path) as (folder, name):
        found = folder.stat(name) if folder is not None else None
        if folder is None or found is None or (stat.S_ISDIR(found.st_mode) and _folder(step.then)):
            return False
        _must_be(folder, name, found, step.now)
        if step.now is not None and step.now.kind in NO_COPY:
            raise _Kept("no copy of it is kept, so it is not deleted")
        _still(folder, name, found)
        where, at = folder.at(name)
        os.unlink(where, **at)
    return True


def _put_back(root: Path, step: Step, contents: Contents) -> bool:
    then = step.then
    assert then is not None
    with opened(root, step.path) as (folder, name):
        found = folder.stat(name) if folder is not None else None
        if folder is not None and found is not None and _is(folder, name, found, then):
            return False
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise _Kept("a folder stands there, and it is not empty")
        if folder is not None:
            _must_be(folder, name, found, step.now if _file(step.now) else None)
        elif _file(step.now):
            raise _Kept("it was deleted since")
    if then.kind in NO_COPY:
        raise _Kept("no copy of it was kept")
    data = contents(then.ident)
    if data is None:
        raise _Kept("its copy is not kept any more")
    with opened(root, step.path, create=True) as (folder, name):
        assert folder is not None
        _write(folder, name, then, data, found)
    return True


def _must_be(folder: Folder, name: str, found: os.stat_result | None, now: Entry | None) -> None:
    if found is None and now is None:
        return
    if found is None:
        raise _Kept("it was deleted since")
    if now is None:
        raise _Kept("something else was put there since")
    if not _is(folder, name, found, now):
        raise _Kept("it changed since")


def _is(folder: Folder, name: str, found: os.stat_result, wanted: Entry) -> bool:
    """Whether what stands there now is ``wanted``, by content."""
    if stat.S_ISLNK(found.st_mode):
        return wanted.kind == "l" and ident_of(folder.link(name)) == wanted.ident
    if not stat.S_ISREG(found.st_mode) or wanted.kind == "l" or stat.S_IMODE(found.st_mode) != wanted.mode:
        return False
    if wanted.kind in NO_COPY:
        return by_state(found, wanted.kind).same(wanted)
    read = folder.read(name, found.st_size)
    return read is not None and ident_of(read[0]) == wanted.ident


def _still(folder: Folder, name: str, found: os.stat_result | None) -> None:
    """The last look before the act."""
    now = folder.stat(name)
    if (now is None) != (found is None) or (now is not None and found is not None and state_of(now) != state_of(found)):
        raise _Kept("it changed just now")


def _write(folder: Folder, name: str, then: Entry, data: bytes, found: os.stat_result | None) -> None:
    temporary = f".{name[:64]}.{secrets.token_hex(8)}.tmp"
    source, at = folder.at(temporary)
    target, _ = folder.at(name)
    try:
        if then.kind == "l":
            os.symlink(os.fsdecode(data), source, **at)
        else:
            _write_new(source, data, then.mode, found, at)
        _still(folder, name, found)
        ends = {"src_dir_fd": folder.descriptor, "dst_dir_fd": folder.descriptor} if at else {}
        os.replace(source, target, **ends)
    except BaseException:
        if folder.stat(temporary) is not None:
            os.unlink(source, **at)
        raise


def _write_new(path: str, data: bytes, mode: int, found: os.stat_result | None, at: dict[str, int]) -> None:
    descriptor = os.open(path, _NEW | getattr(os, "O_CLOEXEC", 0), 0o600, **at)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        if hasattr(os, "fchown") and found is not None and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
            _own(descriptor, found)
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def _own(descriptor: int, found: os.stat_result) -> None:
    try:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    except PermissionError:
        pass  # only root gives files away; the content matters more


def _remove_folder(root: Path, step: Step) -> None:
    """A folder that was not there goes when it is empty; otherwise something in it was kept, and that was said."""
    try:
        with opened(root, step.path) as (folder, name):
            if folder is not None:
                where, at = folder.at(name)
                os.rmdir(where, **at)
    except OSError:
        pass


def _make_folder(root: Path, step: Step) -> None:
    """A folder that is in the way of nothing; a file that cannot be put into it says so itself."""
    try:
        with opened(root, step.path, create=True) as (folder, name):
            if folder is not None and step.then is not None and folder.stat(name) is None:
                where, at = folder.at(name)
                os.mkdir(where, 0o700, **at)
                with folder.child(name) as made:
                    os.chmod(made.descriptor if at else where, step.then.mode)
    except OSError:
        pass
