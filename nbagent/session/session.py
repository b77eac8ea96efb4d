"""One conversation: accept a prompt, run it, resume it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from nbagent.agent import Agent, prompt_text
from nbagent.clock import Clock
from nbagent.errors import PersonError, PlanError, ProviderError, SessionError, Stopped, StoreError
from nbagent.event import ErrorEvent, FinishEvent, PlanEvent
from nbagent.frontend import Frontend
from nbagent.message import CompactionPart, FileChange, FilePart, Message, Part, TextPart, Tokens
from nbagent.session import ledger, recovery, title
from nbagent.session.approval import plan_hash
from nbagent.session.calls import CHANGING
from nbagent.session.child import run_task
from nbagent.session.history import History
from nbagent.session.loop import loop
from nbagent.session.plan import PlanFile, Plans
from nbagent.session.resources import Resources
from nbagent.session.review import approved_text, decide, tell_draft
from nbagent.session.run import Ending, Options, Run
from nbagent.session.state import State, state_data, state_from
from nbagent.session.summarise import Summariser
from nbagent.store.rows import SessionRow
from nbagent.whole import whole_text


@dataclass(frozen=True)
class Prompt:
    """What a cell asks. ``files``: attachments as ``FilePart``s without ids. ``cell``: notebook and cell, "" when unknown.

    ``plan``: what ``--plan`` named. ``id``: of the input; the same id again never runs twice. ``carry_out``: run the approved plan
    (a build cell with no text).
    """

    text: str
    agent: str
    files: tuple[FilePart, ...] = ()
    cell: str = ""
    plan: str = ""
    id: str = ""
    options: Options = field(default_factory=Options)
    carry_out: bool = False

    def __post_init__(self) -> None:
        # A terminal's bytes that are no UTF-8 come as halves of surrogate pairs, which can be neither stored nor sent.
        object.__setattr__(self, "text", whole_text(self.text))


@dataclass(frozen=True)
class Result:
    """How a run ended. ``reason`` as in ``FinishEvent``; ``text``: the last answer; ``files``: the receipt; ``unanswered``: calls
    that were refused only because nobody was there to be asked."""

    session_id: str
    reason: str
    text: str
    plan: str = ""
    files: tuple[FileChange, ...] = ()
    tokens: Tokens = Tokens()
    cost: float | None = None
    steps: int = 0
    seconds: float = 0.0
    message: str = ""
    unanswered: int = 0


class Session:
    """One conversation of a project."""

    def __init__(self, resources: Resources, row: SessionRow) -> None:
        self.resources = resources
        self.id = row.id
        self._run: Run | None = None

    @classmethod
    def create(cls, resources: Resources, agent: str, *, notebook: str = "", title: str = "") -> Session:
        """A new conversation. Its system prompt is made now and stays."""
        row = resources.store.create_session(
            directory=str(resources.root.path),
            agent=agent,
            notebook=notebook,
            title=title,
            state={"system": system_prompt(resources)},
            session_id=resources.clock.new_id("ses"),
        )
        return cls(resources, row)

    @property
    def row(self) -> SessionRow:
        return self.resources.store.session(self.id)

    async def prompt(self, prompt: Prompt, frontend: Frontend, *, resume: bool = True) -> Result | None:
        """Accept ``prompt`` durably, then run it. With ``resume`` False it is only accepted.

        Raises ``PersonError`` and ``ProviderError`` for what ended the run; ``asyncio.CancelledError`` when it was stopped. In every
        case the history is valid and the events are shown.
        """
        agent = self.resources.config.agent(prompt.agent)
        if not prompt.text.strip() and not prompt.carry_out:
            raise PersonError(
                'The prompt is empty. Say what to do: below the first line of the cell, or in a terminal `nbagent run "…"`.'
            )
        content = {
            "text": prompt.text,
            "agent": agent.name,
            "cell": prompt.cell,
            "plan": prompt.plan,
            "carry_out": prompt.carry_out,
            "model": prompt.options.model,
            "quick": prompt.options.quick,
            "files": [msgspec.to_builtins(part) for part in prompt.files],
        }
        content = self.resources.masker.mask_json(content)
        if not resume:
            self._name(prompt)
            self.resources.store.accept(self.id, "prompt", content, prompt.id)
            return None
        left = self.resources.store.mark(self.id)
        row = self.resources.store.begin(self.id, "prompt", content, prompt.id)
        if row.time_delivered is not None:
            raise SessionError(
                "This prompt was accepted and run before. Change the cell or begin a new session to run it again."
            )
        if row.content != content:  # what was accepted first under this id is what runs
            prompt = _prompt_from(row.content, prompt.options)
        return await self._start(prompt, row.id, frontend, crashed=left is not None)

    async def resume(self, frontend: Frontend, options: Options | None = None) -> Result | None:
        """Go on with what a crash interrupted: settled first, then run. None when there is nothing to go on with."""
        store = self.resources.store
        mark = store.mark(self.id)
        waiting = store.undelivered(self.id)
        if mark is None and not waiting:
            return None
        recovery.take_over(store, self.id)
        options = options or Options(limits=self.resources.config.limits)
        try:
            if not waiting:
                return await self._take_up(frontend, options)
            result = await self._start(
                _prompt_from(waiting[0].content, options), waiting[0].id, frontend, crashed=mark is not None
            )
        finally:
            store.release(self.id)
        for each in waiting[1:]:
            store.start(self.id)
            result = await self._start(_prompt_from(each.content, options), each.id, frontend)
        return result

    async def _take_up(self, frontend: Frontend, options: Options) -> Result:
        history = History(self.resources.store, self.id)
        notes = recovery.settle(history, self.resources.clock.now())
        recovery.settle_children(self.resources.store, self.id, self.resources.clock.now())
        row = self.row
        state = state_from(row.state)
        agent = self.resources.config.agent(row.agent)
        options = replace(options, model=options.model or state.model, quick=state.quick)
        run = self._make_run(row, history, state, agent, frontend, options)
        run.plan = self._bound_plan(state) if agent.planning else None
        run.carry_out = self.resources.plans.known(state.building) if state.building and not agent.planning else None
        run.gate = run.make_gate()
        run.announce(resumed=True)
        for note in [*notes, *self._untold(run)]:
            run.notice(note, "warning")
        if recovery.is_answered(history):
            run.notice("The answer had been complete before the crash; there was nothing left to do.")
            return await self._closed(run, None, Ending("stop"), "idle")
        return await self._guarded(run)

    async def compact(self, frontend: Frontend) -> Result | None:
        """Summarise what is old now, because a person asked. None when there is nothing to summarise."""
        store = self.resources.store
        if store.mark(self.id) is not None:
            raise SessionError(f"Session {self.id} was interrupted, or runs. Go on with `%agent resume` first.")
        await ledger.settled(self.resources, self.id)
        store.start(self.id)
        try:
            row = self.row
            history = History(store, self.id)
            recovery.settle(history, self.resources.clock.now())
            options = Options(limits=self.resources.config.limits)
            run = self._make_run(
                row, history, state_from(row.state), self.resources.config.agent(row.agent), frontend, options
            )
            run.announce()
            if not await Summariser(run).compact(auto=False):
                return None
            return self._finish(run, Ending("stop"), ())
        finally:
            store.finish(self.id)

    def fork(self, at: str = "") -> SessionRow:
        """A new session with the messages of this one, up to and with the message ``at``; rules and agent come along."""
        store, row = self.resources.store, self.row
        messages = store.messages(self.id)
        ids = [message.id for message in messages]
        if at and at not in ids:
            raise SessionError(f"There is no message {at!r} in session {self.id}. `%agent export` shows the messages.")
        kept = messages[: ids.index(at) + 1] if at else messages
        fork = store.create_session(
            directory=row.directory,
            agent=row.agent,
            notebook=row.notebook,
            title=f"{row.title} (fork)",
            state={**row.state, "undo": [], "redo": []},
            session_id=self.resources.clock.new_id("ses"),
        )
        copies, renamed = _copied(kept, fork.id, self.resources.clock)
        store.add_messages(copies)
        for path, (digest, whole) in store.seen(self.id).items():
            store.put_seen(fork.id, path, digest, whole)
        state = state_from(fork.state)
        state.notices = [
            msgspec.structs.replace(notice, message_id=renamed[notice.message_id])
            for notice in state.notices
            if notice.message_id in renamed
        ]
        store.update_session(fork.id, state=state_data(state))
        for approval in store.approvals(self.id):
            store.add_approval(fork.id, approval.permission, approval.pattern, approval.agent)
        return store.session(fork.id)

    # -- starting ----------------------------------------------------------------------------------------------------

    async def _start(self, prompt: Prompt, input_id: str, frontend: Frontend, *, crashed: bool = False) -> Result:
        """Run an accepted input; the session is marked as ours already. ``crashed``: an earlier run left its mark."""
        try:
            self._name(prompt)
            await ledger.settled(self.resources, self.id)
            run = self._prepared(prompt, frontend, crashed)
            text = await self._plan_for(run, prompt)
            if text is None:
                self._withdraw(input_id)
                ending = Ending("rejected", "The plan was not approved, so nothing was run.")
                return await self._closed(run, None, ending, "idle")
            self._deliver(run, prompt, text, input_id)
        except StoreError:  # what was accepted stays in the inbox
            self.resources.store.release(self.id)
            raise
        except BaseException:
            self._withdraw(input_id)
            self.resources.store.finish(self.id)
            raise
        return await self._guarded(run)

    def _name(self, prompt: Prompt) -> None:
        """A session has a name as soon as it has a prompt, so that one that waits or was interrupted can be told from others."""
        if not self.row.title:
            text = self.resources.masker.mask(prompt.text)
            name = title.from_prompt(text) if text.strip() else f"Carry out {prompt.plan or 'the plan'}"
            self.resources.store.update_session(self.id, title=name)

    def _withdraw(self, input_id: str) -> None:
        """The prompt was not run, and that was said. One that was to be the first names nothing."""
        self.resources.store.withdraw(input_id)
        if not self.resources.store.holds_any(self.id):
            self.resources.store.update_session(self.id, title="")

    def _prepared(self, prompt: Prompt, frontend: Frontend, crashed: bool) -> Run:
        """The run of a prompt, on a history in which nothing is open any more."""
        agent = self.resources.config.agent(prompt.agent)
        row, now = self.row, self.resources.clock.now()
        history = History(self.resources.store, self.id)
        settled = recovery.settle(history, now) if crashed or recovery.is_open(history) else []
        if crashed:
            recovery.settle_children(self.resources.store, self.id, now)
        run = self._make_run(row, history, state_from(row.state), agent, frontend, prompt.options)
        for note in [*settled, *(self._untold(run) if crashed else [])]:
            run.notice(note, "warning")
        return run

    def _untold(self, run: Run) -> list[str]:
        """What a crash kept out of every receipt. A confined run writes its plan alone, which has a history of its own."""
        changing = [name for name, tool in self.resources.tools.items() if tool.effect in CHANGING]
        return [] if run.confined else recovery.without_receipt(run.history, changing)

    def _make_run(
        self, row: SessionRow, history: History, state: State, agent: Agent, frontend: Frontend, options: Options
    ) -> Run:
        if not state.system:
            state.system = system_prompt(self.resources)
        self._run = Run(self.resources, row, history, state, agent, frontend, options, start_child=run_task)
        return self._run

    async def _plan_for(self, run: Run, prompt: Prompt) -> str | None:
        """Bind the run's plan file and return the text to send; None when a plan that had to be approved was not."""
        plans = self.resources.plans
        if run.agent.planning:
            run.plan = self._plan_file(prompt)
            run.state.plan_named = bool(prompt.plan)
            run.reviewed = run.plan.text() or ""
            if plans.foreign(run.plan):
                plans.prepare()
                run.notice(
                    f"{run.plan.shown} exists and was not made as a plan here: this cell may change it. What it says now "
                    f"is kept in {run.plan.keep(run.reviewed)}.",
                    "warning",
                )
            plans.record(run.plan, plans.approval(run.plan), session_id=self.id, cell=prompt.cell)
            run.gate = run.make_gate()
            return prompt.text
        if not prompt.carry_out and not prompt.plan:
            return prompt.text
        return await self._carry_out(run, prompt)

    def _plan_file(self, prompt: Prompt) -> PlanFile:
        plans = self.resources.plans
        if prompt.plan:
            return plans.named(prompt.plan)
        plans.prepare()
        return plans.of_cell(prompt.cell) or plans.fresh(prompt.text, self.resources.clock.now())

    async def _carry_out(self, run: Run, prompt: Prompt) -> str | None:
        """A build cell for a plan: it must be approved as it is now; a person who is there is asked again if it is not."""
        plans = self.resources.plans
        plan = plans.named(prompt.plan) if prompt.plan else approved_plan(plans, self.id)
        text = plan.text()
        if text is None or not text.strip():
            raise PlanError(f"The plan {plan.shown} does not exist or is empty. Make it with a plan cell first.")
        approval = plans.approval(plan)
        comment = ""
        edited = False
        if approval.status != "approved" or approval.hash != plan_hash(text):
            why = self._why_not(plan, approval.status, approval.hash, text)
            if not run.frontend.attended:
                raise PlanError(f"{why} Read it, approve it with `nbagent approve {plan.shown}`, and run this again.")
            run.notice(why, "warning")
            run.plan = plan
            decided = await decide(run, plan, text)
            run.plan = None
            if decided.verdict.action in ("revise", "reject"):
                return None
            text, edited, comment = decided.text, decided.edited, decided.verdict.comment
        else:
            row = self.resources.store.plan(str(plan.path))
            comment = row.comment if row is not None else ""
        run.carry_out, run.spends = plan, plan_hash(text)
        told = approved_text(plan, comment, text, edited)
        return f"{prompt.text.strip()}\n\n{told}" if prompt.text.strip() else told

    def _why_not(self, plan: PlanFile, status: str, approved: str, text: str) -> str:
        if status == "approved" and approved != plan_hash(text):
            return f"The plan {plan.shown} was changed after it was approved."
        if status == "built":
            return f"The plan {plan.shown} was carried out before; its approval is used up."
        return f"The plan {plan.shown} was not approved (it is {status})."

    def _bound_plan(self, state: State) -> PlanFile | None:
        return self.resources.plans.known(state.plan) if state.plan else None

    def _deliver(self, run: Run, prompt: Prompt, text: str, input_id: str) -> None:
        """The accepted input becomes the newest message of the history; its mode goes with it, and an approval is spent on it."""
        previous = run.history.messages[-1].agent if run.history.messages else ""
        came_from = self._left_agent(run, previous)
        message_id = run.new_id("msg")
        parts: list[Any] = [TextPart(id=run.new_id("prt"), text=run.resources.masker.mask(text))]
        parts += [msgspec.structs.replace(part, id=run.new_id("prt")) for part in prompt.files]
        run.note_mode(message_id, came_from)
        run.state.model, run.state.quick = prompt.options.model, prompt.options.quick
        message = Message(
            id=message_id,
            session_id=self.id,
            role="user",
            agent=run.agent.name,
            time_created=self.resources.clock.now(),
            parts=tuple(parts),
        )
        spends = (str(run.carry_out.path), run.spends) if run.carry_out is not None else None
        run.history.deliver(input_id, message, agent=run.agent.name, state=state_data(run.state), spends=spends)
        if run.carry_out is not None and len(run.history.messages) == 1 and not prompt.text.strip():
            self.resources.store.update_session(self.id, title=f"Carry out {run.carry_out.shown}")
        run.row = self.row
        run.announce()
        if run.carry_out is not None:
            done = self.resources.plans.approval(run.carry_out)
            run.emit(PlanEvent(path=run.carry_out.shown, status="built", hash=done.hash))

    def _left_agent(self, run: Run, previous: str) -> Agent | None:
        """The agent of the session before this prompt; None at its beginning."""
        if not run.history.messages:
            return None
        return self.resources.config.agents.get(self.row.agent) or self.resources.config.agents.get(previous)

    # -- running -----------------------------------------------------------------------------------------------------

    async def _guarded(self, run: Run) -> Result:
        """Run to the end; whatever the end is, the mark is taken away, what is open is closed and the receipt is shown."""
        plan_before: str | None = None
        try:
            title.begin(run)
            run.note_breaker_off()
            plan_before = run.plan.text() if run.plan is not None else None
            ledger.begin(run)
            ending = await loop(run)
        except asyncio.CancelledError:
            await self._closed(run, plan_before, Ending("stopped", "Stopped."), "idle")
            raise
        except Stopped:
            return await self._closed(run, plan_before, Ending("stopped", "Stopped."), "idle")
        except (PersonError, ProviderError) as error:
            message = run.resources.masker.mask(str(error))
            run.emit(ErrorEvent(message=message, kind=type(error).__name__))
            await self._closed(run, plan_before, Ending("error", message), "failed")
            raise
        except BaseException as error:
            told = run.resources.masker.mask(
                f"nbagent failed in a way that was not foreseen ({type(error).__name__}: {error})."
            )
            run.emit(ErrorEvent(message=told, kind="bug"))
            self.resources.store.finish(self.id, "failed")
            raise
        return await self._closed(run, plan_before, ending, "idle")

    async def _closed(self, run: Run, plan_before: str | None, ending: Ending, status: Any) -> Result:
        run.gate.stop()
        try:
            files = await ledger.close(run, plan_before, hurry=ending.reason == "stopped")
            if ending.reason == "stop":
                tell_draft(run)
            return self._finish(run, ending, files)
        finally:  # whatever goes wrong now, the session does not run any more
            self.resources.store.finish(self.id, status)

    def _finish(self, run: Run, ending: Ending, files: tuple[FileChange, ...]) -> Result:
        text = next((m.text() for m in reversed(run.history.messages) if m.role == "assistant" and m.text()), "")
        plan = run.plan.shown if run.plan is not None else (run.carry_out.shown if run.carry_out is not None else "")
        if ending.text and ending.reason not in ("stop", "error"):
            run.notice(ending.text)
        run.over = True
        run.emit(
            FinishEvent(
                reason=ending.reason,
                tokens=run.tokens,
                steps=run.steps,
                seconds=run.seconds(),
                cost=run.cost,
                text=text,
                plan=plan,
                unanswered=run.unanswered,
            )
        )
        return Result(
            session_id=self.id,
            reason=ending.reason,
            text=text,
            plan=plan,
            files=files,
            tokens=run.tokens,
            cost=run.cost,
            steps=run.steps,
            seconds=run.seconds(),
            message=ending.text,
            unanswered=run.unanswered,
        )


