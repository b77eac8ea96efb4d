"""What a model is asked and how it answers, free of any wire format. Values and one protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import msgspec

from nbagent.message import Tokens


class Text(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Words in a user turn or a tool's result."""

    text: str


class Image(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """A picture, base64. Models that don't see get a size note instead (the provider decides and learns)."""

    mime: str
    data: str
    filename: str = ""


class Thought(msgspec.Struct, frozen=True):
    """Reasoning of an earlier answer, for servers that want it back. ``field``: the wire field it came in."""

    text: str
    field: str = ""
    opaque: dict[str, Any] = {}


class CallTurn(msgspec.Struct, frozen=True):
    """A tool call of an earlier answer. ``arguments`` is a JSON object; ``extra``: unknown wire fields, sent back."""

    id: str
    name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] = {}


class UserTurn(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    """What a person (and nbagent's notices) said."""

    content: tuple[Text | Image, ...]


class AssistantTurn(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer."""

    text: str = ""
    thoughts: tuple[Thought, ...] = ()
    calls: tuple[CallTurn, ...] = ()


class ResultTurn(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The answer to one call."""

    call_id: str
    name: str
    content: tuple[Text | Image, ...]
    error: bool = False


Turn = UserTurn | AssistantTurn | ResultTurn


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as offered: ``parameters`` is a JSON schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One model call. ``turns`` are already valid for the strictest server (see ``session.request``).

    ``agent`` and ``session_id`` never reach the wire (cassettes digest the agent; caches key on the session).
    """

    model: str
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    effort: str = ""
    max_output: int | None = None
    agent: str = ""
    session_id: str = ""


class Say(msgspec.Struct, frozen=True):
    """A piece of the answer's text."""

    text: str


class Think(msgspec.Struct, frozen=True):
    """A piece of reasoning. A piece with ``opaque`` closes its reasoning part with what must be sent back."""

    text: str
    field: str = ""
    opaque: dict[str, Any] = {}


class Unsaid(msgspec.Struct, frozen=True):
    """All text said so far in this answer was reasoning (a lone ``</think>`` came): take it out of the answer.

    The ``Think`` that follows holds that text."""


class Writing(msgspec.Struct, frozen=True):
    """A tool call is being written: characters of its arguments so far. For the view only."""

    index: int
    name: str
    size: int


class Called(msgspec.Struct, frozen=True):
    """A tool call is complete. ``problem`` is "" or what is wrong with the arguments (then it must never run);
    ``raw``: the arguments as they came, cut to 800 characters, when there is a problem."""

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    raw: str = ""
    extra: dict[str, Any] = {}


class Used(msgspec.Struct, frozen=True):
    """What the server says the call cost. At most one an answer, late."""

    tokens: Tokens


class Said(msgspec.Struct, frozen=True):
    """Something the person should know about the server (a parameter was dropped, the context is cut silently)."""

    text: str
    level: str = "info"


class Ended(msgspec.Struct, frozen=True):
    """The answer is complete; the last delta. ``reason``: ``stop``, ``tool-calls``, ``length`` or ``content-filter``."""

    reason: str


Delta = Say | Unsaid | Think | Writing | Called | Used | Said | Ended


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can take: tokens, 0 for unknown. ``source``: settings, server, table or unknown.

    Prices in currency units per million tokens, None for unknown.
    """

    window: int = 0
    input: int = 0
    output: int = 0
    vision: bool | None = None
    source: str = "unknown"
    price_input: float | None = None
    price_output: float | None = None
    price_cached: float | None = None


class Provider(Protocol):
    """Who answers. One instance lives on one event loop and is closed there."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The answer, piece by piece; the last is ``Ended``. Raises ``ProviderError`` and its kin; closing the
        iterator closes the connection. Refused parameters are dropped and remembered inside; waiting and trying
        again is the caller's."""
        ...

    async def models(self) -> tuple[str, ...]: ...

    async def limits(self, model: str) -> Limits: ...

    async def close(self) -> None: ...
