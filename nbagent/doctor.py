"""``nbagent doctor``: what this machine, these settings and this server can do, shown by trying."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from dataclasses import dataclass

from nbagent.config import Config
from nbagent.errors import NbagentError
from nbagent.runtime import Runtime, server_settings
from nbagent.sandbox import NoWall
from nbagent.version import __version__


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. ``ok`` None: a remark."""

    name: str
    ok: bool | None
    text: str

    def line(self) -> str:
        return f"{_MARKS[self.ok]}  {self.name:<22} {self.text}"


_MARKS = {True: "ok  ", False: "FAIL", None: "--  "}


def examine(runtime: Runtime, *, ask_server: bool = True) -> list[Check]:
    """Every check, in order. Nothing of the project is changed."""
    checks = [
        Check("version", True, _version_line()),
        Check("root", True, f"{runtime.root.path}: the folder that an agent works in"),
        *_settings(runtime),
    ]
    checks += _wall(runtime)
    checks += _store(runtime)
    checks.append(_ripgrep())
    if ask_server:
        checks += _server(runtime)
    return checks


def _version_line() -> str:
    return f"nbagent {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def _settings(runtime: Runtime) -> list[Check]:
    config = runtime.config
    files = ", ".join(config.sources) or "there is no settings file, so the defaults and the environment count"
    if not config.model:
        told = 'none is set: put its name into NBAGENT_MODEL, or model = "NAME" into nbagent.toml'
    else:
        told = f"{config.model}; {'a key is set' if config.api_key else 'no key is set'}"
    return [Check("settings", True, files), Check("model", bool(config.model), told)]


def _wall(runtime: Runtime) -> list[Check]:
    wall = runtime.wall
    if isinstance(wall, NoWall):
        text = f"none: {wall.reason}. Plan cells run only commands that are proven to change nothing."
        return [Check("wall", False, text)]
    rows = wall.prove()
    held = sum(ok for _, ok, _ in rows)
    told = f"{wall.name} confines the commands of plan cells: it held in {held} of {len(rows)} attempts to get out"
    checks = [Check("wall", held == len(rows), told)]
    checks += [Check(f"wall: {name}", ok, detail) for name, ok, detail in rows if not ok]
    return checks


def _store(runtime: Runtime) -> list[Check]:
    try:
        store = runtime.store
    except NbagentError as error:
        return [Check("sessions", False, str(error))]
    return [Check("sessions", True, f"{store.path}, {store.size() / 1e6:.1f} MB: what was asked and answered")]


def _missing(config: Config) -> str:
    if not config.model:
        return "set a model first"
    return (
        "set OPENAI_API_KEY, or for a server of your own OPENAI_BASE_URL (such as http://localhost:11434/v1 for Ollama)"
    )


def _ripgrep() -> Check:
    there = shutil.which("rg") is not None
    return Check(
        "ripgrep", True, "found: it searches files" if there else "not found: Python searches files, more slowly"
    )


def _server(runtime: Runtime) -> list[Check]:
    config = runtime.config
    if not config.model or not (config.api_key or config.base_url):
        return [Check("server", False, f"not asked: {_missing(config)}")]
    if importlib.util.find_spec("openai") is None:
        return [Check("server", False, "the openai package is not installed")]
    from nbagent.provider.probe import probe

    try:
        rows = runtime.worker.call(probe(server_settings(config), config.model), 90)
    except NbagentError as error:
        return [Check("server", False, runtime.masker.mask(str(error)))]
    return [Check(f"server: {name}", ok, runtime.masker.mask(text)) for name, ok, text in rows]
