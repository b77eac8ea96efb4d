"""``todoread``: the todo list as it is."""

from __future__ import annotations

from nbagent.permission.ask import Need
from nbagent.tools.todowrite import todo_text
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult


class TodoReadArguments(Arguments, frozen=True, kw_only=True):
    pass


class TodoRead(Tool[TodoReadArguments]):
    name = "todoread"
    permission = "todo"
    effect = "reads"
    hint = "read the todo list of this session"
    arguments = TodoReadArguments
    parallel = True
    deferred = True

    def declare(self, arguments: TodoReadArguments, context: ToolContext) -> Declaration:
        return Declaration("read todos", (Need(self.permission, ("*",)),))

    async def act(self, arguments: TodoReadArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        todos = context.host.todos()
        return ToolResult(declaration.title, todo_text(todos), {"todos": todos})
