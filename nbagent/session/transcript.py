"""A conversation told as text, for the one who is to summarise it: who said and did what, shrunk as far as it takes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nbagent.message import FilePart, Message, Part, ReasoningPart, TextPart, ToolPart


@dataclass(frozen=True, slots=True)
class Shrink:
    """How much a summary request shows: characters of each piece; ``share``: how much of what the agent did, the newest."""

    output: int
    text: int
    thought: int
    share: float = 1.0


def conversation(head: Sequence[Message], shrink: Shrink) -> Iterator[str]:
    """Who said and did what, oldest first. Of what the agent did, only the newest ``share``; of the person, everything."""
    told = [
        (message.role, text) for message in head for part in message.parts if (text := _told_part(part, shrink)).strip()
    ]
    hidden = round(sum(role == "assistant" for role, _ in told) * (1 - shrink.share))
    if hidden:
        yield f"({hidden} older entries of the agent are left out)"
    speaker = ""
    for role, text in told:
        if role == "assistant" and hidden:
            hidden -= 1
            continue
        if role != speaker:
            yield "\nPERSON:" if role == "user" else "\nAGENT:"
            speaker = role
        yield text


def _told_part(part: Part, shrink: Shrink) -> str:
    if isinstance(part, TextPart):
        return "" if part.synthetic else _cut(part.text, shrink.text)
    if isinstance(part, ReasoningPart):
        thought = _cut(part.text, shrink.thought)
        return f"(thought) {thought}" if thought else ""
    if isinstance(part, FilePart):
        return f"(attached {part.source} {part.filename}, {part.mime}) {_cut(part.text, shrink.output)}".rstrip()
    if isinstance(part, ToolPart):
        return _told_call(part, shrink)
    return ""


def _told_call(part: ToolPart, shrink: Shrink) -> str:
    given = _cut(arguments(part), max(shrink.output, 200))
    line = f"(call {part.tool} {given}) {part.status}"
    if part.error:
        return f"{line}: {_cut(part.error, max(shrink.output, 200))}"
    if part.compacted is not None or not shrink.output:
        return line
    pictures = "".join(f" [{each.mime} {each.filename}]" for each in part.attachments)
    return f"{line}:{pictures}\n{_cut(part.output, shrink.output)}".rstrip()


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` characters and a note: the beginning and the end, which say most."""
    if len(text) <= limit:
        return text
    if limit <= 0:
        return ""
    head = limit * 2 // 3
    return f"{text[:head]} […{len(text) - limit:,} characters left out…] {text[len(text) - (limit - head) :]}"


def arguments(part: ToolPart) -> str:
    """The arguments of a call as JSON."""
    return json.dumps(part.input, ensure_ascii=False, default=repr)


def inert(text: str, tag: str) -> str:
    """Text that cannot close the tag it stands in."""
    return text.replace(f"</{tag}", f"<\\/{tag}")
