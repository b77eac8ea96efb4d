"""What an update of a long transcript costs the main thread of a browser page, in JupyterLab."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from bench.figure import Figure, Found, median

CLAIM = (
    "A transcript of 500 tool calls in Chromium (drawn without a graphics processor), scrolled to a new place each frame; then updates, "
    "ten a second, that each change one old call, add a new one or grow a text. Main-thread time is the browser's own count of task time "
    "(`Performance.getMetrics`)."
)
CHEAP = False
SECONDS = 240
SCROLL = """() => new Promise(resolve => {
  const scroll = document.querySelector('.jp-Notebook .nba-scroll');
  const frames = [];
  let last = performance.now();
  const step = now => {
    frames.push(now - last);
    last = now;
    scroll.scrollTop = (frames.length * 397) % scroll.scrollHeight;
    frames.length < 120 ? requestAnimationFrame(step) : resolve(frames.slice(1).sort((a, b) => a - b));
  };
  requestAnimationFrame(step);
})"""


def measure(quick: bool) -> Found:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return ["Playwright is not installed."]
    from tests.browser.lab import CHROMIUM, ROOT, Lab, Server
    from tests.browser.test_speed import CALLS, CELL

    if not (ROOT / "nbagent/labextension/static/style.js").is_file():
        return ["The extension is not built (`make setup`)."]
    updates = 10 if quick else 60
    cell = f"""
import threading, time
def feed():
    for n in range({updates}):
        view.send({{"kind": "patch", "seq": n, "head": {{"tokens": n}}, "items": [call(500 + n, "running"), call(n * 7 % 500)],
                   "append": {{}}}})
        view.send({{"kind": "patch", "seq": n, "items": [
            {{"id": "answer", "kind": "text", "parent": "", "text": "word " * n * 50}}]}})
        time.sleep(0.1)
    view.send({{"kind": "patch", "seq": 99, "state": "done"}})
feed()
"""
    program = os.environ.get("NBAGENT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    base = Path(tempfile.mkdtemp(prefix="nbagent-bench-"))
    server = Server(base / "lab")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=list(CHROMIUM))
            try:
                page = browser.new_page(viewport={"width": 1180, "height": 900})
                page.set_default_timeout(30_000)
                lab = Lab(server, page)
                server.notebook("page.ipynb", [CELL, cell])
                lab.open("page.ipynb")
                session = page.context.new_cdp_session(page)
                session.send("Performance.enable")

                def used(name: str) -> float:
                    metrics = session.send("Performance.getMetrics")["metrics"]
                    return float(next(m["value"] for m in metrics if m["name"] == name))

                begin = used("TaskDuration")
                lab.run(0)
                lab.drawing(0).get_by_text(f"call number {CALLS - 1}").wait_for(state="attached")
                drawn = used("TaskDuration") - begin
                page.wait_for_timeout(1500)
                begin = used("ThreadTime")
                scrolled = page.evaluate(SCROLL)
                moving = (used("ThreadTime") - begin) * 1000 / len(scrolled)
                page.evaluate(
                    """() => {
                      window.__frames = [];
                      let last = performance.now();
                      const step = now => {
                        window.__frames.push(now - last); last = now; window.__counting && requestAnimationFrame(step);
                      };
                      window.__counting = true;
                      requestAnimationFrame(step);
                    }"""
                )
                begin = used("TaskDuration")
                lab.run(1, seconds=90)
                page.wait_for_function(
                    "() => document.querySelector('.jp-Notebook .nba').dataset.state === 'done'", timeout=60_000
                )
                spent = used("TaskDuration") - begin
                page.evaluate("() => { window.__counting = false; }")
                frames = sorted(page.evaluate("window.__frames"))
                lab.close()
            finally:
                browser.close()
    finally:
        server.close()
        shutil.rmtree(base, ignore_errors=True)
    return [
        Figure(f"draw {CALLS} calls at once, the cell's run and JupyterLab's own work included", drawn * 1000, "ms"),
        Figure("main thread a scrolled frame", moving, "ms CPU"),
        Figure("frame time while it scrolls, median", median(scrolled), "ms", most=33.4),
        Figure("frame time while it scrolls, 95th of 100", scrolled[int(len(scrolled) * 0.95)], "ms"),
        Figure("main thread an update", spent * 1000 / (2 * updates), "ms", most=100),
        Figure("frame time while it updates, median", median(frames), "ms"),
        Figure("frame time while it updates, 95th of 100", frames[int(len(frames) * 0.95)], "ms"),
        Figure("frame time while it updates, slowest", frames[-1], "ms"),
    ]
