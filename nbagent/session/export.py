"""A session as Markdown, as JSON, or as a notebook. Pure: values in, text or plain data out.

What a model or a tool wrote is shown, never obeyed: in Markdown it cannot load a picture from elsewhere, begin HTML or close its own
fence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from nbagent.message import (
    AgentPart,
    CompactionPart,
    FilePart,
    Message,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
)

FORMAT = "nbagent-session"
VERSION = 1
MAX_OUTPUT = 4_000
MAX_ARGUMENTS = 1_000
MAGICS: Mapping[str, str] = {"plan": "%%plan", "build": "%%build"}
"""Agent → the magic that asks it. Prompts to any other agent are asked with ``OTHER``."""
OTHER = "%%build"


@dataclass(frozen=True, slots=True)
class About:
    """The session that is exported. ``time_created``: seconds since the epoch."""

    id: str
    title: str = ""
    directory: str = ""
    agent: str = ""
    time_created: float = 0.0


class Exportable(Protocol):
    """What is needed of a session's row."""

    @property
    def id(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def directory(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def time_created(self) -> float: ...


def export(row: Exportable, messages: Sequence[Message], form: str) -> str:
    """A session as ``markdown``, ``json`` or ``notebook``, as one text."""
    about = About(row.id, row.title, row.directory, row.agent, row.time_created)
    if form == "json":
        return to_json(about, messages)
    if form == "notebook":
        return json.dumps(to_notebook(about, messages), indent=1, ensure_ascii=False) + "\n"
    return to_markdown(about, messages)


# ── JSON ──


def to_json(about: About, messages: Sequence[Message]) -> str:
    """Everything, with nothing left out: ``{"format", "version", "session", "messages"}``. ``from_json`` reads it."""
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "session": asdict(about),
        "messages": msgspec.to_builtins(list(messages)),
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def from_json(text: str) -> tuple[About, list[Message]]:
    """What ``to_json`` wrote. Raises ``ValueError`` for anything else."""
    whole = json.loads(text)
    if not isinstance(whole, dict) or whole.get("format") != FORMAT or whole.get("version") != VERSION:
        raise ValueError(f"this is not a session exported by nbagent (format {FORMAT}, version {VERSION})")
    return msgspec.convert(whole["session"], About), msgspec.convert(whole["messages"], list[Message])


# ── Markdown ──


def to_markdown(about: About, messages: Sequence[Message], *, reasoning: bool = False, whole: bool = False) -> str:
    """The session to read. ``reasoning``: thoughts too. ``whole``: outputs of tools uncut."""
    blocks = [_heading(about, messages)]
    for message in messages:
        said = list(_said(message, reasoning, whole))
        if said or message.error:
            blocks += [_speaker(message), *said]
        if message.error:
            blocks.append(f"**Error:** {_line(message.error)}")
    return "\n\n".join(blocks) + "\n"


def _heading(about: About, messages: Sequence[Message]) -> str:
    facts = {
        "Session": f"`{about.id}`",
        "Folder": _code(about.directory) if about.directory else "",
        "Begun": _time(about.time_created),
        "Models": ", ".join(dict.fromkeys(_line(message.model) for message in messages if message.model)),
        "Tokens": _tokens(messages),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items() if value]
    return "\n".join([f"# {_line(about.title) or 'Session'}", "", *lines])


def _tokens(messages: Iterable[Message]) -> str:
    finished = [part.tokens for each in messages for part in each.parts if isinstance(part, StepFinishPart)]
    total = sum(finished, Tokens())
    return f"{total.input:,} in, {total.output:,} out" if total.total else ""


def _speaker(message: Message) -> str:
    who = "You" if message.role == "user" else "nbagent"
    return f"## {who} · {_line(message.agent)}"


def _said(message: Message, reasoning: bool, whole: bool) -> Iterator[str]:
    for part in message.parts:
        told = _told(part, message.role == "user", reasoning, whole)
        if told.strip():
            yield told


def _told(part: Part, person: bool, reasoning: bool, whole: bool) -> str:
    """One part as Markdown; "" for what a reader need not see."""
    if isinstance(part, TextPart):
        return "" if part.synthetic else (_quoted(part.text) if person else harmless(part.text))
    if isinstance(part, ReasoningPart):
        return _quoted(part.text) if reasoning else ""
    if isinstance(part, ToolPart):
        return _call(part, whole)
    if isinstance(part, FilePart):
        return f"Attached: {_code(part.filename)} ({_line(part.mime)})"
    if isinstance(part, PatchPart):
        return _receipt(part)
    return _event(part)


def _event(part: Part) -> str:
    if isinstance(part, AgentPart):
        return f"*From here on: {_line(part.agent)}*"
    if isinstance(part, SubtaskPart):
        return f"*Subtask for {_line(part.agent)}: {_line(part.description)} (session `{part.session_id}`)*"
    if isinstance(part, CompactionPart) and part.status == "completed":
        return "*The conversation before was summarised to save room:*\n\n" + _quoted(part.summary)
    if isinstance(part, RetryPart):
        return f"*Tried again (attempt {part.attempt}): {_line(part.error)}*"
    return ""


def _call(part: ToolPart, whole: bool) -> str:
    title = _line(part.title) or _line(part.tool)
    arguments = json.dumps(part.input, ensure_ascii=False, indent=1, default=repr)
    blocks = [
        f"**{_line(part.tool)}** · {title} · {part.status}",
        fenced(_short(arguments, MAX_ARGUMENTS, whole), "json"),
    ]
    if part.error:
        blocks.append(fenced(_short(part.error, MAX_OUTPUT, whole), "text"))
    elif part.output:
        blocks.append(fenced(_short(part.output, MAX_OUTPUT, whole), "text"))
    if part.attachments:
        blocks.append(
            f"{len(part.attachments)} attachments: " + ", ".join(_line(each.mime) for each in part.attachments)
        )
    return "\n\n".join(blocks)


def _receipt(part: PatchPart) -> str:
    lines = [f"- {file.status} {_code(file.path)}{_counts(file.additions, file.deletions)}" for file in part.files]
    lines += [f"- {_line(note)}" for note in part.notes]
    return "\n".join(["**Files changed**", "", *lines]) if lines else ""


def _counts(additions: int | None, deletions: int | None) -> str:
    return "" if additions is None or deletions is None else f" +{additions} −{deletions}"


def fenced(text: str, language: str = "") -> str:
    """A code block that its text cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_PICTURE = re.compile(r"!(?=\[)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])(?!https?://)")


def harmless(text: str) -> str:
    """Markdown of a model without pictures from elsewhere and without HTML; what stands in code is left as it is.

    A fence that is never closed is closed, so that what follows is not swallowed. Where it is not plain what is code, code is changed too.
    """
    tamed = _outside_code(text)
    return tamed if _is_harmless(tamed) else _tamed_all(text)


def _is_harmless(text: str) -> bool:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    inside = (child for token in tokens for child in token.children or [])
    return not any(token.type in ("html_block", "html_inline", "image") for token in (*tokens, *inside))


def _tamed_all(text: str) -> str:
    return _TAG.sub("&lt;", _PICTURE.sub("", text))


def _outside_code(text: str) -> str:
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        if fence:
            closes = found is not None and found[1].startswith(fence) and not found[2].strip()
            fence = "" if closes else fence
            lines.append(line)
        elif found is not None and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
            lines.append(line)
        else:
            lines.append(_tamed(line))
    return "\n".join([*lines, fence] if fence else lines)


def _tamed(line: str) -> str:
    """One line outside a fence. Code spans on the line stay; a span that goes on to the next line counts as text."""
    pieces = re.split(r"((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))", line)
    # ``split`` gives text, span, its ticks, text, …
    return "".join(_tamed_all(piece) if at % 3 == 0 else piece for at, piece in enumerate(pieces) if at % 3 != 2)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in harmless(text).split("\n"))


def _line(text: str) -> str:
    """Untrusted text inside a line of ours."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", flat)


def _code(text: str) -> str:
    flat = " ".join(text.split())
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", flat)), default=0) + 1)
    pad = " " if "`" in flat else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"


def _short(text: str, limit: int, whole: bool) -> str:
    return text if whole or len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} more characters"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC") if seconds else ""


