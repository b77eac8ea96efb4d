"""``AGENTS.md`` (else ``CLAUDE.md``): what a project and a person tell every agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

NAMES = ("AGENTS.md", "CLAUDE.md")
LIMIT = 40_000


def in_folder(folder: Path) -> Path | None:
    """The instruction file of one folder, if it has a plain one that is really in it."""
    for name in NAMES:
        path = folder / name
        if path.is_file() and path.resolve().parent == folder.resolve():
            return path
    return None


def discover(root: Path, at_work: Path, personal: Path | None) -> list[Path]:
    """The person's own file, then those from the project root down to the folder at work."""
    found: list[Path] = []
    if personal is not None and (own := in_folder(personal)) is not None:
        found.append(own)
    for folder in _down(root, at_work):
        here = in_folder(folder)
        if here is not None:
            found.append(here)
    return found


def render(paths: Iterable[Path]) -> str:
    """Instruction files as text for the model, each under its path. Files that cannot be read are left out."""
    blocks: list[str] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")[:LIMIT].strip()
        except OSError:
            continue
        if text:
            blocks.append(f"Instructions from {path}:\n\n{text}")
    return "\n\n".join(blocks)


def nearby(root: Path, real: Path, given: Sequence[str]) -> tuple[str, list[str]]:
    """Instruction files in the folders between ``root`` and the file ``real`` that the model has not been given yet.

    Containment is by path, not by the beginning of a name; a file outside the root brings none.
    """
    folder = real if real.is_dir() else real.parent
    found = [path for path in map(in_folder, _down(root, folder)[1:]) if path is not None and str(path) not in given]
    return render(found), [str(path) for path in found]


def _down(root: Path, folder: Path) -> list[Path]:
    """``root`` and each folder below it down to ``folder``; only ``root`` when ``folder`` is not inside."""
    if not folder.is_relative_to(root):
        return [root]
    steps = [root]
    for name in folder.relative_to(root).parts:
        steps.append(steps[-1] / name)
    return steps
