"""Which wall this machine has, found out by trying."""

from __future__ import annotations

import os
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from nbagent.errors import ToolError
from nbagent.sandbox.bubblewrap import BubblewrapWall
from nbagent.sandbox.landlock import LATEST, LandlockWall
from nbagent.sandbox.seatbelt import SeatbeltWall
from nbagent.sandbox.spawner import SPAWNER
from nbagent.sandbox.syscalls import machine
from nbagent.sandbox.wall import NoWall, Wall

KINDS = ("landlock", "bubblewrap", "sandbox-exec")

_found: dict[str, Wall | NoWall] = {}
_lock = threading.Lock()


def find_wall(only: str = "") -> Wall | NoWall:
    """The best wall that works here, proved by trying once a process. ``only`` names one kind (for tests and doctor).

    ``NBAGENT_WALL`` may name one kind, or ``none`` for doing without a wall, which is stricter: then only commands that are proven
    read-only run. It can never make a wall out of nothing.
    """
    wanted = only or os.environ.get("NBAGENT_WALL", "")
    with _lock:
        if wanted not in _found:
            _found[wanted] = _find(wanted)
        return _found[wanted]


def _find(wanted: str) -> Wall | NoWall:
    if wanted == "none":
        return NoWall("NBAGENT_WALL=none: no wall is used.")
    if wanted and wanted not in KINDS:
        return NoWall(f"NBAGENT_WALL={wanted!r} is not a wall. Use one of {', '.join(KINDS)}, none, or leave it unset.")
    tried: list[str] = []
    for kind, make in _MAKERS.items():
        if wanted and wanted != kind:
            continue
        wall = _working(make)
        if not isinstance(wall, str):
            return wall
        tried.append(f"{kind}: {wall}")
    return NoWall("No wall works on this machine. " + " ".join(tried), tuple(tried))


def _working(make: Callable[[], Wall | str]) -> Wall | str:
    """The wall, or why not."""
    try:
        wall = make()
    except ToolError as error:
        return str(error)
    if isinstance(wall, str):
        return wall
    broken = [f"{name} ({detail})" for name, held, detail in wall.prove() if not held]
    return f"it does not hold here: {'; '.join(broken)}." if broken else wall


def _landlock() -> Wall | str:
    if platform.system() != "Linux":
        return "it is part of Linux."
    table = machine(platform.machine())
    if table is None:
        return f"the call filter is not written for {platform.machine()}."
    abi = SPAWNER.landlock()
    if abi < 1:
        return "this kernel does not have it (Linux 5.13 and later, when it is switched on)."
    return LandlockWall(min(abi, LATEST), table, Path.home())


def _bubblewrap() -> Wall | str:
    table = machine(platform.machine())
    program = shutil.which("bwrap")
    if platform.system() != "Linux" or table is None:
        return "it is part of Linux on x86-64 and ARM."
    return BubblewrapWall(program, table, Path.home()) if program else "bwrap is not installed."


def _seatbelt() -> Wall | str:
    program = "/usr/bin/sandbox-exec"
    if platform.system() != "Darwin" or not Path(program).exists():
        return "it is part of macOS."
    return SeatbeltWall(program, Path.home())


_MAKERS: dict[str, Callable[[], Wall | str]] = {
    "landlock": _landlock,
    "bubblewrap": _bubblewrap,
    "sandbox-exec": _seatbelt,
}
