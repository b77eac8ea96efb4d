"""The session database: recording a part, and opening a session of 100,000 parts."""

from __future__ import annotations

import time

from bench.figure import Figure, Found, median, milliseconds
from bench.place import ground

CLAIM = "*Resume*: open the database, read every message and part, and make the turns of the next request."
CHEAP = True
SECONDS = 180


def measure(quick: bool) -> Found:
    from nbagent.message import Message, StepFinishPart, StepStartPart, TextPart, ToolPart
    from nbagent.session.history import History
    from nbagent.session.request import TurnMaker
    from nbagent.store.store import Store

    parts = 2_000 if quick else 100_000
    found: Found = []
    with ground() as place:
        path = place.base / "sessions.db"
        store = Store.open(path)
        session = store.create_session(directory=str(place.root), agent="build").id
        messages = [
            Message(id="m0", session_id=session, role="user", agent="build", parts=(TextPart(id="p0", text="go"),))
        ]
        for number in range(1, parts // 4 + 1):
            call = ToolPart(
                id=f"p{number}c",
                call_id=f"call_{number}",
                tool="read",
                status="completed",
                input={"filePath": f"src/f{number}.py"},
                output=f"{number}: value\n" * 20,
                title=f"src/f{number}.py",
            )
            of_step = (
                StepStartPart(id=f"p{number}a"),
                TextPart(id=f"p{number}b", text=f"I look at file {number}."),
                call,
                StepFinishPart(id=f"p{number}d", reason="tool-calls"),
            )
            messages.append(
                Message(id=f"m{number}", session_id=session, role="assistant", agent="build", parts=of_step)
            )
        store.add_messages(messages)
        text = TextPart(id="extra", text="word " * 40)
        numbers = iter(range(10**9))

        def record() -> None:
            store.put_part(session, "m1", TextPart(id=f"extra{next(numbers)}", text=text.text))

        found.append(Figure("record a part", median(milliseconds(record, 50 if quick else 2_000)), "ms"))
        store.close()
        loads, turns, used = [], [], []
        for _ in range(1 if quick else 5):
            begin, cpu = time.perf_counter(), time.process_time()
            store = Store.open(path)
            history = History(store, session)
            loads.append(time.perf_counter() - begin)
            TurnMaker().turns(history.messages, {})
            turns.append(time.perf_counter() - begin)
            used.append(time.process_time() - cpu)
            store.close()
            del history
        found.append(Figure(f"read {parts:,} parts", median(loads), "s"))
        found.append(Figure(f"resume {parts:,} parts", median(turns), "s", most=1.0))
        found.append(Figure(f"resume {parts:,} parts, of that", median(used), "s CPU"))
        found.append(Figure("size of the database", path.stat().st_size / 1e6, "MB"))
    return found
