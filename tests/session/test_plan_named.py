"""Which file may be a plan, what happens to one that was there before, and the versions that are kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import PlanError
from tests.person import Person, at_work, plan_of, verdict
from tests.project import Project, tree
from tests.server import ScriptedServer, call, say
from tests.session.scripts import EXIT, PLAN, write_plan

Server = Callable[..., ScriptedServer]


def write_at(path: str, text: str = PLAN) -> list[Any]:
    return [call("write", {"filePath": path, "content": text})]


NO_PLANS = [
    "book.ipynb",
    "nbagent.toml",
    "AGENTS.md",
    "src/claude.md",
    "skills/x/SKILL.md",
    ".git/hooks/x.md",
    "src/.git/x.md",
    ".nbagent/agents/x.md",
    ".nbagent/skills/x/plan.md",
    ".nbagent/plans/.history/x.md",
    ".nbagent/plans/../agents/x.md",
    "../x.md",
    "/etc/x.md",
    "linked.md",
    "linked/x.md",
    "folder.md",
    "pipe.md",
    "a\nb.md",
    "src/model.py/x.md",
]


@pytest.mark.parametrize("name", NO_PLANS)
def test_what_can_be_no_plan(project: Project, server: Server, name: str) -> None:
    project.write("AGENTS.md", "Be brief.\n")
    project.write("notes.md", "mine\n")
    (project.root / "linked.md").symlink_to("notes.md")
    (project.root / "linked").symlink_to("src")
    (project.root / "folder.md").mkdir()
    os.mkfifo(project.root / "pipe.md")
    before = tree(project.root)
    model = server([])
    with at_work(project, model) as desk, pytest.raises(PlanError):
        desk.cell("plan", "Plan it", Person(), plan=name)
    assert model.requests == []
    assert tree(project.root) == before


@pytest.mark.parametrize("name", ["docs/plan.md", "plans/../x.md", ".nbagent/plans/mine.md"])
def test_a_plan_where_the_person_wants_it(project: Project, server: Server, name: str) -> None:
    real = (project.root / name).resolve()
    with at_work(project, server([write_at(name), [say("done")]])) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person, plan=name)
    assert real.read_text() == PLAN
    assert not any("was not made as a plan" in told for told in person.notices())


def test_a_file_that_was_no_plan_is_kept_and_that_is_said(project: Project, server: Server) -> None:
    project.write("README.md", "# The project\n\nMine.\n")
    script = [
        [call("read", {"filePath": "README.md"})],
        write_at("README.md"),
        [say("done")],
        [call("read", {"filePath": "README.md"})],
        write_at("README.md", PLAN + "\nMore.\n"),
        [say("done")],
    ]
    with at_work(project, server(script)) as desk:
        first, second = Person(), Person()
        desk.cell("plan", "Plan it", first, plan="README.md")
        desk.cell("plan", "Go on", second, plan="README.md")
    (told,) = [each for each in first.notices() if "was not made as a plan" in each]
    kept = {path.read_text() for path in (project.root / ".nbagent/plans/.history").iterdir()}
    assert kept == {"# The project\n\nMine.\n", PLAN}
    assert ".history/README." in told
    assert project.read("README.md") == PLAN + "\nMore.\n"
    assert not any("was not made as a plan" in each for each in second.notices())
    changed = subprocess.run(
        ["git", "-C", str(project.root), "ls-files", "-o"], capture_output=True, text=True, check=True
    ).stdout
    assert {Path(name).parts[0] for name in changed.split() if "history" in name} == {".nbagent"}


def test_the_version_before_is_kept_when_the_model_rewrites_its_plan(project: Project, server: Server) -> None:
    """That of the cell before, and each that was shown for approval; not every step of one cell."""

    def rewrite(text: str) -> Callable[[dict[str, Any]], Any]:
        return lambda body: write_at(str(plan_of(project)), text)

    script = [
        [*write_at(".nbagent/plans/p.md", "# One\n")],
        EXIT,
        rewrite("# Two, a step\n"),
        rewrite("# Two\n"),
        EXIT,
        rewrite("# Three\n"),
        [say("later")],
        lambda body: [call("read", {"filePath": str(plan_of(project))})],
        rewrite("# Four\n"),
        [say("done")],
    ]
    with at_work(project, server(script)) as desk:
        desk.cell("plan", "Plan it", Person(reviews=[verdict("revise"), verdict("revise")]), cell="c1")
        desk.cell("plan", "Again", Person(), cell="c1")
    kept = {path.read_text() for path in (project.root / ".nbagent/plans/.history").iterdir()}
    assert kept == {"# One\n", "# Two\n", "# Three\n"}
    assert plan_of(project).read_text() == "# Four\n"


def test_an_earlier_version_that_cannot_be_kept_is_said(project: Project, server: Server) -> None:
    script = [
        write_plan(),
        [say("later")],
        lambda body: [call("read", {"filePath": str(plan_of(project))})],
        lambda body: write_at(str(plan_of(project)), "# Two\n"),
        [say("done")],
    ]
    with at_work(project, server(script)) as desk:
        desk.cell("plan", "Plan it", Person(), cell="c1")
        (project.root / ".nbagent/plans/.history").symlink_to(project.root / "src")
        before = tree(project.root / "src")
        person = Person()
        desk.cell("plan", "Again", person, cell="c1")
    assert any("cannot be kept" in told for told in person.notices())
    assert plan_of(project).read_text() == "# Two\n"
    assert tree(project.root / "src") == before


def test_one_call_makes_no_second_plan(project: Project, server: Server) -> None:
    two = "\n".join(f"*** Add File: .nbagent/plans/{name}.md\n+# {name}" for name in ("a", "b"))
    patch = call("apply_patch", {"patchText": f"*** Begin Patch\n{two}\n*** End Patch"})
    with at_work(project, server([[patch], write_plan(), [say("done")]])) as desk:
        person = Person()
        desk.cell("plan", "Plan it", person)
    assert person.tools("apply_patch")[-1].state == "error"
    assert plan_of(project).read_text() == PLAN


def test_a_version_is_kept_where_there_was_no_plans_folder_yet(project: Project, server: Server) -> None:
    script = [write_at("docs/p.md", "# One\n"), EXIT, write_at("docs/p.md", "# Two\n"), [say("later")]]
    with at_work(project, server(script)) as desk:
        desk.cell("plan", "Plan it", Person(reviews=[verdict("revise")]), plan="docs/p.md")
    assert [path.read_text() for path in (project.root / ".nbagent/plans/.history").iterdir()] == ["# One\n"]
    assert project.read("docs/p.md") == "# Two\n"


@pytest.mark.parametrize("name", ["AGENTS.md", "claude.md", "SKILL.md", "a\x1b[2J.md", "a\nb.md", "a\u202egpj.md"])
@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
def test_the_model_gives_its_plan_no_name_that_is_read_as_something_else(
    project: Project, server: Server, tool: str, name: str
) -> None:
    path = f".nbagent/plans/{name}"
    arguments = {
        "write": {"filePath": path, "content": "mine\n"},
        "edit": {"filePath": path, "oldString": "", "newString": "mine\n"},
        "apply_patch": {"patchText": f"*** Begin Patch\n*** Add File: {path}\n+mine\n*** End Patch"},
    }
    with at_work(project, server([[call(tool, arguments[tool])], write_plan(), [say("done")]])) as desk:
        person = Person()
        desk.cell("plan", "fix recall", person)
    assert person.tools(tool)[0].state == "error"
    assert plan_of(project).read_text() == PLAN
    assert plan_of(project).name.endswith("fix-recall.md")
