"""``apply_patch``: several files in one go, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.permission.ask import Preview
from nbagent.permission.path import path_effects, path_needs
from nbagent.root import Place
from nbagent.tools.access import may_show, refused
from nbagent.tools.change import Target, open_target, refuse_notebook, refuse_unsaved, text_of
from nbagent.tools.diff import Diff, unified
from nbagent.tools.near import near_names
from nbagent.tools.patch import PatchError, Section, apply, new_text, parse
from nbagent.tools.seen import refuse_stale
from nbagent.tools.textfile import TextFile, decode_file
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread


class ApplyPatchArguments(Arguments, frozen=True, kw_only=True):
    patchText: Annotated[str, Meta(description="the whole patch, from *** Begin Patch to *** End Patch")]  # noqa: N815


class ApplyPatch(Tool[ApplyPatchArguments]):
    name = "apply_patch"
    permission = "edit"
    effect = "writes"
    hint = "change, add, move or delete several files in one patch"
    arguments = ApplyPatchArguments
    deferred = True

    def declare(self, arguments: ApplyPatchArguments, context: ToolContext) -> Declaration:
        sections = parse(arguments.patchText)
        located = {path: context.root.locate(path) for path in _paths(sections)}
        places = list(located.values())
        needs = path_needs(self.permission, *places)
        patterns = list(dict.fromkeys(place.pattern for place in places))
        title = f"patch {patterns[0]}" + (f" and {len(patterns) - 1} more" if len(patterns) > 1 else "")
        notes = tuple(f"{place.spelled} is a link: it leads to {place.pattern}" for place in places if place.linked)
        effects = tuple(dict.fromkeys(path_effects("write", *places)))
        if refused(needs, context.rules):
            return Declaration(title, needs, effects=effects, notes=notes, subject=located)
        reveal = all(may_show(place, context.rules) for place in places)
        try:
            plan = Plan.of(sections, located, context, reveal)
        except ToolError:
            if reveal:
                raise
            return Declaration(title, needs, effects=effects, notes=notes, subject=located)
        return Declaration(title, needs, Preview("diff", plan.diff()), effects, notes, plan, plan.close)

    async def act(self, arguments: ApplyPatchArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        def work() -> Plan:
            plan = declaration.subject
            if not isinstance(plan, Plan):
                plan = Plan.of(parse(arguments.patchText), declaration.subject, context, True)
            try:
                plan.carry_out()
            finally:
                plan.close()
            return plan

        plan = await in_thread(work)
        for step in plan.steps:
            if not step.gone:
                step.target.note(context)
        return ToolResult(declaration.title, plan.told(), plan.metadata())


def _paths(sections: Sequence[Section]) -> list[str]:
    return [path for section in sections for path in (section.path, section.move) if path]


@dataclass
class Step:
    """What happens to one file. ``gone``: it is deleted, or moved to ``moved``, where another step makes it."""

    target: Target
    status: str
    gone: bool = False
    moved: str = ""
    text: TextFile | None = None
    loose: tuple[str, ...] = ()
    mode_of: Target | None = None
    done: bool = field(default=False)

    @property
    def pattern(self) -> str:
        return self.target.place.pattern

    def perform(self) -> None:
        target = self.target
        if target.handle is None:
            target.handle = target.place.open_parent(create=True)
            target.refuse_swapped()
        if self.gone:
            target.handle.unlink()
        elif target.after != target.before or target.before is None:
            like = self.mode_of
            source = like.handle.stat() if like is not None and like.handle is not None else None
            target.put(target.handle, source)
        self.done = True

    def take_back(self) -> None:
        handle = self.target.handle
        if not self.done or handle is None:
            return
        if self.target.before is None:
            handle.unlink()
        else:
            handle.write_bytes(self.target.before)


class Plan:
    """All that a patch will do, worked out before anything is done. ``places``: what each path of it was found to be, once: a path
    that is looked up again may lead elsewhere than what was decided on."""

    def __init__(self, places: Mapping[str, Place], context: ToolContext, reveal: bool) -> None:
        self._places = places
        self._context = context
        self._reveal = reveal
        self._by_path: dict[str, Step] = {}

    @classmethod
    def of(cls, sections: Sequence[Section], places: Mapping[str, Place], context: ToolContext, reveal: bool) -> Plan:
        """Raises ``ToolError`` when any part does not fit; then nothing is open."""
        plan = cls(places, context, reveal)
        try:
            for section in sections:
                plan._add(section)
            plan._finish()
        except BaseException:
            plan.close()
            raise
        return plan

    @property
    def steps(self) -> list[Step]:
        """New and changed files first, so that what fails does so before anything is deleted."""
        return sorted(self._by_path.values(), key=lambda step: step.gone)

    def _add(self, section: Section) -> None:
        place = self._places[section.path]
        if section.kind == "add":
            self._added(place, section)
        elif section.kind == "delete":
            self._deleted(place)
        else:
            self._updated(place, section)

    def _added(self, place: Place, section: Section) -> None:
        refuse_notebook(place)
        step = self._open(place, "added")
        if step.target.before is not None:
            raise PatchError(f"{place.pattern} exists already. Use *** Update File to change it. Nothing was changed.")
        text = new_text(section)
        step.text = TextFile(text, ("\n",) * text.count("\n"))

    def _deleted(self, place: Place) -> None:
        step = self._open(place, "deleted")
        self._refuse_missing(step)
        step.gone = True

    def _updated(self, place: Place, section: Section) -> None:
        if section.hunks:
            refuse_notebook(place)
        step = self._by_path.get(place.pattern)
        if step is None or step.status != "modified" or step.gone:
            step = self._open(place, "modified")
            self._refuse_missing(step)
        if section.hunks:
            applied = apply(step.text or text_of(step.target), section)
            step.text = applied.file
            step.loose += applied.loose
        if section.move:
            self._moved(step, section)

    def _moved(self, step: Step, section: Section) -> None:
        place = self._places[section.move]
        if place.pattern == step.pattern:
            return
        if PurePosixPath(place.pattern).suffix != PurePosixPath(step.pattern).suffix:
            refuse_notebook(place)
        there = self._open(place, "moved")
        if there.target.before is not None:
            raise PatchError(
                f"{place.pattern} exists already, so {step.pattern} cannot be moved there. Nothing was changed."
            )
        there.text, there.loose, there.mode_of = step.text, step.loose, step.target
        there.target.after = step.target.before or b""
        step.gone, step.moved, step.text, step.loose = True, place.pattern, None, ()

    def _open(self, place: Place, status: str) -> Step:
        if place.pattern in self._by_path:
            raise PatchError(
                f"{place.pattern} is in the patch more than once, in ways that do not go together. "
                "Put all that happens to one file into one section. Nothing was changed."
            )
        refuse_unsaved(place, self._context)
        step = self._by_path[place.pattern] = Step(open_target(place), status)
        return step

    def _refuse_missing(self, step: Step) -> None:
        target = step.target
        if target.before is None:
            near = near_names(target.place, self._context) if self._reveal else ""
            raise PatchError(f"{step.pattern} does not exist.{near} Nothing was changed.")
        refuse_stale(target.place, target.before, target.version, self._context.reads, self._reveal)

    def _finish(self) -> None:
        for step in self._by_path.values():
            if step.gone:
                continue
            if step.text is not None:
                step.target.after = step.text.encode()
            elif step.target.before is not None:
                step.target.after = step.target.before
        for step in self._by_path.values():
            step.target.diff = self._diff(step)

    def _diff(self, step: Step) -> Diff:
        """The diff of one step; a moved file's is told where it arrives."""
        if step.moved:
            return Diff("", 0, 0)
        source = step.mode_of or step.target
        try:
            before = decode_file(source.before or b"").text
            after = "" if step.gone else decode_file(step.target.after).text
        except ToolError:
            return Diff(f"Binary file {step.pattern}\n", 0, 0)
        moved = step.pattern if step.mode_of is not None else ""
        return unified(before, after, source.place.pattern, new=source.before is None, gone=step.gone, moved=moved)

    def diff(self) -> str:
        """All diffs, for a person."""
        return "".join(step.target.diff.text for step in self._by_path.values())

    def carry_out(self) -> None:
        """Do it all, or, when a part fails, put back what was done and raise."""
        for step in self.steps:
            step.target.refuse_swapped()
        try:
            for step in self.steps:
                step.perform()
        except BaseException as error:
            failed = self._take_back()
            if not isinstance(error, ToolError):
                raise
            left = f" These could not be put back: {', '.join(failed)}." if failed else " Nothing was changed."
            raise ToolError(f"{error}{left}") from error

    def _take_back(self) -> list[str]:
        failed = []
        for step in reversed(self.steps):
            try:
                step.take_back()
            except (ToolError, OSError):
                failed.append(step.pattern)
        return failed

    def close(self) -> None:
        for step in self._by_path.values():
            step.target.close()

    def told(self) -> str:
        """What was done, a line a file."""
        lines = []
        for step in self._by_path.values():
            if step.moved:
                continue
            diff = step.target.diff
            counts = f" (+{diff.additions} -{diff.deletions})"
            unchanged = step.status == "modified" and step.target.after == step.target.before
            if unchanged:
                lines.append(f"unchanged {step.pattern}: its section has nothing to change")
                continue
            source = f" from {step.mode_of.place.pattern}" if step.mode_of is not None else ""
            lines.append(f"{step.status} {step.pattern}{source}{counts if not step.gone else ''}")
            if step.loose:
                lines.append(
                    f"  matched with other {' and other '.join(step.loose)} than the file has; read it to check"
                )
        return "\n".join(lines)

    def metadata(self) -> dict[str, Any]:
        shown = [step for step in self._by_path.values() if not step.moved]
        return {
            "diff": self.diff(),
            "additions": sum(step.target.diff.additions for step in shown),
            "deletions": sum(step.target.diff.deletions for step in shown),
            "files": [
                {
                    "path": step.pattern,
                    "status": step.status,
                    "additions": step.target.diff.additions,
                    "deletions": step.target.diff.deletions,
                    **({"from": step.mode_of.place.pattern} if step.mode_of is not None else {}),
                }
                for step in shown
            ],
        }
