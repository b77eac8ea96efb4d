"""``tool_search``: tools whose schema is not sent until they are found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from nbagent.permission.ask import Need
from nbagent.permission.ruleset import evaluate
from nbagent.permission.wildcard import exactly
from nbagent.tools.mcp import McpServers
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult

MAX_FOUND = 6
MAX_LISTED = 60


class ToolSearchArguments(Arguments, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="what the tool should do, or names with commas between")]


class ToolSearch(Tool[ToolSearchArguments]):
    """``servers``: where tools from outside come from; they are started at the first search."""

    name = "tool_search"
    permission = "tool_search"
    effect = "reads"
    hint = "find more tools"
    arguments = ToolSearchArguments

    def __init__(self, servers: McpServers | None = None) -> None:
        self.servers = servers

    def declare(self, arguments: ToolSearchArguments, context: ToolContext) -> Declaration:
        """Starting a server of the settings runs a command or talks to an address, so each is decided by its own rule."""
        needs = [Need(self.permission, ("*",))]
        plan = Plan()
        for server in self.servers.waiting() if self.servers is not None else ():
            action = evaluate(server.permission, server.shown, context.rules).action
            if action == "ask" and context.frontend.attended:
                needs.append(Need(server.permission, (server.shown,), always=(exactly(server.shown),)))
            elif action != "allow":
                plan.left.append(
                    f"The MCP server {server.name} was not started: the rules do not allow {server.permission}."
                )
                continue
            plan.start.append(server.name)
        started = f" and start {', '.join(plan.start)}" if plan.start else ""
        return Declaration(f"find tools: {arguments.query[:60]}{started}", tuple(needs), subject=plan)

    async def act(self, arguments: ToolSearchArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        plan: Plan = declaration.subject
        problems = list(plan.left)
        if self.servers is not None:
            problems += await self.servers.start(plan.start)
        tools = context.host.deferred()
        found = best(arguments.query, tools)
        if found:
            context.host.reveal([tool.name for tool in found])
            lines = ["You can call these now:", *(_line(tool) for tool in found)]
        elif tools:
            lines = [f"No tool fits {arguments.query[:80]!r}. What there is, by name:"]
            lines += [_line(tool) for tool in tools[:MAX_LISTED]]
        else:
            lines = ["There are no more tools than those that you see."]
        output = "\n".join([*lines, *problems])
        return ToolResult(declaration.title, output, {"found": [tool.name for tool in found], "problems": problems})


@dataclass
class Plan:
    """Servers to start, and sentences about those that are left alone."""

    start: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def _line(tool: Tool[Any]) -> str:
    return f"- {tool.name}: {tool.hint}"


def best(query: str, tools: Sequence[Tool[Any]]) -> list[Tool[Any]]:
    """The tools that fit the query, the best first: those named in it, else by the words of name, hint and description."""
    names = {part.strip().lower() for part in re.split(r"[,\s]+", query.removeprefix("select:")) if part.strip()}
    named = [tool for tool in tools if tool.name.lower() in names]
    if named:
        return named
    words = _words(query)
    scored = [(_score(words, tool), -index, tool) for index, tool in enumerate(tools)]
    ranked = sorted((entry for entry in scored if entry[0] > 0), key=lambda entry: entry[:2], reverse=True)
    return [tool for _, _, tool in ranked[:MAX_FOUND]]


_COMMON = {"a", "an", "and", "the", "to", "of", "for", "in", "on", "or", "with", "tool", "tools", "find", "use", "that"}


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _COMMON}


def _score(words: set[str], tool: Tool[Any]) -> int:
    """How well a tool fits: words of its name count most, then its hint, then its description."""
    fields = ((_words(tool.name.replace("_", " ")), 6), (_words(tool.hint), 3), (_words(tool.description[:2000]), 1))
    return sum(weight for word in words for have, weight in fields if _among(word, have))


def _among(word: str, have: set[str]) -> bool:
    if word in have:
        return True
    return len(word) >= 4 and any(
        other.startswith(word[:-1]) or (len(other) >= 4 and word.startswith(other)) for other in have
    )
