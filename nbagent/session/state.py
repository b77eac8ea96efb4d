"""What of a session lives outside its chat, so that no summary and no model can change it."""

from __future__ import annotations

from typing import Any

import msgspec

from nbagent.session.reminders import Notice


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Kept in the session's row.

    ``system``: the system prompt, made once. ``segment``: how often the agent changed. ``notices``: see ``reminders``.
    ``previous``: the agent that was left when a planning agent was entered. ``plan``: real path of the bound plan file;
    ``building``: of the one that is carried out. ``model`` and ``quick``: options of the newest cell.
    ``revealed``: deferred tools that were found. ``instructed``: instruction files the model was given. ``phase``: of the plan.
    ``auto_off``: why automatic approval was switched off for this session ("" while it was not).
    """

    system: str = ""
    segment: int = 0
    notices: list[Notice] = []
    todos: list[dict[str, str]] = []
    previous: str = ""
    plan: str = ""
    plan_named: bool = False
    building: str = ""
    model: str = ""
    quick: bool = False
    revealed: list[str] = []
    instructed: list[str] = []
    phase: str = ""
    auto_off: str = ""
    correctives: int = 0
    undo: list[dict[str, str]] = []
    redo: list[dict[str, str]] = []


def state_from(data: dict[str, Any]) -> State:
    """The state in a session's row; unknown fields of a newer version are left alone."""
    return msgspec.convert(data, State)


def state_data(state: State) -> dict[str, Any]:
    """The state as it is kept."""
    data: dict[str, Any] = msgspec.to_builtins(state)
    return data
