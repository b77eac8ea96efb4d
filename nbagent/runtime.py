"""The composition root: settings → provider, tools, store, wall → sessions; and the thread that runs them.

A ``Runtime`` is one project at work in one process. Everything asynchronous happens on its worker, a thread with an event loop of its
own that lives as long as the runtime, so a provider's connections are made once and closed where they were made.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import sys
import time
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nbagent.agent import layered
from nbagent.clock import Clock, CountingClock, SystemClock
from nbagent.config import Config, load
from nbagent.errors import ConfigError, PersonError, SessionError
from nbagent.frontend import Frontend, Nobody
from nbagent.mask import Masker
from nbagent.message import Message
from nbagent.permission.path import anchored
from nbagent.permission.ruleset import (
    lint,
    shadowed,
)
from nbagent.provider.provider import Provider
from nbagent.provider.settings import ServerSettings
from nbagent.removal import remove
from nbagent.root import Root
from nbagent.sandbox import NoWall, Wall, child_environment, find_wall
from nbagent.sandbox.environment import is_key
from nbagent.session import ledger
from nbagent.session.instructions import discover, render
from nbagent.session.plan import PlanFile, Plans, worktree
from nbagent.session.policy import Policy
from nbagent.session.preview import Preview, preview
from nbagent.session.resources import Resources
from nbagent.session.session import Prompt, Result, Session
from nbagent.session.skills import find_skills
from nbagent.session.snapshot import Snapshots
from nbagent.session.undo import UndoResult
from nbagent.store.learned import StoredLessons
from nbagent.store.rows import SessionRow
from nbagent.store.store import Store
from nbagent.temporary import temporary_folder
from nbagent.tools.mcp import McpServers, Server
from nbagent.tools.registry import all_tools
from nbagent.tools.tool import Tool
from nbagent.tools.tool_search import ToolSearch
from nbagent.worker import Task, Worker

T = TypeVar("T")


@dataclass(frozen=True)
class CassetteOptions:
    """How a cassette is played or made. ``answers``: the person's answers in it count."""

    play: str = ""
    record: str = ""
    lenient: bool = False
    answers: bool = False


