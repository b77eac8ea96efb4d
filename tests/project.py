"""A project in a temporary folder, and nbagent at work in it as a program of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.server import ScriptedServer

CANARY_KEY = "sk-test-canary-0123456789abcdef"


@dataclass
class Ran:
    """A finished ``nbagent`` command. ``events``: the JSON lines it printed, where it was asked for them."""

    status: int
    out: str
    err: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Events of one type whose fields have these values."""
        return [
            each for each in self.events if each["type"] == kind and all(each.get(k) == v for k, v in fields.items())
        ]

    def tool(self, name: str, state: str | None = None) -> dict[str, Any]:
        """The last event of a tool in an end state (or in ``state``)."""
        states = (state,) if state else ("completed", "error")
        found = [each for each in self.of("tool", name=name) if each["state"] in states]
        assert found, f"no {name} in {states} among {[(e['name'], e['state']) for e in self.of('tool')]}\n{self.err}"
        return found[-1]

    @property
    def finish(self) -> dict[str, Any]:
        (event,) = [each for each in self.of("finish") if not each["parent"]]
        return event


class Project:
    """A folder with files, a home for nbagent beside it, and an environment that knows nothing else."""

    def __init__(self, folder: Path, *, git: bool = True) -> None:
        self.root = folder / "work"
        self.home = folder / "nbagent-home"
        self.user_home = folder / "home"
        self.root.mkdir(parents=True)
        self.user_home.mkdir()
        if git:
            subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG", "TERM", "SYSTEMROOT") if name in os.environ},
            "HOME": str(self.user_home),
            "NBAGENT_HOME": str(self.home),
            "NBAGENT_MODEL": "scripted",
            "OPENAI_API_KEY": CANARY_KEY,
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def use(self, server: ScriptedServer) -> None:
        self.environment["OPENAI_BASE_URL"] = server.url

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    @property
    def plans(self) -> list[Path]:
        return sorted((self.root / ".nbagent" / "plans").glob("*.md"))

    def nbagent(self, *arguments: str, stdin: str | None = None, seconds: float = 60, **environment: str) -> Ran:
        """Run the program to its end. A watchdog ends what hangs, and fails the test."""
        done = subprocess.run(
            [sys.executable, "-m", "nbagent.cli", *arguments],
            cwd=self.root,
            env={**self.environment, **environment},
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        events = []
        for line in done.stdout.splitlines():
            if line.startswith('{"type"'):
                events.append(json.loads(line))
        return Ran(done.returncode, done.stdout, done.stderr, events)

    def run(self, agent: str, prompt: str, *options: str, **more: Any) -> Ran:
        """``nbagent run --format json``."""
        return self.nbagent("run", "--agent", agent, "--format", "json", *options, prompt, **more)


def tree(*folders: Path, leave_out: tuple[Path, ...] = ()) -> dict[str, str]:
    """path → what is there (content, mode, link target), for every file and folder below ``folders``."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if any(path == out or path.is_relative_to(out) for out in leave_out):
                continue
            state = path.lstat()
            if path.is_symlink():
                told = f"link {os.readlink(path)}"
            elif path.is_file():
                told = f"file {state.st_mode:o} {state.st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            else:
                told = f"other {state.st_mode:o}"
            found[str(path)] = told
    return found