def approved_plan(plans: Plans, session_id: str) -> PlanFile:
    """The plan that a build cell with no text carries out: the newest approved one, of this session first; else the newest
    that waits. Raises ``PlanError`` when there is none."""
    rows = [row for row in plans.rows() if row.status == "approved"]
    mine = [row for row in rows if row.session_id == session_id]
    if mine or rows:
        return plans.known((mine or rows)[0].path)
    waiting = [row for row in plans.rows() if row.status in ("awaiting", "draft")]
    if waiting:
        return plans.known(waiting[0].path)
    elsewhere = next((row for row in plans.listed() if row.status == "approved"), None)
    if elsewhere is not None:
        raise PlanError(
            f"There is no approved plan of this folder to carry out. {elsewhere.path} was made in {elsewhere.directory}: "
            "carry it out there, or name it with --plan."
        )
    raise PlanError("There is no approved plan to carry out. Say what to do, or make a plan first.")


def _copied(messages: Sequence[Message], session_id: str, clock: Clock) -> tuple[list[Message], dict[str, str]]:
    """Messages under new ids, and old id → new id of messages and parts. What points at an id points at the new one."""
    renamed: dict[str, str] = {}
    copies: list[Message] = []
    for message in messages:
        renamed[message.id] = clock.new_id("msg")
        for part in message.parts:
            renamed[part.id] = clock.new_id("prt")
        parts = tuple(_renamed(part, renamed) for part in message.parts)
        copies.append(msgspec.structs.replace(message, id=renamed[message.id], session_id=session_id, parts=parts))
    return copies, renamed


