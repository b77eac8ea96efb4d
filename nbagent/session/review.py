"""Leaving and entering the planning mode. *Approved* has one producer: ``_approved`` here, on a person's verdict."""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.agent import Agent
from nbagent.errors import Denied, PlanError, Rejected, ToolError
from nbagent.event import PlanEvent
from nbagent.frontend import Review, Verdict
from nbagent.permission.ask import Call, Need
from nbagent.session.approval import NotApproved, approve, close, plan_hash, request
from nbagent.session.plan import PlanFile, warnings
from nbagent.session.run import Ending, Run
from nbagent.tools.tool import ToolResult

ROUNDS = 50
"""Reviews of one call at most: a file that changes under every look is not approved for ever."""


async def review_plan(run: Run, call_id: str) -> ToolResult:
    """``plan_exit``: is it valid, does the person approve, is there a person?"""
    plan = run.plan
    if not run.agent.planning or plan is None:
        raise ToolError("plan_exit works only while planning. Nothing was asked.")
    text = plan.text()
    if text is None or not text.strip():
        raise ToolError(
            f"The plan file {plan.shown} does not exist or is empty. Write the plan there first, then call plan_exit."
        )
    if run.reviewer is not None:
        return await run.reviewer(plan, text)
    if not run.frontend.attended:
        return _awaiting(run, plan, text)
    try:
        decided = await decide(run, plan, text)
    except NobodyLeft:
        return _awaiting(run, plan, plan.text() or text)
    return _after(run, plan, decided)


class NobodyLeft(ToolError):
    """Whoever was to approve a plan is gone, or gave no answer in time."""


def _awaiting(run: Run, plan: PlanFile, text: str) -> ToolResult:
    """Nobody can answer: the plan waits, the cell ends. The call did its part, so it is no failure."""
    digest = plan_hash(text)
    run.resources.plans.record(plan, request(run.resources.plans.approval(plan), "", digest))
    found = warnings(text, run.resources.root.path)
    run.emit(PlanEvent(path=plan.shown, status="awaiting", hash=digest, text=text, warnings=found))
    run.ending = Ending(
        "awaiting",
        f"The plan {plan.shown} is awaiting approval: nobody was there to approve it. "
        f"Approve it with `nbagent approve {plan.shown}`, then run a {run.agent.then or 'build'} cell.",
    )
    return ToolResult(
        "the plan awaits approval",
        f"Not approved: nobody is there to approve it. The plan stays at {plan.shown}.",
        {"status": "awaiting"},
    )


def tell_draft(run: Run) -> None:
    """The model was done without asking for approval: what it wrote is a draft, and a person must know."""
    plan = run.plan
    if plan is None or not run.agent.planning:
        return
    try:
        text = plan.text() or ""
    except PlanError:
        return
    if not text.strip():
        run.notice("The model ended without writing a plan.", "warning")
        return
    if run.resources.plans.approval(plan).status != "draft":
        return
    found = warnings(text, run.resources.root.path)
    run.emit(PlanEvent(path=plan.shown, status="draft", hash=plan_hash(text), text=text, warnings=found))
    run.notice(
        f"The plan {plan.shown} is a draft: the model ended without asking for approval. "
        f"Go on planning, or approve it as it is with `nbagent approve {plan.shown}`."
    )


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's verdict on a plan; ``text``: as they left it, ``edited``: it is not what was shown."""

    verdict: Verdict
    text: str
    edited: bool = False


async def decide(run: Run, plan: PlanFile, text: str) -> Decided:
    """Show the plan until a person has decided about what is really in the file."""
    plans = run.resources.plans
    previous, stale = run.reviewed, False
    for _ in range(ROUNDS):
        digest = plan_hash(text)
        review = Review(
            id=run.new_id("rev"),
            session_id=run.session_id,
            path=plan.shown,
            text=text,
            hash=digest,
            previous=previous,
            warnings=warnings(text, run.resources.root.path),
            stale=stale,
        )
        plans.record(plan, request(plans.approval(plan), review.id, digest), session_id=run.session_id)
        run.emit(PlanEvent(path=plan.shown, status="awaiting", hash=digest, text=text, warnings=review.warnings))
        try:
            with run.asking():
                verdict = await run.frontend.review(review)
        except BaseException:
            _close(run, plan, "expire", review.id)
            raise
        run.reviewed = text
        if verdict.by == "nobody" and verdict.action == "reject":
            _close(run, plan, "expire", review.id)
            raise NobodyLeft(
                f"Not approved: nobody is there to approve it. The plan stays at {plan.shown}; "
                f"`nbagent approve {plan.shown}` approves it."
            )
        known = verdict.action in ("revise", "reject", "build", "later")  # whatever else it says, it approves nothing
        if verdict.id != review.id or verdict.by == "nobody" or not known:
            _close(run, plan, "expire", review.id)
            continue
        if verdict.action in ("revise", "reject"):
            _close(run, plan, verdict.action, review.id, verdict.comment)
            return Decided(verdict, text)
        final = verdict.text or text
        if _approved(run, plan, review, verdict, final):
            return Decided(verdict, final, final != text)
        previous, text, stale = text, plan.text() or "", True
        if not text.strip():
            raise ToolError(f"The plan file {plan.shown} was removed or emptied during the review. Write it again.")
    raise ToolError("The plan changed at every look, so it was not approved. Call plan_exit again when it is settled.")


