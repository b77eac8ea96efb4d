"""CPU and memory of a long session in a real kernel, beside a kernel with nothing in it."""

from __future__ import annotations

import time
from pathlib import Path

from bench.figure import Figure, Found, median
from bench.place import Ground, ground, reads
from bench.server import Model

CLAIM = (
    "200 steps that each read a file, in one `%build` cell with the live view; memory is that of the kernel's process. What the first "
    "cell needs is loaded on a thread, 0.3 seconds after `%load_ext`; *once that is done* is five seconds later."
)
CHEAP = False
SECONDS = 300
WARM = 5.0
"""Seconds after which the thread that loads what the first cell needs has long ended."""


def memory(pid: int) -> tuple[float, float]:
    """Megabytes resident now, and at most so far."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Vm")
    )
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["VmHWM"].split()[0]) / 1024


def cpu(pid: int) -> float:
    """Seconds of CPU so far."""
    import psutil

    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _bare(place: Ground) -> tuple[float, float]:
    from tests.kernel.kernel import Kernel

    kernel = Kernel(place.root, place.environment)
    try:
        for _ in range(5):
            kernel.run("x = 1")
        return memory(kernel.manager.provisioner.process.pid)
    finally:
        kernel.close()


def measure(quick: bool) -> Found:
    from tests.kernel.kernel import Kernel

    if not Path("/proc/self/status").is_file():
        return ["Memory of another process is read from /proc, which is not here."]
    steps = 20 if quick else 200
    peaks, rests, loads, warms, bares, cpus, took = [], [], [], [], [], [], []
    for _ in range(1 if quick else 3):
        with ground(steps) as place, Model(reads(steps)) as model:
            place.use(model.url)
            bare, _peak = _bare(place)
            kernel = Kernel(place.root, place.environment)
            try:
                pid = kernel.manager.provisioner.process.pid
                kernel.run("%load_ext nbagent")
                loads.append(memory(pid)[0] - bare)
                time.sleep(WARM)
                warms.append(memory(pid)[0] - bare)
                before, begin = cpu(pid), time.monotonic()
                done = kernel.run(f"%build --max-steps {steps + 5} read them all", seconds=200)
                assert done.status == "ok", done.text
                assert len(done.of("tool")) == steps
                took.append(time.monotonic() - begin)
                cpus.append((cpu(pid) - before) * 1000 / steps)
                now, peak = memory(pid)
                bares.append(bare)
                rests.append(now - bare)
                peaks.append(peak - bare)
            finally:
                kernel.close()
    return [
        Figure("bare ipykernel", median(bares), "MB"),
        Figure("right after `%load_ext nbagent`, over bare", median(loads), "MB"),
        Figure("once that is done, before any cell, over bare", median(warms), "MB"),
        Figure(f"after {steps} steps, over bare", median(rests), "MB", most=None if quick else 60),
        Figure(f"peak of {steps} steps, over bare", median(peaks), "MB", most=None if quick else 60),
        Figure("CPU of the kernel a step, view included", median(cpus), "ms"),
        Figure(f"whole cell of {steps} steps", median(took), "s"),
    ]
