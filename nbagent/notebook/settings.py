"""``%config NbAgent.model = …``: a thin door to the settings that a cell may choose. Rules are not among them."""

from __future__ import annotations

from typing import Any

import traitlets
from traitlets.config import Configurable


class NbAgent(Configurable):
    """Settings of nbagent for this kernel; files and environment lie under them."""

    model = traitlets.Unicode("", help="The model's name.").tag(config=True)
    small_model = traitlets.Unicode("", help="The model for titles and summaries.").tag(config=True)


class Door:
    """Registers ``NbAgent`` with the shell's ``%config``. ``chosen``: what was set there, by name; read it at each cell."""

    def __init__(self, shell: Any) -> None:
        self.chosen: dict[str, Any] = {}
        self._shell = shell
        self._door = NbAgent(config=shell.config)
        for name in self._door.trait_names(config=True):
            if getattr(self._door, name):
                self.chosen[name] = getattr(self._door, name)
        self._door.observe(self._on_change, list(self._door.trait_names(config=True)))
        shell.configurables.append(self._door)

    def _on_change(self, change: Any) -> None:
        self.chosen[change["name"]] = change["new"]

    def close(self) -> None:
        if self._door in self._shell.configurables:
            self._shell.configurables.remove(self._door)
