"""``todowrite``: the list of what is to be done."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from nbagent.errors import ArgumentError
from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult

MAX_TODOS = 100


class Todo(msgspec.Struct, frozen=True, kw_only=True):
    content: Annotated[str, Meta(min_length=1, max_length=500)]
    status: Literal["pending", "in_progress", "completed", "cancelled"]
    priority: Literal["high", "medium", "low"] = "medium"


class TodoWriteArguments(Arguments, frozen=True, kw_only=True):
    todos: Annotated[tuple[Todo, ...], Meta(description="the whole list, in order")]


class TodoWrite(Tool[TodoWriteArguments]):
    name = "todowrite"
    permission = "todo"
    effect = "reads"
    hint = "write the todo list of this session"
    arguments = TodoWriteArguments

    def declare(self, arguments: TodoWriteArguments, context: ToolContext) -> Declaration:
        _refuse_wrong(arguments.todos)
        open_items = sum(todo.status in ("pending", "in_progress") for todo in arguments.todos)
        return Declaration(f"{open_items} of {len(arguments.todos)} todos open", (Need(self.permission, ("*",)),))

    async def act(self, arguments: TodoWriteArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        todos: list[dict[str, str]] = [msgspec.to_builtins(todo) for todo in arguments.todos]
        context.host.set_todos(todos)
        return ToolResult(declaration.title, todo_text(todos), {"todos": todos})


def _refuse_wrong(todos: tuple[Todo, ...]) -> None:
    if len(todos) > MAX_TODOS:
        raise ArgumentError(f"There are {len(todos)} todos; keep the list to at most {MAX_TODOS}.")
    working = [todo.content for todo in todos if todo.status == "in_progress"]
    if len(working) > 1:
        shown = "; ".join(text[:60] for text in working)
        raise ArgumentError(
            f"{len(working)} todos are in_progress ({shown}); at most one may be. Send the list with one."
        )


def todo_text(todos: list[dict[str, str]]) -> str:
    """The list as lines with a mark for each status."""
    if not todos:
        return "The todo list is empty."
    marks = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}
    return "\n".join(
        f"{marks.get(todo['status'], '[ ]')} {todo['content']}"
        + (f" ({todo['priority']})" if todo.get("priority", "medium") != "medium" else "")
        for todo in todos
    )
