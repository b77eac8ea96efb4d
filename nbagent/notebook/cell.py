"""One cell that watches a run: drains its events every 50 ms, draws, passes asks on, runs user code, and ends with the record.

The run lives on a thread of its own. Nothing here blocks but a typed prompt and the user's code; both can be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nbagent.errors import NbagentError, PersonError
from nbagent.frontend import CodeOutcome, Form, Frontend, OpenNotebook, Review, Verdict
from nbagent.notebook import typed, view
from nbagent.notebook.execution import Execution
from nbagent.notebook.frontend import Entry, Job, NotebookFrontend, Pending, Settled
from nbagent.notebook.interrupts import CalledOff, Interrupts, TimeUp
from nbagent.notebook.transcript import Transcript
from nbagent.notebook.variables import describe
from nbagent.permission.ask import Ask, Reply

TICK = 0.05
GRACE = 3.0
KNOWN_GRACE = 8.0
"""Seconds for a page to say that it lives: one that never did, and one that did earlier in this cell (it may be busy)."""
WIND_DOWN = 3.0
PROMPT_LIMIT = 1800.0
_DESCRIBE_SECONDS = 5.0


class Handle(Protocol):
    """A run under way: ``done`` is a ``concurrent.futures.Future``."""

    @property
    def done(self) -> Any: ...

    def stop(self) -> None: ...


class Interrupted(KeyboardInterrupt):
    """The cell was stopped; one line instead of a traceback, and Run All stops."""

    def _render_traceback_(self) -> list[str]:
        return ["KeyboardInterrupt: stopped. The next cell goes on from here."]


Interrupted.__name__ = "KeyboardInterrupt"

active: list[Cell] = []
"""Cells whose run is under way in this kernel, oldest first."""


class Cell:
    """One run, seen from the notebook. ``times`` False: the record is left without what a clock made."""

    def __init__(
        self,
        shell: Any,
        *,
        attended: bool,
        notebook: OpenNotebook | None = None,
        times: bool = True,
        live: view.Live | None = None,
    ) -> None:
        self._shell = shell
        self._times = times
        self.frontend = NotebookFrontend(attended=attended, notebook=notebook)
        self.transcript = Transcript(time.time)
        self._view: view.Live = live or view.choose(shell, attended=attended)
        self._former: list[view.Live] = []
        self._mail: deque[dict[str, Any]] = deque()
        self._jobs: deque[Job] = deque()
        self._handle: Handle | None = None
        self._stop_wanted = False
        self._stopped_at: float | None = None
        self._cancelled: asyncio.CancelledError | None = None
        self._deaf_since: float | None = None
        self._prompting = False

    async def run(self, start: Callable[[Frontend], Handle], notices: Sequence[str] = ()) -> Any:
        """Start the run and watch it to its end; its result. Raises what the run raised, ``Interrupted`` when it was stopped.

        ``notices`` are shown first.
        """
        if active:
            raise PersonError("Another cell of nbagent is running in this kernel. Wait for it, or stop it.")
        active.append(self)
        try:
            with Interrupts() as self._interrupts:
                self._execution = Execution(self._shell, self._interrupts, self._pump)
                self.frontend.call_off = self._call_off
                for text in notices:
                    self.transcript.notice(text)
                return await self._watched(start(self.frontend))
        finally:
            active.remove(self)

    # the loop

    async def _watched(self, handle: Handle) -> Any:
        self._handle = handle
        try:
            self._take()
            self._view.open(self.transcript, self.listen)
            await self._watch(handle)
        except BaseException:
            handle.stop()
            self._leave("error")
            raise
        error = self._outcome_error(handle)
        self._leave("stopped" if self._stopped_at is not None else "error" if error is not None else "stop", error)
        if self._cancelled is not None:
            raise self._cancelled
        if self._stopped_at is not None:
            raise Interrupted
        if error is not None:
            raise error
        return handle.done.result()

    async def _watch(self, handle: Handle) -> None:
        while True:
            self._take()
            while self._jobs and self._stopped_at is None:
                await self._do(self._jobs.popleft())
                self._take()
            if self._stop_wanted or self._interrupts.pressed:
                self._begin_stop(handle)
            if handle.done.done() and self.frontend.idle:
                return
            if self._stopped_at is not None and time.monotonic() - self._stopped_at > WIND_DOWN:
                return
            self._prompt_where_unheard()
            self._draw()
            try:
                await asyncio.sleep(TICK)
            except asyncio.CancelledError as error:
                self._cancelled = error
                self._stop_wanted = True

    def _begin_stop(self, handle: Handle) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
            handle.stop()
            self.frontend.end()

    def _outcome_error(self, handle: Handle) -> BaseException | None:
        if not handle.done.done():
            return None
        try:
            error: BaseException | None = handle.done.exception()
        except BaseException as cancelled:  # noqa: BLE001 - a cancelled future raises instead
            error = cancelled
        if error is not None and type(error).__name__ in ("CancelledError", "Stopped"):
            self._stopped_at = self._stopped_at or time.monotonic()
            return None
        return error

    def _leave(self, reason: str, error: BaseException | None = None) -> None:
        """Whatever happened: nothing can be answered any more, and the record stands where the view was."""
        self.frontend.end()
        self._take()
        for job in self._jobs:
            job.finish(CodeOutcome("", error="interrupted"))
        self.transcript.close(reason, str(error) if isinstance(error, NbagentError) else "")
        for shown in (self._view, *self._former):
            shown.close(self.transcript, times=self._times)

    def _take(self) -> None:
        """Take over what the run and the page have sent."""
        for entry in self.frontend.drain():
            self._enter(entry)
        while self._mail:
            self._view.send(self._mail.popleft())

    def _enter(self, entry: Entry) -> None:
        if isinstance(entry, Job):
            self._jobs.append(entry)
        elif isinstance(entry, Pending):
            self._open(entry)
        elif isinstance(entry, Settled):
            self._settle(entry)
        else:
            self.transcript.add(entry)

    def _open(self, pending: Pending) -> None:
        value = pending.value
        if isinstance(value, Ask):
            self.transcript.open_ask(value)
        elif isinstance(value, Form):
            self.transcript.open_form(value)
        else:
            self.transcript.open_review(value, plan_diff(value))

    def _settle(self, settled: Settled) -> None:
        name, answer = settled.pending.id, settled.answer
        gone = settled.expired or getattr(answer, "by", "") == "nobody"
        if settled.pending.kind == "ask":
            self.transcript.settle_ask(name, None if gone else answer)
        elif settled.pending.kind == "question":
            self.transcript.settle_form(name, answer, settled.expired)
        else:
            self.transcript.settle_review(name, None if gone else answer)

    def _draw(self, force: bool = False) -> None:
        try:
            self._view.update(self.transcript, force=force)
        except Exception as error:  # noqa: BLE001 - a view that fails must not take the run with it
            self.transcript.notice(
                f"The live view failed ({type(error).__name__}: {error}); text is shown instead.", "warning"
            )
            self._view = view.TextView(self._shell)
            self._view.open(self.transcript, self.listen)

    def _pump(self) -> None:
        """The same while user code blocks this thread: everything but further jobs."""
        self._take()
        self._draw(force=True)

    # the page

    def listen(self, message: dict[str, Any]) -> None:
        """A message of the widget's page; on any thread. Its answer goes out with the next look."""
        kind = message.get("kind")
        if kind == "fetch":
            item = self.transcript.full(str(message.get("id")))
            if item is not None:
                self._mail.append({"kind": "full", "item": item})
            return
        why = self.take(message)
        if kind in ("reply", "answers", "verdict"):
            answer = {"kind": "refused", "error": why} if why else {"kind": "ack"}
            self._mail.append({**answer, "id": message.get("id")})

    def take(self, message: dict[str, Any]) -> str:
        """An answer or ``stop``, by whatever way it came; on any thread. "" when it was taken, else why not."""
        kind = message.get("kind")
        if kind == "stop":
            self._stop_wanted = True
            if self._handle is not None:
                self._handle.stop()
            return ""
        if kind in ("reply", "answers", "verdict"):
            return self.frontend.take(message)
        if kind == "alive":
            self._view.alive = time.monotonic()
            return ""
        return f"there is no message {kind!r}"

    def show_here(self, shell: Any) -> None:
        """The view in the output of another cell (the page was reloaded); that one answers from now on. On any thread."""
        fresh = view.choose(shell, attended=True)
        for _ in range(5):
            with contextlib.suppress(RuntimeError):  # the transcript grew while it was copied
                fresh.open(self.transcript, self.listen)
                break
        self._former.append(self._view)
        self._view = fresh

    # typed prompts

    def _prompt_where_unheard(self) -> None:
        if self._prompting or self._stopped_at is not None:
            return
        for pending in self.frontend.pending():
            if not self._heard(pending):
                self._draw(force=True)
                self._prompt(pending)
                return

    def _heard(self, pending: Pending) -> bool:
        """Whether the page may still answer: it lives, or has not had its time to say so."""
        if not self._view.answers:
            return False
        alive = self._view.alive
        if alive is not None and (
            alive >= pending.opened or (self._deaf_since is not None and alive > self._deaf_since)
        ):
            return True
        grace = 0.0 if self._deaf_since is not None else GRACE if alive is None else KNOWN_GRACE
        if time.monotonic() - pending.opened < grace:
            return True
        self._deaf_since = time.monotonic()
        return False

    def _prompt(self, pending: Pending) -> None:
        """Ask on standard input. Blocks this thread, not the run."""
        self._prompting = True
        try:
            with self._interrupts.limited(pending, PROMPT_LIMIT):
                answer = self._typed(pending)
        except CalledOff:
            return
        except TimeUp:
            answer = _late(pending)
        except KeyboardInterrupt:
            # a kernel's input() makes a plain interrupt of whatever was raised in it
            if self._interrupts.pressed:
                self._stop_wanted = True
                return
            if pending not in self.frontend.pending():
                return
            answer = _late(pending)
        except (EOFError, NotImplementedError):
            self.frontend.nobody()
            return
        finally:
            self._prompting = False
        if answer is not None or pending.kind == "question":
            self.frontend.answer(pending.id, answer)
        else:
            self.frontend.answer(pending.id, _late(pending))

    def _typed(self, pending: Pending) -> Any:
        def read(prompt: str) -> str:
            with self._interrupts.blocking(pending):
                return input(prompt)

        value = pending.value
        if isinstance(value, Ask):
            return typed.ask(value, read)
        if isinstance(value, Form):
            return typed.form(value, read)
        return typed.review(value, read)

    # the user's namespace

    def _call_off(self, entry: Job | Pending) -> None:
        self._interrupts.throw(entry, CalledOff)

    async def _do(self, job: Job) -> None:
        if job.abandoned:
            return
        try:
            if job.kind == "run":
                outcome: Any = await self._execution.run(job.code, job, job.timeout, job.scratch, job.on_output)
            else:
                outcome = self._describe(job)
            if self._interrupts.pressed and self._handle is not None:
                self._begin_stop(self._handle)  # first, or the run would take the result and go on
            job.finish(outcome)
        except asyncio.CancelledError as error:
            self._cancelled = error
            self._stop_wanted = True
            job.finish(CodeOutcome("", error="interrupted") if job.kind == "run" else "interrupted")

    def _describe(self, job: Job) -> str:
        deadline = time.monotonic() + _DESCRIBE_SECONDS

        def guard(name: str, one: Callable[[], str]) -> str:
            left = deadline - time.monotonic()
            if left <= 0 or job.abandoned:
                return f"{name}: (left out: describing took too long)"
            try:
                with self._interrupts.limited(job, min(2.0, left)), self._interrupts.blocking(job):
                    return one()
            except (TimeUp, CalledOff):
                return f"{name}: (describing it took too long)"
            except KeyboardInterrupt:
                deadline_passed()
                return f"{name}: interrupted"
            except Exception as error:  # noqa: BLE001 - the user's own repr
                return f"{name}: (cannot be described: {type(error).__name__})"

        def deadline_passed() -> None:
            nonlocal deadline
            deadline = 0.0

        hidden = getattr(self._shell, "user_ns_hidden", {})
        return describe(self._shell.user_ns, hidden, job.names, job.detail, guard)


def _late(pending: Pending) -> Any:
    if isinstance(pending.value, Ask):
        return Reply("reject", feedback="no answer came in time", by="nobody")
    if isinstance(pending.value, Review):
        return Verdict(pending.value.id, pending.value.hash, "reject", comment="no answer came in time", by="nobody")
    return None


def plan_diff(review: Review) -> str:
    """What changed since the version that was reviewed before, as a unified diff; "" for a first version."""
    if not review.previous:
        return ""
    lines = difflib.unified_diff(review.previous.splitlines(), review.text.splitlines(), "before", "now", lineterm="")
    return "\n".join(lines)


def one_line(error: BaseException) -> BaseException:
    """``error``, shown by IPython as one line instead of a traceback."""
    with contextlib.suppress(AttributeError):
        error._render_traceback_ = lambda: [f"{type(error).__name__}: {error}"]  # type: ignore[attr-defined]
    return error
