"""The store against a model of it: whatever is written in whatever order, through kills, is there again and nothing else is."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from nbagent.clock import SystemClock
from nbagent.errors import PlanError, SessionError, StoreError
from nbagent.message import Message, Part, TextPart, ToolPart
from nbagent.store.schema import MIGRATIONS
from nbagent.store.store import Store

TEXT = st.text(max_size=20)
SOON = [HealthCheck.too_slow, HealthCheck.filter_too_much]


class Wild(SystemClock):
    """A clock that jumps, back as well as forth."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    def now(self) -> float:
        return self._chance.uniform(1, 2_000_000_000)


class StoreMachine(RuleBasedStateMachine):
    """Rows as a person would list them, and the store that should have the same."""

    sessions = Bundle("sessions")
    messages = Bundle("messages")
    inputs = Bundle("inputs")

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = Wild(seed)
        self.store = Store.open(self.folder / "s.db", self.clock)
        self.number = 0
        self.told: dict[str, list[Message]] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self.waiting: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.delivered: set[str] = set()
        self.marked: set[str] = set()
        self.kept: dict[str, list[tuple[str, str, str]]] = {}
        self.seen: dict[str, dict[str, tuple[str, bool]]] = {}

    def teardown(self) -> None:
        for session in list(getattr(self, "marked", ())):
            self.store.finish(session)
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}_{(self.number * 7919) % 9973:04d}_{self.number}"  # ids that do not sort by time

    # -- what is written

    @rule(target=sessions, agent=st.sampled_from(["plan", "build"]))
    def create(self, agent: str) -> str:
        session = self.store.create_session(directory="/w", agent=agent, session_id=self.fresh("ses")).id
        self.told[session], self.waiting[session], self.kept[session], self.seen[session] = [], [], [], {}
        self.rows[session] = {"agent": agent, "title": "", "state": {}}
        return session

    @rule(session=sessions, title=TEXT, state=st.dictionaries(TEXT, st.integers(), max_size=2))
    def change(self, session: str, title: str, state: dict[str, int]) -> None:
        self.store.update_session(session, title=title, state=state)
        self.rows[session].update(title=title, state=state)

    @rule(target=messages, session=sessions, text=TEXT)
    def say(self, session: str, text: str) -> tuple[str, str]:
        parts = (TextPart(id=self.fresh("prt"), text=text),)
        message = Message(id=self.fresh("msg"), session_id=session, role="user", agent="build", parts=parts)
        self.store.add_message(message)
        self.told[session].append(message)
        return session, message.id

    @rule(where=messages, text=TEXT, old=st.booleans())
    def part(self, where: tuple[str, str], text: str, old: bool) -> None:
        session, message_id = where
        place = next(n for n, each in enumerate(self.told[session]) if each.id == message_id)
        message = self.told[session][place]
        parts: list[Part] = list(message.parts)
        if old:
            new: Part = ToolPart(id=parts[-1].id, call_id="c", tool=text, status="error", error=text)
            parts[-1] = new
        else:
            new = TextPart(id=self.fresh("prt"), text=text)
            parts.append(new)
        self.store.put_part(session, message_id, new)
        self.told[session][place] = msgspec.structs.replace(message, parts=tuple(parts))

    @rule(where=messages, error=TEXT)
    def end(self, where: tuple[str, str], error: str) -> None:
        session, message_id = where
        place = next(n for n, each in enumerate(self.told[session]) if each.id == message_id)
        message = msgspec.structs.replace(self.told[session][place], error=error, time_completed=2.0)
        self.store.put_message(message)
        self.told[session][place] = message

    @rule(target=inputs, session=sessions, text=TEXT)
    def accept(self, session: str, text: str) -> tuple[str, str]:
        row = self.store.accept(session, "prompt", {"text": text}, self.fresh("inp"))
        self.waiting[session].append((row.id, row.content))
        return session, row.id

    @rule(where=inputs, text=TEXT)
    def accept_again(self, where: tuple[str, str], text: str) -> None:
        session, input_id = where
        known = dict(self.waiting[session]).get(input_id)
        row = self.store.accept(session, "prompt", {"text": text}, input_id)
        if known is not None:
            assert row.content == known
        elif input_id in self.delivered:
            assert row.time_delivered is not None
        else:  # it was withdrawn, so this is a new one
            self.waiting[session].append((input_id, row.content))

    @rule(target=messages, where=inputs)
    def deliver(self, where: tuple[str, str]) -> Any:
        session, input_id = where
        parts = (TextPart(id=self.fresh("prt"), text="delivered"),)
        message = Message(id=self.fresh("msg"), session_id=session, role="user", agent="build", parts=parts)
        if input_id not in dict(self.waiting[session]):
            with pytest.raises(SessionError):
                self.store.deliver(input_id, message)
            self.store.add_message(message)
        else:
            self.store.deliver(input_id, message)
            self.waiting[session] = [each for each in self.waiting[session] if each[0] != input_id]
            self.delivered.add(input_id)
        self.told[session].append(message)
        return session, message.id

    @rule(where=inputs)
    def withdraw(self, where: tuple[str, str]) -> None:
        session, input_id = where
        self.store.withdraw(input_id)
        self.waiting[session] = [each for each in self.waiting[session] if each[0] != input_id]

    @rule(session=sessions, text=TEXT)
    def run(self, session: str, text: str) -> None:
        input_id = self.fresh("inp")
        if session in self.marked:
            with pytest.raises(SessionError, match="running already"):
                self.store.begin(session, "prompt", {"text": text}, input_id)
            return
        self.store.begin(session, "prompt", {"text": text}, input_id)
        self.waiting[session].append((input_id, {"text": text}))
        self.marked.add(session)

    @rule(session=sessions)
    def finish(self, session: str) -> None:
        self.store.finish(session)
        self.marked.discard(session)

    @rule(session=sessions, agent=st.sampled_from(["plan", "build"]), pattern=TEXT)
    def always(self, session: str, agent: str, pattern: str) -> None:
        self.store.add_approval(session, "edit", pattern, agent)
        self.kept[session].append((agent, "edit", pattern))

    @rule(session=sessions, path=st.sampled_from(["a", "b"]), digest=TEXT, whole=st.booleans())
    def read(self, session: str, path: str, digest: str, whole: bool) -> None:
        self.store.put_seen(session, path, digest, whole)
        self.seen[session][path] = (digest, whole)

    # -- what goes wrong

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.folder / "s.db", self.clock)
        assert self.store.notices == []

    @rule()
    def killed(self) -> None:
        """The process is gone without closing anything: what is on disk is all there is."""
        other = Path(tempfile.mkdtemp())
        for file in self.folder.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, other / file.name)
        for session in self.marked:
            self.store.release(session)
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = other
        self.store = Store.open(other / "s.db", self.clock)
        assert self.store.notices == []
        for session in sorted(self.marked):
            assert self.store.mark(session) is not None, "the mark says that it was running"
            self.store.start(session, resuming=True)
            assert self.store.count_attempt(session) >= 1

    @rule(session=sessions)
    def refused_in_the_middle(self, session: str) -> None:
        """A write that cannot be finished leaves nothing of itself."""
        message = Message(id=self.fresh("msg"), session_id=session, role="user", agent="build")
        twice = TextPart(id=self.fresh("prt"), text="x")
        with pytest.raises(StoreError):
            self.store.add_messages([msgspec.structs.replace(message, parts=(twice,)), message])

    # -- what must be so

    @invariant()
    def all_is_there(self) -> None:
        for session, told in getattr(self, "told", {}).items():
            assert self.store.messages(session) == told
            row = self.store.session(session)
            assert {"agent": row.agent, "title": row.title, "state": row.state} == self.rows[session]
            assert [(each.id, each.content) for each in self.store.undelivered(session)] == self.waiting[session]
            assert (self.store.mark(session) is not None) == (session in self.marked)
            assert [(a.agent, a.permission, a.pattern) for a in self.store.approvals(session)] == self.kept[session]
            assert self.store.seen(session) == self.seen[session]
        if getattr(self, "rows", None) is not None:
            assert {row.id for row in self.store.sessions(empty=True)} == set(self.rows)


