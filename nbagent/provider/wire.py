"""Request → body of a Chat Completions call. Pure; sends only what is set, in the form that the strictest server takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nbagent.provider.accumulator import OPAQUE_FIELDS
from nbagent.provider.provider import AssistantTurn, CallTurn, Image, Request, ResultTurn, Text, Thought, Turn, UserTurn
from nbagent.provider.quirks import Quirks
from nbagent.whole import clean, whole_text

_encode = msgspec.json.Encoder().encode
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

NO_OUTPUT = "(no output)"
PICTURES_FOLLOW = "[the pictures follow in the next message]"


def arguments_text(value: Mapping[str, Any]) -> str:
    """Arguments as the JSON text that goes on the wire; the same object always gives the same bytes."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return _encode(clean(value)).decode()


def encode_json(value: Any) -> bytes:
    """A JSON value as UTF-8, without lone surrogates."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(clean(value))


def short_id(call_id: str) -> str:
    """Nine letters and digits that stand for ``call_id``, always the same ones."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    letters = []
    for _ in range(9):
        number, place = divmod(number, 62)
        letters.append(_DIGITS[place])
    return "".join(letters)


def size_note(image: Image) -> str:
    """What a model that does not see is told of a picture."""
    size = len(image.data) * 3 // 4
    shown = f"{size / 1024:.0f} KB" if size >= 1024 else f"{size} bytes"
    name = f"{image.filename}, " if image.filename else ""
    return f"[picture: {name}{image.mime}, {shown}; this model does not see pictures]"


def data_url(image: Image) -> str:
    return f"data:{image.mime};base64,{image.data}"


def has_images(request: Request) -> bool:
    return any(
        isinstance(part, Image)
        for turn in request.turns
        if not isinstance(turn, AssistantTurn)
        for part in turn.content
    )


def noted(parts: Iterable[Text | Image], sees: bool) -> list[Text | Image]:
    """Parts as a model can take them: without empty text, pictures as notes for one that does not see."""
    out: list[Text | Image] = []
    for part in parts:
        if isinstance(part, Image):
            out.append(part if sees else Text(size_note(part)))
        elif part.text.strip():
            out.append(Text(whole_text(part.text)))
    return out


def joined(parts: Iterable[Text | Image]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))


def result_text(turn: ResultTurn, sees: bool) -> tuple[str, list[Image]]:
    """A result's text, and the pictures that have to go elsewhere since results are text."""
    parts = noted(turn.content, sees)
    pictures = [part for part in parts if isinstance(part, Image)]
    text = joined(parts)
    if pictures:
        text = f"{text}\n\n{PICTURES_FOLLOW}" if text else PICTURES_FOLLOW
    return text or NO_OUTPUT, pictures


