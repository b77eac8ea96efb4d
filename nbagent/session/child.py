"""``task``: a child session that works for its parent, by rules that end with the parent's floor."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Literal

from nbagent.agent import Agent, prompt_text
from nbagent.errors import ArgumentError, NbagentError, PlanError, ProviderError, SessionError, ToolError
from nbagent.event import FinishEvent, PlanEvent
from nbagent.message import Message, SubtaskPart, TextPart
from nbagent.permission.ruleset import evaluate
from nbagent.provider.provider import Request, Say, Text, Used, UserTurn
from nbagent.session import recovery
from nbagent.session.approval import Approval, plan_hash
from nbagent.session.history import History
from nbagent.session.loop import loop
from nbagent.session.plan import PlanFile
from nbagent.session.review import decide
from nbagent.session.run import Ending, Options, Run
from nbagent.session.state import state_from
from nbagent.store.rows import SessionRow
from nbagent.tools.tool import ToolResult

AT_ONCE = 3
DEEPEST = 3
"""Levels of children below a cell's run."""


async def run_task(parent: Run, arguments: dict[str, Any], call_id: str, message_id: str) -> ToolResult:
    """Run one ``task`` call to its end; the result is the child's last text."""
    agent = _agent(parent, arguments["subagent_type"].strip())
    row = _row(parent, agent, arguments)
    store = parent.resources.store
    try:
        store.start(row.id)
    except SessionError:
        raise ToolError(f"{row.id} is at work already. Wait for its report before you go on with it.") from None
    status: Literal["idle", "failed"] = "failed"
    try:
        child = _child(parent, agent, row, call_id)
        _note_subtask(child, agent, arguments, message_id)
        _begin(child, agent, arguments)
        async with _places(parent):
            result = await _answered(parent, child)
        status = "idle"
        return result
    except asyncio.CancelledError:
        status = "idle"
        raise
    except (ProviderError, PlanError) as error:
        raise ToolError(f"The task failed: {error}\n\n(task_id: {row.id})") from error
    finally:
        store.finish(row.id, status)


def _agent(parent: Run, name: str) -> Agent:
    agents = parent.resources.config.agents
    agent = agents.get(name)
    if agent is None or agent.mode != "subagent":
        known = ", ".join(sorted(each.name for each in agents.values() if each.mode == "subagent"))
        raise ArgumentError(f"There is no subagent {name!r}. Subagents: {known}.")
    return agent


def _row(parent: Run, agent: Agent, arguments: dict[str, Any]) -> SessionRow:
    """The child's session: a new one, or the one that ``task_id`` names among this session's own."""
    store = parent.resources.store
    task_id = arguments.get("task_id") or ""
    if task_id:
        row = next((row for row in store.children(parent.session_id) if row.id == task_id), None)
        if row is None or agent.name not in (row.agent, state_from(row.state).previous):
            raise ToolError(
                f"{task_id} is not a task of this session with the agent {agent.name}. Leave task_id out to begin a new one."
            )
        return row
    if _depth(parent) >= DEEPEST:
        raise ToolError("A task of a task of a task begins no other. Do this piece of work yourself.")
    return store.create_session(
        directory=str(parent.resources.root.path),
        agent=agent.name,
        notebook=parent.row.notebook,
        title=parent.resources.masker.mask(arguments.get("description", "")),
        parent_id=parent.session_id,
        state={"system": _system(parent, agent)},
        session_id=parent.new_id("ses"),
    )


def _depth(run: Run) -> int:
    return 0 if run.parent is None else 1 + _depth(run.parent)


def _child(parent: Run, agent: Agent, row: SessionRow, call_id: str) -> Run:
    history = History(parent.resources.store, row.id)
    recovery.settle(history, parent.resources.clock.now())
    options = Options(
        model="" if agent.model else parent.options.model, limits=parent.options.limits, auto=parent.options.auto
    )
    return Run(
        parent.resources,
        row,
        history,
        state_from(row.state),
        agent,
        parent.frontend,
        options,
        parent=parent,
        call_id=call_id,
        start_child=parent.start_child,
    )


def _note_subtask(child: Run, agent: Agent, arguments: dict[str, Any], message_id: str) -> None:
    parent = child.parent
    assert parent is not None
    parent.history.put(
        message_id,
        SubtaskPart(
            id=parent.new_id("prt"),
            call_id=child.parent_call,
            session_id=child.session_id,
            agent=agent.name,
            description=parent.resources.masker.mask(arguments.get("description", "")),
        ),
    )


def _begin(child: Run, agent: Agent, arguments: dict[str, Any]) -> None:
    """The child has its mode and its prompt."""
    if arguments.get("plan_required"):
        _plan_first(child, agent, arguments["prompt"])
    _say(child, arguments["prompt"])


def _system(parent: Run, agent: Agent) -> str:
    """A child's system prompt: its own words, then the facts and instructions of the session."""
    own = (
        prompt_text(agent.prompt) if agent.source == "built in" and agent.prompt else agent.prompt or agent.description
    )
    _, _, rest = parent.state.system.partition("# Facts")
    return f"{own}\n\n# Facts{rest}" if rest else own


def _plan_first(child: Run, agent: Agent, prompt: str) -> None:
    """The child begins as a planning agent whose plan its parent must approve; afterwards it is ``agent``."""
    resources = child.resources
    planner = next((each for each in resources.config.agents.values() if each.planning), None)
    if planner is None:
        raise PlanError("There is no planning agent, so a plan cannot be required.")
    resources.plans.prepare()
    child.plan = resources.plans.fresh(prompt, resources.clock.now())
    child.state.previous = agent.name
    child.state.plan = str(child.plan.path)
    child.agent = planner
    child.reviewer = lambda plan, text: _review_by_parent(child, agent, plan, text)
    child.gate = child.make_gate()


