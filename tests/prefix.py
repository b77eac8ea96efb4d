"""Each request of a conversation extends the one before it, byte for byte, so that a server's cache of prefixes is hit.

Exceptions that have names: a compaction (a new summary leads), a prune (an old result is replaced by its notice), a change of agent
(other tools, other notices), and the note of a cap (said once, without tools).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from nbagent.agent import prompt_text
from nbagent.session.compaction import PRUNED

Body = dict[str, Any]
_LIMIT = re.compile(r"(?:\n\n)?<limit>\n.*?\n</limit>\Z", re.DOTALL)
_REVIEW = prompt_text("review_child").split("{agent}")[0]
_ASIDE = tuple(prompt_text(name) for name in ("compaction_system", "title"))


def broken(bodies: Iterable[Body], *, forks: bool = False) -> list[str]:
    """Sentences about requests (in the order of their arrival) that do not extend the one before of their conversation.

    ``forks``: sessions are copied here, so a request may go on from any earlier one.
    """
    conversations: list[list[Body]] = []
    found: list[str] = []
    for number, body in enumerate(bodies, 1):
        if "messages" not in body or _is_aside(body):
            continue
        told = _place(conversations, body, forks)
        if told:
            found.append(f"request {number}: {told}")
    return found


def _place(conversations: list[list[Body]], body: Body, forks: bool) -> str:
    """Add a request to the conversation that it belongs to; says what is wrong when it belongs to none."""
    same = [each for each in reversed(conversations) if each[-1]["messages"][0] == body["messages"][0]]
    for judge in (extends, excused):
        for conversation in same:
            if not judge(conversation[-1], body):
                conversation.append(body)
                return ""
    if len(body["messages"]) == 2:
        conversations.append([body])
        return ""
    if forks and any(not extends(earlier, body) for each in same for earlier in each):
        conversations.append([body])
        return ""
    if not same:
        conversations.append([body])
        return "it begins in the middle of a conversation whose system prompt was never sent"
    same[0].append(body)
    return extends(same[0][-2], body)


def _is_aside(body: Body) -> bool:
    """Requests beside the conversation: summaries, titles, a parent's opinion of a plan."""
    messages = body["messages"]
    return messages[0].get("content") in _ASIDE or (
        len(messages) == 2 and _text(messages[1]).startswith(_REVIEW) and not body.get("tools")
    )


def extends(last: Body, body: Body) -> str:
    """What keeps ``body`` from being ``last`` and more; "" when it is."""
    before, limited_before = _without_limit(last)
    after, limited = _without_limit(body)
    tools_before, tools = last.get("tools", []), body.get("tools", [])
    if not (limited or limited_before) and _bytes(tools[: len(tools_before)]) != _bytes(tools_before):
        return f"the tools changed: {_names(tools_before)} → {_names(tools)}"
    return _messages(before, after)


def _messages(before: Sequence[Body], after: Sequence[Body]) -> str:
    if len(after) < len(before):
        return f"{len(before)} messages became {len(after)}"
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if _bytes(old) == _bytes(new):
            continue
        if place == len(before) - 1 and _grew(old, new):
            continue
        return f"message {place} changed:\n  {_bytes(old)[:600]!r}\n  {_bytes(new)[:600]!r}"
    return ""


def excused(last: Body, body: Body) -> str:
    """The same, with the exceptions that have names."""
    before, _ = _without_limit(last)
    after, _ = _without_limit(body)
    if _summary(after) and _summary(after) != _summary(before):
        return ""
    if _bytes(last.get("tools", [])) != _bytes(body.get("tools", [])):
        answered = [message for message in before if message["role"] != "user"]
        return _messages(answered, [message for message in after if message["role"] != "user"])
    pruned = [
        new if old.get("role") == new.get("role") == "tool" and new.get("content") == PRUNED else old
        for old, new in zip(before, after, strict=False)
    ]
    return _messages([*pruned, *before[len(pruned) :]], after)


def _grew(old: Body, new: Body) -> bool:
    """The newest message may become longer (a second prompt, a notice); what it said stays as it was."""
    if old["role"] != new["role"] or old["role"] != "user":
        return False
    one, other = old["content"], new["content"]
    if isinstance(one, str) and isinstance(other, str):
        return other.startswith(one)
    if isinstance(one, list) and isinstance(other, list):
        return bool(_bytes(other[: len(one)]) == _bytes(one))
    return False


def _without_limit(body: Body) -> tuple[list[Body], bool]:
    """The messages without the note of a cap, and whether there was one."""
    messages = list(body["messages"])
    text = messages[-1].get("content")
    if body.get("tools") or messages[-1]["role"] != "user" or not isinstance(text, str) or not _LIMIT.search(text):
        return messages, False
    rest = _LIMIT.sub("", text)
    messages[-1:] = [{**messages[-1], "content": rest}] if rest else []
    return messages, True


def _summary(messages: Sequence[Body]) -> str:
    found = re.search(r"<summary>.*?</summary>", _text(messages[1]) if len(messages) > 1 else "", re.DOTALL)
    return found.group(0) if found else ""


def _text(message: Body) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _names(tools: Sequence[Body]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]
