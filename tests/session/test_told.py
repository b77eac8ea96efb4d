"""What a model is told: instructions, skills, what the person names with ``@``, tools that are found, and no more than that."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.person import Person, at_work
from tests.project import Project
from tests.server import ScriptedServer, call, say, usage
from tests.session.scripts import EXIT, READ_MODEL, told, tool_names, write_plan

Start = Callable[..., ScriptedServer]
CORE_BYTES = 24 * 1024


def png(width: int = 2, height: int = 2) -> bytes:
    """A small picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("agent", ["plan", "build"])
def test_the_core_of_a_request_is_small(project: Project, server: Start, agent: str) -> None:
    project.use(model := server([[say("Hello.")]]))
    assert project.run(agent, "Hello").status == 0
    (body,) = model.requests
    system = body["messages"][0]["content"]
    assert len((system + json.dumps(body["tools"], ensure_ascii=False)).encode()) < CORE_BYTES
    assert len(json.dumps(body, ensure_ascii=False).encode()) < CORE_BYTES + 4096


def test_instructions_are_found_from_the_top_down(project: Project, server: Start) -> None:
    personal = project.user_home / ".config" / "nbagent"
    personal.mkdir(parents=True)
    (personal / "AGENTS.md").write_text("Mine: answer in Dutch.")
    project.write("AGENTS.md", "Project: use tabs.")
    project.write("CLAUDE.md", "Not read, since AGENTS.md is there.")
    project.write("src/CLAUDE.md", "Nested: keep the signatures.")
    script = [READ_MODEL, READ_MODEL, [say("Read.")]]
    project.use(model := server(script))
    ran = project.run("build", "Read the model.")
    assert ran.status == 0, ran.err
    first, second, third = model.requests
    system = first["messages"][0]["content"]
    assert system.index("answer in Dutch") < system.index("use tabs")
    assert f"Instructions from {project.root / 'AGENTS.md'}" in system
    assert "Not read" not in system
    assert "keep the signatures" not in told(first)
    assert told(second).count("keep the signatures") == 1
    assert str(project.root / "src" / "CLAUDE.md") in told(second)
    assert told(third).count("keep the signatures") == 1, "said once"
    assert [body["messages"][0] for body in model.requests] == [first["messages"][0]] * 3


def test_what_a_prompt_names_is_attached(project: Project, server: Start) -> None:
    project.write("data/a.csv", "x\n1\n")
    project.write(".env", "PASSWORD=hunter2-hunter2")
    project.use(model := server([[say("Seen.")]]))
    ran = project.run("build", "Look at @src/model.py, @data/ and @.env; ask me@example.org about @nothing.")
    assert ran.status == 0, ran.err
    text = told(model.requests[0])
    assert "return tp / (tp + fp)" in text
    assert "a.csv" in text
    assert "hunter2" not in text
    assert "@.env was not attached" in ran.err
    assert "nothing" not in ran.err and "example" not in ran.err


def test_a_picture_that_a_prompt_names_goes_along(project: Project, server: Start) -> None:
    (project.root / "plot.png").write_bytes(png())
    project.use(model := server([[say("A square.")]]))
    assert project.run("build", "What is in @plot.png?").status == 0
    parts = model.requests[0]["messages"][1]["content"]
    assert any(part["type"] == "image_url" for part in parts)


def test_a_picture_that_is_read_goes_to_a_model_that_sees(project: Project, server: Start) -> None:
    (project.root / "plot.png").write_bytes(png())
    project.use(model := server([[call("read", {"filePath": "plot.png"})], [say("A square.")]]))
    assert project.run("build", "What is in the plot?").status == 0
    urls = [
        part["image_url"]["url"]
        for message in model.requests[1]["messages"]
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    assert [base64.b64decode(url.partition(",")[2]) for url in urls] == [png()]


def test_a_model_that_does_not_see_is_told_the_size(project: Project, server: Start) -> None:
    (project.root / "plot.png").write_bytes(png())
    project.write("nbagent.toml", "[models.scripted]\nvision = false\n")
    project.use(model := server([[call("read", {"filePath": "plot.png"})], [say("I cannot see it.")]]))
    assert project.run("build", "What is in the plot?").status == 0
    assert "image_url" not in json.dumps(model.requests[1])
    assert "image/png" in told(model.requests[1])


def test_skills_are_named_and_read_when_wanted(project: Project, server: Start) -> None:
    project.write(
        ".nbagent/skills/plots/SKILL.md", "---\nname: plots\ndescription: How we draw.\n---\nUse small multiples."
    )
    project.write(".claude/skills/sql/SKILL.md", "---\nname: sql\ndescription: How we query.\n---\nUpper case.")
    project.use(model := server([[call("skill", {"name": "plots"})], [say("Read.")]]))
    assert project.run("build", "Draw.").status == 0
    system = model.requests[0]["messages"][0]["content"]
    assert "- plots: How we draw." in system and "- sql: How we query." in system
    assert "small multiples" not in system
    assert "small multiples" in told(model.requests[1])


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("---\nname: plots\ndescription: >-\n  How we\n  draw.\n---", "- plots: How we draw."),
        ("---\nname: plots\ndescription: |\n  How we draw.\n---", "- plots: How we draw."),
        (
            "---\nname: 'plots'\ndescription: How we\n  draw: small.\nallowed-tools: [a, b]\n---",
            "- plots: How we draw: small.",
        ),
        ("---\r\nName: plots\r\nDescription: 'It''s how.'\r\n---\r", "- plots: It's how."),
        ("---\nname: plots\ndescription: never closed", "- folder"),
        ("No head at all.", "- folder"),
    ],
)
def test_skills_are_named_however_their_head_is_written(project: Project, server: Start, head: str, said: str) -> None:
    project.write(".nbagent/skills/folder/SKILL.md", f"{head}\nUse small multiples.")
    project.use(model := server([[say("Read.")]]))
    assert project.run("build", "Draw.").status == 0
    system = model.requests[0]["messages"][0]["content"]
    assert any(line.startswith(said) for line in system.splitlines()), system


