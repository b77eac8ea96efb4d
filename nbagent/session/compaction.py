"""When a session has grown too long, what of it stays, and what is asked for in place of the rest. Pure.

Sizes are tokens. ``estimate`` turns text into tokens; a provider's own count is used wherever there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from nbagent.agent import prompt_text
from nbagent.message import (
    CompactionPart,
    FilePart,
    Message,
    Part,
    PatchPart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from nbagent.provider.estimate import PER_CALL, PER_IMAGE, PER_MESSAGE
from nbagent.session.transcript import Shrink, arguments, conversation, inert

Estimate = Callable[[str], int]

KEEP_TOKENS = 15_000
PROTECTED_TOKENS = 40_000
WORTHWHILE_TOKENS = 20_000
NEVER_PRUNED = frozenset({"skill"})
PRUNED = "[This output was removed to save room. Call the tool again if it is needed.]"
"""What the model sees in place of a pruned output."""

RESERVE_PERCENT = 15
RESERVE_TOKENS = 16_000
SMALL_WINDOW = 32_000
PROMPT_CHARS = 20_000


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ceiling(window: int | None, buffer: int | None = None) -> int | None:
    """The size in tokens beyond which a session is compacted; None where the window is unknown.

    ``window``: the model's input limit, else its context limit. ``buffer``: tokens to keep free instead of the usual reserve
    (15 %, and at least 16,000 where the window is at least 32,000); one that leaves nothing is not used.
    """
    if not window or window <= 0:
        return None
    if buffer is not None and 0 <= buffer < window:
        return window - buffer
    reserve = window * RESERVE_PERCENT // 100
    if window >= SMALL_WINDOW:
        reserve = max(reserve, RESERVE_TOKENS)
    return window - reserve


def should_compact(size: int, window: int | None, *, auto: bool = True, buffer: int | None = None) -> bool:
    """Whether a request of ``size`` tokens is past the ceiling. Never when ``auto`` is off or the window is unknown."""
    limit = ceiling(window, buffer)
    return auto and limit is not None and size > limit


def keep_tokens(window: int | None, fixed: int = 0) -> int:
    """How much of the end is kept word for word: 15,000 tokens, less where that would fill a small window.

    ``fixed``: tokens of the system prompt and the tools, which are in every request.
    """
    limit = ceiling(window)
    return KEEP_TOKENS if limit is None else max(min(KEEP_TOKENS, limit // 3, (limit - fixed) // 2), 1)


# ── how large ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def part_size(part: Part, estimate: Estimate) -> int:
    """Tokens of one part as the model sees it. Parts that never reach the model count nothing."""
    if isinstance(part, (TextPart, ReasoningPart)):
        return estimate(part.text)
    if isinstance(part, ToolPart):
        return PER_CALL + estimate(part.tool) + estimate(arguments(part)) + output_size(part, estimate)
    if isinstance(part, FilePart):
        return estimate(part.filename) + (estimate(part.text) if part.text or not part.data else PER_IMAGE)
    return 0


def output_size(part: ToolPart, estimate: Estimate) -> int:
    """Tokens of a call's result as the model sees it: nothing but a notice once it is pruned."""
    if part.compacted is not None:
        return estimate(PRUNED)
    return estimate(part.output) + estimate(part.error) + PER_IMAGE * len(part.attachments)


def messages_size(messages: Iterable[Message], estimate: Estimate) -> int:
    """Tokens of messages by estimate alone."""
    return sum(PER_MESSAGE + sum(part_size(part, estimate) for part in message.parts) for message in messages)


