"""A scripted model in a process of its own that keeps the time of every request; for all programs that are compared.

    with Model(answers) as model:
        ...  # talk to model.url
        model.requests()

``answers`` are those of ``tests.script.from_json``, one a request that offers tools; requests without tools (titles and the
like) get a few words. ``every=True``: every request gets the next answer. The last answer is given again for ever.
"""

from __future__ import annotations

import itertools
import json
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.script import Answer, ChatForm, ResponsesForm, Wire, as_answer, from_json, say
from tests.server import CONTENT_PATHS, ScriptedServer, _Handler, _Play

TOOLS = re.compile(rb'"tools":\s*\[\s*\{')
STREAM = re.compile(rb'"stream":\s*true')
START_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Timed:
    """One request. ``arrived``: its last byte was read; ``left``: its answer's last byte was written (``time.monotonic``)."""

    arrived: float
    left: float
    size: int
    main: bool


class Model:
    """The server's process, as its user has it."""

    def __init__(self, answers: list[Any], *, every: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "script.json"
        path.write_text(json.dumps(answers))
        command = [sys.executable, "-m", "bench.server", str(path), *(["--every"] if every else [])]
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline().strip() if ready else ""
        if not line:
            self.close()
            raise RuntimeError("the scripted model did not start")
        self.port = int(line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def requests(self, main: bool = True) -> list[Timed]:
        """Requests whose answers are out, in the order of their arrival. ``main``: only those that took an answer of the script."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/times", timeout=30) as answer:
            rows = [Timed(*row) for row in json.load(answer)]
        return sorted((row for row in rows if row.main or not main), key=lambda row: row.arrived)

    def body(self) -> dict[str, Any]:
        """The first request that took an answer of the script."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/first", timeout=30) as answer:
            return dict(json.load(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def gaps(requests: list[Timed]) -> list[float]:
    """Milliseconds between an answer's last byte and the arrival of the next request: gap n follows answer n."""
    return [(after.arrived - before.left) * 1000 for before, after in itertools.pairwise(requests)]


# -- the process -------------------------------------------------------------------------------------------------------


class _Clocked(ScriptedServer):
    def __init__(self, script: list[Any], every: bool) -> None:
        self.answers: list[Answer] = [as_answer(each) for each in script]
        self.every = every
        self.times: list[tuple[float, float, int, bool]] = []
        self.first: bytes = b"{}"
        self.place = 0
        self.lock = threading.Lock()
        super().__init__([], strict=False)
        self._httpd.RequestHandlerClass = _Stamping

    def next(self, data: bytes) -> tuple[Answer, bool]:
        if not self.every and not TOOLS.search(data):
            return as_answer(say("Reads some files")), False
        with self.lock:
            answer = self.answers[min(self.place, len(self.answers) - 1)]
            self.first = data if self.place == 0 else self.first
            self.place += 1
        return answer, True


class _Stamping(_Handler):
    def do_GET(self) -> None:  # noqa: N802
        clocked: Any = self.scripted
        if self.path == "/times":
            return self._json(200, clocked.times)
        if self.path == "/first":
            return self._json(200, json.loads(clocked.first))
        return self._plain("GET", {})

    def do_POST(self) -> None:  # noqa: N802
        clocked: Any = self.scripted
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        arrived = time.monotonic()
        if not self.path.split("?")[0].endswith(CONTENT_PATHS):
            return self._plain("POST", {})
        answer, main = clocked.next(data)
        body = {"model": "scripted", "stream_options": {"include_usage": True}}
        form = ResponsesForm(body) if self.path.split("?")[0].endswith("/responses") else ChatForm(body)
        try:
            if STREAM.search(data):
                _Play(self, Wire(), form, 100).run(answer.steps)
            else:
                self._whole(answer, form, 100)
        except ConnectionError:
            self.close_connection = True
        clocked.times.append((arrived, time.monotonic(), len(data), main))
        return None


def main() -> None:
    script = from_json(json.loads(Path(sys.argv[1]).read_text()))
    with _Clocked(script, "--every" in sys.argv) as server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
