"""Asks, forms and reviews as text prompts, for where no widget can be shown or heard. Pure but for ``read``.

An empty line never decides anything: it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.frontend import Form, Question, Review, Verdict
from nbagent.notebook.frontend import Answers
from nbagent.notebook.words import clean, rule_words
from nbagent.permission.ask import Ask, Reply

Read = Callable[[str], str]

TRIES = 50
_PREVIEW_LINES = 60
_ASK_KEYS = "[y] once  [a] always  [n] no, because … "
_REVIEW_KEYS = "[b] approve and build  [l] later  [k] keep planning, because …  [r] reject "
_YES, _ALWAYS, _NO = {"y", "yes", "once"}, {"a", "always"}, {"n", "no", "reject"}
_ACTIONS: dict[str, Any] = {
    **dict.fromkeys(("b", "build", "approve"), "build"),
    **dict.fromkeys(("l", "later"), "later"),
    **dict.fromkeys(("k", "keep", "revise"), "revise"),
    **dict.fromkeys(("r", "reject"), "reject"),
}


def ask(value: Ask, read: Read) -> Reply | None:
    """The reply that was typed; None after too many lines that say nothing."""
    prompt = ask_text(value) + "\n" + _ASK_KEYS
    for _ in range(TRIES):
        key, rest = _split(read(prompt))
        if key in _YES:
            return Reply("once")
        if key in _ALWAYS:
            return Reply("always")
        if key in _NO:
            return Reply("reject", feedback=rest)
        prompt = "Please type y, a or n.\n" + _ASK_KEYS
    return None


def ask_text(value: Ask) -> str:
    """What is asked, by which rule, and the preview."""
    call = value.call
    rule = {"permission": value.rule.permission, "pattern": value.rule.pattern, "action": value.rule.action}
    lines = [f"The agent wants: {call.tool}: {call.title}" if call.title else f"The agent wants: {call.tool}"]
    lines += [f"  {permission} {pattern}" for permission, pattern in value.pending]
    lines.append(f"  rule: {rule_words({**rule, 'layer': value.rule.layer})}")
    lines += [f"  note: {note}" for note in call.notes]
    if value.remember:
        kept = ", ".join(f"{permission} {pattern}" for permission, pattern in value.remember)
        lines.append(f"  always would remember: {kept}")
    if call.preview is not None:
        lines += [f"  │ {line}" for line in _first_lines(call.preview.text)]
    return clean("\n".join(lines))


def review(value: Review, read: Read) -> Verdict | None:
    """The verdict that was typed; None after too many lines that say nothing."""
    prompt = review_text(value) + "\n" + _REVIEW_KEYS
    for _ in range(TRIES):
        key, rest = _split(read(prompt))
        if key in _ACTIONS:
            return Verdict(value.id, value.hash, _ACTIONS[key], text=value.text, comment=rest)
        prompt = "Please type b, l, k or r.\n" + _REVIEW_KEYS
    return None


def review_text(value: Review) -> str:
    """The plan, what is odd about it, and where it is."""
    lines = [f"A plan waits for you: {value.path}"]
    if value.stale:
        lines.append("The file changed since it was shown; this is the new text.")
    lines += [f"  ! {warning}" for warning in value.warnings]
    lines += [f"  │ {line}" for line in _first_lines(value.text, 400)]
    return clean("\n".join(lines))


def form(value: Form, read: Read) -> Answers | None:
    """The answers that were typed, one question after the other; None when every one was skipped."""
    answers = tuple(_question(question, read) for question in value.questions)
    return answers if any(answers) else None


def _question(question: Question, read: Read) -> tuple[str, ...]:
    lines = [question.question or question.header]
    for number, (label, text) in enumerate(question.options, 1):
        lines.append(f"  [{number}] {label}{' – ' + text if text else ''}")
    how = "numbers, with commas" if question.multiple else "a number"
    words = "your own words" if question.custom or not question.options else ""
    lines.append(f"({' or '.join(part for part in (how if question.options else '', words) if part)}; - to skip) ")
    prompt = clean("\n".join(lines))
    for _ in range(TRIES):
        line = read(prompt).strip()
        if line == "-":
            return ()
        chosen = _choose(question, line)
        if chosen:
            return chosen
        prompt = f"Please type {how if question.options else 'an answer'}, or - to skip. "
    return ()


def _choose(question: Question, line: str) -> tuple[str, ...]:
    labels = [label for label, _ in question.options]
    parts = [part.strip() for part in line.replace(",", " ").split()] if question.multiple else [line]
    if parts and all(part.isdigit() and 1 <= int(part) <= len(labels) for part in parts):
        return tuple(dict.fromkeys(labels[int(part) - 1] for part in parts))
    exact = [label for label in labels if label.casefold() == line.casefold()]
    if exact:
        return (exact[0],)
    return (line,) if line and (question.custom or not labels) else ()


def _split(line: str) -> tuple[str, str]:
    """``n, because it is late`` → ("n", "it is late")."""
    words = line.strip().split(None, 1)
    if not words:
        return "", ""
    head, comma, tail = words[0].partition(",")
    rest = (tail + " " if comma and tail else "") + (words[1] if len(words) > 1 else "")
    rest = rest.strip().lstrip(",:").strip()
    if rest.lower().startswith("because"):
        rest = rest[len("because") :].strip(" ,:")
    return head.rstrip(":.").lower(), rest


def _first_lines(text: str, limit: int = _PREVIEW_LINES) -> list[str]:
    lines = text.splitlines()
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], f"… {len(lines) - limit} more lines"]
