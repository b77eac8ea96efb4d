"""``expect`` lines of a hand-written cassette: read, and held against what really happened.

======================================  =====================================================================
``refused by edit *``                   the call was refused, by the rule with this permission and pattern
``refused by the person``               the call was refused by a person
``refused``                             the call was refused, by whomever
``completed``                           the call did what it does
``asked``                               a person was asked about the call
``error contains TEXT``                 the call failed, and said TEXT
``output contains TEXT``                the call's result says TEXT
``tool NAME visible`` / ``hidden``      the model was, or was not, offered this tool in the request that is answered here
``request contains TEXT``               the last messages of the request that is answered here say TEXT
======================================  =====================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from nbagent.provider.cassette import Expectation, Malformed
from nbagent.provider.digest import last_turns, turn_text
from nbagent.provider.provider import Request, ResultTurn

_FORMS = (
    ("refused-person", re.compile(r"refused by the person")),
    ("refused-rule", re.compile(r"refused by (\S+) (.+)")),
    ("refused", re.compile(r"refused")),
    ("completed", re.compile(r"completed")),
    ("asked", re.compile(r"asked")),
    ("error", re.compile(r"error contains (.+)")),
    ("output", re.compile(r"output contains (.+)")),
    ("visible", re.compile(r"tool (\S+) visible")),
    ("hidden", re.compile(r"tool (\S+) hidden")),
    ("request", re.compile(r"request contains (.+)")),
)
_EXAMPLES = (
    "refused by PERMISSION PATTERN",
    "refused by the person",
    "refused",
    "completed",
    "asked",
    "error contains TEXT",
    "output contains TEXT",
    "tool NAME visible",
    "tool NAME hidden",
    "request contains TEXT",
)
OF_REQUEST = ("visible", "hidden", "request")


def read_expectation(text: str, line: int, call_id: str) -> Expectation:
    """The expectation that ``text`` states of the call ``call_id`` ("" before any call). Raises ``Malformed``."""
    found = next(((kind, match) for kind, form in _FORMS if (match := form.fullmatch(text))), None)
    if found is None:
        raise Malformed(line, f"{text!r} is not something to expect; say one of: {', '.join(_EXAMPLES)}")
    kind, match = found
    if kind in OF_REQUEST:
        return Expectation(kind, text, line, "", match.groups())
    if not call_id:
        raise Malformed(line, f"expect: {text} must stand below the call that it is about")
    return Expectation(kind, text, line, call_id, match.groups())


@dataclass(slots=True)
class Fate:
    """What is known of one call: whether it failed and with which text, the rule that refused it, whether a person was asked."""

    error: bool
    text: str
    rule: dict[str, Any] | None = None
    asked: bool = False
    rejected: bool = False


@dataclass(slots=True)
class Witness:
    """What was seen of calls beside the results in requests: the rule that refused one, asks and rejects by call id."""

    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    fates: dict[str, Fate] = field(default_factory=dict)

    def fate(self, call_id: str, request: Request) -> Fate | None:
        """What became of a call, None while that is not known."""
        for turn in reversed(request.turns):
            if isinstance(turn, ResultTurn) and turn.call_id == call_id:
                return self._add(Fate(turn.error, turn_text(turn)), call_id)
        return self.known(call_id)

    def known(self, call_id: str) -> Fate | None:
        """What events told of a call's end, None when they told nothing."""
        fate = self.fates.get(call_id)
        return self._add(fate, call_id) if fate else None

    def _add(self, fate: Fate, call_id: str) -> Fate:
        fate.rule = self.rules.get(call_id)
        fate.asked = call_id in self.asked
        fate.rejected = call_id in self.rejected
        return fate


def disappointment(expected: Expectation, fate: Fate) -> str:
    """Why ``fate`` is not what was expected of the call, "" when it is."""
    got = f"it {'failed' if fate.error else 'completed'}: {_short(fate.text)}"
    match expected.kind:
        case "completed":
            return got if fate.error else ""
        case "asked":
            return "" if fate.asked else "nobody was asked; " + got
        case "error":
            return "" if fate.error and expected.values[0] in fate.text else got
        case "output":
            return "" if expected.values[0] in fate.text else got
        case "refused-person":
            return "" if fate.rejected or (fate.error and "reject" in fate.text.lower()) else got
        case "refused-rule":
            return "" if _refused_by(fate, *expected.values) else got
        case _:
            return "" if fate.error and (fate.rule or fate.rejected or _says_refused(fate.text)) else got


def request_disappointment(expected: Expectation, request: Request) -> str:
    """Why ``request`` is not what was expected, "" when it is."""
    value = expected.values[0]
    names = [tool.name for tool in request.tools]
    match expected.kind:
        case "visible":
            return "" if value in names else f"it was not offered; offered were: {', '.join(names) or 'none'}"
        case "hidden":
            return "it was offered" if value in names else ""
        case _:
            text = "\n".join(turn_text(turn) for turn in last_turns(request))
            return "" if value in text else f"its last messages say: {_short(text)}"


def _refused_by(fate: Fate, permission: str, pattern: str) -> bool:
    if not fate.error:
        return False
    if fate.rule is not None:
        return (fate.rule.get("permission"), fate.rule.get("pattern")) == (permission, pattern)
    spelled = rf"(?<![\w*]){re.escape(permission)}\W{{1,4}}{re.escape(pattern)}(?!\w)"
    return re.search(spelled, fate.text) is not None


def _says_refused(text: str) -> bool:
    return re.search(r"\b(refused|denied|deny|rejected|not allowed)\b", text, re.IGNORECASE) is not None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:299] + "…"
