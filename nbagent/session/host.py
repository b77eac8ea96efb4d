"""What a few tools need of the session that runs them: its plan, its todo list, its person, its children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbagent.errors import ToolError
from nbagent.event import QuestionEvent, TodoEvent
from nbagent.frontend import Form
from nbagent.session.instructions import nearby
from nbagent.session.review import enter_plan, review_plan
from nbagent.session.run import Run
from nbagent.tools.tool import Tool, ToolResult


class SessionHost:
    """One call's view of its run."""

    def __init__(self, run: Run, call_id: str, message_id: str) -> None:
        self._run = run
        self._call_id = call_id
        self._message_id = message_id

    async def plan_exit(self) -> ToolResult:
        return await review_plan(self._run, self._call_id)

    async def plan_enter(self) -> ToolResult:
        return await enter_plan(self._run, self._call_id)

    async def task(self, arguments: dict[str, Any], call_id: str) -> ToolResult:
        return await self._run.start_child(self._run, arguments, call_id, self._message_id)

    def todos(self) -> list[dict[str, str]]:
        return [dict(todo) for todo in self._run.state.todos]

    def set_todos(self, todos: list[dict[str, str]]) -> None:
        self._run.state.todos = [dict(todo) for todo in todos]
        self._run.save()
        self._run.emit(TodoEvent(todos=tuple(dict(todo) for todo in todos)))

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        run = self._run
        if not run.frontend.attended:
            raise ToolError(
                "Nobody is there to answer. Choose the sensible reading and say in your answer which one you chose."
            )
        questions = tuple(
            {
                "header": each.header,
                "question": each.question,
                "options": [{"label": label, "description": text} for label, text in each.options],
                "multiple": each.multiple,
                "custom": each.custom,
            }
            for each in form.questions
        )
        run.emit(QuestionEvent(id=form.id, questions=questions))
        with run.asking():
            answers = await run.frontend.question(form)
        run.emit(QuestionEvent(id=form.id, questions=questions, answers=answers if answers is not None else ()))
        return answers

    def deferred(self) -> list[Tool[Any]]:
        run = self._run
        hidden = run.hidden()
        return [tool for name, tool in run.resources.tools.items() if tool.deferred and name not in hidden]

    def reveal(self, names: list[str]) -> None:
        state = self._run.state
        fresh = [name for name in names if name not in state.revealed]
        if fresh:
            state.revealed = [*state.revealed, *fresh]
            self._run.save()

    def skills(self) -> dict[str, tuple[str, Path]]:
        return self._run.resources.skills

    def nearby_instructions(self, real: Path) -> str:
        run = self._run
        text, paths = nearby(run.resources.root.path, real, run.state.instructed)
        if paths:
            run.state.instructed = [*run.state.instructed, *paths]
            run.save()
        return text
