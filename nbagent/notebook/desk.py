"""What this kernel has open: the root it was given, one runtime a root, and the settings of the moment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.config import user_file
from nbagent.errors import PersonError
from nbagent.runtime import Runtime

_WATCHED = ("OPENAI_", "NBAGENT_")


@dataclass
class _Open:
    runtime: Runtime
    seen: tuple[Any, ...]
    told: int = 0


class Desk:
    """``root``: the folder that the kernel was in when nbagent was loaded; a later ``os.chdir`` does not move it.

    ``settings``: what a person chose in this kernel (``%config NbAgent``, ``%agent model``); the caller may change it.
    """

    def __init__(self, root: Path, settings: dict[str, Any]) -> None:
        self.root = root
        self.settings = settings
        self._open: dict[Path, _Open] = {}

    def runtime(self, root: str = "") -> Runtime:
        """The runtime for ``root`` (default: the kernel's). It is made anew when settings or keys changed since the last cell, or the
        session database was damaged, and then goes on with the same conversation where it is still there. Raises ``PersonError``."""
        folder = (self.root / Path(root).expanduser()).absolute() if root else self.root
        seen = _fingerprint(folder, os.environ)
        held = self._open.get(folder)
        if held is not None and (held.seen != seen or not held.runtime.mend_store()):
            self._open.pop(folder)
            held = self._replaced(held, folder, bool(root), seen)
        if held is None:
            held = _Open(Runtime.open(folder, explicit_root=bool(root)), seen)
        self._open[folder] = held
        held.runtime.with_options(**self.settings)
        return held.runtime

    def _replaced(self, held: _Open, folder: Path, explicit: bool, seen: tuple[Any, ...]) -> _Open:
        session = held.runtime.session_id
        held.runtime.close()
        fresh = _Open(Runtime.open(folder, explicit_root=explicit), seen)
        if session:
            try:
                fresh.runtime.open_session(session)
            except PersonError:
                pass  # it lived in a cassette's own database: the next prompt begins a new one
        return fresh

    def news(self, runtime: Runtime) -> list[str]:
        """What the runtime has to say that was not said yet (odd settings, a session file kept aside)."""
        held = next((one for one in self._open.values() if one.runtime is runtime), None)
        if held is None:
            return []
        fresh = runtime.notices[held.told :]
        held.told = len(runtime.notices)
        return fresh

    def close(self) -> None:
        """Close every runtime."""
        for held in self._open.values():
            held.runtime.close()
        self._open.clear()


def _fingerprint(root: Path, environment: Mapping[str, str]) -> tuple[Any, ...]:
    """What a runtime was made from: variables and settings files."""
    variables = tuple(sorted((name, value) for name, value in environment.items() if name.startswith(_WATCHED)))
    files = []
    for path in (user_file(environment), root / "nbagent.toml", root / "pyproject.toml"):
        try:
            found = path.stat()
            files.append((str(path), found.st_mtime_ns, found.st_size))
        except OSError:
            files.append((str(path), 0, 0))
    return (variables, tuple(files))
