"""The wall of Linux 5.13 and later: Landlock for files, TCP and scopes, and the call filter for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.sandbox import seccomp
from nbagent.sandbox.environment import confined_environment
from nbagent.sandbox.places import hidden_places, readable_places, without
from nbagent.sandbox.proof import prove
from nbagent.sandbox.syscalls import Machine
from nbagent.sandbox.wall import Confinement, Launch

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_SOCKET, MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1  # what the first version governs: everything up to making links
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract sockets, signals
_SILENT = 0b100  # no audit lines for domains that the command makes itself
LATEST = 7

_READ = EXECUTE | READ_FILE | READ_DIR
_WRITE = (_FIRST | REFER | TRUNCATE) & ~(MAKE_CHAR | MAKE_SOCKET | MAKE_BLOCK)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def governed(abi: int) -> tuple[int, int, int]:
    """What this version of Landlock governs: bits of files, of TCP, of scopes."""
    files = _FIRST
    for version, bit in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)):
        files |= bit if abi >= version else 0
    return files, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0


@dataclass(frozen=True, slots=True)
class LandlockWall:
    """``abi``: the version to use, at most what the kernel has. ``home``: whose secrets to hide."""

    abi: int
    machine: Machine
    home: Path

    @property
    def name(self) -> str:
        return "landlock"

    def launch(self, argv: Sequence[str], cwd: Path, environment: dict[str, str], confinement: Confinement) -> Launch:
        scoped = confined_environment(environment, confinement, self.home)
        return Launch(
            argv=tuple(argv),
            cwd=str(cwd),
            environment=scoped,
            confined=True,
            files=self._files(confinement, environment),
            handled=governed(self.abi),
            restrict_flags=_SILENT if self.abi >= LATEST else 0,
            filter=seccomp.program(self.machine, signals=self.abi < 6, metadata=True, truncate=self.abi < 3),
            asks=self.abi < 6,
        )

    def _files(self, confinement: Confinement, environment: dict[str, str]) -> tuple[tuple[str, int], ...]:
        temp = confinement.temp.resolve()
        places = readable_places(confinement, environment, self.home)
        hidden = hidden_places(confinement, self.home)
        read = [(place, _READ if whole else READ_DIR) for place, whole in without(places, hidden)]
        devices = [(name, READ_FILE | WRITE_FILE) for name in _DEVICES]
        return (*read, *devices, (str(temp), _READ | _WRITE))

    def prove(self) -> list[tuple[str, bool, str]]:
        return prove(self)
