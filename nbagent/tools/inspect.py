"""``inspect``: the user's variables, described; no code of the model runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.permission.ask import Need
from nbagent.permission.wildcard import exactly
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult


class InspectArguments(Arguments, frozen=True, kw_only=True):
    names: Annotated[
        list[str], Meta(description="variables to describe fully; left out: one line for each there is")
    ] = []
    detail: Annotated[bool, Meta(description="describe all of them fully")] = False


class Inspect(Tool[InspectArguments]):
    name = "inspect"
    permission = "inspect"
    effect = "reads"
    hint = "look at the notebook's variables"
    arguments = InspectArguments
    parallel = True

    def declare(self, arguments: InspectArguments, context: ToolContext) -> Declaration:
        names = tuple(dict.fromkeys(arguments.names))
        need = Need("inspect", names or ("*",), tuple(map(exactly, names)) or ("*",), "*")
        title = f"inspect {', '.join(names[:6])}{' …' if len(names) > 6 else ''}" if names else "inspect variables"
        return Declaration(title, (need,))

    async def act(self, arguments: InspectArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        space = context.frontend.namespace
        if space is None:
            raise ToolError("There is no kernel here, so there are no variables to look at.")
        text = await space.describe(tuple(arguments.names), arguments.detail)
        return ToolResult(declaration.title, text, {"names": list(arguments.names)})
