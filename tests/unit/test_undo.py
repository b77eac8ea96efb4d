from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.session.snapshot import Snapshots
from nbagent.session.undo import UndoResult

State = dict[str, tuple[str, int, bytes]]


def state(root: Path) -> State:
    """Everything below a folder: kind, mode and content of each path."""
    found: State = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("l", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            found[name] = ("d", stat.S_IMODE(path.stat().st_mode), b"")
        else:
            found[name] = ("f", stat.S_IMODE(path.stat().st_mode), path.read_bytes())
    return found


class Cell:
    """A root before and after something was done in it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.root.mkdir()
        self.snapshots = Snapshots(self.root, base / "home")
        self.before = self.after = ""

    def put(self, name: str, content: bytes, mode: int = 0o644) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return path

    async def begin(self) -> State:
        self.before = await self.snapshots.take()
        return state(self.root)

    async def end(self) -> State:
        self.after = await self.snapshots.take(since=self.before)
        return state(self.root)

    async def undo(self, *leave_out: str) -> UndoResult:
        return await self.snapshots.undo(self.before, self.after, leave_out=leave_out)

    async def redo(self) -> UndoResult:
        return await self.snapshots.redo(self.before, self.after)


@pytest.fixture
async def cell(tmp_path: Path) -> Cell:
    return Cell(tmp_path)


async def test_undo_and_redo_of_everything_at_once(cell: Cell) -> None:
    cell.put("text.py", b"one\r\ntwo")
    cell.put("data.bin", bytes(range(256)) * 50)
    cell.put("run.sh", b"#!/bin/sh\n", 0o755)
    cell.put("old/deep/gone", b"x", 0o600)
    cell.put("empty", b"")
    (cell.root / "hollow").mkdir(mode=0o711)
    (cell.root / "link").symlink_to("text.py")
    was = await cell.begin()
    cell.put("text.py", b"\xef\xbb\xbfother")
    cell.put("data.bin", b"\0")
    (cell.root / "run.sh").chmod(0o644)
    shutil.rmtree(cell.root / "old")
    (cell.root / "empty").unlink()
    (cell.root / "hollow").rmdir()
    (cell.root / "link").unlink()
    (cell.root / "link").symlink_to("/etc/passwd")
    cell.put("new/a/b", b"fresh")
    (cell.root / "new/void").mkdir()
    (cell.root / "new/pointer").symlink_to("..")
    became = await cell.end()
    result = await cell.undo()
    assert result.kept == ()
    assert state(cell.root) == was
    result = await cell.redo()
    assert result.kept == ()
    assert state(cell.root) == became
    assert (await cell.redo()).restored == ()
    await cell.undo()
    assert state(cell.root) == was


async def test_what_changed_since_is_never_overwritten(cell: Cell) -> None:
    for name in ("edited", "removed", "mode", "untouched"):
        cell.put(name, b"before")
    await cell.begin()
    for name in ("edited", "removed", "mode", "untouched", "created"):
        cell.put(name, b"after")
    await cell.end()
    cell.put("edited", b"by hand")
    cell.put("created", b"by hand")
    (cell.root / "removed").unlink()
    (cell.root / "mode").chmod(0o600)
    result = await cell.undo()
    assert result.restored == ("untouched",)
    assert dict(result.kept) == {
        "created": "it changed since",
        "edited": "it changed since",
        "mode": "it changed since",
        "removed": "it was deleted since",
    }
    assert (cell.root / "edited").read_bytes() == (cell.root / "created").read_bytes() == b"by hand"
    assert not (cell.root / "removed").exists()


async def test_a_place_that_is_taken_again_is_left_alone(cell: Cell) -> None:
    cell.put("gone", b"before")
    cell.put("sub/gone", b"before")
    await cell.begin()
    (cell.root / "gone").unlink()
    shutil.rmtree(cell.root / "sub")
    await cell.end()
    cell.put("gone", b"another")
    cell.put("sub", b"a file now")
    result = await cell.undo()
    assert result.restored == ()
    assert dict(result.kept)["gone"] == "something else was put there since"
    assert "sub/gone" in dict(result.kept)
    assert (cell.root / "sub").read_bytes() == b"a file now"


async def test_what_is_as_before_already_is_said(cell: Cell) -> None:
    cell.put("a", b"before")
    await cell.begin()
    cell.put("a", b"after")
    await cell.end()
    cell.put("a", b"before")
    assert await cell.undo() == UndoResult(same=("a",))


@pytest.mark.parametrize("which", ["the file", "its folder"])
async def test_a_link_put_in_the_way_is_not_followed(cell: Cell, tmp_path: Path, which: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    victim = outside / "a"
    victim.write_bytes(b"after")
    cell.put("sub/a", b"before")
    await cell.begin()
    cell.put("sub/a", b"after")
    await cell.end()
    if which == "the file":
        (cell.root / "sub/a").unlink()
        (cell.root / "sub/a").symlink_to(victim)
    else:
        shutil.rmtree(cell.root / "sub")
        (cell.root / "sub").symlink_to(outside)
    result = await cell.undo()
    assert [path for path, _ in result.kept] == ["sub/a"]
    assert victim.read_bytes() == b"after"


async def test_a_new_file_behind_a_link_is_not_deleted(cell: Cell, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"new")
    await cell.begin()
    cell.put("sub/a", b"new")
    await cell.end()
    shutil.rmtree(cell.root / "sub")
    (cell.root / "sub").symlink_to(outside)
    await cell.undo()
    assert (outside / "a").exists()


async def test_a_folder_that_a_tool_said_it_would_make_goes(cell: Cell) -> None:
    """``mkdir new`` names the folder as what it writes; that is no reason to forget that it is new."""
    await cell.begin()
    await cell.snapshots.note(cell.root / "new")
    cell.put("new/inside.txt", b"1")
    await cell.end()
    await cell.undo()
    assert not (cell.root / "new").exists()
    await cell.redo()
    assert (cell.root / "new/inside.txt").read_text() == "1"


async def test_folders_that_hold_something_stay(cell: Cell) -> None:
    await cell.begin()
    cell.put("new/ours", b"1")
    await cell.end()
    cell.put("new/theirs", b"2")
    assert (await cell.undo()).restored == ("new/ours",)
    assert os.listdir(cell.root / "new") == ["theirs"]


async def test_a_file_that_became_a_folder(cell: Cell) -> None:
    cell.put("x", b"file")
    cell.put("y/in", b"folder")
    was = await cell.begin()
    (cell.root / "x").unlink()
    cell.put("x/in", b"1")
    shutil.rmtree(cell.root / "y")
    cell.put("y", b"2")
    became = await cell.end()
    assert (await cell.undo()).kept == ()
    assert state(cell.root) == was
    assert (await cell.redo()).kept == ()
    assert state(cell.root) == became


async def test_a_hard_link_keeps_its_own_content(cell: Cell, tmp_path: Path) -> None:
    path = cell.put("a", b"before")
    await cell.begin()
    path.write_bytes(b"after")
    await cell.end()
    os.link(path, tmp_path / "other name")
    await cell.undo()
    assert path.read_bytes() == b"before"
    assert (tmp_path / "other name").read_bytes() == b"after"


async def test_patterns_can_be_left_out(cell: Cell) -> None:
    await cell.begin()
    cell.put(".nbagent/plans/p.md", b"plan")
    cell.put("a", b"1")
    await cell.end()
    assert (await cell.undo(".nbagent/plans/*")).restored == ("a",)
    assert (cell.root / ".nbagent/plans/p.md").exists()


async def test_no_temporary_file_is_left(cell: Cell) -> None:
    cell.put("a", b"before")
    await cell.begin()
    cell.put("a", b"after")
    await cell.end()
    await cell.undo()
    assert os.listdir(cell.root) == ["a"]


names = ["a", "b", "d/a", "d/e/a", "d/e/b", "x/y"]
acts = st.lists(
    st.tuples(
        st.sampled_from(["write", "delete", "link", "folder", "mode", "move"]),
        st.sampled_from(names),
        st.integers(0, 3),
    ),
    max_size=8,
)


def act(root: Path, kind: str, name: str, number: int) -> None:
    """Do one thing to a tree; what is not possible there is not done."""
    path = root / name
    try:
        if kind == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * number)
        elif kind == "delete":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif kind == "link":
            path.symlink_to(names[number])
        elif kind == "folder":
            path.mkdir(parents=True)
        elif kind == "mode" and not path.is_symlink():
            path.chmod([0o644, 0o755, 0o600, 0o700][number])
        elif kind == "move":
            os.replace(path, root / names[number])
    except OSError:
        pass


@settings(max_examples=30, deadline=None)
@given(acts, acts)
def test_undo_gives_back_exactly_what_was_and_redo_what_became(first: list[Any], second: list[Any]) -> None:
    import asyncio

    async def run(base: Path) -> None:
        cell = Cell(base)
        for step in first:
            act(cell.root, *step)
        was = await cell.begin()
        for step in second:
            act(cell.root, *step)
        became = await cell.end()
        assert (await cell.undo()).kept == ()
        assert files(state(cell.root)) == files(was)
        assert (await cell.redo()).kept == ()
        assert files(state(cell.root)) == files(became)

    with tempfile.TemporaryDirectory() as base:
        asyncio.run(run(Path(base)))


def files(whole: State) -> State:
    """Without the modes of folders, which are no part of a receipt."""
    return {name: (kind, 0 if kind == "d" else mode, data) for name, (kind, mode, data) in whole.items()}


@settings(max_examples=20, deadline=None)
@given(acts, acts, acts)
def test_undo_never_loses_what_a_person_did_since(first: list[Any], second: list[Any], third: list[Any]) -> None:
    import asyncio

    async def run(base: Path) -> None:
        cell = Cell(base)
        for step in first:
            act(cell.root, *step)
        was = await cell.begin()
        for step in second:
            act(cell.root, *step)
        became = await cell.end()
        random.seed(len(third))
        for step in third:
            act(cell.root, *step)
        now = state(cell.root)
        await cell.undo()
        then = state(cell.root)
        for name, (kind, mode, data) in now.items():
            if kind != "d" and now[name] != became.get(name):
                assert then.get(name) == (kind, mode, data), f"{name} was changed by the person and then by undo"
        for name, entry in then.items():
            assert entry[0] == "d" or entry in (now.get(name), was.get(name))

    with tempfile.TemporaryDirectory() as base:
        asyncio.run(run(Path(base)))
