"""``python`` and ``inspect`` in a person's namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kernel.kernel import Clicker, Done, Kernel, once
from tests.server import ScriptedServer, call, say

Start = Callable[..., ScriptedServer]


def run_python(server: Start, shell: Kernel, code: str, **more: Any) -> dict[str, Any]:
    """The tool item of one ``python`` call."""
    model = server([[call("python", {"code": code, "description": "try", **more})], [say("done")]])
    shell.use(model.url)
    done = shell.run("%%build --new\ngo", person=Clicker(ask=once))
    assert done.status == "ok", done.text
    (item,) = done.of("tool")
    return dict(item)


def test_code_runs_where_the_person_is(server: Start, shell: Kernel) -> None:
    shell.run("x = 20")
    before = shell.value("(len(In), sorted(Out), _ if '_' in globals() else None, get_ipython().execution_count)")
    item = run_python(server, shell, "y = x + 1\nprint('hello')\nimport sys; print('bad', file=sys.stderr)\ny * 2")
    assert item["output"].splitlines() == ["hello", "bad", "42"]
    after = shell.value("(len(In), sorted(Out), _ if '_' in globals() else None, get_ipython().execution_count)")
    assert shell.value("y") == "21"
    numbers = [eval(text) for text in (before, after)]
    assert numbers[1][0] == numbers[0][0] + 1 and numbers[0][1:3] == numbers[1][1:3], (
        "only the person's own cell counts"
    )
    assert numbers[1][3] == numbers[0][3] + 1


def test_errors_are_tidy(server: Start, shell: Kernel) -> None:
    item = run_python(server, shell, "def f(n):\n    return 1 / n\n\nprint('before')\nf(0)")
    assert item["output"].startswith("before\nTraceback")
    assert "return 1 / n" in item["output"] and item["output"].endswith("ZeroDivisionError: division by zero")
    assert "/nbagent/" not in item["output"] and "\x1b" not in item["output"]
    item = run_python(server, shell, "x = = 1")
    assert "SyntaxError" in item["output"]
    item = run_python(server, shell, "raise SystemExit(3)")
    assert "SystemExit: 3" in item["output"]
    item = run_python(server, shell, "input('?')")
    assert "cannot be answered" in item["output"]


def test_top_level_await_magics_and_commands(server: Start, shell: Kernel) -> None:
    item = run_python(server, shell, "import asyncio\nawait asyncio.sleep(0.1)\nz = 5\nawait asyncio.sleep(0, 'slept')")
    assert item["output"] == "'slept'" and shell.value("z") == "5"
    assert "README.md" in run_python(server, shell, "!ls")["output"]
    assert "README.md" in run_python(server, shell, "import subprocess; subprocess.run(['ls']);")["output"]
    assert "per loop" in run_python(server, shell, "%timeit -n 1 -r 1 1")["output"]
    item = run_python(
        server,
        shell,
        "get_ipython().run_line_magic('plan', 'x')\nawait _last"
        if False
        else "await get_ipython().run_line_magic('plan', 'x')",
    )
    assert "Another cell of nbagent is running" in item["output"]


def test_time_limits(server: Start, shell: Kernel) -> None:
    for code in (
        "import time\nprint('on')\ntime.sleep(30)",
        "print('on')\nwhile True: pass",
        "import asyncio\nprint('on')\nawait asyncio.sleep(30)",
        "print('on')\nwhile True:\n    try:\n        pass\n    except Exception:\n        pass",
    ):
        item = run_python(server, shell, code, timeout=700)
        assert "on" in item["output"] and "timed out after 0.7 s" in item["output"], code
        assert item["seconds"] < 10
    assert shell.run("1 + 1").outputs[0]["data"]["text/plain"] == "2"


def test_figures_come_as_small_pictures_and_leave_nothing_behind(server: Start, shell: Kernel) -> None:
    code = "import matplotlib.pyplot as plt\nimport random\nplt.plot([random.random() for _ in range(2000)])"
    item = run_python(server, shell, code)
    (image,) = item["images"]
    assert image["mime"] == "image/png" and len(image["data"]) <= 100_000
    assert shell.value("plt.get_fignums()") == "[]"
    item = run_python(server, shell, "plt.plot([1, 2]); plt.show()")
    assert len(item["images"]) == 1
    item = run_python(server, shell, "fig, ax = plt.subplots(); ax.plot([1]); fig")
    assert len(item["images"]) == 1


def test_charts_are_told_as_what_they_show(server: Start, shell: Kernel) -> None:
    plotly = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a', 'b'], y=[1, 2], name='sales'))\n"
    plotly += "fig.update_layout(title='Sales', width=300);\n"
    for last in ("fig", "fig.show()", "display(fig)"):
        item = run_python(server, shell, plotly + last)
        assert "[plotly figure 'Sales': 1 traces (bar sales)]" in item["output"], (last, item["output"])
        assert len(item["output"]) < 300
    altair = "import altair as alt\nimport pandas as pd\nchart = alt.Chart(pd.DataFrame({'a': [1], 'b': [2]}))"
    for last in ("chart", "display(chart)", "alt.renderers.enable('mimetype')\nchart"):
        item = run_python(server, shell, f"{altair}.mark_line().encode(x='a', y='b')\n{last}")
        assert "[altair chart: line x=a, y=b]" in item["output"] and len(item["output"]) < 300, (last, item["output"])
    assert shell.run("1 + 1").outputs[0]["data"]["text/plain"] == "2"


def test_scratch_leaves_no_name(server: Start, shell: Kernel) -> None:
    shell.run("x = [1]")
    item = run_python(server, shell, "new = x[0] + 1\nx = 9\nnew", scratch=True)
    assert item["output"] == "2" and shell.value("x") == "[1]" and "NameError" in shell.value("new")


def test_much_output_is_cut_and_bounded(server: Start, shell: Kernel) -> None:
    item = run_python(server, shell, "for i in range(300000): print('line', i)")
    assert "line 299999" in item["output"] and len(item["output"]) < 30_000


def described(server: Start, shell: Kernel, **arguments: Any) -> str:
    model = server([[call("inspect", arguments)], [say("done")]])
    shell.use(model.url)
    done: Done = shell.run("%%plan --new\nlook", stdin=False)
    (item,) = done.of("tool")
    assert not item["error"], item
    return str(item["output"])


def test_inspect_describes_without_running_code(server: Start, shell: Kernel) -> None:
    shell.run(
        "import time, pandas as pd, numpy as np\n"
        "df = pd.DataFrame({'a': [1, 2, None], 'b': list('xyz')})\n"
        "arr = np.arange(12.).reshape(3, 4)\n"
        "def area(w: int, h: int = 2) -> int:\n    'Area of it.'\n    return w * h\n"
        "class Slow:\n    def __repr__(self): time.sleep(60)\n"
        "class Bad:\n    def __repr__(self): raise ValueError('no')\n"
        "slow, bad, api_key, big = Slow(), Bad(), 'sk-very-secret', list(range(10**6))"
    )
    text = described(server, shell)
    assert "df: pandas DataFrame, 3 rows × 2 columns (a, b)" in text
    assert (
        "arr: numpy array, shape (3, 4), float64" in text and "area: function area(w: int, h: int = 2) -> int" in text
    )
    assert "slow: (describing it took too long)" in text
    assert "bad:" in text and "sk-very-secret" not in text and "big: list, 1,000,000 entries" in text
    full = described(server, shell, names=["df", "arr", "dff"])
    assert "a: float64, 1 null" in full and "x" in full and "min 0.0" in full
    assert "dff: no such variable; near names: df" in full