class ChatWriter:
    """Turns → messages."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self.sees = quirks.vision is not False
        self.messages: list[dict[str, Any]] = []
        self._pictures: list[Image] = []

    @property
    def waiting(self) -> bool:
        """Whether something of what was added is still to be written."""
        return bool(self._pictures)

    def write(self, request: Request) -> list[dict[str, Any]]:
        self.begin(request.system)
        for turn in request.turns:
            self.add(turn)
        self.end()
        system = whole_text(request.system)
        if self.quirks.no_system and system.strip():
            self._lead(system)
        return self.messages

    def begin(self, system: str) -> None:
        system = whole_text(system)
        if system.strip() and not self.quirks.no_system:
            self.messages.append({"role": "system", "content": system})

    def add(self, turn: Turn) -> None:
        if not isinstance(turn, ResultTurn):
            self._show_pictures(merge=isinstance(turn, UserTurn))
        match turn:
            case UserTurn():
                self._user(noted(turn.content, self.sees) or [Text("(empty)")])
            case AssistantTurn():
                self.messages.append(self._assistant(turn))
            case ResultTurn():
                self._result(turn)

    def end(self) -> None:
        self._show_pictures(merge=False)

    def _user(self, parts: list[Text | Image]) -> None:
        if self._pictures:
            parts = [*self._pictures_with_words(), *parts]
            self._pictures = []
        if any(isinstance(part, Image) for part in parts):
            content: Any = [self._part(part) for part in parts]
        else:
            content = joined(parts)
        self.messages.append({"role": "user", "content": content})

    def _pictures_with_words(self) -> list[Text | Image]:
        names = ", ".join(p.filename for p in self._pictures if p.filename)
        return [Text(f"Pictures from the results above{': ' + names if names else ''}."), *self._pictures]

    def _show_pictures(self, merge: bool) -> None:
        """Pictures of results go into a user message once all results of the block are there."""
        if self._pictures and not merge:
            self._user([])

    def _part(self, part: Text | Image) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        return {"type": "image_url", "image_url": {"url": data_url(part)}}

    def _assistant(self, turn: AssistantTurn) -> dict[str, Any]:
        text = whole_text(turn.text)
        empty = "" if self.quirks.empty_content else None
        content = text if text.strip() else empty if turn.calls else "(no answer)"
        message: dict[str, Any] = {"role": "assistant", "content": content}
        message.update(self._reasoning(turn.thoughts))
        if turn.calls:
            message["tool_calls"] = [self._call(call) for call in turn.calls]
        return message

    def _reasoning(self, thoughts: tuple[Thought, ...]) -> dict[str, Any]:
        how = self.quirks.reasoning
        if how == "never":
            return {}
        fields: dict[str, Any] = {}
        if how:
            fields[how] = whole_text("".join(thought.text for thought in thoughts))
        for thought in thoughts:
            if thought.field and thought.text and not how:
                fields[thought.field] = fields.get(thought.field, "") + whole_text(thought.text)
            for key in OPAQUE_FIELDS:
                if key in thought.opaque:
                    fields[key] = [*fields.get(key, []), *thought.opaque[key]]
        return fields

    def _call(self, call: CallTurn) -> dict[str, Any]:
        function = {"name": call.name, "arguments": arguments_text(call.arguments)}
        extra = {key: value for key, value in call.extra.items() if key not in ("id", "type", "function", "index")}
        return {"id": self._id(call.id), "type": "function", "function": function, **extra}

    def _result(self, turn: ResultTurn) -> None:
        text, pictures = result_text(turn, self.sees)
        self._pictures += pictures
        self.messages.append({"role": "tool", "tool_call_id": self._id(turn.call_id), "content": text})

    def _id(self, call_id: str) -> str:
        return short_id(call_id) if self.quirks.short_ids else call_id

    def _lead(self, system: str) -> None:
        for message in self.messages:
            if message["role"] == "user":
                content = message["content"]
                if isinstance(content, str):
                    message["content"] = f"{system}\n\n{content}"
                else:
                    message["content"] = [{"type": "text", "text": system}, *content]
                return
        self.messages.insert(0, {"role": "user", "content": system})


def chat_tools(request: Request) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": schema(t.parameters)},
        }
        for t in request.tools
    ]


def schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An object schema with ``properties``, which some servers insist on."""
    return {"type": "object", **({} if "properties" in parameters else {"properties": {}}), **parameters}


def with_quirks(parameters: Iterable[tuple[str, Any]], quirks: Quirks) -> Iterator[tuple[str, Any]]:
    """Parameters without those the server refused, under the names it wants."""
    for key, value in parameters:
        name = quirks.rename.get(key, key)
        if value is not None and key not in quirks.drop and name not in quirks.drop:
            yield name, value


def chat_body(
    request: Request, quirks: Quirks, *, modern: bool = False, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The body of one call. ``modern``: the server wants ``max_completion_tokens``. ``options``: more parameters from
    the settings, as they are."""
    return {
        "model": request.model,
        "messages": ChatWriter(quirks).write(request),
        **beside_messages(request, quirks, modern=modern, options=options),
    }


def beside_messages(
    request: Request, quirks: Quirks, *, modern: bool = False, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a body holds besides the model's name and the messages."""
    streamed = not quirks.no_stream
    parameters: list[tuple[str, Any]] = [
        ("temperature", request.temperature),
        ("max_completion_tokens" if modern else "max_tokens", request.max_output),
        ("reasoning_effort", request.effort or None),
        ("stream_options", {"include_usage": True} if streamed else None),
        *(options or {}).items(),
    ]
    body: dict[str, Any] = {}
    if request.tools:
        body["tools"] = chat_tools(request)
    body["stream"] = streamed
    body.update(with_quirks(parameters, quirks))
    return body
