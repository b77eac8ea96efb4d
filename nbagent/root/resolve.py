"""The real path behind any spelling."""

# This file works on descriptors, and on names that pathlib would tidy up.
# ruff: noqa: PTH100, PTH115, PTH118, PTH120, PTH208

from __future__ import annotations

import errno
import os
import stat
import unicodedata

LINKS_MAX = 40


class Disk:
    """The few looks at a file system that finding a real path takes."""

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def names(self, path: str) -> list[str]:
        return os.listdir(path)


def resolve(path: str, disk: Disk) -> tuple[str, bool]:
    """The real path of an absolute one, and whether a link was followed. What does not exist is taken as it is spelled.

    ``..`` after a link leaves the folder that the link leads to, as the kernel does. On a disk that ignores case the
    names are those on the disk. Raises ``OSError``.
    """
    if os.name == "nt":  # pragma: no cover
        real = os.path.realpath(path)
        return real, os.path.normcase(real) != os.path.normcase(os.path.abspath(path))
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    current, links, missing = "/", 0, 0
    while pending:
        part = pending.pop()
        if part == "..":
            current, missing = os.path.dirname(current), max(0, missing - 1)
            continue
        here = os.path.join(current, part)
        if missing:
            current, missing = here, missing + 1
            continue
        try:
            found = disk.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            current, missing = here, 1
            continue
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            try:
                target = disk.readlink(here)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL):
                    raise
                pending.append(part)  # no link any more: look again, as often as there may be links
                continue
            current = "/" if target.startswith("/") else current
            pending.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
            continue
        current = os.path.join(current, _name_on_disk(current, part, found, disk))
    return current, links > 0


def _name_on_disk(folder: str, name: str, found: os.stat_result, disk: Disk) -> str:
    """``name`` as the disk spells it. A disk that ignores case shows it: another spelling gives the same file."""
    others = {name.swapcase(), unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)} - {name}
    if not any(_is_same(disk, os.path.join(folder, other), found) for other in others):
        return name
    try:
        names = disk.names(folder)
    except OSError:
        return name
    wanted = _folded(name)
    alike = [each for each in names if _folded(each) == wanted and _is_same(disk, os.path.join(folder, each), found)]
    return name if name in alike or not alike else alike[0]


def _is_same(disk: Disk, path: str, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(disk.lstat(path), found)
    except OSError:
        return False


def _folded(name: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFC", name).casefold())
