"""``list``: a tree of files and folders."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.root import Place
from nbagent.tools.access import Sieve
from nbagent.tools.folder import declare_folder, pattern_of, settled_folder
from nbagent.tools.pattern import path_matcher
from nbagent.tools.textfile import counted, printable
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread
from nbagent.tools.walk import Entry, Walk

MAX_ENTRIES = 100


class ListArguments(Arguments, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="folder, the project root when left out")] = "."
    ignore: Annotated[tuple[str, ...], Meta(description="globs of what to leave out")] = ()


class List(Tool[ListArguments]):
    name = "list"
    permission = "list"
    effect = "reads"
    hint = "show the tree of files and folders"
    arguments = ListArguments
    parallel = True

    def declare(self, arguments: ListArguments, context: ToolContext) -> Declaration:
        return declare_folder(self.name, self.permission, arguments.path, context)

    async def act(self, arguments: ListArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        place = settled_folder(arguments.path, declaration, context)
        if not place.real.is_dir():
            raise ToolError(f"{place.pattern} is a file, not a folder. Use read to see it.")
        return await in_thread(lambda: _list(place, arguments, declaration.title, context))


@dataclass
class Branch:
    """A folder of the tree: what is shown of it, and how many entries are not."""

    entry: Entry
    shown: list[Branch] = field(default_factory=list)
    hidden: int = 0


def _list(place: Place, arguments: ListArguments, title: str, context: ToolContext) -> ToolResult:
    walk = Walk(place.real, context.root.path, threading.Event())
    tests = [path_matcher(glob) for glob in arguments.ignore]
    passes = Sieve("list", context.rules).passes
    guarded = 0

    def keeps(entry: Entry) -> bool:
        nonlocal guarded
        if any(test(entry.path) for test in tests):
            return False
        if entry.kind != "folder" and not passes(pattern_of(place, entry.path)):
            guarded += 1
            return False
        return True

    tree, count, more = _grow(walk, keeps)
    lines = [f"{place.pattern.rstrip('/')}/", *_drawn(tree, 1)]
    notes = (
        [f"{count} entries shown, there are more: list a folder below, or use glob"]
        if more
        else [counted(count, "entry", "entries")]
    )
    if guarded:
        notes.append(f"{guarded} left out (a rule guards reading them)")
    output = printable("\n".join([*lines, "", f"[{'; '.join(notes)}.]"]))
    return ToolResult(title, output, {"path": place.pattern, "count": count, "truncated": more, "left_out": guarded})


def _grow(walk: Walk, keeps: Callable[[Entry], bool]) -> tuple[Branch, int, bool]:
    """The tree, level by level, so that what is cut lies deep: (tree, entries in it, whether there are more)."""
    tree = Branch(walk.start)
    pending = deque([tree])
    count, more = 0, False
    while pending:
        branch = pending.popleft()
        for entry in filter(keeps, walk.entries(branch.entry)):
            if count >= MAX_ENTRIES:
                branch.hidden += 1
                more = True
                continue
            count += 1
            grown = Branch(entry)
            branch.shown.append(grown)
            if entry.kind == "folder":
                grown.entry = walk.enter(entry)
                pending.append(grown)
        if count >= MAX_ENTRIES and not pending:
            break
    return tree, count, more


def _drawn(branch: Branch, depth: int) -> list[str]:
    lines: list[str] = []
    pad = "  " * depth
    folders_first = sorted(branch.shown, key=lambda each: (each.entry.kind != "folder", each.entry.name))
    for each in folders_first:
        mark = {"folder": "/", "link": "@"}.get(each.entry.kind, "")
        lines.append(f"{pad}{each.entry.name}{mark}")
        lines += _drawn(each, depth + 1)
    if branch.hidden:
        lines.append(f"{pad}… {branch.hidden} more")
    return lines
