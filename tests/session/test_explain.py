"""A finished cell, told step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nbagent.errors import SessionError
from nbagent.session.explain import explain_cell
from nbagent.session.state import state_from
from tests.person import Person, at_work, verdict
from tests.project import Project
from tests.server import ScriptedServer, say
from tests.session.scripts import EXIT, READ_MODEL, edit_model, write_plan

Start = Callable[..., ScriptedServer]


def test_it_tells_what_each_step_saw(project: Project, server: Start) -> None:
    model = server([edit_model(), write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", Person(reviews=[verdict("build")]))
        store = desk.runtime.store
        row = store.session(desk.runtime.session_id)
        told = explain_cell(store.messages(row.id), state_from(row.state))
    steps = told.split("## Step ")[1:]
    assert len(steps) == 6
    assert "You are in PLAN mode" in steps[0]
    assert "`python` by the rule `python *: deny (floor)`" in steps[0]
    assert "refused by the rule `edit *: deny` (floor)" in steps[0]
    assert "You are in BUILD mode" in steps[3]
    assert "You are in PLAN mode" not in steps[3]
    assert "said: Fixed." in steps[5]
    assert ["as in the step before" in step for step in steps] == [False, True, True, False, True, True]
    assert "called `edit`: src/model.py — refused" in steps[0]
    assert "2–4. … as sent before\n5. result of" in steps[4]


def test_there_must_be_a_cell() -> None:
    with pytest.raises(SessionError):
        explain_cell([], state_from({}))
