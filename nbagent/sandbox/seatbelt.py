"""The wall of macOS: sandbox-exec with a profile written for each command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.sandbox.environment import confined_environment
from nbagent.sandbox.places import hidden_places, readable_places
from nbagent.sandbox.proof import prove
from nbagent.sandbox.wall import Confinement, Launch

_BASE = """(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))
(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))
(allow file-ioctl (literal "/dev/null"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
"""


@dataclass(frozen=True, slots=True)
class SeatbeltWall:
    """``program``: where sandbox-exec is. ``home``: whose secrets to hide."""

    program: str
    home: Path

    @property
    def name(self) -> str:
        return "sandbox-exec"

    def launch(self, argv: Sequence[str], cwd: Path, environment: dict[str, str], confinement: Confinement) -> Launch:
        text = profile(
            readable_places(confinement, environment, self.home),
            hidden_places(confinement, self.home),
            os.path.realpath(confinement.temp),
        )
        return Launch(
            argv=(self.program, "-p", text, *argv),
            cwd=str(cwd),
            environment=confined_environment(environment, confinement, self.home),
            confined=True,
        )

    def prove(self) -> list[tuple[str, bool, str]]:
        return prove(self)


def profile(readable: Iterable[str], hidden: Iterable[str], temp: str) -> str:
    """The profile: nothing but reading ``readable``, without ``hidden``, and everything in ``temp``. The last matching line wins."""
    lines = [f"(allow file-read* (subpath {quoted(place)}))" for place in readable]
    lines += [f"(deny file-read* file-read-metadata (subpath {quoted(place)}))" for place in hidden]
    lines += [f"(allow file-read* file-write* (subpath {quoted(temp)}))"]
    lines += ["(deny file-write-setugid)", "(deny network*)"]
    return _BASE + "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A path as a string of the profile language. Raises ``ValueError`` for what it cannot hold."""
    if "\0" in text or "\n" in text:
        raise ValueError(f"{text!r} cannot be named in a profile")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
