from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from nbagent.clock import CountingClock
from nbagent.errors import RootError, SessionError, StoreError
from nbagent.session.receipt import Changes
from nbagent.session.snapshot import Snapshots


class Project:
    """A folder and its snapshots, with what happens between two of them."""

    def __init__(self, base: Path, **options: float) -> None:
        self.root = base / "project"
        self.home = base / "home"
        self.root.mkdir(exist_ok=True)
        self.snapshots = Snapshots(self.root, self.home, **options)  # type: ignore[arg-type]
        self.before = ""
        self.after = ""

    def put(self, name: str, content: str | bytes = "", mode: int | None = None) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            path.chmod(mode)
        return path

    async def begin(self) -> None:
        self.before = await self.snapshots.take()

    async def end(self, *leave_out: str) -> Changes:
        self.after = await self.snapshots.take(since=self.before)
        return await self.snapshots.compare(self.before, self.after, leave_out=leave_out)

    def copies(self) -> bytes:
        return next(self.home.rglob("*.sqlite")).read_bytes()


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_a_look_stands_aside_while_something_else_is_at_work(project: Project) -> None:
    project.put("a/b/one.txt", "1")
    precedence = project.snapshots.precedence
    with precedence.working():
        look = asyncio.create_task(project.snapshots.take())
        assert not (await asyncio.wait({look}, timeout=0.5))[0]
    assert await asyncio.wait_for(look, 5)


async def test_a_look_that_somebody_waits_for_goes_on(project: Project) -> None:
    project.put("a/b/one.txt", "1")
    precedence = project.snapshots.precedence
    with precedence.working(), precedence.working():
        look = asyncio.create_task(project.snapshots.take())
        assert not (await asyncio.wait({look}, timeout=0.3))[0]
        with precedence.waiting():
            before = await asyncio.wait_for(look, 5)
    project.put("a/b/one.txt", "2")
    after = await project.snapshots.take(since=before)
    assert told(await project.snapshots.compare(before, after)) == {"a/b/one.txt": "modified"}


async def test_time_stood_aside_is_not_time_taken_to_look(tmp_path: Path) -> None:
    project = Project(tmp_path, max_seconds=0.3)
    project.put("a/b/one.txt", "1")
    with project.snapshots.precedence.working():
        look = asyncio.create_task(project.snapshots.take())
        assert not (await asyncio.wait({look}, timeout=0.6))[0]
    project.before = await asyncio.wait_for(look, 5)
    project.put("a/b/one.txt", "2")
    changes = await project.end()
    assert told(changes) == {"a/b/one.txt": "modified"} and not changes.notes


async def test_a_look_that_stands_aside_can_be_stopped_and_does_not_wait_for_ever(project: Project) -> None:
    with project.snapshots.precedence.working():
        look = asyncio.create_task(project.snapshots.take())
        await asyncio.wait({look}, timeout=0.2)
        look.cancel()
        await asyncio.wait({look}, timeout=5)
        stopped = threading.Event()
        rest = project.snapshots.precedence.rest(0.1)
        rest(stopped)
        began = time.monotonic()
        rest(stopped)
        assert time.monotonic() - began < 0.05
    assert look.cancelled()
    assert await asyncio.wait_for(project.snapshots.take(), 5)


def told(changes: Changes) -> dict[str, str]:
    return {file.path: file.status for file in changes.files}


async def test_nothing_changed_is_nothing_told(project: Project) -> None:
    project.put("a/b/c.txt", "x")
    await project.begin()
    assert await project.end() == Changes()


async def test_added_modified_deleted_with_counts_and_diff(project: Project) -> None:
    project.put("keep.txt", "same")
    project.put("change.py", "one\ntwo\nthree\n")
    project.put("old/gone.py", "1\n2\n")
    await project.begin()
    project.put("change.py", "one\n2\nthree\nfour\n")
    project.put("new/fresh.py", "a\nb\nc\n")
    shutil.rmtree(project.root / "old")
    changes = await project.end()
    counts = {file.path: (file.status, file.additions, file.deletions) for file in changes.files}
    assert counts == {
        "change.py": ("modified", 2, 1),
        "new/fresh.py": ("added", 3, 0),
        "old/gone.py": ("deleted", 0, 2),
    }
    assert [file.path for file in changes.files] == sorted(counts)
    assert "-two\n+2\n" in changes.files[0].diff
    assert changes.notes == ()


