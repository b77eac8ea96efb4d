"""Notebooks as they are saved: no widget, no comm where nobody is there, readable without a kernel, not growing."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterator
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter

from tests.kernel.kernel import RECORD, Clicker, Kernel, once, verdict
from tests.project import Project
from tests.server import Gate, ScriptedServer, call, hold, say
from tests.session.scripts import EXIT, PLAN, READ_MODEL, write_plan

Start = Callable[..., ScriptedServer]
Begin = Callable[[], Kernel]
HOSTILE = "Look: <img src=x onerror=alert(1)><script>alert(2)</script> [x](javascript:alert(3))"


def notebook(*cells: str) -> Any:
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    return made


def execute(project: Project, value: Any, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    for name, text in project.environment.items():
        monkeypatch.setenv(name, text)
    client = NotebookClient(value, timeout=60, resources={"metadata": {"path": str(project.root)}}, **more)
    client.execute()
    return value


def test_a_notebook_that_a_program_runs(project: Project, server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    project.use(server([[say(HOSTILE), *READ_MODEL], write_plan(PLAN + "\n" + HOSTILE), EXIT]))
    value = execute(project, notebook("%load_ext nbagent", "%%plan\nfix <b>recall</b>", "1 + 1"), monkeypatch)
    nbformat.validate(value)
    assert "widgets" not in value.metadata and value.cells[0].outputs == []
    (output,) = value.cells[1].outputs
    assert set(output.data) == {RECORD, "text/html", "text/markdown", "text/plain"}
    assert (
        output.data["text/plain"].splitlines()[-1].endswith("s")
        and "nothing else was written" in output.data["text/plain"]
    )
    page, _ = HTMLExporter().from_notebook_node(value)
    ours = page[page.index("PLAN</strong>") : page.index("nothing else was written")]
    assert "Fix recall" in ours and "&lt;img src=x onerror=alert(1)&gt;" in ours
    assert "<script" not in ours and "<img" not in ours and "javascript:" not in ours.replace("](javascript:", "")
    text, _ = MarkdownExporter().from_notebook_node(value)
    assert "Fix recall" in text


def test_a_program_is_told_what_went_wrong(project: Project, server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    project.use(server([]))
    value = notebook("%load_ext nbagent", "%%build --plan nope.md\n", "ran = 1")
    with pytest.raises(Exception, match=r"nope\.md") as caught:
        execute(project, value, monkeypatch)
    assert type(caught.value).__name__ == "CellExecutionError"
    assert "\n  File" not in str(caught.value) and value.cells[2].execution_count is None


def test_approving_where_nobody_is_must_be_asked_for_and_is_recorded(
    project: Project, server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit = [call("edit", {"filePath": "src/model.py", "oldString": "(tp + fp)", "newString": "(tp + fn)"})]
    project.use(server([write_plan(), EXIT, READ_MODEL, edit, [say("done")]]))
    value = notebook("%load_ext nbagent", "%%plan\nfix recall", "%%build --approve-headless\n")
    execute(project, value, monkeypatch)
    assert "no person looked at it" in value.cells[2].outputs[0].data["text/plain"]
    assert project.read("src/model.py").endswith("(tp + fn)\n")


def test_ten_runs_do_not_grow_a_notebook(project: Project, server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    project.use(server([[say("the same words")] for _ in range(10)]))
    value = notebook("%load_ext nbagent", *["%%build --new\ngo"] * 10)
    execute(project, value, monkeypatch)
    sizes = {len(json.dumps(cell.outputs)) for cell in value.cells[1:]}
    assert max(sizes) - min(sizes) < 60


def test_two_runs_differ_in_their_outputs_only_and_by_little(
    project: Project, server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbdime import diff_notebooks  # heavy, and wanted here alone

    steps = [READ_MODEL, [say("the same words")]]
    project.use(server([*steps, *steps]))
    made = notebook("%load_ext nbagent", "%%build --new\ngo")
    runs = [execute(project, copy.deepcopy(made), monkeypatch) for _ in range(2)]
    for run in runs:
        for cell in run.cells:
            cell.metadata.pop("execution", None)  # nbclient's own times
    assert {place[:3] for place in leaves(diff_notebooks(*runs))} <= {("cells", 1, "outputs")}
    texts = [nbformat.writes(run).splitlines() for run in runs]
    changed = [line for line in difflib.unified_diff(*texts, n=0) if line[:1] in "+-"]
    assert len(changed) < 40, changed


def leaves(changes: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places that nbdime's diff changes."""
    for step in changes:
        if step.op == "patch":
            yield from leaves(step.diff, (*above, step.key))
        else:
            yield (*above, step.key)


