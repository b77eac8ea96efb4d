"""The private temporary folder of a process, and what earlier ones left behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from nbagent.removal import remove

_OWNER = ".owner"


def temporary_folder() -> Path:
    """A private folder of this process's own; those of processes that died without taking theirs away go with it.

    Only folders that such a process marked are taken away, and only where process numbers mean the same as there: a container that
    shares the temporary folder has numbers of its own.
    """
    numbers = _process_numbers()
    for left in Path(tempfile.gettempdir()).glob("nbagent-[0-9]*-*") if numbers else ():
        with contextlib.suppress(OSError):
            mine = not left.is_symlink() and left.stat().st_uid == os.getuid()
            if mine and (left / _OWNER).read_text() == numbers and not Path("/proc", left.name.split("-")[1]).exists():
                remove(left)
    made = Path(tempfile.mkdtemp(prefix=f"nbagent-{os.getpid()}-"))
    (made / _OWNER).write_text(numbers)
    return made


def _process_numbers() -> str:
    """Which set of process numbers this process sees; "" where that cannot be told."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
