"""The notebook as a ``Frontend``: everything passes between two threads here, in both directions.

The run's loop posts what it has (events, asks, forms, reviews, jobs for the user's namespace) to an inbox that the cell's coroutine
empties every 50 ms; answers go back with ``call_soon_threadsafe``. Each open ask has an id; an answer with another id, a second
answer and an answer after the end change nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from nbagent.event import Event
from nbagent.frontend import CodeOutcome, Form, Namespace, OpenNotebook, Review, Verdict
from nbagent.permission.ask import Ask, Reply

HANDOVER = 0.05

Answers = tuple[tuple[str, ...], ...]
Kind = Literal["ask", "question", "review"]


@dataclass(eq=False)
class Pending:
    """Something that waits for a person. ``opened``: monotonic seconds."""

    kind: Kind
    id: str
    value: Ask | Form | Review
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    opened: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Settled:
    """``pending`` was decided with ``answer``, or expired (None and ``expired``)."""

    pending: Pending
    answer: Any
    expired: bool = False


@dataclass(eq=False)
class Job:
    """Code to run, or variables to describe, on the cell's thread. ``abandoned``: the run no longer waits for it."""

    kind: Literal["run", "describe"]
    code: str = ""
    names: tuple[str, ...] = ()
    detail: bool = False
    timeout: float = 120.0
    scratch: bool = False
    on_output: Callable[[str], None] = lambda text: None
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    abandoned: bool = False

    def finish(self, value: Any) -> None:
        """Give the result back to the run; from any thread."""
        _resolve(self.loop, self.future, value)


Entry = Event | Pending | Settled | Job


