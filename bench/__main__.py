"""``python -m bench``: measure everything and write docs/benchmarks.md.

``python -m bench NAME…`` runs some and prints them (``--write`` puts them into the page too); ``--quick`` is a smoke run with
tiny sizes of what needs no kernel and no browser (or of the named ones), which is never written. Exit status 1: a bench failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.machine import load, machine, versions
from bench.page_text import bound, met, page, shown

NAMES = (
    "start",
    "steps",
    "kernel",
    "chunks",
    "request",
    "permission",
    "shell",
    "spawn",
    "search",
    "store",
    "snapshot",
    "view",
    "page",
    "replay",
    "peers",
    "magics",
)
ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_name("figures.json")
PAGE = ROOT / "docs" / "benchmarks.md"


def run(name: str, quick: bool) -> dict[str, Any] | None:
    """One bench in a process group of its own; None when it failed or took too long."""
    module = importlib.import_module(f"bench.{name}")
    seconds = 60 if quick else 2 * module.SECONDS
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "NBAGENT_M", "NBAGENT_HOME"))
    }
    before, begin = load(), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.child", name, *(["--quick"] if quick else [])],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        print(f"{name}: not done after {seconds} s", file=sys.stderr)
        return None
    if process.returncode:
        print(f"{name}: {errors[-3000:]}", file=sys.stderr)
        return None
    return {
        "claim": module.CLAIM,
        "found": json.loads(out.rstrip().rpartition("\n")[2]),
        "seconds": time.monotonic() - begin,
        "load": [before, load()],
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "machine": machine(),
        "versions": [] if quick else versions(),
    }


def _results(names: list[str], quick: bool) -> Iterator[dict[str, Any] | None]:
    """One after the other; a smoke run, whose figures mean nothing, two at a time."""
    if not quick:
        yield from (run(name, quick) for name in names)
        return
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda name: run(name, quick), names)


def tell(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}  ({result['seconds']:.0f} s, load {result['load'][0]:.1f})")
    for each in result["found"]:
        if isinstance(each, str):
            print(f"  {each}")
            continue
        limit = f"  ({bound(each)}{'' if met(each) else ': NOT MET'})" if bound(each) else ""
        print(f"  {each['what']:66} {each['who']:20} {shown(each):>16}{limit}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").strip())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to run: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--write", action="store_true", help="put the figures of NAME… into docs/benchmarks.md")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = options.names or [n for n in NAMES if not options.quick or importlib.import_module(f"bench.{n}").CHEAP]
    failed = False
    for name, result in zip(names, _results(names, options.quick), strict=True):
        failed = failed or result is None
        if result is None:
            continue
        tell(name, result)
        if not options.quick and (options.write or not options.names):
            stored: dict[str, Any] = json.loads(STORED.read_text()) if STORED.is_file() else {}
            stored[name] = result
            ordered = {each: stored[each] for each in NAMES if each in stored}
            STORED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            PAGE.write_text(page(ordered), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
