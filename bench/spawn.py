"""What a confined command costs over a bare spawn of the same program."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.figure import Figure, Found, median
from bench.place import ground

CLAIM = (
    "`/bin/true` through the command runner with no wall, behind each wall, and by `subprocess.run`; "
    "*by itself*: a fresh Python that confines itself and then executes the program."
)
CHEAP = True
SECONDS = 120
PROGRAM = ["/bin/true"]
ITSELF = """
import json, os, sys, runpy
supervisor = runpy.run_path(sys.argv[1])
supervisor["confine"](json.loads(sys.stdin.read()))
os.execv("/bin/true", ["/bin/true"])
"""


async def _times(runs: int, once: Callable[[], Awaitable[Any]]) -> list[float]:
    """Milliseconds of each run, the shortest first."""
    await once()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        await once()
        taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)


async def _bare() -> None:
    subprocess.run(PROGRAM, stdin=subprocess.DEVNULL, capture_output=True, check=True)  # noqa: ASYNC221


async def _measure(runs: int, folder: Path) -> dict[str, list[float]]:
    from nbagent.sandbox import Confinement, NoWall, child_environment, find_wall, run_command

    confinement = Confinement(root=folder, temp=folder)
    environment = child_environment(dict(os.environ))

    def through(wall: Any) -> Callable[[], Awaitable[Any]]:
        async def once() -> None:
            await run_command(
                PROGRAM,
                cwd=folder,
                environment=environment,
                timeout=10,
                on_output=lambda text: None,
                spill=folder / "spill",
                wall=wall,
                confinement=confinement if wall else None,
            )

        return once

    found = {"bare": await _times(runs, _bare), "no wall": await _times(runs, through(None))}
    for kind in ("landlock", "bubblewrap"):
        wall = find_wall(kind)
        if not isinstance(wall, NoWall):
            found[kind] = await _times(runs, through(wall))
    landlock = find_wall("landlock")
    if not isinstance(landlock, NoWall):
        launch = landlock.launch(PROGRAM, folder, environment, confinement)
        request = {
            "timeout": 10,
            "files": launch.files,
            "handled": launch.handled,
            "restrict_flags": launch.restrict_flags,
            "filter": "",
            "filter_fd": -1,
        }
        script = Path(__file__).parents[1] / "nbagent" / "sandbox" / "supervisor.py"

        async def itself() -> None:
            command = [sys.executable, "-I", "-S", "-c", ITSELF, str(script)]
            subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, check=True)  # noqa: ASYNC221

        found["by itself"] = await _times(runs, itself)
    return found


def measure(quick: bool) -> Found:
    with ground() as place:
        taken = asyncio.run(_measure(3 if quick else 100, place.root))
    found: Found = [Figure(f"spawn, {name}", median(value), "ms") for name, value in taken.items()]
    for name in ("landlock", "bubblewrap"):
        if name in taken:
            over = median(taken[name]) - median(taken["bare"])
            found.append(Figure(f"{name} over bare", over, "ms", most=15))
            quiet = len(taken[name]) // 10
            least = taken[name][quiet] - taken["bare"][quiet]
            found.append(Figure(f"{name} over bare, when the machine was least busy (10th of 100)", least, "ms"))
        else:
            found.append(f"{name} is not to be had on this machine.")
    return found
