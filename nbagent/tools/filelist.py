"""The files below a folder, by ripgrep when it is there, else by walking; both give the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path

from nbagent.errors import ToolError
from nbagent.ignore import VERSION_CONTROL
from nbagent.tools.child import run
from nbagent.tools.tool import in_thread
from nbagent.tools.walk import Walk, ignore_top

# Folders of version control and those that programs make for themselves, weaker than any ignore file of the project.
MADE = Path(__file__).with_name("made.ignore")
WALK = (
    "--hidden",
    "--no-require-git",
    "--no-ignore-dot",
    "--no-ignore-parent",
    f"--ignore-file={MADE}",
)


async def list_files(folder: Path, top: Path, ripgrep: str, environment: dict[str, str]) -> list[str]:
    """Paths relative to ``folder``, in no order. ``top``: see ``walk.ignore_top``."""
    if not ripgrep:
        return await walked(folder, top)
    argv = [ripgrep, "--no-config", *WALK, "--files", "--null", "--", "./"]
    said = await run(argv, cwd=folder, environment=environment)
    if said.code not in (0, 1) and not said.out:
        raise ToolError(f"The files could not be listed: {said.error.strip()[:300]}")
    return await in_thread(lambda: not_ignored(split_names(said.out), folder, top))


async def walked(folder: Path, top: Path, wanted: Collection[str] | None = None) -> list[str]:
    """The same without ripgrep. ``wanted``: see ``Walk.files``."""
    stop = threading.Event()
    try:
        return await in_thread(lambda: list(Walk(folder, top, stop).files(wanted)))
    finally:
        stop.set()


def split_names(raw: bytes) -> list[str]:
    """Names that ripgrep ended with NUL, without their ``./``."""
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def _in_version_control(path: str) -> bool:
    """An ignore file with ``!*/`` lets ripgrep into ``.git``."""
    return not VERSION_CONTROL.isdisjoint(path.split("/"))


def not_ignored(paths: list[str], folder: Path, top: Path) -> list[str]:
    """What ripgrep found, without what ignore files above ``folder`` rule out; it has seen to those below."""
    joined = "\0".join(paths)
    if any(name in joined for name in VERSION_CONTROL):
        paths = [path for path in paths if not _in_version_control(path)]
    if ignore_top(folder, top) == folder:
        return paths
    walk = Walk(folder, top)
    return [path for path in paths if walk.keeps(path)]


def newest_first(folder: Path, paths: list[str]) -> list[str]:
    """``paths`` by time of change, the newest first (by name where that is the same), without those that are gone."""
    timed = []
    for path in paths:
        try:
            timed.append((-os.stat(f"{folder}/{path}", follow_symlinks=False).st_mtime_ns, path))  # noqa: PTH116
        except OSError:
            continue
    return [path for _, path in sorted(timed)]
