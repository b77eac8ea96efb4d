"""The Responses form: how a request is written and an answer read. Nothing is stored on the server; reasoning items come
back encrypted and go with the next request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nbagent.errors import StreamDropped
from nbagent.message import Tokens
from nbagent.provider.accumulator import empty_answer
from nbagent.provider.callbook import KNOWN_CALL_FIELDS, OpenCall, called, fresh_id, unused_id
from nbagent.provider.chat import needs, taken
from nbagent.provider.provider import (
    AssistantTurn,
    Called,
    Delta,
    Ended,
    Image,
    Request,
    ResultTurn,
    Say,
    Text,
    Think,
    Used,
    UserTurn,
    Writing,
)
from nbagent.provider.quirks import Quirks
from nbagent.provider.sse import Done
from nbagent.provider.usage import read_usage
from nbagent.provider.wire import (
    arguments_text,
    data_url,
    joined,
    noted,
    result_text,
    schema,
    short_id,
    with_quirks,
)
from nbagent.whole import whole_text

REASONING_ITEM = "reasoning_item"
SEEN_ITEM_FIELDS = {*KNOWN_CALL_FIELDS, "call_id", "name", "arguments", "status"}
TEXT_DELTAS = ("response.output_text.delta", "response.refusal.delta")
THOUGHT_DELTAS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
ENDINGS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}


class InputWriter:
    """Turns → input items."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self.sees = quirks.vision is not False
        self.items: list[dict[str, Any]] = []
        self._pictures: list[Image] = []

    def write(self, request: Request) -> list[dict[str, Any]]:
        for turn in request.turns:
            if self._pictures and isinstance(turn, AssistantTurn):
                self._user([])
            match turn:
                case UserTurn():
                    self._user(noted(turn.content, self.sees) or [Text("(empty)")])
                case AssistantTurn():
                    self.items += self._assistant(turn)
                case ResultTurn():
                    self._result(turn)
        if self._pictures:
            self._user([])
        return self.items

    def _user(self, parts: list[Text | Image]) -> None:
        if self._pictures:
            parts = [Text("Pictures from the results above."), *self._pictures, *parts]
            self._pictures = []
        if any(isinstance(part, Image) for part in parts):
            content: Any = [self._part(part) for part in parts]
        else:
            content = joined(parts)
        self.items.append({"role": "user", "content": content})

    def _part(self, part: Text | Image) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "input_text", "text": part.text}
        return {"type": "input_image", "image_url": data_url(part)}

    def _assistant(self, turn: AssistantTurn) -> Iterator[dict[str, Any]]:
        text = whole_text(turn.text)
        if (text.strip() or turn.calls) and self.quirks.reasoning != "never":
            yield from (t.opaque[REASONING_ITEM] for t in turn.thoughts if REASONING_ITEM in t.opaque)
        if text.strip() or not turn.calls:
            yield {"role": "assistant", "content": text if text.strip() else "(no answer)"}
        for call in turn.calls:
            extra = {key: value for key, value in call.extra.items() if key not in SEEN_ITEM_FIELDS}
            yield {
                "type": "function_call",
                "call_id": self._id(call.id),
                "name": call.name,
                "arguments": arguments_text(call.arguments),
                **extra,
            }

    def _result(self, turn: ResultTurn) -> None:
        text, pictures = result_text(turn, self.sees)
        self._pictures += pictures
        self.items.append({"type": "function_call_output", "call_id": self._id(turn.call_id), "output": text})

    def _id(self, call_id: str) -> str:
        return short_id(call_id) if self.quirks.short_ids else call_id


