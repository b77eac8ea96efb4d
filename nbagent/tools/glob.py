"""``glob``: files by a pattern of their names."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.root import Place
from nbagent.tools.access import Sieve
from nbagent.tools.child import find_ripgrep
from nbagent.tools.filelist import list_files, newest_first
from nbagent.tools.folder import declare_folder, pattern_of, settled_folder
from nbagent.tools.pattern import below, path_matcher
from nbagent.tools.textfile import printable
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread

MAX_FILES = 100
MAX_NAME = 200


class GlobArguments(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(min_length=1, description="such as **/*.py, src/**/test_*.py, *.{csv,tsv}")]
    path: Annotated[str, Meta(description="folder to search in, the project root when left out")] = "."


class Glob(Tool[GlobArguments]):
    name = "glob"
    permission = "glob"
    effect = "reads"
    hint = "find files by a pattern of their names"
    arguments = GlobArguments
    parallel = True

    def __init__(self, ripgrep: bool = True) -> None:
        self._ripgrep = ripgrep

    def declare(self, arguments: GlobArguments, context: ToolContext) -> Declaration:
        return declare_folder(self.name, self.permission, arguments.path, context, arguments.pattern)

    async def act(self, arguments: GlobArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        place = settled_folder(arguments.path, declaration, context)
        if not place.real.is_dir():
            raise ToolError(f"{place.pattern} is a file, not a folder. Send the folder that it is in.")
        ripgrep = find_ripgrep(context.environment, context.root.path) if self._ripgrep else ""
        paths = await list_files(place.real, context.root.path, ripgrep, context.environment)
        pattern = below(arguments.pattern, place.real.as_posix())
        return await in_thread(lambda: _matching(pattern, paths, place, declaration.title, context))


def _matching(pattern: str, paths: list[str], place: Place, title: str, context: ToolContext) -> ToolResult:
    matches = path_matcher(pattern)
    found = [path for path in paths if matches(path)]
    guarded = Sieve("glob", context.rules).refused(pattern_of(place, ""), found)
    ordered = newest_first(place.real, [path for path in found if path not in guarded])
    shown = [printable(pattern_of(place, path)) for path in ordered[:MAX_FILES]]
    notes = []
    if len(ordered) > MAX_FILES:
        notes.append(
            f"the {MAX_FILES} newest of {len(ordered)} are shown: use a narrower pattern or path for the others"
        )
    if guarded:
        notes.append(f"{len(guarded)} left out (a rule guards reading them)")
    lines = shown or [_nothing(pattern, place)]
    output = "\n".join([*lines, *(["", f"[{'; '.join(notes)}.]"] if notes else [])])
    cut = len(ordered) > MAX_FILES
    return ToolResult(title, output, {"count": len(shown), "truncated": cut, "left_out": len(guarded)})


def _nothing(pattern: str, place: Place) -> str:
    """That no file matches, and why where the pattern itself says it."""
    where = "" if place.pattern == "." else f"below {place.pattern} "
    told = f"No files {where}match {pattern}."
    if pattern.startswith(("/", "~", "$")) or ".." in pattern.split("/"):
        return f"{told} A pattern is matched against paths below that folder; send another folder as path."
    if "\0" not in pattern and len(pattern) < MAX_NAME and (place.real / pattern).is_dir():
        return f"{told} It is a folder: use {pattern.rstrip('/')}/** for the files in it."
    return told
