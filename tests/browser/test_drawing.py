"""The drawing in a real JupyterLab: as the record's renderer and as the live widget, driven with records made by hand."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ROOT, Lab

RECORDS = ROOT / "tests" / "data" / "records"
MIME = "application/vnd.nbagent.record+json"


def record(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text())
    return value


def show(name: str) -> str:
    path = RECORDS / f"{name}.json"
    return f"""
import json
from IPython.display import display
record = json.load(open({str(path)!r}))
display({{{MIME!r}: record, "text/plain": "a record"}}, raw=True)
"""


def widget(name: str) -> str:
    """A cell that shows the live view with a record, and lists what the page sends in ``got``."""
    script = ROOT / "nbagent" / "notebook" / "static" / "view.js"
    return f"""
import asyncio, json, anywidget, traitlets
class View(anywidget.AnyWidget):
    _esm = open({str(script)!r}).read()
    record = traitlets.Dict().tag(sync=True)
    mount = traitlets.Int(0).tag(sync=True)
got = []
view = View(record=json.load(open({str(RECORDS / f"{name}.json")!r})))
view.on_msg(lambda widget, content, buffers: got.append(content))
view
"""


def got(lab: Lab, index: int) -> list[dict[str, Any]]:
    """What the widget's cell has got so far, read by running the cell at ``index`` (``print(json.dumps(got))``)."""
    lab.run(index)
    messages: list[dict[str, Any]] = json.loads(lab.outputs(index)[0]["text"])
    return messages


def sent(lab: Lab, index: int) -> list[dict[str, Any]]:
    """All that was sent until now. A view that waits says every two seconds that it is seen, over the same way and in
    order: one such message may be under way now, the second from now was sent after all that is looked for."""

    def beats() -> int:
        return sum(message["kind"] == "alive" for message in got(lab, index))

    enough = beats() + 2
    lab.comes_to(lambda: beats() >= enough, True)
    return [message for message in got(lab, index) if message["kind"] != "alive"]


PRINT = "print(json.dumps(got))"


def test_record_is_drawn(lab: Lab) -> None:
    lab.server.notebook("record.ipynb", [show("done")])
    lab.open("record.ipynb")
    lab.run(0)
    drawing = lab.drawing(0)
    expect(drawing.locator(".nba-badge").first).to_have_text("BUILD", use_inner_text=True)
    expect(drawing).to_contain_text("Read 2 files, searched once", use_inner_text=True)
    refused = drawing.locator("[data-state=refused]")
    expect(refused).to_contain_text("edit *: deny (floor)", use_inner_text=True)
    drawing.get_by_text("2 files changed", exact=True).wait_for()
    drawing.locator(".nba-file summary").first.click()
    expect(drawing.locator(".nba-file .nba-row-add")).to_have_count(5)
    expect(drawing.locator("button", has_text="Approve")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["review", "asks", "done"])
def test_accessible_in_both_themes(lab: Lab, name: str, theme: str) -> None:
    lab.server.notebook(f"{name}-{theme}.ipynb", [show("done") if name == "done" else widget(name)])
    lab.theme(theme)
    lab.open(f"{name}-{theme}.ipynb")
    lab.run(0)
    lab.drawing(0).wait_for()
    assert lab.axe(".jp-Notebook .nba") == []
    lab.shot(f"{name}-{theme}")


def test_narrow(lab: Lab) -> None:
    lab.theme("light")
    lab.server.notebook("narrow.ipynb", [widget("review")])
    lab.page.set_viewport_size({"width": 520, "height": 900})
    try:
        lab.open("narrow.ipynb")
        lab.run(0)
        drawing = lab.drawing(0)
        drawing.get_by_role("button", name="Approve and build").wait_for()
        lab.comes_to(lambda: drawing.evaluate("element => element.scrollWidth <= element.clientWidth"), True)
        assert lab.axe(".jp-Notebook .nba") == []
        lab.shot("narrow")
    finally:
        lab.page.set_viewport_size({"width": 1180, "height": 900})


def test_click_reaches_the_kernel_once(lab: Lab) -> None:
    lab.server.notebook("click.ipynb", [widget("review"), PRINT])
    lab.open("click.ipynb")
    lab.run(0)
    button = lab.drawing(0).get_by_role("button", name="Approve and build")
    button.click()
    # seen at once, and locked against a second press
    lab.drawing(0).get_by_text("Sen").first.wait_for(timeout=1000)
    expect(button).to_be_disabled()
    assert sent(lab, 1) == [
        {
            "kind": "verdict",
            "id": "rv1",
            "hash": "h1",
            "action": "build",
            "text": record("review")["items"][-1]["text"],
            "comment": "",
        }
    ]


