"""Import, ``%load_ext``, and from a cell's start to the first request in a real kernel."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.figure import Figure, Found, median
from bench.kernel import WARM
from bench.place import ground
from bench.server import Model

CLAIM = (
    "Fresh processes for import and `%load_ext`; for the request a real kernel with nbagent loaded, from sending the cell to "
    "the arrival of the request at a server in another process. *Cold*: the first cell of the kernel, sent right after `%load_ext`, and "
    "five seconds after it, when a thread has loaded what a cell needs."
)
CHEAP = False
SECONDS = 300
SHELL = "from IPython.core.interactiveshell import InteractiveShell; shell = InteractiveShell.instance(); "
LOAD = (
    "import time; begin = time.perf_counter(); shell.run_line_magic('load_ext', 'nbagent'); "
    "print((time.perf_counter() - begin) * 1000)"
)


def _process(code: str) -> tuple[float, str]:
    """Milliseconds of CPU that a fresh process with ``code`` takes, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used * 1000, done.stdout.strip()


def _loading(runs: int) -> Found:
    _process(SHELL + LOAD)
    imported, loaded, inside = [], [], []
    for _ in range(runs):  # neighbours are compared, so that the machine's moods fall on both
        imported.append(_process("import nbagent")[0] - _process("pass")[0])
        bare = _process(SHELL)[0]
        took, printed = _process(SHELL + LOAD)
        loaded.append(took - bare)
        inside.append(float(printed))
    return [
        Figure("`import nbagent`, over bare Python", median(imported), "ms CPU"),
        Figure("`%load_ext nbagent`, over bare IPython", median(loaded), "ms CPU", most=50),
        Figure("`%load_ext nbagent`, by itself", median(inside), "ms", most=50),
    ]


def _cold(waited: float) -> float:
    """Milliseconds to the first request of a kernel whose first cell is sent ``waited`` seconds after loading."""
    from tests.kernel.kernel import Kernel

    with ground(3) as place, Model([[{"say": "done"}]]) as model:
        place.use(model.url)
        kernel = Kernel(place.root, place.environment)
        try:
            kernel.run("%load_ext nbagent")
            time.sleep(waited)
            begin = time.monotonic()
            done = kernel.run("%build say that you are there")
            assert done.status == "ok", done.text
            return (model.requests()[-1].arrived - begin) * 1000
        finally:
            kernel.close()


def _first_request(kernels: int, cells: int) -> Found:
    from tests.kernel.kernel import Kernel

    cold, warm, plans = [], [], []
    later = [_cold(WARM) for _ in range(kernels)]
    for _ in range(kernels):
        with ground(3) as place, Model([[{"say": "done"}]]) as model:
            place.use(model.url)
            kernel = Kernel(place.root, place.environment)
            try:
                kernel.run("%load_ext nbagent")
                for number in range(cells):
                    agent = "plan" if number and number % 2 == 0 else "build"
                    begin = time.monotonic()
                    done = kernel.run(f"%{agent} say that you are there")
                    assert done.status == "ok", done.text
                    took = (model.requests()[-1].arrived - begin) * 1000
                    (cold if number == 0 else plans if agent == "plan" else warm).append(took)
            finally:
                kernel.close()
    found: Found = [
        Figure("cell to first request, cold, at once", median(cold), "ms"),
        Figure("cell to first request, cold, five seconds later", median(later), "ms"),
        Figure("cell to first request, warm, build", median(warm), "ms", most=150),
    ]
    if plans:
        found.append(Figure("cell to first request, warm, plan", median(plans), "ms", most=150))
        found.append(Figure("cell to first request, warm, slowest", max(warm + plans), "ms"))
        found.append(f"Spread of the warm ones: {statistics.pstdev(warm + plans):.1f} ms.")
    return found


def measure(quick: bool) -> Found:
    return _loading(1 if quick else 11) + _first_request(1 if quick else 3, 3 if quick else 15)
