"""The path resolver on made-up spellings and trees, and with links that are swapped while it works."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from pathlib import Path, PureWindowsPath

import pytest

from nbagent.errors import ToolError
from nbagent.root import Root, windows_pattern, windows_spelling

pytestmark = pytest.mark.fuzz

SECONDS = float(os.environ.get("NBAGENT_FUZZ_SECONDS", "600"))
SEED = int(os.environ.get("NBAGENT_FUZZ_SEED", "0")) or random.randrange(1 << 30)
NAMES = [
    "a",
    "b",
    "c",
    "..",
    ".",
    "",
    "A",
    "~",
    "a b",
    "é",
    "\udcff",
    "x" * 256,
    "\0",
    "\n",
    "proc",
    "self",
    "root",
    "dev",
    "fd",
    "*",
    "a:b",
]


def tree(pick: random.Random, top: Path) -> None:
    """Folders, files and links every which way."""
    folders = [top]
    for _ in range(pick.randint(3, 12)):
        path = pick.choice(folders) / pick.choice("abc")
        if os.path.lexists(path):
            continue
        kind = pick.random()
        if kind < 0.4:
            path.mkdir()
            folders.append(path)
        elif kind < 0.6:
            path.write_text("x")
        else:
            path.symlink_to(
                pick.choice(
                    [
                        "a",
                        "../b",
                        "..",
                        str(top),
                        str(top.parent),
                        "c/../a",
                        "/",
                        str(path),
                        "/proc/self/root",
                        "~",
                        "a/b/c",
                    ]
                )
            )


def test_every_spelling_resolves_as_the_system_does(tmp_path: Path) -> None:
    pick, until, at = random.Random(SEED), time.monotonic() + SECONDS * 0.6, 0
    while time.monotonic() < until:
        at += 1
        top = tmp_path / str(at) / "w"
        top.mkdir(parents=True)
        tree(pick, top)
        root = Root(top, home=tmp_path)
        for _ in range(50):
            spelled = pick.choice(["", "/", "~/", str(top) + "/", "/proc/self/root" + str(top) + "/"])
            spelled += "/".join(pick.choice(NAMES) for _ in range(pick.randint(0, 6)))
            try:
                place = root.locate(spelled)
            except ToolError:
                continue
            again = root.locate(str(place.real))
            assert again.real == place.real and again.pattern == place.pattern, (SEED, spelled)
            assert place.outside == (not place.real.is_relative_to(root.path)), (SEED, spelled)
            if not spelled.startswith(("~", "/proc")):
                wanted = os.path.realpath(os.path.join(root.path, spelled))
                if os.path.lexists(wanted):
                    assert str(place.real) == wanted, (SEED, spelled)
        shutil.rmtree(tmp_path / str(at))
    assert at


def test_windows_spellings_never_leave_unseen(tmp_path: Path) -> None:
    pick, until = random.Random(SEED + 1), time.monotonic() + SECONDS * 0.1
    base = PureWindowsPath("C:/w")
    alphabet = [
        "a",
        "..",
        ".",
        "\\",
        "/",
        ":",
        "C:",
        "\\\\?\\",
        "\\\\.\\",
        "NUL",
        " ",
        "$",
        "w",
        "~1",
        "COM1",
        "UNC",
        "?",
        "\\\\s\\h\\",
    ]
    while time.monotonic() < until:
        spelled = "".join(pick.choice(alphabet) for _ in range(pick.randint(1, 8)))
        try:
            path = windows_spelling(spelled, base)
        except ToolError:
            continue
        assert path.is_absolute() and ".." not in path.parts, (SEED, spelled)
        pattern, outside = windows_pattern(path, base)
        assert outside == (not path.is_relative_to(base)) and ":" not in pattern[2:], (SEED, spelled)


def test_swapped_links_change_nothing_elsewhere(tmp_path: Path) -> None:
    inside, outside = tmp_path / "w" / "d", tmp_path / "out"
    inside.mkdir(parents=True)
    outside.mkdir()
    for folder in (inside, outside):
        (folder / "f").write_text("before")
    root, stop = Root(tmp_path / "w", home=tmp_path / "none"), threading.Event()

    def swap() -> None:
        link, kept = tmp_path / "w" / "l", tmp_path / "w" / "kept"
        while not stop.is_set():
            os.rename(inside, kept)
            os.symlink(outside, inside)
            os.unlink(inside)
            os.rename(kept, inside)
            os.symlink(outside / "f", link)
            os.replace(link, inside / "f")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        until = time.monotonic() + SECONDS * 0.3
        while time.monotonic() < until:
            try:
                place = root.locate("d/f")
                if place.outside:
                    continue
                with place.open_parent() as handle:
                    handle.write_bytes(b"written")
            except ToolError:
                continue
            finally:
                assert (outside / "f").read_text() == "before" and os.listdir(outside) == ["f"]
    finally:
        stop.set()
        thread.join()
