"""One server, one browser, one page for the whole session: a page costs many seconds, a notebook in it few.

Run these in a pytest process of their own: Playwright's loop and ``asyncio.run`` of other tests do not go together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, expect, sync_playwright

from tests.browser.lab import CHROMIUM, PATIENCE_SECONDS, ROOT, Lab, Server

expect.set_options(timeout=PATIENCE_SECONDS * 1000)

FAILED = pytest.StashKey[bool]()
NO_BROWSER = """No Chromium can be started, so nothing of JupyterLab is tested. Install one: `apt-get install chromium` (Debian),
or `.venv/bin/python -m playwright install --with-deps chromium`, or name one with NBAGENT_CHROMIUM."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    for asset in ("nbagent/labextension/static/style.js", "nbagent/notebook/static/view.js"):
        if not (ROOT / asset).is_file():
            pytest.fail(f"{asset} is not built: run `jlpm install && jlpm build` in labextension/")
    server = Server(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium of the system, or the one that Playwright installed."""
    program = os.environ.get("NBAGENT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM))
        except Error as error:
            pytest.fail(f"{NO_BROWSER}\n{str(error)[:400]}", pytrace=False)
        yield found
        found.close()


@pytest.fixture(scope="session")
def lab_page(lab_server: Server, browser: Browser) -> Iterator[Lab]:
    page = browser.new_page(viewport={"width": 1180, "height": 900})
    page.set_default_timeout(20_000)
    yield Lab(lab_server, page)
    page.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def lab(lab_page: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The page, with nothing open; at the end everything is closed and no script error may have come up.

    What a failed test saw is in test-output/.
    """
    lab_page.errors.clear()
    yield lab_page
    if request.node.stash.get(FAILED, False):
        lab_page.shot(f"failed-{request.node.name}".replace("/", "-"))
    lab_page.close()
    assert lab_page.errors == []
