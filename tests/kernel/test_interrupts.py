"""Stop in every state: the cell ends within about a second as interrupted, nothing goes on, the next cell works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.kernel.kernel import Clicker, Done, Kernel, Page, once
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, fault, hold, say
from tests.session.scripts import EXIT, write_plan

Start = Callable[..., ScriptedServer]
Begin = Callable[[], Kernel]
LIMIT = 2.5


def interrupted(
    shell: Kernel, code: str, when: Callable[[Page], bool], person: Clicker | None = None, **more: Any
) -> tuple[Done, float]:
    """Run a cell and interrupt the kernel once ``when`` is true of the page. How long the cell then went on, in seconds."""
    pressed: list[float] = []

    def look(page: Page) -> None:
        if person is not None:
            person(page)
        if not pressed and when(page):
            pressed.append(time.monotonic())
            shell.interrupt()

    msg_id = shell.start(code)
    done = shell.finish(msg_id, person=look, **more)
    assert pressed, done.text
    return done, time.monotonic() - pressed[0]


def is_stopped(done: Done, took: float) -> None:
    assert done.status == "error" and done.reply["content"]["ename"] == "KeyboardInterrupt", done.text
    assert took < LIMIT
    assert done.record["state"] == "done" and done.record["receipt"]["reason"] == "stopped"
    assert sum(output["output_type"] == "error" for output in done.outputs) == 1


def test_while_the_model_streams(project: Project, server: Start, kernel: Begin) -> None:
    gate = Gate()
    project.use(model := server([[say("I begin "), hold(gate)], [say("again")]]))
    shell = kernel()
    done, took = interrupted(shell, "%%build\ngo", lambda page: any(i["kind"] == "text" for i in page.record["items"]))
    is_stopped(done, took)
    assert model.requests is not None
    gate.open()
    assert shell.run("%%build\ngo on").of("text")[0]["text"] == "again"


def test_while_a_review_is_open(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT, [say("again")]]))
    shell = kernel()
    alive = Clicker()
    done, took = interrupted(shell, "%%plan\ngo", lambda page: bool(page.open), alive)
    is_stopped(done, took)
    assert done.of("review")[0]["status"] == "expired"
    (page,) = shell.pages.values()
    item = alive.seen[0]
    page.send(kind="verdict", id=item["id"], hash=item["hash"], action="build", text=item["text"], comment="")
    after = shell.run("%%build\nhello")
    assert after.of("text")[0]["text"] == "again"
    assert "approved" not in shell.run("%agent plans").text


def test_while_a_typed_prompt_is_open(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT, write_plan(), EXIT, [say("again")]]))
    shell = kernel()
    pressed: list[float] = []

    def on_prompt(prompt: str) -> None:
        pressed.append(time.monotonic())
        shell.interrupt()

    done = shell.finish(shell.start("%%plan\ngo"), on_prompt=on_prompt)
    is_stopped(done, time.monotonic() - pressed[0])
    fresh = shell.run("%%plan --new\ngo", typed=["l"])
    assert len(fresh.prompts) == 1, "the prompt of the cell before is gone"
    assert done.of("review")[0]["status"] == "expired" and fresh.of("review")[0]["action"] == "later"
    assert shell.run("%%build --new\nhello").of("text")[0]["text"] == "again"


def test_while_the_model_server_is_waited_for(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([fault(503, "busy", {"retry-after": "60"}), [say("again")]]))
    shell = kernel()
    done, took = interrupted(shell, "%%build\ngo", lambda page: any(i["kind"] == "retry" for i in page.record["items"]))
    is_stopped(done, took)


def test_while_code_of_the_agent_runs(project: Project, server: Start, kernel: Begin) -> None:
    for code in ("import time; print('on', flush=True)\ntime.sleep(60)", "print('on')\nwhile True: pass"):
        project.use(server([[call("python", {"code": code, "description": "wait"})], [say("again")]]))
        shell = kernel()
        running = lambda page: any(i["kind"] == "tool" and i["output"] for i in page.record["items"])  # noqa: E731
        done, took = interrupted(shell, "%%build\ngo", running, Clicker(ask=once))
        is_stopped(done, took)
        assert shell.run("1 + 1").outputs[0]["data"]["text/plain"] == "2"


def test_while_a_shell_runs(project: Project, server: Start, kernel: Begin) -> None:
    command = {"command": "echo on; sleep 61 & sleep 61", "description": "wait"}
    project.use(server([[call("bash", command)], [say("again")]]))
    shell = kernel()
    if "bash" not in shell.run("%agent tools build").text:
        pytest.skip("no shell tool here")
    running = lambda page: any(i["kind"] == "tool" and i["output"] for i in page.record["items"])  # noqa: E731
    done, took = interrupted(shell, "%%build\ngo", running, Clicker(ask=once))
    is_stopped(done, took)
    deadline = time.monotonic() + 5
    while _sleepers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _sleepers()


def _sleepers() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", "61"]:
            found.append(process.pid)
    return found


def test_run_all_stops(project: Project, server: Start, kernel: Begin) -> None:
    gate = Gate()
    project.use(server([[say("I begin "), hold(gate)]]))
    shell = kernel()
    first = shell.start("%%build\ngo")
    second = shell.start("ran = True")
    pressed = threading.Event()

    def look(page: Page) -> None:
        if not pressed.is_set() and any(i["kind"] == "text" for i in page.record["items"]):
            pressed.set()
            shell.interrupt()

    shell.finish(first, person=look)
    gate.open()
    reply = shell.client.get_shell_msg(timeout=10)
    assert reply["parent_header"]["msg_id"] == second and reply["content"]["status"] == "aborted"
    assert "NameError" in shell.value("ran")


def test_a_failed_run_stops_run_all(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([fault(401, {"error": {"message": "bad key sk-test-canary-0123456789abcdef"}})]))
    shell = kernel()
    first, second = shell.start("%%build\ngo"), shell.start("ran = True")
    done = shell.finish(first)
    assert done.status == "error" and len(done.outputs[-1]["traceback"]) == 1
    assert "sk-test-canary" not in str(done.messages)
    kept = [path for path in project.home.rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if b"sk-test-canary" in path.read_bytes()]
    reply = shell.client.get_shell_msg(timeout=10)
    assert reply["parent_header"]["msg_id"] == second and reply["content"]["status"] == "aborted"
