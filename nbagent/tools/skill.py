"""``skill``: the instructions in a ``SKILL.md``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from nbagent.errors import ArgumentError, ToolError
from nbagent.permission.ask import Need
from nbagent.root import Place
from nbagent.tools.access import may_show
from nbagent.tools.textfile import printable
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread
from nbagent.tools.walk import Walk

FILE = "SKILL.md"
MAX_SIZE = 256 * 1024
MAX_FILES = 40


class SkillArguments(Arguments, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, description="name of the skill")]


class Skill(Tool[SkillArguments]):
    name = "skill"
    permission = "skill"
    effect = "reads"
    hint = "load the instructions of a skill by name"
    arguments = SkillArguments
    parallel = True

    def declare(self, arguments: SkillArguments, context: ToolContext) -> Declaration:
        name = arguments.name.strip()
        if name not in context.host.skills():
            raise _unknown(name, list(context.host.skills()))
        return Declaration(f"skill {name}", (Need(self.permission, (name,), always=(name,)),))

    async def act(self, arguments: SkillArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        _, folder = context.host.skills()[arguments.name.strip()]
        output = await in_thread(lambda: _load(folder, context))
        return ToolResult(declaration.title, output, {"skill": arguments.name.strip(), "folder": str(folder)})


def _unknown(name: str, names: list[str]) -> ArgumentError:
    if not names:
        return ArgumentError("There are no skills here. Go on without one.")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return ArgumentError(f"There is no skill {name[:80]!r}. Did you mean {' or '.join(near)}?")
    return ArgumentError(f"There is no skill {name[:80]!r}. The skills are: {', '.join(sorted(names)[:50])}.")


def _load(folder: Path, context: ToolContext) -> str:
    place = context.root.locate(str(folder / FILE))
    _refuse_astray(place, folder, context)
    with place.open_parent() as handle:
        text = handle.read_bytes(MAX_SIZE).decode("utf-8", "replace")
    shown = printable(without_front_matter(text)).strip()
    others = list(_files(folder, context))
    lines = [f"Skill folder: {folder}", "", shown]
    if others:
        lines += [
            "",
            "Files of this skill (read them when the text above refers to them):",
            *(f"- {o}" for o in others),
        ]
    return "\n".join(lines)


def _refuse_astray(place: Place, folder: Path, context: ToolContext) -> None:
    """A skill of the project whose file is a link to somewhere else, or one that a rule guards, is not read."""
    of_project = folder.is_relative_to(context.root.path)
    if of_project and (place.outside or not may_show(place, context.rules)):
        raise ToolError(f"{place.spelled} leads to {place.pattern}, which may not be read as a skill.")
    if not of_project and not place.real.is_relative_to(folder.resolve()):
        raise ToolError(f"{place.spelled} leads out of the skill's folder, to {place.pattern}; it was not read.")


def _files(folder: Path, context: ToolContext) -> Iterator[str]:
    found = (path for path in Walk(folder.resolve(), folder.resolve()).files() if path != FILE)
    for _, path in zip(range(MAX_FILES), found, strict=False):
        yield printable(path)


def without_front_matter(text: str) -> str:
    """The text after the ``---`` block at its beginning."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].strip() != "---":
        return text
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    return text if end is None else "\n".join(lines[end + 1 :])
