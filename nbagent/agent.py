"""Agents as data: a prompt, rules, a floor, limits. What an agent may do differs by these values and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

from nbagent.permission.ruleset import Action, Layer, Rule, Ruleset, evaluate
from nbagent.permission.wildcard import match, within


@dataclass(frozen=True, slots=True)
class Agent:
    """Who answers a prompt.

    ``mode``: ``primary`` (a cell's agent), ``subagent`` (started by ``task``) or ``hidden`` (summaries, titles).
    ``rules`` stand in the agent layer, ``own`` (what settings files say of this agent) after the general rules of the same
    file; ``floor`` stands after everything else, with ``{plans}`` for the patterns of its plan files.
    ``confined``: its commands run behind the sandbox's wall. ``planning``: it owns one plan file and ends through ``plan_exit``;
    ``then`` carries an approved plan out. ``notice``/``entering``: prompt files that say which mode it is and what changed on
    coming from a planning agent. ``badge`` and ``writes`` are for people.
    """

    name: str
    description: str
    mode: Literal["primary", "subagent", "hidden"]
    rules: Ruleset = ()
    own: Ruleset = ()
    floor: Ruleset = ()
    prompt: str = ""
    confined: bool = False
    planning: bool = False
    then: str = ""
    notice: str = ""
    entering: str = ""
    badge: str = ""
    writes: str = ""
    model: str = ""
    temperature: float | None = None
    effort: str = ""
    steps: int | None = None
    source: str = "built in"

    def with_model(self, model: str) -> Agent:
        return replace(self, model=model)


def rules(layer: Layer, *lines: tuple[str, str, Action]) -> Ruleset:
    """A ruleset written as (permission, pattern, action) lines."""
    return tuple(Rule(permission, pattern, action, layer) for permission, pattern, action in lines)


def prompt_text(name: str) -> str:
    """The text of ``prompts/<name>.txt``."""
    return files("nbagent").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8").strip()


_SECRETS: tuple[tuple[str, str, Action], ...] = (
    ("read", "*", "allow"),
    ("read", "*.env", "ask"),
    ("read", "*.env.*", "ask"),
    ("read", "*.env.example", "allow"),
)

DEFAULTS: Ruleset = rules(
    "defaults",
    ("*", "*", "allow"),
    ("doom_loop", "*", "ask"),
    ("external_directory", "*", "ask"),
    ("question", "*", "deny"),
    ("plan_enter", "*", "deny"),
    ("plan_exit", "*", "deny"),
    *_SECRETS,
    ("bash", "*", "ask"),
    ("python", "*", "ask"),
    ("webfetch", "*", "ask"),
    ("mcp_*", "*", "ask"),
)
"""Before every agent's own rules. The temporary and spill folders' ``external_directory: allow`` come with the run."""

PLANS = "{plans}"

_PLAN_FLOOR = rules(
    "floor",
    ("edit", "*", "deny"),
    ("edit", PLANS, "allow"),
    ("python", "*", "deny"),
    ("task", "general", "deny"),
)

BUILTIN: tuple[Agent, ...] = (
    Agent(
        name="plan",
        description="Explores the project and writes one plan; changes nothing else.",
        mode="primary",
        rules=rules(
            "agent",
            ("question", "*", "allow"),
            ("plan_exit", "*", "allow"),
            ("bash", "*", "allow"),
        ),
        floor=_PLAN_FLOOR,
        confined=True,
        planning=True,
        then="build",
        notice="plan",
        badge="PLAN",
        writes="only writes {plan}",
    ),
    Agent(
        name="build",
        description="Carries work out: edits files, runs commands, each call decided by the rules.",
        mode="primary",
        rules=rules("agent", ("question", "*", "allow"), ("plan_enter", "*", "allow")),
        entering="build",
        badge="BUILD",
        writes="writes what the rules allow",
    ),
    Agent(
        name="explore",
        description="Reads and searches the project quickly and reports; cannot change anything. Give it one question.",
        mode="subagent",
        rules=rules(
            "agent",
            ("*", "*", "deny"),
            ("grep", "*", "allow"),
            ("glob", "*", "allow"),
            ("list", "*", "allow"),
            ("bash", "*", "allow"),
            ("webfetch", "*", "allow"),
            *_SECRETS,
            ("external_directory", "*", "ask"),
            ("doom_loop", "*", "ask"),
        ),
        floor=rules("floor", ("edit", "*", "deny"), ("python", "*", "deny"), ("task", "*", "deny")),
        prompt="explore",
        confined=True,
        badge="EXPLORE",
        writes="writes nothing",
    ),
    Agent(
        name="general",
        description="Carries out one well-described piece of work by itself and reports what it did.",
        mode="subagent",
        rules=rules("agent", ("todo", "*", "deny"), ("task", "*", "deny")),
        prompt="general",
        badge="GENERAL",
        writes="writes what the rules allow",
    ),
    Agent(
        name="compaction",
        description="Summarises a long session.",
        mode="hidden",
        rules=rules("agent", ("*", "*", "deny")),
        prompt="compaction_system",
    ),
    Agent(
        name="title",
        description="Names a session.",
        mode="hidden",
        rules=rules("agent", ("*", "*", "deny")),
        prompt="title",
    ),
)


def bind_floor(floor: Ruleset, plans: tuple[tuple[str, Action], ...]) -> Ruleset:
    """``floor`` with its ``{plans}`` line replaced by one line for each of ``plans`` (pattern, action), in order."""
    bound: list[Rule] = []
    for rule in floor:
        if rule.pattern == PLANS:
            bound.extend(Rule(rule.permission, pattern, action, "floor") for pattern, action in plans)
        else:
            bound.append(rule)
    return tuple(bound)


def layered(agent: Agent, general: Ruleset, before: Ruleset = (), keys: Ruleset = ()) -> Ruleset:
    """``defaults < before < agent < keys < user < project`` for ``agent``: each file's general rules, then what it says of this agent.

    ``keys``: rules about reading where keys lie. A project's file can deny more there, and only the person's own can loosen them.
    """
    stacked: list[Rule] = [*DEFAULTS, *before, *agent.rules]
    guard = tuple(_no_looser(rule, tuple(stacked)) for rule in keys)
    user, project = _of_layer("user", agent, general), _of_layer("project", agent, general)
    stacked += [*guard, *user, *project]
    if any(rule.action != "deny" and match("read", rule.permission) for rule in project):
        # A project's rules come last, so the guard and what the person says about these places come once more.
        denied = [rule for rule in project if rule.action == "deny"]
        stacked += [*guard, *_about(guard, (*user, *denied))]
    return tuple(stacked)


def _of_layer(layer: Layer, agent: Agent, general: Ruleset) -> Ruleset:
    return tuple(rule for rule in (*general, *agent.own) if rule.layer == layer)


def _no_looser(rule: Rule, ruleset: Ruleset) -> Rule:
    """``rule``, or a denial where ``ruleset`` denies what it speaks about."""
    there = evaluate(rule.permission, rule.pattern.replace("*", "x"), ruleset).action
    return replace(rule, action="deny") if there == "deny" else rule


def _about(guard: Ruleset, ruleset: Ruleset) -> list[Rule]:
    """What ``ruleset`` says about reading in the places of ``guard``, as rules about nothing else."""
    reading = [rule for rule in ruleset if match("read", rule.permission)]
    places = [rule.pattern for rule in guard if not rule.pattern.endswith("*")]
    return [replace(rule, pattern=part) for rule in reading for place in places for part in within(rule.pattern, place)]
