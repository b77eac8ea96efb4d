"""Waiting and trying again when the model server fails for a while."""

from __future__ import annotations

import asyncio
import random

from nbagent.errors import ProviderError, StreamDropped
from nbagent.event import RetryEvent
from nbagent.message import RetryPart
from nbagent.session.run import Run

MAX_ATTEMPTS = 4
UNREACHED_ATTEMPTS = 2
"""Tries after a server could not be reached at all: it is more often not there than busy."""
FIRST_WAIT = 2.0
LONGEST_WAIT = 30.0
LONGEST_ASKED = 600.0


class Retries:
    """The tries of one step."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._attempt = 0

    async def wait(self, error: ProviderError) -> None:
        """Wait before the next try, visibly; raises ``error`` when there is to be none."""
        self._attempt += 1
        unreached = error.status is None and not isinstance(error, StreamDropped)
        if not error.retryable or (unreached and self._attempt > UNREACHED_ATTEMPTS):
            raise error
        if self._attempt > MAX_ATTEMPTS:
            raise ProviderError(
                f"{error} It was tried {self._attempt} times. Look whether the model server is well, or run the cell again later.",
                status=error.status,
                code=error.code,
            ) from error
        if error.retry_after is not None and error.retry_after > LONGEST_ASKED:
            minutes = round(error.retry_after / 60)
            raise ProviderError(
                f"{error} The server asks to wait {minutes} minutes; run the cell again then.", status=error.status
            )
        wait = self._seconds(error)
        run = self._run
        now = run.resources.clock.now()
        text = run.resources.masker.mask(str(error))
        message = run.history.messages[-1]
        run.history.put(
            message.id, RetryPart(id=run.new_id("prt"), attempt=self._attempt, error=text, wait=wait, time=now)
        )
        run.emit(RetryEvent(attempt=self._attempt, error=text, wait=wait, until=now + wait))
        await asyncio.sleep(wait * run.resources.patience)

    def _seconds(self, error: ProviderError) -> float:
        if error.retry_after is not None:
            return max(0.0, error.retry_after)
        backoff = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self._attempt - 1))
        return float(round(backoff * (0.75 + random.random() / 2), 3))  # noqa: S311 — jitter, not a secret
