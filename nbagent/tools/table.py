"""The table of tools for the documentation, made from the tools themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbagent.permission.ruleset import Ruleset, disabled
from nbagent.tools.registry import all_tools
from nbagent.tools.tool import Tool

EFFECTS = {
    "reads": "reads",
    "writes": "writes files",
    "command": "runs a command",
    "code": "runs code",
    "outside": "talks outside",
    "asks": "asks",
}


def effects_table(tools: Mapping[str, Tool[Any]] | None = None) -> str:
    """Markdown: every tool with its permission, its effect, and whether its schema is always sent."""
    rows = [
        (f"`{tool.name}`", f"`{tool.permission}`", EFFECTS[tool.effect], _sent(tool), tool.hint)
        for tool in (tools or all_tools()).values()
    ]
    rows.append(
        (
            "`mcp_<server>_<tool>`",
            "its own name",
            "talks outside, or reads (the server says)",
            "when found",
            "tools of MCP servers",
        )
    )
    return _table(("tool", "permission", "effect", "schema sent", "what it is for"), rows)


def agents_table(agents: Mapping[str, Ruleset], tools: Mapping[str, Tool[Any]] | None = None) -> str:
    """Markdown: for each agent (name → rules in force) which tools are visible, deferred or hidden."""
    known = tools or all_tools()
    hidden = {agent: set(disabled(list(known), rules)) for agent, rules in agents.items()}
    rows = [
        (f"`{name}`", *("hidden" if name in hidden[agent] else _state(tool) for agent in agents))
        for name, tool in known.items()
    ]
    return _table(("tool", *agents), rows)


def _state(tool: Tool[Any]) -> str:
    return "deferred" if tool.deferred else "visible"


def _sent(tool: Tool[Any]) -> str:
    return "when found" if tool.deferred else "always"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
