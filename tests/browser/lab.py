"""A JupyterLab server and one page on it, for tests that look at the real thing."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import ElementHandle, Error, Locator, Page

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_SECONDS = 60
# for how long a test waits until the page shows what it must show
PATIENCE_SECONDS = 15
OUT = ROOT / "test-output"

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """One `jupyter lab` with folders of its own, without news, extension manager and terminals."""

    def __init__(self, base: Path, env: dict[str, str] | None = None) -> None:
        self.files = base / "files"
        self.files.mkdir(parents=True)
        self.token = secrets.token_hex(12)
        self.port = free_port()
        self.log = base / "server.log"
        self.home = base / "home"
        config = base / "config"
        quiet = config / "lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        extensions = base / "extensions"
        extensions.mkdir()
        (extensions / "nbagent").symlink_to(ROOT / "nbagent" / "labextension", target_is_directory=True)
        for name in ("home", "data", "runtime", "ipython"):
            (base / name).mkdir()
        environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("OPENAI_", "NBAGENT_", "JUPYTER"))
            },
            "JUPYTER_CONFIG_DIR": str(config),
            "JUPYTER_DATA_DIR": str(base / "data"),
            "JUPYTER_RUNTIME_DIR": str(base / "runtime"),
            "IPYTHONDIR": str(base / "ipython"),
            "NBAGENT_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            **(env or {}),
        }
        self._output = self.log.open("wb")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--expose-app-in-browser",
                "--ServerApp.ip=127.0.0.1",
                f"--ServerApp.port={self.port}",
                "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={self.files}",
                "--ServerApp.terminals_enabled=False",
                "--LabApp.extension_manager=readonly",
                f"--LabApp.extra_labextensions_path={extensions}",
            ],
            cwd=self.files,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=2).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.close()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text(errors='replace')[-4000:]}")

    def close(self) -> None:
        """Ends the server and every kernel of it."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(5)
        self._output.close()

    def notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Writes a notebook with these code cells; its path."""
        path = self.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, source in enumerate(cells)],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        )
        nbformat.write(notebook, path)
        return path

    def saved(self, name: str) -> Any:
        """The notebook as it is in the file."""
        return nbformat.read(self.files / name, as_version=4)


class Lab:
    """One page with JupyterLab in it. Everything waits for what it needs, and for no longer."""

    def __init__(self, server: Server, page: Page) -> None:
        self.server = server
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", self._note)
        page.goto(f"{server.url}/lab?token={server.token}&reset", wait_until="domcontentloaded")
        self.ready()

    def _note(self, error: Error) -> None:
        """Script errors of ours: the extension, or a widget's module (a blob). JupyterLab has its own."""
        stack = error.stack or ""
        if "nbagent" in stack or "blob:" in stack:
            self.errors.append(stack)

    def ready(self) -> None:
        self.page.wait_for_function("window.jupyterapp?.restored", timeout=60_000)
        self.page.evaluate("window.jupyterapp.restored.then(() => true)")

    def open(self, name: str) -> None:
        """Opens a notebook and waits until its kernel can be given work."""
        self.page.evaluate(
            "path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => true)", name
        )
        self.page.wait_for_function(
            """path => {
              const panel = window.jupyterapp.shell.currentWidget;
              const session = panel?.sessionContext;
              return panel?.context?.path === path && session?.isReady && session.session?.kernel?.status === 'idle'
                && session.session.kernel.connectionStatus === 'connected' && panel.content.widgets.length > 0;
            }""",
            arg=name,
            timeout=60_000,
        )

    def close(self) -> None:
        """Shuts the kernel of the open notebook down and closes everything, unsaved work included."""
        self.page.evaluate(
            """async () => {
              const app = window.jupyterapp;
              for (const panel of Array.from(app.shell.widgets('main'))) {
                await panel.sessionContext?.shutdown().catch(() => 0);
                if (panel.context?.model) {
                  panel.context.model.dirty = false;
                }
                panel.dispose();
              }
              return true;
            }"""
        )

    def start(self, index: int) -> None:
        """Runs a cell and does not wait for its end."""
        self.page.evaluate(
            """index => {
              const app = window.jupyterapp, panel = app.shell.currentWidget;
              panel.content.activeCellIndex = index;
              panel.content.deselectAll();
              panel.content.mode = 'command';
              panel.content.node.focus();
              window.__ended = window.__ended || {};
              window.__ended[index] = false;
              app.commands.execute('notebook:run-cell').finally(() => { window.__ended[index] = true; });
              return true;
            }""",
            index,
        )

    def wait_end(self, index: int, seconds: float = 60) -> None:
        self.page.wait_for_function("index => window.__ended[index] === true", arg=index, timeout=seconds * 1000)

    def run(self, index: int, seconds: float = 60) -> None:
        self.start(index)
        self.wait_end(index, seconds)

    def cell(self, index: int) -> Locator:
        return self.page.locator(".jp-Notebook:visible .jp-Cell").nth(index)

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """Outputs of a cell in the open document."""
        found: list[dict[str, Any]] = self.page.evaluate(
            """index => {
              const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
              return cell.model.outputs.toJSON();
            }""",
            index,
        )
        return found

    def sources(self) -> list[str]:
        """Sources of the open document's cells."""
        found: list[str] = self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.context.model.sharedModel.cells.map(cell => cell.getSource())"
        )
        return found

    def comes_to(self, read: Callable[[], object], wanted: object) -> None:
        """Waits until ``read()`` gives ``wanted``: for what is no locator, as the cells of the document."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := read()) != wanted:
            if time.monotonic() > until:
                raise AssertionError(f"after {PATIENCE_SECONDS} s it is still {found!r}, not {wanted!r}")
            self.page.wait_for_timeout(50)

    def settle(self) -> None:
        """Waits until events that are queued now are handled and what they changed is drawn."""
        self.page.evaluate(
            """() => new Promise(resolve => {
              requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => resolve(true))));
            })"""
        )

    def cursor(self, index: int) -> None:
        """Waits until the cursor is in a cell's editor: keys go there."""
        self.page.wait_for_function(
            """index => {
              const notebook = window.jupyterapp.shell.currentWidget.content;
              const focused = document.activeElement?.closest('.cm-content');
              return notebook.activeCellIndex === index && notebook.mode === 'edit' && focused
                && notebook.widgets[index].node.contains(focused);
            }""",
            arg=index,
        )

    def type_in_file(self, path: str, text: str) -> None:
        """Opens a text file beside the notebook and types into it; it is not saved."""
        self.page.evaluate(
            """async path => {
              const widget = await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Editor'});
              await widget.context.ready;
              widget.content.editor.focus();
              return true;
            }""",
            path,
        )
        self.page.wait_for_function(
            """path => {
              const widget = window.jupyterapp.shell.currentWidget;
              const focused = document.activeElement?.closest('.cm-content');
              return widget.context?.path === path && focused && widget.node.contains(focused);
            }""",
            arg=path,
        )
        self.page.keyboard.type(text)
        self.page.wait_for_function(
            """text => {
              const { model } = window.jupyterapp.shell.currentWidget.context;
              return model.dirty && model.sharedModel.getSource().includes(text);
            }""",
            arg=text,
        )

    def save(self) -> None:
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save').then(() => true)")

    def theme(self, name: str) -> None:
        """``light`` or ``dark``."""
        wanted = THEMES[name]
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => true)", wanted
        )
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg=str(name == "light").lower(), timeout=20_000
        )

    def drawing(self, index: int) -> Locator:
        return self.cell(index).locator(".nba").last

    def shot(self, name: str, target: Locator | ElementHandle | None = None) -> Path:
        """A screenshot in test-output/."""
        OUT.mkdir(exist_ok=True)
        path = OUT / f"{name}.png"
        (target or self.page).screenshot(path=path)
        return path

    def axe(self, selector: str) -> list[str]:
        """Faults that axe finds in what ``selector`` matches, one line each."""
        if not self.page.evaluate("() => 'axe' in window"):
            source = ROOT / "labextension/node_modules/axe-core/axe.min.js"
            self.page.evaluate(f"() => {{ {source.read_text()} ; return true; }}")
        result: list[str] = self.page.evaluate(
            """async selector => {
              const result = await window.axe.run(document.querySelector(selector), {
                resultTypes: ['violations'],
                // the page around is JupyterLab's
                rules: {'landmark-unique': {enabled: false}, region: {enabled: false}}
              });
              return result.violations.flatMap(v => v.nodes.map(n => `${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary}`));
            }""",
            selector,
        )
        return result
