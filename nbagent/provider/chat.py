"""The Chat Completions form: how a request is written and an answer read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbagent.provider.accumulator import Accumulator
from nbagent.provider.provider import AssistantTurn, Delta, Request
from nbagent.provider.quirks import Quirks
from nbagent.provider.sse import Done
from nbagent.provider.wire import beside_messages, encode_json
from nbagent.provider.written import Body, Writer


def needs(request: Request) -> dict[str, bool]:
    """Tool name → whether it has required arguments."""
    return {tool.name: bool(tool.parameters.get("required")) for tool in request.tools}


def taken(request: Request) -> set[str]:
    """Ids of calls that the history holds."""
    return {call.id for turn in request.turns if isinstance(turn, AssistantTurn) for call in turn.calls}


class ChatReader:
    """Events of a Chat Completions stream → deltas."""

    def __init__(
        self, request: Request, failure: Callable[[Any], Exception], calls: Iterable[str] | None = None
    ) -> None:
        self._answer = Accumulator(needs(request), taken(request) if calls is None else calls, failure)
        self.over = False

    @property
    def finished(self) -> bool:
        return self._answer.finished

    @property
    def started(self) -> bool:
        return self._answer.started

    def feed(self, event: str, value: Any) -> None:
        if isinstance(value, Done):
            self._answer.done()
            self.over = True
        elif event == "error" and value and not (isinstance(value, dict) and value.get("error")):
            self._answer.feed({"error": value})
        else:
            self._answer.feed(value)

    def take(self) -> list[Delta]:
        return self._answer.take()

    def end(self) -> list[Delta]:
        return self._answer.end()

    def rest(self) -> list[Delta]:
        return self._answer.rest()


class ChatForm:
    path = "/chat/completions"

    def __init__(self, modern: bool) -> None:
        self._modern = modern
        self._writer = Writer()

    def body(self, request: Request, quirks: Quirks, options: Mapping[str, Any]) -> Body:
        messages, pieces = self._writer.messages(request, quirks)
        beside = beside_messages(request, quirks, modern=self._modern, options=options)
        body = Body({"model": request.model, "messages": messages, **beside})
        if body["messages"] is messages:
            head = encode_json({"model": body["model"]}).rstrip(b"}")
            rest = encode_json(beside)[1:]
            body.content = b"".join((head, b',"messages":', *pieces, b"," if beside else b"", rest))
        return body

    def reader(self, request: Request, failure: Callable[[Any], Exception]) -> ChatReader:
        return ChatReader(request, failure, self._writer.calls(request))
