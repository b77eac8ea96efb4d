"""What a prompt would send, put together by the code that sends it, in a copy of the session that is thrown away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten

import msgspec

from nbagent.errors import PlanError
from nbagent.frontend import Frontend
from nbagent.message import Message, TextPart
from nbagent.permission.ruleset import Rule
from nbagent.provider.provider import Request
from nbagent.session.approval import plan_hash
from nbagent.session.child import run_task
from nbagent.session.explain import turn_lines
from nbagent.session.history import History
from nbagent.session.loop import build_request
from nbagent.session.plan import PlanFile, Plans
from nbagent.session.resources import Resources
from nbagent.session.review import approved_text
from nbagent.session.run import Run
from nbagent.session.session import Prompt, approved_plan, system_prompt
from nbagent.session.state import state_data, state_from
from nbagent.store.rows import SessionRow
from nbagent.store.store import Store


@dataclass(frozen=True)
class Preview:
    """The first request of a cell. ``hidden``: tool → the rule that hides it. ``note``: what would happen before it, or ""."""

    request: Request
    hidden: dict[str, Rule]
    badge: str
    plan: str = ""
    note: str = ""

    def lines(self, root: Path) -> Iterator[str]:
        """As Markdown: nothing of the request is cut but turns that were sent before."""
        asked = self.request
        yield f"{self.badge} would run, and nothing was sent."
        yield f"root   {root}"
        yield f"model  {asked.model or 'none set'}"
        if self.plan:
            yield f"plan   {self.plan}"
        if self.note:
            yield f"note   {self.note}"
        yield from ("", f"## Tools offered ({len(asked.tools)})", "")
        yield from (f"- `{tool.name}`: {shorten(tool.description, 100, placeholder=' …')}" for tool in asked.tools)
        if self.hidden:
            yield from ("", f"## Hidden, never offered and refused if called ({len(self.hidden)})", "")
            for name, rule in sorted(self.hidden.items()):
                yield f"- `{name}` by the rule `{rule.permission} {rule.pattern}: {rule.action}` ({rule.layer})"
        yield from ("", f"## System prompt ({len(asked.system):,} characters)", "", asked.system, "", "## Messages", "")
        yield from turn_lines(asked.turns)


def preview(
    resources: Resources, row: SessionRow | None, prompt: Prompt, frontend: Frontend, scratch: Store
) -> Preview:
    """The request that ``prompt`` would begin with, in the session of ``row`` or in a new one. ``scratch``: an empty store.

    Nothing is written but ``scratch``, and no server is asked. Raises ``PlanError`` when the cell could not run.
    """
    copied = _copied(resources, row, prompt, scratch)
    plans = Plans(resources.root, resources.config.home, scratch)
    run_with = replace(resources, store=scratch, plans=plans)
    history = History(scratch, copied.id)
    agent = resources.config.agent(prompt.agent)
    run = Run(
        run_with, copied, history, state_from(copied.state), agent, frontend, prompt.options, start_child=run_task
    )
    text, note = _bound(run, resources, prompt, row.id if row is not None else "")
    came_from = resources.config.agents.get(copied.agent) if history.messages else None
    message = Message(
        id=run.new_id("msg"),
        session_id=copied.id,
        role="user",
        agent=agent.name,
        time_created=resources.clock.now(),
        parts=(
            TextPart(id=run.new_id("prt"), text=resources.masker.mask(text)),
            *(msgspec.structs.replace(part, id=run.new_id("prt")) for part in prompt.files),
        ),
    )
    history.add(message)
    run.note_mode(message.id, came_from)
    bound = run.plan or run.carry_out
    return Preview(build_request(run), run.hidden(), agent.badge or agent.name, bound.shown if bound else "", note)


def _copied(resources: Resources, row: SessionRow | None, prompt: Prompt, scratch: Store) -> SessionRow:
    """The session with its messages in ``scratch``; one that is new there when ``row`` is None."""
    state = state_from(row.state if row is not None else {})
    state.system = state.system or system_prompt(resources)
    copied = scratch.create_session(
        directory=str(resources.root.path),
        agent=row.agent if row is not None else prompt.agent,
        state=state_data(state),
        session_id=row.id if row is not None else "",
    )
    if row is not None:
        scratch.add_messages(resources.store.messages(row.id))
    return copied


def _bound(run: Run, resources: Resources, prompt: Prompt, session_id: str) -> tuple[str, str]:
    """Bind the plan as the real run would; the text that is sent, and what a person would be asked before."""
    plans = resources.plans
    if run.agent.planning:
        named = plans.named(prompt.plan) if prompt.plan else plans.of_cell(prompt.cell)
        run.plan = named or plans.fresh(prompt.text, resources.clock.now())
        run.state.plan_named = bool(prompt.plan)
        return prompt.text, ""
    if not prompt.carry_out and not prompt.plan:
        return prompt.text, ""
    plan = plans.named(prompt.plan) if prompt.plan else approved_plan(plans, session_id)
    text = plan.text()
    if text is None or not text.strip():
        raise PlanError(f"The plan {plan.shown} does not exist or is empty. Make it with a plan cell first.")
    run.carry_out = plan
    told = approved_text(plan, _comment(resources, plan), text, False)
    told = f"{prompt.text.strip()}\n\n{told}" if prompt.text.strip() else told
    approval = plans.approval(plan)
    if approval.status == "approved" and approval.hash == plan_hash(text):
        return told, ""
    return told, "the plan is not approved as it is now: you would be asked first, and nothing sent unless you approve"


def _comment(resources: Resources, plan: PlanFile) -> str:
    known = resources.store.plan(str(plan.path))
    return known.comment if known is not None else ""
