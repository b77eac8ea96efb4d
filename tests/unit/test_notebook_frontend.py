"""The hand-over between the run's loop and the cell: one decision an ask, none after the end, from any thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nbagent import event as ev
from nbagent.frontend import Form, Question, Review
from nbagent.notebook.frontend import Job, NotebookFrontend, Pending, Settled
from nbagent.permission.ask import Ask, Call, Need
from nbagent.permission.ruleset import Rule


class Loop:
    """A run's loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def an_ask(name: str = "a1") -> Ask:
    call = Call("c1", "bash", "ls", "command", (Need("bash", ("ls",)),))
    return Ask(name, "s", call, Rule("bash", "*", "ask"), (("bash", "ls"),))


def until(true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = true()
        if found:
            return found
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")


def reply(name: str = "a1", answer: str = "once", **more: Any) -> dict[str, Any]:
    return {"kind": "reply", "id": name, "answer": answer, **more}


def test_an_answer_from_any_thread_wakes_the_run_at_once(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    waiting = loop.start(frontend.ask(an_ask()))
    until(frontend.pending)
    begin = time.monotonic()
    threading.Thread(target=frontend.take, args=(reply(remember=[["bash", "ls"]], feedback="x", save=True),)).start()
    got = waiting.result(5)
    assert time.monotonic() - begin < 0.3
    assert (got.answer, got.remember, got.feedback, got.save) == ("once", (("bash", "ls"),), "x", True)
    kinds = [type(entry) for entry in frontend.drain()]
    assert kinds == [Pending, Settled]


def test_the_first_of_many_answers_counts(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    waiting = loop.start(frontend.ask(an_ask()))
    until(frontend.pending)
    told = [frontend.take(reply(answer=answer)) for answer in ("reject", "once", "always")]
    assert told[0] == "" and all("expired" in why for why in told[1:])
    assert waiting.result(5).answer == "reject"


@pytest.mark.parametrize(
    "message",
    [
        reply("other"),
        {"kind": "reply"},
        reply(answer="yes"),
        reply(answer=None),  # type: ignore[arg-type]
        reply(remember="bash"),
        reply(remember=[["bash"]]),
        reply(remember=[["bash", " "]]),
        reply(remember=[[1, 2]]),
        reply(feedback=3),
        {"kind": "verdict", "id": "a1", "action": "build", "hash": "h"},
        {"kind": "answers", "id": "a1", "answers": []},
    ],
)
def test_what_is_not_an_answer_changes_nothing(loop: Loop, message: dict[str, Any]) -> None:
    frontend = NotebookFrontend(attended=True)
    waiting = loop.start(frontend.ask(an_ask()))
    until(frontend.pending)
    assert frontend.take(message) != ""
    assert len(frontend.pending()) == 1 and not waiting.done()
    assert frontend.take(reply()) == "" and waiting.result(5).answer == "once"


def test_a_verdict_must_bear_the_hash_that_is_on_the_screen(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    waiting = loop.start(frontend.review(Review("r1", "s", "p.md", "# P", "h2")))
    until(frontend.pending)
    verdict = {"kind": "verdict", "id": "r1", "action": "build", "text": "# P\nmine", "comment": "go"}
    assert "not the one" in frontend.take({**verdict, "hash": "h1"})
    assert frontend.take({**verdict, "hash": "h2"}) == ""
    got = waiting.result(5)
    assert (got.action, got.text, got.comment, got.by) == ("build", "# P\nmine", "go", "person")


def test_answers_to_a_form(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    form = Form("f1", "s", (Question("A", "a?"), Question("B", "b?")))
    waiting = loop.start(frontend.question(form))
    until(frontend.pending)
    assert "one answer a question" in frontend.take({"kind": "answers", "id": "f1", "answers": [["x"]]})
    assert frontend.take({"kind": "answers", "id": "f1", "answers": [["x"], []]}) == ""
    assert waiting.result(5) == (("x",), ())


def test_after_the_end_everything_is_refused(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    open_ask = loop.start(frontend.ask(an_ask()))
    until(frontend.pending)
    frontend.end()
    assert (open_ask.result(5).answer, open_ask.result(5).by) == ("reject", "nobody")
    assert loop.start(frontend.ask(an_ask("a2"))).result(5).by == "nobody"
    assert loop.start(frontend.review(Review("r", "s", "p", "t", "h"))).result(5).by == "nobody"
    assert loop.start(frontend.question(Form("f", "s", ()))).result(5) is None
    assert "expired" in frontend.take(reply())


def test_a_cancelled_ask_expires_and_a_prompt_for_it_is_called_off(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    called_off: list[Any] = []
    frontend.call_off = called_off.append
    waiting = loop.start(frontend.ask(an_ask()))
    until(frontend.pending)
    waiting.cancel()
    until(lambda: called_off)
    assert frontend.pending() == []
    assert [entry.expired for entry in frontend.drain() if isinstance(entry, Settled)] == [True]


def test_jobs_come_back(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    assert frontend.namespace is not None
    waiting = loop.start(frontend.namespace.describe(("df",), True))
    job = until(lambda: next((entry for entry in frontend.drain() if isinstance(entry, Job)), None))
    assert (job.kind, job.names, job.detail) == ("describe", ("df",), True)
    job.finish("a table")
    assert waiting.result(5) == "a table"


def test_an_abandoned_job_is_called_off(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)
    called_off: list[Any] = []
    frontend.call_off = called_off.append
    assert frontend.namespace is not None
    run = frontend.namespace.run("1", timeout=1, scratch=False, on_output=lambda text: None)
    waiting = loop.start(run)
    job = until(lambda: next((entry for entry in frontend.drain() if isinstance(entry, Job)), None))
    waiting.cancel()
    until(lambda: called_off)
    assert job.abandoned and called_off == [job]


def test_events_keep_their_order(loop: Loop) -> None:
    frontend = NotebookFrontend(attended=True)

    async def many() -> None:
        for number in range(1000):
            frontend.show(ev.TextDelta(session="s", id="t", text=str(number)))

    loop.start(many()).result(5)
    assert [entry.text for entry in frontend.drain() if isinstance(entry, ev.TextDelta)] == [
        str(n) for n in range(1000)
    ]
    assert frontend.idle
