"""The plan file of a cell: where it is, what it says, what is known of it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from nbagent.errors import ModelError, PlanError
from nbagent.permission.ruleset import Action
from nbagent.permission.wildcard import exactly
from nbagent.root import Place, Root
from nbagent.session.approval import Approval, PlanStatus, plan_hash
from nbagent.session.instructions import NAMES
from nbagent.store.rows import PlanRow
from nbagent.store.store import Store

HISTORY = ".history"
_LIMIT = 2_000_000
_INSTRUCTIONS = frozenset([*(name.upper() for name in NAMES), "SKILL.MD"])


@dataclass(frozen=True, slots=True)
class PlanFile:
    """One plan file. ``shown`` is how people and the model name it: relative to the root inside it, else absolute.

    ``history``: the folder for its earlier versions."""

    place: Place
    history: Path

    @property
    def path(self) -> Path:
        return self.place.real

    @property
    def shown(self) -> str:
        return self.place.pattern

    def text(self) -> str | None:
        """What it says, or None when it does not exist. A plan that is not UTF-8 or is no plain file is a ``PlanError``."""
        try:
            with self.place.open_parent() as handle:
                if not handle.exists():
                    return None
                data = handle.read_bytes(_LIMIT)
        except FileNotFoundError:
            return None
        except ModelError as error:
            if not self.path.parent.exists():
                return None
            raise PlanError(f"The plan {self.shown} cannot be read: {error}") from None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise PlanError(f"The plan {self.shown} is not UTF-8 text. Save it as UTF-8.") from None

    def save(self, text: str) -> None:
        """Write it in one rename, keeping the version before in ``.history``."""
        before = self.text()
        if before == text:
            return
        try:
            if before is not None:
                self.keep(before)
            with self.place.open_parent(create=True) as handle:
                handle.write_bytes(text.encode("utf-8"))
        except (OSError, ModelError) as error:
            raise PlanError(f"The plan {self.shown} cannot be written: {error}") from None

    def keep(self, text: str) -> Path:
        """Put a version into ``.history``, once; returns where it is. Raises ``PlanError`` where a link is in the way."""
        name = f"{self.path.stem}.{plan_hash(text)[:12]}.md"
        # The plans folder may not be there yet: a plan named with ``--plan`` lies elsewhere.
        there = next(folder for folder in self.history.parents if folder.is_dir())
        kept = Root(there, explicit=True).locate(str(self.history / name))
        if kept.real != self.history / name:
            raise PlanError(
                f"{self.history} leads to {kept.real}, so the version before cannot be kept there. Remove the link."
            )
        try:
            with kept.open_parent(create=True) as handle:
                if not handle.exists():
                    handle.write_bytes(text.encode("utf-8"), new=True)
        except (OSError, ModelError) as error:
            raise PlanError(f"The version before cannot be kept in {self.history}: {error}") from None
        return kept.real


class Plans:
    """The plans of one project: the folder, the files and what the store knows of each."""

    def __init__(self, root: Root, home: Path, store: Store) -> None:
        self._root = root
        self._store = store
        self.worktree = worktree(root.path)
        own_data = Path(os.path.realpath(home))
        self.folder = (
            self.worktree / ".nbagent" / "plans" if self.worktree else own_data / "plans" / _project_name(root.path)
        )

    @property
    def pattern(self) -> str:
        """What rules match for any plan of the folder, by its own name: where a link there leads is no part of it."""
        return f"{self._root.pattern(self.folder)[0]}/*.md"

    def patterns(self, plan: PlanFile, named: bool) -> tuple[tuple[str, Action], ...]:
        """The floor's exceptions for a cell's ``plan``, as (pattern, action) in order.

        A plan that exists, or that ``--plan`` named (``named``): that file alone. One that is still to be written: any new plan of
        the plans folder (the first that is written is the cell's plan from then on), but no other cell's, be it written yet or
        only its by name, nor anything in a folder below. Looks at the folder and the store as they are now, and at no file.
        """
        mine: tuple[str, Action] = (exactly(plan.shown), "allow")
        folder = self.pattern.removesuffix("/*.md")
        if named or os.path.lexists(plan.path) or exactly(folder) != folder:
            return (mine,)  # a folder whose name is a wildcard would open others
        names = dict.fromkeys([*self._existing(), *self._reserved()])
        others = [f"{folder}/{name}" for name in names if name != plan.path.name]
        return (
            (f"{folder}/*.md", "allow"),
            (f"{folder}/*/*", "deny"),
            *((exactly(other), "deny") for other in others),
            mine,
        )

    def written(self, pattern: str) -> PlanFile | None:
        """The plan that a path in the plans folder is, if there is one now."""
        place = self._root.locate(pattern)
        if place.real.parent != self.folder or not place.real.name.endswith(".md") or place.linked:
            return None
        plan = PlanFile(place, self.folder / HISTORY)
        return plan if plan.text() is not None else None

    def unfit(self, pattern: str) -> str:
        """``no_plan`` for the path that a pattern of a call stands for."""
        return self.no_plan(self._root.locate(pattern).real)

    def _existing(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.folder) if name.endswith(".md"))  # noqa: PTH208 - asked often
        except OSError:
            return []

    def _reserved(self) -> list[str]:
        """Names in the plans folder that a cell was given, whether it has written its plan yet or not."""
        start = f"{self.folder}/"
        names = (path.removeprefix(start) for path in self._store.plan_paths(str(self.folder)))
        return sorted(name for name in names if "/" not in name)

    def file(self, name: str | Path) -> PlanFile:
        """The plan at ``name``: a path, relative to the root or absolute, or a bare name in the plans folder."""
        text = str(name)
        if "/" not in text and "\\" not in text and not (self._root.path / text).exists():
            text = str(self.folder / text)
        return self._at(text)

    def _at(self, path: str) -> PlanFile:
        try:
            place = self._root.locate(path)
        except ModelError as error:  # a person named it, or a folder went away at this moment
            raise PlanError(f"The plan {path!r} cannot be reached: {error}") from None
        return PlanFile(place, self.folder / HISTORY)

    def named(self, spelled: str) -> PlanFile:
        """The file that ``--plan`` names: a ``.md`` inside the root (or in the plans folder), no link."""
        plan = self.file(spelled)
        inside = not plan.place.outside or plan.path.parent == self.folder
        if plan.path.suffix.lower() != ".md" or not inside:
            raise PlanError(f"{spelled}: a plan must be a .md file inside the project root {self._root.path}.")
        if plan.place.linked:
            raise PlanError(f"{spelled} is reached through a link ({plan.path}). Name the file itself.")
        if why := self.no_plan(plan.path):
            raise PlanError(f"{plan.shown!r} {why}. Name another .md file, such as plans/{slug(plan.path.stem)}.md.")
        return plan

    def no_plan(self, path: Path) -> str:
        """Why no plan may be at ``path``: it would be read as something else, by people, by git or by nbagent. "" when it may."""
        if not str(path).isprintable():
            return "has a line break or another character in it that cannot be shown"
        if path.name.upper() in _INSTRUCTIONS:
            return "is what every agent is told, so it is no plan"
        if path.parent == self.folder:
            return ""
        inside = path.relative_to(self._root.path).parts[:-1] if path.is_relative_to(self._root.path) else ()
        own = next((part for part in inside if part.lower() in (".git", ".nbagent")), "")
        return f"is in {own}, whose files have a meaning of their own" if own else ""

    def foreign(self, plan: PlanFile) -> bool:
        """Whether there is a file with something in it that was never a plan here: it came from elsewhere."""
        if plan.path.parent == self.folder or self._store.plan(str(plan.path)) is not None:
            return False
        return bool((plan.text() or "").strip())

    def known(self, path: str | Path) -> PlanFile:
        """The plan at a real path that was chosen before. Raises ``PlanError`` when a link has taken its place since:
        where that leads is no plan, and would be written as if it were one."""
        plan = self._at(str(path))
        if plan.path != Path(path):
            raise PlanError(f"The plan {path} is a link now, to {plan.path}. Remove the link, or make a new plan.")
        return plan

    def prepare(self) -> None:
        """Make the plans folder. Raises ``PlanError`` when it cannot be written or is a link to another place.

        Nothing is made, not even for a moment, where a link leads.
        """
        place = self._at(str(self.folder / "plan.md")).place
        if place.real.parent != self.folder:
            raise PlanError(
                f"The plans folder {self.folder} is a link to {place.real.parent}. Make it a folder of its own."
            )
        try:
            place.open_parent(create=True).close()
        except ModelError as error:
            raise self._unwritable(str(error)) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise self._unwritable("permission denied")

    def _unwritable(self, why: str) -> PlanError:
        return PlanError(
            f"The plans folder {self.folder} cannot be written ({why}). "
            "Make it writable, or name a plan file with --plan."
        )

    def fresh(self, prompt: str, now: float) -> PlanFile:
        """A new name in the plans folder: ``<created>-<slug>.md``."""
        stem = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{slug(prompt)}"
        name, number = f"{stem}.md", 1
        while os.path.lexists(self.folder / name) or self._store.plan(str(self.folder / name)) is not None:
            number += 1
            name = f"{stem}-{number}.md"
        return self.known(self.folder / name)

    def of_cell(self, cell: str) -> PlanFile | None:
        """The plan that this notebook cell made before, if it is still being worked on."""
        if not cell:
            return None
        for row in self._store.plans(str(self._root.path), cell=cell):
            path = Path(row.path)
            if row.status in ("draft", "awaiting") and path.exists() and not path.is_symlink():
                return self.known(path)
        return None

    def rows(self) -> list[PlanRow]:
        """What is known of this project's plans, the last changed first; a plan whose file is gone is left out."""
        return [row for row in self._store.plans(str(self._root.path)) if Path(row.path).exists()]

    def listed(self) -> list[PlanRow]:
        """``rows``, and what else is in the plans folder: plans made from another folder of the same working tree, and files that
        came with it (drafts, as nobody here approved them)."""
        rows = self._store.plans()
        known = [row for row in rows if row.directory == str(self._root.path) or Path(row.path).parent == self.folder]
        paths = {row.path for row in known}
        found = [self.folder / name for name in self._existing()]
        new = [_unknown(path) for path in found if str(path) not in paths and path.is_file() and not path.is_symlink()]
        return [row for row in known if Path(row.path).exists()] + sorted(new, key=lambda row: row.time_updated)[::-1]

    def approval(self, plan: PlanFile) -> Approval:
        row = self._store.plan(str(plan.path))
        if row is None:
            return Approval()
        status: PlanStatus = row.status if row.status in _STATUSES else "draft"  # type: ignore[assignment]
        return Approval(status, row.hash, row.request)

    def record(self, plan: PlanFile, approval: Approval, **fields: str) -> None:
        """Write where a plan stands."""
        self._store.put_plan(
            str(plan.path),
            directory=str(self._root.path),
            status=approval.status,
            hash=approval.hash,
            request=approval.request,
            **fields,
        )


def _unknown(path: Path) -> PlanRow:
    changed = path.stat().st_mtime
    return PlanRow(
        path=str(path),
        directory="",
        session_id="",
        cell="",
        status="draft",
        hash="",
        request="",
        by="",
        comment="",
        time_created=changed,
        time_updated=changed,
    )


_STATUSES = get_args(PlanStatus)


def worktree(folder: Path) -> Path | None:
    """The top of the git working tree that ``folder`` is in, or None."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def slug(text: str, words: int = 6) -> str:
    """The first words of ``text``, fit for a file name."""
    found = re.findall(r"[a-z0-9]+", text.lower())[:words]
    return "-".join(found)[:48].strip("-") or "plan"


def _project_name(root: Path) -> str:
    return f"{slug(root.name)}-{plan_hash(str(root))[:8]}"


_PATH_IN_TEXT = re.compile(r"`([\w./-]+\.\w{1,6})`")
_CREATES = re.compile(r"\b(creat|add|new|write|introduc)", re.IGNORECASE)
_VERIFIES = re.compile(r"^#+.*\b(verif|test|check)|^\**(verification)", re.IGNORECASE | re.MULTILINE)


def warnings(text: str, root: Path) -> tuple[str, ...]:
    """What a person should know before approving: files that do not exist, no way to verify."""
    found: list[str] = []
    for line in text.splitlines():
        for path in _PATH_IN_TEXT.findall(line):
            if "/" in path and not path.startswith("/") and not (root / path).exists() and not _CREATES.search(line):
                found.append(f"`{path}` does not exist, and the plan does not say that it creates it.")
    if not _VERIFIES.search(text):
        found.append("The plan has no section that says how to verify the result.")
    return tuple(dict.fromkeys(found))
