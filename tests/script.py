"""What a scripted model says: steps, answers, and their form on the wire (Chat Completions and Responses).

An answer is a list of steps made by the small builders below::

    [think("let me see"), say("I will read it."), call("read", {"path": "a.py"})]

What is left out is filled in as a well-behaved server would: a fitting finish, usage, ``[DONE]``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


class Gate:
    """A point at which the server holds until the test opens it. No sleeping on either side."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def wait_open(self, timeout: float) -> bool:
        return self._opened.wait(timeout)

    async def arrived(self, timeout: float = 30) -> None:
        """Wait (in a thread) until the server has come to this point."""
        if not await asyncio.to_thread(self.reached.wait, timeout):
            raise AssertionError("the server never came to this gate")


@dataclass(frozen=True)
class Say:
    text: str
    size: int = 0  # characters a chunk; 0: one chunk


@dataclass(frozen=True)
class Think:
    text: str
    field: str = "reasoning_content"
    size: int = 0
    opaque: str = ""  # Responses API: encrypted_content


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    id: str | None = None  # None: a unique one; "": none on the wire
    index: int | None = None  # None: counted; -1: none on the wire
    size: int = 0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    input: int
    output: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Finish:
    reason: str | None


@dataclass(frozen=True)
class Frame:
    """One event of the stream, as a JSON value or as text, sent as ``data: …``."""

    value: Any
    event: str = ""


@dataclass(frozen=True)
class Raw:
    """Bytes of the stream as they are."""

    data: bytes


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Hold:
    gate: Gate
    timeout: float = 60


@dataclass(frozen=True)
class Cut:
    """The connection ends here: no finish, no ``[DONE]``. ``reset``: with a TCP reset."""

    reset: bool = False


@dataclass(frozen=True)
class Bare:
    """Nothing is filled in at the end: no finish, no usage, no ``[DONE]``; the body just ends properly."""


@dataclass(frozen=True)
class Wire:
    """How the body travels. ``size``: bytes a write (0: one event); ``limit``: cut after so many bytes."""

    http10: bool = False
    gzip: bool = False
    crlf: bool = False
    size: int = 0
    limit: int | None = None
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Fault:
    """An HTTP error instead of an answer. ``body``: JSON value, text or bytes."""

    status: int
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Whole:
    """A whole JSON body with status 200, whatever was asked for (a server that ignores ``stream``)."""

    body: Any
    content_type: str = "application/json"


Step = Say | Think | Call | Usage | Finish | Frame | Raw | Pause | Hold | Cut | Bare | Wire | Fault | Whole
Match = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class Answer:
    """One answer. ``match``: only for requests (parsed bodies) of which it is true; ``forever``: never used up."""

    steps: tuple[Step, ...]
    match: Match | None = None
    forever: bool = False


AnswerLike = Answer | Step | Sequence[Step]
ScriptItem = AnswerLike | Callable[[dict[str, Any]], AnswerLike]


def say(text: str, size: int = 0) -> Say:
    return Say(text, size)


def think(text: str, field: str = "reasoning_content", size: int = 0, opaque: str = "") -> Think:
    return Think(text, field, size, opaque)


def call(
    name: str,
    arguments: dict[str, Any] | str | None = None,
    id: str | None = None,  # noqa: A002 - as on the wire
    index: int | None = None,
    size: int = 0,
    **extra: Any,
) -> Call:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return Call(name, text, id, index, size, extra)


def usage(prompt: int, output: int = 0, cached: int = 0, reasoning: int = 0) -> Usage:
    return Usage(prompt, output, cached, reasoning)


def finish(reason: str | None = "stop") -> Finish:
    return Finish(reason)


def frame(value: Any, event: str = "") -> Frame:
    return Frame(value, event)


def raw(data: bytes | str) -> Raw:
    return Raw(data.encode() if isinstance(data, str) else data)


def pause(seconds: float) -> Pause:
    return Pause(seconds)


def hold(gate: Gate, timeout: float = 60) -> Hold:
    return Hold(gate, timeout)


def cut(reset: bool = False) -> Cut:
    return Cut(reset)


def bare() -> Bare:
    return Bare()


def wire(**options: Any) -> Wire:
    if isinstance(options.get("headers"), dict):
        options["headers"] = tuple(options["headers"].items())
    return Wire(**options)


def fault(status: int, body: Any = None, headers: dict[str, str] | None = None) -> Fault:
    return Fault(status, body, tuple((headers or {}).items()))


def whole(body: Any, content_type: str = "application/json") -> Whole:
    return Whole(body, content_type)


def when(match: Match | str, *steps: Step, forever: bool = False) -> Answer:
    """An answer for matching requests only; a string matches when it is in the last user message."""
    test = match if callable(match) else (lambda body, text=match: text in last_user_text(body))
    return Answer(tuple(steps), test, forever)


def always(*steps: Step) -> Answer:
    """An answer that is never used up."""
    return Answer(tuple(steps), forever=True)


def as_answer(value: AnswerLike) -> Answer:
    if isinstance(value, Answer):
        return value
    if isinstance(value, Sequence):
        return Answer(tuple(value))
    return Answer((value,))