# ── notebook ──


def to_notebook(about: About, messages: Sequence[Message]) -> dict[str, Any]:
    """A notebook (nbformat 4.5): each prompt a code cell that would ask it again, each answer a Markdown cell."""
    cells = [_cell("markdown", "about", _heading(about, messages))]
    for message in messages:
        cells.extend(_cells(message))
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "nbagent": {"session": about.id},
        },
        "cells": _with_ids(cells),
    }


def _cells(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        if message.text().strip():
            yield _cell("code", message.id, f"{MAGICS.get(message.agent, OTHER)}\n{message.text()}")
        return
    said = list(_said(message, reasoning=False, whole=False))
    if message.error:
        said.append(f"**Error:** {_line(message.error)}")
    if said:
        yield _cell("markdown", message.id, "\n\n".join(said))


def _cell(kind: str, name: str, source: str) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": name, "metadata": {}, "source": source, **code}


def _with_ids(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ids as the format wants them: 1 to 64 letters, digits, ``-`` and ``_``, each once."""
    used: set[str] = set()
    for cell in cells:
        wanted = re.sub(r"[^A-Za-z0-9_-]", "-", cell["id"])[:56] or "cell"
        number = 0
        while (name := f"{wanted}-{number}" if number else wanted) in used:
            number += 1
        used.add(name)
        cell["id"] = name
    return list(cells)