def test_editing_the_plan_never_approves(lab: Lab) -> None:
    lab.server.notebook("edit.ipynb", [widget("review"), PRINT])
    lab.open("edit.ipynb")
    lab.run(0)
    drawing = lab.drawing(0)
    drawing.get_by_role("tab", name="Edit").click()
    editor = drawing.get_by_role("textbox", name="The plan, as Markdown")
    editor.click()
    lab.page.keyboard.press("Control+End")
    lab.page.keyboard.type("4. And write it down.")
    lab.page.keyboard.press("Enter")
    lab.page.keyboard.press("Control+Enter")
    lab.page.keyboard.press("Shift+Enter")
    lab.page.keyboard.type("1dd1")
    # the last keys came after those that decide elsewhere
    expect(editor).to_have_value(re.compile(r"4\. And write it down\.\n[\s\S]*1dd1"))
    expect(drawing.get_by_text("edited by you")).to_be_visible()
    lab.settle()
    assert len(lab.sources()) == 2, "keys went to the notebook"
    assert sent(lab, 1) == []
    lab.page.keyboard.press("Escape")
    drawing.get_by_role("button", name="Approve, build later").click()
    (verdict,) = sent(lab, 1)
    assert verdict["action"] == "later"
    assert "4. And write it down." in verdict["text"]


def test_keys_decide_an_ask(lab: Lab) -> None:
    lab.server.notebook("keys.ipynb", [widget("asks"), PRINT])
    lab.open("keys.ipynb")
    lab.run(0)
    drawing = lab.drawing(0)
    lab.page.wait_for_function("document.activeElement?.closest('.nba-ask')")
    lab.page.wait_for_timeout(600)  # keys are dead for the first half second: what was being typed is no answer
    lab.page.keyboard.press("3")
    drawing.get_by_text("Sen").first.wait_for(timeout=1000)
    assert sent(lab, 1) == [
        {"kind": "reply", "id": "k1", "answer": "reject", "feedback": "", "remember": None, "save": False}
    ]


FAILED_IMAGE = """() => new Promise(resolve => {
  const image = new Image();
  image.onerror = () => resolve(true);
  image.src = 'x?last';
})"""


def test_hostile_text_stays_text(lab: Lab) -> None:
    evil = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script> [a](javascript:window.pwned=1) ![b](https://127.0.0.1:1/x.png)"
    source = (
        show("done")
        + f"""
for item in record["items"]:
    for key, value in item.items():
        if isinstance(value, str) and key not in ("id", "kind", "parent", "state", "reply", "status", "effect"):
            item[key] = {evil!r}
for name in record["head"]:
    if isinstance(record["head"][name], str): record["head"][name] = {evil!r}
record["receipt"]["line"] = {evil!r}
record["receipt"]["files"][0]["path"] = {evil!r}
display({{{MIME!r}: record, "text/plain": "a record"}}, raw=True)
"""
    )
    lab.server.notebook("hostile.ipynb", [source])
    lab.open("hostile.ipynb")
    lab.run(0)
    drawing = lab.drawing(0)
    expect(drawing).to_contain_text("onerror", use_inner_text=True)
    closed = drawing.locator("details:not([open]) > summary:visible")
    for _ in range(100):
        # what an opened part shows is drawn after the click, and may have parts of its own
        lab.settle()
        if closed.count() == 0:
            break
        closed.first.click()
    expect(closed).to_have_count(0)
    expect(drawing.locator("details[open]").first).to_be_attached()
    expect(drawing.locator("img, script, iframe")).to_have_count(0)
    expect(drawing.locator("a[href^='javascript']")).to_have_count(0)
    # an image that fails tells so later: when one that is begun now has told, all of before have
    lab.page.evaluate(FAILED_IMAGE)
    assert lab.page.evaluate("window.pwned") is None


LATER = """
async def appear():
    await asyncio.sleep(1.0)
    view.record = {**view.record, "state": "waiting", "items": waiting}
waiting = view.record["items"]
view.record = {**view.record, "state": "running", "items": waiting[:3]}
task = asyncio.ensure_future(appear())
"""


def test_whoever_types_elsewhere_keeps_the_focus_and_decides_nothing(lab: Lab) -> None:
    lab.server.notebook("typing.ipynb", [widget("review"), LATER, "", PRINT])
    lab.open("typing.ipynb")
    lab.run(0)
    lab.run(1)
    lab.drawing(0).get_by_role("button", name="Approve and build").wait_for(state="detached")
    lab.cell(2).locator(".cm-content").click()
    lab.cursor(2)
    typed = ""
    for n in range(30):
        digit = str(1 + n % 4)
        lab.page.keyboard.type(digit)
        lab.page.keyboard.press("Enter")
        typed += digit + "\n"
        lab.page.wait_for_timeout(80)
    lab.drawing(0).get_by_role("button", name="Approve and build").wait_for()
    lab.comes_to(lambda: lab.sources()[2].replace(" ", ""), typed)
    lab.page.keyboard.press("Escape")
    assert sent(lab, 3) == []


def test_nothing_moves_for_people_who_ask_for_less_motion(lab: Lab) -> None:
    lab.server.notebook("still.ipynb", [widget("asks")])
    lab.open("still.ipynb")
    lab.run(0)
    moving = """() => Array.from(document.querySelectorAll('.jp-Notebook .nba *'))
      .filter(element => getComputedStyle(element).animationName !== 'none').length"""
    lab.drawing(0).locator(".nba-spinner").first.wait_for(state="attached")
    lab.comes_to(lambda: lab.page.evaluate(moving) > 0, True)
    lab.page.emulate_media(reduced_motion="reduce")
    try:
        lab.comes_to(lambda: lab.page.evaluate(moving), 0)
    finally:
        lab.page.emulate_media(reduced_motion="no-preference")
