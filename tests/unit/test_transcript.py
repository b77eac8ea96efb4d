"""The fold of events into the record, and the patches that carry it to a page."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import event as ev
from nbagent.frontend import Form, Question, Review, Verdict
from nbagent.message import Attachment, FileChange, Tokens
from nbagent.notebook.item import CUT
from nbagent.notebook.transcript import Transcript
from nbagent.permission.ask import Ask, Call, Need, Preview, Reply
from nbagent.permission.ruleset import Rule


def transcript() -> Transcript:
    ticks = iter(range(10**9))
    return Transcript(lambda: 1_700_000_000.0 + next(ticks) / 1000)


def apply(value: dict[str, Any], patch: dict[str, Any]) -> None:
    """What a page does with a patch."""
    value["head"].update(patch.get("head", {}))
    value["state"] = patch.get("state", value["state"])
    value["receipt"] = patch.get("receipt", value["receipt"])
    places = {item["id"]: index for index, item in enumerate(value["items"])}
    for item in patch.get("items", []):
        if item["id"] in places:
            value["items"][places[item["id"]]] = copy.deepcopy(item)
        else:
            value["items"].append(copy.deepcopy(item))
            places[item["id"]] = len(value["items"]) - 1
    for key, more in patch.get("append", {}).items():
        value["items"][places[key]][more["field"]] += more["text"]


def tool(call_id: str, state: str, **more: Any) -> ev.ToolEvent:
    more.setdefault("name", "read")
    more.setdefault("input", {"filePath": "a.py"})
    return ev.ToolEvent(session="s", call_id=call_id, state=state, **more)  # type: ignore[arg-type]


def ask(ask_id: str = "ask_1", preview: Preview | None = None) -> Ask:
    call = Call("c1", "edit", "edit a.py", "writes", (Need("edit", ("a.py",)),), preview, notes=("via a link",))
    rule = Rule("edit", "*", "ask", "defaults")
    return Ask(ask_id, "s", call, rule, (("edit", "a.py"),), (("edit", "a.py"),), (("edit", "*"),))


def test_text_streams_as_appends_and_ends_whole() -> None:
    fold = transcript()
    fold.add(ev.SessionEvent(session="s", agent="plan", model="m", root="/w", badge="PLAN", writes="only p.md"))
    fold.add(ev.TextDelta(session="s", id="t1", text="Hel"))
    first = fold.patch()
    assert first is not None and first["items"][0]["text"] == "Hel" and first["head"]["writes"] == "only p.md"
    fold.add(ev.TextDelta(session="s", id="t1", text="lo "))
    fold.add(ev.TextDelta(session="s", id="t1", text="you"))
    second = fold.patch()
    assert second is not None
    assert second["append"] == {"t1": {"field": "text", "text": "lo you"}} and "items" not in second
    fold.add(ev.TextEvent(session="s", id="t1", text="Hello you."))
    third = fold.patch()
    assert third is not None and third["items"][0]["text"] == "Hello you."
    assert fold.patch() is None


def test_a_tool_call_goes_through_its_states() -> None:
    fold = transcript()
    fold.add(ev.ToolInputDelta(session="s", call_id="c1", name="edit", size=10))
    assert fold.record()["items"][0]["state"] == "writing"
    fold.add(tool("c1", "pending", name="edit", input={"filePath": "a.py"}))
    fold.add(tool("c1", "running", name="edit", title="edit a.py", effect="writes"))
    fold.add(
        tool("c1", "completed", name="edit", output="ok", metadata={"diff": "-a\n+b"}, seconds=0.5, effect="writes")
    )
    (item,) = fold.record()["items"]
    assert (item["state"], item["title"], item["output"]) == ("completed", "edit a.py", "ok")
    assert item["metadata"] == {"diff": "-a\n+b"} and item["size"] == 10 and not item["refused"]


def test_a_call_is_found_in_the_item_in_which_it_was_written() -> None:
    fold = transcript()
    for index, name in enumerate(("read", "edit", "read")):
        fold.add(ev.ToolInputDelta(session="s", call_id=f"msg/{index}", name=name, size=3))
    fold.patch()
    for call_id, name in (("a", "read"), ("b", "edit")):
        fold.add(tool(call_id, "pending", name=name))
        fold.add(tool(call_id, "completed", name=name, output=call_id))
    fold.add(ev.StepEvent(session="s", step=2))
    items = fold.record()["items"]
    assert [(item["id"], item["state"], item["output"]) for item in items] == [
        ("msg/0", "completed", "a"),
        ("msg/1", "completed", "b"),
        ("msg/2", "error", ""),
    ]


def test_a_refused_call_carries_its_rule() -> None:
    fold = transcript()
    rule = {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"}
    fold.add(tool("c1", "error", name="edit", error="denied", rule=rule))
    (item,) = fold.record()["items"]
    assert item["refused"] and item["rule"] == rule


def test_servers_that_number_calls_anew_get_new_items() -> None:
    fold = transcript()
    for output in ("one", "two"):
        fold.add(tool("call_0", "pending"))
        fold.add(tool("call_0", "completed", output=output))
    assert [item["output"] for item in fold.record()["items"]] == ["one", "two"]
    assert len({item["id"] for item in fold.record()["items"]}) == 2


def test_children_are_nested_under_their_task_call() -> None:
    fold = transcript()
    fold.add(ev.SessionEvent(session="s", agent="plan", model="m", root="/w"))
    fold.add(tool("call_1", "running", name="task"))
    fold.add(ev.SessionEvent(session="k", parent="call_1", agent="explore", model="m", root="/w"))
    fold.add(ev.TextEvent(session="k", parent="call_1", id="t1", text="found it"))
    call = ev.ToolEvent(session="k", parent="call_1", call_id="call_1", name="read", state="running", input={})
    fold.add(call)
    fold.add(ev.FinishEvent(session="k", parent="call_1", reason="stop"))
    items = fold.record()["items"]
    task = items[0]
    assert all(item["parent"] == task["id"] for item in items[1:])
    assert items[-1]["state"] == "error" and task["state"] == "running"
    assert fold.state == "running" and fold.record()["head"]["agent"] == "plan"


def test_long_outputs_are_cut_and_kept_aside() -> None:
    fold = transcript()
    long = "x" * (CUT * 3)
    fold.add(tool("c1", "completed", output=long, metadata={"diff": long}, input={"content": long}))
    (item,) = fold.record()["items"]
    assert item["cut"] and len(item["output"]) < CUT + 100 and len(item["metadata"]["diff"]) < CUT + 100
    whole = fold.full("c1")
    assert whole is not None and whole["output"] == long and whole["input"]["content"] == long
    assert fold.full("nothing") is None


def test_streamed_output_keeps_its_tail_in_bounded_memory() -> None:
    fold = transcript()
    fold.add(tool("c1", "running", name="bash", input={"command": "yes"}))
    sent = 0
    for number in range(20_000):
        fold.add(ev.ToolOutputDelta(session="s", call_id="c1", text=f"line {number}\n"))
        if number % 100 == 0:
            sent += len(json.dumps(fold.patch()))
    (item,) = fold.record()["items"]
    assert item["cut"] and item["output"].endswith("line 19999\n") and len(item["output"]) <= CUT
    assert sent < 20_000 * 12 * 3


def test_an_ask_opens_and_locks_when_it_is_settled() -> None:
    fold = transcript()
    fold.add(tool("c1", "pending", name="edit"))
    fold.open_ask(ask(preview=Preview("diff", "-a\n+b", "python")))
    assert fold.state == "waiting" and "edit a.py" in fold.record()["head"]["waiting"]
    item = fold.record()["items"][1]
    assert item["patterns"] == ["a.py"] and item["call"] == "c1" and item["notes"] == ["via a link"]
    fold.settle_ask("ask_1", Reply("reject", feedback="not now"))
    fold.settle_ask("ask_1", Reply("once"))
    item = fold.record()["items"][1]
    assert (item["reply"], item["feedback"]) == ("reject", "not now") and fold.state == "running"


def test_the_event_of_an_answered_ask_adds_nothing_new() -> None:
    fold = transcript()
    fold.open_ask(ask())
    fold.settle_ask("ask_1", Reply("once"))
    fold.add(ev.AskEvent(session="s", id="ask_1", permission="edit", patterns=("a.py",), reply="once", by="person"))
    assert len(fold.record()["items"]) == 1
    fold.add(ev.AskEvent(session="s", id="ask_2", permission="bash", patterns=("ls",), reply="once", by="auto"))
    assert fold.record()["items"][1]["by"] == "auto"


def test_forms_and_reviews() -> None:
    fold = transcript()
    form = Form("f1", "s", (Question("Unit", "Which unit?", (("m", "metres"), ("ft", "feet"))),))
    fold.open_form(form)
    assert fold.state == "waiting"
    fold.settle_form("f1", (("m",),))
    review = Review("r1", "s", "p.md", "# Plan", "h1", warnings=("no verification",))
    fold.open_review(review, "+# Plan")
    assert fold.record()["head"]["waiting"] == "approval of the plan"
    fold.settle_review("r1", Verdict("r1", "h1", "build", "# Plan 2", "go"))
    question, shown = fold.record()["items"]
    assert question["answers"] == [["m"]]
    assert (shown["status"], shown["edited"], shown["text"], shown["comment"]) == ("approved", True, "# Plan 2", "go")


def test_a_plan_that_nobody_saw_waits_in_the_record() -> None:
    fold = transcript()
    fold.add(ev.PlanEvent(session="s", path="p.md", status="awaiting", hash="h", text="# P"))
    fold.add(ev.FinishEvent(session="s", reason="awaiting", plan="p.md"))
    record = fold.record()
    assert record["items"][0]["status"] == "awaiting" and record["state"] == "done"


def test_the_end_closes_everything() -> None:
    fold = transcript()
    fold.add(tool("c1", "running"))
    fold.open_ask(ask())
    fold.add(ev.RetryEvent(session="s", attempt=1, error="busy", wait=2, until=5))
    fold.add(ev.CompactionEvent(session="s", status="running"))
    fold.open_review(Review("r1", "s", "p.md", "x", "h"))
    fold.close("stopped")
    by_kind = {item["kind"]: item for item in fold.record()["items"]}
    assert by_kind["tool"]["error"] == "interrupted" and by_kind["ask"]["reply"] == "expired"
    assert by_kind["retry"]["done"] and by_kind["compaction"]["status"] == "failed"
    assert by_kind["review"]["status"] == "expired"
    assert fold.record()["receipt"]["line"].startswith("stopped")


def test_the_receipt_says_what_was_written() -> None:
    fold = transcript()
    fold.add(ev.SessionEvent(session="s", agent="plan", model="m", root="/w", plan="p.md"))
    change = FileChange(path="p.md", status="added", additions=3, deletions=0)
    fold.add(ev.ReceiptEvent(session="s", files=(change,), plan="p.md", confined=True))
    fold.add(ev.FinishEvent(session="s", reason="stop", tokens=Tokens(input=1000, output=234), seconds=12.34))
    line = fold.record()["receipt"]["line"]
    assert line == "plan p.md written, nothing else was written · 1,234 tokens · 12 s"


def test_what_nobody_was_there_to_answer_is_in_the_last_line() -> None:
    fold = transcript()
    fold.add(ev.ReceiptEvent(session="s", files=()))
    fold.add(ev.FinishEvent(session="s", reason="stop", unanswered=2))
    receipt = fold.record()["receipt"]
    assert receipt["unanswered"] == 2
    assert receipt["line"].startswith("2 calls needed a person's answer and nobody was there · no files changed")


def test_a_build_receipt_lists_files() -> None:
    fold = transcript()
    files = tuple(FileChange(path=f"f{n}.py", status="modified", additions=1, deletions=2) for n in range(7))
    fold.add(ev.ReceiptEvent(session="s", files=files))
    fold.add(ev.FinishEvent(session="s", reason="stopped", seconds=0.2))
    line = fold.record()["receipt"]["line"]
    assert line.startswith("stopped · 7 files changed: f0.py (+1 −2), ") and "and 2 more" in line


def test_images_come_along() -> None:
    fold = transcript()
    fold.add(tool("c1", "completed", attachments=(Attachment(mime="image/png", data="AAAA"),)))
    assert fold.record()["items"][0]["images"] == [{"mime": "image/png", "data": "AAAA"}]


def test_an_agent_change_is_an_item() -> None:
    fold = transcript()
    fold.add(ev.SessionEvent(session="s", agent="plan", model="m", root="/w"))
    fold.add(ev.SessionEvent(session="s", agent="build", model="m", root="/w", badge="BUILD"))
    record = fold.record()
    assert record["head"]["badge"] == "BUILD" and record["items"][0]["previous"] == "plan"


names = st.sampled_from(["a", "b", "c"])
words = st.text(max_size=20)
events = st.one_of(
    st.builds(lambda i, t: ev.TextDelta(session="s", id=i, text=t), names, words),
    st.builds(lambda i, t: ev.TextEvent(session="s", id=i, text=t), names, words),
    st.builds(lambda i, t: ev.ReasoningDelta(session="s", id="r" + i, text=t), names, words),
    st.builds(lambda i, t: ev.ToolOutputDelta(session="s", call_id="t" + i, text=t * 300), names, words),
    st.builds(
        lambda i, s, t: tool("t" + i, s, output=t),
        names,
        st.sampled_from(["pending", "running", "completed", "error"]),
        words,
    ),
    st.builds(lambda n: ev.StepEvent(session="s", step=n), st.integers(1, 9)),
    st.builds(lambda n: ev.RetryEvent(session="s", attempt=n, error="x", wait=1, until=2), st.integers(1, 9)),
    st.builds(lambda i: ev.TodoEvent(session="s", todos=({"content": i, "status": "pending"},)), names),
    st.just("patch"),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=40))
def test_patches_add_up_to_the_record(steps: list[Any]) -> None:
    fold = transcript()
    page = copy.deepcopy(fold.record())
    for step in steps:
        if step == "patch":
            patch = fold.patch()
            if patch is not None:
                apply(page, json.loads(json.dumps(patch)))
        else:
            fold.add(step)
    fold.close("stopped")
    patch = fold.patch()
    assert patch is not None
    apply(page, patch)
    assert page == json.loads(json.dumps(fold.record()))


def test_folding_a_long_run_is_fast() -> None:
    import time

    fold = transcript()
    for number in range(500):
        fold.add(tool(f"c{number}", "pending"))
        fold.add(tool(f"c{number}", "completed", output="x" * 1000))
    begin = time.perf_counter()
    for _ in range(20_000):
        fold.add(ev.TextDelta(session="s", id="t", text="word "))
    assert time.perf_counter() - begin < 2
