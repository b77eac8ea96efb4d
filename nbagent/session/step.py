"""One model call: stream → parts → tool calls → results."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import msgspec

from nbagent.errors import ProviderError, StoreError
from nbagent.event import (
    NoticeEvent,
    ReasoningDelta,
    ReasoningEvent,
    StepEvent,
    TextDelta,
    TextEvent,
    ToolInputDelta,
)
from nbagent.message import Message, ReasoningPart, StepFinishPart, StepStartPart, TextPart, Tokens
from nbagent.permission.ruleset import Rule
from nbagent.provider.provider import Called, Ended, Request, Said, Say, Think, Unsaid, Used, Writing
from nbagent.session.calls import Calls
from nbagent.session.run import Run

SAVED_EVERY = 2.0
"""Seconds after which the text of an answer that is still coming is stored as it is, in case the process dies."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model call gave. ``reason``: as in ``Ended``."""

    message_id: str
    reason: str
    text: str
    calls: int


class Step:
    """One model call of a run, written into one assistant message."""

    def __init__(self, run: Run, request: Request, hidden: dict[str, Rule]) -> None:
        self._run = run
        self._request = request
        self._text: TextPart | None = None
        self._pieces: list[str] = []
        self._shown: list[str] = []
        self._saved = run.resources.clock.ticks()
        self._is_stored = False
        self._thought: ReasoningPart | None = None
        self._thoughts: list[str] = []
        self._mask = run.resources.masker.stream()
        self._tokens = Tokens()
        self._said: list[str] = []
        now = run.resources.clock.now()
        self.message_id = run.new_id("msg")
        start = StepStartPart(
            id=run.new_id("prt"),
            tools=tuple(tool.name for tool in request.tools),
            hidden={
                name: f"{rule.permission} {rule.pattern}: {rule.action} ({rule.layer})" for name, rule in hidden.items()
            },
        )
        run.history.add(
            Message(
                id=self.message_id,
                session_id=run.session_id,
                role="assistant",
                agent=run.agent.name,
                model=request.model,
                time_created=now,
                parts=(start,),
            )
        )
        self._calls = Calls(run, self.message_id, hidden)

    async def answer(self) -> Answer:
        """Ask, take the answer in, run its calls. Raises ``ProviderError``; what had come by then is kept and marked."""
        reason = "error"
        try:
            reason = await self._stream()
            self._close_parts()
        except BaseException as error:
            self._broken(error)
            raise
        self._finish(reason)
        count = len(self._calls)
        if count:
            await self._calls.run()
        self._run.history.change(self.message_id, time_completed=self._run.resources.clock.now())
        return Answer(self.message_id, reason, "".join(self._said), count)

    async def _stream(self) -> str:
        run = self._run
        reason = "stop"
        stream = run.resources.provider.stream(self._request)
        async with contextlib.aclosing(stream) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                match delta:
                    case Say(text):
                        self._say(text)
                    case Unsaid():
                        self._unsay()
                    case Think():
                        self._think(delta)
                    case Called():
                        self._close_parts()
                        self._calls.add(delta)
                    case Writing(index, name, size):
                        run.emit(ToolInputDelta(call_id=f"{self.message_id}/{index}", name=name, size=size))
                    case Used(tokens):
                        self._tokens = tokens
                    case Said(text, level):
                        run.emit(NoticeEvent(text=text, level=level))
                    case Ended():
                        reason = delta.reason
        return reason

    # -- parts -------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        run = self._run
        self._close_thought()
        if self._text is None:
            self._text = TextPart(id=run.new_id("prt"), text="")
            self._pieces, self._shown, self._is_stored = [], [], False
            self._mask = run.resources.masker.stream()
        self._pieces.append(text)
        shown = self._mask.feed(text)
        if shown:
            self._shown.append(shown)
            run.emit(TextDelta(id=self._text.id, text=shown))
            self._save_text(self._text)

    def _save_text(self, part: TextPart) -> None:
        """Now and then the text so far is stored, so that a crash leaves it; where that fails, the whole is stored at its end."""
        now = self._run.resources.clock.ticks()
        if now - self._saved < SAVED_EVERY:
            return
        self._saved = now
        so_far = msgspec.structs.replace(part, text="".join(self._shown), partial=True)
        with contextlib.suppress(StoreError):
            self._run.history.put(self.message_id, so_far)
            self._is_stored = True

    def _unsay(self) -> None:
        """What was said so far turned out to be reasoning: the view takes it back."""
        if self._text is not None:
            self._run.emit(TextEvent(id=self._text.id, text=""))
            if self._is_stored:
                self._run.history.put(self.message_id, self._text)
            self._text = None

    def _think(self, delta: Think) -> None:
        run = self._run
        if self._thought is None:
            self._close_text()
            self._thought = ReasoningPart(id=run.new_id("prt"), text="", field=delta.field)
            self._thoughts = []
            self._mask = run.resources.masker.stream()
        self._thoughts.append(delta.text)
        shown = self._mask.feed(delta.text)
        if shown:
            run.emit(ReasoningDelta(id=self._thought.id, text=shown))
        if delta.opaque:
            self._thought = msgspec.structs.replace(self._thought, opaque=delta.opaque)
            self._close_thought()

    def _close_parts(self) -> None:
        self._close_thought()
        self._close_text()

    def _close_text(self, partial: bool = False) -> None:
        if self._text is None:
            return
        text = self._run.resources.masker.mask("".join(self._pieces))
        part = msgspec.structs.replace(self._text, text=text, partial=partial)
        if text or self._is_stored:
            self._run.history.put(self.message_id, part)
        self._text = None
        self._said.append(text)
        if text:
            self._run.emit(TextEvent(id=part.id, text=text, partial=partial))

    def _close_thought(self) -> None:
        if self._thought is None:
            return
        text = self._run.resources.masker.mask("".join(self._thoughts))
        part = msgspec.structs.replace(self._thought, text=text)
        if text or part.opaque:
            self._run.history.put(self.message_id, part)
        self._thought = None
        if text or part.opaque:
            self._run.emit(ReasoningEvent(id=part.id, text=text))

    # -- ends --------------------------------------------------------------------------------------------------------

    def _finish(self, reason: str) -> None:
        run = self._run
        cost = _cost(run, self._tokens)
        run.spend(self._tokens, cost)
        if self._tokens.total:
            run.context = self._tokens.total
        run.history.put(
            self.message_id, StepFinishPart(id=run.new_id("prt"), reason=reason, tokens=self._tokens, cost=cost)
        )

    def _broken(self, error: BaseException) -> None:
        """The answer did not end: keep its text, marked; its calls never run."""
        self._close_thought()
        self._close_text(partial=True)
        if isinstance(error, ProviderError):
            self._calls.close("not run: the answer broke off before it was complete.")
            word = "dropped" if error.retryable else "failed"
            reason = "error"
        else:
            self._calls.close("not run: the run was stopped.")
            word, reason = "stopped", "stopped"
        self._finish(reason)
        message = self._run.resources.masker.mask(f"{word}: {error}" if str(error) else word)
        self._run.history.change(self.message_id, error=message, time_completed=self._run.resources.clock.now())


def _cost(run: Run, tokens: Tokens) -> float | None:
    """What a step cost by the prices in the settings; None where they are not known."""
    prices = run.resources.config.models.get(run.model)
    if prices is None or prices.price_input is None or prices.price_output is None:
        return None
    cached = prices.price_cached if prices.price_cached is not None else prices.price_input
    fresh = tokens.input - tokens.cache_read
    return (fresh * prices.price_input + tokens.cache_read * cached + tokens.output * prices.price_output) / 1_000_000


def announce_step(run: Run, window: int) -> None:
    """A model call begins."""
    run.emit(
        StepEvent(
            step=run.steps,
            agent=run.agent.name,
            context=run.context,
            window=window,
            phase=run.state.phase,
            tokens=run.tokens.total,
        )
    )
