"""A long transcript stays light: what an update costs the page's main thread, measured in the browser."""

from __future__ import annotations

from tests.browser.lab import ROOT, Lab

CALLS = 500

CELL = f"""
import anywidget, traitlets
class View(anywidget.AnyWidget):
    _esm = open({str(ROOT / "nbagent" / "notebook" / "static" / "view.js")!r}).read()
    record = traitlets.Dict().tag(sync=True)
    mount = traitlets.Int(0).tag(sync=True)
def call(n, state="completed"):
    return {{"id": f"c{{n}}", "kind": "tool", "parent": "", "name": "bash" if n % 3 else "read", "title": f"call number {{n}}",
            "state": state, "input": {{"command": f"echo {{n}}"}}, "output": "line\\n" * 40, "error": "", "rule": None,
            "metadata": {{}}, "seconds": 0.1, "size": 0, "effect": "command" if n % 3 else "reads", "refused": False, "images": []}}
head = {{"agent": "build", "badge": "BUILD", "writes": "", "started": 1.0, "seconds": 1.0, "step": 1, "tokens": 10}}
view = View(record={{"version": 1, "state": "running", "head": head, "items": [call(n) for n in range({CALLS})], "receipt": None}})
view
"""

UPDATES = """
for n in range(40):
    view.send({"kind": "patch", "seq": n, "head": {"tokens": n}, "items": [call(500 + n, "running"), call(n * 7 % 500)],
               "append": {}})
    view.send({"kind": "patch", "seq": n, "items": [{"id": "answer", "kind": "text", "parent": "", "text": "word " * n * 200}]})
view.send({"kind": "patch", "seq": 99, "state": "done"})
"""


def test_updates_of_500_calls_are_short(lab: Lab) -> None:
    lab.server.notebook("speed.ipynb", [CELL, UPDATES])
    lab.open("speed.ipynb")
    lab.run(0)
    lab.drawing(0).get_by_text("call number 499").wait_for(state="attached")
    lab.page.evaluate(
        """() => {
          window.__long = [];
          const note = entries => entries.forEach(entry => window.__long.push(entry.duration));
          const observer = new PerformanceObserver(list => note(list.getEntries()));
          observer.observe({type: 'longtask'});
          window.__noted = () => { note(observer.takeRecords()); return window.__long; };
        }"""
    )
    lab.run(1)
    lab.drawing(0).get_by_text("call number 539").wait_for(state="attached")
    lab.page.wait_for_function("() => document.querySelector('.jp-Notebook .nba').dataset.state === 'done'")
    lab.settle()
    tasks = sorted(lab.page.evaluate("window.__noted()"))
    # 80 patches came in one burst: what is left are few tasks, and none blocks for as long as a person would feel
    assert sum(tasks) < 4000, tasks
    cost = lab.page.evaluate(
        """() => new Promise(resolve => {
          const scroll = document.querySelector('.jp-Notebook .nba-scroll');
          const costs = [];
          let n = 0;
          const step = () => {
            const start = performance.now();
            scroll.scrollTop = (n * 397) % scroll.scrollHeight;
            scroll.getBoundingClientRect();
            costs.push(performance.now() - start);
            n += 1;
            n < 60 ? requestAnimationFrame(step) : resolve(costs.sort((a, b) => a - b));
          };
          step();
        })"""
    )
    assert cost[len(cost) // 2] < 100, cost