class TestStore(StoreMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=SOON)


@pytest.mark.fuzz
class TestStoreLong(StoreMachine.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=400, stateful_step_count=60, deadline=None, suppress_health_check=SOON)


# -- processes that are killed, disks that cannot be written ---------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from nbagent.message import Message, TextPart
from nbagent.store.store import Store
store = Store.open(Path(sys.argv[1]))
session = sys.argv[2]
for number in range(100_000):
    row = store.accept(session, "prompt", {"n": number}, f"inp_{sys.argv[3]}_{number}")
    parts = tuple(TextPart(id=f"prt_{sys.argv[3]}_{number}_{part}", text="x" * 500) for part in range(3))
    store.deliver(row.id, Message(id=f"msg_{sys.argv[3]}_{number}", session_id=session, role="user", agent="a", parts=parts))
    print(number, flush=True)
"""


def killed_while_writing(path: Path, rounds: int, seed: int) -> None:
    """What a process said that it had written is there after ``kill -9``; what it had not said is there whole or not at all."""
    chance = random.Random(seed)
    store = Store.open(path)
    session = store.create_session(directory="/w", agent="build").id
    expected = 0
    for each in range(rounds):
        command = [sys.executable, "-c", WRITER, str(path), session, str(each)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(chance.randint(1, 40))]
            time.sleep(chance.uniform(0, 0.01))
            process.kill()
            said += process.stdout.readlines()
        written = max(int(line) for line in said if line.endswith("\n")) + 1
        messages = [m for m in store.messages(session) if m.id.startswith(f"msg_{each}_")]
        assert len(messages) in (written, written + 1)
        assert all(len(message.parts) == 3 for message in messages)
        assert [m.id for m in messages] == [f"msg_{each}_{n}" for n in range(len(messages))]
        waiting = store.undelivered(session)
        assert len(waiting) - expected in (0, 1)
        expected = len(waiting)
    store.close()
    again = Store.open(path)
    assert again.notices == []
    again.close()


def test_killed_while_writing(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "s.db", 3, 1)


@pytest.mark.soak
def test_killed_while_writing_very_often(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "s.db", 100, 2)


def _as_nobody(work: Callable[[], str]) -> str:
    """What ``work`` returns in a child of this process that may write nowhere but where all may."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, f"!{error!r}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_cannot_be_written_is_a_sentence(there: bool) -> None:
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        folder = Path(base) / "home"
        if there:
            Store.open(folder / "sessions.db").close()
        folder.mkdir(exist_ok=True)
        os.chmod(folder, 0o555)

        def work() -> str:
            try:
                store = Store.open(folder / "sessions.db")
                store.create_session(directory="/w", agent="build")
            except StoreError as error:
                return str(error)
            return "written"

        said = _as_nobody(work)
        os.chmod(folder, 0o755)
    assert "NBAGENT_HOME" in said and "\n" not in said, said


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_what_a_past_version_wrote_is_all_there(tmp_path: Path, version: int) -> None:
    """Every table that a version had, filled, then opened by this one."""
    path = tmp_path / "old.db"
    db = sqlite3.connect(path)
    for number in range(version):
        db.executescript(MIGRATIONS[number])
    db.execute(f"PRAGMA user_version = {version}")
    db.execute(
        "INSERT INTO session (id, directory, agent, title, state, time_created, time_updated)"
        " VALUES ('ses_1', '/w', 'plan', 'Old', '{\"system\":\"s\"}', 1, 2)"
    )
    db.execute(
        "INSERT INTO session (id, parent_id, directory, agent, time_created, time_updated) VALUES ('ses_2', 'ses_1', '/w', 'explore', 1, 1)"
    )
    db.execute(
        "INSERT INTO message VALUES ('msg_1', 'ses_1', 1, ?)",
        (b'{"id":"msg_1","session_id":"ses_1","role":"user","agent":"plan"}',),
    )
    db.execute(
        "INSERT INTO part VALUES ('prt_1', 'msg_1', 'ses_1', 1, ?)", (b'{"type":"text","id":"prt_1","text":"hello"}',)
    )
    db.execute("INSERT INTO inbox VALUES ('inp_1', 'ses_1', 'prompt', ?, 1, NULL)", (b'{"text":"wait"}',))
    db.execute('INSERT INTO execution VALUES (\'ses_1\', \'{"host":"h","pid":1,"started":"1"}\', 2, 1.0)')
    db.execute(
        "INSERT INTO approval (session_id, agent, permission, pattern, time_created) VALUES ('ses_1', 'plan', 'read', 'a', 1)"
    )
    if version >= 2:
        db.execute(
            "INSERT INTO plan (path, directory, status, time_created, time_updated) VALUES ('/w/p.md', '/w', 'approved', 1, 1)"
        )
        db.execute("INSERT INTO seen VALUES ('ses_1', '/w/a', 'd', 1)")
        db.execute("INSERT INTO learned VALUES ('m', 'quirks', '{\"a\":1}')")
    db.commit()
    db.close()
    for _ in range(2):  # the second opening finds nothing left to do
        store = Store.open(path)
        row = store.session("ses_1")
        assert (row.title, row.agent, row.state, row.time_updated) == ("Old", "plan", {"system": "s"}, 2)
        assert [child.id for child in store.children("ses_1")] == ["ses_2"]
        (message,) = store.messages("ses_1")
        assert message.text() == "hello"
        assert [each.content for each in store.undelivered("ses_1")] == [{"text": "wait"}]
        mark = store.mark("ses_1")
        assert mark is not None and (mark.attempts, mark.owner.pid) == (2, 1)
        assert [each.pattern for each in store.approvals("ses_1")] == ["a"]
        if version >= 2:
            assert [plan.status for plan in store.plans("/w")] == ["approved"]
            assert store.seen("ses_1") == {"/w/a": ("d", True)} and store.learned("m") == {"quirks": {"a": 1}}
        assert store._db.execute("PRAGMA foreign_key_check").fetchall() == []
        store.close()


