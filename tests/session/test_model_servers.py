"""What servers do that others do not, seen from a whole run: what is shown, what is executed, what is asked next."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from nbagent.errors import ProviderError
from tests.person import Person, at_work
from tests.project import Project
from tests.server import ScriptedServer, call, cut, fault, finish, frame, say, think
from tests.session.scripts import EXIT, READ_MODEL, told, write_plan

Start = Callable[..., ScriptedServer]


def piece(**call_: Any) -> Any:
    """One element of ``delta.tool_calls`` as a chunk of its own."""
    function = {key: call_.pop(key) for key in ("name", "arguments") if key in call_}
    return frame({"choices": [{"index": 0, "delta": {"tool_calls": [{**call_, "function": function}]}}]})


READ = '{"filePath": "README.md"}'


@pytest.mark.parametrize(
    "chunks",
    [
        [piece(id="a", name="read", arguments='{"filePath"'), piece(arguments=': "README.md"}')],
        [piece(index=0, id="a", name="read", arguments='{"filePath"'), piece(index=1, arguments=': "README.md"}')],
        [piece(index=0, id="a", name="read", arguments=json.dumps(READ))],
    ],
    ids=["no index", "unknown index", "json in a string"],
)
def test_calls_however_they_are_put(project: Project, server: Start, chunks: list[Any]) -> None:
    project.use(server([[*chunks, finish("tool_calls")], [say("Read.")]]))
    ran = project.run("build", "Read it.")
    assert "churn model" in ran.tool("read")["output"]


def test_two_calls_without_indexes(project: Project, server: Start) -> None:
    first = piece(id="a", name="read", arguments='{"filePath": "README')
    chunks = [first, piece(arguments='.md"}'), piece(id="b", name="list", arguments="{}")]
    project.use(server([[*chunks, finish("stop")], [say("Both.")]]))
    ran = project.run("build", "Read it.")
    assert {event["name"] for event in ran.of("tool", state="completed")} == {"read", "list"}


def test_arguments_that_end_too_soon_do_nothing_and_the_model_is_told(project: Project, server: Start) -> None:
    half = piece(index=0, id="a", name="write", arguments='{"filePath": "a.py", "content": "abc')
    project.use(model := server([[half, finish("tool_calls")], [say("Smaller then.")]]))
    ran = project.run("build", "Write it.")
    assert not (project.root / "a.py").exists()
    assert "smaller" in ran.tool("write")["error"]
    sent = [c for m in model.requests[1]["messages"] for c in m.get("tool_calls") or ()]
    assert [isinstance(json.loads(c["function"]["arguments"]), dict) for c in sent] == [True]


def test_text_is_an_answer_when_the_stream_says_that_it_is_done(project: Project, server: Start) -> None:
    project.use(model := server([[say("All of it."), finish(None)]]))
    ran = project.run("build", "Say it.")
    assert (ran.status, ran.finish["text"], len(model.requests)) == (0, "All of it.", 1)


def test_a_close_without_a_word_is_asked_again(project: Project, server: Start) -> None:
    project.use(model := server([[say("Half of"), cut()], [say("All of it.")]]))
    ran = project.run("build", "Say it.")
    assert (ran.status, ran.finish["text"]) == (0, "All of it.")
    assert len(ran.of("retry")) == 1 and ran.of("text", partial=True)[0]["text"] == "Half of"
    assert "Half of" not in told(model.requests[1])


def test_thoughts_are_in_no_answer_and_no_plan(project: Project, server: Start) -> None:
    def thinking(body: dict[str, Any]) -> Any:
        return [say("<thi"), say("nk>secret thought</th"), say("ink>I write."), *write_plan()(body)]

    project.use(server([thinking, EXIT]))
    ran = project.run("plan", "Plan it.")
    assert [event["text"] for event in ran.of("text")] == ["I write."]
    assert "secret thought" in ran.of("reasoning")[0]["text"]
    assert "secret" not in project.plans[0].read_text()


def test_a_closing_tag_alone_folds_what_came_before(project: Project, server: Start) -> None:
    project.use(server([[say("secret thought</think>Hello")]]))
    ran = project.run("build", "Hello")
    assert ran.finish["text"] == "Hello"


def test_a_tool_name_with_rubbish_on_it_is_answered_with_the_tools_there_are(project: Project, server: Start) -> None:
    project.use(model := server([[call("read</think>", {"filePath": "README.md"})], READ_MODEL, [say("Read.")]]))
    ran = project.run("build", "Read it.")
    answer = told(model.requests[1])
    assert "read" in answer and "grep" in answer
    assert ran.status == 0


def test_reasoning_goes_back_where_it_came_from(project: Project, server: Start) -> None:
    project.use(model := server([[think("I read first."), *READ_MODEL], [say("Read.")]]))
    project.run("build", "Read it.")
    (assistant,) = [m for m in model.requests[1]["messages"] if m["role"] == "assistant"]
    assert assistant["reasoning_content"] == "I read first."


def test_a_server_without_tools_is_one_request_and_a_cure(project: Project, server: Start) -> None:
    text = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    project.use(model := server([fault(400, {"error": {"message": text, "type": "BadRequestError"}})]))
    ran = project.run("build", "Read it.")
    assert ran.status == 1
    assert "--enable-auto-tool-choice" in ran.err
    assert len(model.requests) == 1
    assert "tool_choice" not in model.requests[0]


@pytest.mark.parametrize(
    ("status", "text", "says"),
    [
        (404, "The model `scripted` does not exist", "scripted"),
        (429, "You exceeded your current quota (insufficient_quota)", "quota"),
        (401, "Incorrect API key provided", "OPENAI_API_KEY"),
        (400, "API key expired. Please renew the API key.", "OPENAI_API_KEY"),
        (403, "Your API key has been revoked", "OPENAI_API_KEY"),
        (400, "Invalid API key format", "OPENAI_API_KEY"),
        (403, "Country not supported", "country"),
    ],
)
def test_what_cannot_get_better_is_asked_once(
    project: Project, server: Start, status: int, text: str, says: str
) -> None:
    code = "insufficient_quota" if "quota" in text else "error"
    project.use(model := server([fault(status, {"error": {"message": text, "code": code}})]))
    ran = project.run("build", "Hello")
    assert (ran.status, len(model.requests)) == (1, 1)
    (error,) = ran.of("error")
    assert says.lower() in error["message"].lower(), error
    assert ran.finish["reason"] == "error"
    assert "Traceback" not in ran.err


def test_after_a_stop_in_the_middle_of_a_text_the_last_word_is_a_persons(project: Project, server: Start) -> None:
    from nbagent.session.session import Prompt
    from tests.server import Gate, hold

    gate = Gate()
    model = server([[say("I begin to"), hold(gate)], [say("Hello.")]])
    person = Person()
    with at_work(project, model) as desk:
        task = desk.runtime.start(Prompt("Write a long text.", "build"), person)
        assert gate.reached.wait(20)
        task.stop()
        gate.open()
        with pytest.raises(CancelledError):
            task.done.result(10)
        desk.cell("build", "Hello?", person)
    assert model.requests[-1]["messages"][-1]["role"] == "user"


@pytest.mark.parametrize(
    "broken", [fault(503), [say("Half"), cut()], [frame("no json")]], ids=["503", "cut", "rubbish"]
)
def test_a_server_that_stays_broken_is_given_up_with_a_next_step(project: Project, server: Start, broken: Any) -> None:
    model = server([broken] * 5)
    person = Person()
    with at_work(project, model) as desk, pytest.raises(ProviderError, match=r"tried 5 times.*again later"):
        desk.cell("build", "go", person)
    assert len(model.requests) == 5


def test_in_a_terminal_an_error_is_said_once(project: Project, server: Start) -> None:
    project.use(server([fault(401, {"error": {"message": "Incorrect API key provided"}})]))
    ran = project.nbagent("run", "Hello")
    assert (ran.out + ran.err).count("does not accept the API key") == 1
    assert ran.err.startswith("nbagent: ") and len(ran.err.splitlines()) == 1
    assert ran.status == 1
