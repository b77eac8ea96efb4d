"""What the file system says when something goes wrong, in plain sentences."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from nbagent.errors import ToolError

NAME_MAX = 255
PATH_MAX = 4096


def refuse_spelling(spelled: str) -> None:
    if not spelled:
        raise ToolError("The path is empty. Give a path relative to the project root, such as src/model.py.")
    if "\0" in spelled:
        raise ToolError("The path contains a NUL character; no file can have that name.")
    try:
        raw = spelled.encode()
    except UnicodeEncodeError:
        shown = spelled.encode("utf-8", "backslashreplace").decode()[:200]
        raise ToolError(f"The name {shown} is not valid UTF-8. Rename the file, or work on it in the shell.") from None
    if len(raw) > PATH_MAX or any(len(part) > NAME_MAX for part in raw.split(b"/")):
        raise ToolError(f"The path {spelled[:80]}… is too long ({len(raw)} bytes); no file can have that name.")


_KINDS = (
    (stat.S_ISDIR, "is a folder, not a file"),
    (stat.S_ISLNK, "became a link since it was looked up; nothing was done. Look at it again"),
    (stat.S_ISFIFO, "is a pipe (FIFO), not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
)


def refuse_odd(found: os.stat_result, shown: str) -> None:
    for is_kind, sentence in _KINDS:
        if is_kind(found.st_mode):
            raise ToolError(f"{shown} {sentence}.")


_SENTENCES = {
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "cannot be reached: something on the way to it is a file or a link, not a folder",
    errno.EISDIR: "is a folder, not a file",
    errno.ELOOP: "is, or leads through, a link that may not be followed",
    errno.EACCES: "may not be touched: permission denied",
    errno.EPERM: "may not be touched: permission denied",
    errno.EROFS: "is on a read-only file system",
    errno.ENOSPC: "could not be written: no space left on the disk",
    errno.EDQUOT: "could not be written: the disk quota is used up",
    errno.ENAMETOOLONG: "is too long for a file name",
    errno.EEXIST: "exists already",
    errno.ENXIO: "is a pipe, a socket or a device, not a file",
}


def said(error: OSError, shown: str) -> ToolError:
    sentence = _SENTENCES.get(error.errno or 0, f"could not be used: {error.strerror or error}")
    return ToolError(f"{shown[:300]} {sentence}.")


@contextmanager
def plainly(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise said(error, shown) from error