def test_deferred_tools_are_found_and_then_offered(project: Project, server: Start) -> None:
    project.use(model := server([[call("tool_search", {"query": "fetch a web page"})], [say("Found.")]]))
    assert project.run("build", "Find a tool.").status == 0
    before, after = (tool_names(body) for body in model.requests)
    assert "webfetch" not in before
    assert "webfetch" in after
    assert after[: len(before)] == before, "what was offered does not move"


def test_quick_plans_start_no_subagents(project: Project, server: Start) -> None:
    project.use(model := server([write_plan(), EXIT] * 2))
    project.run("plan", "Plan it.")
    project.run("plan", "Plan it.", "--quick")
    whole, quick = told(model.requests[0]), told(model.requests[2])
    assert all(f"\n{number}. " in whole for number in range(1, 6)), "five phases"
    assert "explore" in whole and "question" in whole
    assert "small task" in quick and "five phases" not in quick


def test_phases_are_told_as_they_come(project: Project, server: Start) -> None:
    project.use(server([READ_MODEL, READ_MODEL, write_plan(), EXIT]))
    ran = project.run("plan", "Plan it.")
    assert [event["phase"] for event in ran.of("phase")] == ["understand", "review", "final", "exit"]


def test_each_agent_has_its_model(project: Project, server: Start) -> None:
    project.write(
        "nbagent.toml",
        '[agents.plan]\nmodel = "thinker"\neffort = "high"\n[agents.build]\nmodel = "doer"\ntemperature = 0.2\n',
    )
    project.use(model := server([write_plan(), EXIT, [say("Done.")], [say("Done.")]]))
    ran = project.run("plan", "Plan it.")
    assert ran.of("session")[0]["model"] == "thinker"
    project.run("build", "Do it.")
    project.run("build", "Do it.", "--model", "other")
    assert [body["model"] for body in model.requests] == ["thinker", "thinker", "doer", "other"]
    assert model.requests[0]["reasoning_effort"] == "high"
    assert model.requests[2]["temperature"] == 0.2
    assert "temperature" not in model.requests[0]


def test_only_a_small_model_is_asked_for_titles(project: Project, server: Start) -> None:
    project.use(model := server([[say("Hello.")]]))
    project.run("build", "Hello there")
    assert len(model.requests) == 1
    (row,) = json.loads(project.nbagent("sessions", "--json").out)
    assert row["title"] == "Hello there"


def test_prices_become_a_cost(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "[models.scripted]\nprice_input = 2.0\nprice_output = 10.0\n")
    project.use(server([[say("Hello."), usage(1000, 100)]]))
    ran = project.run("build", "Hello")
    assert ran.finish["cost"] == pytest.approx(0.003)
    assert ran.finish["tokens"]["input"] == 1000


def test_a_todo_list_shows_and_survives_a_compaction(project: Project, server: Start) -> None:
    todos = [{"content": "Write the tests first", "status": "in_progress", "priority": "high"}]
    script: list[Any] = [
        [call("todowrite", {"todos": todos})],
        [say("Working on it. " * 400)],
        [say("## Goal\nTests.")],
        [call("todoread", {})],
        [say("Done.")],
    ]
    person = Person()
    with at_work(project, server(script)) as desk:
        desk.cell("build", "Begin.", person)
        session = desk.runtime.session()
        desk.runtime.worker.call(session.compact(person), 20)
        desk.cell("build", "What is left?", person)
    assert any(type(event).__name__ == "TodoEvent" for event in person.events)
    assert "Write the tests first" in person.tools("todoread")[0].output


def test_models_are_listed(project: Project, server: Start) -> None:
    project.use(server([], models=["scripted", "other"]))
    assert json.loads(project.nbagent("models", "--json").out) == ["scripted", "other"]
    assert project.nbagent("models").out.split() == ["scripted", "other"]


def test_a_server_without_a_list_of_models_says_so(project: Project, server: Start) -> None:
    project.use(server([], routes={"/v1/models": (404, {})}))
    ran = project.nbagent("models")
    assert (ran.status, ran.out) == (0, "")
    assert "lists no models" in ran.err
