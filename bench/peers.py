"""nbagent beside other agents of the command line: the same scripted server, the same files, the same machine, in turns."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, Found, median
from bench.place import Ground, ground, plant
from bench.program import PROGRAMS, Program, Ran, run
from bench.server import gaps

CLAIM = (
    "One headless run of each (`nbagent run`, `opencode run`, `codex exec`, `qwen -p`), installed by `make bench-peers`. A step "
    "reads one small file (codex has no tool for that: it runs `cat`, confined as it is by default). *CPU* is of the process "
    "and its children, less that of a run of one step; *memory* is the most that the largest process had at once."
)
CHEAP = False
SECONDS = 900
UNDER = Path(__file__).parents[1] / "build" / "bench-ground"


@contextmanager
def _project(files: int) -> Iterator[Ground]:
    UNDER.mkdir(parents=True, exist_ok=True)
    try:
        with ground(files, under=UNDER) as place:
            subprocess.run(["git", "init", "-q", str(place.root)], check=True)
            yield place
    finally:
        shutil.rmtree(UNDER, ignore_errors=True)


def _steps(program: Program, steps: int, turns: int) -> Found:
    with _project(steps + 1) as place:

        def script(count: int) -> list[object]:
            return [*([program.read(place.root / f"f{n}.txt")] for n in range(count)), [{"say": "done"}]]

        run(program, place, script(1))  # databases, caches
        short, long = [], []
        for _ in range(turns):
            short.append(run(program, place, script(1)))
            long.append(run(program, place, script(steps)))
    name = program.name
    idle = median([each.cpu for each in short])
    return [
        Figure("start to first request", median([each.start for each in short]) * 1000, "ms", name),
        Figure("CPU of a run of one step", idle, "s CPU", name),
        Figure(f"what a step adds, {steps} steps", median([median(gaps(e.requests)) for e in long]), "ms", name),
        Figure("CPU a step", median([(e.cpu - idle) * 1000 / (steps - 1) for e in long]), "ms", name),
        Figure(f"peak memory, {steps} steps", median([each.memory for each in long]), "MB", name),
        Figure("first request, build", short[0].requests[0].size / 1024, "KB", name),
    ]


def _plan(program: Program) -> Found:
    if not program.plans:
        return []
    with _project(2) as place:
        size = run(program, place, [[{"say": "done"}]], mode="plan").requests[0].size
    return [Figure("first request, plan", size / 1024, "KB", program.name)]


def _chunks(program: Program, chunks: int, turns: int) -> Found:
    text = "".join(f"tok{n % 100:02d} " for n in range(chunks))
    with _project(2) as place:
        short, long = [], []
        for _ in range(turns):
            short.append(run(program, place, [[{"say": "done"}]]))
            long.append(run(program, place, [[{"say": text, "size": 6}]]))
    idle = median([each.cpu for each in short])
    return [
        Figure(f"{chunks:,} chunks", median([each.cpu for each in long]) - idle, "s CPU", program.name),
        Figure(f"{chunks:,} chunks, peak memory", median([each.memory for each in long]), "MB", program.name),
    ]


def _grep(program: Program, place: Ground, times: int) -> Ran:
    calls = [[program.grep(f"return x . {n}7$", place.root)] for n in range(times)]
    return run(program, place, [*calls, [{"say": "done"}]])


def _greps(programs: list[Program], files: int, times: int) -> Found:
    found: Found = []
    with _project(0) as place:
        plant(place.root, files)
        for program in programs:
            try:
                ran = _grep(program, place, times)
            except RuntimeError as error:
                found.append(str(error))
                continue
            found.append(
                Figure(f"step with a grep over {files:,} files", median(gaps(ran.requests)), "ms", program.name)
            )
    return found


def measure(quick: bool) -> Found:
    programs = [each for each in PROGRAMS if each.binary is None or each.binary.exists()]
    found: Found = [f"{each.name} is not installed; left out." for each in PROGRAMS if each not in programs]
    versions = [f"{each.name} {each.version}" for each in programs if each.binary is not None]
    if versions:
        found.append(f"Compared with {', '.join(versions)}.")
    steps, chunks, turns = (3, 500, 1) if quick else (30, 50_000, 2)
    for program in programs:
        try:
            found += [*_steps(program, steps, turns), *_plan(program), *_chunks(program, chunks, 1)]
        except RuntimeError as error:
            found.append(str(error))
    found += _greps(programs, 300 if quick else 20_000, 3 if quick else 7)
    return found + _verdict(found)


def _verdict(found: Found) -> Found:
    """How nbagent stands to the best of the others."""
    verdict: Found = []
    for word, name, most, least in (
        ("CPU a step", "CPU a step: the best of the others has so many times more", None, 10.0),
        ("peak memory", "peak memory against the smallest of the others", 1.0, None),
    ):
        figures = [e for e in found if isinstance(e, Figure) and e.what.startswith(word)]
        others = [each.value for each in figures if each.who != "nbagent"]
        ours = [each.value for each in figures if each.who == "nbagent"]
        if others and ours:
            ratio = min(others) / ours[0] if least else ours[0] / min(others)
            verdict.append(Figure(name, ratio, "times", most=most, least=least))
    return verdict
