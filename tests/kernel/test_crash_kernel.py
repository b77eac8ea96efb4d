"""A kernel that is killed, and another in which the session goes on."""

from __future__ import annotations

import os
import queue
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.crash import calls, gone, inputs, messages, processes_with, status, until
from tests.kernel.kernel import Done, Kernel
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, hold, say
from tests.session.scripts import PLAN, READ_MODEL, edit_model, told
from tests.session.test_crash import look_over, worker

Start = Callable[..., ScriptedServer]
Begin = Callable[[], Kernel]
INTERRUPTED = "interrupted: it may or may not have happened"


def kill(shell: Kernel) -> list[int]:
    """``kill -9`` of the kernel; the processes that it had below it."""
    pid = shell.manager.provisioner.pid  # type: ignore[union-attr]
    below = [each.pid for each in psutil.Process(pid).children(recursive=True)]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone([pid]))
    return below


def open_items(shell: Kernel) -> list[dict[str, Any]]:
    """What waits for the person in the page, after taking in what the kernel has said."""
    while True:
        try:
            shell._comms(shell.client.get_iopub_msg(timeout=0.02))
        except queue.Empty:
            return [item for page in shell.pages.values() for item in page.open]


def killed(kernel: Begin, cell: str, ready: Callable[[Kernel], Any]) -> list[int]:
    shell = kernel()
    shell.start(cell, cell="c1")
    until(lambda: ready(shell))
    return kill(shell)


def resumed(project: Project, kernel: Begin) -> Done:
    """Another kernel is told, and goes on."""
    assert status(project) == "interrupted"
    shell = kernel()
    told_of_it = shell.run("%agent status")
    assert "interrupted: ses_" in told_of_it.text, told_of_it.text
    done = shell.run("%agent resume", seconds=60)
    assert done.status == "ok", done.text
    assert status(project) == "idle"
    return done


def test_while_a_plan_waits_for_a_word_nothing_was_delivered(project: Project, server: Start, kernel: Begin) -> None:
    project.write(".nbagent/plans/p.md", PLAN)
    project.use(model := server([READ_MODEL, edit_model(), [say("Fixed.")]]))
    killed(kernel, "%%build --plan .nbagent/plans/p.md\n", open_items)
    assert [delivered for _, delivered in inputs(project)] == [False]
    assert model.requests == []
    assert project.nbagent("approve", ".nbagent/plans/p.md").status == 0
    done = resumed(project, kernel)
    assert "Fixed." in done.text
    assert "+ fn)" in project.read("src/model.py")
    assert [delivered for _, delivered in inputs(project)] == [True]


def test_in_the_middle_of_an_answer(project: Project, server: Start, kernel: Begin) -> None:
    gate = Gate()
    project.use(model := server([READ_MODEL, [say("I begin to"), hold(gate)]]))
    killed(kernel, "%%build\nfix it", lambda shell: gate.reached.is_set())
    gate.open()
    model.extend([say("The whole answer.")])
    done = resumed(project, kernel)
    assert "The whole answer." in done.text
    assert model.requests[2]["messages"] == model.requests[1]["messages"]
    assert [message.role for message in messages(project)] == ["user", "assistant", "assistant", "assistant"]


def test_after_an_effect_before_its_result(project: Project, server: Start, kernel: Begin) -> None:
    project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    mark = f"sleep 42.{os.getpid()}"
    line = {"command": f"echo once >> log.txt; {mark}", "description": "log"}
    project.use(model := server([[call("bash", line)], [call("read", {"filePath": "log.txt"})], [say("It had.")]]))
    below = killed(kernel, "%%build\nfix it", lambda shell: (project.root / "log.txt").exists())
    until(lambda: gone(below) and not processes_with(mark), seconds=3)
    done = resumed(project, kernel)
    assert "may or may not have happened" in done.text
    assert project.read("log.txt") == "once\n"
    assert [part.status for part in calls(messages(project))] == ["error", "completed"]
    assert INTERRUPTED in told(model.requests[1])