def request_size(messages: Sequence[Message], estimate: Estimate, fixed: int = 0, *, pruned: bool = True) -> int:
    """Tokens that the next request will have.

    The newest step that the provider counted after the newest completed compaction, plus an estimate of what came since, less what was
    pruned since; without one, an estimate of everything. ``fixed``: tokens of the system prompt and the tools, which only the second way
    needs. A step is a message of its own. ``pruned``: whether any output was pruned at all; False saves looking for it.
    """
    since = 0
    for at in range(len(messages) - 1, -1, -1):
        parts = messages[at].parts
        for number in range(len(parts) - 1, -1, -1):
            part = parts[number]
            if isinstance(part, StepFinishPart) and part.tokens.total > 0:
                results = sum(output_size(call, estimate) for call in _step_calls(parts[:number]))
                gone = _pruned_since(messages[:at], messages[at].time_created, estimate) if pruned else 0
                return part.tokens.total + since + results - gone
            if isinstance(part, CompactionPart) and part.status == "completed":
                return fixed + _estimated(messages, estimate)
            since += part_size(part, estimate)
    return fixed + _estimated(messages, estimate)


def _estimated(messages: Sequence[Message], estimate: Estimate) -> int:
    summary, view = compacted_view(messages)
    return (estimate(summary) if summary else 0) + messages_size(view, estimate)


def _step_calls(parts: Sequence[Part]) -> Iterator[ToolPart]:
    """The calls of the step that ends ``parts``: the provider counted them, but not yet their results."""
    for part in reversed(parts):
        if isinstance(part, (StepStartPart, StepFinishPart)):
            return
        if isinstance(part, ToolPart):
            yield part


def _pruned_since(messages: Iterable[Message], time: float, estimate: Estimate) -> int:
    """What the provider counted and will not see again."""
    gone = (
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and part.compacted is not None and part.compacted > time
    )
    return sum(_freed(part, estimate) for part in gone)


def _freed(part: ToolPart, estimate: Estimate) -> int:
    return output_size(msgspec.structs.replace(part, compacted=None), estimate) - estimate(PRUNED)


# ── what stays ────────────────────────────────────────────────────────────────────────────────────────────────────────


def select_tail(messages: Sequence[Message], estimate: Estimate, keep: int = KEEP_TOKENS) -> str:
    """Where the part that is kept word for word begins: the id of a message, or of a step-start part inside one; "" for nowhere.

    ``messages``: as the model sees them now (``compacted_view``). The tail is the longest end of them within ``keep`` tokens; it
    begins between steps or messages, so no call is parted from its result. A prompt that nobody has answered yet is always in it.
    """
    chosen = ""
    size = 0
    for start, parts, opens in _units_from_the_end(messages):
        size += sum(part_size(part, estimate) for part in parts) + (PER_MESSAGE if opens else 0)
        if size > keep and not (chosen == "" and opens == "prompt"):
            break
        chosen = start
        if size > keep:
            break
    return chosen


def _units_from_the_end(messages: Sequence[Message]) -> Iterator[tuple[str, tuple[Part, ...], str]]:
    """(id to begin at, parts, what it opens) for each piece that may not be cut, newest first.

    ``opens``: "" a later step of a message, "message" the first piece of one, "prompt" a prompt without an answer.
    """
    for back, message in enumerate(reversed(messages)):
        pieces = _pieces(message)
        for start, parts in reversed(pieces[1:]):
            yield start, parts, ""
        yield message.id, pieces[0][1], "prompt" if back == 0 and message.role == "user" else "message"


def _pieces(message: Message) -> list[tuple[str, tuple[Part, ...]]]:
    """A message cut before each step but its first."""
    cuts = [at for at, part in enumerate(message.parts) if isinstance(part, StepStartPart)]
    borders = [0, *cuts[1:], len(message.parts)]
    return [
        (message.id if begin == 0 else message.parts[begin].id, message.parts[begin:end])
        for begin, end in pairwise(borders)
    ]


