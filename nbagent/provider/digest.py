"""What a model was asked, made comparable, and what differs between two such askings."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence

import msgspec

from nbagent.provider.places import Ids, Places
from nbagent.provider.provider import AssistantTurn, Image, Request, ResultTurn, Text, Turn, UserTurn

KEPT = 4_000
"""Characters of a message that a cassette keeps in clear; a longer one is told apart by its hash."""


class AskedMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the last messages of a request. ``tool``: whose result it is. ``rest``: hash of a text that was cut."""

    role: str
    text: str
    tool: str = ""
    rest: str = ""


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a request that must be the same for a recorded answer to fit.

    ``thread``: hash of the agent and the first message, which tells conversations that run side by side apart.
    ``messages``: what came after the model's last answer.
    """

    agent: str
    tools: tuple[str, ...] = ()
    messages: tuple[AskedMessage, ...] = ()
    thread: str = ""


def ask_of(request: Request, places: Places, ids: Ids | None = None) -> Asked:
    """The comparable part of ``request``; ids that it mentions are learnt into ``ids``."""
    ids = ids if ids is not None else Ids()
    for turn in request.turns:
        ids.learn(turn_text(turn))
    return Asked(
        agent=request.agent,
        tools=tuple(sorted(tool.name for tool in request.tools)),
        messages=tuple(_message(turn, places, ids) for turn in last_turns(request)),
        thread=_short([request.agent, _plain(_first_text(request), places, ids)])[:8],
    )


def digest_of(asked: Asked) -> str:
    """Sixteen hex digits that stand for ``asked``."""
    messages = [[m.role, m.tool, m.text, m.rest] for m in asked.messages]
    return _short([asked.agent, list(asked.tools), messages])


def last_turns(request: Request) -> tuple[Turn, ...]:
    """What came after the model's last answer: the prompt, or the results of its calls."""
    turns = request.turns
    for index in range(len(turns) - 1, -1, -1):
        if isinstance(turns[index], AssistantTurn):
            return turns[index + 1 :]
    return turns


def prompt_text(request: Request) -> str:
    """The text of the last user turn ("" when there is none), notices included."""
    return next((turn_text(t) for t in reversed(request.turns) if isinstance(t, UserTurn)), "")


def turn_text(turn: Turn) -> str:
    """A turn's words; a picture is named by its type only."""
    if isinstance(turn, AssistantTurn):
        return turn.text
    return "\n".join(_piece_text(piece) for piece in turn.content)


def difference(recorded: Asked, now: Asked) -> list[str]:
    """What differs, as lines to show to a person; empty when nothing does."""
    lines: list[str] = []
    if recorded.agent != now.agent:
        lines.append(f"agent: it was answered for {recorded.agent!r}, {now.agent!r} asks now")
    lines += [f"tool gone: {name}" for name in recorded.tools if name not in now.tools]
    lines += [f"tool new: {name}" for name in now.tools if name not in recorded.tools]
    for index in range(max(len(recorded.messages), len(now.messages))):
        lines += _message_difference(_at(recorded.messages, index), _at(now.messages, index))
    return lines


def _message_difference(old: AskedMessage | None, new: AskedMessage | None) -> list[str]:
    if old == new:
        return []
    if old is None or new is None:
        there = old or new
        assert there is not None
        verb = "message gone" if new is None else "message new"
        return [f"{verb}: {_label(there)}: {there.text[:200]!r}"]
    lines = [f"message differs: {_label(old)}"]
    if _label(old) != _label(new):
        lines.append(f"  it was {_label(old)}, now it is {_label(new)}")
    if old.text == new.text and old.rest != new.rest:
        return [*lines, f"  after the first {KEPT:,} characters"]
    diff = list(difflib.unified_diff(old.text.split("\n"), new.text.split("\n"), "recorded", "now", lineterm="", n=1))
    lines += [f"  {line[:200]}" for line in diff[:24]]
    return [*lines, f"  … {len(diff) - 24} more lines"] if len(diff) > 24 else lines


def _label(message: AskedMessage) -> str:
    return f"result of {message.tool}" if message.tool else f"{message.role}"


def _at(messages: Sequence[AskedMessage], index: int) -> AskedMessage | None:
    return messages[index] if index < len(messages) else None


def _message(turn: Turn, places: Places, ids: Ids) -> AskedMessage:
    text = _plain(turn_text(turn), places, ids)
    tool = turn.name if isinstance(turn, ResultTurn) else ""
    role = "tool" if tool else "user" if isinstance(turn, UserTurn) else "assistant"
    rest = _short([text]) if len(text) > KEPT else ""
    return AskedMessage(role=role, text=text[:KEPT], tool=tool, rest=rest)


def _plain(text: str, places: Places, ids: Ids) -> str:
    return places.plain(ids.out(text)).replace("\r\n", "\n").strip()


def _first_text(request: Request) -> str:
    return next((turn_text(t) for t in request.turns if isinstance(t, UserTurn)), "")


def _piece_text(piece: Text | Image) -> str:
    return piece.text if isinstance(piece, Text) else f"[{piece.mime}]"


def _short(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]
