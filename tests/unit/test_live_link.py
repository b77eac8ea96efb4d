"""The kernel's side of the link to open notebooks, with pages made by hand."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nbagent.errors import ToolError
from nbagent.notebook.live import TARGET, Link, LiveNotebook, install, running_page, uninstall
from nbagent.notebook.record import MIME
from nbagent.notebook.transcript import Transcript

WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("where", default="nowhere")


class Comm:
    """A comm as ipykernel makes one, and the page behind it: ``answer`` gets each request and returns the response."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None) -> None:
        self.comm_id = uuid4().hex
        self.sent: list[dict[str, Any]] = []
        self.contexts: list[str] = []
        self.handle_msg: Callable[[dict[str, Any]], None] = lambda message: None
        self._answer = answer or (lambda request: {"ok": True})
        self._on_close: Callable[[dict[str, Any]], None] = lambda message: None

    def on_close(self, callback: Callable[[dict[str, Any]], None]) -> None:
        self._on_close = callback

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)
        self.contexts.append(WHERE.get())
        if data["kind"] == "request":
            response = self._answer(data)
            if response is not None:
                # pages answer on the thread of their subshell
                threading.Thread(
                    target=self.say, args=({"kind": "response", "id": data["id"], **response},), daemon=True
                ).start()

    def say(self, data: dict[str, Any]) -> None:
        self.handle_msg({"content": {"data": data}})

    def close(self) -> None:
        self._on_close({})


def opened(link: Link, comm: Comm, session: str = "s1", **hello: Any) -> Comm:
    message = {"content": {"data": {"kind": "hello", "path": "a.ipynb", **hello}}, "header": {"session": session}}
    context = contextvars.copy_context()
    context.run(lambda: (WHERE.set("subshell"), link.on_open(comm, message)))
    return comm


async def test_everything_is_sent_in_the_context_of_the_opening() -> None:
    link = Link()
    comm = opened(link, Comm(lambda request: {"ok": True, "cells": [{"id": "a"}, "odd"]}))
    notebook = LiveNotebook(link, "s1")
    assert await notebook.cells() == [{"id": "a"}]
    assert [message["kind"] for message in comm.sent] == ["hello", "request", "request"]
    assert set(comm.contexts) == {"subshell"}


async def test_operations_go_with_the_running_cell() -> None:
    link = Link()
    comm = opened(link, Comm(lambda request: {"ok": True, "lines": ["done", 3], "new_ids": ["n"]}))
    result = await LiveNotebook(link, "s1", "cell-7").apply([{"op": "delete", "id": "x"}])
    assert (result.lines, result.new_ids) == (("done",), ("n",))
    request = comm.sent[-1]
    assert (request["op"], request["running"], request["operations"]) == (
        "apply",
        "cell-7",
        [{"op": "delete", "id": "x"}],
    )


async def test_a_refusal_says_why() -> None:
    link = Link()
    opened(link, Comm(lambda r: {"ok": True} if r["op"] == "ping" else {"ok": False, "error": "changed since"}))
    with pytest.raises(ToolError, match="changed since"):
        await LiveNotebook(link, "s1").apply([{}])


async def test_the_page_that_runs_the_cell_is_meant_and_after_a_reload_the_one_with_the_notebook() -> None:
    link = Link()
    mine = opened(link, Comm(lambda r: {"ok": True, "cells": [{"id": "mine"}]}), "s1")
    opened(link, Comm(lambda r: {"ok": True, "cells": [{"id": "other"}]}), "s2")
    notebook = LiveNotebook(link, "s1")
    assert await notebook.cells() == [{"id": "mine"}]
    mine.close()
    again = opened(link, Comm(lambda r: {"ok": True, "cells": [{"id": "again"}]}), "s3")
    assert await notebook.cells() == [{"id": "again"}]
    assert again.sent


async def test_a_page_that_does_not_answer_is_left_for_another() -> None:
    link = Link()
    deaf = opened(link, Comm(lambda r: None), "s1")
    opened(link, Comm(lambda r: {"ok": True, "cells": []}), "s2")
    assert await LiveNotebook(link, "s1").cells() == []
    assert [message.get("op") for message in deaf.sent] == [None, "ping"], "an edit was sent to a page that may be slow"


async def test_without_a_page_it_is_said() -> None:
    notebook = LiveNotebook(Link(), "s1")
    assert not notebook.connected
    assert notebook.open_paths() == ()
    with pytest.raises(ToolError, match="not open"):
        await notebook.cells()


async def test_a_page_that_goes_lets_nobody_wait() -> None:
    link = Link()
    comm = Comm()
    comm = opened(link, Comm(lambda r: {"ok": True} if r["op"] == "ping" else (comm_close(), None)[1]))

    def comm_close() -> None:
        threading.Timer(0.05, comm.close).start()

    with pytest.raises(ToolError, match="closed"):
        await asyncio.wait_for(LiveNotebook(link, "s1").cells(), 5)


