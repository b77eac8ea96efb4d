"""Automatic approval and its breaker, forms, entering a plan and coming back, and nobody there: in whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nbagent.frontend import Form
from nbagent.session.run import Options
from tests.person import Person, at_work, once, reject, verdict
from tests.project import Project
from tests.server import ScriptedServer, call, say
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, told, tool_names, write_plan

Start = Callable[..., ScriptedServer]
ASK_EDITS = '[permission]\nedit = "ask"\n'
AUTO = Options(auto=True)


def bash(command: str) -> Any:
    return call("bash", {"command": command, "description": "a command"})


def test_automatic_approval_answers_edits_and_commands_of_the_project(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    project.use(server([READ_MODEL, edit_model(), [bash("echo made > made.txt")], [say("Done.")]]))
    ran = project.run("build", "Fix it.", "--auto")
    assert ran.status == 0, [event["error"] for event in ran.of("tool", state="error")]
    assert "(tp + fn)" in project.read("src/model.py")
    assert project.read("made.txt") == "made\n"


def test_automatic_approval_answers_nothing_else(project: Project, server: Start) -> None:
    project.write(".env", "PASSWORD=x")
    project.write("nbagent.toml", '[permission.edit]\n"*" = "ask"\n"README.md" = "deny"\n')
    script = [
        [call("read", {"filePath": ".env"})],
        [call("read", {"filePath": "/etc/hostname"})],
        [call("read", {"filePath": "README.md"})],
        [call("edit", {"filePath": "README.md", "oldString": "churn", "newString": "loan"})],
        [say("None of it.")],
    ]
    project.use(server(script))
    ran = project.run("build", "Look.", "--auto")
    refused = ran.of("tool", state="error")
    assert [event["name"] for event in refused] == ["read", "read", "edit"]
    assert [event["rule"]["action"] for event in refused] == ["ask", "ask", "deny"]
    assert "churn" in project.read("README.md")


def test_the_breaker_holds_for_the_session(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission.edit]\n"*" = "ask"\n"docs/*" = "deny"\n')
    denied = [[call("write", {"filePath": f"docs/{name}.md", "content": "x"})] for name in "abc"]
    script = [*denied, READ_MODEL, edit_model(), [say("Done.")], edit_model("(tp + fn)", "(tp + fp)"), [say("Done.")]]
    person = Person(asks=[once, once])
    with at_work(project, server(script)) as desk:
        desk.cell("build", "Write the docs.", person, options=AUTO)
        assert len(person.asked) == 1, "asked after three denials"
        desk.cell("build", "And back.", person, options=AUTO)
    assert len(person.asked) == 2, "and in the next cell too"
    assert any("stays off" in text for text in person.notices())


def test_a_plan_entered_from_automatic_approval_comes_back_to_it(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    script = [[call("plan_enter", {})], write_plan(), EXIT, READ_MODEL, edit_model(), [say("Done.")]]
    person = Person(asks=[once], reviews=[verdict("build")])
    with at_work(project, server(script)) as desk:
        desk.cell("build", "A large change.", person, options=AUTO)
        row = desk.runtime.store.session(desk.runtime.session_id)
    assert [ask.pending[0][0] for ask in person.asked] == ["plan_enter"], "the edit is not asked"
    assert row.agent == "build"


def test_automatic_approval_that_was_switched_off_meanwhile_does_not_come_back(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    denied = [[call("write", {"filePath": f"{name}.py", "content": "x"})] for name in "abc"]
    script = [[call("plan_enter", {})], *denied, write_plan(), EXIT, READ_MODEL, edit_model(), [say("Done.")]]
    person = Person(asks=[once, once], reviews=[verdict("build")])
    with at_work(project, server(script)) as desk:
        desk.cell("build", "A large change.", person, options=AUTO)
    assert [ask.pending[0][0] for ask in person.asked] == ["plan_enter", "edit"]
    assert any("Automatic approval" in text and "off" in text for text in person.notices())


def test_automatic_approval_approves_no_plan(project: Project, server: Start) -> None:
    project.use(server([write_plan(), EXIT]))
    ran = project.run("plan", "Plan it.", "--auto")
    assert ran.finish["reason"] == "awaiting"
    assert [row["status"] for row in json.loads(project.nbagent("plans", "--json").out)] == ["awaiting"]


def test_a_form_comes_back_answer_by_answer(project: Project, server: Start) -> None:
    questions = [
        {
            "header": "Metric",
            "question": "Which metric?",
            "options": [
                {"label": "recall", "description": "of those there are"},
                {"label": "F1", "description": "both"},
            ],
        },
        {
            "header": "Files",
            "question": "Which files?",
            "multiple": True,
            "options": [{"label": "model", "description": ""}, {"label": "report", "description": ""}],
        },
    ]
    forms: list[Form] = []

    def answer(form: Form) -> Any:
        forms.append(form)
        return (("F1",), ("model", "report"))

    model = server([[call("question", {"questions": questions})], [say("F1 it is.")]])
    person = Person(questions=[answer])
    with at_work(project, model) as desk:
        desk.cell("plan", "Plan it.", person)
    assert len(forms) == 1 and len(forms[0].questions) == 2, "one form"
    text = told(model.requests[1])
    assert text.index("Which metric?") < text.index("F1") < text.index("Which files?")
    assert "model" in text and "report" in text


@pytest.mark.parametrize("agent", ["plan", "build"])
def test_where_nobody_is_there_nothing_is_offered_that_needs_a_person(
    project: Project, server: Start, agent: str
) -> None:
    script = [[call("question", {"questions": []})], [call("plan_enter", {})], [say("Nobody there.")]]
    project.use(model := server(script))
    ran = project.run(agent, "Ask me.")
    assert ran.status == 0, ran.err
    assert not {"question", "plan_enter"} & set(tool_names(model.requests[0]))
    assert [event["rule"]["action"] for event in ran.of("tool", state="error")] == ["deny", "deny"]
    assert ran.of("ask") == [] and ran.of("question") == []


def test_a_plan_is_looked_at_for_files_and_for_a_way_to_check_it(project: Project, server: Start) -> None:
    text = "# Plan\n\nChange `src/model.py` and `src/gone.py`.\nCreate `src/new.py`.\n"
    model = server([write_plan(text), EXIT])
    person = Person(reviews=[verdict("later")])
    with at_work(project, model) as desk:
        desk.cell("plan", "Plan it.", person)
    warnings = " ".join(person.reviewed[0].warnings)
    assert "src/gone.py" in warnings and "verify" in warnings
    assert "src/model.py" not in warnings and "src/new.py" not in warnings
    assert len(person.plans("approved")) == 1, "a warning refuses nothing"


def test_a_comment_goes_with_every_decision(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT, write_plan(PLAN + "\nMore.\n"), EXIT, [say("Done.")]])
    person = Person(reviews=[verdict("revise", comment="also the report"), verdict("build", comment="use polars")])
    with at_work(project, model) as desk:
        desk.cell("plan", "Plan it.", person)
    assert "also the report" in told(model.requests[2])
    assert "use polars" not in told(model.requests[3])
    assert "use polars" in told(model.requests[4])
    assert person.reviewed[1].previous == PLAN


def test_the_approval_of_one_plan_is_no_approval_of_the_next(project: Project, server: Start) -> None:
    project.use(server([write_plan(), EXIT, write_plan("# Other\n"), EXIT]))
    first = project.run("plan", "Plan one.").finish["plan"]
    second = project.run("plan", "Plan two.").finish["plan"]
    assert first != second
    assert project.nbagent("approve", first).status == 0
    ran = project.run("build", "", "--plan", second)
    assert ran.status != 0 and "nbagent approve" in ran.err


def test_a_second_look_after_a_reject_in_words(project: Project, server: Start) -> None:
    """Plan mode is entered only when the person says so, and the plan's rules are gone when they do not."""
    project.write("nbagent.toml", ASK_EDITS)
    script = [[call("plan_enter", {})], READ_MODEL, edit_model(), [say("Done.")]]
    person = Person(asks=[reject("no plan, do it"), once])
    with at_work(project, server(script)) as desk:
        desk.cell("build", "A change.", person)
    assert "(tp + fn)" in project.read("src/model.py")
    assert person.reviewed == []


