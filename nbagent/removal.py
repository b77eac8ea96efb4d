"""Taking a folder away, whatever commands have put into it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path


def remove(folder: Path) -> None:
    """Take a folder away with all that is in it: trees of any depth, paths longer than the system takes, folders that lost their own
    rights. No link is followed. What cannot be taken away stays; nothing is raised."""
    if os.name == "nt":
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
        folder.chmod(0o700)
        top = _opened(str(folder), None)
        try:
            _empty(top)
        finally:
            os.close(top)
        folder.rmdir()


def _empty(top: int) -> None:
    """Empty a folder that is open. A folder in it is emptied by lifting the folders that it holds up beside it, so nothing is ever deeper
    than that: neither a stack nor a path grows with the tree."""
    fresh = _fresh_names()
    waiting = os.listdir(top)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            if _is_folder(name, top):
                waiting += _lifted(top, name, fresh)
                os.rmdir(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)


def _lifted(top: int, name: str, fresh: Iterator[str]) -> list[str]:
    """Empty one folder of ``top``; the names in ``top`` that the folders in it have now."""
    os.chmod(name, 0o700, dir_fd=top)
    place = _opened(name, top)
    lifted: list[str] = []
    try:
        for inner in os.listdir(place):  # noqa: PTH208 - by handle
            with contextlib.suppress(OSError):
                if not _is_folder(inner, place):
                    os.unlink(inner, dir_fd=place)
                    continue
                os.chmod(inner, 0o700, dir_fd=place)  # who may not write to a folder may not move it either
                new = next(fresh)
                os.rename(inner, new, src_dir_fd=place, dst_dir_fd=top)
                lifted.append(new)
    finally:
        os.close(place)
    return lifted


def _opened(name: str, place: int | None) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)


def _is_folder(name: str, place: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)


def _fresh_names() -> Iterator[str]:
    mark, number = os.urandom(8).hex(), 0
    while True:
        yield f"{mark}-{number}"
        number += 1
