"""What is in the way of a plan: links, whose ends are never made, written or taken for a plan, and the plans of others."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import PlanError
from nbagent.event import FinishEvent, ReceiptEvent
from tests.person import Person, at_work, verdict
from tests.project import Project, tree
from tests.server import ScriptedServer, call, say
from tests.session.scripts import EXIT, PLAN, plan_path, write_plan

Server = Callable[..., ScriptedServer]


def test_a_plans_folder_that_leads_elsewhere_makes_nothing_there(project: Project, server: Server) -> None:
    elsewhere = project.user_home / "elsewhere"
    elsewhere.mkdir()
    (project.root / ".nbagent").symlink_to(elsewhere)
    before = tree(elsewhere), elsewhere.stat().st_mtime_ns
    with at_work(project, server()) as desk, pytest.raises(PlanError, match="is a link"):
        desk.cell("plan", "Plan it", Person())
    assert (tree(elsewhere), elsewhere.stat().st_mtime_ns) == before


@pytest.mark.parametrize("again", ["the same cell", "another prompt"])
def test_a_plan_that_became_a_link_is_no_plan(project: Project, server: Server, again: str) -> None:
    steps = [write_plan(), [say("later")], lambda body: [call("read", {"filePath": "src/model.py"})]]
    attack = [lambda body: [call("write", {"filePath": "src/model.py", "content": "broken"})], [say("gave up")]]
    before = project.read("src/model.py")
    with at_work(project, server([*steps, *attack])) as desk:
        desk.cell("plan", "Plan it", Person(), cell="c1")
        (plan,) = project.plans
        plan.unlink()
        plan.symlink_to(project.root / "src/model.py")
        person = Person()
        desk.cell("plan", "Go on", person, cell="c1" if again == "the same cell" else "c2")
    assert person.tools("write")[-1].state == "error"
    assert project.read("src/model.py") == before


def test_a_link_that_waits_where_a_new_plan_would_be(project: Project, server: Server) -> None:
    with at_work(project, server()) as desk:
        plans = desk.runtime.resources.plans
        plans.prepare()
        first = plans.fresh("Fix it", 0.0)
        first.path.symlink_to(project.root / "src/new.py")  # leads to nothing yet
        second = plans.fresh("Fix it", 0.0)
    assert second.path != first.path and second.path.parent == plans.folder


def test_a_history_that_leads_elsewhere_gets_nothing(project: Project, server: Server) -> None:
    plans = project.root / ".nbagent" / "plans"
    plans.mkdir(parents=True)
    (plans / ".history").symlink_to(project.root / "src")
    before = tree(project.root / "src")
    person = Person(reviews=[verdict("build", text=PLAN + "\nEdited.\n")])
    with at_work(project, server([write_plan(), EXIT, [say("done")]])) as desk, pytest.raises(PlanError, match="link"):
        desk.cell("plan", "Plan it", person)
    assert tree(project.root / "src") == before


def test_a_project_whose_folder_is_named_like_a_wildcard(tmp_path: Path, server: Server) -> None:
    """The root lies below the working tree, so that its plans are named by their whole path."""
    project = Project(tmp_path / "a*c")
    inner = project.root / "inner"
    inner.mkdir()
    other = Path(str(project.root).replace("a*c", "abc")) / ".nbagent" / "plans"
    other.mkdir(parents=True)
    victim = other / "theirs.md"
    victim.write_text("theirs")
    script = [
        lambda body: [call("write", {"filePath": str(victim), "content": "mine"})],
        lambda body: [call("write", {"filePath": str(other / "new.md"), "content": "mine"})],
        lambda body: [call("write", {"filePath": plan_path(body), "content": PLAN})],
        [say("done")],
    ]
    outer, project.root = project.root, inner
    with at_work(project, server(script)) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    assert [event.state for event in person.tools("write")] == ["error", "error", "completed"]
    assert victim.read_text() == "theirs" and len(list(other.iterdir())) == 1
    (plan,) = (outer / ".nbagent" / "plans").glob("*.md")
    assert hashlib.sha256(plan.read_bytes()).hexdigest() == hashlib.sha256(PLAN.encode()).hexdigest()


MEANWHILE = {
    "write": {"filePath": ".nbagent/plans/theirs.md", "content": "mine"},
    "edit": {"filePath": ".nbagent/plans/theirs.md", "oldString": "theirs", "newString": "mine"},
    "apply_patch": {
        "patchText": "*** Begin Patch\n*** Update File: .nbagent/plans/theirs.md\n@@\n-theirs\n+mine\n*** End Patch"
    },
}


@pytest.mark.parametrize("tool", MEANWHILE)
def test_a_plan_made_meanwhile_by_another_cell_is_not_this_ones(project: Project, server: Server, tool: str) -> None:
    theirs = project.root / ".nbagent" / "plans" / "theirs.md"

    def look(body: dict[str, Any]) -> Any:
        theirs.write_text("theirs\n")  # this run has asked for its rules before
        return [call("read", {"filePath": ".nbagent/plans/theirs.md"})]

    script = [[call("list", {})], look, lambda body: [call(tool, MEANWHILE[tool])], write_plan(), [say("done")]]
    with at_work(project, server(script)) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    (refused,) = [event for event in person.tools(tool) if "theirs.md" in str(event.input)]
    assert (refused.state, (refused.rule or {}).get("layer")) == ("error", "floor")
    assert theirs.read_text() == "theirs\n"
    assert person.tools("write")[-1].state == "completed"


def test_a_plan_that_is_there_when_the_first_is_written_stays_as_it_was(project: Project, server: Server) -> None:
    """It was made between the request for a write and its decision, under the very name."""
    theirs = project.root / ".nbagent" / "plans" / "theirs.md"

    def write(body: dict[str, Any]) -> Any:
        theirs.write_text("theirs\n")
        return [call("write", MEANWHILE["write"])]

    with at_work(project, server([[call("list", {})], write, [say("done")]])) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    assert person.tools("write")[-1].state == "error"
    assert theirs.read_text() == "theirs\n"


@pytest.mark.skipif(os.name == "nt", reason="there a backslash separates folders")
@pytest.mark.parametrize("path", [".nbagent\\plans\\x.md", ".nbagent\\plans/x.md", ".nbagent/plans\\x.md"])
def test_a_file_whose_name_looks_like_a_path_to_a_plan_is_none(project: Project, server: Server, path: str) -> None:
    before = sorted(project.root.rglob("*"))
    script = [lambda body: [call("write", {"filePath": path, "content": "mine"})], write_plan(), [say("done")]]
    with at_work(project, server(script)) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    assert [event.state for event in person.tools("write")] == ["error", "completed"]
    plans = project.root / ".nbagent"
    assert {each for each in project.root.rglob("*") if not each.is_relative_to(plans)} == set(before)


def test_a_plan_without_a_name_is_the_cells_plan(project: Project, server: Server) -> None:
    """Once it is written, there is no second one."""
    script = [
        [call("write", {"filePath": ".nbagent/plans/.md", "content": PLAN})],
        [call("write", {"filePath": ".nbagent/plans/second.md", "content": PLAN})],
        [say("done")],
    ]
    with at_work(project, server(script)) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    assert [event.state for event in person.tools("write")] == ["completed", "error"]


@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
def test_a_plan_that_another_cell_has_a_name_for_and_has_not_written_is_not_this_ones(
    project: Project, server: Server, tool: str
) -> None:
    name = ".nbagent/plans/20300101-000000-theirs.md"
    arguments = {
        "write": {"filePath": name, "content": "mine"},
        "edit": {"filePath": name, "oldString": "", "newString": "mine"},
        "apply_patch": {"patchText": f"*** Begin Patch\n*** Add File: {name}\n+mine\n*** End Patch"},
    }
    script = [lambda body: [call(tool, arguments[tool])], write_plan(), [say("done")]]
    with at_work(project, server(script)) as desk:
        desk.runtime.resources.store.put_plan(str(project.root / name), directory=str(project.root), cell="other")
        person = Person()
        desk.cell("plan", "Plan it", person, cell="mine")
    (refused,) = [event for event in person.tools(tool) if "theirs.md" in str(event.input)]
    assert (refused.state, (refused.rule or {}).get("layer")) == ("error", "floor")
    assert not (project.root / name).exists()
    assert person.tools("write")[-1].state == "completed"


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
@pytest.mark.parametrize("end", ["the model is done", "the model writes on"])
def test_a_plan_that_is_none_any_more_at_the_end_leaves_the_session_free(
    project: Project, server: Server, what: str, end: str
) -> None:
    def swap(body: dict[str, Any]) -> Any:
        (plan,) = project.plans
        plan.unlink()
        {
            "link": lambda: plan.symlink_to(project.root / "src/model.py"),
            "folder": plan.mkdir,
            "pipe": lambda: os.mkfifo(plan),
        }[what]()
        return [say("done")] if end == "the model is done" else write_plan()(body)

    with at_work(project, server([write_plan(), swap, [say("done")], [say("free")], [say("free")]])) as desk:
        first = Person()
        with contextlib.suppress(PlanError):
            desk.cell("plan", "Plan it", first, cell="c1")
        result = desk.cell("build", "Still there?", Person())
    assert result.reason == "stop"
    assert len([event for event in first.events if isinstance(event, ReceiptEvent)]) == 1
    assert len([event for event in first.events if isinstance(event, FinishEvent)]) == 1
