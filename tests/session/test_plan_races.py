"""Somebody swaps the plan, its folder and what lies on the way, all the time, while a model writes: nothing else may change."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import PlanError
from tests.person import Person, at_work, limits
from tests.project import Project, tree
from tests.server import ScriptedServer, call, say
from tests.session.scripts import plan_path

Server = Callable[..., ScriptedServer]
Swap = Callable[[Path, Path, Path], None]


def put_link(plan: Path, victim: Path, out: Path) -> None:
    with contextlib.suppress(FileExistsError):
        plan.with_suffix(".q").symlink_to(victim)
    plan.with_suffix(".q").replace(plan)
    plan.unlink()


def put_name(plan: Path, victim: Path, out: Path) -> None:
    with contextlib.suppress(FileExistsError):
        plan.with_suffix(".q").hardlink_to(victim)
    plan.with_suffix(".q").replace(plan)
    plan.unlink()


def put_folder(plan: Path, victim: Path, out: Path) -> None:
    with contextlib.suppress(OSError):
        plan.unlink()
    plan.mkdir()
    plan.rmdir()


def move_plans(plan: Path, victim: Path, out: Path) -> None:
    moved(plan.parent, out)


def move_parent(plan: Path, victim: Path, out: Path) -> None:
    moved(plan.parent.parent, out)


def moved(folder: Path, out: Path) -> None:
    away = folder.with_name("away")
    shutil.rmtree(away, ignore_errors=True)  # the folder was made anew while it was away
    folder.rename(away)
    try:
        folder.symlink_to(out)
        folder.unlink()
    finally:
        away.rename(folder)


@contextlib.contextmanager
def swapping(swap: Swap, plan: Callable[[], Path | None], victim: Path, out: Path) -> Iterator[list[int]]:
    """``swap`` over and over in a thread of its own; counts how often it came to its end."""
    stop, done = threading.Event(), [0]

    def work() -> None:
        while not stop.is_set():
            there = plan()
            if there is None:
                stop.wait(0.001)
                continue
            with contextlib.suppress(OSError):
                swap(there, victim, out)
                done[0] += 1
            stop.wait(0.0003)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("rounds", [40, pytest.param(600, marks=pytest.mark.soak)])
@pytest.mark.parametrize("swap", [put_link, put_name, put_folder, move_plans, move_parent])
def test_swaps_change_nothing_but_the_plan(project: Project, server: Server, swap: Swap, rounds: int) -> None:
    out = project.user_home / "out"
    (out / "plans").mkdir(parents=True)
    (out / "kept.md").write_text("kept\n")
    victim = project.root / "src" / "model.py"
    known: list[str] = []
    asked = [0]

    def model(body: dict[str, Any]) -> Any:
        asked[0] += 1
        known[:] = known or [plan_path(body)]
        path, text = known[0], f"# Version {asked[0]}"
        patch = f"*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch"
        calls = [
            call("write", {"filePath": path, "content": text}),
            call("edit", {"filePath": path, "oldString": "", "newString": text}),
            call("apply_patch", {"patchText": patch}),
        ]
        return [calls[asked[0] % 3]] if asked[0] % 40 else [say("done")]

    before = tree(project.root / "src", out), os.stat(victim).st_mtime_ns
    with (
        at_work(project, server(model)) as desk,
        swapping(swap, lambda: project.root / known[0] if known else None, victim, out) as swaps,
    ):
        # A plan that is none when it is looked at ends a cell.
        cells = 0
        while cells < 3 * rounds and (asked[0] < rounds or swaps[0] < rounds):
            cells += 1
            with contextlib.suppress(PlanError):
                desk.cell("plan", "Plan it", Person(), options=limits(steps=50))
    assert swaps[0] >= 20 and asked[0] >= 3
    after = tree(project.root / "src", out), os.stat(victim).st_mtime_ns
    assert {path for path in before[0].keys() | after[0].keys() if before[0].get(path) != after[0].get(path)} == set()
    assert after[1] == before[1]
