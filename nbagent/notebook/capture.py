"""What code prints and shows while it runs, taken instead of shown: streams, file descriptors, displays, figures."""

from __future__ import annotations

import base64
import builtins
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

KEEP = 200_000
IMAGE_LIMIT = 75_000
_DPIS = (100, 72, 50, 36)


class Collected:
    """Text in the order it came, head and tail kept when there is much, and pictures as (mime, base64)."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self.images: list[tuple[str, str]] = []
        self._on_output = on_output
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._last = "\n"

    def write(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        room = KEEP // 2 - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += min(room, len(text))
        if len(text) > room:
            self._tail.append(text[max(0, room) :])
            self._tail_size += len(self._tail[-1])
            while self._tail_size - len(self._tail[0]) > KEEP // 2:
                gone = len(self._tail.popleft())
                self._tail_size -= gone
                self._dropped += gone
        self._on_output(text)

    def line(self, text: str) -> None:
        """``text`` on a line of its own."""
        self.write(("" if self._last == "\n" else "\n") + text.rstrip("\n") + "\n")

    def text(self) -> str:
        tail = "".join(self._tail)
        dropped = self._dropped + max(0, len(tail) - KEEP // 2)
        gap = f"\n… {dropped:,} characters not kept …\n" if dropped else ""
        return _collapse("".join(self._head) + gap + tail[-KEEP // 2 :])

    def show(self, data: dict[str, Any]) -> None:
        """A display bundle: a picture where there is one, else the best words for it."""
        for mime in ("image/png", "image/jpeg"):
            picture = data.get(mime)
            if picture:
                self._picture(mime, picture)
                return
        words = bundle_words(data)
        if words:
            self.line(words)

    def _picture(self, mime: str, picture: str | bytes) -> None:
        encoded = base64.b64encode(picture).decode() if isinstance(picture, bytes) else "".join(picture.split())
        self.images.append((mime, encoded))
        self.line(f"[{mime} {len(encoded) * 3 // 4 // 1024 + 1} KB]")


def _collapse(text: str) -> str:
    """Progress bars as they stood at last: what a carriage return wrote over is gone."""
    if "\r" not in text:
        return text
    lines = [
        line.rsplit("\r", 1)[-1] if "\r" in line.rstrip("\r") else line
        for line in text.replace("\r\n", "\n").split("\n")
    ]
    return "\n".join(line.rstrip("\r") for line in lines)


def bundle_words(data: dict[str, Any]) -> str:
    """A display bundle in words: what a chart shows, else Markdown or plain text, else its type and size."""
    for mime, value in data.items():
        if mime.startswith("application/vnd.plotly") and isinstance(value, dict):
            return _plotly_words(value)
        if mime.startswith(("application/vnd.vegalite", "application/vnd.vega.")) and isinstance(value, dict):
            return _vega_words(value)
        chart = _embedded_chart(value) if mime == "text/html" else None
        if chart is not None:
            return _vega_words(chart)
    for mime in ("text/plain", "text/markdown", "text/latex"):
        if data.get(mime):
            return str(data[mime])
    return ", ".join(f"[{mime} {len(str(value)) // 1024 + 1} KB]" for mime, value in data.items())


def _plotly_words(figure: dict[str, Any]) -> str:
    traces = [trace for trace in figure.get("data", []) if isinstance(trace, dict)]
    kinds = ", ".join(f"{trace.get('type', 'scatter')} {trace.get('name', '')}".strip() for trace in traces[:10])
    title = figure.get("layout", {}).get("title", "")
    title = title.get("text", "") if isinstance(title, dict) else title
    return f"[plotly figure {title!r}: {len(traces)} traces ({kinds})]"


def _embedded_chart(page: Any) -> dict[str, Any] | None:
    """The chart that a page draws with vega-embed: altair shows itself as such a page."""
    if not isinstance(page, str) or "vega-embed" not in page:
        return None
    for found in re.finditer(r"\(\{", page):
        with contextlib.suppress(ValueError, RecursionError):
            value, _ = json.JSONDecoder().raw_decode(page, found.start() + 1)
            if "/schema/vega" in str(value.get("$schema", "")):
                return dict(value)
    return None


def _vega_words(chart: dict[str, Any]) -> str:
    mark = chart.get("mark", "layered" if "layer" in chart else "")
    mark = mark.get("type", "") if isinstance(mark, dict) else mark
    encoding = chart.get("encoding", {})
    shown = ", ".join(
        f"{channel}={spec.get('field', spec.get('aggregate', '?'))}"
        for channel, spec in encoding.items()
        if isinstance(spec, dict)
    )
    return f"[altair chart: {mark} {shown}]".replace(" ]", "]")


class _Stream(io.TextIOBase):
    """A text stream that hands on what is written."""

    encoding = "utf-8"

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self.buffer = _Bytes(collected)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._collected.write(text)
        return len(text)

    def isatty(self) -> bool:
        return False


class _Bytes(io.RawIOBase):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._collected.write(raw.decode("utf-8", "replace"))
        return len(raw)


class _Displays:
    """Stands in for the shell's display publisher."""

    def __init__(self, collected: Collected) -> None:
        self._collected = collected
        self.is_publishing = False

    def publish(self, data: dict[str, Any], metadata: Any = None, source: Any = None, **more: Any) -> None:
        self._collected.show(data)

    def clear_output(self, wait: bool = False) -> None:
        return

    def register_hook(self, hook: Any) -> None:
        return

    def unregister_hook(self, hook: Any) -> bool:
        return False


