"""What the live view sends while a long answer streams in a real kernel."""

from __future__ import annotations

import json
from typing import Any

from bench.figure import Figure, Found
from bench.kernel import cpu
from bench.place import ground
from bench.server import Model

CLAIM = "An answer of 20,000 tokens that takes 20 seconds: everything that the kernel sends to its front ends, as JSON."
CHEAP = False
SECONDS = 180


def measure(quick: bool) -> Found:
    from tests.kernel.kernel import Kernel

    class Counting(Kernel):
        """Keeps every message, whoever it belongs to: those of the live view have no cell as their parent."""

        def _comms(self, message: dict[str, Any]) -> None:
            everything.append(message)
            super()._comms(message)

    everything: list[dict[str, Any]] = []
    tokens, bursts = (1_000, 20) if quick else (20_000, 400)
    each = tokens // bursts
    words = [f"word{n % 1000:03d}" + ("\n\n" if n % 60 == 59 else " ") for n in range(tokens)]
    answer: list[object] = []
    for n in range(bursts):
        answer += [{"say": "".join(words[n * each : (n + 1) * each]), "size": 8}, {"pause": 0.05}]
    with ground(3) as place, Model([answer]) as model:
        place.use(model.url)
        kernel = Counting(place.root, place.environment)
        try:
            kernel.run("%load_ext nbagent")
            pid = kernel.manager.provisioner.process.pid
            before = cpu(pid)
            everything.clear()
            done = kernel.run("%build tell me everything", seconds=150)
            assert done.status == "ok", done.text
            spent = cpu(pid) - before
            sizes = [len(json.dumps(m, default=str)) for m in everything]
            updates = [m for m in everything if m["msg_type"] in ("comm_msg", "update_display_data", "display_data")]
        finally:
            kernel.close()
    return [
        Figure(f"iopub bytes for {tokens:,} tokens", sum(sizes) / 1e6, "MB", most=2.0),
        Figure("iopub messages", len(sizes), "messages"),
        Figure("view updates a second", len(updates) / done.seconds, "a second", most=20),
        Figure("text of the answer itself", sum(map(len, words)) / 1e6, "MB"),
        Figure("the answer took", done.seconds, "s"),
        Figure("CPU of the kernel for it", spent, "s CPU"),
    ]