def last_user_text(body: dict[str, Any]) -> str:
    """Text of the last user message of a request body (either API)."""
    for message in reversed(body.get("messages") or body.get("input") or []):
        if message.get("role") == "user":
            return content_text(message.get("content"))
    return ""


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def pieces(text: str, size: int) -> list[str]:
    if size <= 0 or not text:
        return [text]
    return [text[i : i + size] for i in range(0, len(text), size)]


def sse(value: Any, event: str = "") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


_numbers = itertools.count(1)


class ChatForm:
    """Steps → frames of a Chat Completions stream, or one whole object."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.model = body.get("model", "")
        self.with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self.id = f"chatcmpl-{next(_numbers)}"
        self.calls = 0
        self.finished = False
        self.used = False
        self.text = ""
        self.message: dict[str, Any] = {"role": "assistant", "content": None}
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] | None = None

    def chunk(self, delta: dict[str, Any] | None, reason: str | None = None) -> dict[str, Any]:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.model,
            "choices": choices,
        }

    def begin(self) -> Iterator[bytes]:
        yield sse(self.chunk({"role": "assistant", "content": ""}))

    def frames(self, step: Step) -> Iterator[bytes]:
        match step:
            case Say():
                self.message["content"] = (self.message["content"] or "") + step.text
                for piece in pieces(step.text, step.size):
                    yield sse(self.chunk({"content": piece}))
            case Think():
                self.message[step.field] = self.message.get(step.field, "") + step.text
                for piece in pieces(step.text, step.size):
                    yield sse(self.chunk({step.field: piece}))
            case Call():
                yield from self._call(step)
            case Usage():
                self.used = True
                self.usage = chat_usage(step)
                yield sse({**self.chunk(None), "usage": self.usage})
            case Finish():
                self.finished = True
                self.finish_reason = step.reason
                yield sse(self.chunk({}, step.reason))

    def _call(self, step: Call) -> Iterator[bytes]:
        index = self.calls if step.index is None else step.index
        self.calls += 1
        call_id = f"call_{next(_numbers)}" if step.id is None else step.id
        self.message.setdefault("tool_calls", []).append(
            {
                "id": call_id,
                "type": "function",
                "function": {"name": step.name, "arguments": step.arguments},
                **step.extra,
            }
        )
        place = {} if index < 0 else {"index": index}
        first, *rest = pieces(step.arguments, step.size)
        head = {
            **place,
            **({"id": call_id} if call_id else {}),
            "type": "function",
            "function": {"name": step.name, "arguments": first},
            **step.extra,
        }
        yield sse(self.chunk({"tool_calls": [head]}))
        for piece in rest:
            yield sse(self.chunk({"tool_calls": [{**place, "function": {"arguments": piece}}]}))

    def end(self, tokens_in: int) -> Iterator[bytes]:
        if not self.finished:
            yield from self.frames(Finish("tool_calls" if self.calls else "stop"))
        if self.with_usage and not self.used:
            yield from self.frames(Usage(tokens_in, 10))
        yield b"data: [DONE]\n\n"

    def whole(self, tokens_in: int) -> dict[str, Any]:
        reason = self.finish_reason if self.finished else ("tool_calls" if self.calls else "stop")
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": self.model,
            "choices": [{"index": 0, "message": self.message, "finish_reason": reason}],
            "usage": self.usage or chat_usage(Usage(tokens_in, 10)),
        }


def chat_usage(step: Usage) -> dict[str, Any]:
    value: dict[str, Any] = {
        "prompt_tokens": step.input,
        "completion_tokens": step.output,
        "total_tokens": step.input + step.output,
    }
    if step.cached:
        value["prompt_tokens_details"] = {"cached_tokens": step.cached}
    if step.reasoning:
        value["completion_tokens_details"] = {"reasoning_tokens": step.reasoning}
    return value


class ResponsesForm:
    """Steps → events of a Responses API stream."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.model = body.get("model", "")
        self.id = f"resp_{next(_numbers)}"
        self.sequence = 0
        self.output: list[dict[str, Any]] = []
        self.calls = 0
        self.finished = False
        self.reason: str | None = None
        self.usage: Usage | None = None

    def event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self.sequence, **fields}
        self.sequence += 1
        return sse(value, kind)

    def response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "model": self.model,
            "output": self.output,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            **fields,
        }

    def begin(self) -> Iterator[bytes]:
        yield self.event("response.created", response={**self.response("in_progress"), "output": []})

    def frames(self, step: Step) -> Iterator[bytes]:
        match step:
            case Say():
                yield from self._say(step)
            case Think():
                yield from self._think(step)
            case Call():
                yield from self._call(step)
            case Usage():
                self.usage = step
            case Finish():
                self.finished = True
                self.reason = step.reason

    def _item(self, started: dict[str, Any], done: dict[str, Any], inner: Iterator[bytes]) -> Iterator[bytes]:
        place = len(self.output)
        yield self.event("response.output_item.added", output_index=place, item=started)
        yield from inner
        self.output.append(done)
        yield self.event("response.output_item.done", output_index=place, item=done)

    def _say(self, step: Say) -> Iterator[bytes]:
        item_id = f"msg_{next(_numbers)}"
        part = {"type": "output_text", "text": step.text, "annotations": []}
        base = {"id": item_id, "type": "message", "role": "assistant"}
        where = {"item_id": item_id, "output_index": len(self.output), "content_index": 0}

        def inner() -> Iterator[bytes]:
            yield self.event("response.content_part.added", **where, part={**part, "text": ""})
            for piece in pieces(step.text, step.size):
                yield self.event("response.output_text.delta", **where, delta=piece)
            yield self.event("response.output_text.done", **where, text=step.text)
            yield self.event("response.content_part.done", **where, part=part)

        yield from self._item(
            {**base, "status": "in_progress", "content": []},
            {**base, "status": "completed", "content": [part]},
            inner(),
        )

    def _think(self, step: Think) -> Iterator[bytes]:
        item_id = f"rs_{next(_numbers)}"
        base = {"id": item_id, "type": "reasoning"}
        where = {"item_id": item_id, "output_index": len(self.output), "summary_index": 0}
        part = {"type": "summary_text", "text": step.text}

        def inner() -> Iterator[bytes]:
            yield self.event("response.reasoning_summary_part.added", **where, part={**part, "text": ""})
            for piece in pieces(step.text, step.size):
                yield self.event("response.reasoning_summary_text.delta", **where, delta=piece)
            yield self.event("response.reasoning_summary_text.done", **where, text=step.text)
            yield self.event("response.reasoning_summary_part.done", **where, part=part)

        secret = {"encrypted_content": step.opaque} if step.opaque else {}
        yield from self._item({**base, "summary": []}, {**base, "summary": [part], **secret}, inner())

    def _call(self, step: Call) -> Iterator[bytes]:
        self.calls += 1
        item_id = f"fc_{next(_numbers)}"
        call_id = f"call_{next(_numbers)}" if step.id is None else step.id
        base = {"id": item_id, "type": "function_call", "call_id": call_id, "name": step.name, **step.extra}
        where = {"item_id": item_id, "output_index": len(self.output)}

        def inner() -> Iterator[bytes]:
            for piece in pieces(step.arguments, step.size):
                yield self.event("response.function_call_arguments.delta", **where, delta=piece)
            yield self.event("response.function_call_arguments.done", **where, arguments=step.arguments)

        yield from self._item(
            {**base, "status": "in_progress", "arguments": ""},
            {**base, "status": "completed", "arguments": step.arguments},
            inner(),
        )

    def end(self, tokens_in: int) -> Iterator[bytes]:
        value = self.whole(tokens_in)
        yield self.event(f"response.{value['status']}", response=value)

    def whole(self, tokens_in: int) -> dict[str, Any]:
        used = self.usage or Usage(tokens_in, 10)
        usage = {
            "input_tokens": used.input,
            "input_tokens_details": {"cached_tokens": used.cached},
            "output_tokens": used.output,
            "output_tokens_details": {"reasoning_tokens": used.reasoning},
            "total_tokens": used.input + used.output,
        }
        cut_short = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self.reason or "")
        if cut_short:
            return self.response("incomplete", usage=usage, incomplete_details={"reason": cut_short})
        return self.response("completed", usage=usage)