async def test_a_page_that_goes_while_it_is_looked_for_is_not_waited_for() -> None:
    link = Link()
    box: list[Comm] = []
    box.append(opened(link, Comm(lambda r: (box[0].close(), None)[1])))
    with pytest.raises(ToolError, match="not open"):
        await asyncio.wait_for(LiveNotebook(link, "s1").cells(), 5)


def test_paths_are_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("sub/a.ipynb", "notes.txt"):
        (tmp_path / name).write_text("x")
    link = Link()
    dirty = ["notes.txt", "RTC:notes.txt", "gone.txt", 3]
    comm = opened(link, Comm(), root=str(tmp_path), path="sub/a.ipynb", dirty=dirty)
    notebook = LiveNotebook(link, "s1", root=tmp_path)
    assert notebook.path == "sub/a.ipynb"
    assert LiveNotebook(link, "s1", root=tmp_path / "sub").path == "a.ipynb"
    assert LiveNotebook(link, "s1", root=tmp_path / "elsewhere").path == str(tmp_path / "sub/a.ipynb")
    assert notebook.open_paths() == (str(tmp_path / "notes.txt"),)
    comm.say({"kind": "dirty", "paths": [], "editing": False})
    assert notebook.open_paths() == ()
    assert not notebook.connected, "live editing was switched off"


def test_answers_reach_the_run_and_are_told_what_became_of_them() -> None:
    link = Link()
    comm = opened(link, Comm())
    comm.say({"kind": "message", "message": {"kind": "reply", "id": "k1"}})
    assert comm.sent[-1] == {"kind": "refused", "id": "k1", "error": "expired: no cell of nbagent runs"}
    taken: list[Any] = []

    class Told:
        def record(self) -> dict[str, Any]:
            return {}

        def full(self, item_id: str) -> dict[str, Any] | None:
            return {"id": item_id} if item_id == "c1" else None

    def take(message: dict[str, Any]) -> str:
        taken.append(message)
        return "" if len(taken) == 1 else "expired"

    link.begin(take, Told(), "cell")
    for _ in range(2):
        comm.say({"kind": "message", "message": {"kind": "reply", "id": "k1"}})
    assert [message["kind"] for message in comm.sent[-2:]] == ["ack", "refused"]
    comm.say({"kind": "message", "message": {"kind": "fetch", "id": "c1"}})
    assert comm.sent[-1] == {"kind": "full", "item": {"id": "c1"}}
    count = len(comm.sent)
    for odd in ({"kind": "message"}, {"kind": "message", "message": 3}, {}, {"kind": "response", "id": "nobody"}):
        comm.say(odd)
    assert len(comm.sent) == count


class Shell:
    """As much of a shell with a kernel as the link looks at."""

    class Manager:
        def __init__(self) -> None:
            self.targets: dict[str, Any] = {}

        def register_target(self, name: str, function: Any) -> None:
            self.targets[name] = function

        def unregister_target(self, name: str, function: Any) -> None:
            assert self.targets.pop(name) == function

    def __init__(self, parent: Any = None) -> None:
        self.kernel = self
        self.comm_manager = Shell.Manager()
        self._parent = parent

    def get_parent(self, channel: str) -> Any:
        return self._parent


def test_installing_twice_is_installing_once() -> None:
    shell = Shell()
    link = install(shell)
    assert link is not None
    assert install(shell) is link
    comm = opened(link, Comm())
    uninstall(shell)
    assert TARGET not in shell.comm_manager.targets
    assert link.pages() == []
    comm.say({"kind": "dirty"})
    uninstall(shell)
    assert install(object()) is None


def test_the_running_page() -> None:
    parent = {"header": {"session": "s"}, "metadata": {"cellId": "c"}}
    assert running_page(Shell(parent)) == ("s", "c")
    assert running_page(Shell({})) == ("", "")
    assert running_page(object()) == ("", "")


async def test_a_page_that_watches_gets_the_record_as_it_changes_and_the_last_one() -> None:
    link = Link()
    comm = opened(link, Comm())
    record = Transcript(lambda: 0.0).record()

    class Told:
        def record(self) -> dict[str, Any]:
            return dict(record)

        def full(self, item_id: str) -> None:
            return None

    link.begin(lambda message: "", Told(), "cell-1")
    comm.say({"kind": "watch"})
    comm.say({"kind": "watch"})

    async def states(wanted: list[str]) -> None:
        for _ in range(200):
            got = [message["data"][MIME]["state"] for message in comm.sent if message["kind"] == "record"]
            if got == wanted:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(got)

    await states(["running"])
    record["state"] = "waiting"
    await states(["running", "waiting"])
    record["state"] = "done"
    link.end()
    await states(["running", "waiting", "done"])
    told = [message for message in comm.sent if message["kind"] == "record"]
    assert {message["cell"] for message in told} == {"cell-1"}
    # what a page saves must read without the extension
    assert set(told[-1]["data"]) == {MIME, "text/html", "text/markdown", "text/plain"}
