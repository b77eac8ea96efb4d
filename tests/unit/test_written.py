"""A conversation written as it grows is, byte for byte, the one that is written at once."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.provider.chat import ChatForm
from nbagent.provider.estimate import Estimates, estimate_request
from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Image,
    Request,
    ResultTurn,
    Text,
    ToolSpec,
    Turn,
    UserTurn,
)
from nbagent.provider.quirks import Quirks
from nbagent.provider.wire import chat_body

PICTURE = Image("image/png", "aGk=", "p.png")
WORDS = st.text(alphabet='ab é\ud800\n"', min_size=0, max_size=8)
TOOLS = (ToolSpec("t", "d", {"type": "object", "properties": {}}),)


@st.composite
def conversations(draw: Any) -> list[Turn]:
    turns: list[Turn] = [UserTurn((Text("begin"),))]
    for number in range(draw(st.integers(0, 5))):
        calls = tuple(
            CallTurn(f"c{number}.{each}", "t", {"a": draw(WORDS)}, {}) for each in range(draw(st.integers(0, 2)))
        )
        turns.append(AssistantTurn(draw(WORDS), (), calls))
        for each in calls:
            content = (Text(draw(WORDS)), *((PICTURE,) if draw(st.booleans()) else ()))
            turns.append(ResultTurn(each.id, each.name, content))
        if not calls or draw(st.booleans()):
            turns.append(UserTurn((Text(draw(WORDS)),)))
    return turns


@settings(max_examples=150, deadline=None)
@given(turns=conversations(), data=st.data())
def test_as_it_grows(turns: list[Turn], data: st.DataObject) -> None:
    form, estimates = ChatForm(False), Estimates()
    for _ in range(4):
        end = data.draw(st.integers(1, len(turns)))
        some = list(turns[:end])
        if data.draw(st.booleans()):
            some[-1] = UserTurn((Text("something else"),))
        quirks = Quirks(
            no_system=data.draw(st.booleans()), vision=data.draw(st.sampled_from([None, False])), short_ids=end % 2 == 0
        )
        request = Request(model="m", system="S", turns=tuple(some), tools=TOOLS if end % 3 else (), session_id="s")
        body = form.body(request, quirks, {"top_k": 1} if end % 2 else {})
        at_once = chat_body(request, quirks, options={"top_k": 1} if end % 2 else {})
        assert dict(body) == at_once
        assert json.loads(body.content) == json.loads(json.dumps(at_once))
        assert estimates.request(request) == estimate_request(request)
        known = form.reader(request, lambda value: ValueError(value))._answer._taken
        assert known == {call.id for turn in some if isinstance(turn, AssistantTurn) for call in turn.calls}


def test_only_what_is_new_is_written() -> None:
    form = ChatForm(False)
    turns: tuple[Turn, ...] = (UserTurn((Text("begin"),)),)
    bodies = []
    for number in range(4):
        call = CallTurn(f"c{number}", "t", {}, {})
        turns = (*turns, AssistantTurn("", (), (call,)), ResultTurn(call.id, "t", (Text("r"),)))
        bodies.append(form.body(Request(model="m", system="S", turns=turns), Quirks(), {}))
    for before, after in itertools.pairwise(bodies):
        assert all(one is other for one, other in zip(before["messages"], after["messages"], strict=False))