Form = ChatForm | ResponsesForm


def from_json(script: list[Any]) -> list[ScriptItem]:
    """A script written as JSON: a list of answers, each a list of steps, or an object
    ``{"when": text, "steps": […], "forever": bool}``.

    Steps: ``{"say": text}``, ``{"think": text}``, ``{"call": name, "args": {…}, "id": …}``, ``{"usage": [in, out]}``,
    ``{"finish": word}``, ``{"fault": status, "body": …, "headers": {…}}``, ``{"pause": seconds}``, ``{"cut": true}``,
    ``{"frame": …}``, ``{"raw": text}``, ``{"whole": …}``, ``{"bare": true}``, ``{"wire": {…}}``.
    """
    return [_answer_from_json(item) for item in script]


def _answer_from_json(item: Any) -> Answer:
    if isinstance(item, dict) and "steps" in item:
        answer = as_answer([_step_from_json(step) for step in item["steps"]])
        test = when(item["when"]).match if "when" in item else None
        return replace(answer, match=test, forever=bool(item.get("forever")))
    return as_answer([_step_from_json(step) for step in (item if isinstance(item, list) else [item])])


def _step_from_json(item: dict[str, Any]) -> Step:
    kind = next(iter(item))
    value = item[kind]
    options = {k: v for k, v in item.items() if k != kind}
    match kind:
        case "say":
            return say(value, **options)
        case "think":
            return think(value, **options)
        case "call":
            return call(value, options.pop("args", None), **options)
        case "usage":
            return usage(*value)
        case "finish":
            return finish(value)
        case "fault":
            return fault(value, **options)
        case "pause":
            return pause(value)
        case "cut":
            return cut(**options)
        case "frame":
            return frame(value, **options)
        case "raw":
            return raw(value)
        case "whole":
            return whole(value, **options)
        case "bare":
            return bare()
        case "wire":
            return wire(**value)
    raise ValueError(f"unknown step {kind!r} in the script")
