"""How long a run has worked, and the cap on it: what is under way when the time is up ends. A person's thinking does not count."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from nbagent.clock import Clock

T = TypeVar("T")


class Stopwatch:
    """Begins to run when it is made. ``cap``: seconds (0: none). ``up``: whether the cap has ended something."""

    def __init__(self, clock: Clock, cap: float = 0) -> None:
        self._clock = clock
        self._began = clock.ticks()
        self._cap = cap
        self._asked = 0.0  # seconds that a person was waited for
        self._asking = 0
        self._since = 0.0
        self._timer: asyncio.Timeout | None = None
        self.up = False

    def seconds(self) -> float:
        """Since it was made, a person's time included."""
        return self._clock.ticks() - self._began

    def worked(self) -> float:
        """Since it was made, without the time that a person was waited for."""
        waiting = self._clock.ticks() - self._since if self._asking else 0.0
        return self.seconds() - self._asked - waiting

    def reached(self) -> bool:
        return self.up or bool(self._cap and self.worked() >= self._cap)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """A person is waited for; several at once count once."""
        self._asking += 1
        if self._asking == 1:
            self._since = self._clock.ticks()
            self._set(None)
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._asked += self._clock.ticks() - self._since
                self._set(self._left())

    async def within(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T | None:
        """``work``, cancelled when the cap (or ``seconds``) is up; None then, and ``up`` says so."""
        try:
            async with asyncio.timeout(seconds if seconds is not None else self._left()) as self._timer:
                return await work
        except TimeoutError:
            if self._timer is None or not self._timer.expired():
                raise
            self.up = True
            return None
        finally:
            self._timer = None

    def _left(self) -> float | None:
        return max(self._cap - self.worked(), 0.0) if self._cap else None

    def _set(self, seconds: float | None) -> None:
        """The time that is left from now on."""
        if self._timer is None or self._timer.expired():
            return
        loop = asyncio.get_running_loop()
        self._timer.reschedule(None if seconds is None else loop.time() + seconds)
