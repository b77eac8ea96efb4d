"""Beside the magics of jupyter-ai: import, and the first answer in an IPython process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.figure import Figure, Found, median
from bench.place import Ground, ground
from bench.server import Model

CLAIM = (
    "A fresh IPython process each: loading the extension, and from there to the first answer of the scripted server. "
    "`jupyter-ai-magics` has an environment of its own under `build/` (`make bench-peers`)."
)
CHEAP = False
SECONDS = 240
THEIRS = Path(__file__).parents[1] / "build" / "bench-jupyter-ai" / "bin" / "python"
SHELL = (
    "import time, sys\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
    "begin = time.perf_counter()\nshell.run_line_magic('load_ext', {extension!r})\nloaded = time.perf_counter()\n"
    "{ask}\nprint('\\nTIMES', loaded - begin, time.perf_counter() - begin)\n"
)
OURS = "shell.run_cell('%build --max-steps 3 are you there?')"
ASK = "shell.run_cell('%%ai openai-chat:gpt-4o-mini -f text\\nare you there?')"


def _once(python: str, extension: str, ask: str, place: Ground) -> tuple[float, float]:
    """Milliseconds to the loaded extension, and to the answer."""
    done = subprocess.run(
        [python, "-c", SHELL.format(extension=extension, ask=ask)],
        cwd=place.root,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("TIMES")]
    if not lines or "there I am" not in done.stdout:
        raise RuntimeError(f"no answer: {done.stdout[-800:]} {done.stderr[-800:]}")
    return float(lines[0][0]) * 1000, float(lines[0][1]) * 1000


def measure(quick: bool) -> Found:
    programs = [("nbagent", sys.executable, "nbagent", OURS)]
    found: Found = []
    if THEIRS.exists():
        programs.append(("jupyter-ai-magics", str(THEIRS), "jupyter_ai_magics", ASK))
        code = "from importlib.metadata import version; print(version('jupyter-ai-magics'))"
        found.append(
            "Compared with jupyter-ai-magics "
            + subprocess.run(
                [THEIRS, "-c", code], capture_output=True, text=True, timeout=30, check=False
            ).stdout.strip()
        )
    else:
        found.append("jupyter-ai-magics is not installed; left out.")
    taken: dict[str, list[tuple[float, float]]] = {}
    with Model([[{"say": "there I am"}]], every=True) as model, ground(2) as place:
        place.use(model.url)
        for turn in range(2 if quick else 6):
            for name, python, extension, ask in programs:
                once = _once(python, extension, ask, place)
                if turn:  # the first is for the page cache
                    taken.setdefault(name, []).append(once)
        requests = len(model.requests())
    for name, rows in taken.items():
        found.append(Figure("load the extension", median([row[0] for row in rows]), "ms", name))
        found.append(Figure("load and first answer", median([row[1] for row in rows]), "ms", name))
    found.append(
        f"{time.strftime('%H:%M', time.gmtime())}: {requests} requests arrived, all of them here."
    ) if quick else None
    return found
