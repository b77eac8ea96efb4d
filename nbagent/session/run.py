"""One prompt being answered: everything that a step and its calls share."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nbagent.agent import Agent, bind_floor, layered
from nbagent.config import LimitSettings
from nbagent.errors import PlanError, ToolError
from nbagent.event import Event, NoticeEvent, SessionEvent
from nbagent.frontend import Frontend
from nbagent.message import AgentPart, Tokens
from nbagent.permission.ask import Ask, Reply
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Action, Rule, Ruleset, disabled, evaluate
from nbagent.permission.wildcard import exactly
from nbagent.provider.provider import ToolSpec
from nbagent.session.history import History
from nbagent.session.kept import KeptReplies
from nbagent.session.plan import PlanFile
from nbagent.session.policy import UNATTENDED, outside_floor
from nbagent.session.reads import SeenFiles
from nbagent.session.reminders import Notice, entering_text, mode_text, path_text
from nbagent.session.request import TurnMaker
from nbagent.session.resources import Resources
from nbagent.session.state import State, state_data
from nbagent.session.stopwatch import Stopwatch
from nbagent.store.rows import SessionRow
from nbagent.tools.tool import Tool, ToolResult


@dataclass(frozen=True)
class Options:
    """What a cell may choose for its run. ``auto``: automatic approval. ``limits``: caps of the cell."""

    model: str = ""
    quick: bool = False
    auto: bool = False
    limits: LimitSettings = field(default_factory=LimitSettings)


ChildStarter = Callable[["Run", dict[str, Any], str, str], Awaitable[ToolResult]]
"""Runs a ``task`` call: (parent, arguments, call id, message id) → its result."""


@dataclass
class Ending:
    """Why a run ends before the model is done: ``reason`` as in ``FinishEvent``, and a sentence for the person."""

    reason: str
    text: str = ""


class Run:
    """The state of one cell's run (or of a child's). Lives on one event loop; not kept afterwards."""

    def __init__(
        self,
        resources: Resources,
        row: SessionRow,
        history: History,
        state: State,
        agent: Agent,
        frontend: Frontend,
        options: Options,
        *,
        plan: PlanFile | None = None,
        parent: Run | None = None,
        call_id: str = "",
        start_child: ChildStarter,
    ) -> None:
        self.resources = resources
        self.session_id = row.id
        self.row = row
        self.history = history
        self.state = state
        self.agent = agent
        self.frontend = frontend
        self.options = options
        self.plan = plan
        self.parent = parent
        self.parent_call = call_id
        self.start_child = start_child
        self.turns = TurnMaker()
        self.reads = SeenFiles(resources.store, row.id)
        self.tokens = Tokens()
        self.cost: float | None = None
        self.context = 0
        self.steps = 0
        self.watch = Stopwatch(resources.clock, options.limits.seconds)
        self.ending: Ending | None = None
        self.next_agent: Agent | None = None
        self.carry_out: PlanFile | None = None
        self.spends = ""
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.denials: Counter[str] = Counter()
        self.unanswered = 0
        self.over = False
        self.before: asyncio.Task[str] | None = None
        self.reviewer: Callable[[PlanFile, str], Awaitable[ToolResult]] | None = None
        self.reviewed = ""
        self._ruled: tuple[object, Ruleset] | None = None
        self._hides: dict[str, Rule] | None = None
        self.child_places: asyncio.Semaphore | None = None
        self.gate = self.make_gate()

    # -- rules -------------------------------------------------------------------------------------------------------

    def floor(self) -> Ruleset:
        """What stands after everything else: the agent's own floor, then that of whoever started this run."""
        own: Ruleset = self.agent.floor
        if self.agent.planning:
            own = bind_floor(own, self._plan_patterns())
        if self.confined:
            own += outside_floor(self.resources)
        if not self.frontend.attended:
            own += UNATTENDED
        return own + (self._parent_floor() if self.parent is not None else ())

    def _plan_patterns(self) -> tuple[tuple[str, Action], ...]:
        """The floor's exceptions for this run's plan, as the plans folder is now."""
        if not self.agent.planning or self.plan is None:
            return ()
        return self.resources.plans.patterns(self.plan, self.state.plan_named)

    def _parent_floor(self) -> Ruleset:
        """A child can do no more than its parent, and the parent's plan is the parent's: a planning parent's exceptions
        for its plan files do not come along, those of the child's own plan do."""
        assert self.parent is not None
        floor = self.parent.floor()
        inherited = tuple(rule for rule in floor if rule.permission != "edit")
        if any(rule.permission == "edit" and rule.action == "deny" for rule in floor):
            inherited += (Rule("edit", "*", "deny", "floor"),)
        mine: Ruleset = ()
        if self.agent.planning and self.plan is not None:
            mine = (Rule("edit", exactly(self.plan.shown), "allow", "floor"),)
        if not self.agent.planning:
            inherited += (Rule("plan_exit", "*", "deny", "floor"),)
        return inherited + mine

    def rules(self) -> Ruleset:
        """The rules in force without this session's "always" replies: ``defaults < agent < user < project < floor``.

        Put together once for an agent, a set of tools and the plans that there are: a step asks for them many times. The plans are
        looked at every time, since another cell or another program may have made one a moment ago.
        """
        key = (self.agent, self.plan, len(self.resources.tools), self.resources.config.rules, self._plan_patterns())
        if self._ruled is None or self._ruled[0] != key:
            general = self.resources.config.rules
            shared = self.resources
            made = layered(self.agent, general, shared.always_allowed(), shared.keys()) + self.floor()
            self._ruled = (key, made)
            self._hides = None
        return self._ruled[1]

    @property
    def confined(self) -> bool:
        """Whether commands of this run must stay behind the wall: the agent's own doing, or any parent's."""
        return self.agent.confined or (self.parent is not None and self.parent.confined)

    @property
    def top(self) -> Run:
        """The run of the cell: this one, or the one that its parents were started by."""
        run = self
        while run.parent is not None:
            run = run.parent
        return run

    def make_gate(self) -> Gate:
        """Where this run's calls are decided. Automatic approval that was switched off stays off for the session."""
        self.kept = KeptReplies(
            self.resources.store,
            self.session_id,
            self.agent.name,
            self.resources.root,
            rules=self.rules,
            confined=self.confined,
            warn=lambda text: self.notice(text, "warning"),
        )
        return Gate(
            self.rules,
            self._ask,
            self.resources.clock,
            self.session_id,
            approvals=self.kept,
            emit=self.emit,
            attended=self.frontend.attended,
            auto=self.options.auto and not self.state.auto_off,
            advice=self._advice(),
        )

    def note_breaker(self) -> None:
        """Automatic approval whose breaker has tripped, here or in a child, is off for the whole session, and stays off."""
        if not self.options.auto or self.state.auto_off or self.gate.auto:
            return
        run: Run | None = self
        while run is not None:
            run.state.auto_off = "too many calls in a row were refused or failed, or the same calls were repeated"
            run.gate.switch_off()
            run.save()
            run = run.parent

    def note_breaker_off(self) -> None:
        """Say that automatic approval was asked for and is not given any more."""
        if self.options.auto and self.state.auto_off and not self.agent.planning:
            self.notice(
                f"Automatic approval stays off in this session: {self.state.auto_off}. You are asked instead; "
                "`%agent new` begins a session in which it is on again.",
                "warning",
            )

    async def _ask(self, ask: Ask) -> Reply:
        with self.asking():
            return await self.frontend.ask(ask)

    def _advice(self) -> str:
        if not self.agent.planning or self.plan is None:
            return ""
        then = f"; what should be changed goes into the plan, and a {self.agent.then} cell carries it out"
        return f"From here you may write the plan file {self.plan.shown} and nothing else{then}."

    # -- tools -------------------------------------------------------------------------------------------------------

    def hidden(self) -> dict[str, Rule]:
        """name → the rule that hides it, for every tool that is not offered."""
        rules = self.rules()
        if self._hides is None:
            names = disabled(list(self.resources.tools), rules)
            self._hides = {name: evaluate(self.resources.tools[name].permission, "*", rules) for name in names}
        return self._hides

    def offered(self, hidden: dict[str, Rule]) -> list[Tool[Any]]:
        """The tools whose schema is sent: not hidden, not deferred unless found. Those found come last, so that nothing moves.

        An agent that has nothing to find them with gets the deferred ones at once.
        """
        tools = self.resources.tools
        if "tool_search" in hidden:
            return [tool for name, tool in tools.items() if name not in hidden]
        found = [tools[name] for name in self.state.revealed if name in tools and name not in hidden]
        return [tool for name, tool in tools.items() if name not in hidden and not tool.deferred] + found

    def specs(self, tools: list[Tool[Any]]) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(
                tool.name, tool.description + (self._subagents() if tool.permission == "task" else ""), tool.schema
            )
            for tool in tools
        )

    def _subagents(self) -> str:
        """The agents that ``task`` may start here, for its description."""
        rules = self.rules()
        lines = [
            f"- {agent.name}: {agent.description}"
            for agent in self.resources.config.agents.values()
            if agent.mode == "subagent" and evaluate("task", agent.name, rules).action != "deny"
        ]
        return "\nSubagents:\n" + "\n".join(lines) if lines else ""

    # -- what happens ------------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Report, as coming from this session."""
        session = event.session or self.session_id
        parent = event.parent or (self.parent_call if session == self.session_id else "")
        if session != event.session or parent != event.parent:
            event = msgspec.structs.replace(event, session=session, parent=parent)
        self.frontend.show(event)

    def notice(self, text: str, level: str = "info") -> None:
        self.emit(NoticeEvent(text=self.resources.masker.mask(text), level=level))

    def save(self) -> None:
        """Write what lives outside the chat."""
        self.resources.store.update_session(self.session_id, agent=self.agent.name, state=state_data(self.state))

    def announce(self, resumed: bool = False) -> None:
        """Say who works where on what."""
        plan = self.plan.shown if self.plan is not None and self.agent.planning else ""
        self.emit(
            SessionEvent(
                agent=self.agent.name,
                model=self.model,
                root=str(self.resources.root.path),
                plan=plan,
                title=self.row.title,
                resumed=resumed,
                badge=self.agent.badge,
                writes=self.agent.writes.replace("{plan}", plan),
            )
        )

    @property
    def model(self) -> str:
        return self.options.model or self.resources.model_for(self.agent)

    def switch(self, agent: Agent, message_id: str, plan: PlanFile | None = None) -> None:
        """The rest of this run is another agent's: mode, tools, rules and notice change together, in one write."""
        left, self.agent = self.agent, agent
        self.next_agent = None
        self.state.segment += 1
        self.state.previous = left.name if agent.planning else ""
        self.state.building = str(plan.path) if plan is not None and not agent.planning else ""
        user = self.history.last_user()
        text = entering_text(agent, plan.shown if plan else "") if left.planning else ""
        text = text or self._mode_text()
        if text and user is not None:
            self.state.notices.append(Notice(user.id, agent.name, self.state.segment, text))
        self.save()
        self.history.put(message_id, AgentPart(id=self.new_id("prt"), agent=agent.name, previous=left.name))
        self.gate = self.make_gate()
        self.announce()
        self.note_breaker_off()

    def _mode_text(self) -> str:
        return mode_text(
            self.agent, self.plan, quick=self.options.quick, explore=self.may_explore(), ask=self.may_ask()
        )

    def note_mode(self, message_id: str, came_from: Agent | None) -> None:
        """Decide the mode text that a prompt carries; the state is then to be written with it."""
        self.state.phase = ""
        if came_from is None or came_from.name != self.agent.name:
            self.state.segment += 1
            text = ""
            if came_from is not None and came_from.planning:
                text = entering_text(self.agent, self.carry_out.shown if self.carry_out else "")
            text = text or self._mode_text()
        elif self.carry_out is not None:
            text = entering_text(self.agent, self.carry_out.shown)
        elif self.agent.planning and self.plan is not None:
            changed = self.state.plan != str(self.plan.path)
            text = path_text(self.plan) if changed else ""
        else:
            text = ""
        if text:
            self.state.notices.append(Notice(message_id, self.agent.name, self.state.segment, text))
        if self.plan is not None:
            self.state.plan = str(self.plan.path)
        self.state.building = str(self.carry_out.path) if self.carry_out is not None else ""

    def renew_notice(self, message_id: str) -> None:
        """After the compaction ``message_id``: what the mode needs to be told now goes with the summary, once; older notices are gone."""
        state = self.state
        told = [each for each in state.notices if each.agent == self.agent.name and each.segment == state.segment]
        earlier = told[-1].text if told else ""
        text = self._mode_text() if self.agent.planning else earlier
        state.segment += 1
        if text:
            state.notices.append(Notice(message_id, self.agent.name, state.segment, text))
        self.save()

    def will_write(self, effects: tuple[str, ...]) -> None:
        """A planning run is about to write: one file, and what the plan said when the cell began, or when it was last shown, is kept."""
        if not self.agent.planning or self.plan is None:
            return
        written = {effect.removeprefix("write:") for effect in effects if effect.startswith("write:")}
        if len(written) > 1:
            raise ToolError("A plan is one file: write one file in a call. Nothing was written.")
        for path in written - {self.plan.shown}:
            if why := self.resources.plans.unfit(path):
                raise ToolError(f"{path!r} {why}. Write the plan at {self.plan.shown}.")
        text = self.plan.text() if f"write:{self.plan.shown}" in effects else None
        if not text or text != self.reviewed:
            return
        try:
            self.plan.keep(text)
        except PlanError as error:
            self.notice(str(error), "warning")

    def wrote(self, effects: tuple[str, ...]) -> None:
        """A planning run wrote something: from now on its plan is that one file, under the name that the model gave it."""
        if not self.agent.planning or self.plan is None:
            return
        if self.plan.text() is not None:
            return
        plans = self.resources.plans
        for effect in effects:
            kind, _, path = effect.partition(":")
            found = plans.written(path) if kind == "write" else None
            if found is not None:
                self._adopt(found)
                return

    def _adopt(self, plan: PlanFile) -> None:
        assert self.plan is not None
        row = self.resources.store.plan(str(self.plan.path))
        cell = row.cell if row is not None else ""
        self.plan = plan
        self.state.plan = str(plan.path)
        self.resources.plans.record(plan, self.resources.plans.approval(plan), session_id=self.session_id, cell=cell)
        self.save()
        self.gate.advice = self._advice()
        self.announce()

    def may_explore(self) -> bool:
        """Whether ``task`` may start an ``explore`` child here."""
        return "task" in self.resources.tools and evaluate("task", "explore", self.rules()).action == "allow"

    def may_ask(self) -> bool:
        """Whether ``question`` is offered here: not where nobody is there to answer."""
        return evaluate("question", "*", self.rules()).action != "deny"

    def new_id(self, prefix: str) -> str:
        return self.resources.clock.new_id(prefix)

    def seconds(self) -> float:
        """Since the run began, by a person's clock."""
        return self.watch.seconds()

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A person is asked: the time that they take counts against no cap, here or above."""
        with contextlib.ExitStack() as stack:
            run: Run | None = self
            while run is not None:
                stack.enter_context(run.watch.stopped())
                run = run.parent
            yield

    def spend(self, tokens: Tokens, cost: float | None) -> None:
        """Add a step's usage here and to every run above."""
        run: Run | None = self
        while run is not None:
            run.tokens = run.tokens + tokens
            if cost is not None:
                run.cost = (run.cost or 0.0) + cost
            run = run.parent
