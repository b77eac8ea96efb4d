"""The session database: what is written is there again, in order, whatever happens to the file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nbagent.clock import SystemClock
from nbagent.errors import SessionError, StoreError
from nbagent.message import Message, TextPart, ToolPart
from nbagent.store.owner import Owner
from nbagent.store.schema import MIGRATIONS
from nbagent.store.store import Store


class Backwards(SystemClock):
    """A clock that goes back a second at each look."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 2_000_000_000.0

    def now(self) -> float:
        self._at -= 1
        return self._at


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "home" / "sessions.db")


def a_message(store: Store, session_id: str, number: int, parts: int = 1) -> Message:
    return Message(
        id=f"msg_{9999 - number}",  # ids that do not sort by time: order must come from the store
        session_id=session_id,
        role="user",
        agent="build",
        time_created=1.0,
        parts=tuple(TextPart(id=f"prt_{9999 - number}_{9 - each}", text=f"{number}/{each}") for each in range(parts)),
    )


def test_what_is_recorded_comes_back_in_order(store: Store) -> None:
    session = store.create_session(directory="/w", agent="build")
    messages = [a_message(store, session.id, number, parts=3) for number in range(5)]
    for message in messages:
        store.add_message(message)
    assert store.messages(session.id) == messages


def test_a_part_is_written_again_in_its_place(store: Store) -> None:
    session = store.create_session(directory="/w", agent="build")
    message = a_message(store, session.id, 1)
    store.add_message(message)
    call = ToolPart(id="prt_call", call_id="c", tool="read", status="running", input={"filePath": "a"})
    store.put_part(session.id, message.id, call)
    store.put_part(session.id, message.id, TextPart(id="prt_after", text="after"))
    done = msgspec.structs.replace(call, status="completed", output="text")
    store.put_part(session.id, message.id, done)
    assert store.messages(session.id)[0].parts[1:] == (done, TextPart(id="prt_after", text="after"))


def test_order_survives_a_clock_that_goes_backwards(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "s.db", Backwards())
    session = store.create_session(directory="/w", agent="build")
    for number in range(4):
        store.accept(session.id, "prompt", {"n": number})
    assert [row.content["n"] for row in store.undelivered(session.id)] == [0, 1, 2, 3]


def test_the_same_input_id_keeps_what_was_accepted_first(store: Store) -> None:
    session = store.create_session(directory="/w", agent="plan")
    first = store.accept(session.id, "prompt", {"text": "one"}, "inp_1")
    again = store.accept(session.id, "prompt", {"text": "two"}, "inp_1")
    assert again == first
    assert again.content == {"text": "one"}


def test_an_input_is_delivered_once(store: Store) -> None:
    session = store.create_session(directory="/w", agent="plan")
    row = store.accept(session.id, "prompt", {"text": "one"})
    store.deliver(row.id, a_message(store, session.id, 1))
    with pytest.raises(SessionError):
        store.deliver(row.id, a_message(store, session.id, 2))
    assert len(store.messages(session.id)) == 1
    assert store.undelivered(session.id) == []


def test_a_session_run_by_a_living_process_is_not_taken(store: Store) -> None:
    session = store.create_session(directory="/w", agent="build")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        from nbagent.store.owner import _started, this_process

        owner = Owner(this_process().host, other.pid, _started(other.pid))
        write_mark(store, session.id, owner)
        with pytest.raises(SessionError, match=f"process {other.pid}"):
            store.start(session.id)
        assert store.crashed() == []
        assert other.stdin is not None
        other.stdin.close()
        other.wait(10)
    assert [mark.session_id for mark in store.crashed()] == [session.id]
    store.start(session.id)
    assert store.session(session.id).status == "running"
    store.finish(session.id)
    assert store.mark(session.id) is None


def write_mark(store: Store, session_id: str, owner: Owner) -> None:
    db = sqlite3.connect(store.path)
    with db:
        db.execute("INSERT INTO execution VALUES (?,?,0,1.0)", (session_id, owner.text()))
    db.close()


def test_a_process_number_that_was_given_again_is_another_process() -> None:
    from nbagent.store.owner import this_process

    me = this_process()
    assert me.alive()
    assert not Owner(me.host, me.pid, "1").alive()


