"""``task``: children that work for a run, by its rules, and report."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from nbagent.event import FinishEvent, SessionEvent, StepEvent
from nbagent.message import SubtaskPart
from nbagent.permission.ask import Ask, Reply
from nbagent.session.run import Options
from nbagent.session.session import Prompt
from tests.crash import until
from tests.person import Person, always, at_work, limits, once, reject, verdict
from tests.project import CANARY_KEY, Project, tree
from tests.server import Gate, ScriptedServer, call, fault, hold, last_user_text, say, usage
from tests.session.scripts import EXIT, PLAN, edit_model, plan_path, told, tool_names

Start = Callable[..., ScriptedServer]


def task(prompt: str, agent: str = "explore", **more: Any) -> Any:
    return call("task", {"description": "a piece of work", "prompt": prompt, "subagent_type": agent, **more})


def first_user(body: dict[str, Any]) -> str:
    return str(body["messages"][1]["content"])


class Family:
    """A model with several conversations: each is told apart by the first words of its first prompt, and has a script."""

    def __init__(self, **scripts: list[Any]) -> None:
        self._scripts = {name: list(steps) for name, steps in scripts.items()}
        self._lock = threading.Lock()
        self.bodies: dict[str, list[dict[str, Any]]] = {name: [] for name in scripts}

    def __call__(self, body: dict[str, Any]) -> Any:
        name = first_user(body).split()[0].strip(":.,").lower()
        with self._lock:
            self.bodies[name].append(body)
            step = self._scripts[name].pop(0)
        return step(body) if callable(step) else step


def task_id(body: dict[str, Any]) -> str:
    return told(body).split("task_id: ")[-1].split(")")[0]


def test_a_child_explores_and_reports(project: Project, server: Start) -> None:
    model = Family(
        top=[[task("Look: where is recall?")], [say("It is in model.py.")]],
        look=[[call("grep", {"pattern": "recall"}), usage(100, 10)], [say("src/model.py line 1"), usage(200, 20)]],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: find recall.", person)
        session = desk.runtime.session_id
        (child,) = desk.runtime.store.children(session)
        parts = [p for m in desk.runtime.messages() for p in m.parts if isinstance(p, SubtaskPart)]
        assert desk.runtime.store.sessions() == [desk.runtime.store.session(session)], "children are not in the list"
    assert "src/model.py line 1" in told(model.bodies["top"][1])
    assert [(part.session_id, part.agent) for part in parts] == [(child.id, "explore")]
    assert (child.parent_id, child.agent, child.status, child.title) == (session, "explore", "idle", "a piece of work")
    offered = tool_names(model.bodies["look"][0])
    assert "grep" in offered and not {"write", "edit", "task", "python", "plan_exit", "question"} & set(offered)
    mine = [event for event in person.events if event.session == child.id]
    call_id = person.tools("task")[0].call_id
    assert mine and all(event.parent == call_id for event in mine)
    assert {"SessionEvent", "StepEvent", "ToolEvent", "TextEvent", "FinishEvent"} <= {type(e).__name__ for e in mine}
    assert all(event.parent == "" for event in person.events if event.session == session)
    assert result.tokens.input >= 300


def test_usage_and_cost_add_up(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "[models.scripted]\nprice_input = 1.0\nprice_output = 1.0\n")
    model = Family(
        top=[[task("Look: a"), task("Look: b"), usage(10, 1)], [say("ok"), usage(10, 1)]],
        look=[[say("A"), usage(100, 10)], [say("B"), usage(100, 10)]],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: go", person)
    assert (result.tokens.input, result.tokens.output) == (220, 22)
    assert result.cost == pytest.approx(242 / 1e6)
    children = [e for e in person.events if isinstance(e, FinishEvent) and e.parent]
    assert [(e.tokens.total, e.steps) for e in children] == [(110, 1)] * 2


def test_three_at_once_and_the_fourth_waits(project: Project, server: Start) -> None:
    gates = [Gate() for _ in range(4)]
    model = Family(
        top=[[task(f"Look: {n}") for n in range(4)], [say("done")]],
        look=[[say("here"), hold(gate)] for gate in gates],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        work = desk.runtime.start(Prompt("Top: go", "build", options=Options()), person)
        until(lambda: sum(gate.reached.is_set() for gate in gates) == 3)
        assert len(model.bodies["look"]) == 3
        next(gate for gate in gates if gate.reached.is_set()).open()
        until(lambda: all(gate.reached.is_set() for gate in gates))
        for gate in gates:
            gate.open()
        assert work.done.result(20) is not None
    assert len(person.tools("task", "completed")) == 4


def test_a_child_of_a_plan_has_its_floor(project: Project, server: Start) -> None:
    """An agent of one's own that may do anything may do nothing more than the plan that started it."""
    project.write(".nbagent/agents/helper.md", '---\ndescription: helps\npermission:\n  "*": allow\n---\nYou help.')
    project.write("nbagent.toml", '[permission]\n"*" = "allow"\n')
    model = Family(
        top=[[task("Help: fix it", "helper")], [say("It could not.")]],
        help=[
            edit_model(),
            [call("python", {"code": "open('x','w')", "description": "write"})],
            [call("bash", {"command": "echo x > src/model.py", "description": "write"})],
            [call("write", {"filePath": ".nbagent/plans/mine.md", "content": PLAN})],
            EXIT,
            [say("I could not.")],
        ],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        before = {path: state for path, state in tree(project.root).items() if ".nbagent/plans" not in path}
        desk.cell("plan", "Top: plan it", person)
        after = {path: state for path, state in tree(project.root).items() if ".nbagent/plans" not in path}
    assert after == before
    assert not list((project.root / ".nbagent/plans").glob("mine.md"))
    refused = [event for event in person.events if type(event).__name__ == "ToolEvent" and event.parent]
    ended = [event for event in refused if event.state in ("completed", "error")]
    assert [event.name for event in ended] == ["edit", "python", "bash", "write", "plan_exit"]
    assert all(event.state == "error" for event in ended)
    assert person.reviewed == []
    assert "You help." in model.bodies["help"][0]["messages"][0]["content"]


def test_general_works_for_a_build_and_not_for_a_plan(project: Project, server: Start) -> None:
    model = Family(
        top=[[task("Work: fix it", "general")], [say("Done.")]],
        work=[[call("read", {"filePath": "src/model.py"})], edit_model(), [say("Fixed.")]],
    )
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: go", Person())
        assert [file.path for file in result.files] == ["src/model.py"], "a child's changes are on the cell's receipt"
        desk.runtime.undo()
        assert "fp)" in project.read("src/model.py")
    assert "general" in str(model.bodies["top"][0]["tools"])
    planning = Family(top=[[task("Work: fix it", "general")], [say("No.")]])
    with at_work(project, server(planning)) as desk:
        person = Person()
        desk.cell("plan", "Top: go", person)
    assert person.tools("task")[0].rule == {
        "permission": "task",
        "pattern": "general",
        "action": "deny",
        "layer": "floor",
    }
    described = next(t for t in planning.bodies["top"][0]["tools"] if t["function"]["name"] == "task")
    assert "explore" in described["function"]["description"]
    assert "general:" not in described["function"]["description"]


def test_an_ignored_file_that_a_child_changes_is_put_back(project: Project, server: Start) -> None:
    project.write(".gitignore", "*.log\n")
    project.write("run.log", "before\n")
    model = Family(
        top=[[task("Work: log it", "general")], [say("Done.")]],
        work=[
            [call("read", {"filePath": "run.log"})],
            [call("write", {"filePath": "run.log", "content": "after\n"})],
            [say("ok")],
        ],
    )
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
        assert project.read("run.log") == "after\n"
        desk.runtime.undo()
    assert project.read("run.log") == "before\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"subagent_type": "explorer"}, "explore"),
        ({"subagent_type": "build"}, "no subagent"),
        ({"subagent_type": "title"}, "no subagent"),
        ({"task_id": "ses_made_up"}, "not a task of this session"),
    ],
)
def test_what_cannot_be_started_is_told_to_the_model(
    project: Project, server: Start, arguments: dict[str, str], says: str
) -> None:
    model = Family(
        top=[[task("Look: x", **{"agent": arguments.pop("subagent_type", "explore")}, **arguments)], [say("ok")]]
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
    assert says in person.tools("task")[0].error


def test_a_task_is_gone_on_with_by_its_id_and_by_no_other_sessions(project: Project, server: Start) -> None:
    model = Family(
        top=[
            [task("Look: one")],
            lambda body: [task("and two?", task_id=task_id(body))],
            lambda body: [task("as general", "general", task_id=task_id(body))],
            [say("ok")],
        ],
        other=[[say("hm")], [say("ok")]],
        look=[[say("ONE")], [say("TWO")]],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
        (child,) = desk.runtime.store.children(desk.runtime.session_id)
        again = model.bodies["look"][1]
        assert "ONE" in told(again) and "and two?" in told(again)
        assert "not a task of this session with the agent general" in person.tools("task")[2].error
        first = desk.runtime.session_id
        desk.runtime.new_session()
        model._scripts["other"] = [[task("go on", task_id=child.id)], [task("go on", task_id=first)], [say("ok")]]
        stranger = Person()
        desk.cell("build", "Other: go", stranger)
        assert len(desk.runtime.store.messages(child.id)) == 4
    assert all("not a task of this session" in event.error for event in stranger.tools("task"))


def test_the_same_task_twice_in_one_step_is_told_to_the_model(project: Project, server: Start) -> None:
    gate = Gate()
    model = Family(
        top=[
            [task("Look: one")],
            lambda body: [task("two", task_id=task_id(body)), task("three", task_id=task_id(body))],
            [say("ok")],
        ],
        look=[[say("ONE")], [say("TWO"), hold(gate)]],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        work = desk.runtime.start(Prompt("Top: go", "build", options=Options()), person)
        until(lambda: gate.reached.is_set() and person.tools("task", "error"))
        gate.open()
        assert work.done.result(20) is not None
    assert "at work already" in person.tools("task", "error")[0].error


def test_stop_reaches_the_children(project: Project, server: Start) -> None:
    gates = [Gate(), Gate()]
    model = Family(
        top=[[task("Look: a"), task("Look: b")], [say("I go on.")]],
        look=[[say("A"), hold(gate)] for gate in gates],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        work = desk.runtime.start(Prompt("Top: go", "build", options=Options()), person)
        until(lambda: all(gate.reached.is_set() for gate in gates))
        work.stop()
        with pytest.raises(CancelledError):
            work.done.result(2)
        store = desk.runtime.store
        assert [store.mark(row.id) for row in store.children(desk.runtime.session_id)] == [None, None]
        assert {e.reason for e in person.events if isinstance(e, FinishEvent)} == {"stopped"}
        for gate in gates:
            gate.open()
        desk.cell("build", "and?", Person())


def test_a_plain_reject_in_a_child_ends_the_cell(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nedit = "ask"\n')
    gate = Gate()
    model = Family(
        top=[[task("Work: it", "general"), task("Look: on")]],
        work=[[call("write", {"filePath": "a.txt", "content": "x"})]],
        look=[[say("I look"), hold(gate), call("list", {})], [say("never asked for")]],
    )

    async def refused(ask: Ask) -> Reply:
        await asyncio.to_thread(gate.reached.wait, 10)
        asyncio.get_running_loop().call_later(0.2, gate.open)
        return Reply("reject")

    person = Person(asks=[refused])
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: go", person)
    assert result.reason == "rejected"
    assert len(model.bodies["top"]) == 1, "the parent's model is not asked again"
    assert len(model.bodies["look"]) == 1, "nor is the other child's"
    assert not (project.root / "a.txt").exists()


def test_a_reject_with_words_is_the_childs_to_read(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nedit = "ask"\n')
    model = Family(
        top=[[task("Work: it", "general")], [say("ok")]],
        work=[[call("write", {"filePath": "a.txt", "content": "x"})], [say("I leave it.")]],
    )
    with at_work(project, server(model)) as desk:
        assert desk.cell("build", "Top: go", Person(asks=[reject("not that")])).reason == "stop"
    assert "not that" in told(model.bodies["work"][1])


def test_a_child_whose_model_fails_is_the_parents_to_read(project: Project, server: Start) -> None:
    model = Family(
        top=[[task("Look: x")], [say("I do it myself.")]],
        look=[[say("half"), call("list", {})], fault(400, {"error": {"message": "no such thing"}})],
    )
    person = Person()
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: go", person)
        (child,) = desk.runtime.store.children(desk.runtime.session_id)
        assert (child.status, desk.runtime.store.mark(child.id)) == ("failed", None)
    assert result.text == "I do it myself."
    assert "The task failed" in person.tools("task")[0].error
    assert child.id in person.tools("task")[0].error


def test_words_of_a_model_are_never_expanded(project: Project, server: Start) -> None:
    project.write(".env", "TOKEN=swordfish\n")
    model = Family(
        top=[[task("Look: @.env and @file:.env and @README.md and @/etc/hostname !`cat .env`")], [say("ok")]],
        look=[[say("ok")]],
    )
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
    prompt = last_user_text(model.bodies["look"][0])
    assert "@.env and @file:.env and @README.md" in prompt
    assert "swordfish" not in told(model.bodies["look"][0]) and "A churn model" not in told(model.bodies["look"][0])


def test_always_in_a_child_is_the_childs(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\nedit = "ask"\n')
    model = Family(
        top=[
            [task("Work: it", "general")],
            [call("read", {"filePath": "a.txt"})],
            [call("write", {"filePath": "a.txt", "content": "y"})],
            [say("ok")],
        ],
        work=[[call("write", {"filePath": "a.txt", "content": "x"})], [say("ok")]],
    )
    person = Person(asks=[always, reject("no")])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
    assert len(person.asked) == 2


def test_caps_of_the_cell_hold_for_what_its_children_use(project: Project, server: Start) -> None:
    for number in range(20):
        project.write(f"f{number}.txt", "x")
    reads = [[call("read", {"filePath": f"f{number}.txt"}), usage(400, 1)] for number in range(20)]

    def last(body: dict[str, Any]) -> Any:
        return [say("So far."), usage(10, 1)]

    model = Family(top=[[task("Look: all"), usage(10, 1)], last], look=[*reads[:3], last])
    with at_work(project, server(model)) as desk:
        result = desk.cell("build", "Top: go", Person(), options=limits(tokens=1000))
    assert result.reason == "limit"
    assert "tools" not in model.bodies["look"][3]
    assert "tools" not in model.bodies["top"][1]


def test_a_task_of_a_task_ends_somewhere(project: Project, server: Start) -> None:
    project.write(".nbagent/agents/deep.md", "---\ndescription: goes on\npermission:\n  task: allow\n---\nGo on.")

    depth = iter(range(10))

    def answer(body: dict[str, Any]) -> Any:
        if "begins no other" in told(body) or "task_id:" in told(body):
            return [say("enough")]
        return [task(f"Deeper {next(depth)}: go", "deep")]

    person = Person()
    with at_work(project, server(answer)) as desk:
        result = desk.cell("build", "Top: go", person)
    assert result.text == "enough"
    assert len([e for e in person.events if isinstance(e, SessionEvent)]) == 4
    assert len([e for e in person.events if isinstance(e, StepEvent)]) == 8


# -- plans of children -----------------------------------------------------------------------------------------------------


def planned(**verdicts: Any) -> Family:
    """A general child that must have its plan approved; ``opinions``: what its parent's model thinks of it, in order."""
    opinions = list(verdicts["opinions"])

    class Judged(Family):
        def __call__(self, body: dict[str, Any]) -> Any:
            if "waits for your decision" in first_user(body):
                with self._lock:
                    self.bodies.setdefault("opinion", []).append(body)
                    return opinions.pop(0)
            return super().__call__(body)

    def write(text: str) -> Any:
        return lambda body: [call("write", {"filePath": plan_path(body), "content": text})]

    child: list[Any] = [edit_model(), write(PLAN), EXIT]
    for _ in opinions[1:]:
        child += [write(PLAN + "\n- better\n"), EXIT]
    if verdicts.get("built", True):
        child += [[call("read", {"filePath": "src/model.py"})], edit_model()]
    child.append([say("Child's word.")])
    return Judged(top=[[task("Work: fix recall", "general", plan_required=True)], [say("Done.")]], work=child)


def test_a_childs_plan_is_approved_by_its_parents_model(project: Project, server: Start) -> None:
    model = planned(opinions=[[say("APPROVE\nlooks right")]])
    person = Person()
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
        plans = desk.runtime.store.plans()
    assert "+ fn)" in project.read("src/model.py")
    edits = [event for event in person.tools("edit") if event.parent]
    assert [event.state for event in edits] == ["error", "completed"], "no plan, no build"
    assert PLAN.strip() in told(model.bodies["opinion"][0])
    assert not model.bodies["opinion"][0].get("tools")
    assert [plan.status for plan in plans if plan.status == "approved"] == []
    assert person.reviewed == []
    assert [e.agent for e in person.events if isinstance(e, SessionEvent) and e.parent] == ["plan", "general"]


def test_a_childs_plan_is_sent_back_and_comes_again(project: Project, server: Start) -> None:
    model = planned(opinions=[[say("REVISE\nName the tests.")], [say("APPROVE")]])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
    assert "Name the tests." in told(model.bodies["work"][3])
    assert "+ fn)" in project.read("src/model.py")


@pytest.mark.parametrize("word", ["approve", "**Approve**\nlooks right", "Approve."])
def test_the_word_alone_counts_in_any_case(project: Project, server: Start, word: str) -> None:
    model = planned(opinions=[[say(word)]])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
    assert "+ fn)" in project.read("src/model.py")
    assert len(model.bodies["opinion"]) == 1
    assert "no reasons were given" not in told(model.bodies["work"][-1])


@pytest.mark.parametrize(
    "word", ["approve, but only if it is safe", "approved, I think", "Yes", "", "I APPROVE of this"]
)
def test_anything_but_the_word_is_no_approval(project: Project, server: Start, word: str) -> None:
    model = planned(opinions=[[say(word)] if word else [say(" ")]], built=False)
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
    assert "fp)" in project.read("src/model.py")


def test_where_task_is_asked_the_person_approves_a_childs_plan_too(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\ntask = "ask"\n')
    model = planned(opinions=[[say("APPROVE")], [say("APPROVE")]])
    person = Person(asks=[once], reviews=[verdict("revise", comment="also the docs"), verdict("build", comment="fine")])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
        plans = desk.runtime.store.plans()
        assert [plan.status for plan in plans] == ["built"], (
            "what a child carries out is not left approved for another cell"
        )
    assert "also the docs" in told(model.bodies["work"][3])
    assert "+ fn)" in project.read("src/model.py")
    assert len(person.reviewed) == 2


def test_the_person_may_refuse_a_childs_plan(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\ntask = "ask"\n')
    model = planned(opinions=[[say("APPROVE")]], built=False)
    person = Person(asks=[once], reviews=[verdict("reject")])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", person)
    assert "fp)" in project.read("src/model.py")


def test_a_secret_in_a_task_is_masked_in_the_store(project: Project, server: Start) -> None:
    model = Family(top=[[task(f"Look: {CANARY_KEY}")], [say("ok")]], look=[[say("ok")]])
    with at_work(project, server(model)) as desk:
        desk.cell("build", "Top: go", Person())
        store = desk.runtime.store.path
    assert CANARY_KEY not in told(model.bodies["look"][0])
    for file in store.parent.glob("sessions.db*"):
        assert CANARY_KEY.encode() not in file.read_bytes()
