"""``plan_exit``: the session decides; the tool only passes the word on."""

from __future__ import annotations

from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult


class PlanExitArguments(Arguments, frozen=True, kw_only=True):
    pass


class PlanExit(Tool[PlanExitArguments]):
    name = "plan_exit"
    permission = "plan_exit"
    effect = "asks"
    hint = "the plan is written; show it to the person for approval"
    arguments = PlanExitArguments

    def declare(self, arguments: PlanExitArguments, context: ToolContext) -> Declaration:
        return Declaration("leave plan mode", (Need(self.permission, ("*",)),))

    async def act(self, arguments: PlanExitArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        return await context.host.plan_exit()
