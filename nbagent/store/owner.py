"""Which process runs a session, and whether it still lives."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec


class Owner(msgspec.Struct, frozen=True):
    """A process: ``started`` tells it from a later one with the same number ("" where the system does not say)."""

    host: str
    pid: int
    started: str

    def alive(self) -> bool:
        """Whether that process still runs. A process of another machine counts as alive."""
        if self.host != platform.node():
            return True
        return _running(self.pid) and self.started == _started(self.pid)

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def this_process() -> Owner:
    """The process that asks."""
    return Owner(platform.node(), os.getpid(), _started(os.getpid()))


def owner_from(text: str) -> Owner:
    """The owner that ``Owner.text`` wrote."""
    return msgspec.json.decode(text, type=Owner)


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def _stat_fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _state(pid: int) -> str:
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def _started(pid: int) -> str:
    fields = _stat_fields(pid)
    return fields[19] if len(fields) > 19 else ""
