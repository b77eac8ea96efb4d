"""A scripted, fault-injecting model server: real HTTP and SSE on loopback, standard library only.

In process::

    script = [[say("hi")], [call("read", {"path": "a.py"})], fault(429, headers={"retry-after": "1"})]
    with ScriptedServer(script) as server:
        ...  # talk to server.url
    assert not server.violations

or as a process: ``python -m tests.server script.json`` (see ``script.from_json``) prints its port on one line and
serves until its standard input closes. ``--log FILE`` appends one JSON line a request: path, body, violations.
"""

from __future__ import annotations

import argparse
import gzip
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from tests import strict
from tests.script import (
    Answer,
    AnswerLike,
    Bare,
    ChatForm,
    Cut,
    Fault,
    Finish,
    Form,
    Frame,
    Gate,
    Hold,
    Pause,
    Raw,
    ResponsesForm,
    ScriptItem,
    Step,
    Whole,
    Wire,
    always,
    as_answer,
    bare,
    call,
    content_text,
    cut,
    fault,
    finish,
    frame,
    from_json,
    hold,
    last_user_text,
    pause,
    raw,
    say,
    sse,
    think,
    usage,
    when,
    whole,
    wire,
)

__all__ = [
    "Answer",
    "Gate",
    "ScriptedServer",
    "Seen",
    "always",
    "bare",
    "call",
    "content_text",
    "cut",
    "fault",
    "finish",
    "frame",
    "from_json",
    "hold",
    "last_user_text",
    "pause",
    "raw",
    "say",
    "think",
    "usage",
    "when",
    "whole",
    "wire",
]

CONTENT_PATHS = ("/chat/completions", "/responses")


