"""Stored history → what a provider is asked. The only place that builds model input.

The turns are valid for the strictest server, whatever happened before: no two user or assistant turns in a row, every call
answered exactly once and right after, no result without its call, and the last turn is a person's or a tool's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import is_

from nbagent.collector import paused
from nbagent.message import CompactionPart, FilePart, Message, ReasoningPart, TextPart, ToolPart
from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Image,
    ResultTurn,
    Text,
    Thought,
    Turn,
    UserTurn,
)
from nbagent.session.compaction import PRUNED, compacted_view, summary_turn

INTERRUPTED = "interrupted: it may or may not have happened. Check before you do it again."
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
LOST = ("dropped", "failed")
"""How the error of a message begins whose answer is not part of the history: the step was tried again or given up."""


class TurnMaker:
    """Turns of messages, each made once: a message that did not change gives the very same turns again, and so does everything
    before the first one that did. Most requests add to the end, so most of the work is done once."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Message, tuple[Turn, ...]]] = {}
        self._past = _Past()
        self._plain: list[Message] = []

    def view(self, messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
        """``compacted_view`` of the whole session, looking only at what is new while nothing was compacted."""
        known = self._plain if _begins(messages, self._plain) else []
        if any(CompactionPart in map(type, message.parts) for message in messages[len(known) :]):
            return compacted_view(messages)
        self._plain = list(messages[:-1])
        return None, list(messages)

    def turns(self, messages: Sequence[Message], notices: Mapping[str, Sequence[str]]) -> tuple[Turn, ...]:
        """``messages``: the whole session; ``notices``: message id → mode texts to show with it ("" : with the summary)."""
        return self.of_view(*self.view(messages), notices)

    def of_view(
        self, summary: str | None, view: Sequence[Message], notices: Mapping[str, Sequence[str]]
    ) -> tuple[Turn, ...]:
        """The same of what ``view`` gave."""
        with paused():
            return self._turns(summary, view, notices)

    def _turns(
        self, summary: str | None, view: Sequence[Message], notices: Mapping[str, Sequence[str]]
    ) -> tuple[Turn, ...]:
        lead: tuple[str, ...] = ()
        if summary is not None:
            lead = (summary_turn(summary), *notices.get("", ()))
        past = self._past
        if not past.fits(lead, view, notices):
            past = self._past = _Past(lead)
        for message in view[len(past.messages) : -1]:  # the newest may still change
            past.messages.append(message)
            if extra := self._extra(message, notices):
                past.told[message.id] = extra
            past.fold.add(self._of(message), extra)
        fold = past.fold.copy()
        for message in view[len(past.messages) :]:
            fold.add(self._of(message), self._extra(message, notices))
        return tuple(fold.end())

    def with_note(self, turns: tuple[Turn, ...], text: str) -> tuple[Turn, ...]:
        """``turns`` with one more thing said to the model, for this request only."""
        return tuple(valid([*turns, UserTurn((Text(text),))]))

    def _extra(self, message: Message, notices: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        return tuple(notices.get(message.id, ()))

    def _of(self, message: Message) -> tuple[Turn, ...]:
        known = self._made.get(message.id)
        if known is None or known[0] is not message:
            known = (message, tuple(message_turns(message)))
            self._made[message.id] = known
        return known[1]


class _Past:
    """What was put together of the messages before the newest one."""

    def __init__(self, lead: tuple[str, ...] = ()) -> None:
        self.lead = lead
        self.messages: list[Message] = []
        self.told: dict[str, tuple[str, ...]] = {}
        self.fold = Fold()
        if lead:
            self.fold.add((), lead)

    def fits(self, lead: tuple[str, ...], view: Sequence[Message], notices: Mapping[str, Sequence[str]]) -> bool:
        """Whether ``view`` begins with the same messages, told the same."""
        if lead != self.lead or not _begins(view, self.messages):
            return False
        later = {message.id for message in view[len(self.messages) :]}
        now = {key: tuple(texts) for key, texts in notices.items() if key and texts and key not in later}
        return now == self.told


def _begins(messages: Sequence[Message], start: Sequence[Message]) -> bool:
    """Whether ``messages`` begins with the very same objects."""
    return len(messages) >= len(start) and all(map(is_, messages, start))


def message_turns(message: Message) -> Iterable[Turn]:
    """The turns of one message by itself."""
    if message.role == "user":
        content = tuple(_user_content(message))
        return (UserTurn(content),) if content else ()
    if message.error.startswith(LOST):
        return ()
    return _assistant_turns(message)


def _user_content(message: Message) -> Iterable[Text | Image]:
    for part in message.parts:
        if isinstance(part, TextPart) and part.text:
            yield Text(part.text)
        elif isinstance(part, FilePart):
            yield _attached(part)


def _attached(part: FilePart) -> Text | Image:
    if part.data and part.mime.startswith("image/"):
        return Image(part.mime, part.data, part.filename)
    closing = f"</{part.source}>"
    body = part.text.replace(closing, f"<\\/{part.source}>")
    return Text(f'<{part.source} name="{part.filename}">\n{body}\n{closing}')


def _assistant_turns(message: Message) -> Iterable[Turn]:
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    thoughts = tuple(
        Thought(part.text, part.field, part.opaque) for part in message.parts if isinstance(part, ReasoningPart)
    )
    calls = [part for part in message.parts if isinstance(part, ToolPart)]
    if not text.strip() and not calls:
        return
    yield AssistantTurn(
        text, thoughts, tuple(CallTurn(call.call_id, sent_name(call.tool), call.input, call.extra) for call in calls)
    )
    for call in calls:
        yield ResultTurn(call.call_id, sent_name(call.tool), result_content(call), error=call.status != "completed")


def sent_name(name: str) -> str:
    """A tool's name as a server takes it back: what a model wrote instead of a name (``read</think>``) would be refused for ever."""
    return _NO_NAME.sub("_", name)[:64] or "unknown"


def result_content(call: ToolPart) -> tuple[Text | Image, ...]:
    """What the model reads as the answer to a call, in every state that a call can be found in."""
    if call.status != "completed":
        return (Text(call.error or INTERRUPTED),)
    if call.compacted is not None:
        return (Text(PRUNED),)
    images = tuple(
        Image(each.mime, each.data, each.filename) for each in call.attachments if each.mime.startswith("image/")
    )
    return (Text(call.output or "(no output)"), *images)


def valid(turns: Iterable[Turn]) -> list[Turn]:
    """``turns`` repaired: neighbours of one role merged, calls and results paired, the end a person's or a tool's."""
    fold = Fold()
    fold.add(turns)
    return fold.end()


class Fold:
    """Turns as they come, repaired as far as can be known before the next one comes."""

    def __init__(self) -> None:
        self._kept: list[Turn] = []
        self._waiting: dict[str, str] = {}

    def copy(self) -> Fold:
        """The same so far, to go on with apart."""
        other = Fold()
        other._kept, other._waiting = self._kept.copy(), self._waiting.copy()
        return other

    def add(self, turns: Iterable[Turn], told: Sequence[str] = ()) -> None:
        """``turns``, and after them what the person's side is ``told``."""
        for turn in turns:
            self._add(turn)
        if told:
            self._add(UserTurn(tuple(Text(text) for text in told)))

    def end(self) -> list[Turn]:
        """All of it, with an end that every server takes."""
        kept = self._kept
        self._answer()
        if kept and isinstance(kept[0], AssistantTurn):
            kept.insert(0, UserTurn((Text("(The conversation before this is not shown.)"),)))
        if kept and isinstance(kept[-1], AssistantTurn):
            kept.append(UserTurn((Text("Go on."),)))
        return kept

    def _add(self, turn: Turn) -> None:
        if isinstance(turn, ResultTurn):
            if self._waiting.pop(turn.call_id, None) is not None:
                self._kept.append(turn)
            return
        self._answer()
        if isinstance(turn, AssistantTurn):
            turn = _unique(turn)
            self._waiting = {call.id: call.name for call in turn.calls}
        _append(self._kept, turn)

    def _answer(self) -> None:
        """Calls that nothing answered are answered here."""
        for call_id, name in self._waiting.items():
            self._kept.append(ResultTurn(call_id, name, (Text(INTERRUPTED),), error=True))
        self._waiting.clear()


def _unique(turn: AssistantTurn) -> AssistantTurn:
    """A server that repeated an id within one answer gets each call once."""
    calls = {call.id: call for call in turn.calls}
    return turn if len(calls) == len(turn.calls) else AssistantTurn(turn.text, turn.thoughts, tuple(calls.values()))


def _append(kept: list[Turn], turn: Turn) -> None:
    last = kept[-1] if kept else None
    if isinstance(turn, UserTurn) and isinstance(last, UserTurn):
        kept[-1] = UserTurn(last.content + turn.content)
    elif isinstance(turn, AssistantTurn) and isinstance(last, AssistantTurn):
        text = f"{last.text}\n\n{turn.text}" if last.text and turn.text else last.text + turn.text
        kept[-1] = AssistantTurn(text, last.thoughts + turn.thoughts, last.calls + turn.calls)
    else:
        kept.append(turn)
