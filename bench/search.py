"""``grep``, ``glob``, ``read`` and ``edit`` on a large tree and a large file, beside ``rg`` and plain Python."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figure import Figure, Found, median, milliseconds
from bench.place import ground, plant

CLAIM = (
    "A tree of 20,000 files and a text file of 200 MB; programs, files and page cache warm. *Plain Python*: `os.walk`, "
    "`read_text`, `re` line by line, in this process. *Same results*: `rg` sorting by modification time, as the tool does."
)
CHEAP = True
SECONDS = 400


def _python_grep(root: Path, pattern: str) -> int:
    wanted = re.compile(pattern)
    count = 0
    for folder, _, names in os.walk(root):
        for name in names:
            text = Path(folder, name).read_text(errors="replace")
            count += sum(1 for line in text.split("\n") if wanted.search(line))
    return count


def _rg(root: Path, *arguments: str) -> Callable[[], None]:
    def work() -> None:
        subprocess.run(["rg", "--no-config", *arguments], cwd=root, capture_output=True, check=False)

    return work


def _side(runs: int, works: dict[tuple[str, str], Callable[[], Any]]) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of works that take turns, so that what else the machine does falls on all."""
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in works}
    for _ in range(runs):
        for key, work in works.items():
            taken[key] += milliseconds(work, 1, warm=0 if taken[key] else 1)
    return taken


def _medians(taken: dict[tuple[str, str], list[float]]) -> Found:
    return [Figure(what, median(values), "ms", who=who) for (what, who), values in taken.items()]


def measure(quick: bool) -> Found:
    from tests.toolbox import toolbox

    files, megabytes = (300, 2) if quick else (20_000, 200)
    runs = 2 if quick else 15
    found: Found = []
    ripgrep = shutil.which("rg") is not None
    with ground() as place, asyncio.Runner() as loop:
        plant(place.root, files)
        box = toolbox(place.base)

        def tool(name: str, **arguments: Any) -> Callable[[], Any]:
            return lambda: loop.run(box.call(name, **arguments))

        rare, common = "x \\+ 77$", "def f1[0-9]+"
        works: dict[tuple[str, str], Callable[[], Any]] = {
            ("grep, few matches", "nbagent"): tool("grep", pattern=rare),
            ("grep, matches in most files", "nbagent"): tool("grep", pattern=common),
            ("glob `**/*7.py`", "nbagent"): tool("glob", pattern="**/*7.py"),
            ("grep, few matches", "plain Python"): lambda: _python_grep(place.root, rare),
            ("glob `**/*7.py`", "plain Python"): lambda: list(place.root.rglob("*7.py")),
        }
        if ripgrep:
            works[("grep, few matches", "rg")] = _rg(place.root, "-n", rare, "./")
            works[("grep, matches in most files", "rg")] = _rg(place.root, "-n", common, "./")
            works[("glob `**/*7.py`", "rg")] = _rg(place.root, "--files", "-g", "**/*7.py", "./")
            works[("grep, few matches", "rg, same order")] = _rg(place.root, "-n", "--sortr=modified", rare, "./")
            works[("grep, matches in most files", "rg, same order")] = _rg(
                place.root, "-n", "--sortr=modified", common, "./"
            )
        else:
            found.append("ripgrep is not there to compare with: the tools search by themselves.")
        taken = _side(runs, works)
        found += _medians(taken)
        found += _ratios(taken)
        big = place.root / "big.log"
        line = b"2024-01-01 00:00:00 INFO everything is as it was before, and nothing happened at all\n"
        with big.open("wb") as file:
            for _ in range(megabytes):
                file.write(line * (1_000_000 // len(line)))
        small = box.put("small.py", "value = 1\n" + "print(value)\n" * 500)
        loop.run(box.call("read", filePath="small.py"))
        turn = iter(range(10**9))
        value = {"now": 1}

        def edit() -> None:
            old, value["now"] = value["now"], next(turn) + 2
            new = f"value = {value['now']}\n"
            loop.run(box.call("edit", filePath="small.py", oldString=f"value = {old}\n", newString=new))

        name = f"{megabytes} MB file"
        works = {
            (f"read the beginning of a {name}", "nbagent"): tool("read", filePath="big.log"),
            (f"read 100 lines in the middle of a {name}", "nbagent"): tool(
                "read", filePath="big.log", offset=megabytes * 5_000, limit=100
            ),
            (f"grep in a {name}, no match", "nbagent"): tool("grep", pattern="never here", path="big.log"),
            (f"read 100 lines in the middle of a {name}", "plain Python"): lambda: _lines(big, megabytes * 5_000),
            ("edit a file of 500 lines", "nbagent"): edit,
        }
        if ripgrep:
            works[(f"grep in a {name}, no match", "rg")] = _rg(place.root, "-n", "never here", "big.log")
        found += _medians(_side(2 if quick else 5, works))
        assert small.read_text().startswith(f"value = {value['now']}")
    return found


def _ratios(taken: dict[tuple[str, str], list[float]]) -> Found:
    """Medians of the ratios turn by turn: the two of a turn met the same machine."""
    ratios: Found = []
    for what in ("grep, few matches", "grep, matches in most files"):
        for who in ("rg", "rg, same order"):
            if (what, who) in taken:
                turns = zip(taken[(what, "nbagent")], taken[(what, who)], strict=True)
                ratio = median([ours / theirs for ours, theirs in turns])
                ratios.append(Figure(f"{what}: against {who}", ratio, "times", most=1.3))
    return ratios


def _lines(path: Path, offset: int) -> list[str]:
    with path.open(encoding="utf-8") as file:
        for _ in range(offset):
            file.readline()
        return [file.readline() for _ in range(100)]
