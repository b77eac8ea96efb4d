"""What a tool is: **declare, decide, act**.

A tool *declares* what one call needs (``Declaration``: permission patterns on real resources, a preview, what "always" would
mean), the gate decides in one place, and then the tool *acts* on the very objects that were declared (``Declaration.subject``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from nbagent.clock import Clock
from nbagent.event import Event, ToolOutputDelta
from nbagent.frontend import Form, Frontend
from nbagent.message import Attachment
from nbagent.permission.ask import Effect, Need, Preview
from nbagent.permission.ruleset import Ruleset
from nbagent.root import Root
from nbagent.sandbox import Wall
from nbagent.tools.schema import schema_of


class Arguments(msgspec.Struct, frozen=True, kw_only=True, rename=None, forbid_unknown_fields=False):
    """Base of a tool's typed arguments; field names are those of the wire."""


A = TypeVar("A", bound=Arguments)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one call needs and would do. ``subject`` is what ``act`` works on (opened places, parsed commands);
    ``close`` releases it and is always called. ``effects``: see ``permission.ask.Call``."""

    title: str
    needs: tuple[Need, ...] = ()
    preview: Preview | None = None
    effects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    subject: Any = None
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads (``output``) and what the view shows. ``metadata`` is JSON for the view and the record
    (``diff``, ``exit``, ``count``, ``truncated`` …). ``tail``: when cut, keep the end instead of the head."""

    title: str
    output: str
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    tail: bool = False


class ReadLog(Protocol):
    """What the model has seen of files in this session."""

    def saw(self, real: Path, digest: str, whole: bool) -> None:
        """Remember that the model read (or wrote) this version; ``whole``: all of it."""
        ...

    def seen(self, real: Path) -> tuple[str, bool] | None:
        """(digest, whole) of the version last seen, or None."""
        ...


class Host(Protocol):
    """What a few tools need from the session that runs them; implemented by ``session``."""

    async def plan_exit(self) -> ToolResult: ...

    async def plan_enter(self) -> ToolResult: ...

    async def task(self, arguments: dict[str, Any], call_id: str) -> ToolResult: ...

    def todos(self) -> list[dict[str, str]]: ...

    def set_todos(self, todos: list[dict[str, str]]) -> None: ...

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None: ...

    def deferred(self) -> list[Tool[Any]]: ...

    def reveal(self, names: list[str]) -> None: ...

    def skills(self) -> dict[str, tuple[str, Path]]:
        """name → (description, folder)"""
        ...

    def nearby_instructions(self, real: Path) -> str:
        """Text of an AGENTS.md beside or above ``real`` that the model has not been given yet, or ""."""
        ...


@dataclass(frozen=True)
class ToolContext:
    """What a call may use. ``confined``: a command must run behind ``wall`` (None: this machine has none).

    ``rules``: the rules in force for this agent (for filtering what a search returns: paths whose ``read`` is not
    allowed are left out and counted). ``spill``: folder for whole outputs that were cut. ``environment``: for child processes,
    already scrubbed. ``mask``: takes known secrets out of a text that a tool keeps by itself.
    """

    session_id: str
    call_id: str
    root: Root
    rules: Ruleset
    confined: bool
    wall: Wall | None
    environment: dict[str, str]
    spill: Path
    temp: Path
    frontend: Frontend
    host: Host
    reads: ReadLog
    clock: Clock
    emit: Callable[[Event], None]
    plan_path: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    mask: Callable[[str], str] = str

    def output(self, text: str) -> None:
        """Show a piece of a running tool's output."""
        self.emit(ToolOutputDelta(session=self.session_id, call_id=self.call_id, text=text))


class Tool(Generic[A]):
    """One thing the model can call. Subclasses set the class variables and write ``declare`` and ``act``.

    The description for the model is ``<module name>.md`` beside the module (``{name}`` fields are not expanded).
    ``parallel``: calls of one step that only read run at the same time. ``deferred``: the schema is sent only after ``tool_search``
    found it; ``hint`` is its one line there.
    """

    name: str
    permission: str
    effect: Effect
    hint: str
    arguments: type[A]
    parallel: bool = False
    deferred: bool = False
    tail: bool = False

    @cached_property
    def description(self) -> str:
        module = type(self).__module__.rpartition(".")[2]
        return files("nbagent.tools").joinpath(f"{module}.md").read_text(encoding="utf-8").strip()

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments, small: no titles, no ``$defs``."""
        return schema_of(self.arguments)

    def convert(self, given: dict[str, Any]) -> A:
        """Arguments as their type. Raises ``msgspec.ValidationError`` or ``ArgumentError`` with the problem alone."""
        return msgspec.convert(given, self.arguments, strict=False)

    def declare(self, arguments: A, context: ToolContext) -> Declaration:
        """What this call needs. Looks, but changes nothing. Raises ``ModelError`` for calls that cannot work."""
        raise NotImplementedError

    async def act(self, arguments: A, declaration: Declaration, context: ToolContext) -> ToolResult:
        """Do it. Cancellation must leave nothing running."""
        raise NotImplementedError


def titled(code: str, description: str) -> str:
    """What a person reads of a call that runs something: its own first line, then what the model says of it."""
    lines = code.strip().splitlines() or [""]
    first = lines[0][:120] + (" …" if len(lines) > 1 or len(lines[0]) > 120 else "")
    said = " ".join(description.split())[:120]
    return f"{first} — {said}" if said else first


async def in_thread(function: Callable[[], T]) -> T:
    """Blocking work of a tool, off the event loop."""
    return await asyncio.to_thread(function)
