"""Kernels in a small project with a bug in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kernel.kernel import Kernel
from tests.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("src/model.py", "def recall(tp, fp, fn):\n    return tp / (tp + fp)\n")
    project.write("README.md", "A churn model.\n")
    return project


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel with nbagent loaded for the tests of a module that do not disturb each other; ``use`` a server in it."""
    project = Project(tmp_path_factory.mktemp("shared"))
    project.write("README.md", "A churn model.\n")
    one = Kernel(project.root, project.environment)
    one.run("%load_ext nbagent")
    yield one
    one.close()


@pytest.fixture
def kernel(project: Project) -> Iterator[Callable[[], Kernel]]:
    """Starts a kernel in the project with nbagent loaded."""
    started: list[Kernel] = []

    def start(load: bool = True) -> Kernel:
        one = Kernel(project.root, project.environment)
        started.append(one)
        if load:
            done = one.run("%load_ext nbagent")
            assert done.status == "ok" and done.outputs == []
        return one

    yield start
    for one in started:
        one.close()
