"""The wall of older Linux kernels: bubblewrap, where a user may make namespaces."""

from __future__ import annotations

# ruff: noqa: PTH112, PTH114
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from nbagent.sandbox import seccomp
from nbagent.sandbox.environment import confined_environment
from nbagent.sandbox.places import hidden_places, readable_places, within
from nbagent.sandbox.proof import prove
from nbagent.sandbox.syscalls import Machine
from nbagent.sandbox.wall import Confinement, Launch

_FILTER_FD = 4


@dataclass(frozen=True, slots=True)
class BubblewrapWall:
    """``program``: where bwrap is. ``home``: whose secrets to hide."""

    program: str
    machine: Machine
    home: Path

    @property
    def name(self) -> str:
        return "bubblewrap"

    def launch(self, argv: Sequence[str], cwd: Path, environment: dict[str, str], confinement: Confinement) -> Launch:
        scoped = confined_environment(environment, confinement, self.home)
        options = [*_NAMESPACES, *self._mounts(confinement, environment), "--chdir", str(cwd.resolve())]
        return Launch(
            argv=(self.program, *options, "--seccomp", str(_FILTER_FD), "--", *argv),
            cwd="/",
            environment=scoped,
            confined=True,
            filter=seccomp.program(self.machine, signals=False, metadata=False, truncate=False),
            filter_fd=_FILTER_FD,
        )

    def _mounts(self, confinement: Confinement, environment: dict[str, str]) -> Iterator[str]:
        """The top is an empty folder in memory that cannot be written to; everything readable is bound into it, read-only; what is hidden
        is covered; the private folder comes last."""
        temp = os.path.realpath(confinement.temp)
        readable = [
            place for place in readable_places(confinement, environment, self.home) if not within(place, "/proc")
        ]
        covered: list[str] = []
        for place in hidden_places(confinement, self.home):
            if any(within(place, folder) for folder in readable):
                covered += _cover(place)
        yield from ("--proc", "/proc", "--dev", "/dev")
        for place in readable:
            yield from ("--ro-bind-try", place, place)
        yield from _links()
        yield from covered
        yield from ("--bind", temp, temp)
        for option, name in pairwise(covered):
            if option == "--tmpfs":
                yield from ("--remount-ro", name)
        # a person who is root may write to /proc/sys without any capability
        yield from ("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/")

    def prove(self) -> list[tuple[str, bool, str]]:
        return prove(self)


_NAMESPACES = ("--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def _links() -> Iterator[str]:
    """``/bin`` and its like, where they are links into ``/usr``."""
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/") / name
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))


def _cover(place: str) -> list[str]:
    if os.path.islink(place):
        return []  # what it leads to is covered under its own name
    return ["--tmpfs", place] if os.path.isdir(place) else ["--ro-bind", "/dev/null", place]