class NotebookFrontend:
    """One cell's frontend. ``attended``: whether a person can answer."""

    def __init__(self, *, attended: bool, notebook: OpenNotebook | None = None, code: bool = True) -> None:
        self._attended = attended
        self._notebook = notebook
        self._namespace = CellNamespace(self) if code else None
        self._inbox: deque[Entry] = deque()
        self._open: dict[str, Pending] = {}
        self._lock = threading.Lock()
        self._ended = False
        self.call_off: Callable[[Job | Pending], None] = lambda entry: None

    @property
    def attended(self) -> bool:
        return self._attended

    @property
    def namespace(self) -> Namespace | None:
        return self._namespace

    @property
    def notebook(self) -> OpenNotebook | None:
        return self._notebook

    # called on the run's loop

    def show(self, event: Event) -> None:
        self._inbox.append(event)

    async def ask(self, ask: Ask) -> Reply:
        reply: Reply = await self._wait("ask", ask.id, ask, Reply("reject", feedback="the cell has ended", by="nobody"))
        return reply

    async def question(self, form: Form) -> Answers | None:
        answers: Answers | None = await self._wait("question", form.id, form, None)
        return answers

    async def review(self, review: Review) -> Verdict:
        gone = Verdict(review.id, review.hash, "reject", by="nobody")
        verdict: Verdict = await self._wait("review", review.id, review, gone)
        return verdict

    async def _wait(self, kind: Kind, name: str, value: Ask | Form | Review, gone: Any) -> Any:
        loop = asyncio.get_running_loop()
        pending = Pending(kind, name, value, loop, loop.create_future())
        with self._lock:
            if self._ended or not self._attended:
                return gone
            self._open[name] = pending
        self._inbox.append(pending)
        try:
            return await pending.future
        finally:
            with self._lock:
                undecided = self._open.pop(name, None) is pending
            if undecided:
                self._inbox.append(Settled(pending, None, expired=True))
                self.call_off(pending)

    async def submit(self, job: Job) -> Any:
        """Have ``job`` done on the cell's thread."""
        job.loop = asyncio.get_running_loop()
        job.future = job.loop.create_future()
        with self._lock:
            if self._ended:
                raise asyncio.CancelledError
        self._inbox.append(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            job.abandoned = True
            self.call_off(job)
            raise

    # called from any other thread

    def drain(self, limit: int = 10_000) -> list[Entry]:
        """What came since the last call, oldest first."""
        out: list[Entry] = []
        while self._inbox and len(out) < limit:
            out.append(self._inbox.popleft())
        return out

    @property
    def idle(self) -> bool:
        """Nothing waits to be drained."""
        return not self._inbox

    def pending(self) -> list[Pending]:
        """What waits for a person, oldest first."""
        with self._lock:
            return list(self._open.values())

    def answer(self, name: str, value: Any, *, kind: Kind | None = None) -> bool:
        """Decide the pending ``name``, once. False: there is no such thing (any more)."""
        with self._lock:
            pending = self._open.get(name)
            if pending is None or (kind is not None and pending.kind != kind):
                return False
            del self._open[name]
        self._inbox.append(Settled(pending, value))
        self.call_off(pending)
        _resolve(pending.loop, pending.future, value)
        return True

    def take(self, message: dict[str, Any]) -> str:
        """An answer as a page sends it (``reply``, ``answers``, ``verdict``). "" when taken, else why not."""
        name = message.get("id")
        pending = next((entry for entry in self.pending() if entry.id == name), None)
        if pending is None:
            return "expired: this was already decided, or the cell has ended"
        try:
            value = _READERS[pending.kind, str(message.get("kind"))](pending.value, message)
        except (LookupError, TypeError, ValueError) as error:
            return f"not understood: {error}" if str(error) else "not understood"
        if not self.answer(pending.id, value, kind=pending.kind):
            return "expired: this was already decided, or the cell has ended"
        return ""

    def nobody(self) -> None:
        """There is no way to reach a person after all: refuse what waits and whatever comes."""
        self._attended = False
        self._refuse_open()

    def end(self) -> None:
        """The cell is over: nothing can be answered any more."""
        with self._lock:
            self._ended = True
        self._refuse_open()

    def _refuse_open(self) -> None:
        for pending in self.pending():
            self.answer(pending.id, _refusal(pending))


class CellNamespace:
    """The user's variables; the work is done by the cell on its own thread."""

    def __init__(self, frontend: NotebookFrontend) -> None:
        self._frontend = frontend

    async def run(self, code: str, *, timeout: float, scratch: bool, on_output: Callable[[str], None]) -> CodeOutcome:
        loop = asyncio.get_running_loop()

        def forward(text: str) -> None:
            """Hand output to the run and give it a moment to come back as an event, while this thread is still free to draw."""
            taken = threading.Event()

            def take() -> None:
                on_output(text)
                taken.set()

            loop.call_soon_threadsafe(take)
            taken.wait(HANDOVER)

        job = Job("run", code=code, timeout=timeout, scratch=scratch, on_output=forward)
        outcome: CodeOutcome = await self._frontend.submit(job)
        return outcome

    async def describe(self, names: tuple[str, ...], detail: bool) -> str:
        text: str = await self._frontend.submit(Job("describe", names=names, detail=detail))
        return text


def _refusal(pending: Pending) -> Any:
    if isinstance(pending.value, Ask):
        return Reply("reject", feedback="nobody is there to answer", by="nobody")
    if isinstance(pending.value, Review):
        return Verdict(pending.value.id, pending.value.hash, "reject", by="nobody")
    return None


def _resolve(loop: asyncio.AbstractEventLoop | None, future: asyncio.Future[Any] | None, value: Any) -> None:
    def settle() -> None:
        if future is not None and not future.done():
            future.set_result(value)

    if loop is None:
        return
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the run's loop is closed: nobody waits any more


def read_reply(ask: Ask, message: dict[str, Any]) -> Reply:
    """A ``reply`` message. Raises ``ValueError`` for anything that is not one of the three answers."""
    answer = message.get("answer")
    if answer not in ("once", "always", "reject"):
        raise ValueError("the answer must be once, always or reject")
    remember = message.get("remember")
    pairs: tuple[tuple[str, str], ...] | None = None
    if remember is not None:
        pairs = tuple((_text(pair[0]), _text(pair[1])) for pair in remember)
        if any(not permission or not pattern.strip() for permission, pattern in pairs):
            raise ValueError("a pattern to remember is empty")
    return Reply(answer, feedback=_text(message.get("feedback", "")), remember=pairs, save=message.get("save") is True)


def read_answers(form: Form, message: dict[str, Any]) -> Answers | None:
    """An ``answers`` message: one list of texts a question, or null for declined."""
    answers = message["answers"]
    if answers is None:
        return None
    if not isinstance(answers, list) or len(answers) != len(form.questions):
        raise ValueError("there must be one answer a question")
    return tuple(tuple(_text(text) for text in answer) for answer in answers)


def read_verdict(review: Review, message: dict[str, Any]) -> Verdict:
    """A ``verdict`` message; it must bear the hash of the plan that is on the screen."""
    action = message.get("action")
    if action not in ("build", "later", "revise", "reject"):
        raise ValueError("the action must be build, later, revise or reject")
    if message.get("hash") != review.hash:
        raise ValueError("the plan on the screen is not the one that waits")
    text = message.get("text")
    shown = review.text if text is None else _text(text)
    return Verdict(review.id, review.hash, action, text=shown, comment=_text(message.get("comment", "")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text was expected")
    return value


_READERS: dict[tuple[str, str], Callable[[Any, dict[str, Any]], Any]] = {
    ("ask", "reply"): read_reply,
    ("question", "answers"): read_answers,
    ("review", "verdict"): read_verdict,
}
