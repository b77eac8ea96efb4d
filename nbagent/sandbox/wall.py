"""What a confined process may touch, and what a wall is. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a confined process may touch. ``root`` is seen read-only; ``temp`` is its own and the only place it can write;
    ``readable``: more folders it may read; ``hidden``: never readable (keys, browser profiles, secrets), also where they lie
    inside a readable place. ``secret_places(home)`` are always hidden, whether listed here or not."""

    root: Path
    temp: Path
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one process. ``files``: (path, access bits) rules of Landlock, None for none; ``handled``: the bits it governs as
    (files, TCP, scopes). ``filter``: seccomp program, or b"". ``asks``: the filter asks the supervisor about
    signals. ``filter_fd``: hand the filter to ``argv`` as this descriptor
    instead of setting it. ``confined``: drop privileges and set limits."""

    argv: tuple[str, ...]
    cwd: str
    environment: dict[str, str]
    confined: bool = False
    files: tuple[tuple[str, int], ...] | None = None
    handled: tuple[int, int, int] = (0, 0, 0)
    restrict_flags: int = 0
    filter: bytes = b""
    filter_fd: int = -1
    asks: bool = False


class Wall(Protocol):
    """One way to confine a process on this machine."""

    @property
    def name(self) -> str:
        """``landlock``, ``bubblewrap`` or ``sandbox-exec``."""
        ...

    def launch(self, argv: Sequence[str], cwd: Path, environment: dict[str, str], confinement: Confinement) -> Launch:
        """How to start ``argv`` so that it can do no more than ``confinement`` says."""
        ...

    def prove(self) -> list[tuple[str, bool, str]]:
        """Try it: (what was tried, whether the wall held, detail) for each of a dozen attempts. Takes a second or less."""
        ...


@dataclass(frozen=True, slots=True)
class NoWall:
    """Why this machine has no wall."""

    reason: str
    tried: tuple[str, ...] = field(default=())
