"""What every run of a project shares. Made by ``runtime``; nothing in here belongs to one session."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.agent import Agent
from nbagent.clock import Clock
from nbagent.config import Config
from nbagent.mask import Masker
from nbagent.permission.ruleset import Rule, Ruleset
from nbagent.provider.provider import Limits, Provider
from nbagent.root import Root
from nbagent.sandbox import Wall, existing_places, secret_places
from nbagent.session.plan import Plans
from nbagent.session.snapshot import Snapshots
from nbagent.store.store import Store
from nbagent.tools.tool import Tool


@dataclass
class Resources:
    """``environment``: for child processes, scrubbed. ``spill``: whole outputs that were cut. ``facts``: name → value for the
    system prompt. ``patience``: factor on the seconds
    waited before a failed model call is tried again. ``last_words``: seconds that the model has to sum up once a cap is reached, where
    the cell has a cap on seconds. ``in_order``: calls that may run side by side run one after the other, so
    that a played cassette gives the same ids and the same order every time. ``closing``: session → the comparison of files that a
    stopped cell did not wait for."""

    config: Config
    root: Root
    store: Store
    clock: Clock
    provider: Provider
    tools: dict[str, Tool[Any]]
    plans: Plans
    masker: Masker
    wall: Wall | None
    environment: dict[str, str]
    spill: Path
    temp: Path
    snapshots: Snapshots | None = None
    instructions: str = ""
    skills: dict[str, tuple[str, Path]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    patience: float = 1.0
    last_words: float = 30.0
    in_order: bool = False
    closing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _beside: set[asyncio.Task[None]] = field(default_factory=set)
    _limits: dict[str, Limits] = field(default_factory=dict)
    _ours: Ruleset | None = None

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that no run waits for; it ends with the runtime at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def limits(self, model: str) -> Limits:
        """What ``model`` can take."""
        known = self._limits.get(model)
        if known is None or not known.window:  # a window may be told later: Ollama does so once the model is loaded
            known = self._limits[model] = await self.provider.limits(model)
        return known

    def always_allowed(self) -> Ruleset:
        """Folders of ours that are outside the root and need no question: the temporary one, whole outputs, the plans."""
        if self._ours is None:
            self._ours = self._our_folders()
        return self._ours

    def keys(self) -> Ruleset:
        """Reading where keys lie (the places that the sandbox never shows, as they are now, and our own data) is asked about, our
        folders in there left out."""
        secret = existing_places([*map(str, secret_places(self.root.home)), str(self.config.home)])
        lines: list[Rule] = []
        for name in secret:
            if self.root.path.is_relative_to(name):
                continue  # the person chose to work in there
            pattern, _ = self.root.pattern(Path(name))
            lines += [Rule("read", each, "ask", "defaults") for each in (pattern, f"{pattern}/*")]
        for folder in (self.root.locate(str(each)) for each in self._folders()):
            if any(folder.real.is_relative_to(name) for name in secret):
                lines.append(Rule("read", f"{folder.pattern}/*", "allow", "defaults"))
        return tuple(lines)

    def _folders(self) -> tuple[Path, ...]:
        return (self.temp, self.spill, self.plans.folder)

    def _our_folders(self) -> Ruleset:
        lines: list[Rule] = []
        for folder in self._folders():
            place = self.root.locate(str(folder))
            if place.outside:
                lines.append(Rule("external_directory", f"{place.pattern}/*", "allow", "defaults"))
        return tuple(lines)

    def model_for(self, agent: Agent) -> str:
        """The model that ``agent`` uses."""
        return agent.model or self.config.model
