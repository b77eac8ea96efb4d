"""Tools that hand over to the session: todo lists, questions, plans, tasks, skills, and the search for tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ArgumentError, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.tools.registry import all_tools
from nbagent.tools.tool_search import best
from tests.toolbox import ALLOW, Host, Toolbox, toolbox


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return toolbox(tmp_path, host=Host())


async def test_todos(box: Toolbox) -> None:
    todos = [
        {"content": "read", "status": "completed", "priority": "high"},
        {"content": "edit", "status": "in_progress"},
        {"content": "test", "status": "pending", "priority": "low"},
    ]
    result = await box.call("todowrite", todos=todos)
    assert result.output == "[x] read (high)\n[>] edit\n[ ] test (low)"
    assert result.title == "2 of 3 todos open"
    assert box.host.todo_list[1] == {"content": "edit", "status": "in_progress", "priority": "medium"}
    assert await box.text("todoread") == result.output
    await box.call("todowrite", todos=[])
    assert await box.text("todoread") == "The todo list is empty."


@pytest.mark.parametrize(
    ("todos", "said"),
    [
        (
            [{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}],
            "2 todos are in_progress",
        ),
        ([{"content": "a", "status": "doing"}], "Invalid enum value 'doing'"),
        ([{"content": "a", "status": "pending", "priority": "urgent"}], "Invalid enum value 'urgent'"),
        ([{"content": "", "status": "pending"}], "expected string of length >= 1"),
        ([{"content": "x", "status": "pending"}] * 101, "at most 100"),
    ],
)
async def test_wrong_todos(box: Toolbox, todos: list[dict[str, str]], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        await box.call("todowrite", todos=todos)
    assert box.host.todo_list == []


async def test_questions(box: Toolbox) -> None:
    box.host.answers = (("Red", "Blue"), ("typed",))
    questions = [
        {"header": "Colour", "question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}], "multiple": True},
        {"header": "Name", "question": "What name?"},
    ]
    result = await box.call("question", questions=questions)
    assert result.output == "Which?\n→ Red, Blue\nWhat name?\n→ typed"
    assert result.metadata == {"answers": [["Red", "Blue"], ["typed"]], "headers": ["Colour", "Name"]}
    (form,) = box.host.calls
    assert form.questions[0].options == (("Red", ""), ("Blue", ""))
    assert form.questions[1].custom
    box.host.answers = None
    assert "closed the form without an answer" in await box.text("question", questions=questions)


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ([], "questions is empty"),
        ([{"header": "h" * 31, "question": "q"}], "length <= 30"),
        ([{"header": "h", "question": ""}], "length >= 1"),
        ([{"header": "h", "question": "q"}] * 2, "same header"),
        ([{"header": str(n), "question": "q"} for n in range(6)], "at most 5"),
        ([{"header": "h", "question": "q", "options": [{"label": "a"}, {"label": "a"}]}], "same label"),
        ([{"header": "h", "question": "q", "options": [{"label": str(n)} for n in range(9)]}], "at most 8"),
    ],
)
async def test_wrong_questions(box: Toolbox, questions: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        await box.call("question", questions=questions)
    assert box.host.calls == []


async def test_plans_and_tasks_are_handed_over(box: Toolbox) -> None:
    assert await box.text("plan_exit") == "approved"
    assert await box.text("plan_enter") == "entered"
    await box.call("task", description="look", prompt="Look at it", subagent_type="explore")
    arguments, call_id = box.host.calls[-1]
    assert arguments == {
        "description": "look",
        "prompt": "Look at it",
        "subagent_type": "explore",
        "task_id": "",
        "plan_required": False,
    }
    assert call_id == f"call_{box.count}"
    declared = box.declare("task", description="look", prompt="x", subagent_type="explore")
    assert declared.needs[0].permission == "task"
    assert declared.needs[0].patterns == ("explore",)


# Skills


@pytest.fixture
def skilled(box: Toolbox, tmp_path: Path) -> Toolbox:
    box.put(
        ".claude/skills/charts/SKILL.md",
        "---\nname: charts\ndescription: Make charts\n---\n# Charts\nUse style.mplstyle.\n",
    )
    box.put(".claude/skills/charts/style.mplstyle", "x")
    box.put(".claude/skills/charts/sub/more.md", "x")
    mine = tmp_path / "home/skills/own"
    mine.mkdir(parents=True)
    (mine / "SKILL.md").write_text("No front matter here.\n")
    box.host.skill_folders = {
        "charts": ("Make charts", box.root / ".claude/skills/charts"),
        "own": ("", mine),
    }
    return box


async def test_a_skill_is_loaded_without_its_front_matter(skilled: Toolbox) -> None:
    said = await skilled.text("skill", name="charts")
    assert said.startswith(f"Skill folder: {skilled.root}/.claude/skills/charts\n\n# Charts\n")
    assert "description:" not in said
    assert said.endswith("- style.mplstyle\n- sub/more.md")
    assert "No front matter here." in await skilled.text("skill", name="own")


async def test_unknown_skills(skilled: Toolbox) -> None:
    with pytest.raises(ArgumentError, match=r"Did you mean charts\?"):
        await skilled.call("skill", name="chart")
    with pytest.raises(ArgumentError, match="The skills are: charts, own"):
        await skilled.call("skill", name="xyzzy")
    skilled.host.skill_folders = {}
    with pytest.raises(ArgumentError, match="no skills here"):
        await skilled.call("skill", name="charts")


async def test_a_skill_that_leads_elsewhere_is_not_read(skilled: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    for folder in (skilled.root / ".claude/skills/charts", tmp_path / "home/skills/own"):
        (folder / "SKILL.md").unlink()
        (folder / "SKILL.md").symlink_to(tmp_path / "secret")
    for name in ("charts", "own"):
        with pytest.raises(ToolError, match="leads"):
            await skilled.call("skill", name=name)
    skilled.put("real.md", "x")
    skilled.rules = (*ALLOW, Rule("read", "real.md", "deny"))
    (skilled.root / ".claude/skills/charts/SKILL.md").unlink()
    (skilled.root / ".claude/skills/charts/SKILL.md").symlink_to(skilled.root / "real.md")
    with pytest.raises(ToolError, match="may not be read"):
        await skilled.call("skill", name="charts")


# tool_search


async def test_found_tools_are_revealed(box: Toolbox) -> None:
    box.host.hidden_tools = [tool for tool in all_tools().values() if tool.deferred]
    said = await box.text("tool_search", query="fetch a web page")
    assert said.startswith("You can call these now:\n- webfetch: ")
    assert "webfetch" in box.host.revealed
    box.host.revealed.clear()
    await box.call("tool_search", query="select:apply_patch,todoread")
    assert box.host.revealed == ["apply_patch", "todoread"]
    box.host.revealed.clear()
    said = await box.text("tool_search", query="quantum chromodynamics")
    assert said.startswith("No tool fits 'quantum chromodynamics'. What there is, by name:\n- apply_patch: ")
    assert box.host.revealed == []
    box.host.hidden_tools = []
    assert "no more tools" in await box.text("tool_search", query="x")


def test_the_best_comes_first() -> None:
    tools = list(all_tools().values())
    assert best("search file contents", tools)[0].name == "grep"
    assert best("patches", tools)[0].name == "apply_patch"
    assert best("", tools) == []
    assert best("the of a", tools) == []
