"""Settings: defaults < user file < project file < environment < options of the cell.

Files are TOML: the user's ``nbagent.toml`` in Jupyter's config folder, and the project's ``nbagent.toml`` or ``[tool.nbagent]`` in
its ``pyproject.toml``. Rules of each file stay a layer of their own (``user``, ``project``), in the order written.
Nothing set from a notebook loosens what a file says: options of a cell choose models and limits, never rules.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from nbagent import mistake
from nbagent.agent import BUILTIN, Agent
from nbagent.agent_file import agent_files
from nbagent.errors import ConfigError, ModelError
from nbagent.permission.ruleset import Ruleset, from_config, named
from nbagent.root import Root

API = Literal["chat", "responses"]
Count = Annotated[int, Meta(ge=0)]
Some = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
_Table = TypeVar("_Table", bound=msgspec.Struct)


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[models."name"]``: what is known of a model. Tokens; prices per million tokens; ``options``: more request parameters."""

    window: Count = 0
    input: Count = 0
    output: Count = 0
    vision: bool | None = None
    temperature: float | None = None
    effort: str = ""
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None
    options: dict[str, Any] = {}


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[limits]``: caps of one cell. ``steps`` model calls, ``tokens`` in and out together (0: no cap), ``seconds`` (0: no cap;
    the time that a person takes to answer does not count)."""

    steps: Some = 100
    tokens: Count = 0
    seconds: Seconds = 0.0


class CompactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[compaction]``: ``auto`` off: neither before a step nor on overflow; ``%agent compact`` still works."""

    auto: bool = True
    prune: bool = True


class EnvironmentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[environment]``: names that child processes may see although they look like secrets."""

    allow: tuple[str, ...] = ()


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[sandbox]``: more folders that confined commands may read."""

    read: tuple[str, ...] = ()


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[mcp.name]``: a server started as a command (``command``, ``args``, ``env`` for its environment, ``cwd`` for where it runs), or
    reached at a ``url`` (``headers`` are sent along).

    ``cwd``: a folder, ``.`` for the project's. Without it a server of a project's file runs in the project, and one of yours in an empty
    folder: a program started in the project may load what lies there."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[agents.name]``: settings of a built-in agent, or an agent of your own (then ``description`` and ``prompt``).

    ``mode``: ``subagent`` is started by ``task``, ``primary`` by ``nbagent run --agent``. ``model``, ``temperature``, ``effort``: instead
    of those of the cell. ``steps``: model calls at most. ``permission``: rules of this agent alone.
    """

    description: str = ""
    prompt: str = ""
    mode: Literal["primary", "subagent"] = "subagent"
    model: str = ""
    temperature: float | None = None
    effort: str = ""
    steps: Some | None = None
    permission: dict[str, Any] = {}


class FileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a settings file may hold.

    ``model``: who answers; ``small_model``: titles and summaries (without it: no titles, and summaries by ``model``). ``base_url``: the
    server; ``api``: which of its APIs is used; ``api_key_env``: name of the variable that holds the key instead of ``OPENAI_API_KEY``;
    ``headers``: sent along with every request. ``permission``: rules. The others are tables, described below. ``api_key_env``,
    ``headers``, ``environment`` and ``sandbox`` count only in the user's file, and so does a ``base_url`` that is not on this machine.
    """

    model: str = ""
    small_model: str = ""
    base_url: str = ""
    api: API = "chat"
    api_key_env: str = ""
    headers: dict[str, str] = {}
    permission: dict[str, Any] = {}
    agents: dict[str, AgentSettings] = {}
    models: dict[str, ModelSettings] = {}
    limits: LimitSettings = LimitSettings()
    compaction: CompactionSettings = CompactionSettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    sandbox: SandboxSettings = SandboxSettings()
    mcp: dict[str, McpSettings] = {}


