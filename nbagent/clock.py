"""Time and ids, handed in so that a played cassette gives the same ones every time."""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Where times (seconds since the epoch) and ids come from."""

    def now(self) -> float: ...

    def ticks(self) -> float:
        """Seconds that only go forward, whatever is done to the machine's clock: for how long something took."""
        ...

    def new_id(self, prefix: str) -> str:
        """A fresh id, ``prefix_…``; ids sort by the order in which they were made."""
        ...


class SystemClock:
    """The machine's clock. Ids keep sorting when it goes backwards, and across processes by millisecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def now(self) -> float:
        return time.time()

    def ticks(self) -> float:
        return time.monotonic()

    def new_id(self, prefix: str) -> str:
        with self._lock:
            self._last = max(int(time.time() * 16_000), self._last + 1)
            stamp = self._last
        return f"{prefix}_{stamp:012x}{os.urandom(5).hex()}"


class CountingClock:
    """A clock for replay: one millisecond passes at each look, ids count up from ``seed``."""

    def __init__(self, start: float = 1_700_000_000.0, seed: str = "0000000000") -> None:
        self._start = start
        self._looks = 0
        self._ids = 0
        self._seed = seed
        self._lock = threading.Lock()

    def now(self) -> float:
        with self._lock:
            self._looks += 1
            return self._start + self._looks / 1000

    def ticks(self) -> float:
        return self.now()

    def new_id(self, prefix: str) -> str:
        with self._lock:
            self._ids += 1
            return f"{prefix}_{self._ids:012x}{self._seed}"
