"""Why a call is decided as it is, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.permission.ruleset import Action, Rule, matches

_ORIGIN = {
    "": "a rule",
    "defaults": "nbagent's defaults",
    "agent": "the agent's own rules",
    "user": "your settings",
    "project": "the project's settings",
    "session": 'your "always" replies',
    "floor": "the agent's floor",
}
_MEANING = {
    "allow": "it happens without a question",
    "ask": "a person is asked, and where nobody is there it is refused",
    "deny": "it is refused",
}
_ORDER = "Rules are read from the first to the last, and the last that matches decides"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a call is decided as it is. ``rows``: every rule in order, and whether it matches. ``rule`` None: none decides.
    ``note``: what else was decisive, as a sentence."""

    permission: str
    pattern: str
    action: Action
    rule: Rule | None
    rows: tuple[tuple[Rule, bool], ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """permission, pattern, action and the rule that won (or null)."""
        won = None if self.rule is None else self.rule.to_json()
        return {"permission": self.permission, "pattern": self.pattern, "action": self.action, "rule": won}

    def lines(self, whole: bool = False) -> list[str]:
        """For people: the verdict, what decided it, the rules that match; ``whole``: every rule."""
        shown = [
            f"{self.permission} {self.pattern}: {self.action} ({_MEANING[self.action]})",
            f"Decided by {self._decisive()}.",
            *([self.note] if self.note else []),
        ]
        matching = sum(hit for _, hit in self.rows)
        if whole:
            shown += ["", f"{_ORDER}. All {len(self.rows)} rules:", *self._table(self.rows)]
        elif matching > 1:
            shown += ["", f"{_ORDER}. The {matching} that match:", *self._table([row for row in self.rows if row[1]])]
        if len(self.rows) > matching and not whole:
            # How many is not said: it depends on the machine (the places where keys lie).
            shown += ["", "--all shows the rules that do not match, too."]
        return shown

    def _decisive(self) -> str:
        if self.rule is None:
            return "no rule" if self.note else "no rule: none matches, and then a person is asked"
        last = ", which no setting and no reply changes" if self.rule.layer == "floor" else ""
        return f"the rule “{_told(self.rule)}” of {_ORIGIN[self.rule.layer]}{last}"

    def _table(self, rows: Sequence[tuple[Rule, bool]]) -> list[str]:
        decisive = max((at for at, (rule, hit) in enumerate(rows) if hit and rule == self.rule), default=-1)
        width = max(len(_told(rule)) for rule, _ in rows)
        lines = []
        for at, (rule, hit) in enumerate(rows):
            said = "decides" if at == decisive else "matches" if hit else ""
            lines.append(f"  {_told(rule):<{width}}  {rule.layer:<8}  {said}".rstrip())
        return lines


def _told(rule: Rule) -> str:
    return f"{rule.permission} {rule.pattern}: {rule.action}"


def explain(permission: str, pattern: str, ruleset: Sequence[Rule]) -> Explanation:
    """Every rule in order, which of them match, and which one wins."""
    rows = tuple((rule, matches(rule, permission, pattern)) for rule in ruleset)
    won = next((rule for rule, hit in reversed(rows) if hit), None)
    return Explanation(permission, pattern, won.action if won else "ask", won, rows)
