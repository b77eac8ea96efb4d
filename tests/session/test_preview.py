"""What a cell would send is what it then sends; looking at it leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nbagent.errors import PlanError
from nbagent.provider.provider import Request
from nbagent.session.session import Prompt
from tests.person import Desk, Person, at_work, verdict
from tests.project import Project
from tests.server import ScriptedServer, content_text, say
from tests.session.scripts import EXIT, READ_MODEL, edit_model, tool_names, write_plan

Start = Callable[..., ScriptedServer]


def shown(desk: Desk, prompt: Prompt) -> tuple[Request, str]:
    """The request that a dry cell shows, and all that it prints."""
    made = desk.runtime.preview(prompt)
    return made.request, "\n".join(made.lines(desk.runtime.root.path))


def same(request: Request, body: dict[str, Any]) -> None:
    """The system prompt, the tools in their order and every word said to the model are those that the server saw."""
    assert [tool.name for tool in request.tools] == tool_names(body)
    system, *messages = body["messages"]
    assert content_text(system["content"]) == request.system
    assert len(messages) == len(request.turns)
    last = request.turns[-1]
    assert all(each.text in content_text(messages[-1]["content"]) for each in last.content)  # type: ignore[union-attr]


def test_the_first_cell_shows_what_it_then_sends(project: Project, server: Start) -> None:
    model = server([[say("Nothing to plan.")]])
    prompt = Prompt("fix recall", "plan", plan="notes/plan.md")
    with at_work(project, model) as desk:
        before = sorted(project.root.rglob("*"))
        request, text = shown(desk, prompt)
        assert (model.requests, desk.runtime.store.sessions(), sorted(project.root.rglob("*"))) == ([], [], before)
        desk.cell("plan", prompt.text, Person(), plan=prompt.plan)
        same(request, model.requests[0])
    assert "You are in PLAN mode" in text and "notes/plan.md" in text and "fix recall" in text
    assert "`python` by the rule `python *: deny` (floor)" in text
    assert all(f"- `{tool.name}`: " in text for tool in request.tools)
    assert request.system in text


@pytest.mark.parametrize("attended", [True, False])
def test_a_mode_speaks_of_asking_only_where_somebody_is_there(project: Project, server: Start, attended: bool) -> None:
    with at_work(project, server([])) as desk:
        made = desk.runtime.preview(Prompt("fix recall", "plan"), attended=attended)
    told = "\n".join(each.text for each in made.request.turns[-1].content)  # type: ignore[union-attr]
    assert ("question" not in made.hidden, told.count("`question`")) == (attended, 2 if attended else 0)
    assert "in five phases" in told and "never ask for it in words" in told
    assert not set("{}") & set(told)


def test_a_later_cell_shows_the_conversation_and_the_plan(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")], [say("Yes.")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", Person(reviews=[verdict("build")]))
        known = desk.runtime.store.messages(desk.runtime.session_id)
        request, text = shown(desk, Prompt("is it right now?", "build"))
        assert desk.runtime.store.messages(desk.runtime.session_id) == known
        desk.cell("build", "is it right now?", Person())
        same(request, model.requests[-1])
    assert "assistant: Fixed." in text and "PLAN mode" not in text


def test_an_empty_build_cell_shows_the_plan_and_whether_it_is_approved(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT, [say("Done.")]])
    with at_work(project, model) as desk:
        empty = Prompt("", "build", carry_out=True)
        with pytest.raises(PlanError, match="no approved plan"):
            desk.runtime.preview(empty)
        desk.cell("plan", "fix recall", Person(reviews=[verdict("later")]))
        made = desk.runtime.preview(empty)
        assert made.note == "" and "Fix recall" in "\n".join(made.lines(desk.runtime.root.path))
        plan = project.root / made.plan
        plan.write_text(plan.read_text() + "\nAnd the tests.\n")
        changed = desk.runtime.preview(empty)
        assert "you would be asked first" in "\n".join(changed.lines(desk.runtime.root.path))
        desk.runtime.approve(made.plan)
        made = desk.runtime.preview(empty)
        assert made.note == ""
        desk.cell("build", "", Person(), plan=made.plan)
        same(made.request, model.requests[-1])
