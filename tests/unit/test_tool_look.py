"""``list``, ``glob`` and ``grep``: what they show, what they leave out, what they refuse."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import psutil
import pytest

from nbagent.errors import Denied, ToolError
from nbagent.ignore import MADE_BY_PROGRAMS, VERSION_CONTROL
from nbagent.permission.ruleset import Rule
from nbagent.tools.filelist import MADE
from nbagent.tools.glob import Glob
from nbagent.tools.grep import Grep
from nbagent.tools.pattern import path_matcher
from nbagent.tools.registry import all_tools
from tests.toolbox import ALLOW, Toolbox, toolbox


@pytest.fixture(params=["ripgrep", "python"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Toolbox:
    ripgrep = request.param == "ripgrep"
    return toolbox(tmp_path, tools={**all_tools(), "grep": Grep(ripgrep), "glob": Glob(ripgrep)})


def aged(box: Toolbox, *paths: str) -> None:
    """Put files, the oldest first."""
    for number, path in enumerate(paths):
        os.utime(box.put(path, f"needle {path}\n"), (1_700_000_000 + number, 1_700_000_000 + number))


async def test_newest_first(box: Toolbox) -> None:
    aged(box, "old.py", "sub/mid.py", "new.py")
    assert await box.text("glob", pattern="*.py") == "new.py\nsub/mid.py\nold.py"
    said = await box.text("grep", pattern="needle")
    assert [line for line in said.split("\n") if line.endswith(":")] == ["new.py:", "sub/mid.py:", "old.py:"]
    assert said.endswith("[3 matches in 3 files.]")


async def test_hidden_files_are_shown_by_all_three(box: Toolbox) -> None:
    aged(box, ".hidden/.config", ".git/objects/x", "seen", "skip.log", "__pycache__/a.pyc")
    box.put(".gitignore", "*.log\n")
    os.utime(box.root / ".gitignore", (1, 1))
    assert await box.text("glob", pattern="**/*") == "seen\n.hidden/.config\n.gitignore"
    assert "2 matches in 2 files" in await box.text("grep", pattern="needle")
    listed = await box.text("list")
    assert listed == "./\n  .hidden/\n    .config\n  .gitignore\n  seen\n\n[4 entries.]"


async def test_more_than_a_hundred(box: Toolbox) -> None:
    for number in range(130):
        box.put(f"f{number:03}.txt", "needle\nneedle\n")
        os.utime(box.root / f"f{number:03}.txt", (1_700_000_000 + number,) * 2)
    said = await box.call("glob", pattern="*.txt")
    assert said.output.startswith("f129.txt\nf128.txt\n")
    assert said.output.endswith("[the 100 newest of 130 are shown: use a narrower pattern or path for the others.]")
    assert said.metadata == {"count": 100, "truncated": True, "left_out": 0}
    found = await box.call("grep", pattern="needle")
    assert found.output.startswith("f129.txt:\n  1: needle\n  2: needle\n\nf128.txt:")
    assert found.output.endswith("[100 matches in 50 files; there are more: use a narrower pattern, path or include.]")
    listed = await box.call("list")
    assert listed.output.count("\n  f") == 100
    assert "… 30 more" in listed.output
    exactly = await box.call("grep", pattern="needle", path="f000.txt")
    assert exactly.output == "f000.txt:\n  1: needle\n  2: needle\n\n[2 matches in 1 file.]"


async def test_exactly_a_hundred_is_not_more(box: Toolbox) -> None:
    box.put("a.txt", "needle\n" * 100)
    assert "there are more" not in await box.text("grep", pattern="needle")
    box.put("a.txt", "needle\n" * 101)
    assert "there are more" in await box.text("grep", pattern="needle")


async def test_a_name_with_brackets_is_found_by_its_spelling(box: Toolbox) -> None:
    aged(box, "app/[id].tsx", "app/i.tsx")
    assert await box.text("glob", pattern="app/[id].tsx") == "app/i.tsx\napp/[id].tsx"
    assert "app/[id].tsx:" in await box.text("grep", pattern="needle", include="[id].tsx")


async def test_an_absolute_pattern_stays_in_its_folder(box: Toolbox) -> None:
    aged(box, "sub/deep.py", "top.py")
    here = box.root.as_posix()
    assert await box.text("glob", pattern=f"{here}/*.py") == "top.py"
    assert "1 match in 1 file" in await box.text("grep", pattern="needle", include=f"{here}/*.py")


async def test_nothing_found_says_why_where_the_pattern_tells(box: Toolbox) -> None:
    aged(box, "sub/a.py")
    assert "It is a folder: use sub/** for" in await box.text("glob", pattern="sub")
    for pattern in ("../*.py", "/etc/*", "~/x"):
        assert "send another folder as path" in await box.text("glob", pattern=pattern)
    assert await box.text("glob", pattern="sub/*.py", path="sub") == "No files below sub match sub/*.py."
    said = await box.text("grep", pattern="needle", include="*.py,*.md")
    assert said.startswith("No file's name matches the include '*.py,*.md', so nothing was searched.")
    assert (await box.text("grep", pattern="nothing", include="*.py")).startswith("Nothing matches 'nothing'.")


async def test_guarded_files_are_left_out_and_counted_whatever_is_in_them(box: Toolbox) -> None:
    aged(box, ".env", "sub/prod.env", "a.py", ".env.example")
    for pattern in ("needle", "nothing at all", "needle .env"):
        said = await box.text("grep", pattern=pattern)
        assert "2 files left out (a rule guards reading)" in said
        assert "prod.env:" not in said
    assert await box.text("glob", pattern="*env*") == ".env.example\n\n[2 left out (a rule guards reading them).]"
    assert "prod" not in await box.text("list")
    box.rules = (*ALLOW, Rule("read", "private/*", "deny"), Rule("grep", "sub/*", "deny"))
    aged(box, "private/x.py", "sub/y.py")
    said = await box.text("grep", pattern="needle")
    assert "private" not in said
    assert "sub/" not in said
    assert "y.py" in await box.text("glob", pattern="**/y.py")


async def test_naming_a_guarded_file_asks_for_it(box: Toolbox) -> None:
    box.put(".env", "KEY=1\n")
    assert [need.permission for need in box.declare("grep", pattern="KEY", path=".env").needs] == ["grep", "read"]
    assert "1: KEY=1" in await box.text("grep", pattern="KEY", path=".env")
    box.replies["read"] = "reject"
    with pytest.raises(Denied):
        await box.call("grep", pattern="KEY", path=".env")


async def test_links_are_not_followed(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.py").write_text("needle\n")
    box.put("a.py", "needle\n")
    (box.root / "link.py").symlink_to(tmp_path / "out/secret.py")
    (box.root / "dir").symlink_to(tmp_path / "out")
    (box.root / "loop").symlink_to(box.root)
    assert await box.text("glob", pattern="**/*.py") == "a.py"
    assert "1 match in 1 file" in await box.text("grep", pattern="needle")
    assert "secret" not in await box.text("list")
    assert "dir@" in await box.text("list")
    assert box.declare("list", path="dir").needs[0].permission == "external_directory"


async def test_missing_and_wrong_paths(box: Toolbox) -> None:
    box.put("src/a.py", "x\n")
    for name, call in (("list", {}), ("glob", {"pattern": "*"}), ("grep", {"pattern": "x"})):
        with pytest.raises(ToolError, match=r"srk does not exist\. Did you mean src\?"):
            await box.call(name, path="srk", **call)
    with pytest.raises(ToolError, match="is a file, not a folder"):
        await box.call("list", path="src/a.py")
    with pytest.raises(ToolError, match="is a file, not a folder"):
        await box.call("glob", path="src/a.py", pattern="*")


async def test_bad_patterns(box: Toolbox) -> None:
    box.put("a.py", "foo(\nfoo {\n")
    with pytest.raises(ToolError, match=r"is not a regular expression.*backslash"):
        await box.call("grep", pattern="foo(")
    with pytest.raises(ToolError, match="line break"):
        await box.call("grep", pattern="foo\nbar")
    assert "2: foo {" in await box.text("grep", pattern="foo {")
    assert "Nothing matches" in await box.text("grep", pattern="-e")
    assert "No files match --help." in await box.text("glob", pattern="--help")


async def test_a_search_stays_below_its_folder_and_ignore_files_above_count(box: Toolbox) -> None:
    aged(box, "a/x.py", "a/skip/y.py", "b/z.py")
    box.put(".gitignore", "a/skip/\n")
    assert await box.text("glob", pattern="*.py", path="a") == "a/x.py"
    assert "1 match in 1 file" in await box.text("grep", pattern="needle", path="a")
    assert await box.text("glob", pattern="*.py", path="a/skip") == "a/skip/y.py"
    absolute = await box.text("glob", pattern=f"{box.root}/a/*.py")
    assert absolute == "a/x.py"


async def test_include(box: Toolbox) -> None:
    aged(box, "a.py", "b.ts", "sub/c.py", "sub/d.tsx")
    for include, files in (
        ("*.py", 2),
        ("*.{ts,tsx}", 2),
        ("sub/*", 2),
        ("sub/**/*.py", 1),
        ("**/a.py", 1),
        ("[ab].*", 2),
    ):
        assert f"in {files} file" in await box.text("grep", pattern="needle", include=include), include


async def test_list_ignore_and_outside(box: Toolbox, tmp_path: Path) -> None:
    aged(box, "a.py", "docs/x.md", "docs/deep/y.md")
    assert "x.md" not in await box.text("list", ignore=["*.md"])
    assert "deep" not in await box.text("list", ignore=["docs/deep"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/o.txt").write_text("needle\n")
    assert f"{tmp_path}/other/o.txt" in await box.text("glob", pattern="*", path=str(tmp_path / "other"))
    box.replies["external_directory"] = "reject"
    with pytest.raises(Denied):
        await box.call("list", path=str(tmp_path / "other"))


async def test_strange_names(box: Toolbox) -> None:
    aged(box, "-e", "a b", "new\nline", "tab\tx", "日本")
    (box.root / os.fsdecode(b"bad\xff")).write_text("needle\n")
    said = await box.text("grep", pattern="needle")
    assert "6 matches in 6 files" in said
    assert "-e:" in said
    assert "日本:" in said
    assert len((await box.text("glob", pattern="*")).encode()) > 20


async def test_stopping_a_search_leaves_nothing_running(tmp_path: Path) -> None:
    box = toolbox(tmp_path, tools={**all_tools(), "grep": Grep(ripgrep=False)})
    box.put("a.txt", "a" * 60 + "!\n")
    task = asyncio.create_task(box.call("grep", pattern="(a+)+$"))
    for _ in range(500):
        if _scanning():
            break
        await asyncio.sleep(0.02)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 5
    assert not _scanning()


def _scanning() -> bool:
    """Whether a child process of ours searches."""
    children = psutil.Process().children()
    return any("nbagent.tools.scan" in " ".join(child.cmdline()) for child in children if child.status() != "zombie")


async def test_a_ripgrep_of_the_project_is_not_run(tmp_path: Path) -> None:
    box = toolbox(tmp_path)
    fake = box.put("bin/rg", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    fake.chmod(0o755)
    box.environment = {"PATH": str(fake.parent)}
    box.put("a.txt", "needle\n")
    assert "a.txt:" in await box.text("grep", pattern="needle")
    assert not (tmp_path / "ran").exists()


def test_the_ignore_file_for_ripgrep_says_what_the_walk_says() -> None:
    assert MADE.read_text().split() == [*sorted(VERSION_CONTROL), *MADE_BY_PROGRAMS]


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a/b/c.py", True),
        ("**/*.py", "c.py", True),
        ("src/*.py", "src/a/c.py", False),
        ("src/**", "src/a/c.py", True),
        ("src/**/c.py", "src/c.py", True),
        ("/c.py", "c.py", True),
        ("./c.py", "a/c.py", False),
        ("*.{py,txt}", "x.txt", True),
        ("{a,b{c,d}}.py", "bd.py", True),
        ("{a", "{a", True),
        ("[!a].py", "b.py", True),
        ("[a-c]?", "bz", True),
        ("[", "[", True),
        (r"\*.py", "*.py", True),
        (r"\*.py", "a.py", False),
        ("a*b", "a/b", False),
        ("", "a", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, path: str, fits: bool) -> None:
    assert path_matcher(pattern)(path) is fits


async def test_a_guard_on_a_folder_counts_its_files(box: Toolbox) -> None:
    aged(box, "a.py", "vault/x.py", "deep/vaulted/y.py", "deep/z.py")
    box.rules = (*ALLOW, Rule("read", "*vault*", "deny"))
    for pattern in ("needle", r"\bnothing\b"):
        assert "2 files left out (a rule guards reading)" in await box.text("grep", pattern=pattern)
