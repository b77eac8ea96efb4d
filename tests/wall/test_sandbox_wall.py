"""Walls: found by trying, named by the environment but never made up, and put together as they should be."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.sandbox import Confinement, NoWall, find_wall
from nbagent.sandbox.bubblewrap import BubblewrapWall
from nbagent.sandbox.landlock import LandlockWall, governed
from nbagent.sandbox.process import run_to_end
from nbagent.sandbox.seatbelt import profile, quoted
from nbagent.sandbox.syscalls import machine
from nbagent.sandbox.wall import Wall

TABLE = machine("x86_64")
assert TABLE is not None
PROGRAM = """import msgspec, asyncio, subprocess, tempfile
tempfile.mkdtemp()
subprocess.run(["true"], check=True)
asyncio.run(asyncio.sleep(0))
print("python works")"""
LINUX = platform.system() == "Linux"


def wall_or_skip(kind: str) -> Wall:
    wall = find_wall(kind)
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    return wall


@pytest.mark.skipif(not LINUX, reason="these walls are Linux's")
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
def test_every_attempt_of_the_proof_is_held(kind: str) -> None:
    tried = wall_or_skip(kind).prove()
    assert len(tried) > 25
    assert [line for line in tried if not line[1]] == []


def test_a_wall_is_looked_for_once() -> None:
    assert find_wall() is find_wall()


@pytest.mark.parametrize(("wanted", "told"), [("none", "NBAGENT_WALL=none"), ("paper", "is not a wall")])
def test_a_name_never_makes_a_wall(wanted: str, told: str) -> None:
    found = find_wall(wanted)
    assert isinstance(found, NoWall)
    assert told in found.reason


def test_the_environment_names_a_kind_or_none() -> None:
    code = "from nbagent.sandbox import find_wall; w = find_wall(); print(getattr(w, 'name', None) or w.reason)"
    for name, expected in (("none", "NBAGENT_WALL=none"), ("sandbox-exec", "part of macOS"), ("x", "is not a wall")):
        said = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NBAGENT_WALL": name},
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected in said.stdout or (platform.system() == "Darwin" and name in said.stdout)


@pytest.mark.skipif(not LINUX, reason="Landlock is Linux's")
def test_a_wall_that_does_not_hold_is_no_wall(tmp_path: Path) -> None:
    """A program that pretends to be bubblewrap and confines nothing is found out."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    code = "from nbagent.sandbox import find_wall; print(find_wall('bubblewrap').reason)"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert "it does not hold here" in said.stdout
    assert "write a file of the project" in said.stdout


def test_what_each_version_of_landlock_governs() -> None:
    first = (1 << 13) - 1
    assert governed(1) == (first, 0, 0)
    assert governed(2)[0] == first | 1 << 13
    assert governed(3)[0] == first | 0b11 << 13
    assert governed(4) == (first | 0b11 << 13, 0b11, 0)
    assert governed(5)[0] == first | 0b111 << 13
    assert governed(6) == governed(7) == (first | 0b111 << 13, 0b11, 0b11)


def test_a_landlock_launch_writes_only_into_the_private_folder(tmp_path: Path) -> None:
    assert TABLE is not None
    temp, root = tmp_path / "temp", tmp_path / "root"
    temp.mkdir()
    root.mkdir()
    launch = LandlockWall(7, TABLE, tmp_path).launch(["true"], root, {}, Confinement(root=root, temp=temp))
    assert launch.files is not None
    writing = 0b1 << 1 | 0b1111111111 << 4 | 0b11 << 13
    devices = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
    assert {place for place, access in launch.files if access & writing} == {*devices, str(temp)}
    assert launch.filter
    assert launch.confined


def test_bubblewrap_covers_secrets_last(tmp_path: Path) -> None:
    assert TABLE is not None
    home = tmp_path / "home"
    for name in (".ssh/id", ".netrc", "work/a.txt", "temp/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    wall = BubblewrapWall("/usr/bin/bwrap", TABLE, home)
    confinement = Confinement(root=home / "work", temp=home / "temp", readable=(home,))
    argv = list(wall.launch(["ls", "-l"], home / "work", {}, confinement).argv)
    assert argv[-3:] == ["--", "ls", "-l"]
    assert argv.index("--ro-bind-try") < argv.index("--tmpfs") < argv.index("--bind")
    told = " ".join(argv)
    assert f"--tmpfs {home}/.ssh " in told
    assert f"--remount-ro {home}/.ssh " in told
    assert f"--ro-bind /dev/null {home}/.netrc " in told
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "--bind"] == [str(home / "temp")]
    assert {"--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"} <= set(argv)


def test_the_profile_of_macos() -> None:
    text = profile(["/usr", "/Users/a/my project"], ["/Users/a/.ssh"], "/private/tmp/x")
    lines = text.splitlines()
    assert lines[0] == "(version 1)"
    assert lines[1] == "(deny default)"
    assert '(allow file-read* (subpath "/Users/a/my project"))' in lines
    hidden = '(deny file-read* file-read-metadata (subpath "/Users/a/.ssh"))'
    writable = '(allow file-read* file-write* (subpath "/private/tmp/x"))'
    assert lines.index(hidden) < lines.index(writable)
    assert lines.index('(allow file-read* (subpath "/usr"))') < lines.index(hidden)
    assert lines[-1] == "(deny network*)"
    assert text.count("file-write*") == 1
    assert text.count("(") == text.count(")")


def test_a_path_cannot_end_its_string_in_the_profile() -> None:
    assert quoted('/a/"))(allow default)("') == '"/a/\\"))(allow default)(\\""'
    assert quoted("/a\\") == '"/a\\\\"'
    with pytest.raises(ValueError, match="cannot be named"):
        quoted("/a\n(allow default)")


@pytest.mark.skipif(not LINUX, reason="these walls are Linux's")
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
def test_what_only_looks_works_behind_the_wall(kind: str, tmp_path: Path) -> None:
    wall = wall_or_skip(kind)
    root, temp = tmp_path / "root", tmp_path / "temp"
    root.mkdir()
    temp.mkdir()
    (root / "test_it.py").write_text("import sqlite3, json, asyncio\ndef test_one(): pass\n")
    git = shutil.which("git")
    script = f"""set -e
{sys.executable} -c '{PROGRAM}'
{sys.executable} -m pytest --collect-only -q test_it.py | head -1
echo x > $TMPDIR/a && mv $TMPDIR/a $TMPDIR/b && mkdir $TMPDIR/d && ln $TMPDIR/b $TMPDIR/d/c && rm -r $TMPDIR/d
echo quiet > /dev/null 2>&1; head -c 4 /dev/urandom | wc -c
sleep 5 & kill $! || true; timeout 0.2 sleep 5 || echo timed out
"""
    if git:
        subprocess.run([git, "init", "-q", str(root)], check=True)
        subprocess.run(
            [
                git,
                "-C",
                str(root),
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "one",
            ],
            check=True,
        )
        script += "git log --oneline | cut -d' ' -f2\ngit status --short\n"
    launch = wall.launch(["bash", "-c", script], root, dict(os.environ), Confinement(root=root, temp=temp))
    code, output = run_to_end(launch, 30)
    assert code == 0, output
    for expected in (
        "python works",
        "test_it.py::test_one",
        "4\n",
        "timed out",
        *(["one", "?? test_it.py"] if git else []),
    ):
        assert expected in output
