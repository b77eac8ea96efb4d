"""A session's "always" replies, kept in the store and, where the person said so, in the project's settings file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbagent.config import add_rule
from nbagent.errors import ConfigError
from nbagent.permission.gate import Approval
from nbagent.permission.ruleset import Rule, Ruleset
from nbagent.permission.wildcard import FOLD, covers, match
from nbagent.root import Root
from nbagent.store.store import Store

SETTINGS = "nbagent.toml"


class KeptReplies:
    """The gate's ``Approvals`` for one session and agent.

    A reply that is to be saved goes into the project's settings too, unless the run is ``confined`` (it changes no file) or the saved
    rule, which counts more than what stands before it, would open what one of ``rules`` denies. Then ``warn`` says so.
    """

    def __init__(
        self,
        store: Store,
        session_id: str,
        agent: str,
        root: Root,
        *,
        rules: Callable[[], Ruleset],
        confined: bool,
        warn: Callable[[str], None],
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._agent = agent
        self._root = root
        self._rules = rules
        self._confined = confined
        self._warn = warn

    def list(self) -> Sequence[Approval]:
        return [
            Approval(row.id, row.permission, row.pattern, row.time_created)
            for row in self._store.approvals(self._session_id)
            if row.agent == self._agent
        ]

    def add(self, permission: str, pattern: str, save: bool = False) -> None:
        self._store.add_approval(self._session_id, permission, pattern, self._agent)
        if save:
            self._save(permission, pattern)

    def _save(self, permission: str, pattern: str) -> None:
        if self._confined:
            self._warn(
                f"Remembered for this session, not written to {SETTINGS}: a cell that may change no file does not change that one. "
                "Answer so in a build cell, or write the rule there yourself."
            )
            return
        denied = outranked(self._rules(), permission, pattern)
        if denied is not None:
            self._warn(
                f"Remembered for this session, not written to {SETTINGS}: there, {permission} {pattern} would count more than "
                f"the rule “{denied}”. Save something narrower."
            )
            return
        try:
            add_rule(self._root.path / SETTINGS, permission, pattern, "allow")
        except ConfigError as error:
            self._warn(str(error))

    def revoke(self, number: int) -> bool:
        return self._store.revoke_approval(self._session_id, number)


def outranked(rules: Ruleset, permission: str, pattern: str) -> Rule | None:
    """A deny that decides some of what ``pattern`` matches, and would not any more if ``pattern`` were allowed by the project's last rule.

    A pattern without wildcards was asked about, so nothing denies it. Careful, not exact: patterns whose beginnings agree may overlap.
    """
    if _beginning(pattern) == pattern.removeprefix("="):
        return None
    for rule in reversed(rules):
        if rule.layer in ("floor", "session") or not match(permission, rule.permission):
            continue
        if rule.action == "deny" and _may_overlap(rule.pattern, pattern):
            return rule
        if covers(rule.pattern, pattern):
            return None
    return None


def _may_overlap(one: str, other: str) -> bool:
    first, second = _beginning(one), _beginning(other)
    return first.startswith(second) or second.startswith(first)


def _beginning(pattern: str) -> str:
    """What everything that ``pattern`` matches begins with."""
    if pattern.startswith("="):
        text = pattern[1:]
    else:
        at = min((place for mark in "*?" if (place := pattern.find(mark)) >= 0), default=len(pattern))
        text = pattern[:at].rstrip() if at < len(pattern) else pattern
    return text.casefold() if FOLD else text