def split(messages: Sequence[Message], tail_from: str) -> tuple[list[Message], list[Message]]:
    """(head, tail): the messages before ``tail_from`` and those from it on. An id that is not there: all is head."""
    for at, message in enumerate(messages):
        if message.id == tail_from:
            return list(messages[:at]), list(messages[at:])
        cut = next((i for i, part in enumerate(message.parts) if part.id == tail_from), None) if tail_from else None
        if cut is not None:
            before = msgspec.structs.replace(message, parts=message.parts[:cut])
            after = msgspec.structs.replace(message, parts=message.parts[cut:])
            head = [*messages[:at], *([before] if before.parts else [])]
            return head, [after, *messages[at + 1 :]]
    return list(messages), []


def compacted_view(messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """(summary, messages) as the model should see them: after the newest completed compaction, its tail and what came since.

    Without one, (None, the messages). Compaction parts are not among the parts. A tail that begins in the middle of an answer is
    led by the prompt that the answer is for, so that the person's words are still there as they were said. What comes later only
    adds to the end.
    """
    summary: str | None = None
    prompt: Message | None = None
    view: list[Message] = []
    for message in messages:
        if CompactionPart not in map(type, message.parts) and not (view and view[-1].id == message.id):
            view.append(message)
            continue
        for parts, done in _segments(message):
            _append(view, message, parts)
            if done is not None:
                head, tail = split(view, done.tail_from)
                prompt = _prompt_of(head) or prompt
                view = _led(tail, prompt, _unfinished(head))
                summary = done.summary
    return summary, view


def _segments(message: Message) -> Iterator[tuple[tuple[Part, ...], CompactionPart | None]]:
    """The parts up to each completed compaction, with it; then the rest. Other compaction parts are left out."""
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, CompactionPart):
            parts.append(part)
        elif part.status == "completed":
            yield tuple(parts), part
            parts = []
    yield tuple(parts), None


def _append(view: list[Message], message: Message, parts: tuple[Part, ...]) -> None:
    """Put (a piece of) a message at the end; a message that held nothing but marks is gone, one that was empty stays."""
    if view and view[-1].id == message.id:
        view[-1] = msgspec.structs.replace(message, parts=view[-1].parts + parts)
    elif parts or not message.parts:
        view.append(message if len(parts) == len(message.parts) else msgspec.structs.replace(message, parts=parts))


def _led(tail: list[Message], prompt: Message | None, unfinished: bool) -> list[Message]:
    wanted = tail[0].role != "user" if tail else unfinished
    return [prompt, *tail] if wanted and prompt is not None else tail


def _unfinished(head: Sequence[Message]) -> bool:
    """Whether the work on the newest prompt was to go on after ``head``."""
    parts = head[-1].parts if head else ()
    last = next((part for part in reversed(parts) if isinstance(part, (ToolPart, StepFinishPart))), None)
    return isinstance(last, ToolPart) or (isinstance(last, StepFinishPart) and last.reason == "tool-calls")


def _prompt_of(head: Sequence[Message]) -> Message | None:
    """The newest prompt that was cut away, as the person wrote it; None when it is too long to be repeated."""
    prompt = next((message for message in reversed(head) if message.role == "user" and message.text()), None)
    if prompt is None or len(prompt.text()) > PROMPT_CHARS:
        return None
    words = tuple(part for part in prompt.parts if isinstance(part, TextPart) and not part.synthetic)
    return msgspec.structs.replace(prompt, parts=words)


# ── pruning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Prune:
    """Tool parts (ids, oldest first) whose outputs leave the request, and the tokens that this frees."""

    ids: tuple[str, ...] = ()
    freed: int = 0


def prune(
    messages: Sequence[Message],
    estimate: Estimate,
    *,
    protect: int = PROTECTED_TOKENS,
    worthwhile: int = WORTHWHILE_TOKENS,
    never: frozenset[str] = NEVER_PRUNED,
) -> Prune:
    """Which outputs to empty: those older than the newest ``protect`` tokens of output, if that frees ``worthwhile`` or more.

    An output on the border stays. Outputs of ``never``, of calls that are not done and those already pruned stay as they are.
    """
    ids: list[str] = []
    seen = freed = 0
    notice = estimate(PRUNED)
    for part in _calls_from_the_end(messages):
        if part.status not in ("completed", "error") or part.compacted is not None:
            continue
        size = output_size(part, estimate)
        if seen >= protect and part.tool not in never and size > notice:
            ids.append(part.id)
            freed += size - notice
        seen += size
    return Prune(tuple(reversed(ids)), freed) if ids and freed >= worthwhile else Prune()


