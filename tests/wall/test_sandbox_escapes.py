"""Hundreds of escapes behind every wall, as root and as an ordinary user: nothing changes, nothing leaks, nobody is reached.

The attempts are in ``tests/data/sandbox/escapes.jsonl``; ``drive.py`` beside them sets the scene and compares it afterwards.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from nbagent.sandbox import NoWall, find_wall

DATA = Path(__file__).parents[1] / "data" / "sandbox"
ROOT = Path(__file__).parents[2]
NOBODY = 65534
BOTH = "python,shell"

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="these walls are Linux's")

QUICK = [
    ("self", "landlock", 0, BOTH),
    ("self", "landlock", 1, "python"),
    ("self", "bubblewrap", 0, "python"),
    ("ordinary", "landlock", 0, "python"),
    ("ordinary", "bubblewrap", 0, "python"),
]
LONG = [(who, "landlock", abi, BOTH) for who in ("self", "ordinary") for abi in (1, 2, 3, 4, 5, 6, 7)]
LONG += [(who, "bubblewrap", 0, BOTH) for who in ("self", "ordinary")]


@lru_cache(maxsize=1)
def python_for_anybody() -> str:
    """A Python that another user may run, and that is new enough; "" when there is none."""
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if not Path(program).exists():
            continue
        code = "import sys, nbagent.sandbox; assert sys.version_info >= (3, 11)"
        try:
            asked = subprocess.run(
                [program, "-B", "-c", code], cwd="/", env=_environment(), timeout=20, capture_output=True, **_user()
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if asked.returncode == 0:
            return program
    return ""


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "HOME": "/tmp"}


def _user() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def attempt(who: str, kind: str, abi: int, kinds: str) -> dict[str, Any]:
    wall = find_wall(kind)
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    if abi > getattr(wall, "abi", 0):
        pytest.skip(f"this kernel's Landlock is older than {abi}")
    python, extra = sys.executable, {}
    if who == "ordinary":
        if os.getuid() != 0:
            pytest.skip("this is an ordinary user already")
        python, extra = python_for_anybody(), _user()
        if not python:
            pytest.skip("no Python here that another user may run")
    done = subprocess.run(
        [python, "-B", str(DATA / "drive.py"), kind, str(abi), kinds],
        cwd="/",
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=110,
        **extra,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def held(report: dict[str, Any], kinds: str) -> None:
    assert report["code"] == 0, report["tail"]
    assert report["count"] >= (340 if kinds == BOTH else 235)
    assert report["changed"] == []
    assert report["leaked"] == []
    assert report["reached"] == []
    assert report["through"] == []
    assert report["late"] == []
    assert report["sentinel"], "another process was signalled, ended or steered"
    assert report["machine"], "something of the machine has changed"


@pytest.mark.parametrize(("who", "kind", "abi", "kinds"), QUICK)
def test_nothing_gets_out(who: str, kind: str, abi: int, kinds: str) -> None:
    held(attempt(who, kind, abi, kinds), kinds)


@pytest.mark.soak
@pytest.mark.parametrize(("who", "kind", "abi", "kinds"), LONG)
def test_nothing_gets_out_of_any_version(who: str, kind: str, abi: int, kinds: str) -> None:
    held(attempt(who, kind, abi, kinds), kinds)


def test_the_attempts_would_show_without_a_wall() -> None:
    """The comparison sees a change, a leak and a signal: it is no test that always passes."""
    names = [json.loads(line)["name"] for line in (DATA / "escapes.jsonl").read_text().splitlines()]
    assert len(names) == len(set(names)) >= 360
