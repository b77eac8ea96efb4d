"""Ctrl-C and the Stop button (SIGINT) while a cell runs, and raising into code that blocks the main thread.

While the cell only watches its run, a press is noted (``pressed``) and seen at the next look, at most 50 ms later. While
something blocks the main thread (a person's code, ``input()``), the press is raised there. Another thread may ``throw`` an
exception into a blocking section by its token; a throw that comes too late is dropped.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any


class TimeUp(KeyboardInterrupt):
    """The time limit of a blocking section is over."""


class CalledOff(KeyboardInterrupt):
    """What the section was for is no longer wanted."""


class Interrupts:
    """Context manager around a cell. On the main thread it owns SIGINT; elsewhere only ``throw`` works."""

    def __init__(self) -> None:
        self.pressed = False
        self._thread = threading.get_ident()
        self._main = threading.current_thread() is threading.main_thread()
        self._before: Any = None
        self._token: object | None = None
        self._only_in: Callable[[FrameType | None], bool] | None = None
        self._thrown: tuple[object, type[KeyboardInterrupt]] | None = None
        self._late: tuple[object, type[KeyboardInterrupt]] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Interrupts:
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before if self._before is not None else signal.default_int_handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        thrown, self._thrown = self._thrown, None
        here = self._token is not None and (self._only_in is None or self._only_in(frame))
        if thrown is not None:
            if here and thrown[0] is self._token:
                raise thrown[1]
            if self._only_in is not None and thrown[0] is self._token:
                self._late = thrown
            return
        self.pressed = True
        if here:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def blocking(self, token: object, only_in: Callable[[FrameType | None], bool] | None = None) -> Iterator[None]:
        """A section into which presses and throws are raised; ``only_in``: only when that frame is being run."""
        before = (self._token, self._only_in)
        try:
            self._token, self._only_in = token, only_in
            yield
        finally:
            self._token, self._only_in = before

    def throw(self, token: object, error: type[KeyboardInterrupt]) -> bool:
        """Raise ``error`` in the section of ``token``, from any thread. False: that section is not running."""
        with self._lock:
            if self._token is not token:
                return False
            if not self._main:
                target = ctypes.c_ulong(self._thread)
                return bool(ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(error)))
            self._thrown = (token, error)
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(self._thread, signal.SIGINT)
            else:
                import _thread

                _thread.interrupt_main(signal.SIGINT)
            return True

    def take_late(self, token: object) -> KeyboardInterrupt | None:
        """What was thrown into ``token``'s section while its own code was not on the stack (it awaits something)."""
        late, self._late = self._late, None
        return late[1]() if late is not None and late[0] is token else None

    @contextlib.contextmanager
    def limited(self, token: object, seconds: float) -> Iterator[None]:
        """Throw ``TimeUp`` into ``token``'s section after ``seconds``, and every second from then on."""
        over = threading.Event()

        def watch() -> None:
            wait = seconds
            while not over.wait(wait) and wait > 0:
                self.throw(token, TimeUp)
                wait = 1.0

        threading.Thread(target=watch, name="nbagent-limit", daemon=True).start()
        try:
            yield
        finally:
            over.set()
