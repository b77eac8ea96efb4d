"""A conversation put together step by step is the one put together at once, whatever changes in it meanwhile."""

from __future__ import annotations

import random

import msgspec
import pytest

from nbagent.message import CompactionPart, Message, Part, TextPart, ToolPart
from nbagent.session.compaction import compacted_view
from nbagent.session.request import TurnMaker


def _part(chance: random.Random, number: int) -> Part:
    if chance.random() < 0.5:
        return TextPart(id=f"p{number}", text=chance.choice(["", " ", "words", f"number {number}"]))
    status = chance.choice(["completed", "error", "running", "pending"])
    call = chance.choice([f"c{number}", "c1"])  # servers repeat ids
    return ToolPart(id=f"p{number}", call_id=call, tool="read", status=status, output="out", error="")


def _changed(chance: random.Random, messages: list[Message], number: int) -> None:
    """One thing that happens to a session: nearly always at its end."""
    what = chance.random()
    if what < 0.6 or not messages:
        role = chance.choice(["user", "assistant", "assistant"])
        error = chance.choice(["", "", "", "dropped: it broke"]) if role == "assistant" else ""
        part = TextPart(id=f"p{number}", text=f"t{number}") if role == "user" else _part(chance, number)
        messages.append(Message(id=f"m{number}", session_id="s", role=role, agent="build", error=error, parts=(part,)))
        return
    at = len(messages) - 1 if what < 0.9 else chance.randrange(len(messages))
    if what > 0.97:
        tail = chance.choice(messages[: at + 1]).id
        part: Part = CompactionPart(id=f"p{number}", auto=True, summary=f"sum {number}", tail_from=tail)
    else:
        part = _part(chance, number)
    messages[at] = msgspec.structs.replace(messages[at], parts=(*messages[at].parts, part))
    if what > 0.995:
        del messages[0]


@pytest.mark.parametrize("seed", range(60))
def test_growing_gives_what_starting_anew_gives(seed: int) -> None:
    chance = random.Random(seed)
    grown, messages, told = TurnMaker(), [], {}
    for number in range(60):
        _changed(chance, messages, number)
        if messages and chance.random() < 0.1:
            told = dict(told) if chance.random() < 0.8 else {}
            told[chance.choice(["", chance.choice(messages).id])] = [f"notice {number}"]
        assert grown.view(messages) == compacted_view(messages)
        assert grown.turns(messages, told) == TurnMaker().turns(messages, told)


def test_what_did_not_change_is_the_very_same_object() -> None:
    maker, messages = TurnMaker(), []
    before: tuple[object, ...] = ()
    for number in range(20):
        user = TextPart(id=f"u{number}", text="go")
        call = ToolPart(id=f"c{number}", call_id=f"c{number}", tool="read", status="completed", output="x")
        messages.append(Message(id=f"a{number}", session_id="s", role="user", agent="build", parts=(user,)))
        messages.append(Message(id=f"b{number}", session_id="s", role="assistant", agent="build", parts=(call,)))
        turns = maker.turns(messages, {})
        assert all(one is other for one, other in zip(before, turns, strict=False))
        before = turns
