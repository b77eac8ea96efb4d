"""A person's answers in a short form: ``person: approve and build`` and what stands below it."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from nbagent.provider.cassette import Malformed, PersonAnswer
from nbagent.provider.short_lines import Line, keys, text_of

_PERSON = (
    (re.compile(r"(once|always)"), "ask", ""),
    (re.compile(r"(reject)(?: because (.+))?"), "ask", ""),
    (re.compile(r"approve and build(?:, saying (.+))?"), "review", "build"),
    (re.compile(r"approve, build later(?:, saying (.+))?"), "review", "later"),
    (re.compile(r"keep planning(?: because (.+))?"), "review", "revise"),
    (re.compile(r"reject the plan(?: because (.+))?"), "review", "reject"),
)


def read_person(text: str, number: int) -> PersonAnswer:
    """The answer that ``text`` at line ``number`` states. Raises ``Malformed``."""
    if text == "declines to answer":
        return PersonAnswer("question", "declined", line=number)
    if text.startswith("answers "):
        return PersonAnswer("question", choices=_choices(text[len("answers ") :], number), line=number)
    for form, kind, value in _PERSON:
        if match := form.fullmatch(text):
            words = [group for group in match.groups() if group is not None]
            chosen = value or words.pop(0)
            kinds: Literal["ask", "review"] = "ask" if kind == "ask" else "review"
            return PersonAnswer(kinds, chosen, words[0] if words else "", line=number)
    raise Malformed(
        number,
        f"{text!r} is not an answer of a person; say one of: once, always, reject, reject because …, answers …, declines to answer, "
        "approve and build, approve, build later, keep planning because …, reject the plan",
    )


def _choices(text: str, number: int) -> tuple[tuple[str, ...], ...]:
    """``A; B, C`` → A to the first question, B and C to the second; or JSON, a list of lists."""
    if text.startswith("["):
        try:
            return msgspec.json.decode(text, type=tuple[tuple[str, ...], ...])
        except msgspec.DecodeError as error:
            raise Malformed(number, f"answers [[…], …] is a list of lists of text ({error})") from None
    return tuple(tuple(part.strip() for part in one.split(",") if part.strip()) for one in text.split(";"))


def edits(line: Line, kind: str) -> dict[str, Any]:
    """``edit:`` (the plan's new text) and ``change: "old" -> "new"`` below a review's answer."""
    found: dict[str, Any] = {}
    changes: list[tuple[str, str]] = []
    for inner in keys(line.block or []):
        if kind != "review" or inner.key not in ("edit", "change"):
            raise Malformed(
                inner.number, "below an approval there may be edit: and change:, below other answers nothing"
            )
        if inner.key == "edit":
            found["edit"] = text_of(inner, keep_end=True)
            continue
        match = re.fullmatch(r'("(?:[^"\\]|\\.)*") -> ("(?:[^"\\]|\\.)*")', inner.value.strip())
        if match is None:
            raise Malformed(inner.number, 'change: reads like "old words" -> "new words"')
        changes.append((msgspec.json.decode(match[1], type=str), msgspec.json.decode(match[2], type=str)))
    return found | ({"changes": tuple(changes)} if changes else {})