def _say(child: Run, prompt: str) -> None:
    """The parent's words become the child's prompt. Nothing in them is expanded: a model wrote them."""
    message_id = child.new_id("msg")
    child.history.add(
        Message(
            id=message_id,
            session_id=child.session_id,
            role="user",
            agent=child.agent.name,
            time_created=child.resources.clock.now(),
            parts=(TextPart(id=child.new_id("prt"), text=child.resources.masker.mask(prompt)),),
        )
    )
    first = len(child.history.messages) == 1
    child.note_mode(message_id, None if first else child.resources.config.agents.get(child.row.agent))
    child.save()
    child.announce()


def _places(parent: Run) -> asyncio.Semaphore:
    """So many children of one run at once; those of a child have places of their own, so that none waits for its parent's."""
    if parent.child_places is None:
        parent.child_places = asyncio.Semaphore(AT_ONCE)
    return parent.child_places


async def _answered(parent: Run, child: Run) -> ToolResult:
    try:
        ending = await loop(child)
    except asyncio.CancelledError:
        _finished(child, Ending("stopped"))
        raise
    except NbagentError as error:
        _finished(child, Ending("error", str(error)))
        raise
    finally:
        child.gate.stop()
        parent.unanswered += child.unanswered
    text = _finished(child, ending)
    if ending.reason == "rejected" and parent.ending is None:
        parent.ending = ending  # a person's stop reaches the top
    told = text or "(the task ended without a word)"
    if ending.reason not in ("stop", "rejected"):
        told += f"\n\n[The task ended early: {ending.text or ending.reason}]"
    return ToolResult(
        f"{child.agent.name}: {child.row.title}",
        f"{told}\n\n(task_id: {child.session_id})",
        {
            "session": child.session_id,
            "agent": child.agent.name,
            "reason": ending.reason,
            "tokens": child.tokens.total,
            "steps": child.steps,
        },
    )


def _finished(child: Run, ending: Ending) -> str:
    """Say that the child is done; returns its last words."""
    text = next((m.text() for m in reversed(child.history.messages) if m.role == "assistant" and m.text()), "")
    child.emit(
        FinishEvent(
            reason=ending.reason,
            tokens=child.tokens,
            steps=child.steps,
            seconds=child.seconds(),
            cost=child.cost,
            text=text,
        )
    )
    return text


async def _review_by_parent(child: Run, agent: Agent, plan: PlanFile, text: str) -> ToolResult:
    """``plan_exit`` of a child: the parent's model decides first; where the parent's rules say ``ask``, the person too."""
    parent = child.parent
    assert parent is not None
    verdict = await _ask_parent(parent, agent, text)
    comment = ""
    if verdict.approved and evaluate("task", agent.name, parent.rules()).action == "ask":
        if not child.frontend.attended:
            verdict = Opinion(
                False, "A person must approve this plan, and nobody is there. Report what you found instead."
            )
        else:
            decided = await decide(child, plan, text)
            approved = decided.verdict.action in ("build", "later") and parent.resources.store.use_plan(
                str(plan.path), plan_hash(decided.text)
            )
            verdict = Opinion(approved, decided.verdict.comment or "The person did not approve the plan.")
            text, comment = decided.text, decided.verdict.comment
    if not verdict.approved:
        return ToolResult(
            "plan sent back",
            f"The plan is not approved: {verdict.reasons}\n\nChange {plan.shown} and call plan_exit again.",
        )
    _settle_plan(child, plan, text)
    child.next_agent = agent
    child.carry_out = plan
    child.reviewer = None
    return ToolResult(
        "plan approved",
        f"The plan at {plan.shown} is approved. {comment}\n\n<plan>\n{text}\n</plan>\n\nCarry it out now.",
    )


def _settle_plan(child: Run, plan: PlanFile, text: str) -> None:
    """The child carries its plan out: told and kept as built, so that no approval of it is left for a later cell to use."""
    plans = child.resources.plans
    digest = plan_hash(text)
    if plans.approval(plan).status != "built":
        plans.record(plan, Approval("built", digest), by="the parent's model", session_id=child.session_id)
    child.emit(PlanEvent(path=plan.shown, status="built", hash=digest, text=text, by="the parent's model"))


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the parent's model, or the person, thinks of a child's plan."""

    approved: bool
    reasons: str


async def _ask_parent(parent: Run, agent: Agent, plan: str) -> Opinion:
    """One request to the parent's model, beside its conversation: APPROVE (alone in its line in any case), or REVISE and
    why. Anything else is REVISE."""
    quoted = plan.replace("</plan>", "<\\/plan>")
    request = Request(
        model=parent.model,
        system=parent.state.system,
        turns=(
            UserTurn((Text(prompt_text("review_child").replace("{agent}", agent.name).replace("{plan}", quoted)),)),
        ),
        agent=parent.agent.name,
        session_id=parent.session_id,
    )
    pieces: list[str] = []
    async with contextlib.aclosing(parent.resources.provider.stream(request)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            if isinstance(delta, Say):
                pieces.append(delta.text)
            elif isinstance(delta, Used):
                parent.spend(delta.tokens, None)
    text = "".join(pieces).strip()
    first, _, rest = text.partition("\n")
    word = first.split()[0].strip(".:*#`") if first.split() else ""
    reasons = f"{first.partition(' ')[2]}\n{rest}".strip()
    alone = first.strip(" .:*#`").lower() == "approve"
    return Opinion(word == "APPROVE" or alone, reasons or "no reasons were given")
