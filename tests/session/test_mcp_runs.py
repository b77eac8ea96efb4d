"""An MCP server of the settings, in whole runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nbagent.tools.mcp import tool_name
from tests.person import Person, always, at_work, reject
from tests.project import Project
from tests.server import ScriptedServer, call, say
from tests.session.scripts import tool_names

pytest.importorskip("mcp")

Start = Callable[..., ScriptedServer]

SERVER = Path(__file__).parents[1] / "data" / "tools" / "mcp_server.py"


@pytest.fixture
def settings() -> str:
    return f"[mcp.things]\ncommand = {str(sys.executable)!r}\nargs = [{str(SERVER)!r}]\n"


FIND = [call("tool_search", {"query": "things add numbers store value"})]
ADD = [call("mcp_things_add", {"a": 2, "b": 3})]
STORE = [call("mcp_things_store_it_", {"value": "x"})]


def test_tools_are_found_asked_and_called(project: Project, server: Start, settings: str) -> None:
    project.write("nbagent.toml", settings)
    model = server([FIND, ADD, STORE, [say("done")]])
    person = Person(asks=[always, always, reject("no")])
    with at_work(project, model) as desk:
        desk.cell("build", "look", person, seconds=60)
    assert "mcp_things_add" not in tool_names(model.requests[0])
    assert {"mcp_things_add", "mcp_things_store_it_"} <= set(tool_names(model.requests[1]))
    assert "5" in person.tools("mcp_things_add")[0].output
    assert person.tools("mcp_things_store_it_")[0].state == "error"


def personal(project: Project, settings: str) -> None:
    """The person's own settings, not the project's."""
    path = project.user_home / ".jupyter" / "nbagent.toml"
    path.parent.mkdir()
    path.write_text(settings + '\n[permission]\n"mcp_*" = "allow"\n')


def test_a_plan_cell_runs_only_what_says_that_it_reads(project: Project, server: Start, settings: str) -> None:
    personal(project, settings)
    person = Person()
    with at_work(project, server([FIND, ADD, STORE, [say("done")]])) as desk:
        desk.cell("plan", "look", person, seconds=60)
    assert person.tools("mcp_things_add")[0].state == "completed"
    refused = person.tools("mcp_things_store_it_")[0]
    assert refused.rule is not None
    assert refused.rule["layer"] == "floor"


@pytest.mark.parametrize("name", ["evil", "e.v", "e v", "e*", "E" * 90])
def test_a_plan_cell_never_starts_a_server_that_the_project_brought(
    project: Project, server: Start, tmp_path: Path, name: str
) -> None:
    mark = tmp_path / "mark"
    project.write(
        "nbagent.toml",
        f'[permission]\n"*" = "allow"\n"mcp_*" = "allow"\n[mcp."{name}"]\ncommand = "touch"\nargs = [{str(mark)!r}]\n',
    )
    person = Person()
    with at_work(project, server([FIND, [say("done")]])) as desk:
        desk.cell("plan", "look", person, seconds=60)
        assert not mark.exists()
        policy = desk.runtime.policy
        assert policy.why("build", tool_name(name), "touch").action == "allow"
        told = policy.why("plan", tool_name(name), "touch")
        assert (told.action, told.rule and told.rule.layer) == ("deny", "floor")


def test_a_server_of_the_project_that_runs_already_is_not_believed_in_a_plan_cell(
    project: Project, server: Start, settings: str
) -> None:
    """It was started in a build cell, and says of a tool that it only reads."""
    project.write("nbagent.toml", settings)
    planning = Person()
    with at_work(project, server([FIND, ADD, [say("done")], ADD, [say("done")]])) as desk:
        desk.cell("build", "look", Person(asks=[always, always]), seconds=60)
        desk.cell("plan", "look", planning, seconds=60)
    refused = planning.tools("mcp_things_add")[0]
    assert refused.state == "error"
    assert refused.rule is not None and refused.rule["layer"] == "floor"


@pytest.mark.parametrize(("cwd", "ours"), [("", False), ('cwd = "."\n', True)])
def test_a_person_s_server_loads_nothing_that_the_project_brought(
    project: Project, server: Start, cwd: str, ours: bool
) -> None:
    """``python -m`` looks into the folder that it is started in."""
    modules = project.user_home / "modules"
    modules.mkdir()
    (modules / "things_server.py").write_text(SERVER.read_text())
    project.write("things_server.py", "open('pwned', 'w').write('x')\n")
    project.write("http/__init__.py", "open('pwned', 'w').write('x')\n")
    own = f"[mcp.things]\ncommand = {str(sys.executable)!r}\nargs = ['-m', 'things_server']\n{cwd}"
    personal(project, f"{own}env = {{ PYTHONPATH = {str(modules)!r} }}\n")
    person = Person()
    with at_work(project, server([FIND, ADD, [say("done")]])) as desk:
        desk.cell("plan", "look", person, seconds=60)
    assert (project.root / "pwned").exists() is ours
    assert (person.tools("mcp_things_add")[0].state == "completed") is not ours


def test_a_tool_that_says_it_reads_and_destroys_does_not_only_read() -> None:
    from nbagent.tools.mcp import only_reads

    assert only_reads({"readOnlyHint": True})
    assert only_reads({"readOnlyHint": True, "destructiveHint": False})
    for hints in (None, {}, [], "readOnlyHint", {"readOnlyHint": 1}, {"readOnlyHint": True, "destructiveHint": True}):
        assert not only_reads(hints), hints
