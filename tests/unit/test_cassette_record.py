"""Recording and replaying: what is kept, what is taken out, and what makes a recording stale."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.errors import CassetteError, ProviderError
from nbagent.frontend import Nobody, Review
from nbagent.message import Tokens
from nbagent.provider.cassette import Cassette, Entry, Failure, Header, PersonAnswer
from nbagent.provider.cassette_file import check, check_file, load, read, write
from nbagent.provider.cassette_lines import dump
from nbagent.provider.digest import Asked, ask_of, digest_of
from nbagent.provider.person import CassetteFrontend, RecordingFrontend
from nbagent.provider.places import Ids, Places
from nbagent.provider.player import CassettePlayer
from nbagent.provider.provider import (
    AssistantTurn,
    Called,
    CallTurn,
    Delta,
    Ended,
    Limits,
    Request,
    ResultTurn,
    Said,
    Say,
    Text,
    Think,
    ToolSpec,
    Unsaid,
    Used,
    UserTurn,
    Writing,
)
from nbagent.provider.recorder import RecordingProvider

ROOT, HOME = "/home/ada/proj", "/home/ada"
ELSEWHERE, OTHER_HOME = "/srv/copy/p", "/home/bob"


class Scripted:
    """A provider with its answers in a list; an exception in it is raised."""

    name = "scripted"

    def __init__(self, *answers: list[Delta | Exception]) -> None:
        self.answers = list(answers)
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        try:
            for piece in self.answers.pop(0):
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed += 1

    async def models(self) -> tuple[str, ...]:
        return ("scripted-1",)

    async def limits(self, model: str) -> Limits:
        return Limits(window=32_000, source="server")

    async def close(self) -> None:
        self.closed += 100


def request(
    *turns: Any, agent: str = "plan", session: str = "s1", tools: tuple[str, ...] = ("read", "write")
) -> Request:
    specs = tuple(ToolSpec(name, "", {}) for name in tools)
    return Request(model="big-1", system="", turns=turns, tools=specs, agent=agent, session_id=session)


def conversation(root: str, ident: str, plan: str, stamp: str) -> tuple[Request, Request]:
    """Two requests of one run, as a machine with these names makes them."""
    first = request(UserTurn((Text(f"Look into {root}/src. Write {plan} and nothing else."),)))
    calls = (CallTurn("c1", "task", {}),)
    result = ResultTurn(
        "c1", "task", (Text(f"child {ident} finished at {stamp} in 0.{len(root)}s: see {root}/src/a.py"),)
    )
    return first, request(*first.turns, AssistantTurn("ok", (), calls), result)


HERE = conversation(ROOT, "ses_" + "1" * 22, ".nbagent/plans/20261130-look.md", "2026-11-30T10:11:12Z")
THERE = conversation(ELSEWHERE, "ses_" + "2" * 22, ".nbagent/plans/20231114-look.md", "2023-11-14 22:13:20")

ANSWERS: tuple[list[Delta | Exception], ...] = (
    [
        Think("hm", "reasoning_content"),
        Think("m", "reasoning_content", {"sig": "x"}),
        Say("I look in /home/"),
        Say("ada/proj/src with sk-sec"),
        Say("ret."),
        Writing(0, "task", 12),
        Called("c1", "task", {"prompt": f"see {ROOT}/src", "n": [1, f"{HOME}/x"]}, extra={"extra_content": {"k": 1}}),
        Said("temperature was dropped"),
        Used(Tokens(input=10, output=5, cache_read=3)),
        Ended("tool-calls"),
    ],
    [
        Called("c2", "task", {"task_id": "ses_" + "1" * 22}),
        Called("c3", "write", {"filePath": ".nbagent/plans/20261130-look.md", "content": "# Plan\n"}),
        Called("c4", "write", {}, problem="cut", raw='{"filePath": "sk-secret'),
        Ended("tool-calls"),
    ],
)


def mask(text: str) -> str:
    return text.replace("sk-secret", "***")


def recorder(path: Path, *answers: list[Delta | Exception]) -> RecordingProvider:
    return RecordingProvider(
        Scripted(*answers), path, masker=mask, root=ROOT, home=HOME, version="0.1.0", today=datetime.date(2026, 11, 30)
    )


async def drain(provider: Any, *requests: Request) -> list[list[Delta]]:
    return [[delta async for delta in provider.stream(one)] for one in requests]


@pytest.fixture
async def recording(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "a.cassette"
    recording = recorder(path, *ANSWERS)
    await recording.limits("big-1")
    await drain(recording, *HERE)
    recording.person(PersonAnswer("ask", "reject", f"not in {HOME}/x", call_id="c3"))
    recording.finish()
    return path


def words(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, Say))


def calls(deltas: list[Delta]) -> list[Called]:
    return [d for d in deltas if isinstance(d, Called)]


async def test_a_recording_goes_through_the_very_same_path(tmp_path: Path) -> None:
    recording = recorder(tmp_path / "a.cassette", *ANSWERS)
    seen = await drain(recording, *HERE)
    assert seen == [list(answer) for answer in ANSWERS]
    assert await recording.models() == ("scripted-1",)
    assert recording.name == "scripted"
    await recording.close()
    assert isinstance(recording.inner, Scripted)
    assert recording.inner.closed == 102


async def test_the_file_names_nobody_and_holds_no_secret(recording: Path) -> None:
    text = recording.read_text()
    for word in ("ada", "sk-secret", "11111111", "20261130", "10:11:12"):
        assert word not in text
    header = json.loads(text.split("\n")[0])
    assert header == {
        "nbagent_cassette": 1,
        "answered_by": "big-1",
        "date": "2026-11-30",
        "nbagent": "0.1.0",
        "window": 32000,
    }
    assert check(text) == []
    assert not [p for p in recording.parent.iterdir() if p != recording]


async def test_a_key_that_nobody_told_us_about_is_taken_out_by_its_shape(tmp_path: Path) -> None:
    key = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx0123"
    recording = recorder(
        tmp_path / "a.cassette", [Say(f"it is {key}"), Called("c1", "write", {"content": key}), Ended("tool-calls")]
    )
    await drain(recording, request(UserTurn((Text(f"My key is {key}."),))))
    recording.finish()
    text = recording.path.read_text()
    assert key not in text
    assert text.count("***") == 3
    assert await drain(CassettePlayer(recording.path), request(UserTurn((Text(f"My key is {key}."),))))


async def test_names_of_arguments_and_what_a_server_wants_back_hold_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    pieces: list[Delta | Exception] = [
        Think("", "reasoning", {"sig": ["sk-secret"]}),
        Called("c1", "task", {f"{HOME}/a": {"sk-secret": 1}}, extra={"extra_content": {"k": "sk-secret"}}),
        Ended("tool-calls"),
    ]
    recording = recorder(path, pieces)
    await drain(recording, HERE[0])
    recording.finish()
    assert "sk-secret" not in path.read_text()
    assert "ada" not in path.read_text()
    [played] = await drain(CassettePlayer(path, root=ELSEWHERE, home=OTHER_HOME), THERE[0])
    assert calls(played)[0].arguments == {f"{OTHER_HOME}/a": {"***": 1}}


@pytest.mark.parametrize(
    ("model", "shown"),
    [(f"{HOME}/models/big.gguf", "big.gguf"), (f"{ROOT}/big.gguf", "big.gguf"), ("org/big-1", "org/big-1")],
)
async def test_a_model_that_is_called_by_its_file_goes_by_the_file_s_name(
    tmp_path: Path, model: str, shown: str
) -> None:
    recording = recorder(tmp_path / "a.cassette", [Say("x"), Ended("stop")])
    await drain(recording, msgspec.structs.replace(HERE[0], model=model))
    recording.finish()
    assert json.loads(recording.path.read_text().split("\n")[0])["answered_by"] == shown


async def test_a_title_is_not_recorded_and_gives_the_cassette_no_name(tmp_path: Path) -> None:
    recording = recorder(tmp_path / "a.cassette", [Say("A name"), Ended("stop")], [Say("x"), Ended("stop")])
    title = msgspec.structs.replace(request(UserTurn((Text("go"),)), agent="title"), model="small-1")
    assert words((await drain(recording, title))[0]) == "A name"
    await drain(recording, HERE[0])
    recording.finish()
    cassette = load(recording.path)
    assert [entry.agent for entry in cassette.entries] == ["plan"]
    assert cassette.header.answered_by == "big-1"


async def test_a_title_on_an_older_cassette_need_not_be_played(tmp_path: Path) -> None:
    asked = ask_of(request(UserTurn((Text("go"),)), agent="title"), Places())
    old = Cassette(Header("big-1"), (Entry((Say("A name"), Ended("stop")), "title", asked, digest_of(asked), line=2),))
    assert CassettePlayer(old).unused() == ()


async def test_folders_of_nbagent_s_own_are_others_elsewhere(tmp_path: Path) -> None:
    def told(data: str, scratch: str) -> Request:
        return request(UserTurn((Text(f"The whole is in {data}/outputs/call_1.txt; {scratch}/notes is yours."),)))

    path = tmp_path / "a.cassette"
    recording = RecordingProvider(
        Scripted([Called("c1", "read", {"filePath": f"{HOME}/.data/outputs/call_1.txt"}), Ended("tool-calls")]),
        path,
        root=ROOT,
        home=HOME,
        data=f"{HOME}/.data",
        scratch="/tmp/nbagent-1-a",
    )
    await drain(recording, told(f"{HOME}/.data", "/tmp/nbagent-1-a"))
    recording.finish()
    player = CassettePlayer(path, root=ELSEWHERE, home=OTHER_HOME, data="/srv/data", scratch="/var/tmp/nbagent-2-b")
    [played] = await drain(player, told("/srv/data", "/var/tmp/nbagent-2-b"))
    assert calls(played)[0].arguments == {"filePath": "/srv/data/outputs/call_1.txt"}


async def test_it_plays_on_another_machine_with_that_machine_s_paths_and_ids(recording: Path) -> None:
    player = CassettePlayer(recording, root=ELSEWHERE, home=OTHER_HOME)
    first, second = await drain(player, *THERE)
    assert words(first) == f"I look in {ELSEWHERE}/src with ***."
    assert calls(first)[0].arguments == {"prompt": f"see {ELSEWHERE}/src", "n": [1, f"{OTHER_HOME}/x"]}
    assert calls(first)[0].extra == {"extra_content": {"k": 1}}
    assert Used(Tokens(input=10, output=5, cache_read=3)) in first
    assert Think("hmm", "reasoning_content", {"sig": "x"}) in first
    assert calls(second)[0].arguments == {"task_id": "ses_" + "2" * 22}
    assert calls(second)[1].arguments["filePath"] == ".nbagent/plans/20231114-look.md"
    assert calls(second)[2].problem == "cut"
    assert player.person().left()[0].text == "not in ⟨home⟩/x"
    assert player.model == "big-1"
    assert len(player.unused()) == 1


async def test_two_replays_are_the_same(recording: Path) -> None:
    one = await drain(CassettePlayer(recording, root=ROOT, home=HOME), *HERE)
    two = await drain(CassettePlayer(recording, root=ROOT, home=HOME), *HERE)
    assert one == two


async def stale(recording: Path, *requests: Request) -> str:
    player = CassettePlayer(recording, root=ELSEWHERE, home=OTHER_HOME)
    with pytest.raises(CassetteError) as caught:
        await drain(player, *requests)
    return str(caught.value)


async def test_stale_says_which_tool_is_gone_or_new(recording: Path) -> None:
    changed = request(*THERE[0].turns, tools=("read", "python"))
    message = await stale(recording, changed)
    assert "answer 1 of 2" in message
    assert "tool gone: write" in message
    assert "tool new: python" in message
    assert "--record FILE" in message
    assert "--cassette-lenient" in message


async def test_stale_says_which_agent(recording: Path) -> None:
    assert "it was answered for 'plan', 'build' asks now" in await stale(
        recording, request(*THERE[0].turns, agent="build")
    )


async def test_stale_shows_the_prompt_that_differs(recording: Path) -> None:
    message = await stale(recording, request(UserTurn((Text("Look elsewhere."),))))
    assert "message differs: user" in message
    assert "-Look into ⟨root⟩/src." in message
    assert "+Look elsewhere." in message


async def test_stale_shows_the_result_that_differs(recording: Path) -> None:
    first, second = THERE
    assert isinstance(second.turns[-1], ResultTurn)
    other = ResultTurn("c1", "task", (Text("child failed"),), True)
    message = await stale(recording, first, request(*second.turns[:-1], other))
    assert "answer 2 of 2" in message
    assert "message differs: result of task" in message
    assert "+child failed" in message


async def test_what_did_not_fit_is_not_used_up(recording: Path) -> None:
    player = CassettePlayer(recording, root=ELSEWHERE, home=OTHER_HOME)
    with pytest.raises(CassetteError):
        await drain(player, request(UserTurn((Text("Look elsewhere."),))))
    title = request(UserTurn((Text("Find the bug in the loop of all loops"),)), agent="title", tools=())
    assert words((await drain(player, title))[0]) == "Find the bug in the loop"
    assert len(await drain(player, *THERE)) == 2


async def test_exhausted(recording: Path) -> None:
    assert "all its 2 answers were played" in await stale(recording, *THERE, THERE[1])


async def test_lenient_plays_on_and_says_what_was_stale(recording: Path) -> None:
    player = CassettePlayer(recording, lenient=True, root=ELSEWHERE, home=OTHER_HOME)
    [deltas] = await drain(player, request(UserTurn((Text("Look elsewhere."),))))
    assert words(deltas).startswith("I look in")
    assert len(player.stale) == 1
    assert "message differs" in player.stale[0]


async def test_a_run_that_failed_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    recording = recorder(path, [Say("x"), ProviderError("no", status=401)])
    with pytest.raises(ProviderError):
        await drain(recording, HERE[0])
    recording.abort()
    assert not path.exists()


async def test_a_later_run_that_failed_leaves_the_earlier_one(recording: Path) -> None:
    path = recording.parent / "b.cassette"
    two = recorder(path, *ANSWERS)
    await drain(two, HERE[0])
    two.finish()
    before = path.read_bytes()
    await drain(two, HERE[1])
    two.person(PersonAnswer("ask", "once", call_id="c3"))
    two.abort()
    two.finish()
    assert path.read_bytes() == before


async def test_an_error_that_was_tried_again_is_recorded_and_played(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    recording = recorder(
        path, [ProviderError("slow down sk-secret", retryable=True, retry_after=0.5, status=429)], ANSWERS[0]
    )
    with pytest.raises(ProviderError):
        await drain(recording, HERE[0])
    await drain(recording, HERE[0])
    recording.finish()
    assert "sk-secret" not in path.read_text()
    player = CassettePlayer(path, root=ROOT, home=HOME)
    with pytest.raises(ProviderError) as caught:
        await drain(player, HERE[0])
    assert (caught.value.retryable, caught.value.retry_after, caught.value.status) == (True, 0.5, 429)
    await drain(player, HERE[0])
    assert player.unused() == ()


async def test_text_that_was_taken_back_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    recording = recorder(path, [Say("hm "), Say("hm"), Unsaid(), Think("hm hm"), Say("Yes."), Ended("stop")])
    await drain(recording, HERE[0])
    recording.finish()
    [deltas] = await drain(CassettePlayer(path, root=ROOT, home=HOME), HERE[0])
    assert deltas == [Think("hm hm"), Say("Yes."), Ended("stop")]


async def test_stopping_closes_the_server_and_keeps_no_half_answer(tmp_path: Path) -> None:
    recording = recorder(tmp_path / "a.cassette", *ANSWERS)
    stream = recording.stream(HERE[0])
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert isinstance(recording.inner, Scripted)
    assert recording.inner.closed == 1
    recording.finish()
    assert "sk-" not in (tmp_path / "a.cassette").read_text()
    assert check((tmp_path / "a.cassette").read_text())[0].text == "it has no answers"


async def test_side_by_side_conversations_play_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    recording = recorder(path, [Say("on data"), Ended("stop")], [Say("on code"), Ended("stop")])
    data = request(UserTurn((Text("data"),)), agent="explore", session="x")
    code = request(UserTurn((Text("code"),)), agent="explore", session="y")
    await drain(recording, data, code)
    recording.finish()
    played = await drain(CassettePlayer(path, root=ROOT, home=HOME), code, data)
    assert [words(deltas) for deltas in played] == ["on code", "on data"]


async def test_what_a_person_answers_is_recorded_and_played(tmp_path: Path) -> None:
    path = tmp_path / "a.cassette"
    recording = recorder(path, ANSWERS[0])
    await drain(recording, HERE[0])
    await RecordingFrontend(Nobody(), recording).review(Review("r1", "s", "p.md", "text", "h1"))
    recording.finish()
    player = CassettePlayer(path, root=ROOT, home=HOME)
    verdict = await CassetteFrontend(Nobody(), player, answers=True).review(Review("r2", "s", "p.md", "text", "h2"))
    assert (verdict.id, verdict.hash, verdict.action, verdict.by) == ("r2", "h2", "reject", "cassette")


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (lambda lines: lines[1:], 1, "first line must be the header"),
        (lambda lines: [lines[0].replace(":1,", ":2,", 1), *lines[1:]], 1, "reads format 1"),
        (lambda lines: [lines[0], "{oops", *lines[2:]], 2, "not JSON"),
        (lambda lines: [lines[0], lines[1].replace("⟨root⟩/src. Write", "⟨root⟩/etc. Write"), *lines[2:]], 2, "digest"),
        (lambda lines: [*lines, '{"answer": [{"shout": "x"}]}'], 5, "not a piece of an answer"),
        (lambda lines: [*lines, '{"answer": [{"say": 5}]}'], 5, "say"),
        (lambda lines: [*lines, '{"answer": []}'], 5, "at least one piece"),
        (lambda lines: [*lines, '{"answer": [{"call": {"id": "x"}}]}'], 5, "call"),
        (lambda lines: [*lines, "[1]"], 5, "one JSON object"),
        (lambda lines: [*lines, '{"person": {"ask": "perhaps"}}'], 5, "perhaps"),
        (lambda lines: [*lines, '{"person": {}}'], 5, "one of"),
        (lambda lines: [*lines, '{"answer": [{"say":'], 5, "not JSON"),
        (lambda lines: [*lines, '{"answer": ' + "[" * 100_000], 5, "nested too deeply"),
        (lambda lines: [*lines, '{"agent": 5, "answer": [{"say": "x"}]}'], 5, "name of an agent"),
        (lambda lines: [lines[0].replace(":1,", ":true,", 1), *lines[1:]], 1, "reads format 1"),
        (lambda lines: [lines[0].replace("32000", "-1"), *lines[1:]], 1, "number of tokens"),
    ],
)
async def test_check_says_the_line(recording: Path, change: Any, line: int, words: str) -> None:
    text = "\n".join(change(recording.read_text().rstrip("\n").split("\n")))
    problems = check(text)
    assert any(p.line == line and words in p.text for p in problems), problems
    with pytest.raises(CassetteError, match=f"line {problems[0].line}"):
        load(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ran in 0.12s", "ran in 3.4s"),
        ("at 2026-11-30T10:00:00Z", "at 2023-01-01 09:00:01.5"),
        ("<object at 0x7f00aa11bb22>", "<object at 0x7f11cc22dd33>"),
        ("-rw-r--r-- 1 u u 5 Nov 30 10:01 a", "-rw-r--r-- 1 u u 5 Jan  3  2025 a"),
        (f"in {ROOT}/a.py", "in /home/ada/proj/a.py"),
        ("/tmp/abc123/x.txt", "/tmp/zzz/y.txt"),
        ("[image/png 33 KB]", "[image/png 35 KB]"),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(one: str, other: str) -> None:
    places = Places(ROOT, HOME)
    assert places.plain(one) == places.plain(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a.py", "b.py"), ("5 rows", "6 rows"), (f"{ROOT}2/a", f"{ROOT}/a"), ("recall 0.91", "recall 0.92")],
)
def test_what_matters_counts(one: str, other: str) -> None:
    places = Places(ROOT, HOME)
    assert places.plain(one) != places.plain(other)


def test_windows_paths_are_taken_out_in_every_spelling() -> None:
    places = Places(r"C:\Users\ada\proj", r"C:\Users\ada")
    assert places.plain(r"C:\Users\ada\proj\a.py") == "⟨root⟩\\a.py"
    assert places.plain("C:/Users/ada/proj/a.py") == "⟨root⟩/a.py"
    assert places.plain(r'"C:\\Users\\ada\\x"') == '"⟨home⟩\\\\x"'


def test_a_long_message_is_told_apart_by_its_end() -> None:
    def digest(end: str) -> str:
        return digest_of(ask_of(request(UserTurn((Text("x" * 10_000 + end),))), Places(ROOT, HOME)))

    assert digest("a") != digest("b")


@given(st.text(alphabet=st.characters(exclude_characters="⟨⟩", exclude_categories=("Cs",))))
def test_out_and_back_undo_each_other(text: str) -> None:
    places = Places(ROOT, HOME, ".nbagent/plans/1.md")
    for whole in (text, f"{ROOT}/{text}", f"{text} {HOME}/x .nbagent/plans/1.md"):
        assert places.back(places.out(whole)) == whole


def test_ids_are_named_by_the_order_in_which_they_turn_up() -> None:
    ids = Ids()
    ids.learn("ses_" + "a" * 22 + " then msg_" + "b" * 22 + " and ses_" + "a" * 22)
    assert ids.out("msg_" + "b" * 22) == "⟨id 2⟩"
    assert ids.out("ses_" + "c" * 22) == "⟨id⟩"
    assert ids.back("⟨id 1⟩ ⟨id 9⟩") == "ses_" + "a" * 22 + " ⟨id 9⟩"


PIECES = st.one_of(
    st.builds(Say, st.text()),
    st.builds(Think, st.text(), st.sampled_from(["", "reasoning"])),
    st.builds(Said, st.text(), st.sampled_from(["info", "warning"])),
    st.builds(Failure, st.text(), st.sampled_from(["error", "dropped", "overflow"]), st.none() | st.integers(400, 599)),
    st.builds(Called, st.text(), st.text(), st.dictionaries(st.text(), st.integers() | st.text() | st.none())),
)


@given(st.lists(PIECES, min_size=1), st.text())
def test_lines_hold_any_answer(pieces: list[Any], agent: str) -> None:
    asked = Asked(agent, ("read",), (), "t")
    entry = Entry((*pieces, Ended("stop")), agent, asked, digest_of(asked), line=2)
    person = (
        PersonAnswer("ask", "always", agent, call_id="c", line=3),
        PersonAnswer("question", choices=(("a",), ()), line=4),
        PersonAnswer("question", "declined", line=5),
        PersonAnswer("review", "revise", "because", edit="# Plan", changes=(("a", "b"),), line=6),
    )
    cassette = Cassette(Header("m", "m", "2026-11-30", "0.1.0", 5), (entry,), person)
    read_back, problems = read("\n".join(dump(cassette)))
    assert problems == []
    assert read_back == cassette


@pytest.mark.parametrize(
    ("data", "line"), [("cassette: written by hand\nplan\n  say: grüße\n".encode("latin-1"), 3), (b"\xff\xfea\0", 1)]
)
def test_a_file_that_is_no_utf8_is_told_with_its_line(tmp_path: Path, data: bytes, line: int) -> None:
    (tmp_path / "a.cassette").write_bytes(data)
    assert [(p.line, "UTF-8" in p.text) for p in check_file(tmp_path / "a.cassette")] == [(line, True)]
    with pytest.raises(CassetteError, match=f"line {line}: this is not UTF-8"):
        load(tmp_path / "a.cassette")


def test_writing_leaves_nothing_beside_the_file(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    asked = Asked("plan")
    cassette = Cassette(Header("m"), (Entry((Ended("stop"),), "plan", asked),))
    with pytest.raises(OSError, match="folder"):
        write(cassette, target)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
