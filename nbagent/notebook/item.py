"""The items of a record, made from the values that events and asks carry, and cut to size. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.message import Attachment, FileChange
from nbagent.permission.ask import Ask, Reply

CUT = 20_000
WHOLE = 2_000_000
MAX_IMAGE = 1_000_000

Item = dict[str, Any]

OPEN = {"ask": ("reply", ""), "question": ("status", "open"), "review": ("status", "awaiting")}

WAITING: dict[str, Callable[[Item], str]] = {
    "ask": lambda item: f"your answer: {item['title']}",
    "question": lambda item: "your answer to a question",
    "review": lambda item: "approval of the plan",
}


def is_open(item: Item) -> bool:
    rule = OPEN.get(item["kind"])
    return rule is not None and item[rule[0]] == rule[1]


def new_tool(name: str) -> Item:
    return {
        "kind": "tool",
        "name": name,
        "title": "",
        "state": "writing",
        "input": {},
        "output": "",
        "error": "",
        "rule": None,
        "metadata": {},
        "seconds": None,
        "size": 0,
        "effect": "",
        "refused": False,
        "images": [],
    }


def review_item(path: str, text: str, digest: str, warnings: tuple[str, ...]) -> Item:
    return {
        "kind": "review",
        "path": path,
        "text": text,
        "hash": digest,
        "diff": "",
        "warnings": list(warnings),
        "status": "awaiting",
        "edited": False,
        "comment": "",
        "stale": False,
        "action": "",
        "by": "",
    }


def question_item(question: dict[str, Any]) -> dict[str, Any]:
    options = []
    for option in question.get("options", ()):
        if isinstance(option, dict):
            options.append({"label": option.get("label", ""), "description": option.get("description", "")})
        else:
            pair = [*option, "", ""][:2] if isinstance(option, (list, tuple)) else [str(option), ""]
            options.append({"label": pair[0], "description": pair[1]})
    return {
        "header": question.get("header", ""),
        "question": question.get("question", ""),
        "options": options,
        "multiple": bool(question.get("multiple", False)),
        "custom": bool(question.get("custom", True)),
    }


def rule_of(ask: Ask) -> dict[str, str]:
    rule = ask.rule
    return {"permission": rule.permission, "pattern": rule.pattern, "action": rule.action, "layer": rule.layer}


def reply_fields(reply: Reply) -> dict[str, Any]:
    fields: dict[str, Any] = {"reply": reply.answer, "feedback": reply.feedback, "by": reply.by}
    if reply.answer == "always" and reply.remember is not None:
        fields["remember"] = [list(pair) for pair in reply.remember]
    return fields


def file_item(change: FileChange) -> dict[str, Any]:
    return {
        "path": change.path,
        "status": change.status,
        "additions": change.additions,
        "deletions": change.deletions,
        "diff": cut_text(change.diff),
    }


def pictures(attachments: tuple[Attachment, ...]) -> list[dict[str, str]]:
    return [
        {"mime": attachment.mime, "data": attachment.data}
        for attachment in attachments
        if attachment.mime.startswith("image/") and len(attachment.data) <= MAX_IMAGE
    ]


def cut_text(text: str, limit: int = CUT) -> str:
    """Head and tail of a long text with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters not shown …\n{text[-tail:]}"


def bounded(value: Any, limit: int = CUT) -> Any:
    """``value`` as JSON with every long string cut; equal to ``value`` when nothing was long."""
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, dict):
        return {str(key): bounded(entry, limit) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [bounded(entry, limit) for entry in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return cut_text(str(value), limit)


def size_of(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(entry) for entry in value.values())
    if isinstance(value, list):
        return sum(map(size_of, value))
    return 8