def test_while_an_ask_was_open(project: Project, server: Start, kernel: Begin) -> None:
    project.write("nbagent.toml", '[permission]\nedit = "ask"\n')
    project.use(model := server([[call("write", {"filePath": "a.txt", "content": "x"})], [say("I leave it.")]]))
    killed(kernel, "%%build\nfix it", open_items)
    done = resumed(project, kernel)
    assert "I leave it." in done.text
    assert not (project.root / "a.txt").exists()
    assert INTERRUPTED in told(model.requests[1])


def test_during_a_compaction(project: Project, server: Start, kernel: Begin) -> None:
    project.write("nbagent.toml", "[models.scripted]\nwindow = 9000\n")
    project.write("big.txt", "a line of the file\n" * 900)
    gate = Gate()
    reads = [[call("read", {"filePath": "big.txt", "limit": 400, "offset": n * 400 + 1})] for n in range(2)]

    def answer(body: dict[str, Any]) -> Any:
        if "Write the notes now" in told(body):
            return [say("## Goal\nRead it.")] if gate.reached.is_set() else [say("## Go"), hold(gate)]
        return reads.pop(0) if reads else [say("Read.")]

    project.use(server(answer))
    killed(kernel, "%%build\nread it", lambda shell: gate.reached.is_set())
    gate.open()
    assert "Read." in resumed(project, kernel).text


def test_the_next_cell_says_that_a_session_was_interrupted_and_is_a_new_one(
    project: Project, server: Start, kernel: Begin
) -> None:
    gate = Gate()
    project.use(model := server([[say("I begin"), hold(gate)], [say("Hello.")]]))
    killed(kernel, "%%build\nfix it", lambda shell: gate.reached.is_set())
    gate.open()
    done = kernel().run("%%build\nsomething else")
    assert "was interrupted; %agent resume ses_" in done.text
    assert "Hello." in done.text
    assert "fix it" not in told(model.requests[1])
    assert len(inputs(project)) == 2


def test_a_second_kernel_is_told_who_has_the_session(project: Project, server: Start, kernel: Begin) -> None:
    gate = Gate()
    project.use(server([[say("I begin"), hold(gate), say(" and end.")]]))
    first, second = kernel(), kernel()
    cell = first.start("%%build\nfix it")
    until(gate.reached.is_set)
    listed = second.run("%agent sessions")
    assert "running" in listed.text
    session = next(word for word in listed.text.split() if word.startswith("ses_"))
    refused = second.run(f"%agent resume {session}")
    pid = first.manager.provisioner.pid  # type: ignore[union-attr]
    assert f"process {pid}" in refused.text
    gate.open()
    assert "and end." in first.finish(cell).text


def _moments(tmp_path: Any, server: Start, kernel_of: Callable[[Project], Kernel], seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        project = Project(tmp_path / str(seed), git=False)
        project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
        project.use(model := server(worker))
        shell = kernel_of(project)
        shell.start("%%build\nwrite the files")
        until(lambda model=model: model.requests)
        time.sleep(chance.uniform(0, 0.6))
        kill(shell)
        shell.close()
        if status(project) == "interrupted":
            other = kernel_of(project)
            done = other.run("%agent resume", seconds=60)
            other.close()
            assert done.status == "ok", (seed, done.text)
        assert status(project) == "idle", seed
        look_over(project, seed)


def loaded(project: Project) -> Kernel:
    shell = Kernel(project.root, project.environment)
    shell.run("%load_ext nbagent")
    return shell


@pytest.mark.timeout(300)
def test_kernels_killed_at_random_moments(tmp_path: Any, server: Start) -> None:
    _moments(tmp_path, server, loaded, range(4))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_kernels_killed_at_a_hundred_random_moments(tmp_path: Any, server: Start) -> None:
    _moments(tmp_path, server, loaded, range(1000, 1100))
