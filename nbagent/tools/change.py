"""One file that a tool wants to write: found, judged, opened, previewed, and written as it was decided."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from nbagent.errors import ToolError
from nbagent.permission.ask import Preview
from nbagent.permission.path import path_effects, path_needs
from nbagent.root import Handle, Place
from nbagent.tools.access import may_show, refused
from nbagent.tools.diff import Diff, unified
from nbagent.tools.seen import version_of
from nbagent.tools.textfile import TextFile, decode_file
from nbagent.tools.tool import Declaration, ToolContext

MAX_SIZE = 32 * 1024 * 1024


@dataclass
class Target:
    """A place that is to be written. ``before``: its bytes (None: it does not exist), ``version``: see ``seen.version_of``.

    ``handle``: the opened parent (None: the folder does not exist yet). ``details``: more for the view.
    """

    place: Place
    handle: Handle | None
    before: bytes | None
    version: str = ""
    after: bytes = b""
    diff: Diff = field(default_factory=lambda: Diff("", 0, 0))
    details: dict[str, Any] = field(default_factory=dict)

    def close(self) -> None:
        if self.handle is not None:
            self.handle.close()

    def write(self) -> None:
        """Put ``after`` in place, unless the file is no longer what was decided on."""
        if self.handle is None:
            self.handle = self.place.open_parent(create=True)
        self.refuse_swapped()
        self.put(self.handle)

    def put(self, handle: Handle, like: os.stat_result | None = None) -> None:
        """Write ``after``; ``like``: whose mode a new file takes."""
        handle.write_bytes(self.after, like, new=self.before is None)
        self.version = version_of(self.after, handle.stat())

    def note(self, context: ToolContext, whole: bool = False) -> None:
        """The model knows the new version: all of it when it knew all of the old one, or wrote ``whole`` of it."""
        seen = context.reads.seen(self.place.real)
        known = whole or self.before is None or bool(seen and seen[1])
        context.reads.saw(self.place.real, self.version, known)

    def refuse_swapped(self) -> None:
        """Raises ``ToolError`` when the file is not what it was when the call was declared."""
        there = self.handle is not None and self.handle.exists()
        now = self.handle.read_bytes(MAX_SIZE + 1) if there and self.handle is not None else None
        if now != self.before:
            raise ToolError(
                f"{self.place.pattern} was changed by someone else while this call was decided; nothing was written. "
                "Read it again."
            )

    def metadata(self) -> dict[str, Any]:
        """What the view shows of this change."""
        return {
            "path": self.place.pattern,
            "diff": self.diff.text,
            "additions": self.diff.additions,
            "deletions": self.diff.deletions,
            "created": self.before is None,
            **self.details,
        }


def refuse_notebook(place: Place) -> None:
    """Notebooks are changed by cell."""
    if PurePosixPath(place.pattern).suffix.lower() == ".ipynb":
        raise ToolError(
            f"{place.pattern} is a notebook: its text is JSON that is easily broken. "
            "Use notebook_read to see its cells and notebook_edit to insert, replace, edit, move or delete them."
        )


def refuse_unsaved(place: Place, context: ToolContext) -> None:
    """A document that a person has open with unsaved changes is theirs: a change of the file would fight with it."""
    own = context.frontend.notebook
    if own is not None and str(place.real) in own.open_paths():
        raise ToolError(
            f"{place.pattern} is open with unsaved changes, which a change of the file would fight with. "
            "Ask the person to save or close it; then read it again."
        )


def open_target(place: Place) -> Target:
    """The place opened for a change, with what is in it. Raises ``ToolError`` for a folder, a device, a file too large."""
    if not place.real.parent.is_dir():
        return Target(place, None, None)
    handle = place.open_parent()
    try:
        if not handle.exists():
            return Target(place, handle, None)
        found = handle.stat()
        before = handle.read_bytes(MAX_SIZE + 1)
        if len(before) > MAX_SIZE:
            raise ToolError(f"{place.pattern} is larger than {MAX_SIZE // 1024 // 1024} MB; change it with a command.")
    except BaseException:
        handle.close()
        raise
    return Target(place, handle, before, version_of(before, found))


def declare_change(
    name: str, spelled: str, context: ToolContext, prepare: Callable[[Target, ToolContext, bool], None]
) -> Declaration:
    """A declaration for a change of one file: ``prepare`` fills in what will be written.

    Nothing is looked at where a rule refuses the call anyway: the gate says so. Where the file may not be shown to the model without a
    person's word, problems found in it are told only after the person's yes.
    """
    place = context.root.locate(spelled)
    needs = path_needs("edit", place)
    title = f"{name} {place.pattern}"
    effects = path_effects("write", place)
    notes = (f"{place.spelled} is a link: it leads to {place.pattern}",) if place.linked else ()
    if refused(needs, context.rules):
        return Declaration(title, needs, effects=effects, notes=notes, subject=place)
    refuse_notebook(place)
    refuse_unsaved(place, context)
    reveal = may_show(place, context.rules)
    target = open_target(place)
    try:
        prepare(target, context, reveal)
    except ToolError:
        target.close()
        if reveal:
            raise
        return Declaration(title, needs, effects=effects, notes=notes, subject=place)
    except BaseException:
        target.close()
        raise
    return Declaration(title, needs, Preview("diff", target.diff.text), effects, notes, target, target.close)


def settled_target(
    spelled: str,
    declaration: Declaration,
    context: ToolContext,
    prepare: Callable[[Target, ToolContext, bool], None],
) -> Target:
    """The declared target; where declaring stopped before it looked, look now, at the place that was decided on: the spelling may
    lead elsewhere by now."""
    if isinstance(declaration.subject, Target):
        return declaration.subject
    place = declaration.subject if isinstance(declaration.subject, Place) else context.root.locate(spelled)
    refuse_notebook(place)
    refuse_unsaved(place, context)
    target = open_target(place)
    try:
        prepare(target, context, True)
    except BaseException:
        target.close()
        raise
    return target


def text_of(target: Target) -> TextFile:
    """What is in the file now; an empty text for one that does not exist."""
    if not target.before:
        return TextFile("")
    try:
        return decode_file(target.before)
    except ToolError as error:
        raise ToolError(f"{target.place.pattern}: {error} It cannot be changed as text.") from None


def preview(target: Target, before: TextFile, after: TextFile) -> None:
    """Fill in what will be written and the diff of it."""
    target.after = after.encode()
    target.diff = unified(before.text, after.text, target.place.pattern, new=target.before is None)
