"""What is known at one point of a command line."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

FOLDERS = 8
"""Folders that a command may stand in before we say that we do not know."""


@dataclass(slots=True)
class State:
    """What is known at one point of the line. ``folders``: where a command may stand (None: anywhere). ``values``: possible
    values of variables that the line set (None: unknown). ``odd``: wildcards may mean something else (``shopt``). ``lost``: any
    variable may have any value. ``fallback``: where it stands if the last ``cd`` failed. ``posix``: the shell may be any
    ``sh``."""

    folders: tuple[Path, ...] | None
    values: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    stack: tuple[tuple[Path, ...] | None, ...] = ()
    odd: bool = False
    lost: bool = False
    fallback: tuple[Path, ...] | None = None
    posix: bool = False

    def copy(self) -> State:
        return replace(self, values=dict(self.values), functions=dict(self.functions))

    def become(self, other: State) -> None:
        """Everything that is known in the other one, and nothing else."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def settle(self) -> None:
        """What follows runs whether the last change of folder worked or not."""
        if self.fallback is not None and self.folders is not None:
            self.folders = tuple(dict.fromkeys(self.folders + self.fallback))
        self.fallback = None

    def doubt(self, before: State) -> None:
        """The command may not have run at all: one of its redirections can fail."""
        if self.folders != before.folders:
            self.fallback = before.folders
            if self.folders is None or before.folders is None:
                self.folders, self.fallback = None, None

    def merge(self, other: State) -> None:
        """This state or the other one: what either may be."""
        if self.folders is None or other.folders is None:
            self.folders = None
        else:
            both = tuple(dict.fromkeys(self.folders + other.folders))
            self.folders = both if len(both) <= FOLDERS else None
        for name in set(self.values) | set(other.values):
            one, two = self.values.get(name), other.values.get(name)
            self.values[name] = one if one == two else None
        self.functions = {**other.functions, **self.functions}
        self.odd, self.lost = self.odd or other.odd, self.lost or other.lost

    def forget(self, before: State) -> bool:
        """Whatever changed since ``before`` is unknown now (a loop's second round); whether anything did."""
        changed = [name for name in self.values if self.values[name] != before.values.get(name)]
        for name in changed:
            self.values[name] = None
        if self.folders != before.folders:
            self.folders = None
            return True
        return bool(changed)
