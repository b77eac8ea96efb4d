"""What a session stores: messages and their parts. Values only, no I/O.

A part is a frozen ``msgspec.Struct`` tagged with its ``type``; ``encode`` and ``decode`` are its JSON form
in the store, in exports and in the record. Times are seconds since the epoch (float, UTC). Ids come from
``clock`` and sort by time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from nbagent.whole import clean

Role = Literal["user", "assistant"]
ToolStatus = Literal["pending", "running", "completed", "error"]


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one step as the provider reports them. ``input`` includes what was read from its cache."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
        )


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A picture or document beside a tool's text. ``data`` is base64; ``mime`` its type."""

    mime: str
    data: str
    filename: str = ""


class PartBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """Fields of every part. ``id`` is unique in the store."""

    id: str


class TextPart(PartBase, tag="text", frozen=True, kw_only=True):
    """Text of a person or a model. ``synthetic``: written by nbagent (a notice). ``partial``: the stream died in it."""

    text: str
    synthetic: bool = False
    partial: bool = False


class ReasoningPart(PartBase, tag="reasoning", frozen=True, kw_only=True):
    """What a model thought. ``field``: the wire field it came in ("" when it came as a ``<think>`` tag).

    ``opaque``: whatever the server wants back unchanged (encrypted reasoning items and the like).
    """

    text: str
    field: str = ""
    opaque: dict[str, Any] = {}


class ToolPart(PartBase, tag="tool", frozen=True, kw_only=True):
    """One tool call and what became of it: ``pending → running → completed | error``.

    ``input`` is always a JSON object. ``rule``: when refused, the rule that said so, as
    ``{"permission", "pattern", "action", "layer"}``. ``extra``: unknown fields of the call, sent back as they came.
    ``compacted``: time at which the output was pruned from requests (the stored text stays whole).
    """

    call_id: str
    tool: str
    status: ToolStatus
    input: dict[str, Any] = {}
    output: str = ""
    error: str = ""
    title: str = ""
    rule: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()
    extra: dict[str, Any] = {}
    time_start: float | None = None
    time_end: float | None = None
    compacted: float | None = None


class FilePart(PartBase, tag="file", frozen=True, kw_only=True):
    """Something attached to a prompt: text, or base64 ``data``. ``source``: ``file``, ``folder``, ``variable`` or ``cell``."""

    mime: str
    filename: str
    source: str = "file"
    text: str = ""
    data: str = ""


class StepStartPart(PartBase, tag="step-start", frozen=True, kw_only=True):
    """A model call begins. ``tools``: names offered, ``hidden``: name → the rule that hid it, as text."""

    tools: tuple[str, ...] = ()
    hidden: dict[str, str] = {}


class StepFinishPart(PartBase, tag="step-finish", frozen=True, kw_only=True):
    """A model call ended. ``reason``: ``stop``, ``tool-calls``, ``length``, ``content-filter``, ``error``, ``stopped``."""

    reason: str
    tokens: Tokens = Tokens()
    cost: float | None = None


class SnapshotPart(PartBase, tag="snapshot", frozen=True, kw_only=True):
    """Files as they were at this moment; ``snapshot`` is an id that ``session.snapshot`` knows."""

    snapshot: str
    when: Literal["before", "after"]


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One changed file of a receipt. ``path`` is relative to the root with ``/``. Line counts are None for binary files."""

    path: str
    status: Literal["added", "modified", "deleted"]
    additions: int | None = None
    deletions: int | None = None
    diff: str = ""


class PatchPart(PartBase, tag="patch", frozen=True, kw_only=True):
    """The receipt of a cell: what changed between two snapshots."""

    before: str
    after: str
    files: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()


class AgentPart(PartBase, tag="agent", frozen=True, kw_only=True):
    """The agent of the run changed here (plan approved, ``plan_enter``)."""

    agent: str
    previous: str = ""


class SubtaskPart(PartBase, tag="subtask", frozen=True, kw_only=True):
    """A child session that a ``task`` call started."""

    call_id: str
    session_id: str
    agent: str
    description: str = ""


class CompactionPart(PartBase, tag="compaction", frozen=True, kw_only=True):
    """Everything before this was replaced by ``summary`` in requests, but for the messages from ``tail_from`` on."""

    auto: bool
    summary: str = ""
    tail_from: str = ""
    status: Literal["running", "completed", "failed"] = "completed"
    error: str = ""
    tokens_before: int = 0


class RetryPart(PartBase, tag="retry", frozen=True, kw_only=True):
    """A model call that failed and is tried again after ``wait`` seconds."""

    attempt: int
    error: str
    wait: float
    time: float


Part = (
    TextPart
    | ReasoningPart
    | ToolPart
    | FilePart
    | StepStartPart
    | StepFinishPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | SubtaskPart
    | CompactionPart
    | RetryPart
)


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a session without its parts' storage: ``parts`` are loaded in order of their ids."""

    id: str
    session_id: str
    role: Role
    agent: str
    model: str = ""
    time_created: float = 0.0
    time_completed: float | None = None
    error: str = ""
    parts: tuple[Part, ...] = ()

    def text(self) -> str:
        """The words of this message that a person or a model wrote."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart) and not p.synthetic)


_encoder = msgspec.json.Encoder()
_part_decoder: msgspec.json.Decoder[Part] = msgspec.json.Decoder(Part)
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_parts_decoder: msgspec.json.Decoder[list[Part]] = msgspec.json.Decoder(list[Part])
_messages_decoder: msgspec.json.Decoder[list[Message]] = msgspec.json.Decoder(list[Message])


def encode(value: Part | Message) -> bytes:
    """A part or a message as JSON; half a surrogate pair, which cannot be encoded, becomes a replacement mark."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(clean(msgspec.to_builtins(value)))


def decode_part(data: bytes | str) -> Part:
    """The part that ``encode`` wrote. Raises ``msgspec.ValidationError`` for anything else."""
    return _part_decoder.decode(data)


def decode_message(data: bytes | str) -> Message:
    """The message that ``encode`` wrote."""
    return _message_decoder.decode(data)


def decode_parts(data: Iterable[bytes]) -> list[Part]:
    """Many parts that ``encode`` wrote, at once."""
    return _parts_decoder.decode(b"[" + b",".join(data) + b"]")


def decode_messages(data: Iterable[bytes]) -> list[Message]:
    """Many messages that ``encode`` wrote, at once."""
    return _messages_decoder.decode(b"[" + b",".join(data) + b"]")
