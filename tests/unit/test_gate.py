"""One call, decided: by rules, by remembered replies, by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nbagent.clock import CountingClock
from nbagent.errors import Denied, Rejected, Stopped
from nbagent.event import AskEvent, Event, NoticeEvent
from nbagent.permission.ask import Ask, Call, Effect, Need, Preview, Reply
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Rule, Ruleset, from_config

ASKING = from_config({"*": "allow", "bash": "ask", "edit": "ask", "doom_loop": "ask", "external_directory": "ask"})


class Person:
    """Answers as scripted; an ask without an answer stays open until somebody answers it through the gate."""

    def __init__(self, *answers: Reply) -> None:
        self.answers = list(answers)
        self.seen: list[Ask] = []
        self.cancelled = 0

    async def __call__(self, ask: Ask) -> Reply:
        self.seen.append(ask)
        if self.answers:
            return self.answers.pop(0)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("never here")


def bash(command: str, *, name: str = "c1", always: str | None = None, suggest: str = "") -> Call:
    need = Need("bash", (command,), (command if always is None else always,), suggest)
    return Call(name, "bash", command, "command", (need,), Preview("command", command), (f"command:{command}",))


def edit(path: str, *, tool: str = "edit", name: str = "c1", diff: str = "", outside: bool = False) -> Call:
    needs: tuple[Need, ...] = (Need("edit", (path,), (path,)),)
    if outside:
        needs = (Need("external_directory", (path,), (path,)), *needs)
    return Call(name, tool, f"{tool} {path}", "writes", needs, Preview("diff", diff), (f"write:{path}",))


def gate(
    person: Callable[[Ask], object],
    rules: Ruleset = ASKING,
    events: list[Event] | None = None,
    attended: bool = True,
    auto: bool = False,
    advice: str = "",
) -> Gate:
    keep = events if events is not None else []
    return Gate(
        rules,
        person,
        CountingClock(),
        "ses_1",
        emit=keep.append,
        attended=attended,
        auto=auto,
        advice=advice,  # type: ignore[arg-type]
    )


async def opened(of: Gate, count: int) -> tuple[Ask, ...]:
    for _ in range(100):
        if len(of.pending()) == count:
            return of.pending()
        await asyncio.sleep(0)
    raise AssertionError(f"{len(of.pending())} asks are open, not {count}")


def replies(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.id, event.reply) for event in events if isinstance(event, AskEvent)]


async def test_allow_happens_without_a_question() -> None:
    person = Person()
    reply = await gate(person, from_config({"bash": "allow"})).decide(bash("ls"))
    assert reply.answer == "once" and reply.by == "rule" and not person.seen


async def test_deny_names_the_rule_and_what_is_allowed() -> None:
    rules = (
        Rule("edit", "*", "allow", "user"),
        Rule("edit", "*", "deny", "floor"),
        Rule("edit", ".nbagent/plans/p.md", "allow", "floor"),
        Rule("edit", ".nbagent/plans/p.md", "allow", "floor"),
    )
    one = gate(Person(), rules, advice="Run it in %%build; you may include code in the plan.")
    with pytest.raises(Denied) as caught:
        await one.decide(edit("a.py"))
    assert caught.value.rule == rules[1]
    text = str(caught.value)
    assert "Allowed for edit: .nbagent/plans/p.md." in text, "once"
    assert "edit *: deny (floor)" in text and ".nbagent/plans/p.md" in text and "include code in the plan" in text


async def test_the_strictest_of_all_resources_wins() -> None:
    rules = from_config({"edit": {"*": "allow", "locked/*": "deny"}})
    call = Call("c", "apply_patch", "patch", "writes", (Need("edit", ("a.py", "locked/b.py")),))
    with pytest.raises(Denied, match=r"locked/b\.py"):
        await gate(Person(), rules).decide(call)


async def test_once_is_one_call() -> None:
    person = Person(Reply("once"), Reply("once"))
    one = gate(person)
    await one.decide(bash("make"))
    await one.decide(bash("make"))
    assert len(person.seen) == 2


async def test_always_remembers_what_was_shown_and_no_more() -> None:
    person = Person(Reply("always"), Reply("once"), Reply("once"))
    one = gate(person)
    call = Call(
        "c", "bash", "git status && rm -rf ./tmp", "command",
        (Need("bash", ("git status", "rm -rf ./tmp"), ("git status", "rm -rf ./tmp")),),
    )  # fmt: skip
    await one.decide(call)
    assert {each.pattern for each in one.approvals.list()} == {"git status", "rm -rf ./tmp"}
    await one.decide(bash("git status"))
    assert len(person.seen) == 1
    await one.decide(bash("rm -rf /"))
    await one.decide(bash("git status -s"))
    assert len(person.seen) == 3


async def test_always_remembers_only_what_needed_the_answer() -> None:
    rules = from_config({"bash": {"*": "ask", "git status": "allow"}})
    one = gate(Person(Reply("always")), rules)
    await one.decide(
        Call("c", "bash", "x", "command", (Need("bash", ("npm test", "git status"), ("npm test", "git status")),))
    )
    assert [each.pattern for each in one.approvals.list()] == ["npm test"]


async def test_a_deny_outranks_what_is_remembered() -> None:
    rules = [Rule("bash", "*", "ask")]
    one = Gate(lambda: tuple(rules), Person(Reply("always")), CountingClock(), "s")
    await one.decide(bash("git push"))
    rules.append(Rule("bash", "git push", "deny", "floor"))
    with pytest.raises(Denied):
        await one.decide(bash("git push"))
    assert one.explain("bash", "git push").action == "deny"


async def test_a_floor_that_asks_is_asked_every_time() -> None:
    person = Person(Reply("always"), Reply("once"))
    one = gate(person, (Rule("bash", "*", "ask", "floor"),))
    await one.decide(bash("ls x"))
    await one.decide(bash("ls x"))
    assert len(person.seen) == 2


async def test_revoked_approvals_ask_again() -> None:
    person = Person(Reply("always"), Reply("once"))
    one = gate(person)
    await one.decide(bash("npm test"))
    assert one.explain("bash", "npm test").action == "allow"
    assert one.approvals.revoke(one.approvals.list()[0].id)
    assert not one.approvals.revoke(99)
    await one.decide(bash("npm test"))
    assert len(person.seen) == 2


async def test_a_widened_pattern_is_kept_as_edited() -> None:
    one = gate(Person(Reply("always", remember=(("bash", "npm run *"),))))
    await one.decide(bash("npm run dev", suggest="npm run *"))
    await one.decide(bash("npm run build"))
    assert [each.pattern for each in one.approvals.list()] == ["npm run *"]


@pytest.mark.parametrize("pattern", ["*", "rm *", "r* x", "git push *", "?", "/bin/rm *", "sudo *"])
async def test_some_commands_never_widen(pattern: str) -> None:
    events: list[Event] = []
    one = gate(Person(Reply("always", remember=(("bash", pattern),))), events=events)
    await one.decide(bash("rm -rf build"))
    assert [each.pattern for each in one.approvals.list()] == ["rm -rf build"]
    assert any(isinstance(event, NoticeEvent) for event in events)


async def test_only_permissions_that_were_asked_can_be_remembered() -> None:
    one = gate(Person(Reply("always", remember=(("edit", "*"), ("bash", "ls x")))))
    await one.decide(bash("ls x"))
    assert [(each.permission, each.pattern) for each in one.approvals.list()] == [("bash", "ls x")]


async def test_always_settles_and_lists_the_siblings_it_covers() -> None:
    person, events = Person(), []
    one = gate(person, events=events)
    tasks = [asyncio.create_task(one.decide(bash(c, name=c))) for c in ("npm test", "npm test", "other thing")]
    first, second, third = await opened(one, 3)
    assert one.answer(first.id, Reply("always"))
    reply = await tasks[0]
    assert reply.lines == ("also allowed: npm test",)
    assert (await tasks[1]).by == "always"
    assert [ask.id for ask in one.pending()] == [third.id]
    assert not one.answer(second.id, Reply("reject"))
    assert one.answer(third.id, Reply("once"))
    await tasks[2]
    assert person.cancelled == 3
    assert replies(events)[-3:] == [(first.id, "always"), (second.id, "once"), (third.id, "once")]


async def test_a_reject_without_feedback_ends_the_step() -> None:
    events: list[Event] = []
    one = gate(Person(), events=events)
    tasks = [asyncio.create_task(one.decide(edit(p), step="s1")) for p in ("a.py", "b.py")]
    first, second = await opened(one, 2)
    for _ in range(3):
        one.answer(first.id, Reply("reject"))
    with pytest.raises(Rejected) as caught:
        await tasks[0]
    assert caught.value.feedback == ""
    with pytest.raises(Rejected, match="Not run"):
        await tasks[1]
    assert replies(events)[2:] == [(first.id, "reject"), (second.id, "expired")]
    with pytest.raises(Rejected, match="Not run"):
        await one.decide(edit("c.py"), step="s1")


@pytest.mark.parametrize("answer", ["", "yes", "allow", "Once", "always "])
async def test_an_answer_that_is_none_of_the_three_allows_nothing(answer: str) -> None:
    person = Person(Reply(answer))  # type: ignore[arg-type]
    of = gate(person)
    with pytest.raises(Rejected):
        await of.decide(bash("ls"), "step")
    assert not list(of.approvals.list())


async def test_a_reject_with_feedback_reaches_the_model() -> None:
    one = gate(Person(Reply("reject", feedback="use polars")))
    with pytest.raises(Rejected, match="use polars") as caught:
        await one.decide(edit("a.py"))
    assert caught.value.feedback == "use polars"


async def test_a_refused_effect_stays_refused_through_any_tool() -> None:
    person = Person(Reply("reject", feedback="leave it"), Reply("once"))
    one = gate(person)
    with pytest.raises(Rejected):
        await one.decide(edit("a.py", diff="one"))
    for tool in ("write", "bash"):
        with pytest.raises(Denied, match="refused this in this cell"):
            await one.decide(edit("a.py", tool=tool, diff="two"))
    with pytest.raises(Denied):
        await one.decide(edit("a.py", diff="one"))
    await one.decide(edit("a.py", diff="as the person wished"))
    assert len(person.seen) == 2
    one.new_cell()
    person.answers.append(Reply("once"))
    await one.decide(edit("a.py", tool="write"))


async def test_stop_withdraws_and_a_late_click_does_nothing() -> None:
    events: list[Event] = []
    one = gate(Person(), events=events)
    task = asyncio.create_task(one.decide(bash("rm x")))
    (ask,) = await opened(one, 1)
    one.stop()
    with pytest.raises(Stopped):
        await task
    assert not one.answer(ask.id, Reply("always")) and not one.approvals.list() and not one.pending()
    assert replies(events) == [(ask.id, ""), (ask.id, "expired")]
    with pytest.raises(Stopped):
        await one.decide(bash("ls"))


async def test_an_answer_that_comes_with_the_stop_does_nothing() -> None:
    one = gate(Person())
    task = asyncio.create_task(one.decide(bash("rm x")))
    (ask,) = await opened(one, 1)
    one.answer(ask.id, Reply("always"))
    one.stop()
    with pytest.raises(Stopped):
        await task
    assert not one.approvals.list()


async def test_cancelling_the_run_withdraws_the_ask() -> None:
    events: list[Event] = []
    person = Person()
    one = gate(person, events=events)
    task = asyncio.create_task(one.decide(bash("rm x")))
    (ask,) = await opened(one, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert replies(events)[-1] == (ask.id, "expired") and person.cancelled == 1 and not one.pending()


async def test_a_frontend_that_breaks_breaks_the_call() -> None:
    async def broken(ask: Ask) -> Reply:
        raise RuntimeError("no screen")

    with pytest.raises(RuntimeError, match="no screen"):
        await gate(broken).decide(bash("x"))


async def test_nobody_there_is_a_deny_that_says_how() -> None:
    one = gate(Person(), attended=False)
    with pytest.raises(Denied) as caught:
        await one.decide(bash("npm test"))
    assert '[permission.bash]\n"npm test" = "allow"' in str(caught.value) and "bash *: ask" in str(caught.value)
    one = gate(Person(Reply("reject", by="nobody")))
    with pytest.raises(Denied, match="nobody is there"):
        await one.decide(bash("npm test"))


async def test_identical_denials_are_counted_by_cell() -> None:
    one = gate(Person(), from_config({"edit": "deny"}))
    for path in ("a.py", "b.py", "a.py", "a.py"):
        with pytest.raises(Denied):
            await one.decide(edit(path))
    assert one.denials == 3
    one.new_cell()
    assert one.denials == 0


async def test_auto_answers_edits_and_commands_but_nothing_else() -> None:
    person = Person(*[Reply("once")] * 3)
    events: list[Event] = []
    one = gate(person, events=events, auto=True)
    assert (await one.decide(edit("a.py"))).by == "auto"
    assert (await one.decide(bash("make"))).by == "auto"
    assert not person.seen and replies(events) == [("ask_0000000000010000000000", ""), ("ask_0000000000010000000000", "once"),
                                                   ("ask_0000000000020000000000", ""), ("ask_0000000000020000000000", "once")]  # fmt: skip
    await one.decide(edit("/etc/x", outside=True))
    secret = Need("read", (".env",))
    await gate(person, from_config({"read": "ask"}), auto=True).decide(Call("c", "read", "r", "reads", (secret,)))
    assert len(person.seen) == 2


async def test_auto_holds_where_nobody_is_there_until_the_breaker() -> None:
    one = gate(Person(), auto=True, attended=False)
    assert (await one.decide(edit("a.py"))).by == "auto"
    for at in range(3):
        with pytest.raises(Denied, match="nobody is there"):
            await one.decide(edit(f"/x/{at}", outside=True))
    with pytest.raises(Denied, match="nobody is there"):
        await one.decide(edit("a.py"))


@pytest.mark.parametrize("how", ["rejects", "failures", "doom"])
async def test_the_breaker_switches_auto_off(how: str) -> None:
    effects: dict[str, Effect] = {"doom": "asks"}
    person = Person(*[Reply("reject", feedback="no")] * 3)
    events: list[Event] = []
    one = gate(person, events=events, auto=True)
    if how == "doom":
        person.answers = [Reply("once")]
        await one.decide(Call("c", "bash", "again", effects["doom"], (Need("doom_loop", ("bash",)),)))
    for at in range(3 if how != "doom" else 0):
        if how == "failures":
            one.note(False)
        else:
            with pytest.raises(Rejected):
                await one.decide(edit(f"/x/{at}", outside=True))
    assert not one.auto
    assert sum(isinstance(event, NoticeEvent) for event in events) == 1
    one.new_cell()
    assert not one.auto


async def test_unresolved_targets_are_asked_while_any_path_is_denied() -> None:
    call = Call("c", "bash", "x", "command", (Need("edit", ("$Z",), unresolved=True),))
    free = from_config({"edit": "allow"})
    await gate(Person(), free).decide(call)
    person = Person(Reply("once"))
    await gate(person, from_config({"edit": {"*": "allow", "locked": "deny"}})).decide(call)
    assert len(person.seen) == 1 and person.seen[0].remember == ()
    with pytest.raises(Denied):
        await gate(person, from_config({"edit": "deny"})).decide(call)
