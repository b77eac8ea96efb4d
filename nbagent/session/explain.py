"""A finished cell told step by step: what the model was asked, which tools it saw and why others were hidden, what became of its calls.

Pure: from the session's messages and state to Markdown. The request of a step is put together again by the very code that built it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbagent.errors import SessionError
from nbagent.message import Message, StepFinishPart, StepStartPart, ToolPart
from nbagent.provider.provider import AssistantTurn, Image, ResultTurn, Text, Turn, UserTurn
from nbagent.session.compaction import compacted_view
from nbagent.session.reminders import shown
from nbagent.session.request import TurnMaker
from nbagent.session.state import State

CUT = 400
_TARGETS = ("filePath", "command", "path", "pattern", "url", "subagent_type", "code")


def explain_cell(messages: Sequence[Message], state: State, back: int = 0, *, whole: bool = False) -> str:
    """The last prompt of a session, or the one ``back`` prompts before it. ``whole``: nothing is cut.

    Raises ``SessionError`` when there is no such prompt.
    """
    prompts = [place for place, message in enumerate(messages) if message.role == "user" and message.text()]
    if back >= len(prompts):
        raise SessionError("There is no finished cell to explain yet.")
    start = prompts[-1 - back]
    end = prompts[-back] if back else len(messages)
    lines = [f"# {_short(messages[start].text(), whole=False)}", ""]
    step = 0
    seen: tuple[object, object] | None = None
    for place in range(start + 1, end):
        message = messages[place]
        opening = next((part for part in message.parts if isinstance(part, StepStartPart)), None)
        if message.role != "assistant" or opening is None:
            continue
        step += 1
        offered = (opening.tools, opening.hidden)
        lines += _step(step, message, opening, messages[:place], state, whole, same_tools=offered == seen)
        seen = offered
    return "\n".join(lines).rstrip() + "\n"


def _step(
    number: int,
    message: Message,
    opening: StepStartPart,
    before: Sequence[Message],
    state: State,
    whole: bool,
    *,
    same_tools: bool,
) -> Iterator[str]:
    yield f"## Step {number}: {message.agent}, {message.model}"
    yield ""
    yield from ["**Tools**: as in the step before"] if same_tools else _tools(opening)
    yield ""
    yield f"**Request as sent**: the system prompt ({len(state.system):,} characters), then"
    yield from _turns(before, message.agent, state, whole)
    yield ""
    yield "**Answer**"
    yield from _answer(message, whole)
    yield ""


def _tools(opening: StepStartPart) -> Iterator[str]:
    yield f"**Tools offered** ({len(opening.tools)}): {', '.join(f'`{name}`' for name in opening.tools) or 'none'}"
    if opening.hidden:
        yield ""
        yield "**Hidden**, never offered and refused if called:"
        yield from (f"- `{name}` by the rule `{rule}`" for name, rule in sorted(opening.hidden.items()))


def _turns(before: Sequence[Message], agent: str, state: State, whole: bool) -> Iterator[str]:
    segments = {notice.segment for notice in state.notices if notice.agent == agent}
    known = {message.id for message in before}
    segment = max(
        (s for s in segments if any(n.segment == s and n.message_id in known for n in state.notices)), default=0
    )
    notices = shown(state.notices, agent, segment, compacted_view(before)[1])
    yield from turn_lines(TurnMaker().turns(before, notices), whole)


def turn_lines(turns: Sequence[Turn], whole: bool = True) -> Iterator[str]:
    """The turns of a request, numbered; without ``whole`` long ones are cut and those in the middle are only counted."""
    left_out = range(1, 1 if whole else max(1, len(turns) - 5))
    for number, turn in enumerate(turns):
        if number == left_out.stop and left_out:
            places = f"{left_out.start + 1}–{number}" if len(left_out) > 1 else f"{number}"
            yield f"{places}. … as sent before"
        if number not in left_out:
            yield f"{number + 1}. {_turn(turn, whole, first=number == 0)}"


def _turn(turn: Turn, whole: bool, first: bool = False) -> str:
    if isinstance(turn, UserTurn):
        return f"user: {_content(turn.content, whole or first)}"
    if isinstance(turn, ResultTurn):
        return f"result of `{turn.name}`: {_content(turn.content, whole)}"
    assert isinstance(turn, AssistantTurn)
    calls = ", ".join(f"`{call.name}`" for call in turn.calls)
    said = _short(turn.text, whole=whole)
    return "assistant: " + " · ".join(piece for piece in (said, f"calls {calls}" if calls else "") if piece)


def _content(content: Sequence[Text | Image], whole: bool) -> str:
    pieces = [
        _short(each.text, whole=whole) if isinstance(each, Text) else f"[{each.mime} picture]" for each in content
    ]
    return " ⏎ ".join(pieces)


def _answer(message: Message, whole: bool) -> Iterator[str]:
    text = message.text()
    if text:
        yield f"- said: {_short(text, whole=whole)}"
    for part in message.parts:
        if isinstance(part, ToolPart):
            what = f": {_short(title, whole=False)}" if (title := part.title or _target(part)) else ""
            yield f"- called `{part.tool}`{what} — {_fate(part)}"
        if isinstance(part, StepFinishPart):
            counted = f", {part.tokens.input:,} tokens in, {part.tokens.output:,} out" if part.tokens.output else ""
            yield f"- ended: {part.reason}{counted}"


def _target(part: ToolPart) -> str:
    """What a call was for that was refused before it had a title."""
    return next((str(part.input[key]) for key in _TARGETS if part.input.get(key)), "")


def _fate(part: ToolPart) -> str:
    if part.rule is not None:
        return "refused by the rule `{permission} {pattern}: {action}` ({layer})".format(**part.rule)
    if part.status == "error":
        return f"error: {_short(part.error, whole=False)}"
    return part.status


def _short(text: str, *, whole: bool) -> str:
    if whole:
        return text.strip().replace("\n", "\n   ")
    flat = " ".join(text.split())
    return flat if len(flat) <= CUT else f"{flat[:CUT]}…"
