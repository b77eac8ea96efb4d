"""What is left when the process is killed, and how a session goes on from there."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from nbagent.message import TextPart
from tests.crash import (
    Program,
    attempts,
    calls,
    gone,
    inputs,
    messages,
    processes_with,
    resume,
    session_id,
    sessions,
    status,
    the_session,
    until,
)
from tests.project import CANARY_KEY, Project
from tests.server import Gate, ScriptedServer, call, content_text, hold, pause, say
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, told, write_plan

Start = Callable[..., ScriptedServer]
INTERRUPTED = "interrupted: it may or may not have happened"


def run_until(
    project: Project, ready: Callable[[Program], Any], prompt: str = "fix it", agent: str = "build"
) -> list[int]:
    """Start a run, and kill it when ``ready``; the processes it had."""
    program = Program(project, "run", "--agent", agent, "--format", "json", prompt)
    until(lambda: ready(program) or program.process.poll() is not None)
    assert program.process.poll() is None, program.err.read_text()
    return program.kill()


def go_on(project: Project, model: ScriptedServer, *answers: Any) -> Any:
    row = the_session(project)
    assert row["status"] == "interrupted", row
    assert set(row) == {"id", "title", "directory", "agent", "status", "time_created", "time_updated"}
    model.extend(*answers)
    ran = resume(project, row["id"])
    assert ran.status == 0, ran.err
    assert ran.of("session")[0]["resumed"] or ran.of("step"), ran.out
    assert the_session(project)["status"] == "idle"
    return ran


def test_accepted_and_not_begun(project: Project, server: Start) -> None:
    """The plan that is to be built waits for a word about it: nothing was delivered yet."""
    project.write(".nbagent/plans/p.md", PLAN)
    project.use(model := server([]))
    program = Program(project, "review", ".nbagent/plans/p.md", module="tests.session.sitting")
    until(lambda: program.has("review") or program.process.poll() is not None)
    program.kill()
    assert [delivered for _, delivered in inputs(project)] == [False]
    assert messages(project) == []
    project.nbagent("approve", ".nbagent/plans/p.md")
    ran = go_on(project, model, READ_MODEL, edit_model(), [say("Fixed.")])
    assert ran.finish["text"] == "Fixed."
    assert [delivered for _, delivered in inputs(project)] == [True]
    assert "+ fn)" in project.read("src/model.py")
    assert PLAN.strip() in told(model.requests[0])


def test_accepted_without_being_run(project: Project, server: Start) -> None:
    project.use(model := server([[say("Here.")]]))
    program = Program(project, "accept", "later, please", module="tests.session.sitting")
    assert program.end() == -signal.SIGKILL, program.err.read_text()
    assert inputs(project) == [("later, please", False)]
    ran = resume(project)
    assert ran.finish["text"] == "Here."
    assert "later, please" in told(model.requests[0])
    assert inputs(project) == [("later, please", True)]
    again = resume(project)
    assert again.status == 0 and "nothing to go on with" in again.err
    assert len(model.requests) == 1


def test_in_the_middle_of_an_answer(project: Project, server: Start) -> None:
    gate = Gate()
    project.use(model := server([READ_MODEL, [say("I begin to"), hold(gate)]]))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    ran = go_on(project, model, [say("The whole answer.")])
    assert ran.finish["text"] == "The whole answer."
    found = messages(project)
    assert [message.role for message in found] == ["user", "assistant", "assistant", "assistant"]
    assert [part.status for part in calls(found)] == ["completed"]
    assert len(inputs(project)) == 1
    assert model.requests[2]["messages"] == model.requests[1]["messages"]


def test_what_had_been_said_for_a_while_is_kept(project: Project, server: Start) -> None:
    """Masked as ever: what may be the beginning of a secret is not stored before it is known to be none."""
    gate = Gate()
    said = [say("I begin to "), pause(2.3), say(f"answer. The key is {CANARY_KEY[:9]}"), hold(gate)]
    project.use(model := server([said]))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    ran = go_on(project, model, [say("And this is the rest.")])
    assert ran.finish["text"] == "And this is the rest."
    (part,) = [part for part in messages(project)[1].parts if isinstance(part, TextPart)]
    assert part.partial and part.text.startswith("I begin to answer. The key is") and CANARY_KEY[:9] not in part.text
    assert messages(project)[1].error == "stopped: interrupted"
    roles = [message["role"] for message in model.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert "I begin to answer" in told(model.requests[1])


def test_after_an_effect_before_its_result_was_stored(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    mark = f"sleep 41.{os.getpid()}"
    line = {"command": f"echo once >> log.txt; {mark}", "description": "log"}
    project.use(model := server([[call("bash", line), call("write", {"filePath": "b.txt", "content": "b"})]]))
    below = run_until(project, lambda program: (project.root / "log.txt").exists())
    until(lambda: gone(below) and not processes_with(mark), seconds=3)
    ran = go_on(project, model, [call("read", {"filePath": "log.txt"})], [say("It had happened.")])
    assert project.read("log.txt") == "once\n"
    assert not (project.root / "b.txt").exists()
    first, second, third = calls(messages(project))
    assert (first.status, second.status, third.status) == ("error", "error", "completed")
    assert first.error.startswith(INTERRUPTED)
    assert INTERRUPTED in told(model.requests[1])
    (notice,) = [each for each in ran.of("notice") if "may or may not have happened" in each["text"]]
    assert notice["level"] == "warning"


@pytest.mark.parametrize("agent", ["build", "plan"])
@pytest.mark.parametrize("again", ["resume", "prompt"])
def test_what_no_receipt_tells_is_said(project: Project, server: Start, agent: str, again: str) -> None:
    """A crash takes the look at the files before it along: neither the receipt nor undo knows what was changed until then."""
    gate = Gate()
    write = call("write", {"filePath": "made.txt", "content": "made\n"})
    project.use(model := server([[write], [say("Then"), hold(gate)]]))
    run_until(project, lambda program: gate.reached.is_set(), agent=agent)
    gate.open()
    model.extend([say("Done.")], [say("Nothing more.")])
    row = the_session(project)["id"]
    ran = resume(project, row) if again == "resume" else project.run(agent, "go on", "--session", row)
    assert ran.status == 0, ran.err
    said = [each for each in ran.of("notice") if "not in this cell's receipt" in each["text"]]
    assert (len(said), (project.root / "made.txt").exists()) == ((1, True) if agent == "build" else (0, False))
    later = project.run(agent, "and now", "--session", row)
    assert not [each for each in later.of("notice") if "receipt" in each["text"]]


@pytest.mark.parametrize("rule", ["deny", "allow"])
def test_a_call_that_changed_nothing_is_no_matter_for_a_receipt(project: Project, server: Start, rule: str) -> None:
    gate = Gate()
    project.write("nbagent.toml", f'[permission]\nedit = "{rule}"\n')
    refused = call("write", {"filePath": "made.txt", "content": "made\n"}) if rule == "deny" else READ_MODEL[0]
    project.use(model := server([[refused], [say("Then"), hold(gate)]]))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    ran = go_on(project, model, [say("Done.")])
    assert not [each for each in ran.of("notice") if "receipt" in each["text"]]


def test_during_a_compaction(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "[models.scripted]\nwindow = 9000\n")
    project.write("big.txt", "a line of the file\n" * 900)
    gate = Gate()
    read = [[call("read", {"filePath": "big.txt", "limit": 400, "offset": n * 400 + 1})] for n in range(2)]
    held = False

    def answer(body: dict[str, Any]) -> Any:
        nonlocal held
        if "Write the notes now" in told(body):
            if held:
                return [say("## Goal\nRead it.")]
            held = True
            return [say("## Go"), hold(gate)]
        return read.pop(0) if read else [say("Read.")]

    project.use(server(answer))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    row = the_session(project)
    assert row["status"] == "interrupted"
    ran = resume(project, row["id"])
    assert ran.status == 0, ran.err
    assert ran.finish["text"] == "Read."
    parts = [
        part for message in messages(project) for part in message.parts if part.__class__.__name__ == "CompactionPart"
    ]
    statuses = [part.status for part in parts]  # type: ignore[attr-defined]
    assert statuses[0] == "failed" and set(statuses[1:]) == {"completed"}


def test_while_a_child_works(project: Project, server: Start) -> None:
    gate = Gate()
    task = call("task", {"description": "look", "prompt": "Look at it.", "subagent_type": "explore"})

    def answer(body: dict[str, Any]) -> Any:
        text = told(body)
        if "Look at it." in text and "fix it" not in text:
            return [say("I look"), hold(gate)]
        return [say("I do it myself.")] if INTERRUPTED in text else [task]

    project.use(server(answer))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    row = the_session(project)
    ran = resume(project, row["id"])
    assert ran.status == 0, ran.err
    assert attempts(project) == []
    assert [part.status for part in calls(messages(project, row["id"]))] == ["error"]


def test_the_next_run_says_that_a_session_was_interrupted(project: Project, server: Start) -> None:
    gate = Gate()
    project.use(model := server([[say("I begin"), hold(gate)], [say("Hello.")], [say("Again.")]]))
    run_until(project, lambda program: gate.reached.is_set())
    gate.open()
    row = the_session(project)
    other = project.run("build", "something else")
    assert other.status == 0 and f"nbagent resume {row['id']}" in other.err
    assert "fix it" not in told(model.requests[1])
    resume(project, row["id"])
    model.extend([say("Quiet.")])
    assert "interrupted" not in project.run("build", "and now?").err


def test_a_plan_goes_on_as_a_plan(project: Project, server: Start) -> None:
    gate = Gate()
    project.use(model := server([READ_MODEL, [say("I begin"), hold(gate)]]))
    program = Program(project, "run", "--agent", "plan", "--model", "big", "--quick", "--format", "json", "Plan it.")
    until(lambda: gate.reached.is_set() or program.process.poll() is not None)
    program.kill()
    gate.open()
    ran = go_on(project, model, edit_model(), write_plan(), EXIT)
    assert {body["model"] for body in model.requests} == {"big"}, "the options of the cell are those of its resumption"
    assert ran.tool("edit")["rule"]["layer"] == "floor"
    assert ran.finish["reason"] == "awaiting"
    (plan,) = project.plans
    assert plan.read_text() == PLAN and f"/{plan.name}" in ran.finish["plan"]
    assert all(told(body).count("You are in PLAN mode") == 1 for body in model.requests)


def test_a_plan_that_is_being_built_is_still_known_afterwards(project: Project, server: Start) -> None:
    gate = Gate()
    project.write(".nbagent/plans/p.md", PLAN)
    project.nbagent("approve", ".nbagent/plans/p.md")
    project.use(model := server([[say("I begin"), hold(gate)]]))
    program = Program(project, "run", "--agent", "build", "--plan", ".nbagent/plans/p.md", "--format", "json", "")
    until(lambda: gate.reached.is_set() or program.process.poll() is not None)
    program.kill()
    gate.open()
    ran = go_on(project, model, READ_MODEL, edit_model(), [say("Fixed.")])
    assert ran.finish["plan"] == ".nbagent/plans/p.md"
    again = project.run("build", "", "--plan", ".nbagent/plans/p.md")
    assert again.status == 1 and "carried out before" in again.err


def test_after_the_last_word(project: Project, server: Start) -> None:
    """The answer was complete and stored; only the end of the run was lost. Nothing is asked again."""
    project.use(model := server([[say("All done.")]]))
    program = Program(project, "run", "--agent", "build", "--format", "json", "go")
    until(lambda: program.has("text", text="All done."))
    program.kill()
    row = the_session(project)
    if row["status"] == "interrupted":  # else it was faster than the kill
        ran = resume(project, row["id"])
        assert ran.finish["text"] == "All done."
        assert len(model.requests) <= 2


def test_beyond_three_attempts_it_is_marked_as_failed(project: Project, server: Start) -> None:
    gates = [Gate() for _ in range(4)]
    project.use(server([[hold(gate)] for gate in gates]))
    run_until(project, lambda program: gates[0].reached.is_set())
    row = the_session(project)
    for number, gate in enumerate(gates[1:], 1):
        program = Program(project, "resume", row["id"], "--format", "json")
        until(gate.reached.is_set)
        assert attempts(project) == [number]
        program.kill()
    ran = resume(project, row["id"])
    assert ran.status == 1
    assert "marked as failed" in ran.err
    assert ran.of("error")
    assert the_session(project)["status"] == "failed"
    for gate in gates:
        gate.open()
    assert resume(project, row["id"]).status == 0, "there is nothing left to resume"


def test_a_run_that_a_person_stopped_is_never_restarted(project: Project, server: Start) -> None:
    gate = Gate()
    project.use(model := server([[say("I begin"), hold(gate)]]))
    program = Program(project, "run", "--agent", "build", "--format", "json", "go")
    until(gate.reached.is_set)
    program.process.send_signal(signal.SIGINT)
    assert program.end(10) == 130
    gate.open()
    assert program.events[-1]["reason"] == "stopped"
    row = the_session(project)
    assert row["status"] == "idle"
    ran = resume(project, row["id"])
    assert "nothing to go on with" in ran.err
    assert len(model.requests) == 1


def test_a_second_process_is_told_who_has_the_session(project: Project, server: Start) -> None:
    gate = Gate()
    project.use(model := server([[say("I begin"), hold(gate), say(".")]]))
    program = Program(project, "run", "--agent", "build", "--format", "json", "go")
    until(gate.reached.is_set)
    (row,) = sessions(project)
    assert row["status"] == "running"
    for ran in (
        project.run("build", "me too", "--session", row["id"]),
        resume(project, row["id"]),
    ):
        assert ran.status == 1
        assert f"process {program.process.pid}" in ran.err
    assert len(inputs(project)) == 1, "what could not begin was not accepted"
    gate.open()
    assert program.end(30) == 0
    model.extend([say("Now.")])
    assert project.run("build", "me too", "--session", row["id"]).status == 0


# -- random moments ------------------------------------------------------------------------------------------------------

FILES = {f"out{number}.txt": f"content {number}\n" for number in range(3)}


def results(body: dict[str, Any], name: str) -> list[str]:
    """What came of each call about a file, in order."""
    wanted = {
        each["id"]
        for message in body["messages"]
        for each in message.get("tool_calls") or []
        if name in each["function"]["arguments"]
    }
    return [content_text(m["content"]) for m in body["messages"] if m.get("tool_call_id") in wanted]


def worker(body: dict[str, Any]) -> Any:
    """A model that looks at what was done and does the rest: three files, then a command. After an interruption it checks."""
    for name, content in FILES.items():
        last = (results(body, f'"{name}"') or [""])[-1]
        if f"Created {name}" in last or f"Wrote {name}" in last or content.strip() in last:
            continue
        if "interrupted" in last or "was not read" in last or "exists" in last:
            return [call("read", {"filePath": name})]
        return [say(f"Now {name}. ", size=3), call("write", {"filePath": name, "content": content})]
    if "seen by the shell" not in "".join(results(body, "shell")):
        return [call("bash", {"command": "cat out0.txt && echo seen by the shell", "description": "look"})]
    return [say("Everything is written.", size=2)]


def killed_and_resumed(project: Project, seed: int, longest: float) -> None:
    """Kill a run at a random moment, and perhaps its resumption too, until it is through; then look at everything."""
    chance = random.Random(seed)
    program = Program(project, "run", "--agent", "build", "--format", "json", "write the files")
    until(lambda: program.events or program.process.poll() is not None)
    time.sleep(chance.uniform(0, longest))
    program.kill()
    if status(project) == "interrupted" and chance.random() < 0.4:
        program = Program(project, "resume", session_id(project), "--format", "json")
        time.sleep(chance.uniform(0.3, 1 + longest))
        program.kill()
    if status(project) == "interrupted":
        ran = resume(project, session_id(project))
        assert ran.status == 0, (seed, ran.err)
    assert status(project) == "idle", seed
    look_over(project, seed)


def look_over(project: Project, seed: int) -> None:
    assert inputs(project) == [("write the files", True)], seed
    found = messages(project)
    assert [message.role for message in found if message.role == "user"] == ["user"], seed
    assert found[0].role == "user" and found[-1].text() == "Everything is written.", seed
    for part in calls(found):
        assert part.status in ("completed", "error"), (seed, part)
        assert part.status == "completed" or part.tool != "bash" or part.error.startswith(("interrupted", "not run")), (
            seed,
            part,
        )
    for name, content in FILES.items():
        assert project.read(name) == content, (seed, name)


def _moments(tmp_path: Any, server: Start, seeds: range) -> None:
    for seed in seeds:
        project = Project(tmp_path / str(seed), git=False)
        project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
        project.use(server(worker))
        killed_and_resumed(project, seed, longest=1.0)


@pytest.mark.timeout(300)
def test_killed_at_random_moments(tmp_path: Any, server: Start) -> None:
    _moments(tmp_path, server, range(6))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_killed_at_a_hundred_random_moments(tmp_path: Any, server: Start) -> None:
    _moments(tmp_path, server, range(1000, 1100))
