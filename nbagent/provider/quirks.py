"""What a server turned out not to take, or to insist on, learned from its refusals and remembered for the model."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Quirks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ways in which requests to one model differ from the plain ones.

    ``drop``: parameters never sent; ``rename``: old name → new name. ``vision`` False: pictures become size notes.
    ``reasoning``: earlier reasoning goes back ``""`` (in the field it came in), ``never``, or always in the field named.
    ``short_ids``: call ids of nine letters and digits. ``empty_content``: ``""`` where ``null`` would do.
    ``no_system``: the system text leads the first user message. ``no_stream``: one whole answer.
    """

    drop: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    vision: bool | None = None
    reasoning: str = ""
    short_ids: bool = False
    empty_content: bool = False
    no_system: bool = False
    no_stream: bool = False


class Learned(Protocol):
    """Where quirks are kept. ``model`` is a key that names server and model; values are JSON objects."""

    def get(self, model: str) -> dict[str, Any] | None: ...

    def put(self, model: str, value: dict[str, Any]) -> None: ...


class MemoryLearned:
    """Quirks for as long as this object lives."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def get(self, model: str) -> dict[str, Any] | None:
        return self._known.get(model)

    def put(self, model: str, value: dict[str, Any]) -> None:
        self._known[model] = value


class Memory:
    """Quirks by model: what is learned for good goes to ``learned``, what may change soon stays here.

    How reasoning goes back, and that a picture was refused for what it is, are known for this session only.
    """

    def __init__(self, learned: Learned, server: str) -> None:
        self._learned = learned
        self._server = server
        self._now: dict[str, Quirks] = {}

    def get(self, model: str) -> Quirks:
        if model not in self._now:
            try:
                self._now[model] = msgspec.convert(self._learned.get(self._key(model)) or {}, Quirks)
            except msgspec.ValidationError:
                self._now[model] = Quirks()
        return self._now[model]

    def put(self, model: str, quirks: Quirks, lasting: bool) -> None:
        self._now[model] = quirks
        if lasting:
            value = msgspec.to_builtins(quirks)
            value.pop("reasoning", None)
            self._learned.put(self._key(model), value)

    def _key(self, model: str) -> str:
        return f"{model} @ {self._server}"
