"""What an item of the record is called in words, for every form in which it is drawn. Plain text, unescaped."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from nbagent.notebook.receipt import duration

Item = dict[str, Any]

UNFINISHED = (
    "nbagent: a run is seen here while it goes on, where widgets are shown. In a saved notebook it had not ended; "
    "%agent sessions shows how to go on."
)
"""What stands for a live view where no widget is shown."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_TARGETS = ("filePath", "command", "path", "pattern", "url", "name", "subagent_type", "code")
_TODO = {"completed": "☑", "in_progress": "◐", "cancelled": "☒"}
_BY = {"auto": "automatically", "cassette": "by the cassette", "nobody": "nobody was there", "rule": "by a rule"}


def clean(text: str) -> str:
    """``text`` without control and direction marks, which terminals and viewers obey."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


def tool_title(item: Item) -> str:
    """``edit src/model.py``; a call that was refused before it had a title is named by what it was for."""
    title, name = item["title"].strip(), str(item["name"])
    if not title:
        given = item["input"]
        target = next((str(given[key]) for key in _TARGETS if given.get(key)), "")
        words = " ".join(f"{name} {target}".split())
        return words if len(words) <= 100 else words[:99] + "…"
    return title if title == name or title.startswith(f"{name} ") else f"{name} {title}"


def tool_state(item: Item, times: bool = True) -> str:
    """``✓ 0.2 s``, ``✗ failed``, ``✗ refused by edit * deny (floor)``, ``✗ refused by the person``."""
    if item["refused"]:
        return f"✗ refused by {rule_words(item['rule'])}"
    if item["metadata"].get("refused"):
        return "✗ refused by the person"
    if item["state"] == "error":
        return "✗ interrupted" if item["error"].startswith("interrupted") else "✗ failed"
    if item["state"] != "completed":
        return str(item["state"])
    exit_code = item["metadata"].get("exit")
    mark = f"✗ exit {exit_code}" if isinstance(exit_code, int) and exit_code else "✓"
    seconds = item["seconds"]
    return f"{mark} {duration(seconds)}" if times and seconds is not None and seconds >= 0.05 else mark


def rule_words(rule: dict[str, Any] | None) -> str:
    """``edit *: deny (floor)``"""
    if not rule:
        return "the rules"
    layer = f" ({rule['layer']})" if rule.get("layer") else ""
    return f"{rule.get('permission', '')} {rule.get('pattern', '')}: {rule.get('action', '')}{layer}"


def group_title(items: list[Item]) -> str:
    """``read 6 files``, or ``looked 7 times (read 4, grep 3)``."""
    counts = Counter(item["name"] for item in items)
    if set(counts) == {"read"}:
        return f"read {len(items)} files"
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"looked {len(items)} times ({listed})"


def groupable(item: Item) -> bool:
    """Whether a tool item may be drawn in a group of reads."""
    quiet = item["kind"] == "tool" and item["effect"] == "reads" and item["state"] == "completed"
    return quiet and not item["images"]


def grouped(items: list[Item]) -> list[Item | list[Item]]:
    """Neighbouring reads as one list each, everything else alone."""
    out: list[Item | list[Item]] = []
    for item in items:
        if groupable(item) and out and isinstance(out[-1], list):
            out[-1].append(item)
        elif groupable(item):
            out.append([item])
        else:
            out.append(item)
    return [entry[0] if isinstance(entry, list) and len(entry) == 1 else entry for entry in out]


def ask_words(item: Item) -> str:
    """``edit src/a.py → allowed once``"""
    return f"{ask_title(item)} → {ask_answer(item)}"


def ask_title(item: Item) -> str:
    """What was asked about."""
    return str(item["title"] or item["permission"])


def ask_answer(item: Item) -> str:
    """``allowed once``, ``refused, answered by the cassette: not now``"""
    reply = {"once": "allowed once", "always": "allowed always", "reject": "refused", "expired": "not answered"}
    answer: str = reply.get(item["reply"], "waits for an answer")
    by = _BY.get(item["by"], "")
    if by:
        answer += f" ({by})" if item["by"] == "nobody" else f", answered {by}"
    if item["feedback"]:
        answer += f": {item['feedback']}"
    return answer


def review_words(item: Item) -> str:
    """``plan .nbagent/plans/x.md: approved``"""
    status: str = {
        "awaiting": "not approved yet",
        "approved": "approved, to be built later" if item["action"] == "later" else "approved",
        "revised": "sent back",
        "rejected": "rejected",
        "expired": "not decided",
    }.get(item["status"], str(item["status"]))
    if item["edited"]:
        status += ", edited by the person"
    by = _BY.get(item["by"], "")
    if by and item["by"] != "nobody":
        status += f", answered {by}"
    comment = f", saying: {item['comment']}" if item["comment"] else ""
    return f"{status}{comment}"


def answers_words(item: Item) -> list[tuple[str, str]]:
    """(question, answer) of a form."""
    given = item["answers"] or []
    none = {"expired": "not answered", "declined": "declined"}.get(item["status"], "no answer")
    return [
        (question["question"] or question["header"], ", ".join(given[i]) if i < len(given) and given[i] else none)
        for i, question in enumerate(item["questions"])
    ]


def todo_words(todo: dict[str, str]) -> str:
    """``☑ run the tests``"""
    return f"{_TODO.get(todo.get('status', ''), '☐')} {todo.get('content', '')}"


def retry_words(item: Item, times: bool = True) -> str:
    """``try 2 after 4 s: server busy``"""
    wait = f" after {duration(item['wait'])}" if times else ""
    return f"tried again{wait} (attempt {item['attempt'] + 1}): {item['error']}"


def compaction_words(item: Item) -> str:
    """``history summarised: 84,000 → 12,000 tokens``"""
    if item["status"] == "failed":
        return f"history could not be summarised: {item['error']}"
    if item["status"] == "running":
        return "history is being summarised"
    sizes = f": {item['before']:,} → {item['after']:,} tokens" if item["before"] and item["after"] else ""
    return f"history summarised{sizes}"


def badges(record: dict[str, Any]) -> str:
    """``PLAN``, or ``PLAN → BUILD`` where a plan was built in the same cell."""
    badge = str(record["head"]["badge"] or "nbagent")
    changes = (item["previous"].upper() for item in record["items"] if item["kind"] == "agent" and item["previous"])
    began = next(changes, badge)
    return badge if began == badge else f"{began} → {badge}"


def head_words(record: dict[str, Any]) -> str:
    """``PLAN · only writes .nbagent/plans/x.md · gpt-5 · /home/me/project``"""
    head = record["head"]
    return " · ".join(part for part in (badges(record), head["writes"], head["model"], head["root"]) if part)
