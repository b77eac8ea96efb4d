"""Whole runs recorded from a server and played elsewhere: same files, same ids, nobody's paths, no key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagent.config import Config
from nbagent.errors import CassetteError, ProviderError
from nbagent.event import Event, NoticeEvent, ToolEvent
from nbagent.frontend import Nobody
from nbagent.provider.cassette_file import check_file
from nbagent.runtime import CassetteOptions, Runtime, secrets_of
from nbagent.session.run import Options
from nbagent.session.session import Prompt
from tests.person import Person, at_work, once, verdict
from tests.project import CANARY_KEY, Project
from tests.server import ScriptedServer, call, fault, say, think

Start = Callable[..., ScriptedServer]
ASK_EDITS = '[permission]\nedit = "ask"\n'
CODE = "def f():\n    return 1\n"


def prepared(folder: Path) -> Project:
    project = Project(folder)
    project.write("nbagent.toml", ASK_EDITS)
    project.write("a.py", CODE)
    return project


def record(project: Project, server: Start, path: Path) -> Person:
    """One run, recorded: the plan is sent back once, then approved, then carried out after an ask."""
    read = [
        think("hm"),
        say(f"I read {project.root}/a.py; the key is {CANARY_KEY}."),
        call("read", {"filePath": f"{project.root}/a.py"}),
    ]
    plan = [call("write", {"filePath": "docs/p.md", "content": "# Plan\n\nReturn 2.\n"}), call("plan_exit", {})]
    again = [
        call("edit", {"filePath": "docs/p.md", "oldString": "Return 2.", "newString": "Return 3."}),
        call("plan_exit", {}),
    ]
    build = [call("edit", {"filePath": f"{project.root}/a.py", "oldString": "return 1", "newString": "return 3"})]
    person = Person(
        asks=[once], reviews=[verdict("revise", comment="three"), verdict("build", text="# Plan\n\nReturn 3, not 1.\n")]
    )
    with at_work(project, server([read, plan, again, build, [say("Done.")]])) as desk:
        desk.runtime.use_cassette(CassetteOptions(record=str(path)))
        desk.cell("plan", "Make f return something else.", person, plan="docs/p.md")
    return person


def play(project: Project, path: Path, events: list[Event], **options: Any) -> Any:
    """The same prompt, answered by the cassette, with no server anywhere."""
    environment = {key: value for key, value in project.environment.items() if not key.startswith("OPENAI_")}
    runtime = Runtime.open(project.root, environment=environment)
    try:
        runtime.use_cassette(CassetteOptions(play=str(path), **{"answers": True, **options}))
        prompt = Prompt("Make f return something else.", "plan", plan="docs/p.md", options=Options())
        return runtime.start(prompt, Nobody(events.append)).done.result(30)
    finally:
        runtime.close()


@pytest.fixture
def recorded(tmp_path: Path, server: Start) -> Path:
    path = tmp_path / "run.cassette"
    record(prepared(tmp_path / "here"), server, path)
    return path


def test_a_recorded_run_plays_elsewhere_with_the_same_files(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    events: list[Event] = []
    result = play(project, recorded, events)
    assert result.reason == "stop"
    assert project.read("a.py") == "def f():\n    return 3\n"
    assert project.read("docs/p.md") == "# Plan\n\nReturn 3, not 1.\n"
    assert {change.path for change in result.files} == {"a.py", "docs/p.md"}


def test_the_file_holds_no_key_and_names_nobody(recorded: Path, tmp_path: Path) -> None:
    text = recorded.read_text()
    assert CANARY_KEY not in text
    assert str(tmp_path) not in text
    assert check_file(recorded) == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_two_plays_give_the_same_events_but_for_the_folder(recorded: Path, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    for name in ("one", "two"):
        events: list[Event] = []
        project = prepared(tmp_path / name)
        play(project, recorded, events)
        seen.append(
            [
                str(e).replace(str(project.root), "ROOT")
                for e in events
                if not isinstance(e, ToolEvent) or e.state != "running"
            ]
        )
    assert [_timeless(line) for line in seen[0]] == [_timeless(line) for line in seen[1]]


def _timeless(line: str) -> str:
    import re

    return re.sub(r"seconds=[\d.]+|opened=[\d.]+", "", line)


def test_a_file_that_changed_makes_it_stale_and_says_how(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    project.write("a.py", "def f():\n    return 7\n")
    with pytest.raises(CassetteError) as caught:
        play(project, recorded, [])
    message = str(caught.value)
    assert "answer 2 of 5" in message
    assert "message differs: result of read" in message
    assert "return 7" in message
    assert "--record FILE" in message and "fresh copy" in message


def test_another_rule_that_hides_a_tool_makes_it_stale(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    project.write("nbagent.toml", ASK_EDITS + 'grep = "deny"\n')
    with pytest.raises(CassetteError, match="tool gone: grep"):
        play(project, recorded, [])


def test_lenient_plays_on(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    project.write("a.py", "def f():\n    return 1  # one\n")
    events: list[Event] = []
    assert play(project, recorded, events, lenient=True).reason == "stop"
    [notice] = [event.text for event in events if isinstance(event, NoticeEvent)]
    assert "played although it did not fit: answer 2 of 5" in notice
    assert project.read("a.py") == "def f():\n    return 3  # one\n"


def test_that_nobody_is_there_is_told_with_the_way_out(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="nobody is now: --cassette-answers"):
        play(prepared(tmp_path / "elsewhere"), recorded, [], answers=False)


def test_without_leave_the_person_s_answers_do_not_count(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    with pytest.raises(CassetteError):
        play(project, recorded, [], answers=False)
    assert project.read("a.py") == CODE


def test_a_run_that_failed_leaves_no_cassette(tmp_path: Path, server: Start) -> None:
    project = prepared(tmp_path / "here")
    path = tmp_path / "run.cassette"
    with at_work(project, server([[say("x"), call("read", {"filePath": "a.py"})], fault(401)])) as desk:
        desk.runtime.use_cassette(CassetteOptions(record=str(path)))
        with pytest.raises(ProviderError):
            desk.cell("build", "go", Person())
    assert not path.exists()


def test_the_program_plays_the_bundled_cassette_with_no_key(tmp_path: Path) -> None:
    project = prepared(tmp_path / "here")
    del project.environment["OPENAI_API_KEY"], project.environment["NBAGENT_MODEL"]
    ran = project.nbagent(
        "run", "--agent", "plan", "--format", "json", "--cassette", "demo", "--cassette-answers", "what can you do?"
    )
    assert ran.status == 0, ran.err
    assert ran.tool("write", "error")["rule"]["layer"] == "floor"
    assert project.read("nbagent-hello.md").startswith("Hello")


def test_a_cell_that_is_run_again_plays_again(recorded: Path, tmp_path: Path) -> None:
    project = prepared(tmp_path / "elsewhere")
    runtime = Runtime.open(project.root, environment=project.environment)
    try:
        runtime.use_cassette(CassetteOptions(play=str(recorded), answers=True))
        for _ in range(2):
            project.write("a.py", CODE)
            (project.root / "docs" / "p.md").unlink(missing_ok=True)
            runtime.new_session()
            prompt = Prompt("Make f return something else.", "plan", plan="docs/p.md", options=Options())
            result = runtime.start(prompt, Nobody()).done.result(30)
            assert result is not None
            assert result.reason == "stop"
            assert "return 3" in project.read("a.py")
    finally:
        runtime.close()


def test_output_that_was_too_long_to_show_plays_where_nbagent_keeps_its_data_elsewhere(
    tmp_path: Path, server: Start
) -> None:
    here, path = Project(tmp_path / "here"), tmp_path / "run.cassette"
    here.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    here.write("long.txt", "some words in a line\n" * 5000)
    look = call("bash", {"command": "cat long.txt", "description": "Look"})
    with at_work(here, server([[look], [say("Long.")]])) as desk:
        desk.runtime.use_cassette(CassetteOptions(record=str(path)))
        desk.cell("build", "Look at it.", Person())
    assert "⟨data⟩/outputs/" in path.read_text()
    there = Project(tmp_path / "there" / "deeper")
    there.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    there.write("long.txt", here.read("long.txt"))
    runtime = Runtime.open(there.root, environment=there.environment)
    try:
        runtime.use_cassette(CassetteOptions(play=str(path), answers=True))
        result = runtime.start(Prompt("Look at it.", "build", options=Options()), Nobody()).done.result(30)
    finally:
        runtime.close()
    assert result is not None
    assert result.text == "Long."


def test_a_played_cell_asks_nobody_for_a_title(tmp_path: Path, server: Start) -> None:
    project = Project(tmp_path)
    cassette = project.write("x.cassette", "cassette: written by hand\nbuild\n  say: x\n")
    model = server([])
    told: list[dict[str, Any]] = []
    for small in ("", "small-1"):
        environment = {"OPENAI_BASE_URL": model.url, "NBAGENT_SMALL_MODEL": small}
        ran = project.run("build", "hello", "--cassette", str(cassette), **environment)
        assert ran.status == 0, ran.err
        told.append({"types": [event["type"] for event in ran.events], "tokens": ran.finish["tokens"]})
    assert told[0] == told[1]
    assert model.seen == []


def test_a_played_cell_is_told_nothing_of_the_person_s_own(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("x.cassette", "cassette: written by hand\nbuild\n  say: x\n")
    own = project.user_home / ".config" / "nbagent"
    (own / "skills" / "mine").mkdir(parents=True)
    (own / "skills" / "mine" / "SKILL.md").write_text("---\nname: mine\ndescription: of my own\n---\nx\n")
    (own / "AGENTS.md").write_text("Of my own, too.\n")
    asked: list[str] = []
    for cassette in ("", str(project.root / "x.cassette")):
        runtime = Runtime.open(project.root, environment=project.environment)
        try:
            runtime.use_cassette(CassetteOptions(play=cassette))
            asked.append(runtime.preview(Prompt("hello", "build")).request.system.lower())
        finally:
            runtime.close()
    assert [system.count("of my own") for system in asked] == [2, 0]


def test_check_goes_through_all_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("bad.cassette", "cassette: written by hand\nplan\n  sya: x\n")
    ran = project.nbagent("cassette", "check", "missing.cassette", "bad.cassette")
    assert ran.status == 1
    assert "missing.cassette cannot be read" in ran.err
    assert "bad.cassette:3: sya: is not known" in ran.out


def test_our_own_settings_are_no_secrets_and_keys_are() -> None:
    environment = {
        "NBAGENT_MODEL": "a-model-name",
        "NBAGENT_HOME": "/somewhere/home",
        "JPY_SESSION_NAME": "/somewhere/lesson.ipynb",
        "NBAGENT_API_KEY": "value-one-123",
        "JPY_API_TOKEN": "value-two-123",
        "OPENAI_API_KEY": "value-three-123",
    }
    assert set(secrets_of(Config(home=Path("/h")), environment)) == {
        "value-one-123",
        "value-two-123",
        "value-three-123",
    }
