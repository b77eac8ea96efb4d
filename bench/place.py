"""Folders to measure in: a project with files, a home beside it, an environment that knows nothing else."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSED_ON = ("PATH", "LANG", "TERM", "NBAGENT_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH")


@dataclass(frozen=True)
class Ground:
    """``root``: the project; ``base``: the folder of everything; ``environment``: for programs and kernels in it."""

    base: Path
    root: Path
    environment: dict[str, str]

    def use(self, url: str) -> None:
        self.environment["OPENAI_BASE_URL"] = url


@contextlib.contextmanager
def ground(files: int = 0, under: Path | None = None) -> Iterator[Ground]:
    """A project with ``files`` small text files ``f0.txt`` …; all of it is gone in the end. ``under``: not in the temporary folder."""
    base = Path(tempfile.mkdtemp(prefix="nbagent-bench-", dir=under))
    root = base / "work"
    root.mkdir()
    (base / "home").mkdir()
    for number in range(files):
        (root / f"f{number}.txt").write_text(f"{number}\n" * 20)
    environment = {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        "HOME": str(base / "home"),
        "NBAGENT_HOME": str(base / "nbagent-home"),
        "NBAGENT_MODEL": "scripted",
        "OPENAI_API_KEY": "sk-none",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    try:
        yield Ground(base, root, environment)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def plant(root: Path, count: int) -> int:
    """``count`` files of 0.1 to 15 KB in ``count / 20`` folders; the bytes written."""
    chance = random.Random(7)
    total = 0
    for number in range(count):
        folder = root / f"package{number % 40}" / f"part{number // 40 % max(1, count // 800)}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = (
            f"def f{chance.randrange(10**6)}(x):\n    return x + {number}\n" for _ in range(chance.randrange(3, 400))
        )
        total += (folder / f"module{number}.py").write_text("".join(lines))
    (root / ".gitignore").write_text("*.pyc\nbuild/\n*.log\n/dist\n*.egg-info/\n")
    return total


def reads(steps: int) -> list[object]:
    """A script: ``steps`` answers that each read a small file, and one that ends."""
    calls: list[object] = [[{"call": "read", "args": {"filePath": f"f{n}.txt"}}] for n in range(steps)]
    return [*calls, [{"say": "done"}]]
