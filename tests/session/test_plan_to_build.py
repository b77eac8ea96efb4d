"""Plan, review, approval and build, with a person there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import PlanError
from nbagent.frontend import Review, Verdict
from nbagent.session.run import Options
from tests.person import Person, at_work, once, plan_of, reject, verdict
from tests.project import Project, tree
from tests.server import ScriptedServer, call, say
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, plan_path, told, tool_names, write_plan

Start = Callable[..., ScriptedServer]
FIXED = "def recall(tp, fp, fn):\n    return tp / (tp + fn)\n"


def notices(body: dict[str, Any], word: str) -> int:
    return told(body).count(f"You are in {word} mode")


def test_approve_and_build_goes_on_in_the_same_cell(project: Project, server: Start) -> None:
    model = server([READ_MODEL, write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")]])
    person = Person(reviews=[verdict("build", comment="use polars")])
    with at_work(project, model) as desk:
        result = desk.cell("plan", "fix recall", person)
    assert (result.reason, result.text) == ("stop", "Fixed.")
    assert project.read("src/model.py") == FIXED
    planning, building = model.requests[2], model.requests[3]
    assert notices(planning, "PLAN") == 1
    assert (notices(building, "PLAN"), notices(building, "BUILD")) == (0, 1)
    assert "python" not in tool_names(planning)
    assert "plan_exit" not in tool_names(building)
    assert "use polars" in told(building)
    assert PLAN.strip() in told(building)
    assert [file.path for file in result.files if not file.path.startswith(".nbagent")] == ["src/model.py"]
    assert [event.status for event in person.plans("approved") + person.plans("built")] == ["approved", "built"]


def test_approve_and_build_later(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")]])
    with at_work(project, model) as desk:
        first = desk.cell("plan", "fix recall", Person(reviews=[verdict("later")]))
        assert first.reason == "approved"
        assert len(model.requests) == 2
        second = desk.cell("build", "", Person())
        assert second.reason == "stop"
        assert project.read("src/model.py") == FIXED
        assert notices(model.requests[2], "BUILD") == 1
        with pytest.raises(PlanError, match=r"no approved plan|carried out before"):
            desk.cell("build", "", Person(reviews=[verdict("reject")]))


def test_keep_planning_brings_a_new_review_with_the_version_before(project: Project, server: Start) -> None:
    revised = PLAN + "\n- also X\n"
    model = server([write_plan(), EXIT, edit_model(), write_plan(revised), EXIT, [say("done")]])
    person = Person(reviews=[verdict("revise", comment="also X"), verdict("later")])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", person)
    assert "also X" in told(model.requests[2])
    assert person.tools("edit")[0].rule["layer"] == "floor"  # type: ignore[index]
    first, second = person.reviewed
    assert (first.text, second.previous, second.text) == (PLAN, PLAN, revised)
    assert first.id != second.id


def test_reject_ends_the_cell_and_leaves_the_file_alone(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT])
    with at_work(project, model) as desk:
        result = desk.cell("plan", "fix recall", Person(reviews=[verdict("reject")]))
    assert result.reason == "rejected"
    assert plan_of(project).read_text() == PLAN
    assert len(model.requests) == 2


def test_an_edit_in_the_review_is_what_is_saved_and_built(project: Project, server: Start) -> None:
    edited = PLAN.replace("Run the tests", "Run pytest -q")
    model = server([write_plan(), EXIT, [say("done")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", Person(reviews=[verdict("build", text=edited)]))
    assert plan_of(project).read_text() == edited
    assert edited.strip() in told(model.requests[2])
    assert "edited it before approving" in told(model.requests[2])


def test_a_file_that_changed_under_the_review_is_shown_again(project: Project, server: Start) -> None:
    model = server([write_plan(), EXIT, [say("done")]])

    def behind_the_back(review: Review) -> Verdict:
        plan_of(project).write_text(PLAN + "\nrm -rf everything\n")
        return verdict("build")(review)

    person = Person(reviews=[behind_the_back, verdict("build")])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", person)
    first, second = person.reviewed
    assert not first.stale
    assert second.stale
    assert "rm -rf everything" in second.text
    assert len(person.plans("approved")) == 1
    assert "rm -rf everything" in told(model.requests[2])


def test_a_person_who_is_gone_leaves_a_plan_that_waits(project: Project, server: Start) -> None:
    """The person could be asked when the review began and cannot any more: it is shown once, and the run ends there."""
    model = server([write_plan(), EXIT])
    person = Person(reviews=[lambda review: Verdict(review.id, review.hash, "reject", by="nobody")])
    with at_work(project, model) as desk:
        result = desk.cell("plan", "fix recall", person)
    assert result.reason == "awaiting"
    assert len(person.reviewed) == 1
    assert person.plans("approved") == []
    assert [event.status for event in person.plans("awaiting")] != []
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    "forge",
    [
        lambda review: Verdict("rev_old", review.hash, "build", text=review.text),
        lambda review: Verdict(review.id, "0" * 64, "build", text=review.text),
        lambda review: Verdict(review.id, "", "build", text=review.text),
        lambda review: Verdict(review.id, review.hash, "build", text=review.text, by="nobody"),
        lambda review: Verdict(review.id, review.hash, "approve", text=review.text),  # type: ignore[arg-type]
        lambda review: Verdict(review.id, review.hash, "", text=review.text),  # type: ignore[arg-type]
    ],
)
def test_a_verdict_on_something_else_approves_nothing(project: Project, server: Start, forge: Any) -> None:
    model = server([write_plan(), EXIT])
    person = Person(reviews=[forge, verdict("reject")])
    with at_work(project, model) as desk:
        result = desk.cell("plan", "fix recall", person)
    assert result.reason == "rejected"
    assert person.plans("approved") == []
    assert len(person.reviewed) == 2


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_plan_exit_without_a_plan_asks_nobody(project: Project, server: Start, text: str | None) -> None:
    script: list[Any] = [] if text is None else [write_plan(text)]
    model = server([*script, EXIT, [say("I write it next time.")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("plan", "fix recall", person)
    assert "first" in person.tools("plan_exit")[0].error
    assert person.reviewed == []


def test_plan_exit_in_build_is_refused(project: Project, server: Start) -> None:
    model = server([EXIT, [say("ok")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("build", "go", person)
    assert person.tools("plan_exit")[0].state == "error"
    assert person.reviewed == []


def test_each_request_in_plan_has_exactly_one_notice(project: Project, server: Start) -> None:
    model = server([[say("a plan, later")], [say("built")], [call("list", {})], [say("again")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "one", Person())
        desk.cell("build", "two", Person())
        desk.cell("plan", "three", Person())
    assert [notices(body, "PLAN") for body in model.requests] == [1, 0, 1, 1]
    assert [notices(body, "BUILD") for body in model.requests] == [0, 1, 0, 0]


def test_a_second_plan_cell_has_a_plan_of_its_own(project: Project, server: Start) -> None:
    model = server([write_plan("# A\n\nVerification\n"), [say("a")], write_plan("# B\n\nVerification\n"), [say("b")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "first thing", Person())
        desk.cell("plan", "second thing", Person())
    assert [plan.read_text().splitlines()[0] for plan in project.plans] == ["# A", "# B"]
    assert notices(model.requests[2], "PLAN") == 1
    assert model.requests[2]["messages"][: len(model.requests[1]["messages"])] == model.requests[1]["messages"]


def test_another_cells_plan_cannot_be_written(project: Project, server: Start) -> None:
    model = server([write_plan("# A\n"), [say("a")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "first thing", Person())
        first = plan_of(project)
        before = tree(project.root)
        model.extend(
            [call("read", {"filePath": str(first)})],
            [call("write", {"filePath": str(first), "content": "mine"})],
            [say("b")],
        )
        person = Person()
        desk.cell("plan", "second thing", person)
    assert person.tools("write")[0].rule["action"] == "deny"  # type: ignore[index]
    assert tree(project.root) == before


def test_the_same_cell_run_again_goes_on_with_its_plan(project: Project, server: Start) -> None:
    model = server([write_plan("# A\n"), [say("a")], [say("b")]])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix it", Person(), cell="nb.ipynb#c1")
        desk.cell("plan", "fix it", Person(), cell="nb.ipynb#c1")
    assert len(project.plans) == 1
    assert "exists already" in told(model.requests[2])


@pytest.mark.parametrize("name", ["a.py", "/etc/p.md", "../p.md", "docs"])
def test_only_a_markdown_file_inside_the_root_can_be_the_plan(project: Project, server: Start, name: str) -> None:
    model = server([])
    with at_work(project, model) as desk, pytest.raises(PlanError):
        desk.cell("plan", "fix it", Person(), plan=name)
    assert model.requests == []


def test_a_named_plan_is_the_only_file_that_can_be_written(project: Project, server: Start) -> None:
    writes = [
        [call("write", {"filePath": name, "content": PLAN})]
        for name in ("docs/p.md", "docs/q.md", ".nbagent/plans/x.md")
    ]
    model = server([*writes, [say("done")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("plan", "fix it", person, plan="docs/p.md")
    assert [event.state for event in person.tools("write")] == ["completed", "error", "error"]
    assert project.read("docs/p.md") == PLAN


def test_words_do_not_lift_the_floor(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\n"*" = "allow"\nedit = "allow"\nbash = "allow"\npython = "allow"\n')
    model = server([edit_model(), [say("Use a build cell.")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("plan", "Edit src/model.py now, I allow it.", person)
    assert person.tools("edit")[0].rule == {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"}
    assert "fp)" in project.read("src/model.py")


def test_three_identical_denials_end_the_run(project: Project, server: Start) -> None:
    model = server([edit_model()] * 5)
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("plan", "edit it", person)
    assert result.reason == "blocked"
    assert "build" in result.message
    assert len(model.requests) == 3


def test_plan_enter_asks_and_plans_for_the_rest_of_the_cell(project: Project, server: Start) -> None:
    model = server(
        [[call("plan_enter", {})], edit_model(), write_plan(), EXIT, READ_MODEL, edit_model(), [say("Fixed.")]]
    )
    person = Person(asks=[once], reviews=[verdict("build")])
    with at_work(project, model) as desk:
        result = desk.cell("build", "a large change", person)
    assert result.reason == "stop"
    assert person.tools("edit")[0].rule["layer"] == "floor"  # type: ignore[index]
    assert project.read("src/model.py") == FIXED
    assert [notices(body, "PLAN") for body in model.requests] == [0, 1, 1, 1, 0, 0, 0]


def test_plan_enter_refused_stays_in_build(project: Project, server: Start) -> None:
    model = server([[call("plan_enter", {})], READ_MODEL, edit_model(), [say("Fixed.")]])
    person = Person(asks=[reject("just do it")])
    with at_work(project, model) as desk:
        desk.cell("build", "a change", person)
    assert project.read("src/model.py") == FIXED


def test_stopping_a_review_approves_nothing(project: Project, server: Start) -> None:
    from nbagent.session.session import Prompt

    model = server([write_plan(), EXIT])
    waiting = asyncio.Event()

    async def never(review: Review) -> Verdict:
        waiting.set()
        await asyncio.sleep(60)
        raise AssertionError

    person = Person(reviews=[never])
    with at_work(project, model) as desk:
        task = desk.runtime.start(Prompt("fix it", "plan", options=Options()), person)
        deadline = time.monotonic() + 20
        while not person.reviewed and time.monotonic() < deadline:
            time.sleep(0.01)
        task.stop()
        with pytest.raises(CancelledError):
            task.done.result(5)
        plan = desk.runtime.resources.plans.rows()[0]
        assert (plan.status, plan.request) == ("awaiting", "")
        with pytest.raises(PlanError, match="not approved"):
            desk.cell("build", "", type("Nobody", (Person,), {"attended": False})())


def test_the_plans_folder_cannot_be_a_link(project: Project, server: Start) -> None:
    (project.root / ".nbagent").mkdir()
    (project.root / ".nbagent" / "plans").symlink_to(project.root / "src")
    model = server([])
    with at_work(project, model) as desk, pytest.raises(PlanError, match="link"):
        desk.cell("plan", "fix it", Person())
    assert model.requests == []


def test_a_plans_folder_that_cannot_be_made_is_a_sentence(project: Project, server: Start) -> None:
    project.write(".nbagent/plans", "a file")
    model = server([])
    with at_work(project, model) as desk, pytest.raises(PlanError, match="--plan"):
        desk.cell("plan", "fix it", Person())


def test_without_version_control_the_plan_is_in_the_data_folder(tmp_path: Any, server: Start) -> None:
    project = Project(tmp_path, git=False)
    project.write("a.py", "x = 1\n")

    def write(body: dict[str, Any]) -> Any:
        import re

        path = re.findall(r"/\S+/plans/\S+?\.md", told(body))[-1]
        return [call("write", {"filePath": path, "content": PLAN})]

    model = server([write, EXIT])
    before = tree(project.root)
    with at_work(project, model) as desk:
        result = desk.cell("plan", "fix it", Person(reviews=[verdict("later")]))
    assert result.reason == "approved"
    assert tree(project.root) == before
    assert len(list(project.home.rglob("*.md"))) == 1


def test_the_first_plan_that_is_written_is_the_cells_plan_and_the_only_one(project: Project, server: Start) -> None:
    """The model may name its plan; from then on it can write that one file and nothing else."""
    other = [call("write", {"filePath": ".nbagent/plans/other.md", "content": PLAN})]
    second = [call("write", {"filePath": ".nbagent/plans/second.md", "content": PLAN})]
    # What the refusal says of where the plan is, the model follows.
    model = server([other, second, write_plan(), EXIT])
    person = Person(reviews=[verdict("later")])
    with at_work(project, model) as desk:
        desk.cell("plan", "fix it", person)
    assert [event.state for event in person.tools("write")] == ["completed", "error", "completed"]
    assert person.reviewed[0].path == ".nbagent/plans/other.md"
    assert [plan.name for plan in project.plans] == ["other.md"]


def test_plans_of_the_whole_working_tree_are_listed(project: Project, server: Start) -> None:
    """Made from a folder below, or come with the files: all of the plans folder is there, for its own folder to carry out."""
    project.write(".nbagent/plans/came.md", PLAN)
    below = project.root / "sub"
    below.mkdir()
    project.use(server([write_plan(), EXIT]))
    assert project.run("plan", "Plan it.", "--root", str(below)).status == 0
    (made,) = [plan for plan in project.plans if plan.name != "came.md"]
    assert project.nbagent("approve", str(made), "--root", str(below)).status == 0
    for root in (project.root, below):
        rows = json.loads(project.nbagent("plans", "--json", "--root", str(root)).out)
        assert [(Path(row["path"]).name, row["status"]) for row in rows] == [
            (made.name, "approved"),
            ("came.md", "draft"),
        ]
    other = project.run("build", "")
    assert other.status == 1 and f"was made in {below}" in other.err and "--plan" in other.err


def test_what_stands_beside_a_call_that_enters_planning_is_not_run(project: Project, server: Start) -> None:
    """The person said that the rest of the cell plans."""
    entering = [
        call("plan_enter", {}),
        call("write", {"filePath": "src/new.py", "content": "x"}),
        call("bash", {"command": "touch src/touched", "description": "touch"}),
    ]
    project.write("nbagent.toml", '[permission]\nedit = "allow"\nbash = "allow"\n')
    before = tree(project.root / "src")
    with at_work(project, server([entering, write_plan(), [say("planned")]])) as desk:
        person = Person(asks=[once])
        desk.cell("build", "go", person)
    assert tree(project.root / "src") == before
    assert {event.error.partition(":")[0] for event in person.tools() if event.state == "error"} == {"not run"}
    assert plan_of(project).read_text() == PLAN


def test_what_stands_beside_an_approval_does_not_change_what_was_approved(project: Project, server: Start) -> None:
    def leaving(body: dict[str, Any]) -> Any:
        return [*EXIT, call("write", {"filePath": plan_path(body), "content": PLAN + "\nrm -rf everything\n"})]

    with at_work(project, server([write_plan(), leaving, [say("built")]])) as desk:
        person = Person(reviews=[verdict("build")])
        desk.cell("plan", "fix recall", person)
    assert plan_of(project).read_text() == PLAN
    assert person.tools("write")[-1].error.startswith("not run: ")
