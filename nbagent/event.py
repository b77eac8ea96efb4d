"""What a run reports as it goes. ``nbagent run --format json`` prints these, one JSON object a line.

Deltas (``text-delta``, ``reasoning-delta``, ``tool-output``, ``tool-input``) are for live views only: the JSON
lines leave them out, since a ``text`` or ``tool`` event with the whole follows. ``session`` is the session that
reports; ``parent`` is empty but in a child's events, where it is the ``call_id`` of the ``task`` call that started it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nbagent.message import Attachment, FileChange, Tokens, ToolStatus
from nbagent.whole import clean


class EventBase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Fields of every event."""

    session: str = ""
    parent: str = ""


class SessionEvent(EventBase, tag="session", frozen=True, kw_only=True):
    """A run begins, or its agent changed. ``plan``: path of the plan file ("" when there is none).

    ``badge`` (``PLAN``) and ``writes`` (``only <plan>``, "" for no limit) are the agent's own words for the view.
    """

    agent: str
    model: str
    root: str
    plan: str = ""
    title: str = ""
    resumed: bool = False
    badge: str = ""
    writes: str = ""


class StepEvent(EventBase, tag="step", frozen=True, kw_only=True):
    """A model call begins. ``step`` counts from 1. ``context``: tokens of the last request, ``window``: of the model (0 unknown).

    ``tokens``: what the run has used so far.
    """

    step: int
    agent: str = ""
    context: int = 0
    window: int = 0
    phase: str = ""
    tokens: int = 0


class TextDelta(EventBase, tag="text-delta", frozen=True, kw_only=True):
    """A piece of a text part."""

    id: str
    text: str


class TextEvent(EventBase, tag="text", frozen=True, kw_only=True):
    """A whole text part."""

    id: str
    text: str
    partial: bool = False


class ReasoningDelta(EventBase, tag="reasoning-delta", frozen=True, kw_only=True):
    """A piece of a reasoning part."""

    id: str
    text: str


class ReasoningEvent(EventBase, tag="reasoning", frozen=True, kw_only=True):
    """A whole reasoning part."""

    id: str
    text: str


class ToolInputDelta(EventBase, tag="tool-input", frozen=True, kw_only=True):
    """A call is being written by the model: its name and how many characters of arguments came so far."""

    call_id: str
    name: str
    size: int


class ToolOutputDelta(EventBase, tag="tool-output", frozen=True, kw_only=True):
    """A running tool says something (the shell's output)."""

    call_id: str
    text: str


class ToolEvent(EventBase, tag="tool", frozen=True, kw_only=True):
    """A tool call changed its state. ``rule``: the rule that refused it, when one did. ``effect``: as the tool declares it.

    ``attachments``: pictures of the result (a figure, an image that was read), for the view.
    """

    call_id: str
    name: str
    state: ToolStatus
    input: dict[str, Any]
    title: str = ""
    output: str = ""
    error: str = ""
    rule: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    seconds: float | None = None
    effect: str = ""
    attachments: tuple[Attachment, ...] = ()


class AskEvent(EventBase, tag="ask", frozen=True, kw_only=True):
    """A person is asked, or was: ``reply`` is "" while open, else ``once``, ``always``, ``reject`` or ``expired``."""

    id: str
    permission: str
    patterns: tuple[str, ...]
    call_id: str = ""
    title: str = ""
    rule: dict[str, Any] | None = None
    reply: str = ""
    feedback: str = ""
    by: str = ""


class QuestionEvent(EventBase, tag="question", frozen=True, kw_only=True):
    """A form is open (``answers`` is None) or answered."""

    id: str
    questions: tuple[dict[str, Any], ...]
    answers: tuple[tuple[str, ...], ...] | None = None


class PlanEvent(EventBase, tag="plan", frozen=True, kw_only=True):
    """The plan file's state: ``draft``, ``awaiting``, ``approved``, ``built``, ``rejected``; ``expired``: nobody decided a review."""

    path: str
    status: str
    hash: str = ""
    text: str = ""
    edited: bool = False
    feedback: str = ""
    warnings: tuple[str, ...] = ()
    by: str = ""


class PhaseEvent(EventBase, tag="phase", frozen=True, kw_only=True):
    """The plan's phase (understand, design, review, final plan, exit)."""

    phase: str


class TodoEvent(EventBase, tag="todo", frozen=True, kw_only=True):
    """The todo list after a change; each item ``{"content", "status", "priority"}``."""

    todos: tuple[dict[str, str], ...]


class RetryEvent(EventBase, tag="retry", frozen=True, kw_only=True):
    """The model call failed and is tried again at ``until`` (seconds since the epoch)."""

    attempt: int
    error: str
    wait: float
    until: float


class CompactionEvent(EventBase, tag="compaction", frozen=True, kw_only=True):
    """History is being, or was, summarised."""

    status: str
    auto: bool = True
    summary: str = ""
    error: str = ""
    before: int = 0
    after: int = 0


class NoticeEvent(EventBase, tag="notice", frozen=True, kw_only=True):
    """Something a person should know: ``level`` is ``info`` or ``warning``."""

    text: str
    level: str = "info"


class TitleEvent(EventBase, tag="title", frozen=True, kw_only=True):
    """The session has a title."""

    title: str


class ReceiptEvent(EventBase, tag="receipt", frozen=True, kw_only=True):
    """The files that this cell changed, compared with before it."""

    files: tuple[FileChange, ...]
    notes: tuple[str, ...] = ()
    plan: str = ""
    confined: bool = False


class ErrorEvent(EventBase, tag="error", frozen=True, kw_only=True):
    """The run failed; ``message`` is one plain sentence."""

    message: str
    kind: str = ""


class FinishEvent(EventBase, tag="finish", frozen=True, kw_only=True):
    """The run ended.

    ``reason``: ``stop`` (the model was done), ``awaiting`` (a plan waits for approval), ``approved`` (approved, build
    later), ``rejected``, ``stopped`` (a person), ``limit`` (a cap), ``blocked`` (refused too often), ``length``, ``error``.
    ``unanswered``: calls that were refused only because nobody was there to be asked.
    """

    reason: str
    tokens: Tokens = Tokens()
    steps: int = 0
    seconds: float = 0.0
    cost: float | None = None
    text: str = ""
    plan: str = ""
    unanswered: int = 0


Event = (
    SessionEvent
    | StepEvent
    | TextDelta
    | TextEvent
    | ReasoningDelta
    | ReasoningEvent
    | ToolInputDelta
    | ToolOutputDelta
    | ToolEvent
    | AskEvent
    | QuestionEvent
    | PlanEvent
    | PhaseEvent
    | TodoEvent
    | RetryEvent
    | CompactionEvent
    | NoticeEvent
    | TitleEvent
    | ReceiptEvent
    | ErrorEvent
    | FinishEvent
)

LIVE_ONLY = (TextDelta, ReasoningDelta, ToolInputDelta, ToolOutputDelta)

_encoder = msgspec.json.Encoder()


def encode_event(event: Event) -> bytes:
    """An event as one JSON object (no newline); half a surrogate pair, which cannot be encoded, becomes a replacement mark."""
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(clean(msgspec.to_builtins(event)))
