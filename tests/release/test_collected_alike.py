"""Every process finds the same tests under the same names: those that share the work compare theirs before they begin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(300)


def collected(seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--collect-only", "-q", "tests"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_two_processes_collect_the_same_tests() -> None:
    """At two times and with two orders of every set: a name made from either differs here, not now and then in a run."""
    first, second = collected("1"), collected("2")
    assert len(first) > 1000
    assert first == second
