from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nbagent.ignore import Paths, Rules, above, index_names, repository, tracked, weakest

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="compares with git")


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    assert GIT is not None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    run = subprocess.run([GIT, *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False)
    assert run.returncode in (0, 1), run.stderr
    return run.stdout


def left_out(rules: Rules, path: str, folder: bool = False) -> bool:
    """As a walk would decide: each folder on the way first."""
    names = path.split("/")
    for depth in range(1, len(names)):
        if rules.ignored("/".join(names[:depth]), names[depth - 1], True):
            return True
    return rules.ignored(path, names[-1], folder)


@pytest.mark.parametrize(
    ("text", "path", "ignored"),
    [
        ("*.log", "a/b.log", True),
        ("*.log\n!keep.log", "a/keep.log", False),
        ("!keep.log\n*.log", "keep.log", True),
        ("/dist", "dist", True),
        ("/dist", "a/dist", False),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("**/c", "x/c", True),
        ("a/**", "a/b", True),
        ("a/**", "a", False),
        ("build/", "build", False),
        ("build/", "build/x", True),
        ("# no", "# no", False),
        ("\\#yes", "#yes", True),
        ("\\!yes", "!yes", True),
        ("space\\ ", "space ", True),
        ("trail   ", "trail", True),
        ("f[a-c].x", "fb.x", True),
        ("f[!a-c].x", "fb.x", False),
        ("f[]-].x", "f].x", True),
        ("f[[:digit:]].x", "f7.x", True),
        ("f[", "f[", False),
        ("", "a", False),
        ("\n\r\n*.tmp\r\n", "x.tmp", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("x.y", "xzy", False),
        ("*", "anything/at/all", True),
        ("/*\n!/src", "src/a.py", False),
        ("/*\n!/src", "lib/a.py", True),
    ],
)
def test_one_ignore_file(text: str, path: str, ignored: bool) -> None:
    assert left_out(Rules().below("", text), path) is ignored


def test_the_nearer_file_decides() -> None:
    rules = Rules().below("", "*.csv\n").below("data/", "!good.csv\n/only-here\n")
    assert not left_out(rules, "data/good.csv")
    assert left_out(rules, "data/bad.csv")
    assert left_out(rules, "data/only-here")
    assert not left_out(rules, "data/sub/only-here")


def test_folders_of_programs_are_left_out_unless_a_project_says_otherwise() -> None:
    assert left_out(weakest(None), "a/__pycache__/x.pyc")
    assert left_out(weakest(None), "node_modules/x/y.js")
    assert not left_out(weakest(None), "src/a.py")
    assert not left_out(weakest(None).below("", "!node_modules/\n"), "node_modules/x/y.js")


names = st.sampled_from(["a", "b", "ab", "a.x", "b.x", ".h", "a b", "[a]"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
pieces = ["a", "b", "*", "**", "?", "/", ".x", "[ab]", "[!a]", "\\", "!", "#", " ", ".h"]
# git gives ``a**/b`` and ``\\/`` a meaning that its manual does not
globs = (
    st.lists(st.sampled_from(pieces), max_size=7)
    .map("".join)
    .filter(lambda glob: not re.search(r"[^/]\*\*+/|\\/", glob))
)


@needs_git
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(globs, max_size=4), asked=st.lists(paths, min_size=1, max_size=12, unique=True))
@example(lines=["a/**/b", "!**/a.x"], asked=["a/b", "a/a/b", "a.x", "b/a.x"])
@example(lines=["**"], asked=["a"])
@example(lines=["a/", "!a/b"], asked=["a/b", "b/a"])
@example(lines=["**a", "a**/b", "**/", "/**", "***"], asked=["a/b", "ba", "b/a/b"])
def test_agrees_with_git(tmp_path_factory: pytest.TempPathFactory, lines: list[str], asked: list[str]) -> None:
    folder = tmp_path_factory.mktemp("repo")
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("\n".join(lines) + "\n")
    told = git(
        folder, "check-ignore", "--no-index", "-z", "--stdin", stdin=b"".join(os.fsencode(p) + b"\0" for p in asked)
    )
    ignored = {os.fsdecode(raw) for raw in told.split(b"\0") if raw}
    rules = Rules().below("", "\n".join(lines))
    assert {path for path in asked if left_out(rules, path)} == ignored


@needs_git
@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_tracked_files_are_read_from_the_index(tmp_path: Path, version: str) -> None:
    git(tmp_path, "init", "-q")
    files = ["a.py", "src/deep/b.py", "src/deep/c.py", "src/" + "n" * 200, "ünï.txt", "x.log"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.log\n")
    git(tmp_path, "add", "-f", *files)
    if version == "3":
        (tmp_path / "later").write_text("")
        git(tmp_path, "add", "-N", "later")
        files.append("later")
    git(tmp_path, "update-index", "--index-version", version)
    assert tracked(tmp_path) == Paths.of(files)
    assert "src/deep" in tracked(tmp_path)


@needs_git
def test_a_work_tree_beside_its_repository(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "-q")
    (main / "a").write_text("1")
    git(main, "add", "a")
    git(main, "commit", "-q", "-m", "x")
    git(main, "worktree", "add", "-q", str(tree))
    (main / ".git" / "info" / "exclude").write_text("*.secret\n")
    assert tracked(tree).files == {"a"}
    assert left_out(weakest(tree), "x.secret")
    assert repository(tree / "sub") == tree


@needs_git
def test_rules_above_the_root_hold_in_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.log\n/sub/out\nhidden/\n")
    (tmp_path / "sub" / "out").mkdir(parents=True)
    rules = above(tmp_path, tmp_path / "sub")
    assert left_out(rules, "sub/x.log")
    assert left_out(rules, "sub/out/x")
    assert not left_out(rules, "sub/x")
    assert not left_out(above(tmp_path, tmp_path / "hidden"), "hidden/x.log"), "the person chose an ignored folder"


@pytest.mark.parametrize(
    "data", [b"", b"DIRC", b"DIRC\0\0\0\x09\0\0\0\x01", b"DIRC\0\0\0\x02\0\0\0\x05" + b"x" * 40, b"\xff" * 500]
)
def test_an_index_that_cannot_be_read_tracks_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(data)
    assert tracked(tmp_path) == Paths()


def test_what_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert tracked(tmp_path) == Paths()
    assert repository(tmp_path) is None
    with pytest.raises(ValueError):
        index_names(b"nothing")
