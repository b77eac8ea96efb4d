"""The whole path in a terminal: plan, stopped where it must be, awaiting, approved, built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.project import CANARY_KEY, Project, tree
from tests.server import ScriptedServer, call, content_text, fault, say, think, usage

Start = Callable[..., ScriptedServer]

PLAN = "# Fix recall\n\nThe recall is computed with false positives.\n\n## Files\n- `src/model.py`\n\n## Verification\nRun the tests.\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("src/model.py", "def recall(tp, fp, fn):\n    return tp / (tp + fp)\n")
    project.write("README.md", "A churn model.\n")
    return project


def told(request: Any) -> str:
    """Everything that a request says, as one text."""
    return "\n".join(content_text(message.get("content")) for message in request["messages"])


def plan_path(body: dict[str, Any]) -> str:
    """Where the model was told to write the plan."""
    import re

    text = "\n".join(content_text(message.get("content")) for message in body["messages"])
    found = re.search(r"\S*\.nbagent/plans/\S+?\.md", text)
    assert found, text
    return found.group(0)


def plan_script(text: str = PLAN) -> Callable[[dict[str, Any]], Any]:
    """A model that reads, tries to edit the source, writes its plan where it was told, and calls plan_exit."""
    steps = iter(range(100))

    def answer(body: dict[str, Any]) -> Any:
        match next(steps):
            case 0:
                return [say("I look."), call("read", {"filePath": "src/model.py"}), call("grep", {"pattern": "recall"})]
            case 1:
                return [call("edit", {"filePath": "src/model.py", "oldString": "fp)", "newString": "fn)"})]
            case 2:
                return [call("write", {"filePath": plan_path(body), "content": text})]
            case 3:
                return [call("plan_exit", {})]
        return [say("unexpected")]

    return answer


def test_plan_ends_awaiting_approval_and_changes_only_the_plan(project: Project, server: Start) -> None:
    project.use(model := server(plan_script()))
    before = tree(project.root)
    ran = project.run("plan", "Why did recall drop? Plan the fix.")
    assert ran.status == 0, ran.err
    (plan,) = project.plans
    assert plan.read_text() == PLAN
    assert tree(project.root, leave_out=(project.root / ".nbagent",)) == before
    refused = ran.tool("edit")
    assert refused["state"] == "error"
    assert refused["rule"] == {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"}
    asked = ran.tool("plan_exit")
    assert (asked["state"], asked["title"], asked["error"]) == ("completed", "the plan awaits approval", "")
    assert "Not approved: nobody is there" in asked["output"] and asked["metadata"]["status"] == "awaiting"
    assert ran.of("plan", status="awaiting")[0]["path"] == f".nbagent/plans/{plan.name}"
    assert ran.finish["reason"] == "awaiting"
    assert [file["path"] for file in ran.of("receipt")[0]["files"]] == [f".nbagent/plans/{plan.name}"]
    assert len(model.requests) == 4
    assert "python" not in str([tool["function"]["name"] for tool in model.requests[0]["tools"]])


def test_build_of_a_plan_that_nobody_approved_is_refused(project: Project, server: Start) -> None:
    project.use(server(plan_script()))
    project.run("plan", "Plan the fix.")
    (plan,) = project.plans
    project.use(model := server([]))
    before = tree(project.root)
    ran = project.run("build", "", "--plan", str(plan))
    assert ran.status != 0
    assert "nbagent approve" in ran.err
    assert model.requests == []
    assert tree(project.root) == before


def test_approved_then_built(project: Project, server: Start) -> None:
    project.use(server(plan_script()))
    project.run("plan", "Plan the fix.")
    (plan,) = project.plans
    approved = project.nbagent("approve", str(plan), "--comment", "use fn")
    assert approved.status == 0, approved.err
    script = [
        [call("read", {"filePath": "src/model.py"})],
        [call("edit", {"filePath": "src/model.py", "oldString": "(tp + fp)", "newString": "(tp + fn)"})],
        [say("Done.")],
    ]
    project.use(model := server(script))
    ran = project.run("build", "", "--plan", str(plan))
    assert ran.status == 0, ran.err
    assert project.read("src/model.py") == "def recall(tp, fp, fn):\n    return tp / (tp + fn)\n"
    first = told(model.requests[0])
    assert PLAN.strip() in first
    assert "use fn" in first
    (file,) = ran.of("receipt")[0]["files"]
    assert (file["path"], file["status"], file["additions"], file["deletions"]) == ("src/model.py", "modified", 1, 1)
    again = project.run("build", "", "--plan", str(plan))
    assert again.status != 0, "an approval is used once"


def test_a_plan_that_changed_after_approval_is_not_built(project: Project, server: Start) -> None:
    project.use(server(plan_script()))
    project.run("plan", "Plan the fix.")
    (plan,) = project.plans
    project.nbagent("approve", str(plan))
    plan.write_text(plan.read_text() + "\n- and delete everything\n")
    project.use(model := server([]))
    ran = project.run("build", "", "--plan", str(plan))
    assert ran.status != 0
    assert "changed after it was approved" in ran.err
    assert model.requests == []


def test_build_edits_and_tells(project: Project, server: Start) -> None:
    project.use(
        model := server(
            [
                [
                    think("hm"),
                    say("I write it."),
                    call("write", {"filePath": "new.py", "content": "x = 1\n"}),
                    usage(100, 20),
                ],
                [say("Done.")],
            ]
        )
    )
    ran = project.run("build", "Write new.py")
    assert ran.status == 0, ran.err
    assert project.read("new.py") == "x = 1\n"
    assert ran.of("step")[0]["step"] == 1
    assert [event["text"] for event in ran.of("text")] == ["I write it.", "Done."]
    assert ran.finish["reason"] == "stop"
    assert ran.finish["tokens"]["output"] >= 20
    assert model.requests[1]["messages"][: len(model.requests[0]["messages"])] == model.requests[0]["messages"]


def test_an_ask_without_a_person_is_a_denial_and_the_run_goes_on(project: Project, server: Start) -> None:
    project.use(
        model := server([[call("bash", {"command": "make all", "description": "build"})], [say("I could not.")]])
    )
    ran = project.run("build", "Run make")
    assert ran.status == 3, ran.err
    assert ran.finish["unanswered"] == 1
    refused = ran.tool("bash")
    assert refused["rule"]["action"] == "ask"
    assert "nobody is there" in refused["error"]
    assert len(model.requests) == 2
    assert ran.finish["reason"] == "stop"


def test_a_plan_cell_runs_commands_that_only_look(project: Project, server: Start) -> None:
    project.use(
        server(
            [
                [call("bash", {"command": "cat README.md && wc -l src/model.py", "description": "look"})],
                [call("bash", {"command": "echo x > src/model.py", "description": "write"})],
                [say("ok")],
            ]
        )
    )
    before = tree(project.root)
    ran = project.run("plan", "look")
    outputs = [event for event in ran.of("tool", name="bash") if event["state"] in ("completed", "error")]
    assert outputs[0]["state"] == "completed", outputs[0]
    assert "A churn model." in outputs[0]["output"]
    assert outputs[1]["state"] == "error"
    assert outputs[1]["rule"]["layer"] == "floor"
    assert {k: v for k, v in tree(project.root).items() if ".nbagent" not in k} == before


@pytest.mark.parametrize("agent", ["plan", "build"])
def test_an_empty_prompt_is_a_sentence(project: Project, server: Start, agent: str) -> None:
    project.use(model := server([]))
    ran = project.run(agent, "  ")
    assert ran.status != 0
    assert len(ran.err.strip().splitlines()) == 1
    assert model.requests == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}, "OPENAI_API_KEY"),
        ({"NBAGENT_MODEL": ""}, "NBAGENT_MODEL"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}, "127.0.0.1:9"),
        ({"OPENAI_BASE_URL": "not a url"}, "not a url"),
    ],
)
def test_a_server_that_is_not_there_is_a_sentence(
    project: Project, server: Start, changes: dict[str, str], says: str
) -> None:
    project.use(server([]))
    ran = project.run("build", "hello", **changes)
    assert ran.status != 0
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert CANARY_KEY not in ran.err + ran.out


def test_a_wrong_key_is_a_sentence_that_does_not_show_it(project: Project, server: Start) -> None:
    project.use(
        server(
            [fault(401, {"error": {"message": f"Incorrect API key provided: {CANARY_KEY}", "code": "invalid_api_key"}})]
        )
    )
    ran = project.run("build", "hello")
    assert ran.status == 1
    assert "key" in ran.err
    assert CANARY_KEY not in ran.err + ran.out
    assert ran.of("error")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model = [1\n", "nbagent.toml"),
        ("modle = 'x'\n", "model"),
        ("[permission]\nedit = 'maybe'\n", '"allow", "ask" or "deny"'),
        ("[permission.edit]\n'src/*' = 3\n", "allow"),
        ("[limits]\nsteps = 'many'\n", "limits.steps"),
        ("api = 'soap'\n", "chat, responses"),
        ("base_url = 'https://somewhere.example/v1'\n", "OPENAI_BASE_URL"),
        ("[agents.mine]\nprompt = 'x'\n", "description"),
    ],
)
def test_broken_settings_are_a_sentence(project: Project, server: Start, text: str, says: str) -> None:
    project.use(model := server([]))
    project.write("nbagent.toml", text)
    ran = project.run("build", "hello")
    assert ran.status == 2, ran.err
    assert says in ran.err
    assert "nbagent.toml" in ran.err
    assert "Traceback" not in ran.err
    assert model.requests == []


def test_wide_roots_are_refused(project: Project, server: Start, tmp_path: Path) -> None:
    project.use(model := server([]))
    import subprocess
    import sys

    for folder in ("/", str(project.user_home)):
        done = subprocess.run(
            [sys.executable, "-m", "nbagent.cli", "run", "hello"],
            cwd=folder,
            env=project.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "--root" in done.stderr
    assert model.requests == []


def test_a_corrupt_session_database_is_kept_aside_and_said(project: Project, server: Start) -> None:
    project.home.mkdir()
    (project.home / "sessions.db").write_bytes(b"garbage" * 1000)
    project.use(server([[say("hi")]]))
    ran = project.run("build", "hello")
    assert ran.status == 0, ran.err
    assert "sessions.db.damaged-1" in ran.err


def test_why_explains(project: Project) -> None:
    import json

    ran = project.nbagent("why", "--agent", "plan", "edit", "src/a.py", "--json")
    assert json.loads(ran.out) == {
        "permission": "edit",
        "pattern": "src/a.py",
        "action": "deny",
        "rule": {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"},
    }
    allowed = json.loads(project.nbagent("why", "--agent", "build", "edit", "src/a.py", "--json").out)
    assert allowed["action"] == "allow"
    plan = json.loads(project.nbagent("why", "--agent", "plan", "edit", ".nbagent/plans/x.md", "--json").out)
    assert plan["action"] == "allow"
    assert "floor" in project.nbagent("why", "--agent", "plan", "edit", "src/a.py").out
    told = project.nbagent("why", "--agent", "plan", "edit", "src/a.py").out
    assert "decides" in told and "webfetch" not in told
    assert "webfetch" in project.nbagent("why", "--all", "--agent", "plan", "edit", "src/a.py").out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bahs", "did you mean 'bash'"),
        ("writ", "'write'"),
        ("notebook_*", "'edit' or 'read'"),
        ("zzz", "Permissions: edit,"),
    ],
)
def test_why_knows_which_permissions_there_are(project: Project, name: str, told: str) -> None:
    ran = project.nbagent("why", name, "x")
    assert ran.status != 0 and f"no permission {name!r}" in ran.err and told in ran.err


@pytest.mark.parametrize("name", ["write", "todowrite", "mcp_any", "mcp_*", "*", "web*"])
def test_why_answers_for_tools_servers_and_wildcards(project: Project, name: str) -> None:
    assert project.nbagent("why", name, "x", "--json").status == 0


@pytest.mark.parametrize(
    ("agent", "line", "wall", "action", "told"),
    [
        ("build", 'eval "$x"', "", "ask", "cannot be told"),
        ("build", "ls; if", "", "ask", "asked about whatever allows it"),
        ("build", "ls && rm x", "", "deny", "bash rm x: deny"),
        ("plan", "python x.py", "none", "deny", "no wall"),
        ("plan", "ls > x", "none", "deny", "it writes x"),
        ("plan", "cat a", "none", "allow", ""),
    ],
)
def test_why_says_of_a_command_what_its_call_would_meet(
    project: Project, agent: str, line: str, wall: str, action: str, told: str
) -> None:
    project.write("nbagent.toml", '[permission.bash]\n"*" = "allow"\n"rm *" = "deny"\n')
    ran = project.nbagent("why", "--agent", agent, "bash", line, NBAGENT_WALL=wall)
    assert ran.out.startswith(f"bash {line}: {action}" if "rm" not in line else f"bash rm x: {action}")
    assert told in ran.out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('edti = "ask"', "did you mean 'edit'"),
        ('Edit = "deny"', "did you mean 'edit'"),
        ('nothing = "deny"', "there is no permission"),
        ('"edti?_*" = "deny"', "there is no permission"),
    ],
)
def test_a_denial_under_a_name_that_decides_nothing_is_an_error(
    project: Project, server: Start, line: str, says: str
) -> None:
    """A denial with a typing mistake in it must not be a denial of nothing."""
    project.use(model := server([]))
    project.write("nbagent.toml", f"[permission]\n{line}\n")
    ran = project.run("build", "write it")
    assert ran.status == 2
    assert says in ran.err
    assert model.requests == []


@pytest.mark.parametrize("name", ["write", "apply_patch", "notebook_edit"])
def test_a_tools_name_is_read_as_its_permission(project: Project, server: Start, name: str) -> None:
    project.use(server([[call("write", {"filePath": "new.py", "content": "x"})], [say("I may not.")]]))
    project.write("nbagent.toml", f'[permission.{name}]\n"*" = "allow"\n"new.py" = "deny"\n')
    ran = project.run("build", "write it")
    assert not (project.root / "new.py").exists()
    assert ran.tool("write")["rule"] == {
        "permission": "edit",
        "pattern": "new.py",
        "action": "deny",
        "layer": "project",
    }
    assert "is read as 'edit'" in ran.err


def test_an_unknown_name_that_allows_is_remarked(project: Project, server: Start) -> None:
    project.use(server([[say("hi")]]))
    project.write("nbagent.toml", '[permission]\nedti = "allow"\n')
    ran = project.run("build", "hello")
    assert ran.status == 0
    assert "did you mean 'edit'" in ran.err


def test_what_a_refusal_says_to_write_can_be_written(project: Project, server: Start) -> None:
    import re

    make = [call("bash", {"command": "make all"})]
    project.use(server([make, [say("I could not.")]]))
    told_it = project.run("build", "make").tool("bash")["error"]
    project.write("nbagent.toml", re.search(r"\[permission[^$]*", told_it).group(0))  # type: ignore[union-attr]
    project.write("Makefile", "all:\n\techo made\n")
    project.use(server([make, [say("Made.")]]))
    ran = project.run("build", "make")
    assert ran.status == 0, ran.err
    assert "made" in ran.tool("bash")["output"]


def test_undo_in_a_terminal(project: Project, server: Start) -> None:
    project.use(server([[call("write", {"filePath": "new.py", "content": "x"})], [say("Done.")]]))
    project.run("build", "write it")
    assert (project.root / "new.py").exists()
    assert "new.py" in project.nbagent("undo").out
    assert not (project.root / "new.py").exists()
    assert "new.py" in project.nbagent("redo").out
    assert (project.root / "new.py").exists()


def test_a_plan_run_that_wrote_no_plan_says_so(project: Project, server: Start) -> None:
    project.use(server([[say("I do not plan today.")]]))
    ran = project.run("plan", "plan it")
    assert any("without writing a plan" in event["text"] for event in ran.of("notice"))
