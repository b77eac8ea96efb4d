"""Versions of files: which one the model has seen, and what changed since."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict

from nbagent.errors import ToolError
from nbagent.root import Place
from nbagent.tools.diff import unified
from nbagent.tools.textfile import decode_file
from nbagent.tools.tool import ReadLog

# Files larger than this are known by size and time of change: hashing them would cost more than what is shown of them.
MAX_HASHED = 8 * 1024 * 1024
_ROOM = 32 * 1024 * 1024

_texts: OrderedDict[str, bytes] = OrderedDict()
_lock = threading.Lock()


def digest(data: bytes) -> str:
    """The version of a file that holds ``data``."""
    return hashlib.sha256(data).hexdigest()


def remember(data: bytes) -> str:
    """``digest`` of ``data``; its text is kept for a while so that a later change can be shown."""
    key = digest(data)
    with _lock:
        _texts[key] = data
        _texts.move_to_end(key)
        while sum(map(len, _texts.values())) > _ROOM and len(_texts) > 1:
            _texts.popitem(last=False)
    return key


def version_of(data: bytes, found: os.stat_result) -> str:
    """The version of a file that holds ``data``: what ``ReadLog`` remembers of it. See ``version_by_stat``."""
    return remember(data) if len(data) <= MAX_HASHED else version_by_stat(found)


def version_by_stat(found: os.stat_result) -> str:
    """The version of a file that is too large to be hashed."""
    return f"stat:{found.st_size}:{found.st_mtime_ns}"


def refuse_stale(place: Place, now: bytes, version: str, reads: ReadLog, reveal: bool = True) -> None:
    """Raises ``ToolError`` when ``version`` is not the one that the model last saw; says what changed."""
    seen = reads.seen(place.real)
    if seen is None or seen[0] == version:
        return
    changed = _changes(seen[0], now, place) if reveal else ""
    raise ToolError(f"{place.pattern} changed since you read it. Read it again before you change it.{changed}")


def refuse_unread(place: Place, now: bytes, version: str, reads: ReadLog, reveal: bool = True) -> None:
    """Raises ``ToolError`` unless the model has seen all of this version of the file."""
    refuse_stale(place, now, version, reads, reveal)
    seen = reads.seen(place.real)
    if seen is None:
        problem = "has not been read in this session"
    elif not seen[1]:
        problem = "has only been read in part"
    else:
        return
    raise ToolError(
        f"{place.pattern} exists and {problem}, so write would replace text that you have not seen. "
        "Read all of it first, or use edit to change a part."
    )


def _changes(key: str, now: bytes, place: Place) -> str:
    with _lock:
        before = _texts.get(key)
    if before is None:
        return ""
    try:
        diff = unified(decode_file(before).text, decode_file(now).text, place.pattern)
    except ToolError:
        return ""
    body = diff.text.split("\n")[2:42]
    return f" What changed (+{diff.additions} -{diff.deletions}):\n" + "\n".join(body).rstrip("\n")
