"""What the rules in force say, told without a run: why something is allowed, asked about or denied, and what an agent may do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from nbagent.agent import Agent, bind_floor, layered
from nbagent.errors import ConfigError
from nbagent.frontend import Nobody
from nbagent.permission.ask import Call
from nbagent.permission.explanation import Explanation, explain
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Rule, Ruleset, disabled, evaluate, permission_of, unknown_permission
from nbagent.permission.shell import scan
from nbagent.permission.wildcard import match
from nbagent.sandbox import unwalled_environment
from nbagent.session.resources import Resources
from nbagent.tools.mcp import McpTool, tool_name
from nbagent.tools.repository import runs_programs

UNATTENDED: Ruleset = tuple(Rule(name, "*", "deny", "floor") for name in ("question", "plan_enter"))
"""Stands in the floor where nobody is there to answer."""

_ORDER = {"allow": 0, "ask": 1, "deny": 2}


def outside_floor(resources: Resources) -> Ruleset:
    """Where commands are confined: tools that come from outside and do not say that they only read are denied, and so is
    whatever a server is for that the project brought along: it is a command like any other, nothing confines it, and nobody
    vouches for what it says of its tools."""
    brought = resources.config.project_mcp
    names = {tool_name(name) for name in brought}
    for tool in resources.tools.values():
        theirs = isinstance(tool, McpTool) and tool.server in brought
        if tool.name.startswith("mcp_") and (theirs or tool.effect != "reads"):
            names.add(tool.permission)
    return tuple(Rule(name, "*", "deny", "floor") for name in sorted(names))


@dataclass(frozen=True)
class Policy:
    """What decides in a project. ``environment``: as the person's own programs see it."""

    resources: Resources
    environment: dict[str, str]

    def rules(self, agent: Agent, *, attended: bool = True, keys: bool = False) -> Ruleset:
        """The rules in force for a cell of ``agent``, without "always" replies; plan files by the pattern of their folder.
        ``keys``: with those for the places where keys lie, which are others on every machine."""
        shared = self.resources
        floor = bind_floor(agent.floor, ((shared.plans.pattern, "allow"),) if agent.planning else ())
        if agent.confined:
            floor += outside_floor(shared)
        if not attended:
            floor += UNATTENDED
        return layered(agent, shared.config.rules, shared.always_allowed(), shared.keys() if keys else ()) + floor

    def why(self, agent_name: str, permission: str, pattern: str) -> Explanation:
        """What decides ``permission`` on ``pattern`` for an agent. Paths are resolved first; a command line is taken apart.

        Rules for places where keys lie are told only where they match: there are many, and others on every machine.
        """
        agent = self.resources.config.agent(agent_name)
        rules = self.rules(agent, keys=True)
        found = self._decisive(agent, self._permission(permission), pattern, rules)
        usual = frozenset(self.rules(agent))
        return replace(found, rows=tuple(row for row in found.rows if row[1] or row[0] in usual))

    def _decisive(self, agent: Agent, permission: str, pattern: str, rules: Ruleset) -> Explanation:
        if permission in ("edit", "read", "external_directory", "list") and pattern != "*":
            place = self.resources.root.locate(pattern)
            shown = place.real.as_posix() if permission == "external_directory" else place.pattern
            found = explain(permission, shown, rules)
            if place.outside and permission != "external_directory":
                outside = explain("external_directory", place.pattern, rules)
                return _stricter(found, outside)
            return found
        if permission == "bash" and pattern != "*":
            return self._why_command(pattern, agent, rules)
        return explain(permission, pattern, rules)

    def _permission(self, name: str) -> str:
        """A permission by its own name or by that of a tool that it decides. Raises ``ConfigError`` for one that there is not."""
        tool = self.resources.tools.get(name)
        found = tool.permission if tool is not None else permission_of(name)
        fault = unknown_permission(found)
        if fault:
            raise ConfigError(fault[0].upper() + fault[1:])
        return found

    def _why_command(self, command: str, agent: Agent, rules: Ruleset) -> Explanation:
        """The strictest of all that a command line needs, as its call would be decided."""
        found = scan(
            command,
            root=self.resources.root,
            cwd=self.resources.root.path,
            home=Path.home(),
            environment=self.environment,
        )
        walled = agent.confined and self.resources.wall is not None
        told = explain("bash", command, rules)
        unproven = found.unproven
        if agent.confined and not walled and not unproven:
            unproven = runs_programs(
                found.repositories, unwalled_environment(self.environment, self.resources.root.path)
            )
        if agent.confined and not walled and unproven:
            why = f"This machine has no wall to confine commands, and this one is not proven to change nothing: {unproven}."
            return replace(told, action="deny", rule=None, note=why)
        gate = Gate(rules, Nobody().ask, self.resources.clock, "")
        parts = gate.findings(Call("", "bash", command, "command", found.needs(walled)))
        if not parts:
            return told
        worst = max(parts, key=lambda each: _ORDER[each.action])
        told = replace(explain(worst.permission, worst.pattern, rules), action=worst.action, rule=worst.rule)
        if worst.action == "ask" and worst.rule.action != "ask":
            what = found.fault or "what it does cannot be told from the line"
            told = replace(told, note=f"It is asked about whatever allows it: {what}.")
        if len({each.pair for each in parts}) > 1:
            rest = "; ".join(dict.fromkeys(f"{each.permission} {each.pattern}: {each.action}" for each in parts))
            told = replace(told, note=f"{told.note} The strictest of what the line needs counts: {rest}.".strip())
        return told

    def tools(self, agent_name: str) -> list[tuple[str, str, str]]:
        """(tool, ``visible``/``deferred``/``hidden``, the rule that hides it or "") for an agent."""
        rules = self.rules(self.resources.config.agent(agent_name))
        hidden = set(disabled(list(self.resources.tools), rules))
        rows: list[tuple[str, str, str]] = []
        for name, tool in self.resources.tools.items():
            if name in hidden:
                rule = evaluate(tool.permission, "*", rules)
                rows.append((name, "hidden", f"{rule.permission} {rule.pattern}: {rule.action} ({rule.layer})"))
            else:
                rows.append((name, "deferred" if tool.deferred else "visible", ""))
        return rows

    def summary(self, agent_name: str) -> dict[str, str]:
        """tool → in a few words what an agent may do with it: hidden by which rule, or the action for anything and what
        narrower rules of it say instead."""
        rules = self.rules(self.resources.config.agent(agent_name))
        told: dict[str, str] = {}
        for name, state, rule in self.tools(agent_name):
            told[name] = (
                f"hidden by {rule}" if state == "hidden" else _in_words(self.resources.tools[name].permission, rules)
            )
        return told


def _in_words(permission: str, rules: Ruleset) -> str:
    general = evaluate(permission, "*", rules).action
    narrower = {
        rule.pattern: f"{rule.action} {rule.pattern}"
        for rule in rules
        if rule.pattern != "*"
        and rule.action != general
        and match(permission, rule.permission)
        and evaluate(permission, rule.pattern, rules) == rule
    }
    if not narrower:
        return general
    few = list(narrower.values())
    return f"{general}, but {', '.join(few) if len(few) <= 2 else f'{len(few)} narrower rules'}"


def _stricter(one: Explanation, other: Explanation) -> Explanation:
    return other if _ORDER[other.action] > _ORDER[one.action] else one