def _no_input(prompt: object = "") -> str:
    raise RuntimeError("input() cannot be answered in code that the agent runs: use values in the code instead")


@contextlib.contextmanager
def captured(shell: Any, collected: Collected) -> Iterator[None]:
    """Everything that is printed or displayed goes into ``collected``; ``input()`` is refused."""
    stream = _Stream(collected)
    before = (sys.stdout, sys.stderr, shell.display_pub, builtins.input)
    figures = _figures()
    with _descriptors(collected):
        sys.stdout = sys.stderr = stream
        shell.display_pub = _Displays(collected)
        builtins.input = _no_input
        try:
            yield
        finally:
            sys.stdout, sys.stderr, shell.display_pub, builtins.input = before
    with contextlib.suppress(Exception):
        _take_figures(collected, figures)


@contextlib.contextmanager
def _descriptors(collected: Collected) -> Iterator[None]:
    """What child processes and C code write to descriptors 1 and 2."""
    try:
        copies = os.dup(1), os.dup(2)
    except OSError:
        yield
        return
    with tempfile.TemporaryFile() as spool:
        try:
            os.dup2(spool.fileno(), 1)
            os.dup2(spool.fileno(), 2)
            yield
        finally:
            os.dup2(copies[0], 1)
            os.dup2(copies[1], 2)
            os.close(copies[0])
            os.close(copies[1])
        size = spool.seek(0, io.SEEK_END)
        spool.seek(max(0, size - KEEP))
        written = spool.read(KEEP).decode("utf-8", "replace")
        if written:
            collected.line(written)


def _figures() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set(pyplot.get_fignums()) if pyplot is not None else set()


def _take_figures(collected: Collected, before: set[int]) -> None:
    """Figures that the code opened and did not show; they are closed, as the inline backend does at a cell's end."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        if number in before:
            continue
        figure = pyplot.figure(number)
        if figure.get_axes() or figure.lines or figure.texts:
            collected.show({"image/png": small_png(figure)})
        pyplot.close(figure)


def small_png(figure: Any) -> bytes:
    """A matplotlib figure as PNG, at a resolution that keeps it small enough to stay in a notebook."""
    data = b""
    for dpi in _DPIS:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
        data = buffer.getvalue()
        if len(data) <= IMAGE_LIMIT:
            break
    return data
