"""How long a stored walkthrough takes to replay."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.figure import Figure, Found, median
from bench.place import ground

CLAIM = "`nbagent replay` of the first walkthrough: a fresh kernel, every cell, comparison with what is stored."
CHEAP = False
SECONDS = 300


def measure(quick: bool) -> Found:
    root = Path(__file__).parents[1]
    taken = []
    for _ in range(1 if quick else 3):
        with ground() as place:
            begin = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "nbagent.cli", "replay", str(root / "notebooks" / "01-plan-and-build.ipynb")],
                cwd=place.root,
                env=place.environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            taken.append(time.monotonic() - begin)
            if done.returncode:
                return [f"The walkthrough does not replay: {done.stdout[-300:]}"]
    return [Figure("replay of the first walkthrough", median(taken), "s")]
