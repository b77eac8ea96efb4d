"""Everywhere else: a terminal, no ipywidgets, older kernels, VS Code's way of saying where a notebook is."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.kernel import Clicker, Kernel, Page, once, verdict
from tests.project import Project
from tests.server import ScriptedServer, call, say
from tests.session.scripts import EXIT, write_plan

Start = Callable[..., ScriptedServer]
Begin = Callable[[], Kernel]

BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ipywidgets", "anywidget"):
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Blocker())
"""


def test_without_ipywidgets_asks_are_prompts_at_once(
    project: Project, server: Start, kernel: Begin, tmp_path: Path
) -> None:
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "sitecustomize.py").write_text(BLOCKER)
    project.environment["PYTHONPATH"] = str(tmp_path / "block")
    project.use(server([write_plan(), EXIT]))
    shell = kernel()
    done = shell.run("%%plan\nfix recall", typed=["l"])
    assert done.status == "ok", done.text
    assert done.of("review")[0]["action"] == "later" and done.count("comm_open") == 0
    doctor = shell.run("%agent doctor --offline").text
    assert re.search(r"ipywidgets +\d", doctor) or "missing" in doctor
    assert "text: ipywidgets is not installed" in doctor and "text prompts: no widget can be shown" in doctor


def test_the_doctor_says_what_works(project: Project, server: Start, kernel: Begin) -> None:
    project.use(server([]))
    shell = kernel()
    text = shell.run("%agent doctor --offline").text
    for words in ("ipykernel", "live view", "standard input         yes", "questions come as      buttons", "root"):
        assert words in text
    assert "nobody is there" in shell.run("%agent doctor --offline", stdin=False).text