@dataclass(frozen=True)
class Config:
    """The settings in force. ``api_key`` is never shown, stored or sent anywhere but to the model server.

    ``home``: nbagent's own data. ``rules``: user then project rules, each with its layer. ``sources``: the files that were read.
    ``project_mcp``: MCP servers that a project's file names or changes; a confined run never starts them.
    """

    home: Path
    model: str = ""
    small_model: str = ""
    base_url: str = ""
    api: API = "chat"
    api_key: str = field(default="", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    rules: Ruleset = ()
    agents: dict[str, Agent] = field(default_factory=dict)
    models: dict[str, ModelSettings] = field(default_factory=dict)
    limits: LimitSettings = LimitSettings()
    compaction: CompactionSettings = CompactionSettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    sandbox: SandboxSettings = SandboxSettings()
    mcp: dict[str, McpSettings] = field(default_factory=dict)
    project_mcp: frozenset[str] = frozenset()
    cassette: str = ""
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def agent(self, name: str) -> Agent:
        """The agent called ``name``. Raises ``ConfigError`` naming those there are."""
        try:
            return self.agents[name]
        except KeyError:
            known = ", ".join(sorted(a.name for a in self.agents.values() if a.mode != "hidden"))
            raise ConfigError(f"There is no agent {name!r}. Agents: {known}.") from None

    def with_options(self, **options: Any) -> Config:
        """These settings with the options of a cell over them; None and "" leave a setting alone."""
        return replace(self, **{key: value for key, value in options.items() if value not in (None, "")})


def home_folder(environment: Mapping[str, str] | None = None) -> Path:
    """nbagent's own data: ``NBAGENT_HOME``, else the user's data folder."""
    environment = os.environ if environment is None else environment
    if environment.get("NBAGENT_HOME"):
        return Path(environment["NBAGENT_HOME"]).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("nbagent", appauthor=False)


OF_THE_PERSON = ("api_key_env", "headers", "environment", "sandbox")
"""Keys that a project's file has no say in: what is sent to a server, and how far commands are let."""


def user_file(environment: Mapping[str, str] | None = None) -> Path:
    """The user's settings: ``nbagent.toml`` in Jupyter's config folder (``NBAGENT_CONFIG`` names another file)."""
    environment = os.environ if environment is None else environment
    if environment.get("NBAGENT_CONFIG"):
        return Path(environment["NBAGENT_CONFIG"]).expanduser()
    if environment.get("JUPYTER_CONFIG_DIR"):
        return Path(environment["JUPYTER_CONFIG_DIR"]) / "nbagent.toml"
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".jupyter" / "nbagent.toml"


def personal_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The person's own instructions, skills and agents."""
    environment = os.environ if environment is None else environment
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".config" / "nbagent"


def load(root: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The settings for a project. Raises ``ConfigError`` for a file that cannot be read or understood."""
    environment = os.environ if environment is None else environment
    config = Config(home=home_folder(environment), agents={agent.name: agent for agent in BUILTIN})
    personal = user_file(environment)
    if environment.get("NBAGENT_CONFIG") and not personal.exists():
        raise ConfigError(
            f"NBAGENT_CONFIG names {personal}, which does not exist. Make the file, or unset the variable."
        )
    if _is_there(personal):
        config = _over(config, _read(personal), "user", personal, environment)
    config = _with_agent_files(config, personal_folder(environment), "user")
    tables = _project_tables(root)
    for path, table in tables:
        config = _over(config, table, "project", path, environment)
    config = _with_agent_files(config, root / ".nbagent", "project")
    if not tables:
        config = replace(config, warnings=(*config.warnings, *_above(root)))
    return _from_environment(config, environment)


def _above(root: Path) -> list[str]:
    """A word about settings further up in the repository, which somebody may believe to hold here."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    for folder in root.parents if top != root else ():
        try:
            tables = _project_tables(folder)
        except ConfigError:
            tables = []  # its mistakes are those of whoever works there
        if tables:
            return [
                f"{tables[0][0]} does not count here: the project root is {root}. "
                f"Start in {folder}, or name it with --root."
            ]
        if folder == top:
            break
    return []


def _is_there(path: Path) -> bool:
    """Whether a file of settings has to be read: rules may stand in one that turns out to be unreadable. A device is none."""
    return os.path.lexists(path) and not path.is_char_device()


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}. Fix that line; nothing was run.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text. Save it as UTF-8; nothing was run.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Make it readable or remove it.") from None


def _project_tables(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    tables: list[tuple[Path, dict[str, Any]]] = []
    pyproject = root / "pyproject.toml"
    if _is_there(pyproject):
        tool = _pyproject_table(pyproject)
        if tool is not None:
            tables.append((pyproject, tool))
    own = root / "nbagent.toml"
    if _is_there(own):
        tables.append((own, _read(own)))
    return tables


def _pyproject_table(path: Path) -> dict[str, Any] | None:
    """``[tool.nbagent]``; a ``pyproject.toml`` that is broken matters only when it speaks of nbagent."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return _read(path)
    if "nbagent" not in text:
        return None
    table = _read(path).get("tool", {})
    own = table.get("nbagent") if isinstance(table, dict) else None
    if own is not None and not isinstance(own, dict):
        raise ConfigError(f"{path}: tool.nbagent must be a table of settings.")
    return own


def _over(
    config: Config,
    table: dict[str, Any],
    layer: Literal["user", "project"],
    path: Path,
    environment_variables: Mapping[str, str],
) -> Config:
    settings = _convert(table, path)
    given = set(table)
    base_url = settings.base_url if "base_url" in given else config.base_url
    if layer == "project" and "base_url" in given and not _loopback(base_url):
        raise ConfigError(
            f"{path}: base_url may only be set to a server on this machine in a project's file, since your key is sent there. "
            f"Set OPENAI_BASE_URL, or base_url in {user_file()}."
        )
    for name, server in settings.mcp.items():
        if bool(server.command) == bool(server.url):
            raise ConfigError(f"{path}: mcp.{name}: a server has one of command or url.")
    rules, remarks = named(from_config(settings.permission, layer=layer, source=str(path)), str(path))
    for name in OF_THE_PERSON if layer == "project" else ():
        if name in given:
            own = user_file(environment_variables)
            remarks = [*remarks, f"{path}: {name} is left out, since it counts only in your own settings file ({own})."]
    return replace(
        config,
        model=settings.model or config.model,
        small_model=settings.small_model or config.small_model,
        base_url=base_url,
        api=settings.api if "api" in given else config.api,
        api_key=environment_variables.get(settings.api_key_env, "")
        if settings.api_key_env and layer == "user"
        else config.api_key,
        headers={**config.headers, **settings.headers} if layer == "user" else config.headers,
        rules=config.rules + rules,
        agents=_agents(config.agents, settings.agents, layer, path),
        models={
            **config.models,
            **{
                name: _under(config.models.get(name, ModelSettings()), model, table["models"][name])
                for name, model in settings.models.items()
            },
        },
        limits=_under(config.limits, settings.limits, table.get("limits", {})),
        compaction=_under(config.compaction, settings.compaction, table.get("compaction", {})),
        environment=settings.environment if "environment" in given and layer == "user" else config.environment,
        sandbox=settings.sandbox if "sandbox" in given and layer == "user" else config.sandbox,
        mcp={**config.mcp, **settings.mcp},
        project_mcp=config.project_mcp | frozenset(settings.mcp if layer == "project" else ()),
        sources=(*config.sources, str(path)),
        warnings=(*config.warnings, *remarks),
    )


def _under(before: _Table, settings: _Table, given: Mapping[str, Any]) -> _Table:
    """What stood ``before``, with those keys changed that a file has ``given``."""
    return msgspec.structs.replace(before, **{name: getattr(settings, name) for name in given})


def _loopback(url: str) -> bool:
    host = (urlsplit(url).hostname or "").lower()
    return host in ("localhost", "::1") or host.startswith("127.")


def _convert(table: dict[str, Any], path: Path) -> FileSettings:
    try:
        return msgspec.convert(table, FileSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {mistake.said(error, table, FileSettings)}") from None


def _agents(
    known: dict[str, Agent], settings: dict[str, AgentSettings], layer: Literal["user", "project"], path: Path
) -> dict[str, Agent]:
    agents = dict(known)
    for name, given in settings.items():
        agents[name] = _agent(agents.get(name), name, given, layer, path)
    return agents


def _with_agent_files(config: Config, folder: Path, layer: Literal["user", "project"]) -> Config:
    """The agents that the Markdown files of ``folder``/agents describe, over those there are."""
    agents = dict(config.agents)
    sources = list(config.sources)
    for each in agent_files(folder / "agents", folder.parent):
        settings = {name: value for name, value in each.settings.items() if value is not None}
        try:
            given = msgspec.convert(settings, AgentSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{each.path}: {mistake.said(error, settings, AgentSettings)}") from None
        agents[each.name] = _agent(agents.get(each.name), each.name, given, layer, each.path)
        sources.append(str(each.path))
    return replace(config, agents=agents, sources=tuple(sources))


def _agent(old: Agent | None, name: str, given: AgentSettings, layer: Literal["user", "project"], path: Path) -> Agent:
    where = f"{path}: agents.{name}"
    own, _ = named(from_config(given.permission, layer=layer, source=f"{where}.permission"), where)
    if old is None:
        if not given.description:
            raise ConfigError(f"{path}: agents.{name} is new, so it needs a description (when to use it).")
        old = Agent(name, given.description, given.mode, prompt=given.prompt, source=str(path))
    return replace(
        old,
        description=given.description or old.description,
        prompt=given.prompt or old.prompt,
        source=str(path) if given.prompt else old.source,
        model=given.model or old.model,
        temperature=given.temperature if given.temperature is not None else old.temperature,
        effort=given.effort or old.effort,
        steps=given.steps if given.steps is not None else old.steps,
        own=old.own + own,
    )


def _from_environment(config: Config, environment: Mapping[str, str]) -> Config:
    """``OPENAI_API_KEY``, ``OPENAI_BASE_URL``, ``NBAGENT_MODEL`` and the other ``NBAGENT_*`` variables."""
    changes: dict[str, Any] = {}
    for name, key in _VARIABLES.items():
        if environment.get(name):
            changes[key] = environment[name]
    if environment.get("NBAGENT_MAX_STEPS"):
        changes["limits"] = _steps_limit(config.limits, environment["NBAGENT_MAX_STEPS"])
    if changes.get("api", "chat") not in get_args(API):
        raise ConfigError(f"NBAGENT_API is {changes['api']!r}. Allowed: {', '.join(get_args(API))}.")
    return replace(config, **changes)


_VARIABLES = {
    "OPENAI_API_KEY": "api_key",
    "OPENAI_BASE_URL": "base_url",
    "NBAGENT_MODEL": "model",
    "NBAGENT_SMALL_MODEL": "small_model",
    "NBAGENT_API": "api",
    "NBAGENT_CASSETTE": "cassette",
}


def _steps_limit(limits: LimitSettings, text: str) -> LimitSettings:
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"NBAGENT_MAX_STEPS is {text!r}; it must be a whole number from 1 on.")
    return LimitSettings(steps=int(text), tokens=limits.tokens, seconds=limits.seconds)


SETTING_NAMES = tuple(f.name for f in fields(Config))


def add_rule(path: Path, permission: str, pattern: str, action: str) -> None:
    """Add one rule to a settings file, keeping its formatting and comments; the file is made when there is none.

    A bare ``permission.x = "ask"`` becomes the table ``{"*" = "ask", pattern = action}``. Written in one rename, by a handle on the
    folder: a file that is a link is left alone. Raises ``ConfigError``.
    """
    from tomlkit.exceptions import TOMLKitError

    try:
        place = Root(path.parent, explicit=True).locate(path.name)
        if place.linked:
            raise ConfigError(
                f"{path} is a link to {place.real}, so nothing was written there; the reply is remembered for this session only."
            )
        with place.open_parent() as handle:
            text = handle.read_bytes().decode("utf-8") if handle.exists() else ""
            handle.write_bytes(_with_rule(text, permission, pattern, action).encode("utf-8"))
    except (OSError, ModelError, UnicodeDecodeError, TOMLKitError) as error:
        raise ConfigError(
            f"{path} could not be changed ({error}); the reply is remembered for this session only."
        ) from None


def _with_rule(text: str, permission: str, pattern: str, action: str) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    section = document.setdefault("permission", tomlkit.table())
    rules = section.get(permission)
    if not isinstance(rules, Mapping):
        table = tomlkit.table()
        if rules is not None:
            table["*"] = rules
            del section[permission]
        section[permission] = rules = table
    if pattern in rules:
        del rules[pattern]
    rules[pattern] = action
    return tomlkit.dumps(document)
