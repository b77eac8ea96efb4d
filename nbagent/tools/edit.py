"""``edit``: replace a piece of text in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.tools.change import Target, declare_change, preview, settled_target, text_of
from nbagent.tools.near import near_names
from nbagent.tools.replace import LOOSELY, find
from nbagent.tools.seen import refuse_stale
from nbagent.tools.textfile import TextFile, counted, refuse_mixed
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread


class EditArguments(Arguments, frozen=True, kw_only=True):
    filePath: Annotated[str, Meta(description="file to change")]  # noqa: N815
    oldString: Annotated[str, Meta(description="the text to replace, quoted exactly; empty to make a new file")]  # noqa: N815
    newString: Annotated[str, Meta(description="the text to put in its place, taken literally")]  # noqa: N815
    replaceAll: Annotated[bool, Meta(description="replace every occurrence")] = False  # noqa: N815


class Edit(Tool[EditArguments]):
    name = "edit"
    permission = "edit"
    effect = "writes"
    hint = "replace an exact piece of text in a file"
    arguments = EditArguments

    def declare(self, arguments: EditArguments, context: ToolContext) -> Declaration:
        return declare_change(self.name, arguments.filePath, context, _preparer(arguments))

    async def act(self, arguments: EditArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        def work() -> Target:
            target = settled_target(arguments.filePath, declaration, context, _preparer(arguments))
            try:
                target.write()
            finally:
                target.close()
            return target

        target: Target = await in_thread(work)
        target.note(context)
        return ToolResult(declaration.title, _told(target), target.metadata())


def _preparer(arguments: EditArguments) -> Callable[[Target, ToolContext, bool], None]:
    def prepare(target: Target, context: ToolContext, reveal: bool) -> None:
        if target.before is None:
            _prepare_new(target, arguments, context)
            return
        refuse_stale(target.place, target.before, target.version, context.reads, reveal)
        before = text_of(target)
        old, new = arguments.oldString, arguments.newString
        if before.bom:
            old, new = old.removeprefix("\ufeff"), new.removeprefix("\ufeff")
        refuse_mixed(before, old + new, target.place.pattern)
        if before.breaks:
            old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        match = find(before.text, old, new, arguments.replaceAll, reveal)
        after = before.replaced([(start, end, new) for start, end in match.spans])
        if after.text == before.text:
            raise ToolError(
                f"{target.place.pattern} already has newString in that place, so there is nothing to change."
            )
        target.details = {
            "strategy": match.strategy,
            "replacements": len(match.spans),
            "lines": [before.text.count("\n", 0, start) + 1 for start, _ in match.spans[:50]],
        }
        preview(target, before, after)

    return prepare


def _prepare_new(target: Target, arguments: EditArguments, context: ToolContext) -> None:
    if arguments.oldString:
        near = near_names(target.place, context)
        raise ToolError(f"{target.place.pattern} does not exist.{near} To make a new file, send an empty oldString.")
    if not arguments.newString:
        raise ToolError("oldString and newString are both empty, so there is nothing to do.")
    text = arguments.newString
    target.details = {"strategy": "", "replacements": 1, "lines": [1]}
    preview(target, TextFile(""), TextFile(text, ("\n",) * text.count("\n")))


def _told(target: Target) -> str:
    path = target.place.pattern
    if target.before is None:
        return f"Created {path} ({counted(target.diff.additions, 'line')})."
    lines, count = target.details["lines"], target.details["replacements"]
    where = f"line {lines[0]}" if count == 1 else f"{count} places, lines {', '.join(map(str, lines[:10]))}"
    told = f"Edited {path} at {where}{' …' if count > 10 else ''} (+{target.diff.additions} -{target.diff.deletions})."
    strategy = target.details["strategy"]
    if strategy != "Simple":
        told += (
            f" oldString was not in the file exactly; it was matched {LOOSELY[strategy]} ({strategy}). "
            "Read the place again to see that the result is what you meant."
        )
    return told