class Runtime:
    """One project at work. Make it with ``Runtime.open``; ``close`` it."""

    def __init__(self, config: Config, root: Root, *, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self.root = root
        source = ", ".join(config.sources)
        agents = {name: replace(agent, own=anchored(agent.own, root, source)) for name, agent in config.agents.items()}
        self.config = replace(config, rules=anchored(config.rules, root, source), agents=agents)
        self._wall: Wall | NoWall | None = None
        self.notices: list[str] = [*config.warnings, *self._rule_notices()]
        self.masker = Masker(secrets_of(config, environment))
        self.worker = Worker("nbagent")
        self.temp = temporary_folder()
        self._cassette = CassetteOptions()
        self._player: Any = None
        self._recorder: Any = None
        self.clock: Clock = SystemClock()
        self._store: Store | None = None
        self._provider: Provider | None = None
        self._resources: Resources | None = None
        self._session_id = ""
        self._tools = all_tools()
        self._servers = self._mcp_servers()
        atexit.register(self.close)

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        explicit_root: bool = False,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Runtime:
        """The runtime for a project. ``options`` lie over the settings (``model=…``). Raises ``PersonError``."""
        environment = dict(os.environ if environment is None else environment)
        checked = Root(root, explicit=explicit_root)
        config = load(checked.path, environment).with_options(**options)
        return cls(config, checked, environment=environment)

    def close(self) -> None:
        """Stop what runs, close connections, take the temporary folder away. Twice does no harm."""
        atexit.unregister(self.close)
        if self._servers is not None:
            with contextlib.suppress(Exception):
                self.worker.call(self._servers.close(), 10)
            self._servers = None
        if self._provider is not None:
            with contextlib.suppress(Exception):
                self.worker.call(self._provider.close(), 3)
            self._provider = None
        self.worker.close()
        if self._store is not None:
            self._store.close()
            self._store = None
        remove(self.temp)

    def _mcp_servers(self) -> McpServers | None:
        """The MCP servers of the settings; none is started before ``tool_search`` looks for its tools."""
        if not self.config.mcp:
            return None
        environment = child_environment(self.environment, self.config.environment.allow)
        named = {name: Server.of(name, settings) for name, settings in self.config.mcp.items()}
        for name, server in named.items():
            if server.command and not server.cwd and name not in self.config.project_mcp:
                named[name] = replace(server, cwd=str(self._empty_folder()))
        servers = McpServers(named, self.root.path, environment, self._tools)
        search = self._tools["tool_search"]
        assert isinstance(search, ToolSearch)
        search.servers = servers
        return servers

    def _empty_folder(self) -> Path:
        """Where a person's own servers run: what a project has in its folder (modules, packages, settings of a package manager)
        would be loaded by many a program that is started there, and nothing confines a server."""
        folder = self.temp / "servers"
        folder.mkdir(exist_ok=True)
        return folder

    # -- parts -------------------------------------------------------------------------------------------------------

    @property
    def wall(self) -> Wall | NoWall:
        """What confines commands on this machine; found, and proved once, when it is first needed."""
        if self._wall is None:
            self._wall = find_wall()
        return self._wall

    @property
    def store(self) -> Store:
        """The session database; a played cassette has one of its own that goes with the runtime."""
        if self._store is None:
            path = self.temp / "cassette.db" if self._cassette.play else self.config.home / "sessions.db"
            self._store = Store.open(path, self.clock)
            self.notices += self._store.notices
        return self._store

    def mend_store(self) -> bool:
        """Before a cell: a session database that was deleted meanwhile is written again. False: it is damaged, and only another
        runtime can keep it aside and begin a new one."""
        if self._store is None:
            return True
        if self._store.damaged:
            return False
        told = len(self._store.notices)
        self._store.put_back()
        self.notices += self._store.notices[told:]
        return True

    @property
    def resources(self) -> Resources:
        """What runs share; made at the first use."""
        if self._resources is None:
            self._resources = self._make_resources()
        return self._resources

    def _make_resources(self) -> Resources:
        home = self.config.home
        spill = home / "outputs"
        plans = Plans(self.root, home, self.store)
        personal: Path | None = Path(self.environment.get("HOME", str(Path.home()))) / ".config" / "nbagent"
        if self._cassette.play:  # the same for everybody who plays it
            personal = None
        return Resources(
            config=self.config,
            root=self.root,
            store=self.store,
            clock=self.clock,
            provider=self.provider,
            tools=self._tools,
            plans=plans,
            masker=self.masker,
            wall=None if isinstance(self.wall, NoWall) else self.wall,
            environment=child_environment(self.environment, self.config.environment.allow),
            spill=spill,
            temp=self.temp,
            snapshots=Snapshots(self.root.path, home / "snapshots", never=[home]),
            instructions=render(discover(self.root.path, self.root.path, personal)),
            skills=find_skills(self.root.path, personal),
            facts=self._facts(),
            in_order=bool(self._cassette.play),
        )

    @property
    def provider(self) -> Provider:
        """Who answers: a cassette, or the server of the settings (recorded where that was asked for)."""
        if self._provider is None:
            self._provider = self._make_provider()
        return self._provider

    def _make_provider(self) -> Provider:
        known: dict[str, Any] = {
            "root": self.root.path,
            "home": Path.home(),
            "data": self.config.home,
            "scratch": self.temp,
            "masker": self.masker.mask,
        }
        cassette = self._cassette
        if cassette.play:
            from nbagent.provider.player import CassettePlayer

            self._player = CassettePlayer(Path(cassette.play), lenient=cassette.lenient, **known)
            return self._player  # type: ignore[no-any-return]
        from nbagent.provider.openai import make_provider

        provider: Provider = make_provider(server_settings(self.config), StoredLessons(self.store))
        if cassette.record:
            from nbagent.provider.recorder import RecordingProvider

            self._recorder = RecordingProvider(provider, Path(cassette.record), **known)
            return self._recorder  # type: ignore[no-any-return]
        return provider

    def use_cassette(self, options: CassetteOptions) -> None:
        """Play or record from here on. The same options again go on with the same cassette; others begin anew."""
        if options.play:
            from nbagent.provider.cassette_file import find

            options = replace(options, play=str(find(options.play, self.root.path)))
        if options == self._cassette:
            return
        if self._store is not None and bool(options.play) != bool(self._cassette.play):
            self._store.close()
            self._store = None
            self._session_id = ""
        self._cassette = options
        self._provider = None
        self._resources = None
        self._player = self._recorder = None
        self.clock = CountingClock() if options.play else SystemClock()

    def with_options(self, **options: Any) -> None:
        """Lay options of a cell (``model``) over the settings from here on."""
        changed = self.config.with_options(**options)
        if changed != self.config:
            self.config = changed
            self._resources = None

    def _facts(self) -> dict[str, str]:
        if self._cassette.play:
            return {"root": "the folder of the walkthrough", "git": "played from a cassette"}
        git = worktree(self.root.path)
        return {
            "root": str(self.root.path),
            "git": f"git, working tree {git}" if git else "none",
            "platform": platform.platform(terse=True),
            "date": time.strftime("%Y-%m-%d"),
            "notebook": self.environment.get("JPY_SESSION_NAME", "") or "unknown",
            "python": f"{platform.python_version()} at {sys.executable}",
        }

    def _rule_notices(self) -> list[str]:
        found: list[str] = []
        for agent in self.config.agents.values():
            rules = tuple(rule for rule in layered(agent, self.config.rules) if rule.layer in ("user", "project"))
            found += [str(each) for each in shadowed(rules)]
        return list(dict.fromkeys([*found, *lint(self.config.rules)]))

    # -- sessions ----------------------------------------------------------------------------------------------------

    def session(self, agent: str = "build", notebook: str = "") -> Session:
        """The current conversation of this runtime, begun when there is none."""
        if self._session_id:
            return Session(self.resources, self.store.session(self._session_id))
        session = Session.create(self.resources, agent, notebook=notebook)
        self._session_id = session.id
        return session

    def new_session(self) -> None:
        """The next prompt begins a new conversation."""
        self._session_id = ""

    def open_session(self, start: str) -> SessionRow:
        """Go on with the session whose id begins or ends with ``start``."""
        row = self.store.find_session(start)
        if row.directory != str(self.root.path):
            raise SessionError(f"Session {row.id} belongs to {row.directory}. Open it there (--root {row.directory}).")
        self._session_id = row.id
        return row

    @property
    def session_id(self) -> str:
        """Id of the current conversation, "" when there is none."""
        return self._session_id

    def start(self, prompt: Prompt, frontend: Frontend, *, notebook: str = "") -> Task[Result | None]:
        """Run a prompt in the current conversation; returns at once. Problems that are known now raise now."""
        self.config.agent(prompt.agent)
        self._check_model()
        session = self.session(prompt.agent, notebook)
        return self.worker.start(self._recorded(session.prompt(prompt, self._wrapped(frontend))))

    def preview(self, prompt: Prompt, *, attended: bool = True) -> Preview:
        """What ``prompt`` would send first. Nothing is sent, and nothing but a temporary file is written."""
        row = self.store.session(self._session_id) if self._session_id else None
        place = self.temp / f"dry-{uuid.uuid4().hex}.db"
        scratch = Store.open(place, SystemClock())
        try:
            frontend = Nobody()
            frontend.attended = attended
            return preview(self.resources, row, prompt, frontend, scratch)
        finally:
            scratch.close()
            for left in self.temp.glob(f"{place.name}*"):
                left.unlink(missing_ok=True)

    def resume(self, frontend: Frontend) -> Task[Result | None]:
        """Go on with what a crash interrupted in the current conversation."""
        session = self.session()
        return self.worker.start(self._recorded(session.resume(self._wrapped(frontend))))

    def compact(self, frontend: Frontend) -> Task[Result | None]:
        """Summarise the current conversation now."""
        self._check_model()
        return self.worker.start(self._existing().compact(frontend))

    def undo(self) -> UndoResult:
        """Put files back as they were before the last cell of this conversation that changed any."""
        return self.worker.call(ledger.undo(self.resources, self._existing().id))

    def redo(self) -> UndoResult:
        """Apply again what was undone last."""
        return self.worker.call(ledger.redo(self.resources, self._existing().id))

    def fork(self, start: str = "", at: str = "") -> SessionRow:
        """Go on in a copy of a conversation (the current one by default), up to the message ``at``."""
        row = self.store.find_session(start) if start else self._existing().row
        fork = Session(self.resources, row).fork(at)
        self._session_id = fork.id
        return fork

    def archive(self, start: str) -> SessionRow:
        """Take a conversation out of the list; nothing is deleted."""
        row = self.store.find_session(start)
        self.store.update_session(row.id, time_archived=self.clock.now())
        if row.id == self._session_id:
            self._session_id = ""
        return row

    def _existing(self) -> Session:
        if not self._session_id:
            raise SessionError(
                "There is no conversation yet. Run a cell first, or `%agent sessions` and `%agent resume ID`."
            )
        return Session(self.resources, self.store.session(self._session_id))

    async def _recorded(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            result = await work
        except BaseException:
            if self._recorder is not None:
                self._recorder.abort()
            raise
        if self._recorder is not None:
            self._recorder.finish()
        return result

    def _wrapped(self, frontend: Frontend) -> Frontend:
        if self._cassette.play:
            from nbagent.provider.person import CassetteFrontend

            _ = self.provider
            return CassetteFrontend(frontend, self._player, answers=self._cassette.answers)
        if self._cassette.record:
            from nbagent.provider.person import RecordingFrontend

            _ = self.provider
            return RecordingFrontend(frontend, self._recorder)
        return frontend

    def _check_model(self) -> None:
        if self._cassette.play:
            if not self.config.model:
                _ = self.provider
                self.config = replace(self.config, model=self._player.model)
                self._resources = None
            return
        if not self.config.model or (not self.config.api_key and not self.config.base_url):
            missing = " and ".join(
                name
                for name, there in (
                    ("NBAGENT_MODEL", self.config.model),
                    ("OPENAI_API_KEY", self.config.api_key or self.config.base_url),
                )
                if not there
            )
            raise ConfigError(
                f"No model server is set up: set {missing} (for a local server OPENAI_BASE_URL, such as http://localhost:11434/v1 for "
                "Ollama, and NBAGENT_MODEL). Without any of it, `nbagent demo` and `%%plan --cassette demo` work."
            )

    # -- rules -------------------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """What the rules in force say, told without a run."""
        return Policy(self.resources, self.environment)

    def tool(self, name: str) -> Tool[Any] | None:
        return self._tools.get(name)

    # -- plans -------------------------------------------------------------------------------------------------------

    def approve(self, spelled: str, comment: str = "") -> PlanFile:
        """A person approves a plan by naming it outside a cell; what is approved is its text as it is now."""
        from nbagent.session.approval import approve, plan_hash, request

        plans = self.resources.plans
        plan = plans.named(spelled)
        text = plan.text()
        if text is None or not text.strip():
            raise PersonError(f"There is no plan at {plan.shown}, or it is empty. `nbagent plans` lists the plans.")
        digest = plan_hash(text)
        asked = request(plans.approval(plan), self.clock.new_id("rev"), digest)
        plans.record(
            plan,
            approve(asked, asked.request, digest, plan_hash(plan.text() or ""), digest),
            by="person",
            comment=comment,
        )
        return plan

    def messages(self, session_id: str = "") -> list[Message]:
        """The messages of a session, the current one by default."""
        return self.store.messages(session_id or self._session_id)


def secrets_of(config: Config, environment: Mapping[str, str]) -> list[str]:
    """Values that must never be shown: the key, and whatever in the environment looks like one."""
    values = [value for name, value in environment.items() if _is_secret(name, value)]
    return [*values, config.api_key] if config.api_key else values


def _is_secret(name: str, value: str) -> bool:
    """Children see neither our own settings nor the notebook's path, but those are no secrets (a model's name, a folder)."""
    return name not in ("JPY_SESSION_NAME", "JPY_PARENT_PID") and is_key(name.removeprefix("NBAGENT_"), value)


def server_settings(config: Config) -> ServerSettings:
    """What the provider has to know of its server."""
    return ServerSettings(
        base_url=config.base_url,
        api_key=config.api_key,
        api=config.api,
        headers=config.headers,
        models=config.models,
        options={name: model.options for name, model in config.models.items() if model.options},
    )
