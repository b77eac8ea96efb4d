"""What the rules in force say about a place before the gate is asked: what may be looked at, and what may be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbagent.permission.ask import Need
from nbagent.permission.ruleset import Ruleset, evaluate
from nbagent.permission.wildcard import FOLD, match, pieces
from nbagent.root import Place
from nbagent.tools.textfile import printable


def refused(needs: Iterable[Need], rules: Ruleset) -> bool:
    """Whether a rule says no to any of it, so that nothing of the place may be looked at or told."""
    return any(evaluate(need.permission, p, rules).action == "deny" for need in needs for p in need.patterns)


def may_show(place: Place, rules: Ruleset) -> bool:
    """Whether what is in ``place`` may be told to the model without a person's word."""
    if evaluate("read", place.pattern, rules).action != "allow":
        return False
    return not place.outside or evaluate("external_directory", place.pattern, rules).action == "allow"


class Sieve:
    """A test for paths that a search found: ``read`` must be allowed for them, and ``permission`` not denied."""

    def __init__(self, permission: str, rules: Ruleset) -> None:
        self._rules = rules
        self._permission = permission
        reading = [rule for rule in rules if match("read", rule.permission)]
        searching = [rule for rule in rules if match(permission, rule.permission) and rule.action == "deny"]
        # Only what one of these patterns matches can be refused; without an "allow all" everything can.
        open_to_all = any(rule.pattern == "*" and rule.action == "allow" for rule in reading)
        guards = [rule.pattern for rule in (*reading, *searching) if rule.action != "allow"]
        # What is inside the root is named relative to it, so an absolute pattern is none of its business.
        self._near = [_mark(pattern) for pattern in guards if not _is_far(pattern)] if open_to_all else [""]
        self._far = [_mark(pattern) for pattern in guards if _is_far(pattern)] if open_to_all else []

    def marks(self, prefix: str = "") -> tuple[str, ...]:
        """Texts of which every guarded path below ``prefix`` has one; ``""`` when any path may be guarded, nothing when none is."""
        return tuple([*self._near, *self._far] if _is_far(prefix) else self._near)

    def passes(self, pattern: str) -> bool:
        """Whether the path that rules see as ``pattern`` may be told."""
        if evaluate("read", pattern, self._rules).action != "allow":
            return False
        return evaluate(self._permission, pattern, self._rules).action != "deny"

    def refused(self, prefix: str, paths: Sequence[str]) -> set[str]:
        """Those of ``paths`` that may not be told; ``prefix + path`` is what rules see. Quick where no guarded name is there."""
        joined = f"\0{prefix}".join(("", *paths))
        joined = joined.casefold() if FOLD else joined
        marks = [mark for mark in self.marks(prefix) if mark in joined]
        if not marks:
            return set()
        suspects = (
            path
            for path in paths
            if any(mark in (f"{prefix}{path}".casefold() if FOLD else f"{prefix}{path}") for mark in marks)
        )
        return {path for path in suspects if not self.passes(printable(f"{prefix}{path}"))}


def _is_far(pattern: str) -> bool:
    """Whether a pattern or a prefix is absolute."""
    path = pattern.removeprefix("=")
    return path.startswith("/") or path[1:3] == ":/"


def _mark(pattern: str) -> str:
    """A text that every path has that ``pattern`` matches; "" when there is none."""
    texts = [piece.text for piece in pieces(pattern) if piece.kind == "text"]
    plain = [part for text in texts for part in text.split("?")]
    mark = max(plain, key=len, default="")
    return mark.casefold() if FOLD else mark
