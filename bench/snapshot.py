"""What a snapshot costs: first look, later looks, a new process, comparing, undoing; beside it git with an index of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.figure import Figure, Found
from bench.place import ground, plant

CLAIM = (
    "A tree of source-like files of 0.1 to 15 KB. git: `add -A` and `write-tree` with an index and objects of its own."
)
CHEAP = True
SECONDS = 300
ROUNDS = 7


def change(root: Path, most: int = 50) -> int:
    """Change some files all over the tree; how many."""
    paths = sorted(root.rglob("*.py"))
    chosen = paths[:: max(1, len(paths) // most)][:most]
    for path in chosen:
        path.write_text(path.read_text() + "# changed\n")
    return len(chosen)


async def _timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = await work()
    return (time.perf_counter() - begin) * 1000, result


async def _ours(root: Path, home: Path) -> Found:
    from nbagent.session.snapshot import Snapshots

    snapshots = Snapshots(root, home, settle=0)
    first, before = await _timed(snapshots.take)
    later = [(await _timed(snapshots.take))[0] for _ in range(ROUNDS)]
    other = Snapshots(root, home, settle=0)
    new_process, before = await _timed(other.take)
    changed = change(root)
    take_after, after = await _timed(lambda: other.take(since=before))
    compare, changes = await _timed(lambda: other.compare(before, after))
    assert len(changes.files) == changed
    undo, result = await _timed(lambda: other.undo(before, after))
    assert len(result.restored) == changed
    size = await other.size()
    prune, _ = await _timed(lambda: other.prune(time.time() + 1))
    return [
        Figure("first look", first, "ms"),
        Figure("later look", statistics.median(later), "ms"),
        Figure("later look, slowest", max(later), "ms"),
        Figure("first look of a new process", new_process, "ms"),
        Figure(f"look after {changed} changes", take_after, "ms"),
        Figure(f"receipt of {changed} changes", compare, "ms"),
        Figure(f"undo of {changed} changes", undo, "ms"),
        Figure("throw all copies away", prune, "ms"),
        Figure("copies on disk", size / 1e6, "MB"),
    ]


def _git(root: Path, home: Path, rounds: int) -> Found:
    git = shutil.which("git")
    if git is None:
        return ["git is not there to compare with."]
    repository = home / "git"
    subprocess.run([git, "init", "-q", "--bare", str(repository)], check=True)
    environment = {**os.environ, "GIT_DIR": str(repository), "GIT_WORK_TREE": str(root)}
    taken = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        for command in (["add", "-A"], ["write-tree"]):
            subprocess.run([git, *command], cwd=root, env=environment, check=True, capture_output=True)
        taken.append((time.perf_counter() - begin) * 1000)
    return [
        Figure("first look", taken[0], "ms", who="git"),
        Figure("later look", statistics.median(taken[1:]), "ms", who="git"),
    ]


def measure(quick: bool) -> Found:
    files = 200 if quick else 20_000
    with ground() as place:
        size = plant(place.root, files)
        ours = asyncio.run(_ours(place.root, place.base / "copies"))
        beside = _git(place.root, place.base, 1 if quick else ROUNDS)
    return [f"{files:,} files, {size / 1e6:,.0f} MB.", *ours, *beside]
