"""A saved notebook away from Jupyter: nbconvert's page without scripts and without a network, and on paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter, PDFExporter
from playwright.sync_api import Browser, Page, expect

from nbagent.notebook.record import mimebundle
from tests.browser.test_drawing import record

RECEIPT = "2 files changed"


@pytest.fixture
def saved() -> Any:
    """A notebook with the record of a run that is done, saved as Jupyter saves it."""
    bundle = mimebundle(record("done"))
    output = nbformat.v4.new_output("display_data", data=bundle)
    cell = nbformat.v4.new_code_cell("%%build\nfix it", outputs=[output], execution_count=1)
    value = nbformat.v4.new_notebook(cells=[cell])
    nbformat.validate(value)
    return nbformat.reads(nbformat.writes(value), 4)


@pytest.fixture
def paper(browser: Browser) -> Iterator[Page]:
    """A page of a browser that runs no script and reaches no network."""
    context = browser.new_context(java_script_enabled=False, offline=True, viewport={"width": 1000, "height": 800})
    yield context.new_page()
    context.close()


def test_as_a_page_without_scripts_and_network(paper: Page, saved: Any, tmp_path: Path) -> None:
    text, _ = HTMLExporter().from_notebook_node(saved)
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    paper.goto((tmp_path / "a.html").as_uri(), wait_until="domcontentloaded")
    ours = paper.locator(".jp-OutputArea-output")
    expect(ours).to_contain_text("BUILD", use_inner_text=True)
    assert RECEIPT in saved.cells[0].outputs[0].data["text/plain"]
    expect(ours).to_contain_text(saved.cells[0].outputs[0].data["text/plain"].splitlines()[-1], use_inner_text=True)
    expect(ours.locator("script, style, iframe, object")).to_have_count(0)
    ours.locator("details > summary").first.click()
    expect(ours.locator("details[open]").first).to_be_attached()
    box = ours.bounding_box()
    assert box is not None
    assert box["height"] > 100


def test_as_markdown(saved: Any) -> None:
    text, _ = MarkdownExporter().from_notebook_node(saved)
    assert saved.cells[0].outputs[0].data["text/plain"].splitlines()[-1] in text


def test_as_a_pdf_that_chromium_prints(paper: Page, saved: Any, tmp_path: Path) -> None:
    text, _ = HTMLExporter().from_notebook_node(saved)
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    paper.goto((tmp_path / "a.html").as_uri(), wait_until="domcontentloaded")
    printed = paper.pdf()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 10_000


def test_as_a_pdf_that_latex_sets(saved: Any) -> None:
    for program in ("xelatex", "pandoc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there")
    printed, _ = PDFExporter().from_notebook_node(saved)
    assert printed.startswith(b"%PDF")
