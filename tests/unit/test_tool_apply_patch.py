"""``apply_patch``: all or nothing, what it refuses, what it keeps."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nbagent.errors import Denied, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.tools.patch import PatchError, apply, parse
from nbagent.tools.registry import check_arguments
from nbagent.tools.textfile import decode_file
from tests.toolbox import ALLOW, Toolbox, toolbox


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return toolbox(tmp_path)


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def run(box: Toolbox, *lines: str) -> str:
    return await box.text("apply_patch", patchText=patch(*lines))


def applied(text: bytes, *lines: str) -> bytes:
    (section,) = parse(patch("*** Update File: f", *lines))
    return apply(decode_file(text), section).file.encode()


# All or nothing


async def test_one_denied_path_and_nothing_is_written(box: Toolbox) -> None:
    box.rules = (*ALLOW, Rule("edit", "src/*", "deny", "project"))
    box.put("a.txt", "one\n")
    with pytest.raises(Denied, match="src/moved"):
        await run(box, "*** Update File: a.txt", "*** Move to: src/moved.txt", "@@", "-one", "+two")
    with pytest.raises(Denied):
        await run(box, "*** Update File: a.txt", "@@", "-one", "+two", "*** Add File: src/x", "+x")
    assert box.tree() == {"a.txt": "one\n"}


async def test_every_path_is_declared(box: Toolbox) -> None:
    box.put("a.txt", "one\n")
    box.put("b.txt", "b\n")
    declared = box.declare(
        "apply_patch",
        patchText=patch(
            "*** Update File: a.txt",
            "*** Move to: c/d.txt",
            "@@",
            "-one",
            "+two",
            "*** Delete File: b.txt",
            "*** Add File: e",
            "+e",
        ),
    )
    assert declared.needs[-1].patterns == ("a.txt", "c/d.txt", "b.txt", "e")
    assert declared.effects == ("write:a.txt", "write:c/d.txt", "write:b.txt", "write:e")
    assert declared.preview is not None
    assert "--- a/a.txt\n+++ b/c/d.txt\n" in declared.preview.text
    assert "+++ /dev/null\n@@ -1 +0,0 @@\n-b\n" in declared.preview.text
    assert sorted(box.tree()) == ["a.txt", "b.txt"]


async def test_a_failure_halfway_is_taken_back(box: Toolbox) -> None:
    box.put("a.txt", "one\n").chmod(0o640)
    box.put("b.txt", "two\n")
    box.put("gone.txt", "gone\n")
    text = patch(
        *("*** Update File: a.txt", "@@", "-one", "+1"),
        *("*** Add File: fresh.txt", "+fresh"),
        *("*** Delete File: gone.txt",),
        *("*** Update File: b.txt", "*** Move to: wall/b.txt", "@@", "-two", "+2"),
    )
    tool, context = box.tools["apply_patch"], box.context()
    arguments = check_arguments(tool, {"patchText": text})
    declaration = tool.declare(arguments, context)
    box.put("wall", "a file where a folder is needed\n")
    before = box.tree()
    with pytest.raises(ToolError, match="Nothing was changed"):
        await tool.act(arguments, declaration, context)
    declaration.close()
    assert box.tree() == before
    assert stat.S_IMODE((box.root / "a.txt").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "lines",
    [
        ("*** Update File: a.txt", "@@", "-one", "+1", "*** Update File: missing.txt", "@@", "-x", "+y"),
        ("*** Update File: a.txt", "@@", "-one", "+1", "*** Delete File: missing.txt"),
        ("*** Update File: a.txt", "@@", "-one", "+1", "*** Add File: b.txt", "+over"),
        ("*** Update File: a.txt", "@@", "-one", "+1", "*** Update File: b.txt", "@@", "-nothing like it", "+y"),
        ("*** Update File: a.txt", "*** Move to: b.txt", "@@", "-one", "+1"),
        ("*** Delete File: a.txt", "*** Update File: a.txt", "@@", "-one", "+1"),
        ("*** Add File: new.txt", "+x", "*** Add File: new.txt", "+y"),
        ("*** Add File: new.ipynb", "+{}"),
        ("*** Update File: a.txt", "@@", "-one", "no prefix here"),
        ("*** Update File: a.txt", "@@", "*** Update File: b.txt", "@@", "-two", "+2"),
        ("*** Update File:", "@@", "-one", "+1"),
    ],
)
async def test_what_does_not_fit_changes_nothing(box: Toolbox, lines: tuple[str, ...]) -> None:
    box.put("a.txt", "one\n")
    box.put("b.txt", "two\n")
    with pytest.raises(ToolError):
        await run(box, *lines)
    assert box.tree() == {"a.txt": "one\n", "b.txt": "two\n"}


async def test_a_patch_that_was_cut_is_refused(box: Toolbox) -> None:
    with pytest.raises(PatchError, match="was it cut"):
        await box.call("apply_patch", patchText="*** Begin Patch\n*** Add File: a\n+x")


async def test_stale_files_are_refused(box: Toolbox) -> None:
    box.put("a.txt", "one\ntwo\n")
    await box.call("read", filePath="a.txt")
    box.put("a.txt", "one\nTWO\n")
    with pytest.raises(ToolError, match="changed since you read it"):
        await run(box, "*** Update File: a.txt", "@@", "-one", "+1")


# Moves, twice-named files, no-ops


async def test_moves_keep_the_mode(box: Toolbox) -> None:
    real = box.put("run.sh", "echo 1\n")
    real.chmod(0o755)
    said = await run(box, "*** Update File: run.sh", "*** Move to: bin/run.sh", "@@", "-echo 1", "+echo 2")
    assert box.tree() == {"bin/run.sh": "echo 2\n"}
    assert stat.S_IMODE((box.root / "bin/run.sh").stat().st_mode) == 0o755
    assert said == "moved bin/run.sh from run.sh (+1 -1)"


async def test_move_without_change_takes_any_bytes(box: Toolbox) -> None:
    box.put("a.bin", b"\0\1\2")
    await run(box, "*** Update File: a.bin", "*** Move to: b.bin")
    assert (box.root / "b.bin").read_bytes() == b"\0\1\2"
    assert not (box.root / "a.bin").exists()


async def test_move_to_the_same_path_changes_in_place(box: Toolbox) -> None:
    box.put("a.txt", "one\n")
    await run(box, "*** Update File: a.txt", "*** Move to: ./a.txt", "@@", "-one", "+two")
    assert box.tree() == {"a.txt": "two\n"}


async def test_two_sections_for_one_file_both_count(box: Toolbox) -> None:
    box.put("a.txt", "one\ntwo\nthree\n")
    said = await run(
        box, "*** Update File: a.txt", "@@", "-three", "+3", "*** Update File: ./a.txt", "@@", "-one", "+1"
    )
    assert box.tree() == {"a.txt": "1\ntwo\n3\n"}
    assert said == "modified a.txt (+2 -2)"


async def test_a_section_without_hunks_says_that_it_did_nothing(box: Toolbox) -> None:
    box.put("a.txt", "one\n")
    assert "unchanged a.txt" in await run(box, "*** Update File: a.txt")


async def test_after_a_patch_the_files_are_known(box: Toolbox) -> None:
    box.put("a.txt", "one\n")
    await box.call("read", filePath="a.txt")
    await run(box, "*** Update File: a.txt", "@@", "-one", "+two", "*** Add File: b.txt", "+b")
    await box.call("write", filePath="a.txt", content="x\n")
    await box.call("write", filePath="b.txt", content="y\n")


# Hunks


def test_lines_without_at_signs_are_a_hunk() -> None:
    assert applied(b"a\nb\n", "-a", "+A") == b"A\nb\n"


def test_insertion_goes_where_the_context_says() -> None:
    assert applied(b"def f\nx\ndef g\ny\n", "@@ def f", "+new") == b"def f\nnew\nx\ndef g\ny\n"
    assert applied(b"a\nb\nc\n", "@@", " a", "+new") == b"a\nnew\nb\nc\n"
    assert applied(b"a\nb", "@@", " b", "+new") == b"a\nb\nnew\n"
    assert applied(b"a\n", "@@", "+new") == b"a\nnew\n"


def test_end_of_file_anchors_and_later_hunks_count() -> None:
    assert applied(b"x\ny\nx\n", "@@", "-x", "+end", "*** End of File") == b"x\ny\nend\n"
    with pytest.raises(PatchError, match="at the end of the file"):
        applied(b"x\ny\n", "@@", "-x", "+end", "*** End of File")
    assert applied(b"x\ny\nx\n", "@@", "-y", "+Y", "@@", "-x", "+end", "*** End of File") == b"x\nY\nend\n"


def test_breaks_stay_line_by_line() -> None:
    assert applied(b"a\r\nb\r\nc\r\n", "@@", "-b", "+B1", "+B2") == b"a\r\nB1\r\nB2\r\nc\r\n"
    assert applied(b"a\nb\r\nc\n", "@@", " a", "-b", "+B", " c") == b"a\nB\r\nc\n"
    assert applied(b"a\r\nb\r\n", "@@\r", "-b\r", "+B\r") == b"a\r\nB\r\n"


def test_context_lines_stay_as_the_file_has_them_and_new_lines_are_indented_alike() -> None:
    before = b"    if x:\n        go()  \n    end\n"
    assert applied(before, "@@", " if x:", "-    go()", "+    stop()", "+    wait()", " end") == (
        b"    if x:\n        stop()\n        wait()\n    end\n"
    )
    assert applied(b"\tx\n", "@@", "-\t\tx", "+\t\ty") == b"\ty\n"


def test_unicode_look_alikes_match_but_context_is_not_rewritten() -> None:
    before = "say “hi” – now\nx\n".encode()
    assert applied(before, "@@", ' say "hi" - now', "-x", "+y") == "say “hi” – now\ny\n".encode()


def test_loose_matches_are_said() -> None:
    (section,) = parse(patch("*** Update File: f", "@@", "-x", "+y"))
    assert apply(decode_file(b"  x\n"), section).loose == ("indentation",)


def test_hunks_out_of_order_say_so() -> None:
    with pytest.raises(PatchError, match="hunks must be in order"):
        applied(b"a\nb\n", "@@", "-b", "+B", "@@", "-a", "+A")


def test_blank_lines_between_sections_and_in_hunks() -> None:
    sections = parse(
        patch(
            "*** Add File: a", "+x", "", "*** Update File: b", "@@", " one", "", "-two", "+2", "", "*** Delete File: c"
        )
    )
    assert [section.kind for section in sections] == ["add", "update", "delete"]
    assert sections[0].lines == ["x"]
    assert sections[1].hunks[0].lines == [(" ", "one"), (" ", ""), ("-", "two"), ("+", "2")]


def test_line_numbers_after_at_signs_are_not_context() -> None:
    assert applied(b"a\nb\n", "@@ -1,2 +1,2 @@", "-a", "+A") == b"A\nb\n"