def _calls_from_the_end(messages: Sequence[Message]) -> Iterator[ToolPart]:
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolPart):
                yield part


def mark(messages: Sequence[Message], ids: Iterable[str], now: float) -> list[Message]:
    """The messages with these tool parts marked as pruned at ``now``."""
    wanted = frozenset(ids)

    def marked(part: Part) -> Part:
        if isinstance(part, ToolPart) and part.id in wanted and part.compacted is None:
            return msgspec.structs.replace(part, compacted=now)
        return part

    return [msgspec.structs.replace(each, parts=tuple(marked(part) for part in each.parts)) for each in messages]


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────────────────


LEVELS = (
    Shrink(output=8_000, text=60_000, thought=4_000),
    Shrink(output=2_000, text=20_000, thought=0),
    Shrink(output=500, text=6_000, thought=0),
    Shrink(output=120, text=2_000, thought=0),
    Shrink(output=0, text=800, thought=0),
    Shrink(output=0, text=400, thought=0, share=0.5),
    Shrink(output=0, text=200, thought=0, share=0.2),
    Shrink(output=0, text=100, thought=0, share=0.03),
)


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The text to send to the summarising agent, and how far it was shrunk (a place in ``LEVELS``)."""

    text: str
    level: int


def summary_request(
    head: Sequence[Message],
    earlier: str | None,
    estimate: Estimate,
    *,
    limit: int | None = None,
    level: int = 0,
    plan: str = "",
    changed: Sequence[str] = (),
    refused: str = "",
) -> SummaryRequest | None:
    """What to ask in order to replace ``head`` by a summary; None when it cannot be made small enough.

    ``earlier``: the summary that ``head`` itself follows; always shown whole. ``limit``: tokens the text may have. ``level``: where to
    begin shrinking; after a server found the request of level n too large, ask again with n + 1. ``plan``: path and state of the bound
    plan. ``changed``: files already changed, besides those in the receipts among ``head``. ``refused``: the text of level n; what is not
    shorter would be refused again.
    """
    files = list(dict.fromkeys([*_changed_files(head), *changed]))
    for at in range(max(level, 0), len(LEVELS)):
        text = _request_text(head, earlier or "", LEVELS[at], plan, files)
        if refused and len(text) >= len(refused):
            continue
        if limit is None or estimate(text) <= limit:
            return SummaryRequest(text, at)
    return None


def summary_turn(summary: str) -> str:
    """The summary as the user turn that begins the shortened conversation."""
    return prompt_text("compaction_summary").replace("{summary}", inert(summary, "summary"))


def _request_text(head: Sequence[Message], earlier: str, shrink: Shrink, plan: str, files: Sequence[str]) -> str:
    pieces = {
        "{earlier}": _block("earlier_summary", earlier),
        "{plan}": _block("plan", plan),
        "{changed}": _block("changed_files", "\n".join(files)),
        "{conversation}": inert("\n".join(conversation(head, shrink)), "conversation"),
    }
    template = prompt_text("compaction_input")
    for name, text in pieces.items():  # split, so that a name inside a text is never filled in
        before, _, after = template.partition(name)
        pieces[name] = before + text
        template = after
    return "".join(pieces.values()) + template


def _block(tag: str, text: str) -> str:
    return f"<{tag}>\n{inert(text, tag)}\n</{tag}>\n\n" if text.strip() else ""


def _changed_files(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, PatchPart):
                yield from (f"{file.path} ({file.status})" for file in part.files)