def test_a_file_that_was_not_read_whole_is_not_written_over(project: Project, server: Start) -> None:
    project.write("notes.md", "".join(f"line {n}\n" for n in range(40)))
    over = [call("write", {"filePath": "notes.md", "content": "new\n"})]
    first = [call("read", {"filePath": "notes.md", "limit": 5})]
    whole = [call("read", {"filePath": "notes.md"})]
    person = Person()
    with at_work(project, server([over, first, over, whole, over, [say("Done.")]])) as desk:
        before = project.read("notes.md")
        desk.cell("build", "Write it anew.", person)
        assert [event.state for event in person.tools("write")] == ["error", "error", "completed"]
        assert project.read("notes.md") == "new\n"
        desk.runtime.undo()
    assert project.read("notes.md") == before


def test_a_plan_that_nobody_was_asked_about_is_a_draft(project: Project, server: Start) -> None:
    project.use(server([write_plan(), [say("Here is my plan.")]]))
    ran = project.run("plan", "Plan it.")
    assert (ran.status, ran.finish["reason"]) == (0, "stop")
    (plan,) = ran.of("plan")
    assert (plan["status"], plan["text"]) == ("draft", PLAN)
    assert any("nbagent approve" in event["text"] for event in ran.of("notice"))


def test_a_build_says_which_plan_it_carries_out(project: Project, server: Start) -> None:
    project.use(server([write_plan(), EXIT, [say("Done.")]]))
    path = project.run("plan", "Plan it.").finish["plan"]
    project.nbagent("approve", path)
    ran = project.run("build", "", "--plan", path)
    assert [(event["path"], event["status"]) for event in ran.of("plan")] == [(path, "built")]
