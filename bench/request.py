"""How large the first request of plan and of build is: system prompt and schemas of the tools."""

from __future__ import annotations

import json
from typing import Any

from bench.figure import Figure, Found
from bench.place import ground
from bench.server import Model

CLAIM = "The first request of a session, as it is on the wire."
CHEAP = True
SECONDS = 60
MOST = 24 * 1024


def first(agent: str) -> tuple[int, dict[str, Any]]:
    """Bytes of the first request of ``agent``, and its body."""
    from nbagent.frontend import Nobody
    from nbagent.runtime import Runtime
    from nbagent.session.session import Prompt

    with ground() as place, Model([[{"say": "done"}]]) as model:
        place.use(model.url)
        runtime = Runtime.open(place.root, environment=place.environment)
        runtime.start(Prompt("hello", agent), Nobody(lambda event: None)).done.result(30)
        runtime.close()
        return model.requests()[0].size, model.body()


def measure(quick: bool) -> Found:
    found: Found = []
    for agent in ("plan", "build"):
        size, body = first(agent)
        found.append(Figure(f"request of {agent}", size / 1024, "KB", most=MOST / 1024))
        tools = len(json.dumps(body["tools"], separators=(",", ":"), ensure_ascii=False).encode())
        found.append(Figure(f"of that, schemas of {len(body['tools'])} tools", tools / 1024, "KB"))
    return found
