"""Imports point down the house and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "nbagent"

ROOMS = (
    ("cli", "terminal", "__main__"),
    ("notebook",),
    ("doctor",),
    ("runtime",),
    ("session",),
    ("tools",),
    ("provider",),
    ("store",),
    ("config",),
    ("agent", "agent_file"),
    ("sandbox",),
    ("frontend",),
    ("permission",),
    ("root",),
    ("event",),
    ("message",),
    (
        "clock",
        "collector",
        "mask",
        "ignore",
        "removal",
        "temporary",
        "worker",
        "version",
        "whole",
        "streams",
        "mistake",
    ),
    ("errors",),
)
"""From the top of the house to its ground."""

LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names}
JUPYTER = (
    "IPython",
    "ipykernel",
    "ipywidgets",
    "anywidget",
    "comm",
    "jupyter_client",
    "jupyter_core",
    "nbclient",
    "nbconvert",
)
VALUES_ONLY = {("permission", "event"), ("errors", "permission")}
"""``errors`` names a rule in a type; nothing is imported when it runs."""


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "labextension" not in path.parts)


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, only for types) of every import, wherever in the file it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing_only |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                yield _imported(node.module, alias.name), node.lineno, id(node) in typing_only


def _imported(module: str, name: str) -> str:
    """``from module import name``: a submodule where there is one, else the module itself."""
    if not module.startswith("nbagent"):
        return module
    path = PACKAGE.joinpath(*module.split(".")[1:], name)
    return f"{module}.{name}" if path.with_suffix(".py").exists() or path.is_dir() else module


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    mine = room(path)
    if mine == "__init__":
        return
    assert mine in LEVEL, (
        f"{path.name} has no place in the house; give {mine!r} one in ROOMS and in docs/architecture.md"
    )
    for module, line, for_types in imports(path):
        if not module.startswith("nbagent.") or for_types:
            continue
        other = module.split(".")[1]
        if other == "__version__":
            continue
        assert other in LEVEL, f"{path}:{line}: {module} has no place in the house"
        assert LEVEL[other] >= LEVEL[mine], f"{path}:{line}: {mine} imports {module}, which is above it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_notebook_knows_jupyter(path: Path) -> None:
    if room(path) == "notebook":
        return
    found = [f"{path}:{line}: {module}" for module, line, _ in imports(path) if module.split(".")[0] in JUPYTER]
    assert found == []


def test_no_cycle_between_modules() -> None:
    names = {
        ".".join(("nbagent", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in modules()
    }
    needs = {
        name: {module for module, _, for_types in imports(path) if module in names and not for_types and module != name}
        for name, path in names.items()
    }
    done: set[str] = set()
    while len(done) < len(needs):
        free = {name for name, wanted in needs.items() if name not in done and wanted - done <= set()}
        assert free, f"a cycle among {sorted(set(needs) - done)}"
        done |= free


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_difference_by_name_of_agent(path: Path) -> None:
    """What agents may do differs by data: nothing compares an agent's name with a word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            text = ast.unparse(node)
            words = [
                each
                for each in ast.walk(node)
                if isinstance(each, ast.Constant) and each.value in ("plan", "build", "explore", "general")
            ]
            assert not (words and "agent" in text), f"{path}:{node.lineno}: {text}"


def test_nothing_vague_in_file_names() -> None:
    vague = {"utils", "util", "helpers", "helper", "manager", "handler", "common", "misc"}
    assert [path for path in modules() if path.stem in vague] == []
