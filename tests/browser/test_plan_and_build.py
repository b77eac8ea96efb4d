"""The whole path in a real JupyterLab: a plan cell plans, is stopped where it must be, is approved with a click, and builds."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab, Server
from tests.server import ScriptedServer, call, content_text, say, think

PLAN = """# Count every order

`load_orders` drops each row that has *any* missing value, and the week is taken from the server's clock, so orders of a
Sunday evening land in the wrong week.

## Steps

1. `src/report.py`: keep rows without an amount and count them as 0.
2. `src/report.py`: take the week in the shop's time zone.

```python
local = orders["time"].dt.tz_convert("Europe/Berlin")
```

## Verification

Run `pytest -q`; the total must be that of `data/orders.csv`.
"""

REPORT = """import pandas as pd


def load_orders(path: str) -> pd.DataFrame:
    orders = pd.read_csv(path, parse_dates=["time"])
    return orders.dropna()


def weekly_totals(orders: pd.DataFrame) -> pd.Series:
    week = orders["time"].dt.isocalendar().week
    return orders.groupby(week)["amount"].sum()
"""

BETTER = REPORT.replace("return orders.dropna()", 'return orders.fillna({"amount": 0.0})')
REST = (
    '    week = orders["time"].dt.isocalendar().week\n    return orders.groupby(week)',
    '    local = orders["time"].dt.tz_convert("Europe/Berlin")\n    return orders.groupby(local.dt.isocalendar().week)',
)


def plan_path(body: dict[str, Any]) -> str:
    """Where the model was told to write the plan."""
    text = "\n".join(content_text(message.get("content")) for message in body["messages"])
    found = re.findall(r"[^\s`]*\.nbagent/plans/[^\s`]+?\.md", text)
    assert found, text[-2000:]
    return str(found[-1])


def planner(text: str = PLAN) -> list[Any]:
    return [
        [
            think("The totals are too low: rows are lost somewhere."),
            say("I look at how the report reads its data, and at what it counts."),
            call("read", {"filePath": "src/report.py"}),
            call("read", {"filePath": "data/orders.csv"}),
            call("grep", {"pattern": "weekly_totals"}),
        ],
        [call("edit", {"filePath": "src/report.py", "oldString": "orders.dropna()", "newString": "orders"})],
        lambda body: [call("write", {"filePath": plan_path(body), "content": text})],
        [call("plan_exit", {})],
    ]


BUILDER: list[Any] = [
    [call("read", {"filePath": "src/report.py"})],
    [
        call(
            "edit",
            {
                "filePath": "src/report.py",
                "oldString": "return orders.dropna()",
                "newString": 'return orders.fillna({"amount": 0.0})',
            },
        )
    ],
    [call("edit", {"filePath": "src/report.py", "oldString": REST[0], "newString": REST[1]})],
    [say("Every order counts now, **in the shop's own week**.")],
]

Model = Callable[[list[Any]], ScriptedServer]


@pytest.fixture
def model() -> Iterator[Model]:
    started: list[ScriptedServer] = []

    def start(script: list[Any]) -> ScriptedServer:
        started.append(ScriptedServer(script))
        return started[-1]

    yield start
    for server in started:
        server.close()
    assert [text for server in started for text in server.violations] == []


def project(server: Server, name: str, model: ScriptedServer, cells: list[str]) -> Path:
    """A small project under version control, and a notebook in it that is set up for the model."""
    folder = server.files / name
    (folder / "src").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "src" / "report.py").write_text(REPORT)
    (folder / "data" / "orders.csv").write_text("time,amount\n2026-03-01T23:30:00Z,3.0\n2026-03-02T09:00:00Z,\n")
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    setup = (
        "import os\n"
        f"os.environ.update(OPENAI_BASE_URL={model.url!r}, OPENAI_API_KEY='sk-test', NBAGENT_MODEL='scripted')\n"
        "%load_ext nbagent"
    )
    server.notebook(f"{name}/work.ipynb", [setup, *cells])
    return folder


PROMPT = "%%plan\nThe weekly report misses orders. Find out **why**, and plan the fix."


def test_plan_approve_build(lab: Lab, model: Model) -> None:
    lab.theme("light")
    folder = project(lab.server, "shop", model([*planner(), *BUILDER]), [PROMPT])
    lab.open("shop/work.ipynb")
    lab.run(0)
    lab.start(1)
    drawing = lab.drawing(1)
    approve = drawing.get_by_role("button", name="Approve and build")
    approve.wait_for(timeout=60_000)
    expect(drawing.locator(".nba-badge").first).to_have_text("PLAN", use_inner_text=True)
    expect(drawing.locator("[data-state=refused]").first).to_contain_text("deny", use_inner_text=True)
    assert (folder / "src" / "report.py").read_text() == REPORT
    assert lab.axe(".jp-Notebook .nba") == []
    picture(lab, "shop-review-light")
    lab.theme("dark")
    picture(lab, "shop-review-dark")
    lab.theme("light")
    approve.click()
    for _ in range(4):
        answer_asks(lab, 1)
    lab.wait_end(1)
    text = (folder / "src" / "report.py").read_text()
    assert 'fillna({"amount": 0.0})' in text
    assert "tz_convert" in text
    # the record stands where the view was
    done = lab.drawing(1)
    done.locator(".nba-receipt").get_by_text("src/report.py").first.wait_for()
    expect(done.get_by_role("button", name="Approve and build")).to_have_count(0)
    (output,) = [output for output in lab.outputs(1) if "application/vnd.nbagent.record+json" in output.get("data", {})]
    record = output["data"]["application/vnd.nbagent.record+json"]
    assert [file["path"] for file in record["receipt"]["files"] if not file["path"].startswith(".nbagent")] == [
        "src/report.py"
    ]
    done.locator(".nba-tool-frame summary").last.click()
    picture(lab, "shop-done-light", "end")
    lab.theme("dark")
    picture(lab, "shop-done-dark", "end")
    lab.theme("light")
    lab.save()
    saved = lab.server.saved("shop/work.ipynb")
    assert "widget" not in str(saved.metadata)
    for cell in saved.cells:
        for out in cell.get("outputs", []):
            assert "application/vnd.jupyter.widget-view+json" not in out.get("data", {})


def answer_asks(lab: Lab, index: int) -> None:
    """Allows what is asked until the cell has ended or asks no more."""
    allow = lab.cell(index).get_by_role("button", name="Allow once").first
    lab.page.wait_for_function(
        """index => window.__ended[index] || Array.from(document.querySelectorAll('.nba-ask.nba-open:not([aria-busy=true]) button'))
          .some(button => button.textContent.startsWith('Allow once') && !button.disabled)""",
        arg=index,
        timeout=60_000,
    )
    if not lab.page.evaluate("index => window.__ended[index]", index):
        allow.click()
        lab.page.wait_for_function(
            "index => window.__ended[index] || !document.querySelector('.nba-ask.nba-open')", arg=index, timeout=30_000
        )


def picture(lab: Lab, name: str, block: str = "start") -> None:
    """A screenshot of the notebook with the side bar away; ``block``: which end of the plan cell is in sight."""
    lab.page.evaluate(
        """block => {
          const app = window.jupyterapp;
          app.shell.collapseLeft?.();
          const panel = app.shell.currentWidget;
          panel.content.widgets[1]?.node.scrollIntoView({block});
          return new Promise(resolve => setTimeout(resolve, 300));
        }""",
        block,
    )
    lab.page.mouse.move(600, 885)
    lab.shot(name)


def test_approve_and_build_later(lab: Lab, model: Model) -> None:
    folder = project(lab.server, "later", model([*planner(), *BUILDER]), [PROMPT])
    lab.open("later/work.ipynb")
    lab.run(0)
    lab.start(1)
    drawing = lab.drawing(1)
    drawing.get_by_role("button", name="Approve, build later").click(timeout=60_000)
    lab.wait_end(1)
    lab.comes_to(lambda: lab.sources()[2:3], ["%%build"])
    assert (folder / "src" / "report.py").read_text() == REPORT
    lab.start(2)
    for _ in range(4):
        answer_asks(lab, 2)
    lab.wait_end(2)
    assert "tz_convert" in (folder / "src" / "report.py").read_text()


def test_keep_planning_shows_what_changed(lab: Lab, model: Model) -> None:
    better = PLAN.replace("count them as 0", "count them as 0, and say how many")
    script = [
        *planner(),
        lambda body: [call("write", {"filePath": plan_path(body), "content": better})],
        [call("plan_exit", {})],
        [say("Then not.")],
    ]
    project(lab.server, "again", model(script), [PROMPT])
    lab.open("again/work.ipynb")
    lab.run(0)
    lab.start(1)
    drawing = lab.drawing(1)
    revise = drawing.get_by_role("button", name="Keep planning")
    revise.wait_for(timeout=60_000)
    drawing.get_by_role("textbox", name="Comment that goes with the decision").fill("Say how many.")
    revise.click()
    changes = drawing.get_by_role("tab", name="Changes since the last version")
    changes.wait_for(timeout=60_000)
    changes.click()
    expect(drawing.locator(".nba-open .nba-row-add").last).to_contain_text("say how many", use_inner_text=True)
    drawing.locator(".nba-open").get_by_role("button", name="Reject").click()
    lab.wait_end(1)


def test_stop_while_it_waits(lab: Lab, model: Model) -> None:
    project(lab.server, "stopped", model(planner()), [PROMPT, "print('next')"])
    lab.open("stopped/work.ipynb")
    lab.run(0)
    lab.start(1)
    drawing = lab.drawing(1)
    drawing.get_by_role("button", name="Approve and build").wait_for(timeout=60_000)
    drawing.get_by_role("button", name="Stop").click()
    lab.wait_end(1, 15)
    lab.drawing(1).locator(".nba-receipt").wait_for()
    expect(lab.drawing(1).get_by_role("button", name="Approve and build")).to_have_count(0)
    lab.run(2)
    assert lab.outputs(2)[0]["text"] == "next\n"


def focused(lab: Lab, selector: str) -> bool:
    """Whether the focus is in, or on, what ``selector`` matches."""
    found: bool = lab.page.evaluate("selector => document.activeElement?.closest(selector) !== null", selector)
    return found


def test_all_of_it_by_keyboard_and_back_where_one_was(lab: Lab, model: Model) -> None:
    folder = project(lab.server, "keys", model([*planner(), *BUILDER]), [PROMPT])
    (folder / "nbagent.toml").write_text('[permission]\nedit = "ask"\n')
    lab.open("keys/work.ipynb")
    lab.run(0)
    lab.start(1)
    drawing = lab.drawing(1)
    for name, key in (("Approve and build", "1"), ("Allow once", "1"), ("Allow once", "Enter")):
        open_card = drawing.locator(".nba-open:not([aria-busy=true])")
        open_card.get_by_role("button", name=name).wait_for(timeout=60_000)
        lab.comes_to(lambda: focused(lab, ".nba-open"), True)
        was = drawing.locator(".nba-ask:not(.nba-open)").count()
        lab.page.keyboard.press(key)  # too soon: it decides nothing
        lab.page.wait_for_timeout(600)
        assert drawing.locator(".nba-ask:not(.nba-open)").count() == was
        lab.page.keyboard.press(key)
        lab.comes_to(lambda was=was: drawing.locator(".nba-ask:not(.nba-open)").count(), was + 1)  # type: ignore[misc]
    lab.wait_end(1)
    assert "tz_convert" in (folder / "src" / "report.py").read_text()
    lab.comes_to(lambda: focused(lab, ".jp-Cell") and not focused(lab, ".nba"), True)


def test_a_restarted_kernel_leaves_a_record_and_no_dead_view(lab: Lab, model: Model) -> None:
    project(lab.server, "restarted", model(planner()), [PROMPT])
    lab.open("restarted/work.ipynb")
    lab.run(0)
    lab.start(1)
    lab.drawing(1).get_by_role("button", name="Approve and build").wait_for(timeout=60_000)
    lab.save()
    lab.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart().then(() => true)"
    )
    lab.drawing(1).locator(".nba-receipt").get_by_text("the kernel was stopped").wait_for()
    expect(lab.drawing(1).locator(".nba-open, .nba-spinner, .nba-stop:visible")).to_have_count(0)
    assert "application/vnd.nbagent.record+json" in lab.outputs(1)[0]["data"]
    # it was saved while the run went on: whoever opens it finds a sentence, not a widget without a model
    lab.close()
    lab.open("restarted/work.ipynb")
    lab.comes_to(lambda: list(lab.outputs(1)[0]["data"]), ["text/plain"])


def test_an_output_that_is_cleared_comes_back_and_can_be_answered(lab: Lab, model: Model) -> None:
    project(lab.server, "cleared", model(planner()), [PROMPT])
    lab.open("cleared/work.ipynb")
    lab.run(0)
    lab.start(1)
    approve = lab.drawing(1).get_by_role("button", name="Approve, build later")
    approve.wait_for(timeout=60_000)
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('notebook:clear-cell-output').then(() => true)",
    )
    approve.wait_for(state="detached")
    approve.dblclick()
    lab.wait_end(1)
    (output,) = lab.outputs(1)
    (review,) = [i for i in output["data"]["application/vnd.nbagent.record+json"]["items"] if i["kind"] == "review"]
    assert review["action"] == "later"


def test_a_review_survives_a_reload_of_the_page(lab: Lab, model: Model) -> None:
    folder = project(lab.server, "reloaded", model([*planner(), *BUILDER]), [PROMPT])
    lab.open("reloaded/work.ipynb")
    lab.run(0)
    lab.start(1)
    lab.drawing(1).get_by_role("button", name="Approve and build").wait_for(timeout=60_000)
    lab.save()
    lab.page.reload(wait_until="domcontentloaded")
    lab.ready()
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('docmanager:open', {path: 'reloaded/work.ipynb'}).then(() => true)"
    )
    lab.drawing(1).get_by_role("button", name="Approve and build").click(timeout=60_000)
    lab.drawing(1).locator(".nba-receipt").get_by_text("src/report.py").first.wait_for(timeout=60_000)
    assert "tz_convert" in (folder / "src" / "report.py").read_text()
    expect(lab.drawing(1).get_by_role("button", name="Approve and build")).to_have_count(0)
    # what is saved reads without the extension, as if the page had been there from the start
    lab.comes_to(lambda: {"text/html", "text/markdown"} <= set(lab.outputs(1)[0]["data"]), True)
    assert lab.outputs(1)[0]["data"]["text/plain"].splitlines()[-1].startswith("2 files changed")


def test_what_a_person_types_in_a_tab_is_never_overwritten(lab: Lab, model: Model) -> None:
    script = [
        [call("read", {"filePath": "src/report.py"})],
        [call("edit", {"filePath": "src/report.py", "oldString": "orders.dropna()", "newString": "orders"})],
        [say("It is open with unsaved changes.")],
    ]
    folder = project(lab.server, "typed", model(script), ["%%build\nfix it"])
    lab.open("typed/work.ipynb")
    lab.run(0)
    lab.type_in_file("typed/src/report.py", "# mine\n")
    lab.page.evaluate(
        "() => window.jupyterapp.commands.execute('docmanager:open', {path: 'typed/work.ipynb'}).then(() => true)"
    )
    lab.page.wait_for_function("() => window.jupyterapp.shell.currentWidget.context.path === 'typed/work.ipynb'")
    lab.run(1)
    assert (folder / "src" / "report.py").read_text() == REPORT
    record = lab.outputs(1)[0]["data"]["application/vnd.nbagent.record+json"]
    (edit,) = [item for item in record["items"] if item.get("name") == "edit"]
    assert edit["state"] == "error"
    assert "unsaved changes" in edit["error"]


def test_the_agent_edits_the_open_notebook(lab: Lab, model: Model) -> None:
    operations = [{"op": "insert", "after": "cell-2", "cell_type": "markdown", "source": "# Findings"}]
    script = [
        [call("notebook_read", {})],
        [call("notebook_edit", {"operations": operations})],
        [say("A heading stands below.")],
    ]
    project(lab.server, "cells", model(script), ["%%build\nadd a heading", "x = 1"])
    lab.open("cells/work.ipynb")
    lab.run(0)
    lab.start(1)
    for _ in range(2):
        answer_asks(lab, 1)
    lab.wait_end(1)
    lab.comes_to(lambda: lab.sources()[2:], ["x = 1", "# Findings"])
    assert len(lab.server.saved("cells/work.ipynb").cells) == 3
