"""``%agent``, completion and settings in a real kernel."""

from __future__ import annotations

from collections.abc import Callable

from tests.kernel.kernel import Clicker, Kernel, once, verdict
from tests.project import Project
from tests.server import ScriptedServer, call, say, usage
from tests.session.scripts import EXIT, READ_MODEL, edit_model, write_plan

Start = Callable[..., ScriptedServer]
Begin = Callable[[], Kernel]


def completions(shell: Kernel, code: str) -> list[str]:
    msg_id = shell.client.complete(code)
    while True:
        reply = shell.client.get_shell_msg(timeout=20)
        if reply["parent_header"]["msg_id"] == msg_id:
            content = reply["content"]
            return [code[: content["cursor_start"]] + match for match in content["matches"]]


def test_the_commands(project: Project, server: Start, kernel: Begin) -> None:
    edit = edit_model()
    project.use(server([READ_MODEL, edit, [say("Fixed."), usage(1000, 20)], write_plan(), EXIT, [say("hello again")]]))
    shell = kernel()
    assert "none yet" in shell.run("%agent status").text
    assert "nothing to export" in shell.run("%agent export").text
    done = shell.run("%%build\nfix it", person=Clicker(ask=once))
    assert done.status == "ok" and "(tp + fn)" in project.read("src/model.py"), done.text

    assert "put back: src/model.py" in shell.run("%agent undo").text
    assert "(tp + fp)" in project.read("src/model.py")
    assert "done again: src/model.py" in shell.run("%agent redo").text
    assert "(tp + fn)" in project.read("src/model.py")

    status = shell.run("%agent status").text
    assert "fix it" in status and "scripted" in status
    assert "* ses_" in shell.run("%agent sessions").text
    assert "3 model calls" in shell.run("%agent cost").text
    assert "Fixed." in shell.run("%agent export").text
    assert '"cells"' in shell.run("%agent export --to notebook").text
    why = shell.run("%agent why --agent plan edit src/model.py").text
    assert "deny" in why and "floor" in why
    rules = shell.run("%agent rules plan").text.splitlines()
    assert any(line.startswith("floor") for line in rules)
    keys = [line for line in rules if line.startswith("defaults  read") and "~/." in line]
    assert len(keys) < 3 and len(rules) < 60, "places where keys lie are one line"
    assert "hidden" in shell.run("%agent tools plan").text
    table = shell.run("%agent tools").text.splitlines()
    assert table[0].split() == ["plan", "build"]
    (edit,) = (line for line in table if line.startswith("edit "))
    assert "deny, but allow" in edit and edit.endswith("allow")
    (python,) = (line for line in table if line.startswith("python "))
    assert "hidden by python *: deny (floor)" in python
    told = shell.run("%agent explain").text
    assert "## Step 1: build, " in told and "**Tools offered**" in told and "said: Fixed." in told
    assert "no key" not in status and project.environment["OPENAI_API_KEY"] not in status

    shell.run("%%plan --new\nplan it", person=Clicker(review=verdict("later")))
    plans = shell.run("%agent plans").text
    (plan,) = project.plans
    assert f"approved  .nbagent/plans/{plan.name}" in plans
    assert "# Fix recall" in shell.run(f"%agent plans show .nbagent/plans/{plan.name}").text

    session = shell.value("get_ipython()._nbagent.work.desk.runtime().session_id").strip("'")
    assert f"%agent resume {session}" in completions(shell, "%agent resume ses_")
    path = f".nbagent/plans/{plan.name}"
    assert f"%%build --plan {path}" in completions(shell, "%%build --plan .nbagent/plans/")
    assert completions(shell, "%%build --model scr") == ["%%build --model scripted"]

    assert "new conversation" in shell.run("%agent new").text
    assert shell.run("%%build\nhi").of("text")[0]["text"] == "hello again"
    assert "Nothing waits" in shell.run("%agent pending").text
    nothing = shell.run("%agent resume").text  # a sentence, and no record of a run that there was not
    assert nothing == "Nothing was interrupted there; the next prompt goes on with it.\n"
    assert "PERMISSION" in shell.run("%agent").text
    assert "--quick" in shell.run("%plan --help").text


def test_settings_of_the_kernel(project: Project, server: Start, kernel: Begin) -> None:
    project.use(model := server([[say("one")], [say("two")], [say("three")], [say("four")]]))
    shell = kernel()
    assert shell.run("%config NbAgent.model = 'chosen'").status == "ok"
    assert shell.run("%%build\nhi").record["head"]["model"] == "chosen"
    shell.run("%agent model other")
    assert shell.run("%%build\nhi").record["head"]["model"] == "other"
    assert shell.run("%%build --model third\nhi").record["head"]["model"] == "third"
    assert shell.run("%%build\nhi").record["head"]["model"] == "other", "the option was the cell's own"
    assert [request["model"] for request in model.requests if request.get("tools")] == [
        "chosen",
        "other",
        "third",
        "other",
    ]
    refused = shell.run("%config NbAgent.permission = {'edit': 'allow'}")
    assert "permission" in refused.text


def test_a_dry_run_sends_nothing(project: Project, server: Start, kernel: Begin) -> None:
    project.use(model := server([]))
    shell = kernel()
    text = shell.run("%%plan --dry\nfix it").text
    offered, _, rest = text.partition("## Tools offered")[2].partition("## Hidden")
    hidden, _, system = rest.partition("## System prompt")
    assert "nothing was sent" in text and "- `read`: " in offered and "`python`" not in offered
    assert "`python` by the rule `python *: deny` (floor)" in hidden
    assert "You are nbagent" in system and "1. user: fix it" in system and "You are in PLAN mode" in system
    assert model.requests == []


def test_a_newcomer_without_a_key_is_told_what_to_set(project: Project, server: Start, kernel: Begin) -> None:
    for name in ("NBAGENT_MODEL", "OPENAI_API_KEY"):
        del project.environment[name]
    shell = kernel()
    done = shell.run("%%plan\nfix it")
    (line,) = done.outputs[-1]["traceback"]
    assert "NBAGENT_MODEL" in line and "--cassette demo" in line and "\n" not in line
    model = server([[say("welcome")]])
    shell.run(f"import os; os.environ.update(OPENAI_BASE_URL={model.url!r}, NBAGENT_MODEL='m')")
    assert shell.run("%%build\nhi").of("text")[0]["text"] == "welcome"


def test_moving_the_kernel_does_not_move_the_root(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([[say("hi")], [call("bash", {"command": "touch here", "description": "d"})], [say("done")]]))
    shell = kernel()
    shell.run("import os; os.chdir('/')")
    assert shell.run("%%build\nhi").record["head"]["root"] == str(project.root)
    shell.run("%%build\ntouch", person=Clicker(ask=once))
    assert (project.root / "here").exists()


def test_tab_completes(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([]))
    shell = kernel()
    shell.run("my_table = 1")
    assert completions(shell, "%%plan --qu") == ["%%plan --quick"]
    assert completions(shell, "%agent st") == ["%agent status"]
    assert completions(shell, "%%build\nlook at @src/m") == ["%%build\nlook at @src/model.py"]
    assert completions(shell, "%%build\nlook at @my_t") == ["%%build\nlook at @my_table"]
    assert "my_table" in completions(shell, "my_ta")
    assert "import os" not in completions(shell, "%%plan\nimpor")
