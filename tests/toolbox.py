"""One tool call as a session would make it: arguments checked, declared, decided by rules, acted."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbagent.clock import CountingClock
from nbagent.errors import Denied
from nbagent.event import Event
from nbagent.frontend import Form, Nobody
from nbagent.permission.ruleset import Rule, Ruleset, evaluate
from nbagent.root import Root
from nbagent.tools.registry import all_tools, check_arguments
from nbagent.tools.tool import Declaration, Tool, ToolContext, ToolResult

ALLOW: Ruleset = (
    Rule("*", "*", "allow", "defaults"),
    Rule("external_directory", "*", "ask", "defaults"),
    Rule("read", "*.env", "ask", "defaults"),
    Rule("read", "*.env.*", "ask", "defaults"),
    Rule("read", "*.env.example", "allow", "defaults"),
)


class Reads:
    """What the model has seen, in memory."""

    def __init__(self) -> None:
        self.files: dict[Path, tuple[str, bool]] = {}

    def saw(self, real: Path, digest: str, whole: bool) -> None:
        self.files[real] = (digest, whole)

    def seen(self, real: Path) -> tuple[str, bool] | None:
        return self.files.get(real)


@dataclass
class Host:
    """A session's side of the tools, with answers set by the test."""

    answers: tuple[tuple[str, ...], ...] | None = None
    nearby: str = ""
    skill_folders: dict[str, tuple[str, Path]] = field(default_factory=dict)
    todo_list: list[dict[str, str]] = field(default_factory=list)
    hidden_tools: list[Tool[Any]] = field(default_factory=list)
    revealed: list[str] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    async def plan_exit(self) -> ToolResult:
        self.calls.append("plan_exit")
        return ToolResult("plan", "approved")

    async def plan_enter(self) -> ToolResult:
        self.calls.append("plan_enter")
        return ToolResult("plan", "entered")

    async def task(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        self.calls.append((arguments, call_id))
        return ToolResult("task", "done")

    def todos(self) -> list[dict[str, str]]:
        return self.todo_list

    def set_todos(self, todos: list[dict[str, str]]) -> None:
        self.todo_list = todos

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        self.calls.append(form)
        return self.answers

    def deferred(self) -> list[Tool[Any]]:
        return self.hidden_tools

    def reveal(self, names: list[str]) -> None:
        self.revealed += names

    def skills(self) -> dict[str, tuple[str, Path]]:
        return self.skill_folders

    def nearby_instructions(self, real: Path) -> str:
        return self.nearby


class Somebody(Nobody):
    """A frontend with a person; asks are answered by the toolbox."""

    attended = True


@dataclass
class Toolbox:
    """Calls tools in ``root``. Asks are answered by ``replies`` (permission → once or reject); the default is once."""

    root: Path
    rules: Ruleset = ALLOW
    replies: dict[str, str] = field(default_factory=dict)
    host: Host = field(default_factory=Host)
    reads: Reads = field(default_factory=Reads)
    settings: dict[str, Any] = field(default_factory=dict)
    tools: dict[str, Tool[Any]] = field(default_factory=all_tools)
    events: list[Event] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    count: int = 0
    attended: bool = False
    frontend: Nobody | None = None

    def context(self) -> ToolContext:
        self.count += 1
        spill = self.root.parent / "spill"
        return ToolContext(
            session_id="ses_1",
            call_id=f"call_{self.count}",
            root=Root(self.root, explicit=True),
            rules=self.rules,
            confined=False,
            wall=None,
            environment=self.environment,
            spill=spill,
            temp=self.root.parent,
            frontend=self.frontend or (Somebody() if self.attended else Nobody()),
            host=self.host,
            reads=self.reads,
            clock=CountingClock(),
            emit=self.events.append,
            settings=self.settings,
        )

    def declare(self, name: str, /, **arguments: Any) -> Declaration:
        tool = self.tools[name]
        declaration = tool.declare(check_arguments(tool, arguments), self.context())
        declaration.close()
        return declaration

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        tool = self.tools[name]
        context = self.context()
        checked = check_arguments(tool, arguments)
        declaration = await asyncio.to_thread(tool.declare, checked, context)
        try:
            for need in declaration.needs:
                for pattern in need.patterns:
                    self.decide(need.permission, pattern)
            return await tool.act(checked, declaration, context)
        finally:
            declaration.close()

    def decide(self, permission: str, pattern: str) -> None:
        rule = evaluate(permission, pattern, self.rules)
        refused = rule.action == "deny" or (rule.action == "ask" and self.replies.get(permission, "once") != "once")
        if refused:
            raise Denied(f"{permission} {pattern} is refused", rule, permission, pattern)

    async def text(self, name: str, /, **arguments: Any) -> str:
        return (await self.call(name, **arguments)).output

    def put(self, path: str, data: str | bytes = "") -> Path:
        real = self.root / path
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(data if isinstance(data, bytes) else data.encode())
        return real

    def get(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def tree(self) -> dict[str, str]:
        files = sorted(p for p in self.root.rglob("*") if p.is_file())
        return {str(p.relative_to(self.root)): p.read_bytes().decode() for p in files}


def toolbox(tmp_path: Path, **fields: Any) -> Toolbox:
    root = tmp_path / "work"
    root.mkdir(exist_ok=True)
    return replace(Toolbox(root), **fields)
