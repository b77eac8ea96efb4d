"""Where a running cell is seen: one widget, or text where no widget can be shown. All on the cell's thread.

A view is opened, gets patches, and is replaced by the static record at the end, so that a saved notebook has no widget of
ours. ``Live`` is what the cell needs of one.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import msgspec

from nbagent.notebook.record import fit, mimebundle
from nbagent.notebook.record_text import to_markdown
from nbagent.notebook.transcript import Transcript
from nbagent.notebook.words import UNFINISHED, clean, head_words, review_words, tool_state, tool_title

SCRIPT = Path(__file__).parent / "static" / "view.js"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
PATCH_EVERY = 0.125
RECORD_EVERY = 5.0
_RECORD_RATE = 60_000
_LOST = 0.5
_TEXT_EVERY = 0.5
_TEXT_TAIL = 6_000

Listen = Callable[[dict[str, Any]], None]


class Live(Protocol):
    """How a run is seen while it goes on."""

    answers: bool
    """Whether an ask can be answered in it."""
    alive: float | None
    """Monotonic time of the last sign of life of a page, None before the first."""

    def open(self, transcript: Transcript, listen: Listen) -> None: ...

    def update(self, transcript: Transcript, *, force: bool = False) -> None: ...

    def send(self, message: dict[str, Any]) -> None: ...

    def close(self, transcript: Transcript, *, times: bool = True) -> None: ...


class Display:
    """One output of the cell that is shown and then replaced."""

    def __init__(self, shell: Any) -> None:
        self._publisher = shell.display_pub
        self._id = uuid.uuid4().hex
        self._shown = False

    def show(self, bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        self._publisher.publish(bundle, metadata or {}, transient={"display_id": self._id}, update=self._shown)
        self._shown = True


def missing() -> str:
    """Why no widget can be shown, or ""."""
    if not SCRIPT.is_file():
        return "nbagent was installed without its browser script (view.js)"
    for name in ("ipywidgets", "anywidget"):
        if name not in sys.modules and not _there(name):
            return f"{name} is not installed"
    return ""


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class RunView(anywidget.AnyWidget):
        """The live view; the script draws ``record`` and the patches, and counts ``mount`` up when it has drawn."""

        # As text: a watched file would hold every view that was ever made.
        _esm = SCRIPT.read_text(encoding="utf-8")
        record = traitlets.Dict().tag(sync=True)
        mount = traitlets.Int(0).tag(sync=True)

    return RunView


class WidgetView:
    """One anywidget."""

    answers = True

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._display = Display(shell)
        self._widget: Any = None
        self.alive: float | None = None
        self._pages: set[str] = set()
        self._lost: float | None = None
        self._mounted = False
        self._sent = 0.0
        self._recorded = 0.0
        self._record_wait = RECORD_EVERY
        self._state = ""

    def open(self, transcript: Transcript, listen: Listen) -> None:
        def on_message(widget: Any, content: Any, buffers: Any) -> None:
            if isinstance(content, dict):
                self._note(content)
                listen(content)

        def on_mount(change: Any) -> None:
            self.alive = time.monotonic()
            self._mounted = True

        transcript.patch()
        self._widget = _widget_class()(record=transcript.record())
        self._widget.on_msg(on_message)
        self._widget.observe(on_mount, "mount")
        _quiet(self._widget)
        self._state = transcript.state
        self._sent = self._recorded = time.monotonic()
        self._show()

    def _show(self) -> None:
        view = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        self._display.show({WIDGET_MIME: view, "text/plain": UNFINISHED}, {"nbagent": "live"})

    def _note(self, message: dict[str, Any]) -> None:
        """Keep count of where the view is seen: a page that mounts it and one that takes it out say so."""
        page = str(message.get("view", ""))
        if message.get("kind") == "gone":
            self._pages.discard(page)
            self._lost = None if self._pages else time.monotonic()
            return
        self.alive = time.monotonic()
        if page:
            self._pages.add(page)
            self._lost = None

    def update(self, transcript: Transcript, *, force: bool = False) -> None:
        now = time.monotonic()
        if self._widget is None:
            return
        if self._lost is not None and now - self._lost > _LOST:
            # the output was cleared while the run goes on: without a view nobody could answer, or stop it
            self._lost = None
            self._display = Display(self._shell)
            self._show()
        if not force and now - self._sent < PATCH_EVERY:
            return
        patch = transcript.patch()
        if patch is not None:
            self._sent = now
            self._widget.send(patch)
        # a page that has just mounted the view has missed the patches that were sent before
        changed = transcript.state != self._state or self._mounted
        self._mounted = False
        if changed or (patch is not None and now - self._recorded > self._record_wait):
            self._state = transcript.state
            self._set_record(transcript, now)

    def _set_record(self, transcript: Transcript, now: float) -> None:
        record = fit(transcript.record())
        self._record_wait = max(RECORD_EVERY, len(msgspec.json.encode(record)) / _RECORD_RATE)
        self._recorded = now
        self._widget.record = record

    def send(self, message: dict[str, Any]) -> None:
        if self._widget is not None:
            self._widget.send(message)

    def close(self, transcript: Transcript, *, times: bool = True) -> None:
        patch = transcript.patch()
        if patch is not None and self._widget is not None:
            self._widget.send(patch)  # the page knows the end before the record takes the view's place
        if self._lost is not None:
            self._display = Display(self._shell)
        self._display.show(mimebundle(transcript.record(), times=times))
        widget, self._widget = self._widget, None
        if widget is not None:
            layout = widget.layout
            widget.unobserve_all()
            widget.close()
            if layout is not None:
                layout.close()


def _quiet(widget: Any) -> None:
    """Messages go straight to the widget: the usual way around fires the shell's cell events, on a foreign thread at times."""
    comm = widget.comm
    if comm is not None and hasattr(comm, "handle_msg"):
        comm.handle_msg = widget._handle_msg


