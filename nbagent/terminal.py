"""A terminal as a ``Frontend``: prints a run as it goes and asks on standard input."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from nbagent.event import (
    LIVE_ONLY,
    CompactionEvent,
    ErrorEvent,
    Event,
    FinishEvent,
    NoticeEvent,
    PlanEvent,
    ReceiptEvent,
    RetryEvent,
    SessionEvent,
    TextEvent,
    ToolEvent,
    encode_event,
)
from nbagent.frontend import Form, Namespace, Nobody, OpenNotebook, Review, Verdict
from nbagent.permission.ask import Ask, Reply
from nbagent.tools.textfile import counted

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that could move the cursor or change the terminal; what a model or a tool says is never sent with them."""


def plain(text: str) -> str:
    """``text`` with nothing in it that a terminal would act on."""
    return _CONTROL.sub("�", text)


class JsonLines(Nobody):
    """Prints one JSON event a line and answers nothing."""

    def __init__(self, out: TextIO | None = None) -> None:
        super().__init__()
        self._out = out or sys.stdout
        self.told_error = False  # whether a reader of the lines has had the run's error as an event

    def show(self, event: Event) -> None:
        if isinstance(event, LIVE_ONLY):
            return
        self.told_error = self.told_error or isinstance(event, ErrorEvent)
        self._out.write(encode_event(event).decode() + "\n")
        self._out.flush()


class Terminal:
    """Prints for people. ``attended``: standard input is a terminal, so a person can be asked."""

    namespace: Namespace | None = None
    notebook: OpenNotebook | None = None

    def __init__(self, attended: bool, out: TextIO | None = None) -> None:
        self.attended = attended
        self._out = out or sys.stdout

    def _say(self, text: str = "") -> None:
        self._out.write(plain(text) + "\n")
        self._out.flush()

    def show(self, event: Event) -> None:
        indent = "    " if event.parent else ""
        for line in self._lines(event):
            self._say(indent + line)

    def _lines(self, event: Event) -> list[str]:
        match event:
            case SessionEvent():
                where = f"  plan file {event.plan}" if event.plan else ""
                return [f"── {event.badge or event.agent}  {event.model}  root {event.root}{where}"]
            case TextEvent():
                return ["", *event.text.rstrip().splitlines(), ""]
            case ToolEvent() if event.state in ("completed", "error"):
                return _tool_lines(event)
            case PlanEvent() if event.status == "built":
                return [f"carrying out {event.path}"]
            case PlanEvent():
                return [f"plan {event.path}: {event.status}", *(f"  note: {each}" for each in event.warnings)]
            case RetryEvent():
                return [f"… {event.error} Trying again in {event.wait:.0f} s."]
            case CompactionEvent() if event.status == "completed":
                return [f"… the conversation was summarised ({event.before:,} → {event.after:,} tokens)"]
            case NoticeEvent():
                return [f"! {event.text}" if event.level == "warning" else f"· {event.text}"]
            case ReceiptEvent():
                return _receipt_lines(event)
            case ErrorEvent() if event.parent:  # that of the run itself is the program's last word
                return [f"error: {event.message}"]
            case FinishEvent() if not event.parent:
                cost = f", {event.cost:.4f} spent" if event.cost is not None else ""
                end = _ENDS.get(event.reason, event.reason)
                return [
                    f"── {end}: {counted(event.steps, 'step')}, {event.tokens.total:,} tokens, {event.seconds:.1f} s{cost}"
                ]
        return []

    # -- answers -----------------------------------------------------------------------------------------------------

    async def ask(self, ask: Ask) -> Reply:
        self._say()
        self._say(f"? {ask.call.title}   (rule {ask.rule})")
        if ask.call.preview is not None:
            for line in ask.call.preview.text.splitlines()[:60]:
                self._say(f"    {line}")
        for note in ask.call.notes:
            self._say(f"    note: {note}")
        if ask.remember:
            self._say("    always would remember: " + ", ".join(f"{name} {pattern}" for name, pattern in ask.remember))
        while True:
            answer = await self._read("[y] once  [a] always  [n] no, because … > ")
            word, _, rest = answer.strip().partition(" ")
            match word.lower():
                case "y" | "yes":
                    return Reply("once")
                case "a" | "always":
                    return Reply("always")
                case "n" | "no":
                    return Reply("reject", feedback=rest.strip())
            self._say(
                "Please answer y, a or n (n with a reason: the model reads it and goes on; n alone ends the run)."
            )

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        answers: list[tuple[str, ...]] = []
        for question in form.questions:
            self._say()
            self._say(f"? {question.question}")
            for number, (label, text) in enumerate(question.options, 1):
                self._say(f"    {number}. {label}  {text}")
            typed = await self._read("number or text > ")
            picked = [part.strip() for part in typed.split(",")] if question.multiple else [typed.strip()]
            answers.append(tuple(_choice(part, question.options) for part in picked if part))
        return tuple(answers)

    async def review(self, review: Review) -> Verdict:
        text = review.text
        self._say()
        self._say(
            f"════ plan {review.path}"
            + ("  (it changed while you looked: this is the new text)" if review.stale else "")
        )
        for line in text.splitlines():
            self._say(line)
        self._say("════")
        for warning in review.warnings:
            self._say(f"  note: {warning}")
        while True:
            typed = await self._read(
                "[b] approve and build  [l] approve, build later  [e] edit  [k] keep planning, because …  [r] reject > "
            )
            word, _, comment = typed.strip().partition(" ")
            action = _ACTIONS.get(word.lower())
            if action is not None:
                return Verdict(review.id, review.hash, action, text=text, comment=comment.strip())  # type: ignore[arg-type]
            if word.lower() == "e":
                text = await asyncio.to_thread(_edited, text)
                self._say("edited; it is saved when you approve")
                continue
            self._say("Please answer b, l, e, k or r.")

    async def _read(self, prompt: str) -> str:
        """A line from standard input; its end is a refusal, never a yes."""

        def read() -> str:
            try:
                return input(prompt)
            except EOFError:
                return "n" if prompt.startswith("[y]") else "r"

        return await asyncio.to_thread(read)