@pytest.mark.parametrize("version", range(len(MIGRATIONS)))
def test_every_past_version_is_migrated(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    db = sqlite3.connect(path)
    for number in range(version):
        db.executescript(MIGRATIONS[number])
    db.execute(f"PRAGMA user_version = {version}")
    if version:
        db.execute(
            "INSERT INTO session (id, directory, agent, time_created, time_updated) VALUES ('ses_1', '/w', 'plan', 1, 1)"
        )
    db.commit()
    db.close()
    store = Store.open(path)
    if version:
        assert store.session("ses_1").agent == "plan"
    session = store.create_session(directory="/w", agent="build")
    store.put_plan("/w/p.md", directory="/w", status="draft")
    store.put_seen(session.id, "/w/a.py", "d", True)
    assert store.seen(session.id) == {"/w/a.py": ("d", True)}


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.execute("CREATE TABLE t (a)")
    db.close()
    with pytest.raises(StoreError, match="newer nbagent"):
        Store.open(path)


@pytest.mark.parametrize("content", [b"not a database at all" * 50, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_corrupt_file_is_kept_aside_and_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(content)
    store = Store.open(path)
    store.create_session(directory="/w", agent="build")
    (notice,) = store.notices
    kept = tmp_path / "sessions.db.damaged-1"
    assert str(kept) in notice
    assert kept.read_bytes() == content


def test_damage_that_shows_later_is_kept_aside_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = Store.open(path)
    session = store.create_session(directory="/w", agent="build")
    for number in range(300):
        store.add_message(msgspec.structs.replace(a_message(store, session.id, number), error="x" * 500))
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 3)
        file.write(b"\xff" * (size // 2))
    again = Store.open(path)
    assert again.notices
    assert again.sessions() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_a_clear_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "ro"
    folder.mkdir(mode=0o500)
    with pytest.raises(StoreError, match="NBAGENT_HOME"):
        Store.open(folder / "sessions.db")


def test_a_home_that_is_a_file_is_a_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(StoreError, match="NBAGENT_HOME"):
        Store.open(tmp_path / "home" / "sessions.db")


def test_a_full_disk_is_a_clear_sentence_and_loses_nothing(store: Store) -> None:
    session = store.create_session(directory="/w", agent="build")
    store.accept(session.id, "prompt", {"text": "kept"})
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        for number in range(200):
            store.add_message(msgspec.structs.replace(a_message(store, session.id, number), error="x" * 4000))
    store._db.execute("PRAGMA max_page_count = 1000000")
    assert [row.content for row in store.undelivered(session.id)] == [{"text": "kept"}]


def test_two_processes_write_at_once(store: Store) -> None:
    session = store.create_session(directory="/w", agent="build")
    script = (
        "import sys; from pathlib import Path; from nbagent.store.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "for n in range(40): store.accept(sys.argv[2], 'prompt', {'n': n})\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(store.path), session.id]) for _ in range(2)]
    for _ in range(40):
        store.accept(session.id, "prompt", {"n": -1})
    assert [child.wait(60) for child in children] == [0, 0]
    assert len(store.undelivered(session.id)) == 120


def test_a_locked_database_is_a_clear_sentence(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = Store.open(path)
    store._db.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        store.create_session(directory="/w", agent="build")
    other.execute("ROLLBACK")
    other.close()


def test_a_plan_is_used_once_and_only_as_approved(store: Store) -> None:
    store.put_plan("/w/p.md", directory="/w", status="approved", hash="h")
    assert not store.use_plan("/w/p.md", "other")
    assert store.use_plan("/w/p.md", "h")
    assert not store.use_plan("/w/p.md", "h")


def test_sessions_are_found_by_a_part_of_their_id(store: Store) -> None:
    one = store.create_session(directory="/w", agent="build", session_id="ses_aaa1")
    store.create_session(directory="/w", agent="build", session_id="ses_bbb2")
    assert store.find_session("ses_aaa").id == one.id
    assert store.find_session("aa1").id == one.id
    with pytest.raises(SessionError, match="more than one"):
        store.find_session("ses_")
    with pytest.raises(SessionError, match="no session"):
        store.find_session("%")


def test_pruning_spares_what_runs(store: Store) -> None:
    old = store.create_session(directory="/w", agent="build")
    running = store.create_session(directory="/w", agent="build")
    store.add_message(a_message(store, old.id, 1))
    store.start(running.id)
    assert store.delete_sessions(older_than=SystemClock().now() + 10) == 1
    assert [row.id for row in store.sessions(empty=True)] == [running.id]
    assert store.messages(old.id) == []


def test_an_interrupted_session_that_was_put_aside_is_not_told_again(store: Store) -> None:
    from nbagent.store.owner import this_process

    session = store.create_session(directory="/w", agent="build")
    write_mark(store, session.id, Owner(this_process().host, this_process().pid, "1"))
    assert [mark.session_id for mark in store.crashed("/w")] == [session.id]
    store.update_session(session.id, time_archived=1.0)
    assert store.crashed("/w") == []
