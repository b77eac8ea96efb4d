"""Compaction and pruning in whole runs: nothing but the length of the requests changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbagent.event import CompactionEvent, RetryEvent, SessionEvent
from nbagent.message import CompactionPart, ToolPart
from nbagent.session.compaction import PRUNED
from nbagent.session.run import Options
from tests.person import Person, always, at_work, verdict
from tests.project import Project
from tests.server import ScriptedServer, call, say, usage
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, plan_path, told, tool_names, write_plan

Start = Callable[..., ScriptedServer]
WINDOW = "[models.scripted]\nwindow = 100000\n"
FULL = usage(90_000, 10)
SUMMARY = "Write the notes now"
FIXED = "def recall(tp, fp, fn):\n    return tp / (tp + fn)\n"


class Steps:
    """Answers one after another; after those whose number is in ``full`` the server says that the window is nearly full."""

    def __init__(self, steps: list[Any], full: frozenset[int]) -> None:
        self._steps = steps
        self._full = full
        self.bodies: list[dict[str, Any]] = []
        self.summaries: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Any:
        if SUMMARY in told(body):
            self.summaries.append(told(body))
            return [say(f"## Goal\nFix recall.\n## Next steps\nGo on as planned ({len(self.summaries)}).")]
        number = len(self.bodies)
        self.bodies.append(body)
        step = self._steps[number]
        answer = step(body) if callable(step) else step
        return [*answer, FULL] if number in self._full else list(answer)


def modes(bodies: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(told(body).count("You are in PLAN mode"), told(body).count("You are in BUILD mode")) for body in bodies]


def script() -> list[Any]:
    return [
        READ_MODEL,
        [call("todowrite", {"todos": [{"content": "fix it", "status": "in_progress", "priority": "high"}]})],
        write_plan(),
        EXIT,
        READ_MODEL,
        edit_model(),
        [call("todoread", {})],
        [say("Fixed.")],
    ]


def played(project: Project, server: Start, full: frozenset[int]) -> tuple[Steps, Person, Any, Any]:
    project.write("nbagent.toml", WINDOW)
    model = Steps(script(), full)
    person = Person(reviews=[verdict("build", comment="yes")])
    with at_work(project, server(model)) as desk:
        result = desk.cell("plan", "Fix recall, please.", person, seconds=60)
        state = desk.runtime.store.session(desk.runtime.session_id).state
    return model, person, result, state


@pytest.fixture
def plain(tmp_path: Path, server: Start) -> tuple[Steps, Person, Any, Any]:
    project = Project(tmp_path / "plain")
    project.write("src/model.py", "def recall(tp, fp, fn):\n    return tp / (tp + fp)\n")
    return played(project, server, frozenset())


@pytest.mark.parametrize("full", [*(frozenset([n]) for n in range(7)), frozenset(range(7)), frozenset([1, 4, 5])])
def test_compacted_at_any_step_the_same_work_is_done(
    project: Project, server: Start, plain: tuple[Steps, Person, Any, Any], full: frozenset[int]
) -> None:
    model, person, result, state = played(project, server, full)
    same, _, _, other = plain
    assert len(model.summaries) == len(full)
    assert [tool_names(body) for body in model.bodies] == [tool_names(body) for body in same.bodies]
    assert modes(model.bodies) == [(1, 0)] * 4 + [(0, 1)] * 4 == modes(same.bodies)
    assert result.text == "Fixed." and project.read("src/model.py") == FIXED
    (plan,) = project.plans
    assert plan.read_text() == PLAN
    for body in model.bodies:
        assert f".nbagent/plans/{plan.name}" in told(body)
        assert "Fix recall, please." in told(body)
    assert all(f".nbagent/plans/{plan.name}" in text for text in model.summaries)
    assert state["todos"] == other["todos"]
    assert "fix it" in person.tools("todoread")[0].output
    assert [e.agent for e in person.events if isinstance(e, SessionEvent)] == ["plan", "build"]
    done = [e for e in person.events if isinstance(e, CompactionEvent) and e.status == "completed"]
    assert len(done) == len(full) and all("Fix recall." in event.summary for event in done)


def test_after_a_compaction_the_approved_plan_is_there_word_for_word(project: Project, server: Start) -> None:
    model, _, _, _ = played(project, server, frozenset([4]))
    assert PLAN.strip() in told(model.bodies[5])
    assert "(built)" in model.summaries[0]


def test_only_the_plan_of_the_cell_is_told(project: Project, server: Start) -> None:
    project.write("nbagent.toml", WINDOW)
    one, other = "# First\n\nZebra.\n\n## Verification\nx\n", "# Second\n\nOkapi.\n\n## Verification\nx\n"
    filler = [say("word " * 16_000)]
    steps = [
        write_plan(one),
        EXIT,
        [say("Built the first.")],
        filler,
        write_plan(other),
        [say("ready")],
        [say("more")],
    ]
    model = Steps(steps, frozenset([5]))
    with at_work(project, server(model)) as desk:
        desk.cell("plan", "First thing.", Person(reviews=[verdict("build")]))
        desk.cell("build", "Tell a long story.", Person())
        desk.cell("plan", "Second thing.", Person())
        desk.cell("plan", "Second thing again.", Person(), plan=str(project.plans[-1]))
    after = told(model.bodies[-1])
    assert "Okapi." in after and "Zebra." not in after
    assert after.count("You are in PLAN mode") == 1
    assert after.count(project.plans[-1].name) >= 1


def test_a_session_that_has_left_its_plan_prompt_behind_still_has_one_notice(project: Project, server: Start) -> None:
    """The notice went with the first prompt; when that is summarised away it is with the summary, and stays there."""
    project.write("nbagent.toml", WINDOW)
    long = [say("word " * 16_000)]
    model = Steps([long, [say("two"), FULL], [say("three")], [say("four")]], frozenset())
    with at_work(project, server(model)) as desk:
        for prompt in ("one", "two", "three", "four"):
            desk.cell("plan", prompt, Person(), cell="nb#1", plan="docs/p.md")
    assert modes(model.bodies) == [(1, 0)] * 4
    assert len(model.summaries) == 1
    first = told({"messages": model.bodies[2]["messages"][1:2]})
    assert "<summary>" in first and "You are in PLAN mode" in first and "docs/p.md" in first


def test_compacted_by_hand_and_gone_on_with(project: Project, server: Start) -> None:
    project.write("nbagent.toml", "[compaction]\nauto = false\n")
    model = Steps([READ_MODEL, [say("Read.")], [say("Here.")]], frozenset())
    with at_work(project, server(model)) as desk:
        desk.cell("build", "read it", Person())
        person = Person()
        assert desk.runtime.compact(person).done.result(20) is not None
        assert desk.runtime.store.session(desk.runtime.session_id).status == "idle"
        desk.cell("build", "and now?", Person())
    assert "Fix recall." in told(model.bodies[2])
    assert len(model.summaries) == 1


def test_with_automatic_compaction_off_neither_happens(project: Project, server: Start) -> None:
    from nbagent.errors import ContextOverflow
    from tests.server import fault

    project.write("nbagent.toml", WINDOW + "[compaction]\nauto = false\n")
    overflow = {"error": {"message": "maximum context length is 100000 tokens.", "code": "context_length_exceeded"}}
    model = server([[*READ_MODEL, FULL], [say("Read."), FULL], fault(400, overflow)])
    with at_work(project, model) as desk:
        desk.cell("build", "read it", Person())
        with pytest.raises(ContextOverflow):
            desk.cell("build", "and now?", Person())
    assert len(model.requests) == 3


def test_a_summary_that_is_refused_as_too_large_is_asked_for_smaller(project: Project, server: Start) -> None:
    from tests.server import fault

    project.write("nbagent.toml", WINDOW)
    overflow = {"error": {"message": "maximum context length is 100000 tokens.", "code": "context_length_exceeded"}}
    sizes: list[int] = []
    steps = iter([[say("word " * 30_000), FULL], [say("Done.")]])

    def answer(body: dict[str, Any]) -> Any:
        if SUMMARY not in told(body):
            return next(steps)
        sizes.append(len(told(body)))
        return fault(400, overflow) if len(sizes) < 3 else [say("## Goal\nShort.")]

    with at_work(project, server(answer)) as desk:
        desk.cell("build", "tell a story", Person())
        assert desk.cell("build", "and now?", Person()).text == "Done."
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3


def test_an_unknown_window_that_is_small_is_met_at_the_first_try(project: Project, server: Start) -> None:
    """The server counts otherwise than nbagent does, and its window is known only by its refusals."""
    from tests.server import fault

    def answer(body: dict[str, Any]) -> Any:
        size = len(str(body["messages"])) // 2
        if size > 37_500:
            said = f"maximum context length is 37500 tokens. However, your messages resulted in {size} tokens."
            return fault(400, {"error": {"message": said, "code": "context_length_exceeded"}})
        if SUMMARY in told(body):
            summaries.append(size)
            return [say(f"## Goal\nStories, {len(summaries)} times.")]
        return [say("word " * (3_620 if told(body).count("story") > 1 else 400))]

    summaries: list[int] = []
    with at_work(project, server(answer)) as desk:
        for number in range(12):
            assert desk.cell("build", f"story {number}", Person()).reason == "stop"
    assert len(summaries) > 1


def test_a_window_that_holds_not_even_the_tools_is_said(project: Project, server: Start) -> None:
    from nbagent.errors import ContextOverflow
    from tests.server import fault

    said = "maximum context length is 4096 tokens."
    model = server(lambda body: fault(400, {"error": {"message": said, "code": "context_length_exceeded"}}))
    with at_work(project, model) as desk:
        for _ in range(2):
            with pytest.raises(ContextOverflow, match=r"instructions and tools take about \d,\d+ tokens.*num_ctx"):
                desk.cell("build", "hello", Person())
    assert len(model.requests) < 30


def test_a_summary_that_cannot_shrink_is_not_asked_for_again(project: Project, server: Start) -> None:
    from nbagent.errors import ContextOverflow
    from tests.server import fault

    said = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    model = server(lambda body: fault(400, said))
    with at_work(project, model) as desk, pytest.raises(ContextOverflow):
        desk.cell("build", "hello", Person())
    asked = [told(body) for body in model.requests]
    assert len(asked) == len(set(asked)) == 2


def test_the_advice_fits_the_window_that_is_known(project: Project, server: Start) -> None:
    from nbagent.errors import ContextOverflow
    from tests.server import fault

    project.write("nbagent.toml", WINDOW)
    for said in ("maximum context length is 100000 tokens.", "too long"):
        model = server(
            lambda body, said=said: fault(400, {"error": {"message": said, "code": "context_length_exceeded"}})
        )
        with at_work(project, model) as desk, pytest.raises(ContextOverflow, match="Begin a new conversation"):
            desk.cell("build", "hello", Person())


@pytest.mark.parametrize("overflows", [False, True])
def test_a_summary_is_tried_again_as_any_request(project: Project, server: Start, overflows: bool) -> None:
    """Busy once, cut off once, then well: before a step, and after the server said that the context overflowed."""
    from tests.server import fault

    project.write("nbagent.toml", WINDOW)
    too_long = fault(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
    steps = iter(
        [
            [say("A tale. " * 400), usage(900, 10) if overflows else FULL],
            *([too_long] if overflows else []),
            [say("Done.")],
        ]
    )
    bad = iter([fault(429, {"error": {"message": "slow"}}, {"retry-after-ms": "10"}), fault(503, "busy")])
    person = Person()

    def answer(body: dict[str, Any]) -> Any:
        return next(steps) if SUMMARY not in told(body) else next(bad, [say("## Goal\nShort.")])

    with at_work(project, server(answer)) as desk:
        desk.cell("build", "tell a story", person)
        assert desk.cell("build", "and now?", person).text == "Done."
    assert [event.attempt for event in person.events if isinstance(event, RetryEvent)] == [1, 2]
    assert [event.status for event in person.events if isinstance(event, CompactionEvent)] == ["running", "completed"]


def test_pruning_changes_requests_only(project: Project, server: Start) -> None:
    """Old outputs leave the request; what is stored keeps them, and a mark."""
    project.write("nbagent.toml", WINDOW)
    for number in range(8):
        project.write(f"big{number}.txt", "".join(f"{number} line {line} of the file\n" for line in range(1500)))
    reads: list[Any] = [[call("read", {"filePath": f"big{number}.txt"}), usage(5000, 10)] for number in range(7)]
    reads.append([call("read", {"filePath": "big7.txt"}), usage(90_000, 10)])
    model = Steps([*reads, [say("All read."), usage(40_000, 10)], [say("yes"), usage(40_000, 10)]], frozenset())
    with at_work(project, server(model)) as desk:
        desk.cell("build", "read all", Person(), seconds=60)
        desk.cell("build", "really?", Person())
        messages = desk.runtime.messages()
    assert model.summaries == []
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolPart)]
    pruned = [part for part in parts if part.compacted is not None]
    assert 0 < len(pruned) < len(parts)
    assert all("line 0 of the file" in part.output for part in parts)
    assert told(model.bodies[8]).count(PRUNED) == len(pruned) == told(model.bodies[9]).count(PRUNED)
    assert PRUNED not in told(model.bodies[7])


MOVES = st.lists(st.sampled_from(["read", "write", "plan", "say", "refused"]), min_size=1, max_size=5)


CELLS = st.lists(st.tuples(st.sampled_from(["plan", "build"]), MOVES), min_size=1, max_size=4)
WHEN_FULL = st.lists(st.booleans(), min_size=30, max_size=30)
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.timeout(300)
@settings(max_examples=5, deadline=None, suppress_health_check=QUIET)
@given(cells=CELLS, full=WHEN_FULL)
def test_what_holds_of_every_run(tmp_path_factory: Any, cells: Any, full: list[bool]) -> None:
    """Any cells, compacted anywhere: one notice of the mode, one set of tools a mode, calls and results in pairs, plans kept."""
    holds(tmp_path_factory.mktemp("any"), cells, full)


@pytest.mark.fuzz
@settings(max_examples=150, deadline=None, suppress_health_check=QUIET)
@given(cells=CELLS, full=WHEN_FULL)
def test_what_holds_of_very_many_runs(tmp_path_factory: Any, cells: Any, full: list[bool]) -> None:
    holds(tmp_path_factory.mktemp("any"), cells, full)


def holds(folder: Path, cells: Any, full: list[bool]) -> None:
    from tests import prefix

    project = Project(folder)
    project.write("a.txt", "text\n")
    project.write("nbagent.toml", WINDOW)
    written: list[str] = []

    def move(name: str, body: dict[str, Any]) -> Any:
        if name == "read":
            return [call("read", {"filePath": "a.txt", "limit": len(body["messages"])})]
        if name == "write":
            return [call("write", {"filePath": f"new{len(body['messages'])}.txt", "content": "x"})]
        if name == "plan" and ".nbagent/plans/" in told(body) and "plan_exit" in tool_names(body):
            written.append(plan_path(body))
            return [call("write", {"filePath": written[-1], "content": PLAN})]
        if name == "refused":
            return [call("python", {"code": f"print({len(body['messages'])})", "description": "no"})]
        return [say("Then.")]

    steps = iter([name for _, moves in cells for name in [*moves, "end"]])
    fullness = iter(full)
    notes = iter(range(1000))

    def answer(body: dict[str, Any]) -> Any:
        if SUMMARY in told(body):
            return [say(f"## Goal\nGo on ({next(notes)}).")]
        name = next(steps, "end")
        said = [say("The end.")] if name in ("end", "say") else move(name, body)
        return [*said, FULL] if next(fullness, False) else said

    modes_of: dict[str, set[str]] = {}
    with ScriptedServer(answer) as model, at_work(project, model) as desk:
        for agent, _ in cells:
            before = len(model.requests)
            desk.cell(agent, "Go.", Person(asks=[always] * 9), seconds=60, options=Options())
            for body in model.requests[before:]:
                if SUMMARY in told(body):
                    continue
                modes_of.setdefault(agent, set()).add(",".join(tool_names(body)))
                assert told(body).count("You are in PLAN mode") == (agent == "plan")
        messages = desk.runtime.messages()
        assert model.violations == [] and model.problems == []
        assert prefix.broken(model.requests) == []
    assert all(len(sets) == 1 for sets in modes_of.values())
    for part in (part for message in messages for part in message.parts):
        assert not isinstance(part, ToolPart) or part.status in ("completed", "error")
        assert not isinstance(part, CompactionPart) or part.status == "completed"
    for path in written:
        assert re.search(r"\.nbagent/plans/[^/]+\.md$", path) and (project.root / path).exists()