@dataclass
class Seen:
    """One request as the server saw it. ``client``: its port, the same for requests on one
    connection. ``left``: the client closed the connection before the answer was complete."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    time: float
    client: int = 0
    violations: list[str] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)


class ClientLeft(Exception):
    """The client closed the connection."""


class ScriptedServer:
    """Answers model requests from ``script``, in order (first answer not used up that matches), and keeps what it saw.

    ``script``: a list of answers (see ``script.py``) or a callable that gets the request body and returns an answer.
    ``models``: the list that ``GET /v1/models`` returns (ids or whole objects). ``key``: when set, any other is a 401.
    ``routes``: path → JSON value or ``(status, JSON value)`` for anything else a real server would have.
    ``strict``: whether requests are checked. Ready when the constructor returns.
    """

    def __init__(
        self,
        script: Sequence[ScriptItem] | Callable[[dict[str, Any]], AnswerLike] = (),
        *,
        models: Sequence[str | dict[str, Any]] = ("scripted",),
        key: str = "",
        routes: dict[str, Any] | None = None,
        strict: bool = True,
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        self._script = script if callable(script) else list(script)
        self._lock = threading.Lock()
        self.models = [{"id": m, "object": "model"} if isinstance(m, str) else m for m in models]
        self.key = key
        self.routes = dict(routes or {})
        self.strict = strict
        self.log = log
        self.seen: list[Seen] = []
        self.requests: list[dict[str, Any]] = []
        self.violations: list[str] = []
        self.problems: list[str] = []
        self._httpd = _Server(("127.0.0.1", port), _Handler)
        self._httpd.scripted = self
        self._thread = threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._httpd.server_address[1])

    @property
    def url(self) -> str:
        """Base URL for clients, with ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def left(self) -> int:
        """How many answers of the script have not been given."""
        if callable(self._script):
            return 0
        return sum(1 for item in self._script if not (isinstance(item, Answer) and item.forever))

    def extend(self, *answers: ScriptItem) -> None:
        """Add answers to the script while it runs."""
        with self._lock:
            cast(list[ScriptItem], self._script).extend(answers)

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()
        self._httpd.drop_connections()
        self._thread.join(10)

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def record(self, seen: Seen, model_request: bool) -> None:
        with self._lock:
            self.seen.append(seen)
            if not model_request:
                return
            self.requests.append(seen.body)
            if self.strict:
                seen.violations = strict.check(seen.body)
                self.violations += [f"request {len(self.requests)}: {text}" for text in seen.violations]
            if self.log is not None:
                entry = {"path": seen.path, "body": seen.body, "violations": seen.violations}
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def answer_for(self, body: dict[str, Any]) -> Answer:
        if callable(self._script):
            return as_answer(self._script(body))
        with self._lock:
            for place, item in enumerate(self._script):
                answer = item if isinstance(item, Answer) else None
                if answer is not None and answer.match is not None and not answer.match(body):
                    continue
                if answer is None or not answer.forever:
                    del self._script[place]
                return as_answer(item(body) if callable(item) else item)
            text = f"the script has no answer left for request {len(self.requests)}: {last_user_text(body)[-200:]!r}"
            self.problems.append(text)
        return as_answer(fault(500, {"error": {"message": text, "type": "script_exhausted", "code": "script"}}))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    scripted: ScriptedServer

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, (OSError, ClientLeft)):
            self.scripted.problems.append(f"server error: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120

    def log_message(self, *args: Any) -> None:
        pass

    @property
    def scripted(self) -> ScriptedServer:
        return cast(_Server, self.server).scripted

    def do_GET(self) -> None:
        self._plain("GET", {})

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:  # the client left in the middle of its request
            self.close_connection = True
            return None
        try:
            body = json.loads(data) if data else {}
        except ValueError:
            return self._json(400, {"error": {"message": "We could not parse the JSON body of your request."}})
        if not self.path.split("?")[0].endswith(CONTENT_PATHS):
            return self._plain("POST", body)
        return self._model(body)

    def _see(self, method: str, body: dict[str, Any], model_request: bool) -> Seen:
        headers = {key.lower(): value for key, value in self.headers.items()}
        seen = Seen(method, self.path, headers, body, time.monotonic(), self.client_address[1])
        self.scripted.record(seen, model_request)
        return seen

    def _plain(self, method: str, body: dict[str, Any]) -> None:
        self._see(method, body, model_request=False)
        path = self.path.split("?")[0]
        if path in self.scripted.routes:
            value = self.scripted.routes[path]
            status, value = value if isinstance(value, tuple) else (200, value)
            return self._json(status, value)
        if not self._admitted():
            return None
        if path.endswith("/v1/models"):
            return self._json(200, {"object": "list", "data": self.scripted.models})
        return self._json(
            404, {"error": {"message": f"Invalid URL ({method} {path})", "type": "invalid_request_error"}}
        )

    def _admitted(self) -> bool:
        key = self.scripted.key
        if not key or self.headers.get("authorization") == f"Bearer {key}" or self.headers.get("api-key") == key:
            return True
        sent = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        text = f"Incorrect API key provided: {sent}. You can find your API key in your account settings."
        self._json(401, {"error": {"message": text, "type": "invalid_request_error", "code": "invalid_api_key"}})
        return False

    def _json(self, status: int, value: Any, headers: Sequence[tuple[str, str]] = (), content_type: str = "") -> None:
        data, kind = _body(value)
        self.send_response(status)
        self.send_header("content-type", content_type or kind)
        self.send_header("content-length", str(len(data)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def _model(self, body: dict[str, Any]) -> None:
        seen = self._see("POST", body, model_request=True)
        if not self._admitted():
            return
        answer = self.scripted.answer_for(body)
        form: Form = ResponsesForm(body) if self.path.split("?")[0].endswith("/responses") else ChatForm(body)
        try:
            self._play(answer, form, body)
        except (ClientLeft, BrokenPipeError, ConnectionError):
            seen.left.set()
            self.close_connection = True
        finally:
            seen.done.set()

    def _play(self, answer: Answer, form: Form, body: dict[str, Any]) -> None:
        tokens_in = len(json.dumps(body)) // 4
        how = next((step for step in answer.steps if isinstance(step, Wire)), Wire())
        if not body.get("stream"):
            return self._whole(answer, form, tokens_in)
        return _Play(self, how, form, tokens_in).run(answer.steps)

    def _whole(self, answer: Answer, form: Form, tokens_in: int) -> None:
        for step in answer.steps:
            if isinstance(step, Fault):
                return self._json(step.status, step.body, step.headers)
            if isinstance(step, Whole):
                return self._json(200, step.body, content_type=step.content_type)
            if isinstance(step, (Pause, Hold)):
                self.wait(step)
            for _ in form.frames(step):
                pass
        return self._json(200, form.whole(tokens_in))

    def wait(self, step: Pause | Hold) -> None:
        """Wait, and notice when the client leaves meanwhile."""
        if isinstance(step, Hold):
            step.gate.reached.set()
        end = time.monotonic() + (step.timeout if isinstance(step, Hold) else step.seconds)
        while (left := end - time.monotonic()) > 0:
            if self._gone():
                raise ClientLeft
            if isinstance(step, Hold):
                if step.gate.wait_open(min(left, 0.02)):
                    return
            else:
                time.sleep(min(left, 0.02))

    def _gone(self) -> bool:
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and self.connection.recv(1, socket.MSG_PEEK) == b""


class _Play:
    """One streamed answer on its way out."""

    def __init__(self, handler: _Handler, how: Wire, form: Form, tokens_in: int) -> None:
        self.handler = handler
        self.how = how
        self.form = form
        self.tokens_in = tokens_in
        self.started = False
        self.sent = 0
        self.chunked = not how.http10
        self.buffer = b""
        self.packer: gzip.GzipFile | None = None

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Fault) and not self.started:
                return self.handler._json(step.status, step.body, step.headers)
            if isinstance(step, Whole):
                return self.handler._json(200, step.body, self.how.headers, step.content_type)
            if not self._step(step):
                return None
        if not any(isinstance(step, Bare) for step in steps):
            for data in self._ending():
                self.send(data)
        return self._close()

    def _ending(self) -> Iterator[bytes]:
        if not self.started:
            yield from self.form.begin()
        yield from self.form.end(self.tokens_in)

    def _step(self, step: Step) -> bool:
        match step:
            case Wire() | Bare():
                return True
            case Pause() | Hold():
                self.flush()
                self.handler.wait(step)
            case Cut():
                self.flush()
                self._cut(step.reset)
                return False
            case Raw():
                self.send(step.data, plain=True)
            case Frame():
                self.send(sse(step.value, step.event), plain=True)
            case Fault():
                self.send(sse(step.body, "error"))
            case _:
                for data in self._with_begin(step):
                    self.send(data)
        return True

    def _with_begin(self, step: Step) -> Iterator[bytes]:
        if not self.started and not isinstance(step, Finish):
            yield from self.form.begin()
        yield from self.form.frames(step)

    def _start(self) -> None:
        self.started = True
        handler, how = self.handler, self.how
        if how.http10:
            handler.protocol_version = "HTTP/1.0"
            handler.close_connection = True
        handler.send_response(200)
        handler.send_header("content-type", how.content_type or "text/event-stream; charset=utf-8")
        if self.chunked:
            handler.send_header("transfer-encoding", "chunked")
        if how.gzip:
            handler.send_header("content-encoding", "gzip")
        for name, text in how.headers:
            handler.send_header(name, text)
        handler.end_headers()
        if how.gzip:
            self.packer = gzip.GzipFile(fileobj=self, mode="wb", mtime=0)

    def send(self, data: bytes, plain: bool = False) -> None:
        if not self.started:
            self._start()
        if self.how.crlf:
            data = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        if self.how.limit is not None and self.sent + len(data) > self.how.limit:
            data = data[: self.how.limit - self.sent]
            self._pack(data)
            self.flush()
            self._cut(False)
            raise ClientLeft
        self.sent += len(data)
        self._pack(data)

    def _pack(self, data: bytes) -> None:
        if self.packer is None:
            self.write(data)
        else:
            self.packer.write(data)
            self.packer.flush()

    def write(self, data: bytes) -> int:
        if not self.how.size:
            self._out(bytes(data))
            return len(data)
        self.buffer += data
        while len(self.buffer) >= self.how.size:
            self._out(self.buffer[: self.how.size])
            self.buffer = self.buffer[self.how.size :]
        return len(data)

    def _out(self, data: bytes) -> None:
        if not data:
            return
        if self.chunked:
            data = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        self.handler.wfile.write(data)

    def flush(self) -> None:
        if not self.started:
            self._start()
        if self.buffer:
            self._out(self.buffer)
            self.buffer = b""

    def _close(self) -> None:
        if not self.started:
            self._start()
        if self.packer is not None:
            self.packer.close()
        self.flush()
        if self.chunked:
            self.handler.wfile.write(b"0\r\n\r\n")

    def _cut(self, reset: bool) -> None:
        self.handler.close_connection = True
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.handler.connection.close()


def _body(value: Any) -> tuple[bytes, str]:
    if value is None:
        return b"", "text/plain"
    if isinstance(value, bytes):
        return value, "text/plain"
    if isinstance(value, str):
        return value.encode(), "text/html" if value.lstrip().startswith("<") else "text/plain"
    return json.dumps(value, ensure_ascii=False).encode(), "application/json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server", description="Serve a scripted model on loopback.")
    parser.add_argument("script", type=Path, help="JSON file: a list of answers")
    parser.add_argument("--log", type=Path, help="append one JSON line a request to this file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", default="")
    options = parser.parse_args(arguments)
    script = from_json(json.loads(options.script.read_text(encoding="utf-8")))
    with ScriptedServer(script, key=options.key, log=options.log, port=options.port) as server:
        print(server.port, flush=True)
        sys.stdin.read()
    for text in (*server.violations, *server.problems):
        print(text, file=sys.stderr)
    return 1 if server.violations or server.problems else 0


if __name__ == "__main__":
    sys.exit(main())
