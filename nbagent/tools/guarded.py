"""Files of the project that the rules guard from being read, so that a confined command cannot read them either."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from nbagent.permission.ruleset import Ruleset
from nbagent.root import Root
from nbagent.tools.access import Sieve

MOST = 20_000
"""Files that are looked at. In a larger tree the deeper ones are left to the rules for what a command names."""

_PASSED = frozenset(
    [".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache"]
)


def guarded_files(root: Root, rules: Ruleset, decided: Collection[str] = ()) -> tuple[Path, ...]:
    """Existing files under the root whose reading is not simply allowed, nearest first. ``decided``: patterns that a person or a
    rule has allowed for this very call."""
    sieve = Sieve("read", rules)
    if not sieve.marks():
        return ()
    found: list[Path] = []
    seen = 0
    folders = [""]
    for folder in folders:  # grows as it goes: breadth first
        names, below = _entries(root.path / folder)
        prefix = f"{folder}/" if folder else ""
        folders.extend(f"{prefix}{name}" for name in below if name not in _PASSED)
        found += [
            root.path / f"{prefix}{name}"
            for name in sorted(sieve.refused(prefix, names))
            if prefix + name not in decided
        ]
        seen += len(names)
        if seen > MOST:
            break
    return tuple(found)


def _entries(folder: Path) -> tuple[list[str], list[str]]:
    """Names of the files and of the folders in a folder; links count as files."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
    except OSError:
        pass
    return files, folders
