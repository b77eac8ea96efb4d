"""The tool calls of one step: declare, decide, act. What a call does is stored before it may happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from nbagent.errors import ArgumentError, Denied, ModelError, NbagentError, Rejected
from nbagent.event import PhaseEvent, ToolEvent
from nbagent.message import Attachment, ToolPart
from nbagent.permission.ask import Call, Need
from nbagent.permission.ruleset import Rule
from nbagent.provider.provider import Called
from nbagent.session import ledger
from nbagent.session.doom import doom_loop
from nbagent.session.host import SessionHost
from nbagent.session.phase import phase_after
from nbagent.session.request import INTERRUPTED
from nbagent.session.run import Ending, Run
from nbagent.tools.cut import cut
from nbagent.tools.registry import check_arguments, unknown_tool
from nbagent.tools.tool import Declaration, Tool, ToolContext, ToolResult
from nbagent.whole import clean, whole_text

NOT_RUN = "not run: an earlier call of the same step was refused by the person."
MODE_CHANGED = "not run: an earlier call of the same step changed the mode. Make the call again if it still fits."
CHANGING = ("writes", "command", "code", "outside")
SAME_DENIALS = 3


@dataclass
class Slot:
    """One call and where it is stored."""

    called: Called
    part: ToolPart
    message_id: str


class Calls:
    """The calls of one step, run in groups: neighbours that only read side by side, everything else in order."""

    def __init__(self, run: Run, message_id: str, hidden: dict[str, Rule]) -> None:
        self._run = run
        self._message_id = message_id
        self._hidden = hidden
        self._slots: list[Slot] = []

    def add(self, called: Called) -> None:
        """A call is complete: stored as pending."""
        part = ToolPart(
            id=self._run.new_id("prt"),
            call_id=called.id,
            tool=called.name,
            status="pending",
            input=self._run.resources.masker.mask_json(called.arguments),
            extra=called.extra,
        )
        self._slots.append(Slot(called, part, self._message_id))
        self._put(self._slots[-1], part)

    def __len__(self) -> int:
        return len(self._slots)

    async def run(self) -> None:
        """Run them all. Returns when each has its answer; stopping closes what is open."""
        try:
            for group in self._groups():
                if self._run.ending is not None or self._run.next_agent is not None:
                    break
                await self._together(group)
        except BaseException:
            self.close(INTERRUPTED)
            raise
        # What was asked for in one mode is not done in the other, nor in the one that the person has just ended.
        self.close(MODE_CHANGED if self._run.next_agent is not None else NOT_RUN)

    def close(self, why: str) -> None:
        """Give every call that has no answer one: ``error: why``."""
        for slot in self._slots:
            if slot.part.status in ("pending", "running"):
                self._finish(slot, error=why)

    def _groups(self) -> list[list[Slot]]:
        groups: list[list[Slot]] = []
        for slot in self._slots:
            tool = self._run.resources.tools.get(slot.called.name)
            parallel = tool is not None and tool.parallel
            if parallel and groups and self._is_parallel(groups[-1]):
                groups[-1].append(slot)
            else:
                groups.append([slot])
        return groups

    def _is_parallel(self, group: Sequence[Slot]) -> bool:
        tool = self._run.resources.tools.get(group[-1].called.name)
        return tool is not None and tool.parallel

    async def _together(self, group: list[Slot]) -> None:
        if len(group) == 1 or self._run.resources.in_order:
            for slot in group:
                await self._one(slot)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for slot in group:
                    tasks.create_task(self._one(slot))
        except* NbagentError as errors:
            raise errors.exceptions[0] from None

    async def _one(self, slot: Slot) -> None:
        """One call from its arguments to its answer; only stopping gets out of here."""
        run = self._run
        if run.ending is not None:
            return
        try:
            tool = self._find(slot.called)
            result = await self._decided(tool, slot)
        except Rejected as rejected:
            self._finish(slot, error=str(rejected), refused=True)
            if not rejected.feedback:
                run.ending = run.ending or Ending("rejected", "You rejected a call, so the run ended.")
        except Denied as denied:
            self._finish(slot, error=str(denied), rule=denied.rule, refused=True)
            self._forget_call(slot)
            self._count_denial(slot)
            if denied.rule is not None and denied.rule.action == "ask":
                run.unanswered += 1
        except ModelError as error:
            self._finish(slot, error=str(error))
        except NbagentError as error:
            self._finish(slot, error=str(error))
            raise
        else:
            self._complete(slot, tool, result)
        finally:
            run.note_breaker()

    def _find(self, called: Called) -> Tool[Any]:
        """The tool, if it exists, is not hidden, and its arguments are whole."""
        run = self._run
        tool = run.resources.tools.get(called.name)
        if tool is None:
            visible = [name for name in run.resources.tools if name not in self._hidden]
            raise unknown_tool(called.name, visible)
        rule = self._hidden.get(called.name)
        if rule is not None:
            raise Denied(self._hidden_text(called.name, rule), rule, tool.permission, "*")
        if called.problem:
            raise ArgumentError(f"{called.problem}\nWhat arrived: {called.raw}" if called.raw else called.problem)
        return tool

    def _hidden_text(self, name: str, rule: Rule) -> str:
        where = f"the {rule.layer} rule" if rule.layer else "the rule"
        then = (
            f" In this mode you may write the plan file {self._run.plan.shown} and look at things; a build cell carries it out."
            if self._run.agent.planning and self._run.plan is not None
            else ""
        )
        return (
            f"{name} is not available here: {where} `{rule.permission} {rule.pattern}: {rule.action}` hides it.{then}"
        )

    async def _decided(self, tool: Tool[Any], slot: Slot) -> ToolResult:
        run = self._run
        with _foreseen(tool):
            arguments = check_arguments(tool, slot.called.arguments)
        await self._loop_check(tool, slot)
        context = self._context(slot)
        with _foreseen(tool):
            declaration = await asyncio.to_thread(tool.declare, arguments, context)
        try:
            await run.gate.decide(self._call(tool, slot, declaration), self._message_id)
            if tool.effect in CHANGING:
                await ledger.note(run, declaration.effects)
            if tool.effect == "writes":
                run.will_write(declaration.effects)
            self._start(slot, declaration)
            self._note_phase(tool, declaration)
            with ledger.aside(run, tool.effect), _foreseen(tool):
                result = await tool.act(arguments, declaration, context)
            if tool.effect == "writes":
                run.wrote(declaration.effects)
            return result
        finally:
            declaration.close()

    def _call(self, tool: Tool[Any], slot: Slot, declaration: Declaration) -> Call:
        return Call(
            id=slot.called.id,
            tool=tool.name,
            title=declaration.title,
            effect=tool.effect,
            needs=declaration.needs,
            preview=declaration.preview,
            effects=declaration.effects,
            notes=declaration.notes,
        )

    async def _loop_check(self, tool: Tool[Any], slot: Slot) -> None:
        """The same call, or block of calls, over and over is a question of its own, before it runs."""
        run = self._run
        run.called.append((tool.name, dict(slot.called.arguments)))
        loop = doom_loop(run.called)
        if loop is None:
            return
        need = Need("doom_loop", (tool.name,), always=(tool.name,))
        await run.gate.decide(
            Call(slot.called.id, tool.name, f"go on although {loop}", "asks", (need,)), self._message_id
        )
        run.called.clear()

    def _forget_call(self, slot: Slot) -> None:
        """What was refused by a rule did not run, so it is no part of a loop; identical denials are counted by themselves."""
        entry = (slot.called.name, dict(slot.called.arguments))
        called = self._run.called
        for place in range(len(called) - 1, -1, -1):
            if called[place] == entry:
                del called[place]
                return

    def _context(self, slot: Slot) -> ToolContext:
        run = self._run
        shared = run.resources
        return ToolContext(
            session_id=run.session_id,
            call_id=slot.called.id,
            root=shared.root,
            rules=run.rules(),
            confined=run.confined,
            wall=shared.wall,
            environment=shared.environment,
            spill=shared.spill,
            temp=shared.temp,
            frontend=run.frontend,
            host=SessionHost(run, slot.called.id, slot.message_id),
            reads=run.reads,
            clock=shared.clock,
            emit=run.emit,
            plan_path=run.plan.shown if run.plan is not None else "",
            settings={"sandbox_read": list(shared.config.sandbox.read), "home": str(shared.config.home)},
            mask=shared.masker.mask,
        )

    # -- states ------------------------------------------------------------------------------------------------------

    def _note_phase(self, tool: Tool[Any], declaration: Declaration) -> None:
        run = self._run
        if not run.agent.planning:
            return
        on_plan = run.plan is not None and f"write:{run.plan.shown}" in declaration.effects
        paths = [path for need in declaration.needs if need.permission == "read" for path in need.patterns]
        again = bool(paths) and all(run.reads.seen(run.resources.root.path / path) is not None for path in paths)
        phase = phase_after(run.state.phase, tool.name, effect=tool.effect, on_plan=on_plan, seen_before=again)
        if phase != run.state.phase:
            run.state.phase = phase
            run.save()
            run.emit(PhaseEvent(phase=phase))

    def _start(self, slot: Slot, declaration: Declaration) -> None:
        now = self._run.resources.clock.now()
        title = whole_text(self._run.resources.masker.mask(declaration.title))
        self._put(slot, msgspec.structs.replace(slot.part, status="running", title=title, time_start=now))

    def _complete(self, slot: Slot, tool: Tool[Any], result: ToolResult) -> None:
        mask = self._run.resources.masker
        output, about = cut(mask.mask(result.output), self._run.resources.spill, slot.called.id, result.tail)
        metadata = mask.mask_json({**result.metadata, **about})
        self._close(
            slot,
            "completed",
            output=output,
            title=mask.mask(result.title),
            metadata=metadata,
            attachments=result.attachments,
        )
        if tool.effect in CHANGING:
            self._run.denials.clear()

    def _finish(self, slot: Slot, *, error: str, rule: Rule | None = None, refused: bool = False) -> None:
        told = (
            {"permission": rule.permission, "pattern": rule.pattern, "action": rule.action, "layer": rule.layer}
            if rule is not None
            else None
        )
        error, _ = cut(self._run.resources.masker.mask(error), self._run.resources.spill, f"{slot.called.id}-error")
        self._close(slot, "error", error=error, rule=told, metadata={"refused": True} if refused else {})

    def _close(
        self,
        slot: Slot,
        status: Any,
        *,
        output: str = "",
        error: str = "",
        title: str = "",
        rule: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        now = self._run.resources.clock.now()
        self._put(
            slot,
            msgspec.structs.replace(
                slot.part,
                status=status,
                output=whole_text(output),
                error=whole_text(error),
                title=whole_text(title) or slot.part.title,
                rule=clean(rule),
                metadata=clean(metadata or {}),
                attachments=attachments,
                time_start=slot.part.time_start or now,
                time_end=now,
            ),
        )

    def _put(self, slot: Slot, part: ToolPart) -> None:
        """Store first, then tell."""
        slot.part = part
        run = self._run
        run.history.put(slot.message_id, part)
        tool = run.resources.tools.get(part.tool)
        if part.status in ("completed", "error"):
            run.gate.note(part.status == "completed")
        seconds = part.time_end - part.time_start if part.time_end is not None and part.time_start is not None else None
        run.emit(
            ToolEvent(
                call_id=part.call_id,
                name=part.tool,
                state=part.status,
                input=part.input,
                title=part.title,
                output=part.output,
                error=part.error,
                rule=part.rule,
                metadata=part.metadata,
                seconds=seconds,
                effect=tool.effect if tool is not None else "",
                attachments=part.attachments,
            )
        )

    def _count_denial(self, slot: Slot) -> None:
        """Three identical denials: the model does not take no for an answer, so the person is told."""
        run = self._run
        key = json.dumps([slot.called.name, slot.called.arguments], sort_keys=True, default=str)
        run.denials[key] += 1
        if run.denials[key] >= SAME_DENIALS and run.ending is None:
            where = f"run it in a {run.agent.then} cell" if run.agent.then else "allow it in the settings"
            run.ending = Ending(
                "blocked", f"The same call was refused {SAME_DENIALS} times, so the run ended. If you want it, {where}."
            )


@contextmanager
def _foreseen(tool: Tool[Any]) -> Iterator[None]:
    """A fault in one tool is the model's to read, not the end of the run."""
    try:
        yield
    except NbagentError:
        raise
    except Exception as error:
        raise ModelError(
            f"{tool.name} failed in a way that was not foreseen ({type(error).__name__}: {error})."
        ) from error
