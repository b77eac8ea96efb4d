"""The benches run: tiny sizes, no kernel, no browser. Their figures are nobody's business here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import __main__ as bench
from bench.figure import Figure
from bench.page_text import page

ROOT = Path(__file__).parents[2]


def test_every_cheap_bench_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("steps", "chunks", "request", "permission", "shell", "spawn", "search", "store", "snapshot"):
        assert f"\n{name}  (" in done.stdout


def test_every_bench_is_listed_and_says_what_it_measures() -> None:
    import importlib

    for name in bench.NAMES:
        module = importlib.import_module(f"bench.{name}")
        assert module.CLAIM and callable(module.measure) and module.SECONDS > 0


def test_a_page_says_what_is_not_met() -> None:
    found = [
        Figure("speed", 12.0, "ms", most=10).to_json(),
        Figure("speed", 3.0, "ms", who="other").to_json(),
        Figure("many", 2_000_000, "a second", least=1_000_000).to_json(),
        "left out",
    ]
    result = {"claim": "What.", "found": found, "seconds": 1.0, "load": [0.5, 0.6], "date": "2024-01-01 10:00"}
    text = page({"some": {**result, "machine": ["two processors"], "versions": ["nbagent"]}})
    assert "| some | speed | 12.0 ms | ≤ 10 ms | **not met** |" in text
    assert "| some | many | 2,000,000 a second | ≥ 1,000,000 a second | met |" in text
    assert "| speed | 12.0 ms | 3.00 ms | ≤ 10 ms |" in text and "left out" in text