def test_the_notebook_is_known_by_what_the_editor_says(project: Project, server: Start, kernel: Begin) -> None:
    (project.root / "n.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    project.use(server([[call("notebook_read", {})], [say("done")]]))
    shell = kernel()
    shell.run(f"__vsc_ipynb_file__ = {str(project.root / 'n.ipynb')!r}")
    done = shell.run("%%build\nlook", cell="c1")
    assert "n.ipynb, nbformat 4.5" in done.of("tool")[0]["output"]


def test_forced_headless(project: Project, server: Start, kernel: Begin) -> None:
    project.environment["NBAGENT_HEADLESS"] = "1"
    project.use(server([write_plan(), EXIT]))
    shell = kernel()
    done = shell.run("%%plan\nfix recall")
    assert done.record["receipt"]["reason"] == "awaiting" and done.count("comm_open") == 0
    doctor = shell.run("%agent doctor --offline").text
    assert "NBAGENT_HEADLESS       1: nobody is there" in doctor and "refusals: nobody is there" in doctor


def test_forced_attended_where_no_prompt_can_be_typed(project: Project, server: Start, kernel: Begin) -> None:
    project.environment["NBAGENT_HEADLESS"] = "0"
    project.use(server([write_plan(), EXIT, write_plan(), EXIT]))
    shell = kernel()
    done = shell.run("%%plan\nfix recall", stdin=False, person=Clicker(review=verdict("later")))
    assert done.status == "ok" and done.of("review")[0]["action"] == "later", done.text
    doctor = shell.run("%agent doctor --offline", stdin=False).text
    assert "NBAGENT_HEADLESS       0: a person is there" in doctor and "buttons only" in doctor
    unheard = shell.run("%%plan --new\nfix recall", stdin=False)
    assert unheard.record["receipt"]["reason"] == "awaiting" and unheard.seconds < 20, "nobody was there after all"


CELL = "vscode-notebook-cell:/w/n.ipynb#W0sZmlsZQ%3D%3D"


def test_a_click_as_vs_code_sends_it(project: Project, server: Start, kernel: Begin) -> None:
    """No page of the extension, a cell id of VS Code's own, messages over the shell channel without a subshell."""
    book = project.write("n.ipynb", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    project.use(server([write_plan(), EXIT, [call("notebook_read", {})], [say("done")]]))
    shell = kernel()
    shell.run(f"__vsc_ipynb_file__ = {str(book)!r}", cell=CELL)
    done = shell.run("%%plan\nfix recall", cell=CELL, person=Clicker(review=verdict("build")))
    assert done.status == "ok" and not done.prompts, done.text
    assert done.of("review")[0]["action"] == "build"
    assert "n.ipynb, nbformat 4.5" in done.of("tool")[-1]["output"]
    assert "JupyterLab extension   not connected" in shell.run("%agent doctor --offline").text


# older kernels


def installed(version: str, cache: Path) -> Path:
    """A folder with that ipykernel in it, or the test is skipped (no package index can be reached)."""
    folder = cache / f"ipykernel-{version}"
    if not (folder / "ipykernel").is_dir():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder),
            f"ipykernel=={version}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            pytest.skip(f"ipykernel {version} cannot be installed here")
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("version", ["6.31.0", "7.3.0"])
def test_an_older_kernel_hears_the_person_in_some_way(
    project: Project, server: Start, kernel: Begin, cache: Path, version: str
) -> None:
    project.environment["PYTHONPATH"] = str(installed(version, cache))
    python = [call("python", {"code": "open('made', 'w').close()", "description": "d"})]
    project.use(server([write_plan(), EXIT, python, [say("done")], python, [say("done")]]))
    shell = kernel()
    assert shell.value("__import__('ipykernel').__version__") == repr(version)
    done = shell.run(
        "%%plan\nfix recall", person=Clicker(ask=once, review=verdict("build")), typed=["b", "y"], seconds=40
    )
    assert done.status == "ok", done.text
    assert done.of("review")[0]["action"] == "build" and (project.root / "made").exists()
    asks = done.of("ask")
    assert asks and asks[0]["reply"] == "once"
    doctor = shell.run("%agent doctor --offline").text
    if version.startswith("7"):
        assert "subshells" in doctor
        shell.pages.clear()
        shell.make_subshell()
        again = shell.run("%%build --new\ngo", person=Clicker(ask=once), seconds=40)
        assert again.status == "ok" and not again.prompts, "a click over a subshell is heard while the cell runs"
    else:
        assert "hears no click" in doctor and done.prompts


class Late:
    """A page whose messages are held until the cell has ended, as Colab holds them."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._answer = answer
        self._held: list[tuple[Page, dict[str, Any]]] = []

    def __call__(self, page: Page) -> None:
        for item in page.open:
            if item["id"] not in [message["id"] for _, message in self._held]:
                self._held.append((page, self._answer(item)))

    def deliver(self) -> int:
        for page, message in self._held:
            page.send(kind="alive", seq=1)
            page.send(**message)
        return len(self._held)


@pytest.mark.parametrize("version", ["6.31.0", ""])
def test_clicks_that_come_when_the_cell_has_ended_decide_nothing(
    project: Project, server: Start, kernel: Begin, cache: Path, version: str
) -> None:
    if version:
        project.environment["PYTHONPATH"] = str(installed(version, cache))
    project.environment["COLAB_RELEASE_TAG"] = "release-colab"
    project.use(model := server([write_plan(), EXIT, [say("still here")]]))
    shell = kernel()
    late = Late(verdict("build"))
    done = shell.run("%%plan\nfix recall", person=late, typed=["r"], seconds=40)
    assert done.status == "ok" and done.of("review")[0]["action"] == "reject", done.text
    asked = len(model.requests)
    assert late.deliver() == 1
    after = shell.run("1 + 1")
    assert after.outputs[0]["data"]["text/plain"] == "2" and len(model.requests) == asked
    assert "approved" not in shell.run("%agent plans").text
    assert shell.run("%%build --new\nhello", stdin=False).of("text")[0]["text"] == "still here"


# a terminal


class Terminal:
    """IPython on a pseudo terminal."""

    def __init__(self, project: Project) -> None:
        master, slave = pty.openpty()
        environment = {**project.environment, "TERM": "dumb", "IPYTHONDIR": str(project.root.parent / "ipython")}
        command = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"]
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=project.root, env=environment
        )
        os.close(slave)
        self._master = master
        self.text = ""

    def until(self, words: str, seconds: float = 40) -> str:
        deadline = time.monotonic() + seconds
        start = len(self.text)
        while words not in self.text[start:]:
            if time.monotonic() > deadline:
                raise AssertionError(f"{words!r} did not come:\n{self.text[-3000:]}")
            if select.select([self._master], [], [], 0.1)[0]:
                self.text += os.read(self._master, 65536).decode("utf-8", "replace").replace("\r", "")
        return self.text[start:]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(project: Project) -> Any:
    opened: list[Terminal] = []

    def start() -> Terminal:
        opened.append(Terminal(project))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_plain_ipython_in_a_terminal(project: Project, server: Start, terminal: Callable[[], Terminal]) -> None:
    project.use(
        server(
            [
                lambda body: [say("I plan."), *write_plan()(body)],
                EXIT,
                [call("bash", {"command": "touch begun; sleep 60", "description": "d"})],
                [say("again")],
            ]
        )
    )
    window = terminal()
    window.until("In [1]:")
    window.type("%load_ext nbagent\n")
    window.until("In [2]:")
    window.type("%plan fix recall?\n")
    text = window.until("[r] reject")
    assert "I plan." in text and "A plan waits for you" in text
    window.type("b\n")
    window.until("[n] no")
    window.type("y\n")
    begun = project.root / "begun"
    deadline = time.monotonic() + 20
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert begun.exists(), window.text[-3000:]
    begin = time.monotonic()
    window.interrupt()
    text = window.until("In [3]:")
    assert time.monotonic() - begin < 4 and "stopped" in text and "Traceback" not in text
    window.type("%build again\n")
    assert "again" in window.until("In [4]:")
