"""``write``: a whole file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from nbagent.tools.change import Target, declare_change, preview, settled_target, text_of
from nbagent.tools.seen import refuse_unread
from nbagent.tools.textfile import TextFile, counted
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread


class WriteArguments(Arguments, frozen=True, kw_only=True):
    filePath: Annotated[str, Meta(description="file to write, relative to the project root or absolute")]  # noqa: N815
    content: Annotated[str, Meta(description="the whole new text of the file")]


class Write(Tool[WriteArguments]):
    name = "write"
    permission = "edit"
    effect = "writes"
    hint = "write a whole file, new or replaced"
    arguments = WriteArguments

    def declare(self, arguments: WriteArguments, context: ToolContext) -> Declaration:
        return declare_change(self.name, arguments.filePath, context, _preparer(arguments))

    async def act(self, arguments: WriteArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        def work() -> tuple[Target, str]:
            target = settled_target(arguments.filePath, declaration, context, _preparer(arguments))
            try:
                return target, _write(target)
            finally:
                target.close()

        target, told = await in_thread(work)
        target.note(context, whole=True)
        return ToolResult(declaration.title, told, target.metadata())


def _write(target: Target) -> str:
    if target.after == target.before:
        return f"{target.place.pattern} already has exactly this text; nothing was written."
    names = target.handle.links if target.handle is not None and target.before is not None else 1
    target.write()
    lines = target.after.count(b"\n") + (not target.after.endswith(b"\n") and target.after != b"")
    verb = "Created" if target.before is None else "Wrote"
    told = f"{verb} {target.place.pattern} ({counted(lines, 'line')}, {counted(len(target.after), 'byte')})."
    if names > 1:
        told += f" The file had {names} names (hard links); the other names keep the old text."
    return told


def _preparer(arguments: WriteArguments) -> Callable[[Target, ToolContext, bool], None]:
    def prepare(target: Target, context: ToolContext, reveal: bool) -> None:
        if target.before:
            refuse_unread(target.place, target.before, target.version, context.reads, reveal)
        before = text_of(target)
        preview(target, before, _like(before, arguments.content))

    return prepare


def _like(before: TextFile, content: str) -> TextFile:
    """``content`` with the byte order mark, the encoding and the line breaks of the file that it replaces."""
    text = content.removeprefix("\ufeff") if before.bom else content
    if not before.breaks:
        return TextFile(text, ("\n",) * text.count("\n"), before.bom, before.encoding)
    plain = text.replace("\r\n", "\n")
    count = plain.count("\n")
    return TextFile(plain, (before.default_break,) * count, before.bom, before.encoding, before.default_break)
