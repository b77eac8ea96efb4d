"""A tiny MCP server over standard input and output, or, with ``--http``, over HTTP; no library needed.

``--http`` prints its port. ``WAY`` in the environment changes how it behaves: ``silent`` never answers, ``broken`` exits at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "$schema": "x",
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "store it!",
        "description": "Store a value.",
        "inputSchema": {"type": "object", "additionalProperties": True},
    },
    {"name": "picture", "description": "", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "fail", "description": "Always fails.", "inputSchema": {"type": "object"}},
    {"name": "sleep", "description": "Takes long.", "inputSchema": {"type": "object", "additionalProperties": True}},
    {"name": "die", "description": "Ends the server.", "inputSchema": {"type": "object"}},
]


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "add":
        return {"content": [{"type": "text", "text": str(arguments["a"] + arguments["b"])}]}
    if name == "store it!":
        shown = {
            "given": arguments,
            "pid": os.getpid(),
            "secret": os.environ.get("SECRET", ""),
            "mine": os.environ.get("MINE", ""),
        }
        return {"content": [], "structuredContent": shown}
    if name == "picture":
        part = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        return {
            "content": [
                {"type": "text", "text": "here"},
                part,
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            ]
        }
    if name == "sleep":
        if "mark" in arguments:
            Path(arguments["mark"]).touch()
        time.sleep(30)
    if name == "die":
        os._exit(3)
    return {"content": [{"type": "text", "text": "it went wrong"}], "isError": True}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return None
    result: dict[str, Any]
    if method == "initialize":
        result = {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }
    elif method == "tools/list":
        page = int(params.get("cursor") or 0)
        result = {"tools": TOOLS[page : page + 4]}
        if page == 0:
            result["nextCursor"] = "4"
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments") or {})
    else:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": f"no {method}"}}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if self.headers.get("x-key") != "k":
            self.send_error(401)
            return
        said = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = json.dumps(said).encode() if said is not None else b""
        self.send_response(200 if said is not None else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    way = os.environ.get("WAY", "")
    if way == "broken":
        sys.exit("cannot start")
    if "--http" in sys.argv:
        server = HTTPServer(("127.0.0.1", 0), Handler)
        print(server.server_address[1], flush=True)
        server.serve_forever()
    for line in sys.stdin:
        if way == "silent":
            continue
        said = answer(json.loads(line))
        if said is not None:
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
