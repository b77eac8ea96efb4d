"""``grep``: lines that match a pattern, by file, the newest file first."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from nbagent.permission.path import path_needs
from nbagent.root import Place
from nbagent.tools.access import Sieve
from nbagent.tools.child import find_ripgrep
from nbagent.tools.folder import declare_folder, pattern_of, settled_folder
from nbagent.tools.pattern import below
from nbagent.tools.search import Found, Hunt, includes, search
from nbagent.tools.textfile import counted, printable
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult

MAX_MATCHES = 100
MAX_LINE = 500


class GrepArguments(Arguments, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(min_length=1, description="regular expression, matched line by line")]
    path: Annotated[str, Meta(description="file or folder, the project root when left out")] = "."
    include: Annotated[str, Meta(description="glob of files to look in, such as *.py or *.{ts,tsx}")] = ""


class Grep(Tool[GrepArguments]):
    name = "grep"
    permission = "grep"
    effect = "reads"
    hint = "search file contents with a regular expression"
    arguments = GrepArguments
    parallel = True

    def __init__(self, ripgrep: bool = True) -> None:
        self._ripgrep = ripgrep

    def declare(self, arguments: GrepArguments, context: ToolContext) -> Declaration:
        place = context.root.locate(arguments.path or ".")
        # One named file is a read of it: a rule that guards it is asked, instead of leaving it out.
        named = path_needs("read", place) if place.real.is_file() else ()
        return declare_folder(self.name, self.permission, arguments.path, context, arguments.pattern[:80], named)

    async def act(self, arguments: GrepArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        place = settled_folder(arguments.path, declaration, context)
        single = place.real.is_file()
        ripgrep = find_ripgrep(context.environment, context.root.path) if self._ripgrep else ""
        sieve = Sieve("grep", context.rules)
        hunt = Hunt(
            pattern=arguments.pattern,
            folder=place.real.parent if single else place.real,
            top=context.root.path,
            only=place.real.name if single else "",
            include=below(arguments.include, place.real.as_posix()),
            guard=lambda paths: sieve.refused(pattern_of(place, ""), paths),
            marks=sieve.marks(pattern_of(place, "")),
            limit=MAX_MATCHES,
            environment=context.environment,
        )
        found = await search(hunt, ripgrep)
        unmet = not found.matches and not single and bool(arguments.include) and not await includes(hunt, ripgrep)
        return _told(arguments, place, single, found, declaration.title, unmet)


def _told(
    arguments: GrepArguments, place: Place, single: bool, found: Found, title: str, unmet: bool = False
) -> ToolResult:
    """``unmet``: no file at all has a name that the include wants."""
    lines: list[str] = []
    files: dict[str, list[str]] = {}
    for match in found.matches:
        shown = place.pattern if single else pattern_of(place, match.path)
        files.setdefault(printable(shown), []).append(f"  {match.place}: {_clipped(match.line, match.column)}")
    for path, matches in files.items():
        lines += [f"{path}:", *matches, ""]
    count = len(found.matches)
    notes = [f"{counted(count, 'match', 'matches')} in {counted(len(files), 'file')}"]
    if found.more:
        notes.append("there are more: use a narrower pattern, path or include")
    if found.guarded:
        notes.append(f"{counted(found.guarded, 'file')} left out (a rule guards reading)")
    if not count:
        lines = [f"Nothing matches {arguments.pattern[:200]!r}.", ""]
    if unmet:
        lines = [
            f"No file's name matches the include {arguments.include[:200]!r}, so nothing was searched. Several are one glob: *.{{py,md}}.",
            "",
        ]
    output = "\n".join([*lines, f"[{'; '.join(notes)}.]"])
    return ToolResult(
        title, output, {"count": count, "files": len(files), "truncated": found.more, "left_out": found.guarded}
    )


def _clipped(line: str, column: int) -> str:
    """The line, or where it is long, the part that has the match."""
    text = printable(line).rstrip()
    if len(text) <= MAX_LINE:
        return text
    start = 0 if column < MAX_LINE - 100 else column - 100
    return f"{'…' if start else ''}{text[start : start + MAX_LINE]}… [long line]"