def _renamed(part: Part, renamed: Mapping[str, str]) -> Part:
    if isinstance(part, CompactionPart):
        return msgspec.structs.replace(part, id=renamed[part.id], tail_from=renamed.get(part.tail_from, ""))
    return msgspec.structs.replace(part, id=renamed[part.id])


def _prompt_from(content: dict[str, Any], options: Options) -> Prompt:
    """The prompt that was accepted into the inbox."""
    return Prompt(
        text=content["text"],
        agent=content["agent"],
        cell=content.get("cell", ""),
        plan=content.get("plan", ""),
        carry_out=content.get("carry_out", False),
        files=tuple(msgspec.convert(part, FilePart) for part in content.get("files", ())),
        options=replace(
            options, model=options.model or content.get("model", ""), quick=options.quick or content.get("quick", False)
        ),
    )


def system_prompt(resources: Resources) -> str:
    """The system prompt of a new session: manner, facts, instructions. It never changes afterwards."""
    facts = prompt_text("facts")
    for name, value in resources.facts.items():
        facts = facts.replace("{" + name + "}", value)
    pieces = [prompt_text("system"), facts]
    if resources.skills:
        lines = "\n".join(f"- {name}: {text}" for name, (text, _) in sorted(resources.skills.items()))
        pieces.append(f"# Skills\nRead one with `skill` when it fits the work.\n{lines}")
    if resources.instructions:
        pieces.append(f"# Instructions of the project and the person\n{resources.instructions}")
    return "\n\n".join(pieces)
