"""Which mode text goes into a request, and where: derived from the session's state, never from the chat.

A notice is decided once, when a prompt is delivered or the agent changes, and kept as ``Notice(message_id, agent, text)`` in
the session's state. A request shows the notices of the agent that asks, each at the message it was sent with, so that the bytes
before stay as they were; notices of other agents are gone from it. A compaction puts what the mode needs now beside the summary.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nbagent.agent import Agent, prompt_text
from nbagent.message import Message
from nbagent.session.plan import PlanFile


class Notice(msgspec.Struct, frozen=True):
    """Mode text that rides on a user message. ``segment`` counts changes of agent: notices of one segment stay together."""

    message_id: str
    agent: str
    segment: int
    text: str


def mode_text(agent: Agent, plan: PlanFile | None, *, quick: bool, explore: bool, ask: bool = True) -> str:
    """What ``agent`` is told about its mode, "" when there is nothing to say. It is told of no tool that it does not have: ``explore``,
    ``ask``: whether it has subagents to look with, and somebody to ask."""
    own = agent.prompt if agent.mode == "primary" and agent.source != "built in" else ""
    if not agent.notice:
        return own
    text = "\n\n".join(piece for piece in (prompt_text(agent.notice), own) if piece)
    if not agent.planning or plan is None:
        return text
    phases = prompt_text("plan_quick") if quick else prompt_text("plan_phases")
    phases = phases.replace("{explore}", " " + prompt_text("plan_explore") if explore else "")
    phases = phases.replace("{open}", prompt_text("plan_open" if ask else "plan_alone"))
    text = text.replace("{approval}", " " + prompt_text("plan_approval") if ask else "")
    return text.replace("{plan}", plan.shown).replace("{state}", _state(plan)).replace("{phases}", phases)


def path_text(plan: PlanFile) -> str:
    """A later prompt in the same mode has a plan file of its own."""
    return prompt_text("plan_path").replace("{plan}", plan.shown).replace("{state}", _state(plan))


def entering_text(agent: Agent, plan: str) -> str:
    """What an agent is told on the first step after a planning agent; ``plan``: path of the plan to carry out, or ""."""
    if not agent.entering:
        return ""
    carry = " " + prompt_text("build_plan").replace("{plan}", plan) if plan else ""
    return prompt_text(agent.entering).replace("{plan}", carry)


def _state(plan: PlanFile) -> str:
    return prompt_text("plan_exists") if plan.text() is not None else prompt_text("plan_new")


def shown(notices: Sequence[Notice], agent: str, segment: int, messages: Sequence[Message]) -> dict[str, list[str]]:
    """message id → notices to show with it, for a request of ``agent`` that shows ``messages``.

    A notice whose message is not among them goes with the summary (""): that is where a compaction puts it.
    """
    current = [notice for notice in notices if notice.agent == agent and notice.segment == segment]
    absent = {notice.message_id for notice in current}
    for message in messages:
        if not absent:
            break
        absent.discard(message.id)
    placed: dict[str, list[str]] = {}
    for notice in current:
        placed.setdefault("" if notice.message_id in absent else notice.message_id, []).append(notice.text)
    return placed
