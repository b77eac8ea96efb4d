"""With ripgrep and without: the same files, the same matches."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbagent.errors import ToolError
from nbagent.tools.glob import Glob
from nbagent.tools.grep import Grep
from nbagent.tools.registry import all_tools
from nbagent.tools.walk import Walk
from tests.toolbox import Toolbox, toolbox

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")

NAMES = st.sampled_from(["a", "b", "c.py", "d.txt", ".hidden", "e.log", "build", "x y", "é.py", ".env", "node_modules"])
LINES = st.sampled_from(["alpha", "beta one", "  Beta", "x = 1", "tail\r", "", "ümlaut", "foo(bar)", "a" * 30, "[z]"])
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.lists(LINES, max_size=6), min_size=1, max_size=12
)
RULES = st.lists(
    st.sampled_from(
        [
            "*.log",
            "build/",
            "/a",
            "!keep.log",
            "a/b",
            "**/c.py",
            "!c.py",
            "# x",
            "b/**",
            "*.py",
            "!*/",
            "x\\ y",
            "[de].*",
            "",
        ]
    ),
    max_size=4,
)
PATTERNS = st.sampled_from(
    [
        "alpha",
        "^beta",
        "(?i)beta",
        r"\d$",
        "a+",
        r"foo\(",
        "tail$",
        "zzz",
        "[aü]",
        r"^\s",
        "x.*1",
        "one|two",
        r"\bx\b",
        "^$",
    ]
)


def make_tree(root: Path, files: dict[str, list[str]], ignores: dict[str, list[str]], git: bool) -> None:
    if git:
        subprocess.run(["git", "init", "-q", str(root)], check=True, env={**os.environ, "GIT_TEMPLATE_DIR": ""})
    stamp = 1_700_000_000
    for path, lines in files.items():
        real = root / path
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            real.write_bytes("\n".join(lines).encode() + b"\n")
        except OSError:
            continue  # a name is a file here and a folder there
        stamp += 10
        os.utime(real, (stamp, stamp))
    for folder, lines in ignores.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(lines) + "\n")


def both(root: Path, name: str, **arguments: str) -> tuple[str, str]:
    """What a tool says with ripgrep and without."""
    said = []
    for ripgrep in (True, False):
        box = Toolbox(root, tools={**all_tools(), "grep": Grep(ripgrep), "glob": Glob(ripgrep)})
        said.append(asyncio.run(box.text(name, **arguments)))
    return said[0], said[1]


SLOW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@needs_ripgrep
@SLOW
@given(
    files=FILES,
    top=RULES,
    below=RULES,
    git=st.booleans(),
    pattern=PATTERNS,
    path=st.sampled_from([".", ".", "a", "build"]),
)
def test_same_on_random_trees(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, list[str]],
    top: list[str],
    below: list[str],
    git: bool,
    pattern: str,
    path: str,
) -> None:
    root = tmp_path_factory.mktemp("tree")
    make_tree(root, files, {".": top, "a": below}, git)
    if not (root / path).is_dir():
        path = "."
    with_ripgrep, without = both(root, "grep", pattern=pattern, path=path)
    assert with_ripgrep == without
    with_ripgrep, without = both(root, "glob", pattern="**/*", path=path)
    assert with_ripgrep == without


@pytest.mark.fuzz
@needs_ripgrep
@settings(SLOW, max_examples=400)
@given(
    files=FILES,
    top=RULES,
    below=RULES,
    git=st.booleans(),
    pattern=PATTERNS,
    path=st.sampled_from([".", ".", "a", "build"]),
)
def test_same_on_many_random_trees(
    tmp_path_factory: pytest.TempPathFactory,
    files: dict[str, list[str]],
    top: list[str],
    below: list[str],
    git: bool,
    pattern: str,
    path: str,
) -> None:
    root = tmp_path_factory.mktemp("tree")
    make_tree(root, files, {".": top, "a": below}, git)
    path = path if (root / path).is_dir() else "."
    assert len(set(both(root, "grep", pattern=pattern, path=path))) == 1
    assert len(set(both(root, "glob", pattern="**/*", path=path))) == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@SLOW
@given(files=FILES, top=RULES, below=RULES)
def test_walk_leaves_out_what_git_ignores(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, list[str]], top: list[str], below: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    make_tree(root, files, {".": top, "a": below}, git=True)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("node_modules/\n")
    said = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True
    ).stdout.decode()
    assert set(Walk(root, root).files()) == {name for name in said.split("\0") if name}


@needs_ripgrep
@pytest.mark.parametrize(
    "pattern",
    [
        r"(?=al)alpha",
        r"(a)\1",
        "[[:alpha:]]+ha",
        r"alpha\z",
        "(?<w>al)pha",
        "foo {",
        "{",
        "é",
        r"\x41|alpha",
        "(?i:ALPHA)",
        r"\x{41}|\u{e9}",
        r"\p{Lu}",
        r"^\P{L}",
        r"[\p{N}x]$",
        r"\p{uppercase_letter}",
        "^[[:^alpha:]]",
        "[[:space:]]y",
        "[[:punct:]]",
        "al(?i)PHA|AA",
        "(?:al(?i)P|x)ha",
        "(?-i)alpha",
        "(?s)f.o",
        "c.r",
        "[]a]",
        r"[\]x]",
        "(?#said)alpha",
    ],
)
def test_same_for_patterns_of_either_kind(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/a.txt").write_bytes("alpha\naa {\nfoo {\nÉé\nalPHA\nx\xa0y\nc\rr\ncor q y\n12 x\nA\n".encode())
    with_ripgrep, without = both(tmp_path / "w", "grep", pattern=pattern)
    assert with_ripgrep == without
    assert "a.txt:" in without


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a-z&&[^b]]", "a set within a set"),
        ("[[a]b]", "a set within a set"),
        (r"\p{Greek}", "general categories"),
        ("a\0b", "NUL character"),
        ("x" * 30_000, "30,000 characters"),
    ],
)
def test_what_python_cannot_search_for_is_said(tmp_path: Path, pattern: str, reason: str) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/a.txt").write_text("alpha\n")
    box = toolbox(tmp_path, tools={**all_tools(), "grep": Grep(False)})
    with pytest.raises(ToolError, match=reason):
        asyncio.run(box.call("grep", pattern=pattern))


@needs_ripgrep
def test_same_for_notebooks_encodings_binaries_and_long_lines(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    notebook = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "needle"}},
        "cells": [
            {
                "id": "c1",
                "cell_type": "code",
                "source": ["import os\n", 'x = df["needle"]\n'],
                "outputs": [],
                "metadata": {},
            },
            {
                "id": "c2",
                "cell_type": "code",
                "source": "plot()",
                "metadata": {},
                "outputs": [
                    {"output_type": "stream", "name": "stdout", "text": ["a\n", "the \x1b[31mneedle\x1b[0m\n"]},
                    {"output_type": "display_data", "data": {"image/png": "needle" * 50, "text/plain": "<Fig>"}},
                    {"output_type": "error", "ename": "E", "evalue": "needle", "traceback": ["no needle"]},
                ],
            },
        ],
    }
    (root / "n.ipynb").write_text(json.dumps(notebook, indent=1))
    (root / "broken.ipynb").write_text('{"cells": needle')
    (root / "u16.txt").write_bytes("\ufeffneedle ü\r\nx\r\n".encode("utf-16-le"))
    (root / "bom.txt").write_bytes(b"\xef\xbb\xbfneedle\n")
    (root / "bin.dat").write_bytes(b"\0\1needle\n")
    (root / "long.txt").write_text("y" * 9000 + "needle" + "y" * 9000)
    (root / "latin.txt").write_bytes("caf\xe9 needle\n".encode("latin-1"))
    for number, name in enumerate(sorted(os.listdir(root))):
        os.utime(root / name, (1_700_000_000 + number, 1_700_000_000 + number))
    with_ripgrep, without = both(root, "grep", pattern='["^ ]needle|needle')
    assert with_ripgrep == without
    assert '  cell c1 line 2: x = df["needle"]' in without
    assert "  cell c2 output: the needle" in without
    assert "bin.dat" not in without
    assert "broken.ipynb" not in without
    assert "u16.txt:\n  1: needle ü" in without
    assert "needleneedle" not in without
    assert "yyneedleyy" in without and "… [long line]" in without
    with_ripgrep, without = both(root, "grep", pattern="needle", path="n.ipynb")
    assert with_ripgrep == without
    with_ripgrep, without = both(root, "grep", pattern="needle", include="*.{txt,dat}")
    assert with_ripgrep == without
    assert "ipynb" not in without