def _approved(run: Run, plan: PlanFile, review: Review, verdict: Verdict, final: str) -> bool:
    """The one place where a plan becomes approved. False when the file is not what was shown (nothing changed then)."""
    plans = run.resources.plans
    on_disk = plan_hash(plan.text() or "")
    try:
        approval = approve(plans.approval(plan), review.id, verdict.hash, on_disk, plan_hash(final))
    except NotApproved:
        return False
    plan.save(final)
    plans.record(plan, approval, by=verdict.by, comment=verdict.comment, session_id=run.session_id)
    run.emit(
        PlanEvent(
            path=plan.shown,
            status="approved",
            hash=approval.hash,
            text=final,
            edited=final != review.text,
            feedback=verdict.comment,
            by=verdict.by,
        )
    )
    return True


def _close(run: Run, plan: PlanFile, outcome: str, review_id: str, comment: str = "") -> None:
    plans = run.resources.plans
    approval = close(plans.approval(plan), outcome, review_id)  # type: ignore[arg-type]
    plans.record(plan, approval, comment=comment)
    status = {"revise": "revised", "reject": "rejected", "expire": "expired"}[outcome]
    run.emit(PlanEvent(path=plan.shown, status=status, hash=approval.hash, feedback=comment))


def _after(run: Run, plan: PlanFile, decided: Decided) -> ToolResult:
    """What the model reads, and what the run does next."""
    verdict = decided.verdict
    if verdict.action == "revise":
        said = verdict.comment.strip() or "(no comment)"
        return ToolResult(
            "plan sent back",
            f"The plan is not approved yet. The person wants changes:\n\n{said}\n\n"
            f"Stay in plan mode, change {plan.shown} and call plan_exit again.",
            {"status": "revised"},
        )
    if verdict.action == "reject":
        comment = f" They said: {verdict.comment.strip()}" if verdict.comment.strip() else ""
        run.ending = Ending("rejected", f"The plan {plan.shown} was rejected.{comment}")
        raise Rejected(f"The person rejected the plan.{comment}", feedback="the run ends here")
    if verdict.action == "later":
        run.ending = Ending(
            "approved", f"The plan {plan.shown} is approved. A {run.agent.then} cell with no text carries it out."
        )
        return ToolResult(
            "plan approved", "The plan is approved. It will be built later; this run ends here.", {"status": "approved"}
        )
    return _go_on(run, plan, decided)


def _go_on(run: Run, plan: PlanFile, decided: Decided) -> ToolResult:
    agent = next_agent(run)
    digest = plan_hash(decided.text)
    if not run.resources.store.use_plan(str(plan.path), digest):
        raise PlanError(f"The plan {plan.shown} changed at the moment it was approved. Run the cell again.")
    run.emit(PlanEvent(path=plan.shown, status="built", hash=digest))
    run.next_agent = agent
    run.carry_out = plan
    text = approved_text(plan, decided.verdict.comment, decided.text, decided.edited)
    return ToolResult("plan approved", text, {"status": "approved"})


def approved_text(plan: PlanFile, comment: str, text: str, edited: bool) -> str:
    """What the model that builds is told of an approved plan."""
    how = (
        "The person edited it before approving; what follows is their text."
        if edited
        else "It was approved as written."
    )
    said = f"\nThe person's comment: {comment.strip()}" if comment.strip() else ""
    return f"The plan at {plan.shown} is approved. {how}{said}\n\n<plan>\n{text}\n</plan>\n\nCarry it out now."


def next_agent(run: Run) -> Agent:
    """Who carries an approved plan out: the agent that was left for planning, else the one that the planning agent names."""
    agents = run.resources.config.agents
    for name in (run.state.previous, run.agent.then):
        agent = agents.get(name)
        if agent is not None and agent.mode == "primary" and not agent.planning:
            return agent
    raise PlanError("The plan is approved, but there is no agent to carry it out: the settings have switched it off.")


async def enter_plan(run: Run, call_id: str) -> ToolResult:
    """``plan_enter``: the person is asked; yes → the rest of the cell plans."""
    agent = next(
        (each for each in run.resources.config.agents.values() if each.planning and each.mode == "primary"), None
    )
    if run.agent.planning or agent is None:
        raise ToolError("Planning is already the mode, or there is no planning agent. Go on.")
    if not run.frontend.attended:
        raise Denied("plan_enter needs a person's answer, and nobody is there to give it. Go on in this mode.")
    await run.gate.confirm(
        Call(
            call_id,
            "plan_enter",
            "go over to planning for the rest of this cell",
            "asks",
            (Need("plan_enter", ("*",)),),
        )
    )
    plans = run.resources.plans
    plans.prepare()
    prompt = run.history.last_user()
    run.plan = plans.fresh(prompt.text() if prompt is not None else "plan", run.resources.clock.now())
    run.state.plan = str(run.plan.path)
    run.state.plan_named = False
    run.next_agent = agent
    return ToolResult("planning", f"The person agreed: the rest of this run plans. The plan file is {run.plan.shown}.")
