"""The player: which answer is given to which request, what does not fit, and what the person is made to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import CassetteError, ContextOverflow, ProviderError, StreamDropped
from nbagent.event import AskEvent, ToolEvent
from nbagent.frontend import Form, Nobody, Question, Review, Verdict
from nbagent.permission.ask import Ask, Call, Reply
from nbagent.permission.ruleset import Rule
from nbagent.provider.cassette_file import load
from nbagent.provider.person import CassetteFrontend
from nbagent.provider.player import CassettePlayer
from nbagent.provider.provider import (
    AssistantTurn,
    Called,
    CallTurn,
    Delta,
    Ended,
    Request,
    ResultTurn,
    Say,
    Text,
    ToolSpec,
    UserTurn,
)
from tests.person import Person

HEAD = "cassette: written by hand\n\n"


def user(text: str) -> UserTurn:
    return UserTurn((Text(text),))


def request(*turns: Any, agent: str = "plan", session: str = "s1", tools: tuple[str, ...] = ("read",)) -> Request:
    specs = tuple(ToolSpec(name, "", {}) for name in tools)
    return Request(model="m", system="", turns=turns, tools=specs, agent=agent, session_id=session)


def after(ask: Request, deltas: list[Delta], *results: tuple[str, bool], agent: str = "") -> Request:
    """The request that follows ``ask`` when its calls had these results."""
    calls = [d for d in deltas if isinstance(d, Called)]
    said = "".join(d.text for d in deltas if isinstance(d, Say))
    answer = AssistantTurn(said, (), tuple(CallTurn(c.id, c.name, c.arguments) for c in calls))
    turns = [ResultTurn(c.id, c.name, (Text(t),), e) for c, (t, e) in zip(calls, results, strict=True)]
    names = tuple(t.name for t in ask.tools)
    return request(*ask.turns, answer, *turns, agent=agent or ask.agent, session=ask.session_id, tools=names)


async def answer(player: CassettePlayer, ask: Request) -> list[Delta]:
    return [delta async for delta in player.stream(ask)]


def words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, Say))


async def test_plays_in_order_and_fills_in_paths() -> None:
    player = CassettePlayer(
        HEAD
        + 'plan\n  say: one\n  call: write {"filePath": "{plan}", "content": "at {root} \\\\{root} {x}"}\n  ---\n  say: two\n',
        root="/w/proj",
        plan=".nbagent/plans/1-x.md",
    )
    first = request(user("go"))
    deltas = await answer(player, first)
    assert words(deltas) == "one"
    assert deltas[-1] == Ended("tool-calls")
    call = next(d for d in deltas if isinstance(d, Called))
    assert call.arguments == {"filePath": ".nbagent/plans/1-x.md", "content": "at /w/proj {root} {x}"}
    assert words(await answer(player, after(first, deltas, ("ok", False)))) == "two"
    assert player.unused() == ()
    assert len(player.used()) == 2


async def test_the_plan_file_is_taken_from_the_prompt_when_nobody_hands_it_in() -> None:
    player = CassettePlayer(HEAD + "plan\n  say: {plan}\n")
    ask = request(user("go\n\nWrite the plan to `.nbagent/plans/17-go.md`, nowhere else."))
    assert words(await answer(player, ask)) == ".nbagent/plans/17-go.md"


async def test_a_long_text_streams_in_pieces_and_comes_out_whole() -> None:
    text = "word " * 200
    player = CassettePlayer(HEAD + f"plan\n  say:\n    {text.strip()}\n    next line\n")
    deltas = await answer(player, request(user("go")))
    assert len(deltas) > 10
    assert words(deltas) == text.strip() + "\nnext line"


async def test_another_agent_is_an_error_that_names_both() -> None:
    player = CassettePlayer(HEAD + "plan\n  say: x\n")
    with pytest.raises(CassetteError, match=r"the agent 'build' asks, but the next answer \(line 3\) is for 'plan'"):
        await answer(player, request(user("go"), agent="build"))


async def test_one_more_request_than_answers_is_an_error() -> None:
    player = CassettePlayer(HEAD + 'plan\n  call: read {"filePath": "a"}\n')
    first = request(user("go"))
    deltas = await answer(player, first)
    with pytest.raises(CassetteError, match="one more answer"):
        await answer(player, after(first, deltas, ("ok", False)))


async def test_sections_by_prompt_play_again_when_their_cell_runs_again() -> None:
    text = HEAD + "plan\n  prompt: Find * bug\n  say: found\n\nplan\n  prompt: Explain\n  call: read\n"
    player = CassettePlayer(text)
    first = request(user("Explain it to me"))
    deltas = await answer(player, first)
    assert [d.id for d in deltas if isinstance(d, Called)] == ["call_9"]
    more = after(first, deltas, ("ok", False))
    second = request(*more.turns, AssistantTurn("done"), user("Find the\nbug please"))
    assert words(await answer(player, second)) == "found"
    third = request(*second.turns, AssistantTurn("found"), user("Explain it to me"))
    again = await answer(player, third)
    assert [d.id for d in again if isinstance(d, Called)] == ["call_9_2"]
    with pytest.raises(CassetteError, match="all were played"):
        await answer(player, request(*third.turns, AssistantTurn("x"), user("Something else")))


async def test_a_cell_that_is_run_again_plays_again_with_all_that_follows() -> None:
    text = HEAD + "plan\n  call: plan_exit\n  person: approve and build\n\nbuild\n  say: built\n"
    player = CassettePlayer(text)
    frontend = CassetteFrontend(Nobody(), player, answers=True)
    turns: tuple[Any, ...] = (user("go"),)
    for run in range(3):
        plan = request(*turns)
        deltas = await answer(player, plan)
        assert (await frontend.review(Review("r", "s1", "p.md", "x", "h"))).action == "build"
        build = after(plan, deltas, ("approved", False), agent="build")
        assert words(await answer(player, build)) == "built", run
        turns = (*build.turns, AssistantTurn("built"), user("go"))
    with pytest.raises(CassetteError, match="all were played"):
        await answer(player, request(*turns[:-1], user("another prompt")))


async def test_a_cell_that_broke_off_begins_again_and_the_same_prompt_twice_takes_the_next_section() -> None:
    player = CassettePlayer(HEAD + "plan\n  say: one\n  call: read\n  ---\n  say: end of one\n\nplan\n  say: two\n")
    first = request(user("go"))
    assert words(await answer(player, first)) == "one"
    again = request(user("go"), AssistantTurn("broke off"), user("go"))
    deltas = await answer(player, again)
    assert words(deltas) == "one"
    following = after(again, deltas, ("ok", False))
    assert words(await answer(player, following)) == "end of one"
    assert words(await answer(player, request(*following.turns, AssistantTurn("end of one"), user("go")))) == "two"


async def test_side_by_side_conversations_are_told_apart() -> None:
    text = (
        HEAD
        + "explore\n  prompt: look at data\n  call: list\n  ---\n  say: data done\n"
        + "explore\n  prompt: look at code\n  call: glob\n  ---\n  say: code done\n"
    )
    player = CassettePlayer(text)
    code = request(user("look at code"), agent="explore", session="c")
    data = request(user("look at data"), agent="explore", session="d")
    code_calls, data_calls = await answer(player, code), await answer(player, data)
    assert words(await answer(player, after(code, code_calls, ("x", False)))) == "code done"
    assert words(await answer(player, after(data, data_calls, ("x", False)))) == "data done"


async def test_a_title_needs_no_answer_on_the_cassette() -> None:
    player = CassettePlayer(HEAD + "plan\n  say: x\n")
    assert words(await answer(player, request(user("Find the bug"), agent="title"))) == "Find the bug"
    assert words(await answer(player, request(user("Find the bug")))) == "x"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("429 slow down", ProviderError),
        ("dropped", StreamDropped),
        ("overflow", ContextOverflow),
        ("401 no", ProviderError),
    ],
)
async def test_errors_are_those_of_a_server(line: str, kind: type[ProviderError]) -> None:
    player = CassettePlayer(HEAD + f"plan\n  say: part\n  error: {line}\n  ---\n  say: again\n")
    with pytest.raises(kind) as caught:
        await answer(player, request(user("go")))
    assert caught.value.retryable == (line[:3] == "429" or line == "dropped")
    assert words(await answer(player, request(user("go")))) == "again"


REFUSED = HEAD + 'plan\n  call: write {"filePath": "a.py", "content": "x"}\n  expect: {}\n  ---\n  say: ok\n'


@pytest.mark.parametrize(
    ("expect", "result", "error", "fits"),
    [
        ("refused by edit *", 'edit of a.py was refused by the rule edit "*" deny (floor)', True, True),
        ("refused by edit *", "refused: edit: * → deny", True, True),
        ("refused by edit *", "wrote a.py", False, False),
        ("refused by edit *.py", 'refused by the rule edit "*" deny', True, False),
        ("refused by bash *", 'refused by the rule edit "*" deny', True, False),
        ("refused", "denied: a plan cell may only write the plan", True, True),
        ("refused", "no such file", True, False),
        ("completed", "wrote a.py", False, True),
        ("completed", "no such file", True, False),
        ("error contains no such", "no such file", True, True),
        ("error contains no such", "no such file", False, False),
        ("output contains a.py", "wrote a.py", False, True),
        ("output contains b.py", "wrote a.py", False, False),
        ("refused by the person", "The person rejected this call: no", True, True),
        ("asked", "wrote", False, False),
    ],
)
async def test_expectations_are_checked_when_the_result_arrives(
    expect: str, result: str, error: bool, fits: bool
) -> None:
    player = CassettePlayer(REFUSED.replace("{}", expect))
    first = request(user("go"))
    following = after(first, await answer(player, first), (result, error))
    if fits:
        assert words(await answer(player, following)) == "ok"
        assert player.unused() == ()
    else:
        with pytest.raises(CassetteError, match=r"line 5: expect: .*, but"):
            await answer(player, following)


async def test_events_tell_more_than_the_text() -> None:
    rule = {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"}
    player = CassettePlayer(REFUSED.replace("{}", "refused by edit *"))
    first = request(user("go"))
    deltas = await answer(player, first)
    player.observe(ToolEvent(call_id="call_4", name="write", state="error", input={}, error="no", rule=rule))
    assert words(await answer(player, after(first, deltas, ("no", True)))) == "ok"


async def test_expectations_of_the_last_answer_are_checked_by_events() -> None:
    player = CassettePlayer(HEAD + "plan\n  call: plan_exit\n  expect: asked\n")
    await answer(player, request(user("go")))
    assert player.unused() == ("line 5: expect: asked was never checked",)
    player.observe(AskEvent(id="a", permission="plan_exit", patterns=("*",), call_id="call_4", reply="once"))
    player.observe(ToolEvent(call_id="call_4", name="plan_exit", state="completed", input={}))
    assert player.unused() == ()


async def test_expectations_of_the_request() -> None:
    text = (
        HEAD
        + "plan\n  expect: tool write hidden\n  expect: tool read visible\n  expect: request contains go\n  say: x\n"
    )
    assert words(await answer(CassettePlayer(text), request(user("go")))) == "x"
    with pytest.raises(CassetteError, match="line 4: expect: tool write hidden, but it was offered"):
        await answer(CassettePlayer(text), request(user("go"), tools=("read", "write")))
    with pytest.raises(CassetteError, match="tool read visible, but it was not offered"):
        await answer(CassettePlayer(text), request(user("go"), tools=()))


async def test_lenient_plays_on_and_remembers() -> None:
    player = CassettePlayer(REFUSED.replace("{}", "completed"), lenient=True)
    first = request(user("go"))
    deltas = await answer(player, first)
    assert words(await answer(player, after(first, deltas, ("no such file", True)))) == "ok"
    assert len(player.stale) == 1
    player.rewind()
    assert player.stale == []
    assert words(await answer(player, first)) == ""


async def test_what_was_not_played_is_told() -> None:
    player = CassettePlayer(HEAD + "plan\n  call: plan_exit\n  person: approve and build\n\nbuild\n  say: x\n")
    assert len(player.unused()) == 3
    await answer(player, request(user("go")))
    assert player.unused() == (
        "line 7: this answer (build) was never asked for",
        "line 5: the person was never asked for this answer",
    )


def ask(call_id: str) -> Ask:
    return Ask(
        "ask_1", "s1", Call(call_id, "bash", "make", "command", ()), Rule("bash", "*", "ask"), (("bash", "make"),)
    )


PERSON = (
    HEAD
    + 'build\n  call: bash {"command": "a"}\n  person: once\n  call: bash {"command": "b"}\n  person: reject because no\n'
    + '  call: plan_exit\n  person: approve and build, saying well\n    change: "old" -> "new"\n'
    + "  call: question\n  person: answers A\n"
)


async def test_the_person_answers_by_call() -> None:
    player = CassettePlayer(PERSON)
    frontend = CassetteFrontend(Nobody(), player, answers=True)
    assert frontend.attended
    rejected = await frontend.ask(ask("call_6"))
    assert (rejected.answer, rejected.feedback, rejected.by) == ("reject", "no", "cassette")
    assert (await frontend.ask(ask("call_4"))).answer == "once"
    verdict = await frontend.review(Review("r", "s1", "p.md", "the old plan", "h"))
    assert (verdict.action, verdict.text, verdict.comment, verdict.id, verdict.hash, verdict.by) == (
        "build",
        "the new plan",
        "well",
        "r",
        "h",
        "cassette",
    )
    assert await frontend.question(Form("f", "s1", (Question("h", "q"),))) == (("A",),)
    assert player.person().left() == ()
    with pytest.raises(CassetteError, match="no answer of the person to the ask 'make'"):
        await frontend.ask(ask("call_99"))


async def test_answers_do_not_count_unless_enabled() -> None:
    player = CassettePlayer(PERSON)
    frontend = CassetteFrontend(Nobody(), player)
    assert not frontend.attended
    reply = await frontend.ask(ask("call_4"))
    assert (reply.answer, reply.by) == ("reject", "nobody")
    assert len(player.person().left()) == 4


async def test_an_edit_that_finds_no_place_is_an_error() -> None:
    frontend = CassetteFrontend(Nobody(), CassettePlayer(PERSON), answers=True)
    with pytest.raises(CassetteError, match="the plan does not say that"):
        await frontend.review(Review("r", "s1", "p.md", "something else", "h"))


OWN_WAY = (
    HEAD
    + "plan\n  prompt: go\n  call: plan_exit\n  expect: output contains why\n  person: keep planning because why?\n  ---\n"
    + '  call: plan_exit\n  person: approve and build\n    change: "old" -> "new"\n'
    + "build\n  expect: request contains new\n  say: built\n"
)


@pytest.mark.parametrize(
    ("verdict", "strays"),
    [
        (Verdict("r", "h", "revise", comment="why?"), False),
        (Verdict("r", "h", "revise", comment=""), True),
        (Verdict("r", "h", "build"), True),
    ],
)
async def test_a_person_who_is_there_may_go_another_way(verdict: Verdict, strays: bool) -> None:
    """Whoever runs a lesson approves when they like: what was expected of the written way is then not held against it."""
    player = CassettePlayer(OWN_WAY)
    frontend = CassetteFrontend(Person(reviews=[verdict]), player)
    ask = request(user("go"))
    deltas = await answer(player, ask)
    assert await frontend.review(Review("r", "s1", "p.md", "the old plan", "h")) is verdict
    assert len(player.person().left()) == 1, "the cassette's answer is used up by the person's own"
    following = after(ask, deltas, ("approved", False), agent="build")
    if not strays:
        with pytest.raises(CassetteError, match=r"output contains why, but it completed: approved\.$"):
            await answer(player, following)
        return
    assert words(await answer(player, following)) == "built"
    with pytest.raises(CassetteError, match=r"all were played.*\nYou answered otherwise"):
        await answer(player, following)
    again = request(*following.turns, user("go"))  # the cell is run again
    following = after(again, await answer(player, again), ("approved", False), agent="build")
    with pytest.raises(CassetteError, match="output contains why"):
        await answer(player, following)


@pytest.mark.parametrize(
    ("reply", "same"),
    [
        (Reply("once"), True),
        (Reply("always"), True),
        (Reply("reject"), False),
    ],
)
async def test_an_ask_that_is_answered_as_on_the_cassette_stays_on_its_way(reply: Reply, same: bool) -> None:
    script = CassettePlayer(PERSON).person()
    assert script.same_ask(ask("call_4"), reply) is same
    assert not script.same_ask(ask("call_6"), Reply("reject", feedback="yes"))
    assert script.same_question((("A",),))
    assert not script.same_question(None)
    assert not script.same_review(Review("r", "s1", "p.md", "something else", "h"), Verdict("r", "h", "build"))


async def test_limits_and_models_come_from_the_header() -> None:
    player = CassettePlayer("cassette: written by hand\nmodel: tiny\nwindow: 4000\nplan\n  say: x\n")
    assert await player.models() == ("tiny",)
    assert (await player.limits("tiny")).window == 4000
    assert player.name == "cassette"
    await player.close()


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="cannot be read"):
        load(tmp_path / "none.cassette")