def test_a_migration_that_fails_leaves_the_version_before(tmp_path: Path) -> None:
    """Half a migration is none: the file is as it was, and a mended nbagent can migrate it."""
    path = tmp_path / "s.db"
    store = Store.open(path)
    store.create_session(directory="/w", agent="build", session_id="ses_1")
    store.close()
    broken = (*MIGRATIONS, "CREATE TABLE more (a);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(StoreError):
        Store.open(path, migrations=broken)
    store = Store.open(path, migrations=(*MIGRATIONS, "CREATE TABLE more (a);\n"))
    assert store.session("ses_1").agent == "build"
    assert store._db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    store.close()


def test_what_goes_with_a_delivery_is_there_with_it_or_not_at_all(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db")
    session = store.create_session(directory="/w", agent="build").id
    store.put_plan("/w/p.md", directory="/w", status="approved", hash="h")
    row = store.accept(session, "prompt", {"text": "x"})
    message = Message(
        id="msg_1", session_id=session, role="user", agent="plan", parts=(TextPart(id="prt_1", text="x"),)
    )
    with pytest.raises(PlanError):
        store.deliver(row.id, message, agent="plan", state={"a": 1}, spends=("/w/p.md", "other"))
    assert store.messages(session) == [] and store.undelivered(session) == [row]
    assert (store.session(session).agent, store.session(session).state) == ("build", {})
    store.deliver(row.id, message, agent="plan", state={"a": 1}, spends=("/w/p.md", "h"))
    assert store.messages(session) == [message] and store.undelivered(session) == []
    assert (store.session(session).agent, store.session(session).state) == ("plan", {"a": 1})
    (plan,) = store.plans("/w")
    assert plan.status == "built"
