"""What a git repository would have git run: its own settings may name programs, and without a wall nothing holds those."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

MOST = 100
"""Repositories inside repositories that are looked into."""
_SECONDS = 20.0

_RUNS = re.compile(
    r"filter\..*\.(clean|smudge|process)|diff\.external|diff\..*\.(command|textconv)|gpg\..*|alias\..*|tar\..*\.command"
    r"|remote\..*\.(promisor|partialclonefilter)|extensions\.partialclone|core\.alternaterefscommand"
)
_FILTERS = re.compile(rb"\bfilter=")


def runs_programs(folders: Sequence[Path | None], environment: Mapping[str, str]) -> str:
    """Why git may run a program when it looks at the repositories of these folders, as the end of a sentence; "" when it does not.

    Settings of the person's own count only where the repository's files ask for them. ``None`` is a folder that is not known.
    """
    pending, seen = list(folders), set[Path]()
    while pending:
        folder = pending.pop()
        if folder is None or len(seen) > MOST:
            return "which repository it looks at cannot be told"
        top = _top(folder)
        if top is None or top in seen:
            continue
        seen.add(top)
        try:
            names = _programs(top, environment)
            pending += [top / inner for inner in _inner(top, environment) if (top / inner / ".git").exists()]
        except (OSError, subprocess.SubprocessError):
            return f"the settings of the repository {top} cannot be read"
        if names:
            return f"the repository {top} has settings by which git runs other programs ({', '.join(names[:3])})"
    return ""


def _top(folder: Path) -> Path | None:
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def _programs(top: Path, environment: Mapping[str, str]) -> list[str]:
    found = []
    rows = _git(["config", "--list", "--includes", "--show-scope", "-z"], top, environment).split(b"\0")
    for scope, row in zip(rows[::2], rows[1::2], strict=False):
        name = row.partition(b"\n")[0].decode("utf-8", "replace")
        theirs = scope in (b"local", b"worktree") or (name.startswith("filter.") and _filters(top))
        if theirs and _RUNS.fullmatch(name):
            found.append(name)
    return found


def _filters(top: Path) -> bool:
    """Whether the repository sends files through filters."""
    for path in (top / ".gitattributes", top / ".git" / "info" / "attributes"):
        try:
            if _FILTERS.search(path.read_bytes()):
                return True
        except OSError:
            continue
    return False


def _inner(top: Path, environment: Mapping[str, str]) -> list[str]:
    """Repositories inside this one that git looks into as well."""
    rows = _git(["ls-files", "--stage", "-z"], top, environment).split(b"\0")
    return [row.partition(b"\t")[2].decode("utf-8", "surrogateescape") for row in rows if row.startswith(b"160000 ")]


def _git(arguments: list[str], top: Path, environment: Mapping[str, str]) -> bytes:
    done = subprocess.run(
        ["git", *arguments],
        cwd=top,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
    return done.stdout
