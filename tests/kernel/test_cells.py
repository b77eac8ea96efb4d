"""Plan, approval and build in a real kernel, with clicks as a front end sends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from tests.kernel.kernel import RECORD, WIDGET, Clicker, Kernel, Page, once, reject, verdict
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, hold, say
from tests.session.scripts import EXIT, PLAN, READ_MODEL, edit_model, write_plan

Start = Callable[..., ScriptedServer]
Begin = Callable[..., Kernel]


def python(name: str) -> list[Any]:
    """A call that a person is asked about."""
    return [call("python", {"code": f"open({name!r}, 'w').close()", "description": f"make {name}"})]


def test_a_plan_is_approved_by_a_click_and_built_in_the_same_cell(
    project: Project, server: Start, kernel: Begin
) -> None:
    project.use(
        server([READ_MODEL, edit_model(), write_plan(), EXIT, edit_model(), [say("Recall is computed right now.")]])
    )
    shell = kernel()
    clicker = Clicker(ask=once, review=verdict("build", comment="go"))
    done = shell.run("%%plan\nWhy did recall drop? Plan the fix.", person=clicker, cell="c1")
    assert done.status == "ok", done.text
    assert project.read("src/model.py").endswith("(tp + fn)\n")
    (record,) = [output["data"] for output in done.outputs]
    assert set(record) == {RECORD, "text/html", "text/markdown", "text/plain"} and WIDGET not in record
    kinds = [item["kind"] for item in done.record["items"]]
    assert "review" in kinds and done.record["state"] == "done" and done.record["head"]["badge"] == "BUILD"
    (review,) = done.of("review")
    assert (review["status"], review["action"], review["comment"]) == ("approved", "build", "go")
    refused = next(item for item in done.of("tool") if item["name"] == "edit")
    assert refused["refused"], refused
    assert refused["rule"]["layer"] == "floor"
    (plan,) = project.plans
    changed = {file["path"] for file in done.record["receipt"]["files"]}
    assert changed == {"src/model.py", f".nbagent/plans/{plan.name}"}
    assert done.text.splitlines()[-1] == done.record["receipt"]["line"]
    (page,) = shell.pages.values()
    assert page.closed and any(message["kind"] == "ack" for message in page.got)
    assert clicker.seen[0]["text"] == PLAN
    assert shell.value("sorted(n for n in globals() if 'nbagent' in n.lower())") == "[]"


def test_answers_over_a_subshell_are_heard(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT, [say("never")]]))
    shell = kernel()
    shell.make_subshell()
    done = shell.run("%plan fix recall", person=Clicker(review=verdict("later")))
    assert done.status == "ok" and done.of("review")[0]["action"] == "later"
    assert done.record["receipt"]["reason"] == "approved"


def test_without_a_sign_of_life_the_same_ask_is_a_prompt_after_three_seconds(
    project: Project, server: Start, kernel: Begin
) -> None:
    project.use(
        server(
            [
                write_plan(),
                EXIT,
                edit_model(),
                python("x"),
                [say("done")],
            ]
        )
    )
    shell = kernel()
    done = shell.run("%%plan\nfix recall", typed=["", "b, use fn", "maybe", "n, because it is late"], seconds=40)
    assert done.status == "ok", done.text
    assert done.of("review")[0]["comment"] == "use fn" and 3 < done.seconds < 30
    assert "A plan waits for you" in done.prompts[0] and "[b] approve and build" in done.prompts[0]
    (ask,) = [item for item in done.of("ask") if item["permission"] == "python"]
    assert (ask["reply"], ask["feedback"]) == ("reject", "it is late")
    assert not (project.root / "x").exists()


def test_nobody_is_there(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT]))
    shell = kernel()
    done = shell.run("%%plan\nfix recall", stdin=False)
    assert done.status == "ok", done.text
    assert done.count("comm_open") == 0 and done.record["receipt"]["reason"] == "awaiting"
    (plan,) = project.plans
    assert plan.read_text() == PLAN and "not approved" in done.text
    again = shell.run("%%build", stdin=False)
    assert again.status == "error" and "nbagent approve" in again.text and again.count("comm_open") == 0


def test_a_build_asks_and_a_refusal_with_words_goes_on(project: Project, server: Start, kernel: Begin) -> None:
    command = python("made")
    project.use(server([command, [say("Then not.")]]))
    shell = kernel()
    done = shell.run("%%build\nmake a file", person=Clicker(ask=reject("use edit")))
    assert done.status == "ok" and not (project.root / "made").exists()
    (ask,) = done.of("ask")
    assert (ask["reply"], ask["feedback"], ask["by"]) == ("reject", "use edit", "person")


def test_three_quick_clicks_decide_once_and_stale_ones_nothing(project: Project, server: Start, kernel: Begin) -> None:
    first = python("one")
    second = python("two")
    project.use(server([first, second, [say("done")]]))
    shell = kernel()
    answered: list[str] = []

    def person(page: Page) -> None:
        for item in page.open:
            if item["id"] in answered:
                continue
            answered.append(item["id"])
            if len(answered) == 1:
                for _ in range(3):
                    page.send(**reject("no")(item))
            else:
                page.send(**reject("late")({"id": answered[0]}))
                page.send(**once(item))

    done = shell.run("%%build\ndo both", person=person)
    one, two = done.of("ask")
    assert (one["reply"], one["feedback"], two["reply"]) == ("reject", "no", "once")
    assert not (project.root / "one").exists() and (project.root / "two").exists()
    (page,) = shell.pages.values()
    refused = [message for message in page.got if message["kind"] == "refused"]
    assert len(refused) == 3 and all("expired" in message["error"] for message in refused)


def test_a_page_that_mounts_the_view_late_gets_the_whole_record(project: Project, server: Start, kernel: Begin) -> None:
    held = Gate()
    project.use(server([[say("I look."), hold(held), say(" And see.")]]))
    shell = kernel()
    begun: list[dict[str, Any]] = []

    def person(page: Page) -> None:
        if not begun and page.record["items"]:  # patches were sent, and no view was there to take them
            begun.append(page.record)
            shell.send_comm(page.comm_id, {"method": "update", "state": {"mount": 1}})
        elif begun and page.record is not begun[0]:  # a whole record has come, though nothing new was to be told
            held.open()

    done = shell.run("%plan look", person=person)
    assert done.status == "ok", done.text
    (page,) = shell.pages.values()
    assert page.got[-1]["state"] == "done" and page.got[-1]["receipt"]["line"]


def test_a_view_that_is_cleared_while_the_run_goes_on_is_shown_again(
    project: Project, server: Start, kernel: Begin
) -> None:
    held = Gate()
    project.use(server([[say("I look."), hold(held), say(" And see.")]]))
    shell = kernel()
    sent: list[str] = []

    def person(page: Page) -> None:
        if not sent and page.record["items"]:
            sent.append("gone")
            page.send(kind="alive", seq=1, view="one")
            page.send(kind="alive", seq=1, view="two")
            page.send(kind="gone", view="one")
            page.send(kind="gone", view="two")
            threading.Timer(1.5, held.open).start()

    done = shell.run("%plan look", person=person)
    shown = [m["content"] for m in done.messages if m["msg_type"] == "display_data" and WIDGET in m["content"]["data"]]
    assert len(shown) == 2
    assert shown[0]["data"][WIDGET]["model_id"] == shown[1]["data"][WIDGET]["model_id"]
    ended = [m["content"] for m in done.messages if m["msg_type"] == "update_display_data"]
    assert [e["transient"]["display_id"] for e in ended] == [shown[1]["transient"]["display_id"]]
    assert RECORD in ended[0]["data"]


def test_the_stop_button(project: Project, server: Start, kernel: Begin) -> None:
    gate = Gate()
    project.use(server([[say("I begin "), hold(gate)], [say("again")]]))
    shell = kernel()
    sent: list[bool] = []

    def person(page: Page) -> None:
        if not sent and any(item["kind"] == "text" for item in page.record["items"]):
            sent.append(True)
            page.send(kind="stop")

    done = shell.run("%%build\ngo", person=person)
    gate.open()
    assert done.status == "error" and done.reply["content"]["ename"] == "KeyboardInterrupt"
    assert done.record["receipt"]["reason"] == "stopped" and done.of("text")[0]["text"].startswith("I begin")
    after = shell.run("%%build\nagain")
    assert after.status == "ok", after.text


def test_errors_are_one_line_and_end_the_cell(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([]))
    shell = kernel()
    for code, words in (
        ("%%plan --quik\nx", "Did you mean --quick?"),
        ("%%plan --api-key sk-123\nx", "a key is never given"),
        ("%%plan\n", "empty"),
        ("%agent explode", "there is no command explode"),
        ("%%plan --cassette nope\nx", "no cassette"),
        ("%%build --plan nope.md\n", "nope.md"),
        ("%%plan --plan a.py\nx", ""),
    ):
        done = shell.run(code)
        assert done.status == "error", code
        lines = [line for output in done.outputs for line in output.get("traceback", [])]
        assert len(lines) == 1 and "\n" not in lines[0] and words in lines[0], (code, lines)
        assert "sk-123" not in json.dumps(done.outputs)


def test_the_cell_is_its_own_shape(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([[say("one")], [say("two")], [say("three")]]))
    shell = kernel()
    shell.run("name = 'recall'; df = [1, 2, 3]")
    done = shell.run("# a comment\n\n%%build -o result --vars look at @df\nand {name} $HOME {{x}}")
    assert done.status == "ok", done.text
    assert shell.value("result.text") == "'one'"
    seen: Any = shell.run("%agent status")
    assert "session" in seen.text and str(project.root) in seen.text
    loop = shell.run("for n in range(2):\n    %build say {n}")
    assert loop.status == "ok", loop.text


TRACES = """(
    __import__("sys").excepthook.__module__, get_ipython().custom_exceptions, str(get_ipython().showtraceback),
    [str(f) for f in get_ipython().input_transformers_cleanup + get_ipython().input_transformers_post],
    str(get_ipython().input_transformer_manager.__class__), len(get_ipython().ast_transformers),
    {k: len(v) for k, v in get_ipython().events.callbacks.items()}, len(get_ipython().Completer.custom_matchers),
    sorted(get_ipython().kernel.comm_manager.targets), [type(c).__name__ for c in get_ipython().configurables],
    sorted(get_ipython().magics_manager.magics["cell"]), sorted(get_ipython().magics_manager.magics["line"]),
    sorted(n for n in globals() if not n.startswith("_")), __import__("signal").getsignal(2),
    str(__import__("builtins").input), str(get_ipython().display_pub), str(get_ipython().displayhook),
)"""


def test_what_was_loaded_is_gone_without_a_trace(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT, python("x"), [say("hi")]]))
    shell = kernel(load=False)
    shell.run("import ipywidgets, anywidget; del ipywidgets, anywidget\n%reload_ext json")  # what others leave behind
    before = shell.value(TRACES)
    assert "comm_manager" not in before and "plan" not in before
    shell.run("%load_ext nbagent")
    shell.run("%reload_ext nbagent")
    done = shell.run("%%plan\ngo", person=Clicker(ask=once, review=verdict("build")))
    assert done.status == "ok" and (project.root / "x").exists()
    shell.run("%unload_ext nbagent")
    assert shell.value(TRACES) == before


def test_help_is_where_ipython_keeps_it(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([]))
    shell = kernel()
    for code, words in (("%agent?", "%agent COMMAND"), ("%%plan?", "--quick"), ("?%%build", "--approve-headless")):
        reply = shell.run(code).reply["content"]
        assert words in reply["payload"][0]["data"]["text/plain"], code


def test_what_a_page_says_wrongly_is_told_and_can_be_said_again(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([python("x"), [say("hi")]]))
    shell = kernel()
    told: list[int] = []

    def person(page: Page) -> None:
        if not page.open or told:
            return
        told.append(1)
        item = page.open[0]
        assert item["permission"] == "python" and "open('x', 'w')" in item["preview"]["text"], item
        wrongs: list[dict[str, Any]] = [{"answer": "perhaps"}, {"remember": 7}, {"feedback": {}}, {"kind": "verdict"}]
        for wrong in (*wrongs, {"id": ["x"]}):
            page.send(**{**once(item), **wrong})
        page.send(kind="fetch", id=[{}])
        page.send(kind=["?"])
        page.send(**once(item))

    done = shell.run("%%build\ngo", person=person)
    assert done.status == "ok" and (project.root / "x").exists(), done.text
    (page,) = shell.pages.values()
    refused = [message["error"] for message in page.got if message["kind"] == "refused"]
    assert len(refused) == 5 and all(refused), page.got


def test_a_root_that_is_too_wide_is_refused_before_anything_is_sent(
    project: Project, server: Start, kernel: Begin
) -> None:
    project.use(model := server([]))
    for folder in ("/", str(project.user_home)):
        shell = kernel(load=False)
        shell.run(f"import os; os.chdir({folder!r})")
        shell.run("%load_ext nbagent")
        done = shell.run("%%build\ngo")
        assert done.status == "error" and "--root" in done.text, done.text
        assert shell.run("%agent doctor --offline").status == "ok"
    assert model.requests == []


def test_reloading_and_unloading(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([]))
    shell = kernel()
    assert shell.run("%reload_ext nbagent").outputs == []
    assert shell.run("%unload_ext nbagent").outputs == []
    done = shell.run("%%plan\nx")
    assert done.status == "error" and "not found" in done.text
    assert shell.run("%load_ext nbagent").outputs == []
    assert "%agent status" in shell.run("%agent help").text


def test_names_that_are_taken(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([[say("hi")]]))
    shell = kernel(load=False)
    shell.run(
        "from IPython.core.magic import register_cell_magic\n@register_cell_magic\ndef plan(line, cell): print('theirs')"
    )
    told = shell.run("%load_ext nbagent")
    assert "%%nbplan" in told.text and told.status == "ok"
    assert "theirs" in shell.run("%%plan\nx").text
    assert shell.run("%%nbbuild\nhello").of("text")[0]["text"] == "hi"
