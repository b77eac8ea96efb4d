"""A conversation that only grows is written once: what was sent before is kept as it went out, and only what came since is encoded.

Turns are values that never change, so the same object is the same text. A conversation that changed somewhere (a compaction, another
agent) is written again from there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from nbagent.provider.provider import AssistantTurn, Request, ResultTurn, Turn
from nbagent.provider.quirks import Quirks
from nbagent.provider.wire import ChatWriter, encode_json

CONVERSATIONS = 8
"""How many conversations are remembered: a session, its children, what is beside them."""


class Body(dict[str, Any]):
    """The body of a request; ``content``: the same as JSON."""

    content: bytes = b""


@dataclass
class _Past:
    """What was written of a conversation, up to a place after which nothing of it can change any more."""

    quirks: Quirks
    system: str
    turns: tuple[Turn, ...] = ()
    messages: list[dict[str, Any]] = field(default_factory=list)
    content: bytearray = field(default_factory=bytearray)
    calls: set[str] = field(default_factory=set)


class Writer:
    """Writes the messages of requests, each conversation as far as it is new."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], _Past] = OrderedDict()
        self._last: tuple[Request, _Past] | None = None

    def messages(self, request: Request, quirks: Quirks) -> tuple[list[dict[str, Any]], list[bytes | bytearray]]:
        """The messages, and the JSON list of them in pieces: put together once, with what stands around them, so that a long
        conversation is copied once."""
        if quirks.no_system:  # the system text stands in the first message, which so belongs to two
            messages = ChatWriter(quirks).write(request)
            return messages, [encode_json(messages)]
        past = self._past(request, quirks)
        self._last = request, past
        writer = ChatWriter(quirks)
        writer.messages = list(past.messages)
        begun = len(past.messages)
        if not begun:
            writer.begin(request.system)
        fixed = begun
        done = len(past.turns)
        for number, turn in enumerate(request.turns[done:], done + 1):
            writer.add(turn)
            if isinstance(turn, (AssistantTurn, ResultTurn)) and not writer.waiting:
                fixed, done = len(writer.messages), number
        self._keep(past, request, writer.messages[begun:fixed], done)
        writer.end()
        rest = b",".join(map(encode_json, writer.messages[max(fixed, begun) :]))
        between = b"," if past.content and rest else b""
        return writer.messages, [b"[", past.content, between, rest, b"]"]

    def calls(self, request: Request) -> set[str]:
        """Ids of calls that the history holds, once it was written."""
        known = self._last[1] if self._last is not None and self._last[0] is request else None
        found = set(known.calls) if known else set()
        for turn in request.turns[len(known.turns) if known else 0 :]:
            if isinstance(turn, AssistantTurn):
                found.update(call.id for call in turn.calls)
        return found

    def _past(self, request: Request, quirks: Quirks) -> _Past:
        key = (request.session_id, request.agent)
        past = self._known.pop(key, None)
        if (
            past is None
            or past.quirks != quirks
            or past.system != request.system
            or not _begins(request.turns, past.turns)
        ):
            past = _Past(quirks, request.system)
        self._known[key] = past
        while len(self._known) > CONVERSATIONS:
            self._known.popitem(last=False)
        return past

    def _keep(self, past: _Past, request: Request, fresh: list[dict[str, Any]], done: int) -> None:
        if not fresh:
            return
        for turn in request.turns[len(past.turns) : done]:
            if isinstance(turn, AssistantTurn):
                past.calls.update(call.id for call in turn.calls)
        if past.content:
            past.content += b","
        past.content += b",".join(map(encode_json, fresh))
        past.messages += fresh
        past.turns = request.turns[:done]


def _begins(turns: tuple[Turn, ...], start: tuple[Turn, ...]) -> bool:
    """Whether ``turns`` begins with the very same objects."""
    return len(turns) >= len(start) and all(map(is_, turns, start))
