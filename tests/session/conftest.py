"""A small project with a bug in it; and after every test, requests that only ever grew at their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import prefix
from tests.project import Project
from tests.server import ScriptedServer


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("src/model.py", "def recall(tp, fp, fn):\n    return tp / (tp + fp)\n")
    project.write("README.md", "A churn model.\n")
    return project


@pytest.fixture
def forks() -> bool:
    """Ask for it in a test that copies sessions: a copy goes on from the middle of a conversation."""
    return True


@pytest.fixture
def server(
    request: pytest.FixtureRequest, server: Callable[..., ScriptedServer]
) -> Iterator[Callable[..., ScriptedServer]]:
    """Scripted servers; at the end, the requests of each conversation must extend one another."""
    started: list[ScriptedServer] = []

    def start(script: Any = (), **options: Any) -> ScriptedServer:
        started.append(server(script, **options))
        return started[-1]

    yield start
    bodies = [seen.body for one in started for seen in one.seen if seen.body]
    assert prefix.broken(bodies, forks="forks" in request.fixturenames) == []