_ENDS = {
    "stop": "done",
    "awaiting": "waits for approval",
    "limit": "stopped at a limit",
    "blocked": "refused too often",
}
_ACTIONS = {"b": "build", "l": "later", "k": "revise", "r": "reject"}


def _choice(typed: str, options: tuple[tuple[str, str], ...]) -> str:
    if typed.isdecimal() and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1][0]
    return typed


def _edited(text: str) -> str:
    """``text`` after the person's editor; as it was when there is none."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.md"
        path.write_text(text, encoding="utf-8")
        subprocess.run([*editor.split(), str(path)], check=False)
        return path.read_text(encoding="utf-8")


def _tool_lines(event: ToolEvent) -> list[str]:
    title = event.title or event.name
    if event.state == "completed":
        return [f"✓ {title}"]
    lines = event.error.strip().splitlines() or ["failed"]
    shown = [line for line in lines if line] if lines[0].endswith(":") else lines[:1]  # what is announced is shown
    mark = "⛔" if event.rule is not None or event.metadata.get("refused") else "✗"
    return [
        f"{mark} {event.name} {title if title != event.name else ''}".rstrip(),
        *(f"    {line}" for line in shown[:10]),
    ]


def _receipt_lines(event: ReceiptEvent) -> list[str]:
    if not event.files:
        return ["no file was changed"]
    lines = []
    for file in event.files:
        count = f"  +{file.additions} -{file.deletions}" if file.additions is not None else ""
        lines.append(f"  {file.status:<9} {file.path}{count}")
    tail = ["nothing else was written"] if event.confined else []
    return ["changed files:", *lines, *event.notes, *tail]
