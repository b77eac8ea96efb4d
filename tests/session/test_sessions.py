"""Sessions as a person handles them: names, copies, lists, caps, automatic approval, exit statuses."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest

from nbagent.errors import PlanError, SessionError, StoreError
from nbagent.event import FinishEvent, NoticeEvent, RetryEvent, TitleEvent
from nbagent.message import TextPart
from nbagent.permission.ask import Reply
from nbagent.session.run import Options
from nbagent.session.session import Prompt, Session
from tests.crash import inputs, processes_with, sessions, until
from tests.person import Person, always, at_work, limits, once, reject, verdict
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, fault, finish, hold, pause, say, usage, when
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, told, write_plan

Start = Callable[..., ScriptedServer]
SMALL = 'small_model = "small"\n'
ASK = '[permission]\nedit = "ask"\n'


def is_title(body: dict[str, Any]) -> bool:
    return bool(body["model"] == "small")


# -- names ---------------------------------------------------------------------------------------------------------------


def test_a_session_is_named_by_the_first_words_of_its_prompt(project: Project, server: Start) -> None:
    with at_work(project, server([[say("ok")], [say("ok")]])) as desk:
        desk.cell("build", "\n  Fix the recall of the model, " + "please " * 20 + "\nand more", Person())
        desk.cell("build", "Something else", Person())
        title = desk.runtime.store.session(desk.runtime.session_id).title
    assert title.startswith("Fix the recall of the model, please") and len(title) <= 60 and title.endswith("…")


def test_a_small_model_names_it_without_delaying_the_run(project: Project, server: Start) -> None:
    project.write("nbagent.toml", SMALL)
    gate = Gate()
    model = server([when(is_title, say('"Recall, '), hold(gate), say('repaired"')), [say("ok")], [say("again")]])
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "Fix it", person)
        assert result.text == "ok" and not gate.is_open
        row = lambda: desk.runtime.store.session(desk.runtime.session_id)  # noqa: E731
        assert row().title == "Fix it"
        until(gate.reached.is_set)
        gate.open()
        until(lambda: row().title == "Recall, repaired")
        desk.cell("build", "More", Person())
        assert sum(is_title(body) for body in model.requests) == 1, "only the first prompt names a session"
    assert isinstance(person.events[-1], FinishEvent), "nothing is shown after a run's end"


def test_a_name_that_comes_in_time_is_shown(project: Project, server: Start) -> None:
    project.write("nbagent.toml", SMALL)
    gate = Gate()
    person = Person()
    with at_work(project, server([when(is_title, say("A name")), [say("ok"), hold(gate)]])) as desk:
        work = desk.runtime.start(Prompt("Fix it", "build", options=Options()), person)
        until(lambda: [e for e in person.events if isinstance(e, TitleEvent)])
        gate.open()
        work.done.result(10)


@pytest.mark.parametrize("answer", [[fault(400)], [say("  \n ")], [say("x" * 500)]])
def test_a_name_that_fails_harms_nothing(project: Project, server: Start, answer: Any) -> None:
    project.write("nbagent.toml", SMALL)
    model = server([when(is_title, *answer), [say("ok")]])
    with at_work(project, model) as desk:
        assert desk.cell("build", "Fix it", Person()).text == "ok"
        until(lambda: any(is_title(body) for body in model.requests))
        assert len(desk.runtime.store.session(desk.runtime.session_id).title) <= 60


# -- copies and lists ----------------------------------------------------------------------------------------------------


def test_a_copy_goes_on_by_itself(project: Project, server: Start, forks: bool) -> None:
    project.write("nbagent.toml", ASK)
    model = server([READ_MODEL, edit_model(), [say("Fixed.")], [say("In the copy.")], [say("In the first.")]])
    with at_work(project, model) as desk:
        desk.cell("build", "Fix it", Person(asks=[always]))
        first = desk.runtime.session_id
        copy = desk.runtime.fork()
        assert (copy.title, copy.agent, copy.parent_id) == ("Fix it (fork)", "build", None)
        store = desk.runtime.store
        assert [m.role for m in store.messages(copy.id)] == [m.role for m in store.messages(first)]
        assert not {m.id for m in store.messages(copy.id)} & {m.id for m in store.messages(first)}
        assert [(a.permission, a.pattern) for a in store.approvals(copy.id)] == [("edit", "src/model.py")]
        assert store.seen(copy.id) == store.seen(first), "what was read need not be read again"
        desk.cell("build", "And in the copy?", Person())
        desk.runtime.open_session(first)
        desk.cell("build", "And here?", Person())
        assert len(store.messages(copy.id)) == len(store.messages(first)) == 6
        with pytest.raises(SessionError, match="no message"):
            desk.runtime.fork(at="msg_none")
    copied, own = model.requests[3], model.requests[4]
    assert "And in the copy?" in told(copied) and "And in the copy?" not in told(own)
    assert copied["messages"][:-1] == own["messages"][:-1]


def test_a_copy_up_to_a_message(project: Project, server: Start, forks: bool) -> None:
    model = server([[say("one")], [say("two")], [say("other two")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "First", Person())
        desk.cell("plan", "Second", Person())
        at = desk.runtime.messages()[1].id
        copy = desk.runtime.fork(at=at)
        assert len(desk.runtime.store.messages(copy.id)) == 2
        desk.cell("plan", "Other second", Person())
    last = told(model.requests[-1])
    assert "First" in last and "one" in last and "Second" not in last.replace("Other second", "")
    assert last.count("You are in PLAN mode") == 1


def test_a_copy_of_a_summarised_session_keeps_its_tail(project: Project, server: Start, forks: bool) -> None:
    project.write("nbagent.toml", "[models.scripted]\nwindow = 100000\n")
    story = [say("word " * 16_000)]
    model = server([story, [say("kept word for word"), usage(90_000, 1)], [say("## Goal\nx")], [say("a")], [say("b")]])
    with at_work(project, model) as desk:
        for prompt in ("Tell a story", "Now something short", "And?"):
            desk.cell("build", prompt, Person())
        first = desk.runtime.session_id
        desk.runtime.fork()
        desk.cell("build", "On?", Person())
        assert len(desk.runtime.store.messages(first)) == 7
    before, after = model.requests[3], model.requests[4]
    assert "kept word for word" in told(before) and "kept word for word" in told(after)
    assert after["messages"][: len(before["messages"])] == before["messages"]


def test_new_archive_and_the_list(project: Project, server: Start) -> None:
    model = server([[say("one")], [say("two")]])
    with at_work(project, model) as desk:
        desk.cell("build", "First", Person())
        first = desk.runtime.session_id
        desk.runtime.new_session()
        desk.cell("build", "Second", Person())
        assert desk.runtime.session_id != first
        assert "First" not in told(model.requests[1])
        desk.runtime.archive(first)
    assert [row["title"] for row in sessions(project)] == ["Second"]
    listed = project.nbagent("sessions", "--json", "--all")
    assert sorted(row["title"] for row in json.loads(listed.out)) == ["First", "Second"]
    table = project.nbagent("sessions")
    assert "Second" in table.out and "1 session," in table.err and "MB" in table.err


def test_export_in_every_form(project: Project, server: Start) -> None:
    project.use(server([READ_MODEL, [say("It divides by fp.")]]))
    assert project.run("build", "What is wrong?").status == 0
    (row,) = sessions(project)
    markdown = project.nbagent("export", row["id"])
    assert "What is wrong?" in markdown.out and "It divides by fp." in markdown.out
    data = json.loads(project.nbagent("export", row["id"][-8:], "--to", "json").out)
    assert data["version"] == 1 and "It divides by fp." in json.dumps(data)
    notebook = json.loads(project.nbagent("export", row["id"], "--to", "notebook").out)
    assert notebook["nbformat"] == 4 and any("%%build" in "".join(cell["source"]) for cell in notebook["cells"])
    missing = project.nbagent("export", "ses_none")
    assert missing.status == 1 and "no session" in missing.err


def test_a_session_is_gone_on_with_from_the_terminal(project: Project, server: Start) -> None:
    project.use(model := server([[say("one")], [say("two")]]))
    assert project.run("build", "First").status == 0
    (row,) = sessions(project)
    assert project.run("build", "Second", "--session", row["id"]).status == 0
    assert model.requests[1]["messages"][: len(model.requests[0]["messages"])] == model.requests[0]["messages"]
    assert len(sessions(project)) == 1
    unknown = project.run("build", "Third", "--session", "ses_none")
    assert unknown.status == 1 and "no session" in unknown.err


def test_pruning_old_sessions_says_what_it_freed(project: Project, server: Start) -> None:
    project.use(server([[call("write", {"filePath": "a.txt", "content": "x" * 50_000})], [say("one")]]))
    project.run("build", "First")
    kept = project.nbagent("sessions", "prune", "--older", "1d")
    assert "0 sessions and 0 snapshots deleted" in kept.out
    time.sleep(1.1)
    gone = project.nbagent("sessions", "prune", "--older", "1s")
    assert gone.status == 0 and "1 session " in gone.out and "MB freed" in gone.out, gone.err
    assert sessions(project) == []
    assert project.nbagent("sessions", "prune", "--older", "soon").status == 2


# -- inputs --------------------------------------------------------------------------------------------------------------


def test_the_same_input_never_runs_twice_and_is_what_was_accepted_first(project: Project, server: Start) -> None:
    model = server([[say("one")]])
    with at_work(project, model) as desk:
        session = desk.runtime.session("build")
        work = desk.runtime.worker
        for text in ("first", "second"):
            work.call(session.prompt(Prompt(text, "build", id="inp_1"), Person(), resume=False))
        result = work.call(session.prompt(Prompt("third", "build", id="inp_1", options=Options()), Person()), 20)
        assert result is not None and result.text == "one"
        assert "first" in told(model.requests[0]) and "third" not in told(model.requests[0])
        with pytest.raises(SessionError, match="run before"):
            work.call(session.prompt(Prompt("first", "build", id="inp_1"), Person()), 20)
        assert desk.runtime.store.mark(session.id) is None
    assert len(model.requests) == 1


def test_several_accepted_inputs_run_in_their_order(project: Project, server: Start) -> None:
    model = server([[say("one")], [say("two")], [say("three")]])
    with at_work(project, model) as desk:
        session = desk.runtime.session("build")
        for text in ("first", "second", "third"):
            desk.runtime.worker.call(session.prompt(Prompt(text, "build"), Person(), resume=False))
        result = desk.runtime.resume(Person()).done.result(20)
        assert result is not None and result.text == "three"
    assert [text for text, delivered in inputs(project) if delivered] == ["first", "second", "third"]


def test_a_build_that_was_refused_leaves_nothing_to_resume(project: Project, server: Start) -> None:
    project.write(".nbagent/plans/p.md", PLAN)
    with at_work(project, server([[say("ok")]])) as desk:
        refused = desk.cell("build", "", Person(reviews=[verdict("reject")]), plan=".nbagent/plans/p.md")
        assert refused.reason == "rejected"
        alone = type("Alone", (Person,), {"attended": False})()
        with pytest.raises(PlanError):
            desk.cell("build", "", alone, plan=".nbagent/plans/p.md")
        assert desk.runtime.resume(Person()).done.result(10) is None
        assert desk.cell("build", "Something else", Person()).text == "ok"


def test_a_prompt_that_was_refused_leaves_no_session_in_the_list(project: Project, server: Start) -> None:
    project.use(server([[say("one")]]))
    assert project.run("build", "First").status == 0
    for prompt in ("", "   "):
        assert project.run("build", prompt).status == 1
    assert project.run("plan", " ").status == 1
    assert [row["title"] for row in sessions(project)] == ["First"]
    undone = project.nbagent("undo")
    assert "no cell of this session changed a file" in undone.err, "the last session is the last that did something"


def test_a_refused_first_prompt_names_nothing(project: Project, server: Start) -> None:
    project.write(".nbagent/plans/p.md", PLAN)
    with at_work(project, server([[say("ok")]])) as desk:
        refused = desk.cell("build", "", Person(reviews=[verdict("reject")]), plan=".nbagent/plans/p.md")
        assert refused.reason == "rejected"
        assert desk.runtime.store.sessions() == []
        desk.cell("build", "Something else", Person())
        assert [row.title for row in desk.runtime.store.sessions()] == ["Something else"]


def test_a_prompt_that_waits_has_a_name(project: Project, server: Start) -> None:
    with at_work(project, server([])) as desk:
        session = desk.runtime.session("build")
        desk.runtime.worker.call(session.prompt(Prompt("Later, please", "build"), Person(), resume=False))
        assert [row.title for row in desk.runtime.store.sessions()] == ["Later, please"]


def test_a_disk_that_is_full_loses_nothing_that_was_accepted(project: Project, server: Start) -> None:
    with at_work(project, server([[say("one")], [say("two")]])) as desk:
        desk.cell("build", "First", Person())
        store = desk.runtime.store
        session = Session(desk.runtime.resources, store.session(desk.runtime.session_id))
        text = "x" * 3_000
        desk.runtime.worker.call(session.prompt(Prompt(text, "build", id="inp_2"), Person(), resume=False))
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            desk.runtime.resume(Person()).done.result(10)
        store._db.execute("PRAGMA max_page_count = 1000000")
        result = desk.runtime.resume(Person()).done.result(20)
        assert result is not None and result.text == "two"
    assert inputs(project) == [("First", True), (text, True)]


def test_a_text_that_could_not_be_stored_at_once_is_not_lost(project: Project, server: Start) -> None:
    failures = iter([True])

    def fails_once() -> int:
        if next(failures, False):
            raise RuntimeError
        return 0

    with at_work(project, server([[say("half an answer")], [say("whole")]])) as desk:
        db = desk.runtime.store._db
        db.create_function("fails_once", 0, fails_once)
        db.execute(
            "CREATE TEMP TRIGGER now BEFORE INSERT ON part WHEN instr(new.data, 'half an answer') BEGIN SELECT fails_once(); END"
        )
        with pytest.raises(StoreError):
            desk.cell("build", "go", Person())
        (part,) = [part for part in desk.runtime.messages()[1].parts if isinstance(part, TextPart)]
        assert (part.text, part.partial) == ("half an answer", True)
        assert desk.cell("build", "and on", Person()).text == "whole"


# -- caps ----------------------------------------------------------------------------------------------------------------


def capped(body: dict[str, Any]) -> Any:
    if not body.get("tools"):
        return [say("So far: nothing."), usage(100, 10)]
    return [call("read", {"filePath": "README.md", "limit": len(body["messages"])}), usage(400, 10)]


@pytest.mark.parametrize(
    ("options", "requests", "word"),
    [(limits(steps=1), 1, "step"), (limits(steps=3), 3, "step"), (limits(tokens=800), 3, "token")],
)
def test_a_cap_ends_the_cell_with_a_summary(
    project: Project, server: Start, options: Options, requests: int, word: str
) -> None:
    model = server(capped)
    with at_work(project, model) as desk:
        result = desk.cell("build", "read on", Person(), options=options)
        assert (result.reason, result.text, len(model.requests)) == ("limit", "So far: nothing.", requests)
        assert f"{word} limit" in result.message
        assert f"its {word} limit" in told(model.requests[-1]) and "tools" not in model.requests[-1]
        desk.cell("build", "and on", Person(), options=limits(steps=1))
    assert f"its {word} limit" not in told({"messages": model.requests[-1]["messages"][:-1]})


def test_a_cap_on_seconds(project: Project, server: Start) -> None:
    model = server(capped)
    with at_work(project, model) as desk:
        result = desk.cell("build", "read on", Person(), options=limits(seconds=0.3, steps=1000))
    assert (result.reason, result.text) == ("limit", "So far: nothing.")


def last_words(then: Any) -> Callable[[dict[str, Any]], Any]:
    """``then`` for as long as there are tools; a summary once there are none."""
    return lambda body: then if body.get("tools") else [say("So far: half.")]


def test_a_cap_on_seconds_ends_an_answer_that_goes_on(project: Project, server: Start) -> None:
    model = server(last_words([say("I begin to"), pause(40)]))
    person = Person()
    with at_work(project, model) as desk:
        began = time.monotonic()
        result = desk.cell("build", "read on", person, options=limits(seconds=2))
        assert time.monotonic() - began < 20
        assert (result.reason, result.text, result.steps) == ("limit", "So far: half.", 2)
        assert "time limit" in result.message and "I begin to" in told(model.requests[1])
        assert [text for text in person.notices() if "was ended" in text]
        assert desk.runtime.store.session(desk.runtime.session_id).status == "idle"


def test_a_cap_on_seconds_ends_a_tool_and_what_it_started(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    mark = f"sleep 47.{os.getpid()}"
    model = server(last_words([call("bash", {"command": f"echo half; {mark}", "description": "wait"})]))
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "wait", person, options=limits(seconds=4))
    assert (result.reason, result.text) == ("limit", "So far: half.")
    (ended,) = person.tools("bash")
    assert ended.state == "error" and "may or may not have happened" in ended.error
    until(lambda: not processes_with(mark), 3)


def test_a_cap_on_seconds_ends_a_child_with_the_cell(project: Project, server: Start) -> None:
    task = call("task", {"description": "look", "prompt": "Look at it.", "subagent_type": "explore"})

    def answer(body: dict[str, Any]) -> Any:
        if "wait for it" not in told(body):
            return [say("I look"), pause(40)]
        return [task] if body.get("tools") else [say("So far: half.")]

    person = Person()
    with at_work(project, server(answer)) as desk:
        result = desk.cell("build", "wait for it", person, options=limits(seconds=3))
        assert (result.reason, result.text) == ("limit", "So far: half.")
        (child,) = desk.runtime.store.children(desk.runtime.session_id)
        assert child.status == "idle" and desk.runtime.store.mark(child.id) is None


def test_last_words_are_not_waited_for_when_the_server_fails(project: Project, server: Start) -> None:
    busy = fault(503, {"error": {"message": "overloaded"}})
    model = server(lambda body: [pause(30)] if body.get("tools") else busy)
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "read on", person, options=limits(seconds=1), seconds=20)
        assert (result.reason, len(model.requests)) == ("limit", 2)
        assert "time limit" in result.message and "overloaded" in result.message
        assert desk.runtime.store.session(desk.runtime.session_id).status == "idle"
    assert not [event for event in person.events if isinstance(event, RetryEvent)]


def test_last_words_that_never_end_are_not_waited_for(project: Project, server: Start) -> None:
    with at_work(project, server(lambda body: [say("on and on"), pause(40)])) as desk:
        desk.runtime.resources.last_words = 2
        result = desk.cell("build", "read on", Person(), options=limits(seconds=2), seconds=20)
    assert (result.reason, result.text, result.steps) == ("limit", "on and on", 2)


def test_a_persons_thinking_is_not_the_cells_time(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK)
    waited: list[float] = []

    async def slowly(ask: Any) -> Reply:
        waited.append(await asyncio.sleep(6, 6))
        return Reply("once")

    model = server([READ_MODEL, edit_model(), [say("Fixed.")]])
    with at_work(project, model) as desk:
        result = desk.cell("build", "fix it", Person(asks=[slowly]), options=limits(seconds=5))
    assert waited and (result.reason, result.text) == ("stop", "Fixed.")
    assert result.seconds > 6


def test_a_terminal_shows_how_to_allow_what_was_refused(project: Project, server: Start) -> None:
    project.use(server([call("bash", {"command": "make", "description": "make it"}), [say("Then not.")]]))
    ran = project.nbagent("run", "make it")
    assert 'write in nbagent.toml:\n    [permission.bash]\n    "=make" = "allow"' in ran.out


def test_caps_in_a_terminal(project: Project, server: Start) -> None:
    project.use(model := server(capped))
    ran = project.run("build", "read on", "--max-steps", "2")
    assert ran.finish["reason"] == "limit" and len(model.requests) == 2
    assert ran.status == 1


# -- automatic approval --------------------------------------------------------------------------------------------------


def test_automatic_approval_is_switched_off_for_the_session_by_three_failures(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK)
    bad = [[call("edit", {"filePath": "README.md", "oldString": f"no {n}", "newString": "x"})] for n in range(3)]
    model = server(
        [
            [call("write", {"filePath": "a.txt", "content": "x"})],
            *bad,
            [call("write", {"filePath": "b.txt", "content": "x"})],
            [say("ok")],
        ]
    )
    person = Person(asks=[reject("no")])
    with at_work(project, model) as desk:
        desk.cell("build", "go", person, options=Options(auto=True))
        assert (project.root / "a.txt").exists() and not (project.root / "b.txt").exists()
        assert [event.by for event in person.asks() if event.reply] == ["auto", "person"]
        assert any("Automatic approval is off" in text for text in person.notices())
        session = desk.runtime.session_id
        assert desk.runtime.store.session(session).state["auto_off"]
        model.extend([call("write", {"filePath": "c.txt", "content": "x"})], [say("ok")])
        later = Person(asks=[once])
        desk.cell("build", "again", later, options=Options(auto=True))
        assert len(later.asked) == 1
        assert any("stays off" in text and "%agent new" in text for text in later.notices())
        desk.runtime.new_session()
        model.extend([call("write", {"filePath": "d.txt", "content": "x"})], [say("ok")])
        desk.cell("build", "new", Person(), options=Options(auto=True))
        assert (project.root / "d.txt").exists()


def test_after_a_plan_automatic_approval_that_was_switched_off_stays_off_and_says_so(
    project: Project, server: Start
) -> None:
    project.write("nbagent.toml", ASK)
    refused = [[call("edit", {"filePath": f"x{n}.txt", "oldString": "a", "newString": "b"})] for n in range(3)]
    model = server([*refused, write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")]])
    person = Person(reviews=[verdict("build")], asks=[once])
    with at_work(project, model) as desk:
        desk.cell("plan", "go", person, options=Options(auto=True))
    assert len(person.asked) == 1
    assert any("stays off" in text for text in person.notices())


def test_always_belongs_to_the_agent_it_was_said_to(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nread = "ask"\n')
    read = [call("read", {"filePath": "README.md"})]
    again = [call("read", {"filePath": "README.md", "limit": 1})]
    model = server(
        [read, write_plan(), EXIT, again, [say("ok")], [call("read", {"filePath": "README.md"})], [say("ok")]]
    )
    person = Person(asks=[always, lambda ask: Reply("always")], reviews=[verdict("build")])
    with at_work(project, model) as desk:
        desk.cell("plan", "go", person)
        kept = [(a.agent, a.pattern) for a in desk.runtime.store.approvals(desk.runtime.session_id)]
        assert kept == [("plan", "README.md"), ("build", "README.md")]
        desk.cell("build", "again", Person())
    assert len(person.asked) == 2


# -- exit statuses -------------------------------------------------------------------------------------------------------


def test_exit_statuses(project: Project, server: Start) -> None:
    project.use(model := server([]))

    def status(*answers: Any, prompt: str = "go", agent: str = "build", options: tuple[str, ...] = ()) -> int:
        model.extend(*answers)
        return project.run(agent, prompt, *options).status

    assert status([say("done")]) == 0
    assert status([call("bash", {"command": "make", "description": "x"})], [say("no")]) == 3
    assert status(*[[say("cut"), finish("length")]] * 4) == 1
    assert status(fault(401, {"error": {"message": "no", "code": "invalid_api_key"}})) == 1
    assert status(prompt="") != 0
    assert status(agent="nobody") == 2
    assert (
        status(*[[call("edit", {"filePath": "README.md", "oldString": "A", "newString": "B"})]] * 3, agent="plan") == 1
    )
    assert project.nbagent("run", "--no-such-option").status == 2
    db = sqlite3.connect(project.home / "sessions.db")
    assert db.execute("SELECT count(*) FROM execution").fetchone() == (0,)
    db.close()


def test_an_answer_that_stays_empty_or_is_cut_is_said(project: Project, server: Start) -> None:
    project.use(server([[say("half"), finish("length")], [say(" and half")]]))
    ran = project.run("build", "go")
    assert ran.status == 0 and ran.finish["text"] == " and half"
    assert [event["text"] for event in ran.of("notice")] != []


def test_a_notice_is_not_an_answer_after_an_overflow(project: Project, server: Start) -> None:
    overflow = {"error": {"message": "maximum context length is 8192 tokens.", "code": "context_length_exceeded"}}
    project.use(server([READ_MODEL, [say("Read.")], fault(400, overflow), [say("## Goal\nnotes")], [say("Here.")]]))
    project.run("build", "read it")
    (row,) = sessions(project)
    ran = project.run("build", "and now?", "--session", row["id"])
    assert ran.status == 0
    assert [event["text"] for event in ran.of("text")] == ["Here."]
    assert not [e for e in ran.events if e["type"] == NoticeEvent.__struct_config__.tag and "## Goal" in e["text"]]
