"""What every layer of the tests shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server import ScriptedServer


@pytest.fixture
def server() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts scripted model servers: ``server(script, **options)``. At the end every request must have been valid
    for the strictest server, and none may have gone beyond the script (unless the test emptied those lists itself)."""
    started: list[ScriptedServer] = []

    def start(script: Any = (), **options: Any) -> ScriptedServer:
        started.append(ScriptedServer(script, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()
    assert [text for one in started for text in one.violations] == []
    assert [text for one in started for text in one.problems] == []
