"""Names that are near one that does not exist."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from nbagent.root import Place
from nbagent.tools.access import Sieve, may_show
from nbagent.tools.tool import ToolContext

MAX_LOOKED_AT = 4_000


def near_names(place: Place, context: ToolContext) -> str:
    """A sentence `` Did you mean …?`` with up to three paths like the missing ``place``, or "". Names only what may be read."""
    if place.outside and not may_show(place, context.rules):
        return ""
    beside = _beside(place.real)
    same_name = [] if place.outside else list(_same_name(context.root.path, place.real.name))
    passes = Sieve("read", context.rules).passes
    found: list[str] = []
    for real in [*beside, *same_name]:
        pattern, outside = context.root.pattern(real)
        if pattern not in found and outside == place.outside and passes(pattern):
            found.append(pattern)
    return f" Did you mean {' or '.join(found[:3])}?" if found else ""


def _beside(real: Path) -> list[Path]:
    try:
        names = os.listdir(real.parent)  # noqa: PTH208
    except OSError:
        return []
    by_fold = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(real.name.casefold(), by_fold, n=3, cutoff=0.6)
    stem = real.stem.casefold()
    same_stem = [n for n in sorted(names) if Path(n).stem.casefold() == stem]
    return [real.parent / name for name in dict.fromkeys([*(by_fold[c] for c in close), *same_stem])]


def _same_name(root: Path, name: str) -> Iterator[Path]:
    looked = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in {".git", "node_modules", ".venv", "__pycache__"}]
        looked += len(files)
        if name in files:
            yield Path(folder, name)
        if looked > MAX_LOOKED_AT:
            return
