"""The record as Markdown (for diffs, GitHub, PDF) and as plain text (a readable summary). Both end with the receipt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.notebook import words
from nbagent.notebook.markdown import code, fenced
from nbagent.notebook.markdown import to_markdown as safe
from nbagent.notebook.receipt import receipt_line

Item = dict[str, Any]

_SHOWN = 2_000


def to_markdown(record: dict[str, Any], *, times: bool = True) -> str:
    """The record as Markdown in which nothing of the model or of a tool can be HTML."""
    head = record["head"]
    first = f"**{words.badges(record)}**"
    if head["writes"]:
        first += f" · {code(head['writes'])}"
    first += "".join(f" · {code(head[key])}" for key in ("model", "root") if head[key])
    parts = [first, *_drawn(record["items"], "", times)]
    receipt = record["receipt"]
    if receipt is not None:
        parts += [code(note) for note in receipt["notes"]]
        parts += [fenced(entry["diff"], "diff") for entry in receipt["files"] if entry.get("diff")]
        parts.append(f"---\n\n{code(receipt_line(receipt, times))}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _drawn(items: list[Item], parent: str, times: bool) -> list[str]:
    out: list[str] = []
    lines: list[str] = []

    def flush() -> None:
        if lines:
            out.append("\n".join(lines))
            lines.clear()

    for entry in words.grouped([item for item in items if item["parent"] == parent]):
        if isinstance(entry, list):
            lines.append(f"- {code(words.group_title(entry))} ✓")
            lines.extend(f"  - {code(words.tool_title(item))}" for item in entry)
            continue
        if entry["kind"] == "tool":
            lines.append(f"- {code(words.tool_title(entry))} {_state(entry, times)}")
            detail = _tool_detail(entry) + _drawn(items, entry["id"], times)
            if detail:
                lines.append("\n" + _indent("\n\n".join(detail)) + "\n")
            continue
        drawn = _MARKDOWN[entry["kind"]](entry, times)
        if drawn:
            flush()
            out.append(drawn)
    flush()
    return out


def _state(item: Item, times: bool) -> str:
    state = words.tool_state(item, times)
    return f"**{code(state)}**" if item["state"] == "error" else state


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in text.splitlines())


def _tool_detail(item: Item) -> list[str]:
    if item["error"]:
        return [fenced(_short(item["error"]))]
    diff = item["metadata"].get("diff")
    if isinstance(diff, str) and diff:
        return [fenced(_short(diff), "diff")]
    if item["effect"] in ("command", "code") and item["output"].strip():
        return [fenced(_short(item["output"]))]
    return []


def _short(text: str) -> str:
    text = words.clean(text)
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters not shown …\n{text[-half:]}"


def _review(item: Item, times: bool) -> str:
    title = f"**Plan** {code(item['path'])}: {code(words.review_words(item))}"
    warnings = [f"⚠ {code(text)}" for text in item["warnings"]]
    body = "\n".join(f"> {line}".rstrip() for line in safe(item["text"]).splitlines())
    return "\n\n".join([title, *warnings, body])


def _question(item: Item, times: bool) -> str:
    return "\n".join(f"- {code(question)} {code(answer)}" for question, answer in words.answers_words(item))


def _agent(item: Item, times: bool) -> str:
    writes = f", {code(item['writes'])}" if item["writes"] else ""
    return f"{'now' if item['previous'] else 'as'} **{item['badge']}**{writes}"


_MARKDOWN: dict[str, Callable[[Item, bool], str]] = {
    "text": lambda item, times: safe(item["text"]).strip(),
    "reasoning": lambda item, times: "",
    "ask": lambda item, times: f"asked: {code(words.ask_words(item))}",
    "question": _question,
    "review": _review,
    "notice": lambda item, times: f"{'⚠ ' if item['level'] == 'warning' else ''}{code(item['text'])}",
    "retry": lambda item, times: code(words.retry_words(item, times)),
    "compaction": lambda item, times: code(words.compaction_words(item)),
    "agent": _agent,
    "todo": lambda item, times: "\n".join(f"- {code(words.todo_words(todo))}" for todo in item["todos"]),
    "error": lambda item, times: f"**error** {code(item['message'])}",
}


def to_plain(record: dict[str, Any], *, times: bool = True) -> str:
    """A summary to be read as it is: who ran, what was called and refused, the last words, the receipt."""
    lines = [words.head_words(record)]
    for entry in words.grouped(record["items"]):
        if isinstance(entry, list):
            lines.append(f"  {words.group_title(entry)}")
        else:
            lines.extend(_plain(entry, times))
    receipt = record["receipt"]
    if receipt is not None:
        lines += [*receipt["notes"], receipt_line(receipt, times)]
    return words.clean("\n".join(line for line in lines if line.strip()))


def _plain(item: Item, times: bool) -> list[str]:
    kind = item["kind"]
    if kind == "text":
        return [item["text"].strip()] if not item["parent"] else []
    if kind == "tool":
        indent = "    " if item["parent"] else "  "
        reason = item["error"].strip().splitlines()[0][:300] if item["error"].strip() and not item["refused"] else ""
        return [f"{indent}{words.tool_title(item)} {words.tool_state(item, times)}{': ' + reason if reason else ''}"]
    if kind == "review":
        return [f"plan {item['path']}: {words.review_words(item)}", *[f"  ! {text}" for text in item["warnings"]]]
    if kind == "question":
        return [f"  {question} {answer}" for question, answer in words.answers_words(item)]
    if kind == "todo":
        return [f"  {words.todo_words(todo)}" for todo in item["todos"]]
    return _PLAIN[kind](item, times) if kind in _PLAIN else []


_PLAIN: dict[str, Callable[[Item, bool], list[str]]] = {
    "ask": lambda item, times: [f"  asked: {words.ask_words(item)}"],
    "notice": lambda item, times: [item["text"]],
    "retry": lambda item, times: [words.retry_words(item, times)],
    "compaction": lambda item, times: [words.compaction_words(item)],
    "agent": lambda item, times: [f"now {item['badge']}"] if item["previous"] else [],
    "error": lambda item, times: [f"error: {item['message']}"],
}
