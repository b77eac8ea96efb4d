"""A small project for shell lines to be read (and the harmless ones run) in, and three rulesets to judge them by."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import subprocess
from pathlib import Path

from nbagent.clock import CountingClock
from nbagent.permission.ask import Call
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Rule, Ruleset, from_config
from nbagent.permission.shell import Scan, Target, scan
from nbagent.root import Root

DEFAULTS = from_config(
    {
        "*": "allow",
        "external_directory": "ask",
        "read": {"*": "allow", "*.env": "ask", "*.env.*": "ask", "*.env.example": "allow"},
        "bash": "ask",
    },
    layer="defaults",
)
PLAN = (
    *DEFAULTS,
    Rule("bash", "*", "allow", "agent"),
    Rule("edit", "*", "deny", "floor"),
    Rule("edit", ".nbagent/plans/p.md", "allow", "floor"),
)
CUSTOM = (
    *DEFAULTS,
    *from_config(
        {
            "edit": {"*": "allow", "protected.txt": "deny", "src/*": "ask"},
            "bash": {
                "*": "allow",
                "git *": "ask",
                "git log *": "allow",
                "git push": "deny",
                "rm *": "deny",
                "python": "ask",
            },
        },
        layer="user",
    ),
)
RULESETS: dict[str, tuple[Ruleset, bool]] = {
    "build": (DEFAULTS, False),
    "plan": (PLAN, True),
    "custom": (CUSTOM, False),
}


class Ground:
    """The project (``root``), a home of its own beside it, and what is in them."""

    def __init__(self, folder: Path) -> None:
        for name in ("src/sub", "src/empty"):
            (folder / name).mkdir(parents=True)
        for name in ("a", "b", "f", "src/a.py", "src/b.py", "protected.txt", ".env", ".gitignore", "a file.txt"):
            (folder / name).write_text(f"one {name}\ntwo a\nthree b\n")
        (folder / "f.json").write_text('{"a": 1}\n')
        (folder / "f.gz").write_bytes(gzip.compress(b"text\n"))
        (folder / "link").symlink_to("/usr/share")
        (folder / "file_link").symlink_to("src/a.py")
        self.home = folder.parent / "home"
        self.home.mkdir()
        self.root = Root(folder, home=self.home)
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PAGER": "cat",
            "LC_ALL": "C.UTF-8",
        }

    def with_git(self) -> Ground:
        """The same with a history of one commit."""
        name = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*name, "commit", "-q", "-m", "one")):
            subprocess.run(["git", *words], cwd=self.root.path, env=self.environment, check=True, capture_output=True)
        return self

    def scan(self, line: str) -> Scan:
        return scan(line, root=self.root, home=self.home, environment={"PATH": self.environment["PATH"]})

    def shown(self, target: Target) -> str:
        return f"?{target.text}" if target.place is None else target.place.pattern

    def generic(self, path: str) -> str:
        """A path without what differs from one temporary folder to another."""
        return path.replace(str(self.home), "~").replace(str(self.root.path.parent), "..")

    def run(self, line: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.root.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )

    def digest(self) -> str:
        """Of every name, link, mode and byte of the project and the home beside it."""
        found = hashlib.sha256()
        for folder, folders, names in os.walk(self.root.path.parent):
            folders.sort()
            for name in sorted(names + folders):
                path = Path(folder) / name
                found.update(f"{path} {path.lstat().st_mode:o} ".encode())
                if path.is_symlink():
                    found.update(os.readlink(path).encode())
                elif path.is_file():
                    found.update(path.read_bytes())
        return found.hexdigest()


def action(name: str, scanned: Scan) -> str:
    """What one of the rulesets says of a line: the strictest of all that it needs."""
    rules, confined = RULESETS[name]
    gate = Gate(rules, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    found = gate.findings(Call("c", "bash", scanned.command, "command", scanned.needs(confined)))
    actions = {each.action for each in found}
    return "deny" if "deny" in actions else "ask" if "ask" in actions else "allow"