def responses_body(request: Request, quirks: Quirks, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The body of one call."""
    parameters: list[tuple[str, Any]] = [
        ("store", False),
        ("include", ["reasoning.encrypted_content"]),
        ("temperature", request.temperature),
        ("max_output_tokens", request.max_output),
        ("reasoning", {"effort": request.effort} if request.effort else None),
        *(options or {}).items(),
    ]
    body: dict[str, Any] = {"model": request.model}
    if request.system.strip():
        body["instructions"] = whole_text(request.system)
    body["input"] = InputWriter(quirks).write(request)
    if request.tools:
        body["tools"] = [
            # Strict mode wants every property required, which the tools' schemas are not.
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": schema(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
    body["stream"] = not quirks.no_stream
    body.update(with_quirks(parameters, quirks))
    return body


class ResponsesReader:
    """Events of a Responses stream → deltas."""

    def __init__(
        self, request: Request, failure: Callable[[Any], Exception], new_id: Callable[[], str] = fresh_id
    ) -> None:
        self._needs = needs(request)
        self._taken = taken(request)
        self._failure = failure
        self._new_id = new_id
        self._out: list[Delta] = []
        self._calls: dict[Any, OpenCall] = {}
        self._texts: set[Any] = set()
        self._thoughts: set[Any] = set()
        self._summaries: set[tuple[Any, Any]] = set()
        self._items: list[Think] = []
        self._said = False
        self._thought = False
        self._status = ""
        self._reason = ""
        self._tokens: Tokens | None = None
        self.over = False

    @property
    def finished(self) -> bool:
        return bool(self._status) or self.over

    @property
    def started(self) -> bool:
        return self._said or self._thought or bool(self._calls)

    def feed(self, event: str, value: Any) -> None:
        """Take one event. Raises the matching error for a failed response."""
        if isinstance(value, Done):
            self.over = True
            return
        if event == "error" and value and not isinstance(value, dict):
            raise self._failure({"error": value})
        if not isinstance(value, dict):
            return
        kind = value.get("type")
        kind = kind if isinstance(kind, str) and kind else event
        if kind == "error" or (value.get("error") and not value.get("object")):
            raise self._failure(value if value.get("error") else {"error": value})
        if value.get("object") == "response" and "output" in value:
            self._finish(value)
        elif kind in ENDINGS:
            response = value.get("response")
            self._finish(response if isinstance(response, dict) else {})
        else:
            self._event(kind, value)

    def take(self) -> list[Delta]:
        out, self._out = self._out, []
        return out

    def end(self) -> list[Delta]:
        """The body is over: the last deltas. Raises ``StreamDropped`` when the answer is not complete."""
        if not self.finished:
            raise StreamDropped("The connection to the model server ended in the middle of the answer.")
        cut = self._cut()
        calls = [self._called(call, cut) for call in self._calls.values()]
        if not self.started:
            raise empty_answer(cut)
        out = [*self.take(), *calls]
        if self._tokens is not None:
            out.append(Used(self._tokens))
        out.append(Ended(cut or ("tool-calls" if calls else "stop")))
        return out

    def rest(self) -> list[Delta]:
        return self.take()

    def _cut(self) -> str:
        if self._status != "incomplete":
            return ""
        return "content-filter" if self._reason == "content_filter" else "length"

    def _called(self, call: OpenCall, cut: str) -> Called:
        call_id = unused_id(call.id, self._taken, self._new_id)
        proper = self._status == "completed"
        return called(call, call_id, cut, proper=proper, needed=self._needs.get(call.name, False))

    def _event(self, kind: str, value: dict[str, Any]) -> None:
        place = _place(value)
        delta = value.get("delta")
        if kind in TEXT_DELTAS and isinstance(delta, str):
            self._texts.add(place)
            self._say(delta)
        elif kind in THOUGHT_DELTAS and isinstance(delta, str):
            self._thoughts.add(place)
            self._think(delta)
        elif kind == "response.reasoning_summary_part.added":
            part = place, str(value.get("summary_index"))
            if any(p == place for p, _ in self._summaries) and part not in self._summaries:
                self._think("\n\n")
            self._summaries.add(part)
        elif kind == "response.function_call_arguments.delta" and isinstance(delta, str):
            self._write(self._call(place), delta)
        elif kind == "response.function_call_arguments.done":
            self._arguments(self._call(place), value.get("arguments"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = value.get("item")
            if isinstance(item, dict):
                self._item(item, place, done=kind.endswith("done"))

    def _item(self, item: dict[str, Any], place: Any, done: bool) -> None:
        match item.get("type"):
            case "function_call":
                self._call_item(item, place)
            case "reasoning" if done:
                self._reasoning_item(item, place)
            case "message" if done and place not in self._texts:
                self._texts.add(place)
                self._say(_texts_of(item.get("content")))

    def _call_item(self, item: dict[str, Any], place: Any) -> None:
        call = self._call(place)
        call.name = str(item.get("name") or call.name)
        call.id = str(item.get("call_id") or call.id or item.get("id") or "")
        self._arguments(call, item.get("arguments"))
        call.extra.update({k: v for k, v in item.items() if k not in SEEN_ITEM_FIELDS and v is not None})
        self._out.append(Writing(call.slot, call.name, call.size))

    def _reasoning_item(self, item: dict[str, Any], place: Any) -> None:
        text = "" if place in self._thoughts else _texts_of(item.get("summary")) or _texts_of(item.get("content"))
        self._thoughts.add(place)
        self._thought = True
        kept = {key: item[key] for key in ("type", "id", "summary", "encrypted_content") if item.get(key) is not None}
        opaque = {REASONING_ITEM: {**kept, "summary": kept.get("summary", [])}} if kept.get("encrypted_content") else {}
        if text or opaque:
            self._out.append(Think(text, "", opaque))

    def _call(self, place: Any) -> OpenCall:
        if place not in self._calls:
            self._calls[place] = OpenCall(len(self._calls), None, "", "")
        return self._calls[place]

    def _arguments(self, call: OpenCall, text: Any) -> None:
        """The whole arguments, which replace what came in pieces."""
        if isinstance(text, str) and text:
            call.pieces, call.size = [text], len(text)

    def _write(self, call: OpenCall, text: str) -> None:
        call.add(text)
        last = self._out[-1] if self._out else None
        writing = Writing(call.slot, call.name, call.size)
        if isinstance(last, Writing) and last.index == call.slot:
            self._out[-1] = writing
        else:
            self._out.append(writing)

    def _say(self, text: str) -> None:
        if text:
            self._said = self._said or bool(text.strip())
            self._out.append(Say(whole_text(text)))

    def _think(self, text: str) -> None:
        if text:
            self._thought = True
            self._out.append(Think(whole_text(text)))

    def _finish(self, response: dict[str, Any]) -> None:
        """The whole response at the end; what was not streamed of it is taken now."""
        if response.get("error") or response.get("status") in ("failed", "cancelled"):
            raise self._failure({"error": response.get("error") or {"message": "the response failed"}})
        self._status = "incomplete" if response.get("status") == "incomplete" else "completed"
        details = response.get("incomplete_details")
        self._reason = str(details.get("reason") or "") if isinstance(details, dict) else ""
        self.over = True
        if isinstance(response.get("usage"), dict):
            self._tokens = read_usage(response["usage"])
        output = response.get("output")
        for place, item in enumerate(output if isinstance(output, list) else []):
            if isinstance(item, dict) and place not in self._calls | dict.fromkeys(self._thoughts | self._texts):
                self._item(item, place, done=True)


def _place(value: dict[str, Any]) -> Any:
    """Which item of the output an event is about."""
    index = value.get("output_index")
    found = index if index is not None else value.get("item_id")
    return found if isinstance(found, (int, str)) else str(found)


def _texts_of(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    listed = parts if isinstance(parts, list) else []
    texts = [p.get("text") or p.get("refusal") or "" for p in listed if isinstance(p, dict)]
    return "\n\n".join(str(text) for text in texts if text)


class ResponsesForm:
    path = "/responses"

    def body(self, request: Request, quirks: Quirks, options: Mapping[str, Any]) -> dict[str, Any]:
        return responses_body(request, quirks, options)

    def reader(self, request: Request, failure: Callable[[Any], Exception]) -> ResponsesReader:
        return ResponsesReader(request, failure)