def test_fifty_cells_where_nobody_is_open_no_comm_and_hang_nowhere(
    project: Project, server: Start, kernel: Begin
) -> None:
    project.use(server([[say("hi")] for _ in range(50)]))
    shell = kernel()
    runs = [shell.run("%%build --new\ngo", stdin=False) for _ in range(50)]
    assert {run.status for run in runs} == {"ok"} and sum(run.count("comm_open") for run in runs) == 0


def test_many_tokens_make_few_messages(project: Project, server: Start, kernel: Begin) -> None:
    text = "word " * 20_000
    project.use(server([[say(text, size=5)]]))
    shell = kernel()
    done = shell.run("%%build\ngo", person=Clicker(), seconds=60)
    (page,) = shell.pages.values()
    size = sum(len(json.dumps(message["content"], default=str)) for message in done.messages)
    patches = [message for message in page.got if message["kind"] == "patch"]
    assert done.of("text")[0]["text"] == text
    assert size < 2_000_000 and len(patches) <= 20 * done.seconds + 5


def test_clicks_and_drawing_do_not_touch_a_figure(project: Project, server: Start, kernel: Begin) -> None:
    code = "import matplotlib.pyplot as plt\nfor n in range(40):\n    print(n)\n    plt.plot([n, n + 1])"
    steps = [[call("python", {"code": code, "description": "d"})], [say("done")]]
    project.use(server([*steps, *steps]))
    shell = kernel()

    def storm(page: Any) -> None:
        clicker(page)
        if len(page.got) < 200:
            page.send(kind="fetch", id="nothing")
            page.send(kind="reply", id="stale", answer="once")

    clicker = Clicker(ask=once)
    done = shell.run("%%build\ngo", person=storm)
    quiet = shell.run("%%build\ngo", person=Clicker(ask=once))
    assert done.status == quiet.status == "ok"
    (image,) = done.of("tool")[0]["images"]
    assert image == quiet.of("tool")[0]["images"][0], "drawn as without clicks"


def test_what_waits_can_be_answered_from_another_page(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([write_plan(), EXIT]))
    shell = kernel()
    moved: list[str] = []

    def person(page: Any) -> None:
        if page.open and not moved:
            page.send(kind="alive", seq=1)
            shell.make_subshell()
            message = shell.client.session.msg(
                "execute_request", {"code": "%agent pending", "silent": False, "allow_stdin": True}
            )
            message["header"]["subshell_id"] = shell.subshell
            shell.client.shell_channel.send(message)
            moved.append(page.comm_id)
        elif page.open and page.comm_id not in moved:
            item = page.open[0]
            moved.append(page.comm_id)
            page.send(**verdict("later")(item))

    done = shell.run("%%plan\nfix recall", person=person)
    assert done.status == "ok" and len(moved) == 2
    assert done.record["receipt"]["reason"] == "approved"


def test_a_page_that_goes_away_while_the_model_streams_harms_nothing(
    project: Project, server: Start, kernel: Begin
) -> None:
    gate = Gate()
    project.use(server([[say("one "), hold(gate), say("two")]]))
    shell = kernel()

    def person(page: Any) -> None:
        if any(item["kind"] == "text" for item in page.record["items"]) and not gate.is_open:
            message = shell.client.session.msg("comm_close", {"comm_id": page.comm_id, "data": {}})
            shell.client.shell_channel.send(message)
            gate.open()

    done = shell.run("%%build\ngo", person=person)
    assert done.status == "ok" and done.of("text")[0]["text"] == "one two"
