"""A thread with an event loop of its own, and things under way on it. Knows nothing of what it runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Worker:
    """A thread with an event loop. Ends with the process; daemonic, so that it never keeps a kernel alive."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._ready.set)
        self.loop.run_forever()
        self.loop.close()

    def start(self, work: Coroutine[Any, Any, T]) -> Task[T]:
        """Begin ``work`` on the worker's loop; from any thread."""
        return Task(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        """Do ``work`` on the worker and wait for it here."""
        return self.start(work).done.result(seconds)

    def close(self) -> None:
        """Stop the loop once what it is doing has been cancelled; from another thread."""
        if not self._thread.is_alive():
            return

        async def wind_down() -> None:
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=3) if others else None
            await self.loop.shutdown_asyncgens()

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(wind_down(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)


class Task(Generic[T]):
    """Something under way on a worker. ``done``: its result or error (``CancelledError`` when stopped)."""

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._stopped = False
        self.done: concurrent.futures.Future[T] = concurrent.futures.Future()
        loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(work)
        if self._stopped:
            self._task.cancel()
        self._task.add_done_callback(self._hand_over)

    def _hand_over(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.done.set_exception(concurrent.futures.CancelledError())
            return
        error = task.exception()
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())

    def stop(self) -> None:
        """Cancel it; from any thread. ``done`` follows when everything is closed."""
        self._stopped = True

        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(cancel)
