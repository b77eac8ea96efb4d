"""Asks, rejects, stops, caps, loops, retries: what happens while a run goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from nbagent.errors import PersonError, ProviderError, SessionError
from nbagent.event import CompactionEvent, RetryEvent, ToolEvent
from nbagent.permission.ask import Ask, Reply
from nbagent.session.session import Prompt
from tests.person import Desk, Person, always, at_work, limits, once, reject
from tests.project import CANARY_KEY, Project, tree
from tests.server import Gate, ScriptedServer, call, cut, fault, finish, frame, hold, say, think, usage
from tests.session.scripts import READ_MODEL, edit_model, told, tool_names

Start = Callable[..., ScriptedServer]
ASK_EDITS = '[permission]\nedit = "ask"\n'
ANY = Person


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    """Wait for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


# -- asks ----------------------------------------------------------------------------------------------------------------


def test_an_edit_is_asked_with_a_diff_and_done_once_allowed(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    model = server([READ_MODEL, edit_model(), [say("done")]])
    person = Person(asks=[once])
    with at_work(project, model) as desk:
        desk.cell("build", "fix it", person)
    (ask,) = person.asked
    assert ask.call.preview is not None
    assert "-    return tp / (tp + fp)" in ask.call.preview.text
    assert "+    return tp / (tp + fn)" in ask.call.preview.text
    assert ask.rule.layer == "project"
    assert "+ fn)" in project.read("src/model.py")


def test_once_is_one_call(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    writes = [[call("write", {"filePath": f"n{n}.txt", "content": "x"})] for n in range(3)]
    person = Person(asks=[once, once, once])
    with at_work(project, server([*writes, [say("done")]])) as desk:
        desk.cell("build", "write", person)
    assert len(person.asked) == 3


def test_always_holds_for_the_session_and_can_be_revoked(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    write = [call("write", {"filePath": "a.txt", "content": "x"})]
    again = [call("edit", {"filePath": "a.txt", "oldString": "x", "newString": "y"})]
    model = server([write, [say("one")], again, [say("two")]])
    with at_work(project, model) as desk:
        first = Person(asks=[always])
        desk.cell("build", "write", first)
        desk.cell("build", "edit", Person())
        assert project.read("a.txt") == "y"
        (kept,) = desk.runtime.store.approvals(desk.runtime.session_id)
        assert kept.permission == "edit"
        assert desk.runtime.store.revoke_approval(desk.runtime.session_id, kept.id)
        model.extend([call("edit", {"filePath": "a.txt", "oldString": "y", "newString": "z"})], [say("three")])
        person = Person(asks=[reject("no more")])
        desk.cell("build", "edit", person)
        assert len(person.asked) == 1


def test_always_and_save_writes_the_settings_with_their_comments(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "# ours\n[permission]\nedit = 'ask'  # careful\n")
    model = server([[call("write", {"filePath": "a.txt", "content": "x"})], [say("done")]])
    with at_work(project, model) as desk:
        desk.cell("build", "write", Person(asks=[lambda ask: Reply("always", save=True)]))
    text = project.read("nbagent.toml")
    assert "# ours" in text
    assert "a.txt" in text
    with at_work(
        project, server([[call("edit", {"filePath": "a.txt", "oldString": "x", "newString": "y"})], [say("ok")]])
    ) as desk:
        # another session: the rule is the project's now (the file was read in no session, so the edit itself is refused)
        assert desk.runtime.policy.why("build", "edit", "a.txt").action == "allow"
        assert desk.runtime.policy.why("build", "edit", "b.txt").action == "ask"
        desk.cell("build", "edit", Person())


def test_an_always_never_outranks_an_explicit_deny(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission.edit]\n"*" = "ask"\n"locked.txt" = "deny"\n')
    model = server(
        [
            [call("write", {"filePath": "a.txt", "content": "x"})],
            [call("write", {"filePath": "locked.txt", "content": "x"})],
            [say("ok")],
        ]
    )
    person = Person(asks=[lambda ask: Reply("always", remember=(("edit", "*"),))])
    with at_work(project, model) as desk:
        desk.cell("build", "write", person)
    assert person.tools("write")[1].rule["pattern"] == "locked.txt"  # type: ignore[index]
    assert not (project.root / "locked.txt").exists()


def test_reject_without_feedback_stops_and_runs_nothing_more_of_the_step(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    both = [call("write", {"filePath": "a.txt", "content": "x"}), call("write", {"filePath": "b.txt", "content": "x"})]
    model = server([both])
    with at_work(project, model) as desk:
        result = desk.cell("build", "write", Person(asks=[reject()]))
        assert result.reason == "rejected"
        assert not (project.root / "a.txt").exists()
        assert not (project.root / "b.txt").exists()
        model.extend([say("fine")])
        desk.cell("build", "go on", Person())  # the history is one that the strict server takes


def test_reject_with_feedback_goes_on_and_the_same_effect_stays_refused(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    model = server(
        [
            [call("write", {"filePath": "a.txt", "content": "x"})],
            [call("apply_patch", {"patchText": "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"})],
            [say("I leave it.")],
        ]
    )
    person = Person(asks=[reject("not this file")])
    with at_work(project, model) as desk:
        result = desk.cell("build", "write", person)
    assert result.reason == "stop"
    assert "not this file" in told(model.requests[1])
    assert len(person.asked) == 1
    assert not (project.root / "a.txt").exists()


# -- order and limits ----------------------------------------------------------------------------------------------------


def test_reads_of_one_step_run_side_by_side_and_writes_in_order(project: Project, server: Start) -> None:
    for number in range(200):
        project.write(f"many/{number}.txt", "line\n" * 500)
    reads = [call("grep", {"pattern": f"nothing of {name}"}) for name in "abc"]
    writes = [call("write", {"filePath": "out.txt", "content": str(n)}) for n in range(3)]
    person = Person()
    with at_work(project, server([reads, writes, [say("done")]])) as desk:
        desk.cell("build", "go", person)
    states = [(e.name, e.state) for e in person.events if isinstance(e, ToolEvent) and e.state != "pending"]
    assert states[:2] == [("grep", "running")] * 2
    assert [s for n, s in states if n == "write"] == ["running", "completed"] * 3
    assert project.read("out.txt") == "2"


def test_the_step_limit_ends_the_cell_with_a_last_word(project: Project, server: Start) -> None:
    for number in range(10):
        project.write(f"f{number}.txt", "x")
    steps = iter(range(100))

    def answer(body: dict[str, Any]) -> Any:
        if not body.get("tools"):
            return [say("Not done: the rest.")]
        return [call("read", {"filePath": f"f{next(steps)}.txt"})]

    model = server(answer)
    with at_work(project, model) as desk:
        result = desk.cell("build", "read all", Person(), options=limits(steps=5))
        assert (result.reason, len(model.requests)) == ("limit", 5)
        assert result.text == "Not done: the rest."


def test_a_loop_of_calls_is_asked_about_before_the_third(project: Project, server: Start) -> None:
    project.write("p.txt", "x")
    one = {"filePath": "p.txt", "limit": 5}
    other = {"limit": 5, "filePath": "p.txt"}
    model = server([[call("read", one)], [call("read", other)], [call("read", one)], [say("I stop.")]])
    person = Person(asks=[reject("stop looping")])
    with at_work(project, model) as desk:
        desk.cell("build", "go", person)
    (ask,) = person.asked
    assert ask.pending == (("doom_loop", "read"),)
    assert len(person.tools("read", "completed")) == 2


def test_a_block_of_calls_three_times_over_is_a_loop(project: Project, server: Start) -> None:
    project.write("a.txt", "x")
    project.write("b.txt", "x")
    block = [[call("read", {"filePath": "a.txt"})], [call("read", {"filePath": "b.txt"})]]
    person = Person(asks=[reject("enough")])
    with at_work(project, server([*block, *block, *block, [say("ok")]])) as desk:
        desk.cell("build", "go", person)
    assert len(person.tools("read", "completed")) == 5


# -- the server fails ----------------------------------------------------------------------------------------------------


def test_a_busy_server_is_tried_again_and_shown(project: Project, server: Start) -> None:
    model = server([fault(429, headers={"retry-after": "1"}), fault(503), [say("here")]])
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "go", person)
    assert result.text == "here"
    waits = [event.wait for event in person.events if isinstance(event, RetryEvent)]
    assert waits[0] == 1.0
    assert len(waits) == 2


def test_a_stream_that_dies_keeps_its_text_and_is_asked_again(project: Project, server: Start) -> None:
    model = server([[say("Half of an answer"), cut()], [say("The whole answer.")]])
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "go", person)
    assert result.text == "The whole answer."
    assert "Half of an answer" in person.texts()
    assert "Half of an answer" not in told(model.requests[1])


def test_what_is_not_retried_is_asked_once(project: Project, server: Start) -> None:
    model = server([fault(400, {"error": {"message": "Invalid value for 'messages'."}})])
    with at_work(project, model) as desk, pytest.raises(ProviderError):
        desk.cell("build", "go", Person())
    assert len(model.requests) == 1


def test_a_wait_of_an_hour_is_not_waited(project: Project, server: Start) -> None:
    model = server([fault(429, headers={"retry-after": "3600"})])
    with at_work(project, model) as desk, pytest.raises(ProviderError, match="wait"):
        desk.cell("build", "go", Person())


def test_arguments_that_were_cut_never_run(project: Project, server: Start) -> None:
    half = '{"filePath":"a.py","content":"abc'
    fragment = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write", "arguments": half}}
    broken = frame({"choices": [{"index": 0, "delta": {"tool_calls": [fragment]}, "finish_reason": None}]})
    model = server([[broken, finish("length")], [say("I write it in pieces.")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("build", "go", person)
    assert not (project.root / "a.py").exists()
    assert "cut" in person.tools("write")[0].error


def test_text_that_looks_like_a_call_is_never_run(project: Project, server: Start) -> None:
    text = '<tool_call>\n{"name": "write", "arguments": {"filePath": "a.py", "content": "x"}}\n</tool_call>'
    model = server([[say(text)], [say("In words: done.")]])
    with at_work(project, model) as desk:
        desk.cell("build", "go", Person())
    assert not (project.root / "a.py").exists()
    assert len(model.requests) == 2


def test_a_hidden_tool_called_by_name_is_refused_by_the_rule_that_hid_it(project: Project, server: Start) -> None:
    project.write("nbagent.toml", '[permission]\ngrep = "deny"\n')
    model = server([[call("grep", {"pattern": "x"})], [say("ok")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("build", "go", person)
    assert "grep" not in tool_names(model.requests[0])
    assert person.tools("grep")[0].rule == {"permission": "grep", "pattern": "*", "action": "deny", "layer": "project"}


def test_an_unknown_tool_and_wrong_arguments_are_answered(project: Project, server: Start) -> None:
    model = server([[call("reed", {"filePath": "x"})], [call("read", {"path": 3})], [say("ok")]])
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("build", "go", person)
    assert "read" in person.tools("reed")[0].error
    assert "filePath" in person.tools("read")[0].error


# -- stop ----------------------------------------------------------------------------------------------------------------


def stop_and_go_on(desk: Desk, person: Person, ready: Callable[[], Any], release: Gate | None = None) -> None:
    """Start a cell, stop it when ``ready``, and show that the next prompt's request is one that the strict server takes."""
    task = desk.runtime.start(Prompt("go", "build", options=limits(steps=50)), person)
    until(ready)
    began = time.monotonic()
    task.stop()
    with pytest.raises(CancelledError):
        task.done.result(5)
    assert time.monotonic() - began < 1.0
    if release is not None:
        release.open()
    desk.server.extend([say("I go on.")])
    assert desk.cell("build", "go on", Person()).text == "I go on."
    assert desk.runtime.store.mark(desk.runtime.session_id) is None


def test_stop_while_streaming(project: Project, server: Start) -> None:
    gate = Gate()
    model = server([[say("I begin"), hold(gate), say(" and never end")]])
    person = Person()
    with at_work(project, model) as desk:
        stop_and_go_on(desk, person, lambda: any("I begin" in getattr(e, "text", "") for e in person.events), gate)
        assert "I begin" in told(model.requests[1])


def test_stop_while_an_ask_is_open(project: Project, server: Start) -> None:
    project.write("nbagent.toml", ASK_EDITS)
    model = server([[call("write", {"filePath": "a.txt", "content": "x"})]])

    async def never(ask: Ask) -> Reply:
        await asyncio.sleep(60)
        return Reply("once")

    person = Person(asks=[never])
    with at_work(project, model) as desk:
        stop_and_go_on(desk, person, lambda: person.asked)
    assert person.asks()[-1].reply == "expired"
    assert not (project.root / "a.txt").exists()


def test_stop_during_a_retry_countdown(project: Project, server: Start) -> None:
    model = server([fault(429, headers={"retry-after": "300"})])
    person = Person()
    with at_work(project, model) as desk:
        desk.runtime.resources.patience = 1.0
        stop_and_go_on(desk, person, lambda: any(isinstance(e, RetryEvent) for e in person.events))


def test_one_session_is_run_by_one_at_a_time(project: Project, server: Start) -> None:
    gate = Gate()
    model = server([[say("I begin"), hold(gate), say(".")]])
    with at_work(project, model) as desk:
        first = desk.runtime.start(Prompt("go", "build", options=limits()), Person())
        until(lambda: model.requests)
        with pytest.raises(SessionError, match="running"):
            desk.cell("build", "me too", Person())
        gate.open()
        assert first.done.result(10) is not None


# -- making room ---------------------------------------------------------------------------------------------------------

SMALL = "[models.scripted]\nwindow = 9000\n"


def test_a_session_that_grows_too_long_is_summarised(project: Project, server: Start) -> None:
    project.write("nbagent.toml", SMALL)
    for number in range(8):
        project.write(f"big{number}.txt", f"line of text number {number}\n" * 300)

    def answer(body: dict[str, Any]) -> Any:
        text = told(body)
        if "Write the notes now" in text:
            return [say("## Goal\nRead all files.\n## Next steps\nGo on.")]
        number = sum(f"line of text number {n}" in text for n in range(8))
        done = answer.count = getattr(answer, "count", 0) + 1  # type: ignore[attr-defined]
        return (
            [call("read", {"filePath": f"big{done % 8}.txt", "limit": 290 + number})]
            if done < 8
            else [say("All read.")]
        )

    model = server(answer)
    person = Person()
    with at_work(project, model) as desk:
        result = desk.cell("build", "read all files", person, seconds=60)
    assert result.text == "All read."
    done = [e for e in person.events if isinstance(e, CompactionEvent) and e.status == "completed"]
    assert done
    after = next(body for body in model.requests if "## Goal" in told(body) and "Write the notes now" not in told(body))
    assert "Read all files." in told(after)
    assert "read all files" in told(after)


def test_an_overflow_is_summarised_once_and_asked_again(project: Project, server: Start) -> None:
    overflow = fault(
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens.",
                "code": "context_length_exceeded",
            }
        },
    )
    model = server([READ_MODEL, [say("Read.")], overflow, [say("## Goal\nnotes")], [say("Here.")]])
    with at_work(project, model) as desk:
        desk.cell("build", "read it", Person())
        result = desk.cell("build", "and now?", Person())
    assert result.text == "Here."
    assert "notes" in told(model.requests[-1])
    assert "and now?" in told(model.requests[-1])


def test_an_overflow_that_stays_is_a_clear_error(project: Project, server: Start) -> None:
    overflow = fault(
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens.",
                "code": "context_length_exceeded",
            }
        },
    )
    model = server([READ_MODEL, [say("Read.")], overflow, [say("## Goal\nnotes")], overflow])
    with at_work(project, model) as desk:
        desk.cell("build", "read it", Person())
        with pytest.raises(ProviderError, match=r"larger than the window.*new conversation"):
            desk.cell("build", "and now?", Person())


# -- secrets -------------------------------------------------------------------------------------------------------------


def test_a_key_is_in_no_request_store_or_event(project: Project, server: Start) -> None:
    project.write("notes.txt", f"the key is {CANARY_KEY}\n")
    model = server(
        [[call("read", {"filePath": "notes.txt"})], [say(f"It says {CANARY_KEY[:12]}"), say(CANARY_KEY[12:])]]
    )
    person = Person()
    with at_work(project, model) as desk:
        desk.cell("build", f"what is {CANARY_KEY}?", person)
        store = desk.runtime.store.path
    assert all(CANARY_KEY not in told(body) for body in model.requests)
    assert CANARY_KEY not in "".join(map(repr, person.events))
    for file in store.parent.glob("sessions.db*"):
        assert CANARY_KEY.encode() not in file.read_bytes()


def test_undo_and_redo(project: Project, server: Start) -> None:
    project.write("gone.txt", "old\n")
    patch = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** Delete File: gone.txt\n*** End Patch"
    model = server([READ_MODEL, edit_model(), [call("apply_patch", {"patchText": patch})], [say("done")]])
    before = {k: v for k, v in tree(project.root).items() if "link" not in v}
    with at_work(project, model) as desk:
        desk.cell("build", "fix", Person())
        changed = project.read("src/model.py")
        desk.runtime.undo()
        assert "fp)" in project.read("src/model.py")
        assert (project.root / "gone.txt").exists()
        assert not (project.root / "new.txt").exists()
        with pytest.raises(PersonError, match="undo any more"):
            desk.runtime.undo()
        desk.runtime.redo()
        assert project.read("src/model.py") == changed
        project.write("src/model.py", "mine\n")
        told_kept = desk.runtime.undo().kept
        assert project.read("src/model.py") == "mine\n"
        assert [path for path, _ in told_kept] == ["src/model.py"]
    assert before


def test_usage_and_prices_add_up(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "[models.scripted]\nprice_input = 2.0\nprice_output = 10.0\n")
    model = server([[think("hm"), *READ_MODEL, usage(1000, 100)], [say("done"), usage(2000, 50)]])
    with at_work(project, model) as desk:
        result = desk.cell("build", "go", Person())
    assert (result.tokens.input, result.tokens.output) == (3000, 150)
    assert result.cost == pytest.approx((3000 * 2 + 150 * 10) / 1e6)


def test_threads_end_with_the_runtime(project: Project, server: Start) -> None:
    with at_work(project, server([[say("hi")]])) as desk:
        desk.cell("build", "go", Person())
    until(lambda: not [t for t in threading.enumerate() if t.name == "nbagent"])


# -- what tools bring along ----------------------------------------------------------------------------------------------


def test_half_a_character_in_a_tools_output_ends_nothing(project: Project, server: Start) -> None:
    project.write("d.jsonl", '{"a\\ud800b": 1}\n' * 5000)
    model = server([[call("read", {"filePath": "d.jsonl"})], [say("done")]])
    with at_work(project, model) as desk:
        desk.cell("build", "look", Person())
    assert "a\ufffdb: integer" in told(model.requests[-1])


def test_a_fault_in_declaring_a_call_is_the_models_to_read(
    project: Project, server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("nbagent.tools.list.List.declare", broken)
    model = server([[call("list", {}), call("read", {"filePath": "README.md"})], [say("done")]])
    with at_work(project, model) as desk:
        desk.cell("build", "look", Person())
    said = told(model.requests[-1])
    assert "list failed in a way that was not foreseen (OSError: [Errno 5] Input/output error)." in said
    assert "A churn model." in said


def test_bytes_of_a_terminal_that_are_no_text_end_nothing(project: Project, server: Start) -> None:
    model = server([[say("done")]])
    with at_work(project, model) as desk:
        assert desk.cell("build", "caf\udce9, please", Person()).text == "done"
    assert "caf\ufffd, please" in told(model.requests[0])


def test_thoughts_alone_are_no_answer(project: Project, server: Start) -> None:
    model = server([[think("hm")], [say("So.")], *[[think("hm")]] * 3])
    with at_work(project, model) as desk:
        person = Person()
        assert desk.cell("build", "go", person).text == "So."
        assert "neither an answer nor a tool call" in told(model.requests[1])
        assert any("neither answered nor did anything" in str(event) for event in person.events)
        with pytest.raises(ProviderError, match="gave no answer"):
            desk.cell("build", "again", Person())
    assert len(model.requests) == 5
