"""A plan cell in a process of its own, in front of somebody who says yes to everything.

``python -m tests.session.hostile AGENT TEXT [nobody]`` in the project's folder; prints one JSON line an event. Whatever gets through to
the kernel or to the open notebook leaves a mark in the project.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbagent.config import LimitSettings
from nbagent.event import AskEvent, Event, NoticeEvent, ToolEvent
from nbagent.frontend import CellResult, CodeOutcome, Form, Nobody, Review, Verdict
from nbagent.permission.ask import Ask, Reply
from nbagent.runtime import Runtime
from nbagent.session.run import Options
from nbagent.session.session import Prompt


class Space:
    """A kernel in which code leaves a mark."""

    async def run(self, code: str, *, timeout: float, scratch: bool, on_output: Callable[[str], None]) -> CodeOutcome:
        Path("src/ran-in-kernel").write_text(code)
        return CodeOutcome("ran")

    async def describe(self, names: tuple[str, ...], detail: bool) -> str:
        return f"no variables of these names: {', '.join(names)}"


class Book:
    """An open notebook in which every change leaves a mark."""

    path = "book.ipynb"
    connected = True

    def open_paths(self) -> tuple[str, ...]:
        return ()

    async def cells(self) -> list[dict[str, Any]]:
        return list(json.loads(Path(self.path).read_text())["cells"])

    async def apply(self, operations: list[dict[str, Any]]) -> CellResult:
        Path("src/applied-to-notebook").write_text(json.dumps(operations))
        return CellResult(("applied",))


class Agreeable:
    """Says yes, always, for everything, and wants it in the settings. Only a plan is never approved."""

    attended = True
    namespace = Space()
    notebook = Book()

    def show(self, event: Event) -> None:
        show(event)

    async def ask(self, ask: Ask) -> Reply:
        wide = tuple((permission, "*") for permission, _ in ask.pending)
        return Reply("always", remember=wide, save=True)

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        return tuple((each.options[0][0],) if each.options else ("yes",) for each in form.questions)

    async def review(self, review: Review) -> Verdict:
        return Verdict(review.id, review.hash, "revise", comment="not yet")


def show(event: Event) -> None:
    if isinstance(event, ToolEvent) and event.state in ("completed", "error"):
        told = {
            "name": event.name,
            "input": event.input,
            "state": event.state,
            "output": event.output,
            "seconds": event.seconds,
        }
        print(json.dumps({"type": "tool", **told, "error": event.error, "parent": event.parent}), flush=True)
    elif isinstance(event, AskEvent) and event.reply:
        print(json.dumps({"type": "ask", "patterns": event.patterns, "reply": event.reply}), flush=True)
    elif isinstance(event, NoticeEvent):
        print(json.dumps({"type": "notice", "text": event.text}), flush=True)


def main(agent: str, text: str, who: str = "") -> None:
    runtime = Runtime.open(Path.cwd())
    runtime.resources.patience = 0.01
    prompt = Prompt(f"{text} [process {os.getpid()}]", agent, options=Options(limits=LimitSettings(steps=400)))
    try:
        result = runtime.start(prompt, Nobody(show) if who else Agreeable()).done.result(500)
    finally:
        runtime.close()
    assert result is not None
    print(
        json.dumps({"type": "end", "reason": result.reason, "wall": getattr(runtime.wall, "name", "none")}), flush=True
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
