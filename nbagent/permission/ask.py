"""What a person is asked about one call, and what comes back. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nbagent.permission.ruleset import Rule

Effect = Literal["reads", "writes", "command", "code", "outside", "asks"]


@dataclass(frozen=True, slots=True)
class Preview:
    """What to show before a decision: ``kind`` ``diff`` (unified diff), ``command``, ``code`` or ``text``."""

    kind: Literal["diff", "command", "code", "text"]
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """One permission that a call needs, on real resources. Every pattern is decided by itself; the strictest verdict wins.

    ``always``: for each pattern, in order, what an "always" reply would remember; as narrow as the call allows,
    empty where nothing may be remembered. ``suggest``: a wider pattern that a person may choose instead ("" for none).
    ``unresolved``: which resource is meant cannot be told beforehand (``"$Z"``); never allowed while any rule denies a
    path, and never by automatic approval. ``least``: ``ask`` for what no rule may allow by itself (a line that does not
    parse). ``aliases``: other spellings of the same; only a deny for one of them counts. ``below``: what else is reached
    (files in a folder that is removed, what a loop runs); counts where a rule is stricter about one of them than about the patterns.
    ``once``: a remembered reply does not answer it (its pattern could also be read as another command).
    """

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ()
    suggest: str = ""
    unresolved: bool = False
    least: Literal["allow", "ask"] = "allow"
    aliases: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    once: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as the gate sees it. ``effects``: keys like ``write:src/a.py`` or ``command:rm x``; a refused effect
    stays refused for the rest of the cell, through any other tool."""

    id: str
    tool: str
    title: str
    effect: Effect
    needs: tuple[Need, ...]
    preview: Preview | None = None
    effects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """An open question to a person about ``call``. ``id`` is its own; an answer that bears another id is ignored.

    ``pending``: the (permission, pattern) pairs that still need the person; ``remember``: what "always" would store;
    ``suggest``: wider pairs that may be chosen instead. ``opened``: seconds since the epoch.
    """

    id: str
    session_id: str
    call: Call
    rule: Rule
    pending: tuple[tuple[str, str], ...]
    remember: tuple[tuple[str, str], ...] = ()
    suggest: tuple[tuple[str, str], ...] = ()
    opened: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """``once``, ``always`` (``remember``: edited patterns, else what the ask proposed; ``save``: also into the project's
    settings) or ``reject`` (with optional ``feedback``). ``by``: ``person``, ``auto``, ``cassette``, ``nobody``."""

    answer: Literal["once", "always", "reject"]
    feedback: str = ""
    remember: tuple[tuple[str, str], ...] | None = None
    save: bool = False
    by: str = "person"
    lines: tuple[str, ...] = field(default=())
