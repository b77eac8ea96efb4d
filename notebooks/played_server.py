"""A model server on this machine that plays a cassette, for programs that want a real server: `url = serve("x.cassette")`.

It speaks as much of the OpenAI protocol as is needed (streamed chat completions) and gives the cassette's answers in their order,
whoever asks.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from nbagent.provider.cassette_file import load
from nbagent.provider.provider import Called, Ended, Say


def serve(cassette: str) -> str:
    """Start the server on a free port; the URL for `OPENAI_BASE_URL`. It ends with this process."""
    answers = iter(load(cassette).entries)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send("application/json", json.dumps({"data": [{"id": "played"}]}))

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send("text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in chunks(next(answers).answer)))

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def chunks(answer):
    """The pieces of one answer as chunks of a stream, and its end."""
    for piece in answer:
        delta, finish = {}, None
        if isinstance(piece, Say):
            delta = {"content": piece.text}
        elif isinstance(piece, Called):
            function = {"name": piece.name, "arguments": json.dumps(piece.arguments)}
            delta = {"tool_calls": [{"index": int(piece.id.split("_")[1]), "id": piece.id, "function": function}]}
        elif isinstance(piece, Ended):
            finish = piece.reason.replace("-", "_")
        yield json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    yield "[DONE]"
