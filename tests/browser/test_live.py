"""The link of an open notebook to its kernel, and edits of the document while a cell runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab

LOAD = """%load_ext nbagent
import asyncio, json, threading, time
from nbagent.notebook import live
shell = get_ipython()
link = live.install(shell)
def here():
    session, cell = live.running_page(shell)
    return live.LiveNotebook(link, session, cell)
async def linked(notebook):
    for _ in range(200):
        if notebook.connected:
            return notebook
        await asyncio.sleep(0.05)
    raise RuntimeError("no page came")
def elsewhere(work):
    "Run a coroutine function on a loop of its own, as a run does."
    box = []
    def main():
        try:
            box.append(asyncio.run(work()))
        except Exception as error:
            box.append(f"{type(error).__name__}: {error}")
    thread = threading.Thread(target=main)
    thread.start()
    return thread, box
"""

ASYNC = "notebook = await linked(here())\nresult = await notebook.{call}\nprint(result)"
# the cell blocks the main shell: answers can only come over the link's own subshell
BLOCKING = """notebook = here()
async def work():
    await linked(notebook)
    return await notebook.{call}
thread, box = elsewhere(work)
thread.join(20)
print(box)"""


def text(lab: Lab, index: int) -> str:
    return "".join(str(output.get("text", output.get("evalue", ""))) for output in lab.outputs(index))


@pytest.mark.parametrize("kind", [ASYNC, BLOCKING], ids=["awaiting", "blocking"])
def test_cells_change_while_a_cell_runs(lab: Lab, kind: str) -> None:
    operations = [
        {"op": "insert", "after": "cell-1", "source": "answer = 42", "cell_type": "code", "new_id": "fresh"},
        {"op": "replace", "id": "cell-2", "expected": "old = 1", "source": "old = 2"},
    ]
    call = f"apply({operations!r})"
    name = "live-blocking.ipynb" if kind is BLOCKING else "live-awaiting.ipynb"
    lab.server.notebook(name, [LOAD, kind.format(call=call), "old = 1"])
    lab.open(name)
    lab.run(0)
    lab.page.evaluate(
        # unsaved work of the person
        """() => window.jupyterapp.shell.currentWidget.context.model.sharedModel.getCell(2).setSource('old = 1')"""
    )
    lab.run(1)
    assert "new_ids=('fresh',)" in text(lab, 1)
    lab.comes_to(lambda: lab.sources()[2:], ["answer = 42", "old = 2"])
    # nothing went through the file
    assert [cell.source for cell in lab.server.saved(name).cells][2:] == ["old = 1"]
    lab.page.evaluate("() => window.jupyterapp.commands.execute('notebook:undo-cell-action').then(() => true)")
    lab.comes_to(lambda: "answer = 42" in lab.sources(), False)


def test_refusals_change_nothing(lab: Lab) -> None:
    stale = [
        {"op": "insert", "at": "end", "source": "x"},
        {"op": "replace", "id": "cell-2", "expected": "was", "source": "y"},
    ]
    own = [{"op": "delete", "id": "cell-3"}]
    lab.server.notebook(
        "refused.ipynb", [LOAD, ASYNC.format(call=f"apply({stale!r})"), "is = 1", ASYNC.format(call=f"apply({own!r})")]
    )
    lab.open("refused.ipynb")
    lab.run(0)
    before = lab.sources()
    lab.run(1)
    assert "changed since it was read" in text(lab, 1)
    lab.run(3)
    assert "runs now" in text(lab, 3)
    assert lab.sources() == before


def test_unsaved_documents_are_known(lab: Lab) -> None:
    (lab.server.files / "notes.txt").write_text("saved\n")
    lab.server.notebook("dirty.ipynb", [LOAD, "await linked(here())", "print(json.dumps(here().open_paths()))"])
    lab.open("dirty.ipynb")
    lab.run(0)
    lab.run(1)
    lab.type_in_file("notes.txt", "typed, not saved")
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('docmanager:open', {path: 'dirty.ipynb'}).then(() => true)"
    )
    lab.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.context.path === 'dirty.ipynb'")

    def known() -> bool:
        lab.run(2)
        return str(lab.server.files / "notes.txt") in json.loads(text(lab, 2))

    # the page tells it over a way of its own, which a cell that runs does not wait for
    lab.comes_to(known, True)


def test_linked_again_after_a_restart(lab: Lab) -> None:
    lab.server.notebook("restart.ipynb", [LOAD, ASYNC.format(call="cells()")])
    lab.open("restart.ipynb")
    for _ in range(2):
        lab.run(0)
        lab.run(1)
        assert "cell-1" in text(lab, 1)
        lab.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel().then(() => true)")
        lab.page.wait_for_function(
            """() => {
              const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel;
              return kernel?.status === 'idle' && kernel.connectionStatus === 'connected';
            }"""
        )


def test_kernels_without_nbagent_hear_nothing(lab: Lab) -> None:
    lab.server.notebook("without.ipynb", ["print(sorted(get_ipython().kernel.comm_manager.comms))"])
    lab.open("without.ipynb")
    messages: list[Any] = []
    lab.page.expose_function("__heard", lambda pair: messages.append(pair))
    lab.page.evaluate(
        """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.anyMessage.connect((_, {msg}) => {
          if (msg.header.msg_type.startsWith('comm_')) {
            window.__heard([msg.header.msg_type, msg.content.target_name ?? '']);
          }
        })"""
    )
    lab.run(0)
    # what was heard comes here in order
    lab.page.evaluate("() => window.__heard(['end', 'end'])")
    lab.comes_to(lambda: messages[-1:], [["end", "end"]])
    assert [kind for kind, target in messages if target == "nbagent"] == []
    assert text(lab, 0).strip() == "[]"


def test_prompt_cells_are_markdown(lab: Lab) -> None:
    lab.server.notebook("prompts.ipynb", ["%%plan\nMake it **good**", "x = 1", "# why\n%%build\n- one"])
    lab.open("prompts.ipynb")
    mimes = "() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.mimeType)"
    lab.comes_to(lambda: lab.page.evaluate(mimes), ["text/x-ipythongfm", "text/x-ipython", "text/x-ipythongfm"])
    expect(lab.cell(0).locator(".cm-line.nba-magic")).to_have_text("%%plan", use_inner_text=True)
    lab.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.context.model.sharedModel.getCell(0).setSource('y = 2')"
    )
    lab.page.wait_for_function(f"() => ({mimes})()[0] === 'text/x-ipython'")


def test_commands_put_cells_and_cursor(lab: Lab) -> None:
    lab.server.notebook("commands.ipynb", ["x = 1"])
    lab.open("commands.ipynb")
    lab.page.get_by_role("button", name="Plan", exact=True).click()
    lab.cursor(1)
    lab.page.keyboard.type("think")
    lab.comes_to(lab.sources, ["x = 1", "%%plan\nthink"])
    lab.page.keyboard.press("Escape")
    lab.page.keyboard.press("Alt+Shift+B")
    lab.cursor(2)
    lab.page.keyboard.type("act")
    lab.comes_to(lambda: lab.sources()[2:], ["%%build\nact"])


def test_build_cell_below_after_approval_for_later(lab: Lab) -> None:
    receipt = {"files": [], "notes": [], "reason": "approved", "line": "approved", "plan": "p.md"}
    record = {"version": 1, "state": "done", "head": {"badge": "PLAN"}, "items": [], "receipt": receipt}
    source = (
        f"from IPython.display import display\ndisplay({{'application/vnd.nbagent.record+json': {record!r}}}, raw=True)"
    )
    lab.server.notebook("later.ipynb", [source, "after = 1"])
    lab.open("later.ipynb")
    lab.run(0)
    lab.comes_to(lambda: lab.sources()[1:], ["%%build", "after = 1"])
    lab.run(0)
    lab.settle()
    assert len(lab.sources()) == 3
