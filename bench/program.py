"""Command-line agents that are compared: how each is told about the scripted server, and what a tool call is for it.

All of them get a home of their own, the loopback server as their only address, and settings that keep them at home.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.place import Ground
from bench.server import Model, Timed

PEERS = Path(__file__).parents[1] / "build" / "bench-peers" / "node_modules" / ".bin"


@dataclass(frozen=True, slots=True)
class Program:
    """``command``: (ground, url, mode) → argv and what is added to the environment; ``mode`` is ``plan`` or ``build``.

    ``read`` and ``grep``: a path or a pattern → the call that the scripted model makes.
    """

    name: str
    command: Callable[[Ground, str, str], tuple[list[str], dict[str, str]]]
    read: Callable[[Path], dict[str, Any]]
    grep: Callable[[str, Path], dict[str, Any]]
    binary: Path | None = None
    plans: bool = True

    @property
    def version(self) -> str:
        if self.binary is None:
            return ""
        done = subprocess.run([self.binary, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip().rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """One run. ``start``: seconds from the spawn to the first request; ``cpu``: seconds; ``memory``: MB of the largest process."""

    seconds: float
    start: float
    cpu: float
    memory: float
    requests: list[Timed]


def run(program: Program, place: Ground, answers: list[Any], *, mode: str = "build", seconds: float = 240) -> Ran:
    """Run ``program`` once to its end. Raises ``RuntimeError`` when it fails, does not end, or leaves answers over."""
    with Model(answers) as model:
        command, more = program.command(place, model.url, mode)
        environment = {key: value for key, value in place.environment.items() if key != "PYTHONPATH"} | more
        log = place.base / "program.log"
        with log.open("wb") as out:
            begin = time.monotonic()
            process = subprocess.Popen(
                command, cwd=place.root, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
            status, used = _wait(process, seconds)
        took = time.monotonic() - begin
        requests = model.requests()
    if status or len(requests) < len(answers):  # some ask once more for themselves
        said = log.read_text(errors="replace")[-600:]
        raise RuntimeError(f"{program.name}: status {status}, {len(requests)} requests of {len(answers)}: {said}")
    return Ran(
        took,
        requests[0].arrived - begin,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        requests[: len(answers)],
    )


def _wait(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, Any]:
    """Exit status and what the process and all that it waited for have used. Ended when it takes longer than ``seconds``."""
    handle = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([handle], [], [], seconds)
        if not ready:
            process.kill()
    finally:
        os.close(handle)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used


def _nbagent(place: Ground, url: str, mode: str) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "nbagent.cli", "run", "--agent", mode, "--format", "json", "read everything"]
    return command, {"OPENAI_BASE_URL": url, "PYTHONPATH": str(Path(__file__).parents[1])}


def _opencode(place: Ground, url: str, mode: str) -> tuple[list[str], dict[str, str]]:
    model = {"name": "scripted", "limit": {"context": 400_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": url, "apiKey": "sk-none"},
        "models": {"scripted": model},
    }
    settings = {
        "model": "local/scripted",
        "small_model": "local/scripted",
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "provider": {"local": provider},
    }
    off = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    environment = {f"OPENCODE_DISABLE_{each}": "1" for each in off}
    command = [str(PEERS / "opencode"), "run", "--agent", mode, "--model", "local/scripted", "read everything"]
    return command, {**environment, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}


def _codex(place: Ground, url: str, mode: str) -> tuple[list[str], dict[str, str]]:
    home = place.base / "home" / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "local"\napproval_policy = "never"\nsandbox_mode = "workspace-write"\n'
        "model_context_window = 400000\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n"
        f'[model_providers.local]\nname = "local"\nbase_url = "{url}"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    )
    return [str(PEERS / "codex"), "exec", "--skip-git-repo-check", "read everything"], {"CODEX_HOME": str(home)}


def _qwen(place: Ground, url: str, mode: str) -> tuple[list[str], dict[str, str]]:
    approval = "plan" if mode == "plan" else "yolo"
    command = [str(PEERS / "qwen"), "--auth-type", "openai", "--approval-mode", approval, "-p", "read everything"]
    return command, {"OPENAI_BASE_URL": url, "OPENAI_MODEL": "scripted", "QWEN_TELEMETRY_ENABLED": "false"}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "args": arguments}


PROGRAMS = (
    Program(
        "nbagent",
        _nbagent,
        lambda path: _call("read", filePath=path.name),
        lambda pattern, root: _call("grep", pattern=pattern),
    ),
    Program(
        "opencode",
        _opencode,
        lambda path: _call("read", filePath=str(path)),
        lambda pattern, root: _call("grep", pattern=pattern, path=str(root)),
        PEERS / "opencode",
    ),
    Program(
        "codex",
        _codex,
        lambda path: _call("exec_command", cmd=f"cat {path.name}"),
        lambda pattern, root: _call("exec_command", cmd=f"rg -n '{pattern}' ."),
        PEERS / "codex",
        plans=False,
    ),
    Program(
        "qwen-code",
        _qwen,
        lambda path: _call("read_file", file_path=str(path), absolute_path=str(path)),
        lambda pattern, root: _call("grep_search", pattern=pattern),
        PEERS / "qwen",
    ),
)
