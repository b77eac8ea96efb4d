"""What a bench gives back: figures with their unit and, where there is one, the bound they should keep."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

OURS = "nbagent"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. ``who``: the program it is about; figures of one ``what`` and several programs share a line.

    ``most`` and ``least``: what the value should keep to.
    """

    what: str
    value: float
    unit: str
    who: str = OURS
    most: float | None = None
    least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None where there is none."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.value <= self.most) and (self.least is None or self.value >= self.least)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Found = list["Figure | str"]
"""What ``measure`` returns: figures, and notes (why something is not there, what the machine did) as text."""


def milliseconds(work: Callable[[], Any], runs: int, warm: int = 1) -> list[float]:
    """Milliseconds of each of ``runs`` calls, after ``warm`` that do not count."""
    for _ in range(warm):
        work()
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        taken.append((time.perf_counter() - begin) * 1000)
    return taken


def median(values: list[float]) -> float:
    return statistics.median(values)
