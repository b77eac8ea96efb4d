"""``task``: work for a subagent; the session runs it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult


class TaskArguments(Arguments, frozen=True, kw_only=True):
    description: Annotated[str, Meta(min_length=1, max_length=200, description="three to five words")]
    prompt: Annotated[str, Meta(min_length=1, description="all that the subagent needs to know, and what to report")]
    subagent_type: Annotated[str, Meta(min_length=1, description="name of the agent")]
    task_id: Annotated[str, Meta(description="go on with an earlier task of this session")] = ""
    plan_required: Annotated[bool, Meta(description="the subagent must have a plan approved first")] = False


class Task(Tool[TaskArguments]):
    name = "task"
    permission = "task"
    effect = "asks"
    hint = "give a piece of work to a subagent"
    arguments = TaskArguments
    parallel = True

    def declare(self, arguments: TaskArguments, context: ToolContext) -> Declaration:
        agent = arguments.subagent_type.strip()
        need = Need(self.permission, (agent,), always=(agent,))
        return Declaration(f"{agent}: {arguments.description}", (need,))

    async def act(self, arguments: TaskArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        return await context.host.task(msgspec.to_builtins(arguments), context.call_id)