async def test_a_change_of_the_same_size_and_time_is_seen(project: Project) -> None:
    path = project.put("a", "one")
    os.utime(path, ns=(10**18, 10**18))
    await project.begin()
    path.write_text("two")
    os.utime(path, ns=(10**18, 10**18))
    assert told(await project.end()) == {"a": "modified"}


async def test_a_file_that_was_only_touched_did_not_change(project: Project) -> None:
    path = project.put("a", "one")
    await project.begin()
    os.utime(path, ns=(10**18, 10**18))
    assert await project.end() == Changes()


async def test_binary_files_have_no_counts(project: Project) -> None:
    project.put("b.bin", b"\0\1\2")
    await project.begin()
    project.put("b.bin", b"\0\1\3")
    (change,) = (await project.end()).files
    assert (change.status, change.additions, change.deletions, change.diff) == ("modified", None, None, "")


async def test_modes_are_told(project: Project) -> None:
    project.put("run.sh", "x", 0o644)
    await project.begin()
    (project.root / "run.sh").chmod(0o755)
    (change,) = (await project.end()).files
    assert (change.status, change.additions, change.deletions) == ("modified", 0, 0)
    assert "644 → 755" in change.diff


async def test_links_are_links_and_are_never_followed(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private").write_text("SECRET-OUTSIDE")
    (project.root / "link").symlink_to(outside)
    (project.root / "dangling").symlink_to("nowhere")
    await project.begin()
    (outside / "private").write_text("changed SECRET-OUTSIDE")
    assert await project.end() == Changes()
    (project.root / "dangling").unlink()
    (project.root / "dangling").symlink_to("elsewhere")
    changes = await project.end()
    assert told(changes) == {"dangling": "modified"}
    assert "+elsewhere" in changes.files[0].diff
    with sqlite3.connect(project.snapshots._vault.path) as db:
        assert {bytes(row[0]) for row in db.execute("SELECT data FROM content")} >= {b"nowhere", b"elsewhere"}
        assert not [row for row in db.execute("SELECT data FROM content") if b"SECRET" in row[0]]


async def test_special_files_are_passed_over(project: Project) -> None:
    os.mkfifo(project.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(project.root)
        try:
            listener.bind("socket")
        finally:
            os.chdir("/")
        await asyncio.wait_for(project.begin(), 10)
        (project.root / "pipe").unlink()
        assert await project.end() == Changes()


async def test_names_that_are_not_utf_8(project: Project) -> None:
    odd = os.fsencode(project.root) + b"/bad\xff\n.txt"
    with open(odd, "wb") as file:
        file.write(b"1")
    await project.begin()
    with open(odd, "wb") as file:
        file.write(b"2")
    changes = await project.end()
    assert [file.path for file in changes.files] == ["bad\\xff\\n.txt"]
    result = await project.snapshots.undo(project.before, project.after)
    assert result.restored == ("bad\\xff\\n.txt",)
    assert [(project.root / os.fsdecode(name)).read_bytes() for name in os.listdir(os.fsencode(project.root))] == [b"1"]


async def test_a_move_is_told_as_one(project: Project) -> None:
    project.put("a.py", "content\n")
    await project.begin()
    (project.root / "a.py").rename(project.root / "b.py")
    changes = await project.end()
    assert told(changes) == {"a.py": "deleted", "b.py": "added"}
    assert changes.notes == ("moved: a.py → b.py",)


async def test_a_file_that_becomes_a_folder_and_back(project: Project) -> None:
    project.put("x", "file")
    project.put("y/in", "folder")
    await project.begin()
    (project.root / "x").unlink()
    project.put("x/in", "new")
    shutil.rmtree(project.root / "y")
    project.put("y", "file now")
    assert told(await project.end()) == {"x": "deleted", "x/in": "added", "y": "added", "y/in": "deleted"}


async def test_what_is_left_out_is_not_told(project: Project) -> None:
    await project.begin()
    project.put(".nbagent/plans/p.md", "plan")
    project.put("a.py", "x")
    assert told(await project.end()) == {".nbagent/plans/p.md": "added", "a.py": "added"}
    assert told(await project.end(".nbagent/plans/*")) == {"a.py": "added"}


@pytest.mark.parametrize("name", [".env", "deploy/prod.env", "server.PEM"])
async def test_lines_of_private_files_are_not_shown(project: Project, name: str) -> None:
    project.put(name, "A=1\n")
    await project.begin()
    project.put(name, "A=TOPSECRET\n")
    (change,) = (await project.end()).files
    assert "TOPSECRET" not in change.diff
    assert (change.additions, change.deletions) == (1, 1)


# ── ignored files ──


async def test_ignored_files_are_left_alone(project: Project) -> None:
    project.put(".gitignore", "*.log\nout/\n")
    project.put("x.log", "1")
    await project.begin()
    project.put("x.log", "22")
    project.put("new.log", "1")
    project.put("out/y", "1")
    project.put("sub/__pycache__/m.pyc", "1")
    project.put("env/pyvenv.cfg", "")
    project.put("env/lib/x.py", "")
    project.put("a.py", "1")
    changes = await project.end()
    assert told(changes) == {"a.py": "added"}


async def test_files_that_git_tracks_count_although_they_are_ignored(project: Project) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git to make a repository")
    project.put(".gitignore", "*.log\nvendor/\n")
    project.put("kept.log", "1")
    project.put("vendor/lib.py", "1")
    project.put("vendor/other.py", "1")
    for command in (["init", "-q"], ["add", "-f", "kept.log", "vendor/lib.py"]):
        subprocess.run(["git", *command], cwd=project.root, check=True)
    await project.begin()
    for name in ("kept.log", "free.log", "vendor/lib.py", "vendor/other.py"):
        project.put(name, "changed")
    assert told(await project.end()) == {"kept.log": "modified", "vendor/lib.py": "modified"}


async def test_a_repository_is_only_read(project: Project) -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git to make a repository")
    trap = project.root.parent / "trap"
    subprocess.run(["git", "init", "-q"], cwd=project.root, check=True)
    for key in ("filter.x.clean", "core.fsmonitor", "filter.x.process"):
        subprocess.run(["git", "config", key, f"touch {trap}"], cwd=project.root, check=True)
    project.put(".gitattributes", "* filter=x\n")
    project.put("a.txt", "1\r\n")
    state = {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")}
    await project.begin()
    project.put("a.txt", "2\r\n")
    changes = await project.end()
    await project.snapshots.undo(project.before, project.after)
    assert told(changes) == {"a.txt": "modified"}
    assert (project.root / "a.txt").read_bytes() == b"1\r\n"
    assert not trap.exists()
    assert {path: path.stat().st_mtime_ns for path in (project.root / ".git").rglob("*")} == state


async def test_a_repository_inside_has_its_own_rules(project: Project) -> None:
    project.put(".gitignore", "*.txt\n")
    project.put("inner/.git/HEAD", "ref: x")
    project.put("inner/.gitignore", "*.py\n")
    await project.begin()
    for name in ("a.txt", "inner/a.txt", "inner/a.py", "inner/.git/x"):
        project.put(name, "1")
    assert told(await project.end()) == {"inner/a.txt": "added"}


async def test_a_file_that_becomes_ignored_is_still_compared(project: Project) -> None:
    project.put("data/a.csv", "1")
    project.put("b.csv", "1")
    await project.begin()
    project.put(".gitignore", "*.csv\ndata/\n")
    project.put("data/a.csv", "2")
    changes = await project.end()
    assert told(changes) == {".gitignore": "added", "data/a.csv": "modified"}


async def test_a_file_that_was_ignored_is_never_taken_for_new(project: Project) -> None:
    project.put(".gitignore", "*.csv\nraw/\n")
    project.put("precious.csv", "1")
    project.put("raw/more.csv", "1")
    await project.begin()
    (project.root / ".gitignore").unlink()
    changes = await project.end()
    assert told(changes) == {".gitignore": "deleted"}
    assert "precious.csv" in changes.notes[0]
    await project.snapshots.undo(project.before, project.after)
    assert (project.root / "precious.csv").exists()
    assert (project.root / "raw/more.csv").exists()


async def test_an_ignored_file_that_a_tool_touches_is_kept(project: Project) -> None:
    project.put(".gitignore", "*.log\nout/\n")
    old = project.put("old.log", "before\n")
    fresh, deep = project.root / "fresh.log", project.root / "out" / "deep.txt"
    await project.begin()
    for path in (old, fresh, deep):
        await project.snapshots.note(path)
    await project.snapshots.note(old)
    old.write_text("after\n")
    await project.snapshots.note(old)
    project.put("fresh.log", "new\n")
    project.put("out/deep.txt", "new\n")
    assert told(await project.end()) == {"fresh.log": "added", "old.log": "modified", "out/deep.txt": "added"}
    result = await project.snapshots.undo(project.before, project.after)
    assert set(result.restored) == {"fresh.log", "old.log", "out/deep.txt"}
    assert old.read_text() == "before\n"
    assert not fresh.exists()
    await project.begin()
    old.write_text("noticed by itself\n")
    assert told(await project.end()) == {"old.log": "modified"}


async def test_a_file_outside_the_root_that_a_tool_touches_is_kept(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "x.txt"
    outside.parent.mkdir()
    outside.write_text("before")
    await project.begin()
    await project.snapshots.note(outside)
    outside.write_text("after")
    assert told(await project.end()) == {outside.as_posix(): "modified"}
    result = await project.snapshots.undo(project.before, project.after)
    assert result.restored == (outside.as_posix(),)
    assert outside.read_text() == "before"


async def test_a_note_before_any_snapshot_is_harmless(project: Project) -> None:
    await project.snapshots.note(project.put("a", "x"))


# ── limits ──


async def test_a_file_too_large_is_told_but_cannot_be_put_back(tmp_path: Path) -> None:
    project = Project(tmp_path, max_file=1000)
    project.put("big.csv", "x" * 2000)
    await project.begin()
    project.put("big.csv", "y" * 2001)
    project.put("new.csv", "z" * 2000)
    changes = await project.end()
    assert {file.path: (file.status, file.additions) for file in changes.files} == {
        "big.csv": ("modified", None),
        "new.csv": ("added", None),
    }
    assert ["big.csv" in changes.notes[0], "new.csv" in changes.notes[1]] == [True, True]
    result = await project.snapshots.undo(project.before, project.after)
    assert result.restored == ()
    assert [path for path, _ in result.kept] == ["big.csv", "new.csv"]
    assert (project.root / "new.csv").exists()
    assert project.root.joinpath("big.csv").read_text() == "y" * 2001


async def test_room_for_copies_is_not_passed(tmp_path: Path) -> None:
    project = Project(tmp_path, max_total=400_000)
    for number in range(20):
        project.put(f"f{number}", os.urandom(50_000))
    await project.begin()
    assert await project.snapshots.size() < 500_000
    project.put("f19", b"changed")
    changes = await project.end()
    assert told(changes) == {"f19": "modified"}
    assert "room" in changes.notes[0]


async def test_old_copies_make_room_for_new_ones(tmp_path: Path) -> None:
    project = Project(tmp_path, max_total=600_000)
    for _ in range(40):
        project.put("f", os.urandom(50_000))
        await project.begin()
        project.put("f", os.urandom(50_000))
        changes = await project.end()
        assert told(changes) == {"f": "modified"}
    assert await project.snapshots.size() < 1_500_000
    assert (await project.snapshots.undo(project.before, project.after)).restored == ("f",)


async def test_a_tree_with_too_many_files_is_compared_as_far_as_it_was_looked_at(tmp_path: Path) -> None:
    project = Project(tmp_path, max_entries=10)
    for number in range(30):
        project.put(f"d{number:02d}/f", "1")
    await project.begin()
    project.put("d00/f", "2")
    project.put("d29/f", "2")
    changes = await project.end()
    assert told(changes) == {"d00/f": "modified"}
    assert "not looked into" in changes.notes[0]


async def test_a_tree_that_takes_too_long_is_compared_as_far_as_it_was_looked_at(tmp_path: Path) -> None:
    """What a tool says that it writes is kept all the same."""
    project = Project(tmp_path, max_seconds=0)
    for name in ("a/f", "b/f", "c"):
        project.put(name, "1")
    await project.begin()
    await project.snapshots.note(project.root / "b/f")
    for name in ("a/f", "b/f", "c"):
        project.put(name, "2")
    changes = await project.end()
    assert told(changes) == {"b/f": "modified"}
    assert "a/ and 2 more not looked at" in changes.notes[0] and "smaller root" in changes.notes[0]
    assert (await project.snapshots.undo(project.before, project.after)).restored == ("b/f",)


async def test_a_receipt_of_very_many_files_is_cut(project: Project) -> None:
    await project.begin()
    for number in range(700):
        project.put(f"f{number:03d}", "line\n" * 500)
    changes = await project.end()
    assert len(changes.files) == 500
    assert sum(len(file.diff) for file in changes.files) < 400_000
    assert all(file.additions == 500 for file in changes.files)
    assert "200 more files" in "".join(changes.notes)
    result = await project.snapshots.undo(project.before, project.after)
    assert len(result.restored) == 700
    assert os.listdir(project.root) == []


async def test_a_folder_that_cannot_be_read_is_said(project: Project) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is closed to root")
    project.put("closed/a", "1")
    (project.root / "closed").chmod(0)
    try:
        await project.begin()
        assert "closed/ cannot be read" in (await project.end()).notes
    finally:
        (project.root / "closed").chmod(0o755)


# ── the file of copies ──


async def test_another_process_goes_on_with_the_same_copies(project: Project) -> None:
    project.put("a", "1")
    await project.begin()
    project.put("a", "2")
    other = Snapshots(project.root, project.home)
    after = await other.take(since=project.before)
    assert told(await other.compare(project.before, after)) == {"a": "modified"}
    assert told(await project.snapshots.compare(project.before, after)) == {"a": "modified"}
    assert await other.prune(time.time() + 1) == 2
    with pytest.raises(SessionError):
        await project.snapshots.compare(project.before, after)
    project.put("b", "1")
    await project.begin()
    (project.root / "a").unlink()
    await project.end()
    await project.snapshots.undo(project.before, project.after)
    assert (project.root / "a").read_text() == "2", "a copy that the other one threw away was made again"


async def test_prune_gives_room_back_and_keeps_what_is_needed(project: Project) -> None:
    for _ in range(5):
        project.put("noise", os.urandom(200_000))
        await project.snapshots.take()
    project.put("a", "1")
    await project.begin()
    project.put("a", "2")
    await project.end()
    with sqlite3.connect(project.snapshots._vault.path) as db:
        db.execute("UPDATE snapshot SET time = time - 1000 WHERE id NOT IN (?, ?)", (project.before, project.after))
    size = await project.snapshots.size()
    assert await project.snapshots.prune(time.time() - 500) == 5
    assert await project.snapshots.size() < size - 700_000
    assert await project.snapshots.size() < 400_000
    assert (await project.snapshots.undo(project.before, project.after)).restored == ("a",)


async def test_prune_is_for_every_root(project: Project, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "big").write_bytes(os.urandom(300_000))
    other = Snapshots(tmp_path / "other", project.home)
    await other.take()
    await project.begin()
    (project.home / "odd.sqlite").write_text("no database")
    assert await project.snapshots.size() > 300_000
    assert await project.snapshots.prune(time.time() + 1) == 2
    assert await project.snapshots.size() < 150_000


async def test_copies_are_for_nobody_else(project: Project) -> None:
    project.put("a", "1")
    await project.begin()
    path = project.snapshots._vault.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_broken_file_of_copies_is_put_aside(project: Project) -> None:
    path = project.snapshots._vault.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 1000)
    await project.begin()
    assert path.with_suffix(".broken").exists()
    project.put("a", "1")
    assert told(await project.end()) == {"a": "added"}


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    (tmp_path / "project").mkdir()
    with pytest.raises(StoreError, match="cannot be kept"):
        await Snapshots(tmp_path / "project", tmp_path / "home").take()


async def test_a_copy_that_was_tampered_with_is_not_used(project: Project) -> None:
    project.put("a", "1")
    await project.begin()
    project.put("a", "2")
    await project.end()
    with sqlite3.connect(project.snapshots._vault.path) as db:
        db.execute("UPDATE content SET data = ?", (b"evil",))
    result = await project.snapshots.undo(project.before, project.after)
    assert result.restored == ()
    assert "not kept any more" in result.kept[0][1]
    assert (project.root / "a").read_text() == "2"


async def test_replay_gives_the_same_ids(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    ids = [
        await Snapshots(tmp_path / "project", tmp_path / home, clock=CountingClock()).take() for home in ("one", "two")
    ]
    assert ids[0] == ids[1]


async def test_a_replay_may_make_the_same_ids_again(project: Project) -> None:
    for round_ in range(2):
        again = Snapshots(project.root, project.home, clock=CountingClock())
        project.put("a", "1")
        before = await again.take()
        project.put("a", f"now {round_}")
        after = await again.take(since=before)
        assert told(await again.compare(before, after)) == {"a": "modified"}
        assert (await again.undo(before, after)).restored == ("a",)


async def test_a_note_goes_with_the_snapshot_of_its_own_run(project: Project) -> None:
    project.put(".gitignore", "*.log\n")
    path = project.put("x.log", "1")
    await project.begin()
    await project.snapshots.take()
    await project.snapshots.note(path, project.before)
    path.write_text("2")
    assert told(await project.end()) == {"x.log": "modified"}


async def test_own_data_inside_the_root_is_no_part_of_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    snapshots = Snapshots(tmp_path, tmp_path / "copies", never=[data])
    before = await snapshots.take()
    (data / "sessions.sqlite").write_text("x")
    (tmp_path / "a").write_text("1")
    after = await snapshots.take(since=before)
    assert told(await snapshots.compare(before, after)) == {"a": "added"}


async def test_a_very_deep_tree(project: Project) -> None:
    deep = project.root
    for _ in range(150):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "f").write_text("1")
    await project.begin()
    (deep / "f").write_text("2")
    project.put("d/d/d/f", "1")
    changes = await project.end()
    assert told(changes) == {"d/d/d/f": "added"}
    assert "not looked into" in changes.notes[0]


async def test_files_that_come_and_go_meanwhile_do_no_harm(project: Project) -> None:
    for number in range(200):
        project.put(f"d{number % 10}/f{number}", "x" * 100)
    going = threading.Event()

    def churn() -> None:
        number = 0
        while not going.is_set():
            number += 1
            path = project.put(f"d{number % 10}/t{number % 50}", os.urandom(3000))
            if number % 3 == 0:
                path.unlink(missing_ok=True)
            if number % 7 == 0:
                shutil.rmtree(project.root / f"d{number % 10}", ignore_errors=True)

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        for _ in range(10):
            await project.snapshots.take()
    finally:
        going.set()
        worker.join()
    await project.begin()
    assert await project.end() == Changes()


async def test_a_look_that_is_cancelled_leaves_nothing(project: Project) -> None:
    for number in range(500):
        project.put(f"d{number}/f", os.urandom(2000))
    task = asyncio.create_task(project.snapshots.take())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await project.begin()
    assert await project.end() == Changes()


async def test_a_root_below_an_ignoring_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\nproject/skip\n")
    project = Project(tmp_path)
    await project.begin()
    for name in ("a.log", "skip", "a.py"):
        project.put(name, "1")
    assert told(await project.end()) == {"a.py": "added"}


async def test_warm_looks_do_not_read_files_again(tmp_path: Path) -> None:
    project = Project(tmp_path, settle=-1)
    path = project.put("a", "1")
    await project.begin()
    os.utime(path, ns=(10**18, path.stat().st_mtime_ns))
    await project.begin()
    read = path.stat().st_atime_ns
    await project.begin()
    assert path.stat().st_atime_ns == read


async def test_a_root_that_is_gone_is_said(project: Project) -> None:
    project.root.rmdir()
    with pytest.raises(RootError, match="cannot be read"):
        await project.begin()


async def test_a_noted_name_with_a_colon_is_inside_the_root(project: Project) -> None:
    project.put(".gitignore", "*.log\n")
    path = project.put("c:/x.log", "1")
    await project.begin()
    await project.snapshots.note(path)
    project.put("c:/x.log", "2")
    assert told(await project.end()) == {"c:/x.log": "modified"}
    await project.begin()
    path.unlink()
    assert told(await project.end()) == {"c:/x.log": "deleted"}
    await project.begin()
    assert await project.end() == Changes()


async def test_a_noted_folder_that_became_a_link_is_not_followed(project: Project, tmp_path: Path) -> None:
    project.put(".gitignore", "out/\n")
    path = project.put("out/x", "1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("SECRET")
    await project.begin()
    await project.snapshots.note(path)
    shutil.rmtree(project.root / "out")
    (project.root / "out").symlink_to(outside)
    changes = await project.end()
    assert told(changes)["out/x"] == "deleted"
    assert b"SECRET" not in project.copies()


async def test_comparing_very_much_text_ends_soon(project: Project) -> None:
    for number in range(12):
        project.put(f"f{number:02d}", f"line {number}\n" * 60_000)
    await project.begin()
    for number in range(12):
        project.put(f"f{number:02d}", f"other {number}\n" * 60_000)
    changes = await project.end()
    assert [file.status for file in changes.files] == ["modified"] * 12
    counts = [file.additions for file in changes.files]
    assert counts[0] == 60_000
    assert counts[-1] == 60_000 or counts[-1] is None
    assert sum(len(file.diff) for file in changes.files) < 400_000
