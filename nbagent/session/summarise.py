"""Making room: prune, summarise, and what to do when the server says that the request is too large."""

from __future__ import annotations

import contextlib

import msgspec

from nbagent.agent import prompt_text
from nbagent.errors import ContextOverflow, ProviderError
from nbagent.event import CompactionEvent
from nbagent.message import CompactionPart, Message, ToolPart
from nbagent.provider.estimate import estimate
from nbagent.provider.overflow import window_said
from nbagent.provider.provider import Request, Say, Text, Used, UserTurn
from nbagent.session.compaction import (
    ceiling,
    compacted_view,
    keep_tokens,
    messages_size,
    prune,
    request_size,
    select_tail,
    should_compact,
    split,
    summary_request,
)
from nbagent.session.retry import Retries
from nbagent.session.run import Run

PLAN_CHARS = 20_000


class Summariser:
    """Keeps one step's request within the model's window."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._overflows = 0

    async def before_step(self) -> None:
        """Prune, then summarise, when the next request would pass the ceiling."""
        run = self._run
        settings = run.resources.config.compaction
        window = await self._window()
        if not should_compact(self._size(), window, auto=settings.auto):
            return
        if settings.prune and self._prune() and not should_compact(self._size(), window, auto=settings.auto):
            return
        await self.compact(auto=True)

    async def after_overflow(self, overflow: ContextOverflow) -> None:
        """The server refused the size: make room once; raises ``ContextOverflow`` when that was done before or is switched off."""
        self._overflows += 1
        auto = self._run.resources.config.compaction.auto
        if self._overflows > 1 or not auto or not await self.compact(auto=True, refused=True):
            raise self._too_large(overflow, await self._window()) from overflow

    def _too_large(self, overflow: ContextOverflow, window: int) -> ContextOverflow:
        """What the server said, and what a person can do about it."""
        fixed = self._fixed()
        advice = "Begin a new conversation, ask for less at once, or choose a model with a larger window."
        room = window_said(str(overflow)) or window
        short = messages_size(compacted_view(self._run.history.messages)[1], estimate) < fixed // 2
        if short and (not room or fixed > room // 2):
            advice = (
                f"nbagent's own instructions and tools take about {fixed:,} tokens, so a new conversation would hardly fit either: "
                "choose a model with a larger window, or raise the server's (num_ctx for Ollama, --ctx-size for llama.cpp)."
            )
        return ContextOverflow(f"{overflow} {advice}", status=overflow.status, code=overflow.code)

    async def compact(self, *, auto: bool, refused: bool = False) -> bool:
        """Replace what is old by a summary. False when there is nothing to summarise or it cannot be made small enough.

        ``refused``: a server found the request too large, so its window may be smaller than is known: less is kept.
        """
        run = self._run
        _, view = compacted_view(run.history.messages)
        window = await self._window()
        keep = keep_tokens(window, self._fixed())
        total = messages_size(view, estimate)
        if refused:
            keep = min(keep, max(total // 3, 1))
        if total <= keep:
            keep = max(total // 2, 1)
        tail_from = select_tail(view, estimate, keep)
        head, _ = split(view, tail_from)
        if not head:
            return False
        before = self._size()
        mark = self._begin(auto, tail_from, before)
        run.emit(CompactionEvent(status="running", auto=auto, before=before))
        try:
            summary = await self._summary(head, window)
        except BaseException as error:
            self._end(mark, msgspec.structs.replace(mark[1], status="failed", error=str(error)))
            run.emit(
                CompactionEvent(status="failed", auto=auto, error=run.resources.masker.mask(str(error)), before=before)
            )
            raise
        summary += self._plan_after()
        self._end(mark, msgspec.structs.replace(mark[1], status="completed", summary=summary))
        run.renew_notice(mark[0])
        run.emit(CompactionEvent(status="completed", auto=auto, summary=summary, before=before, after=self._size()))
        return True

    # -- parts -------------------------------------------------------------------------------------------------------

    def _begin(self, auto: bool, tail_from: str, before: int) -> tuple[str, CompactionPart]:
        run = self._run
        part = CompactionPart(
            id=run.new_id("prt"), auto=auto, tail_from=tail_from, status="running", tokens_before=before
        )
        now = run.resources.clock.now()
        message = Message(
            id=run.new_id("msg"),
            session_id=run.session_id,
            role="assistant",
            agent="compaction",
            time_created=now,
            parts=(part,),
        )
        run.resources.store.update_session(run.session_id, time_compacting=now)
        run.history.add(message)
        return message.id, part

    def _end(self, mark: tuple[str, CompactionPart], part: CompactionPart) -> None:
        run = self._run
        run.history.put(mark[0], part)
        run.resources.store.update_session(run.session_id, time_compacting=None)

    def _size(self) -> int:
        run = self._run
        return request_size(run.history.messages, estimate, self._fixed(), pruned=run.history.is_pruned)

    def _fixed(self) -> int:
        """Tokens of what is in every request: the system prompt and the tools."""
        run = self._run
        return estimate(run.state.system) + sum(
            estimate(tool.description) + len(msgspec.json.encode(tool.schema)) // 4
            for tool in run.offered(run.hidden())
        )

    async def _window(self) -> int:
        limits = await self._run.resources.limits(self._run.model)
        return limits.input or limits.window

    def _prune(self) -> bool:
        """Empty old tool outputs in requests; the stored parts keep their text and get a mark."""
        run = self._run
        found = prune(compacted_view(run.history.messages)[1], estimate)
        wanted = set(found.ids)
        now = run.resources.clock.now()
        for message in list(run.history.messages):
            for part in message.parts:
                if part.id in wanted and isinstance(part, ToolPart):
                    run.history.put(message.id, msgspec.structs.replace(part, compacted=now))
        return bool(wanted)

    # -- the summary -------------------------------------------------------------------------------------------------

    async def _summary(self, head: list[Message], window: int) -> str:
        run = self._run
        earlier, _ = compacted_view(run.history.messages)
        limit = ceiling(window)
        level, refused = 0, ""
        overflow: ContextOverflow | None = None
        while True:
            asked = summary_request(
                head,
                earlier,
                estimate,
                limit=limit * 3 // 4 if limit else None,
                level=level,
                plan=self._plan(),
                refused=refused,
            )
            if asked is None and overflow is not None:
                raise self._too_large(overflow, window) from overflow
            if asked is None:
                raise ProviderError(
                    "The conversation is too large for the model even in summary. Begin a new session with `%agent new`."
                )
            try:
                return await self._patiently(asked.text)
            except ContextOverflow as too_large:
                level, refused, overflow = asked.level + 1, asked.text, too_large

    async def _patiently(self, text: str) -> str:
        """A server that fails for a while is waited for here as in any other step."""
        retries = Retries(self._run)
        while True:
            try:
                return await self._ask(text)
            except ContextOverflow:
                raise
            except ProviderError as error:
                await retries.wait(error)

    async def _ask(self, text: str) -> str:
        run = self._run
        agent = run.resources.config.agent("compaction")
        request = Request(
            model=agent.model or run.resources.config.small_model or run.model,
            system=prompt_text(agent.prompt),
            turns=(UserTurn((Text(text),)),),
            agent=agent.name,
            session_id=run.session_id,
        )
        pieces: list[str] = []
        async with contextlib.aclosing(run.resources.provider.stream(request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                if isinstance(delta, Say):
                    pieces.append(delta.text)
                elif isinstance(delta, Used):
                    run.spend(delta.tokens, None)
        summary = run.resources.masker.mask("".join(pieces)).strip()
        if not summary:
            raise ProviderError(
                "The model gave an empty summary, so nothing was replaced. Run the cell again, or set small_model."
            )
        return summary

    def _plan_after(self) -> str:
        """The bound plan, word for word, behind the notes: what is decided is not left to a summary. A very long one is only named."""
        plan = self._plan()
        if not plan:
            return ""
        if len(plan) > PLAN_CHARS:
            plan = f"{plan.splitlines()[0]}\n\n(It is long: read the file.)"
        return f"\n\n## The plan of this work, as it is now\n{plan}"

    def _plan(self) -> str:
        plan = self._run.plan or self._run.carry_out
        if plan is None:
            return ""
        status = self._run.resources.plans.approval(plan).status
        return f"{plan.shown} ({status})\n\n{plan.text() or ''}"