class TextView:
    """Markdown that is replaced as the run goes on; asks come as text prompts."""

    answers = False

    def __init__(self, shell: Any) -> None:
        self._display = Display(shell)
        self.alive: float | None = None
        self._sent = 0.0
        self._text = ""

    def open(self, transcript: Transcript, listen: Listen) -> None:
        self.update(transcript, force=True)

    def update(self, transcript: Transcript, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._sent < _TEXT_EVERY:
            return
        if transcript.patch() is None and not force:
            return
        text = _tail(to_markdown(transcript.record()))
        self._sent = now
        if text != self._text:
            self._text = text
            self._display.show({"text/markdown": text, "text/plain": text})

    def send(self, message: dict[str, Any]) -> None:
        return

    def close(self, transcript: Transcript, *, times: bool = True) -> None:
        self._display.show(mimebundle(transcript.record(), times=times))


def _tail(text: str) -> str:
    if len(text) <= _TEXT_TAIL:
        return text
    start = text.find("\n\n", len(text) - _TEXT_TAIL)
    return "…\n\n" + text[start if start >= 0 else len(text) - _TEXT_TAIL :].lstrip()


class SilentView:
    """Nobody looks: only the record at the end."""

    answers = False

    def __init__(self, shell: Any) -> None:
        self._display = Display(shell)
        self.alive: float | None = None

    def open(self, transcript: Transcript, listen: Listen) -> None:
        return

    def update(self, transcript: Transcript, *, force: bool = False) -> None:
        transcript.patch()

    def send(self, message: dict[str, Any]) -> None:
        return

    def close(self, transcript: Transcript, *, times: bool = True) -> None:
        self._display.show(mimebundle(transcript.record(), times=times))


class TerminalView:
    """Plain lines on a terminal, as they come."""

    answers = False

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or _write
        self.alive: float | None = None
        self._said: dict[str, int] = {}
        self._told: set[tuple[str, str]] = set()
        self._column = 0
        self._headed = False

    def open(self, transcript: Transcript, listen: Listen) -> None:
        self.update(transcript)

    def update(self, transcript: Transcript, *, force: bool = False) -> None:
        patch = transcript.patch()
        if patch is None:
            return
        if not self._headed and transcript.record()["head"]["agent"]:
            self._headed = True
            self._line(head_words(transcript.record()))
        for item in patch.get("items", ()):
            if item["kind"] == "text":
                self._text(item)
            else:
                self._event(item)
        for name, more in patch.get("append", {}).items():
            if name in self._said:
                self._more(name, more["text"])

    def _text(self, item: dict[str, Any]) -> None:
        if item["parent"]:
            return
        done = self._said.get(item["id"], 0)
        if done == 0 and item["text"]:
            self._line("")
        self._said[item["id"]] = done
        self._more(item["id"], item["text"][done:])

    def _more(self, name: str, text: str) -> None:
        if text:
            self._said[name] += len(text)
            self._write(clean(text))
            self._column = 0 if text.endswith("\n") else 1

    def _event(self, item: dict[str, Any]) -> None:
        line = _terminal_line(item)
        if line and (item["id"], line) not in self._told:
            self._told.add((item["id"], line))
            self._line(line)

    def _line(self, text: str) -> None:
        if self._column:
            self._write("\n")
            self._column = 0
        if text:
            self._write(clean(text) + "\n")

    def send(self, message: dict[str, Any]) -> None:
        return

    def close(self, transcript: Transcript, *, times: bool = True) -> None:
        self.update(transcript, force=True)
        receipt = transcript.record()["receipt"]
        self._line(receipt["line"] if receipt else "")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _terminal_line(item: dict[str, Any]) -> str:
    kind = item["kind"]
    if kind == "tool":
        done = item["state"] in ("completed", "error")
        error = (
            f": {item['error'].strip().splitlines()[0][:200]}" if item["error"].strip() and not item["refused"] else ""
        )
        return f"  {'  ' if item['parent'] else ''}{tool_title(item)} {tool_state(item)}{error}" if done else ""
    if kind == "review":
        return f"plan {item['path']}: {review_words(item)}" if item["status"] != "awaiting" else ""
    if kind == "notice":
        return str(item["text"])
    if kind == "retry":
        return f"  {item['error']}: trying again in {item['wait']:.0f} s"
    if kind == "error":
        return f"error: {item['message']}"
    if kind == "agent" and item["previous"]:
        return f"now {item['badge']} {item['writes']}"
    return ""


def choose(shell: Any, *, attended: bool) -> Live:
    """The best view that this shell and this front end can show."""
    if getattr(shell, "kernel", None) is None:
        return TerminalView()
    if not attended:
        return SilentView(shell)
    return TextView(shell) if missing() else WidgetView(shell)
