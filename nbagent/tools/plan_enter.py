"""``plan_enter``: the session decides; the tool only passes the word on."""

from __future__ import annotations

from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult


class PlanEnterArguments(Arguments, frozen=True, kw_only=True):
    pass


class PlanEnter(Tool[PlanEnterArguments]):
    name = "plan_enter"
    permission = "plan_enter"
    effect = "asks"
    hint = "ask the person to plan first, before large or unclear work"
    arguments = PlanEnterArguments

    def declare(self, arguments: PlanEnterArguments, context: ToolContext) -> Declaration:
        return Declaration("enter plan mode", (Need(self.permission, ("*",)),))

    async def act(self, arguments: PlanEnterArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        return await context.host.plan_enter()
