"""The side panel and the status bar, fed by what a notebook's run says."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.lab import Lab
from tests.browser.test_drawing import show
from tests.browser.test_live import ASYNC, LOAD


def test_plan_todo_files_and_cells(lab: Lab) -> None:
    operations = [{"op": "replace", "id": "cell-3", "source": "old = 2\nnew = 3"}]
    lab.server.notebook("panel.ipynb", [LOAD, show("done"), ASYNC.format(call=f"apply({operations!r})"), "old = 1"])
    lab.open("panel.ipynb")
    lab.run(0)
    lab.run(1)
    lab.run(2)
    status = lab.page.locator(".nba-StatusItem")
    expect(status).to_have_text("BUILD done · 21k tokens", use_inner_text=True)
    status.get_by_role("button").click()
    panel = lab.page.locator("#nbagent-panel")
    panel.get_by_text("Changed files").wait_for()
    headings = ["Plan", "Todo", "Changed files", "Changed cells"]
    expect(panel.get_by_role("heading", level=3)).to_have_text(headings, use_inner_text=True)
    expect(panel).to_contain_text(re.compile("make the weekly report", re.IGNORECASE), use_inner_text=True)
    panel.locator(".nba-file summary").first.click()
    expect(panel.locator(".nba-file .nba-row-add")).to_have_count(5)
    panel.locator(".nba-panel-section", has_text="Changed cells").locator("summary").click()
    expect(panel.get_by_text("new = 3")).to_be_visible()
    assert lab.axe("#nbagent-panel") == []
    lab.shot("panel")
    panel.get_by_role("button", name="Put back").click()
    panel.get_by_text("Put back.").wait_for()
    lab.comes_to(lambda: lab.sources()[3], "old = 1")
    lab.page.evaluate("() => window.jupyterapp.shell.collapseRight?.()")
