"""The first request of a session stays small: every answer pays for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbagent.frontend import Nobody
from nbagent.runtime import Runtime
from nbagent.session.session import Prompt
from tests.project import Project
from tests.server import ScriptedServer, say

MOST = 24 * 1024


@pytest.mark.parametrize("agent", ["plan", "build"])
def test_the_first_request_is_small(tmp_path: Path, agent: str) -> None:
    project = Project(tmp_path)
    with ScriptedServer([[say("done")]]) as server:
        project.use(server)
        runtime = Runtime.open(project.root, environment=project.environment)
        try:
            runtime.start(Prompt("hello", agent), Nobody(lambda event: None)).done.result(60)
        finally:
            runtime.close()
        seen = next(seen for seen in server.seen if seen.body)
    assert int(seen.headers["content-length"]) <= MOST
    names = [tool["function"]["name"] for tool in seen.body["tools"]]
    assert "tool_search" in names, "what is not in the core is found, not sent"
    assert len(json.dumps(seen.body["messages"])) <= MOST // 3
