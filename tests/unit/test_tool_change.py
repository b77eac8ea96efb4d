"""``write`` and ``edit``: what they keep, what they refuse, what they tell."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import ArgumentError, Denied, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.root import Place, Root
from nbagent.tools.registry import check_arguments
from nbagent.tools.replace import Ambiguous, NotFound
from nbagent.tools.textfile import decode_file
from tests.toolbox import ALLOW, Somebody, Toolbox, toolbox


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return toolbox(tmp_path)


# write


async def test_write_makes_a_file_and_its_folders(box: Toolbox) -> None:
    result = await box.call("write", filePath="a/b/new.py", content="x = 1\n")
    assert box.get("a/b/new.py") == "x = 1\n"
    assert result.output == "Created a/b/new.py (1 line, 6 bytes)."
    assert result.metadata["diff"] == "--- /dev/null\n+++ b/a/b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    assert result.metadata["created"]


async def test_declaring_makes_nothing(box: Toolbox) -> None:
    declared = box.declare("write", filePath="a/b/new.py", content="x\n")
    assert list(box.root.iterdir()) == []
    assert declared.preview is not None
    assert "+x" in declared.preview.text
    assert declared.effects == ("write:a/b/new.py",)
    assert declared.needs[0].patterns == ("a/b/new.py",)


async def test_write_wants_the_whole_file_read(box: Toolbox) -> None:
    box.put("a.md", "".join(f"{n}\n" for n in range(20)))
    with pytest.raises(ToolError, match=r"has not been read in this session.*use edit"):
        await box.call("write", filePath="a.md", content="new")
    await box.call("read", filePath="a.md", limit=5)
    with pytest.raises(ToolError, match="only been read in part"):
        await box.call("write", filePath="a.md", content="new")
    await box.call("read", filePath="a.md")
    await box.call("write", filePath="a.md", content="new")
    assert box.get("a.md") == "new"
    await box.call("write", filePath="a.md", content="newer")
    assert box.get("a.md") == "newer"


async def test_write_may_fill_an_empty_file(box: Toolbox) -> None:
    box.put("e.py")
    await box.call("write", filePath="e.py", content="x\n")
    assert box.get("e.py") == "x\n"


async def test_stale_write_and_edit_say_what_changed(box: Toolbox) -> None:
    box.put("a.py", "one\ntwo\nthree\n")
    await box.call("read", filePath="a.py")
    box.put("a.py", "one\nTWO\nthree\n")
    for call in ({"content": "x"}, {"oldString": "one", "newString": "1"}):
        name = "write" if "content" in call else "edit"
        with pytest.raises(ToolError, match=r"changed since you read it(.|\n)*-two\n\+TWO"):
            await box.call(name, filePath="a.py", **call)
    assert box.get("a.py") == "one\nTWO\nthree\n"


async def test_touching_a_file_does_not_make_it_stale(box: Toolbox) -> None:
    real = box.put("a.py", "one\n")
    await box.call("read", filePath="a.py")
    os.utime(real, (1, 1))
    await box.call("edit", filePath="a.py", oldString="one", newString="two")
    assert box.get("a.py") == "two\n"


async def test_a_large_file_is_known_by_size_and_time(box: Toolbox) -> None:
    real = box.put("big.txt", "line\n" * 2_000_000 + "end\n")
    await box.call("read", filePath="big.txt", limit=2)
    await box.call("edit", filePath="big.txt", oldString="end\n", newString="END\n")
    await box.call("edit", filePath="big.txt", oldString="END\n", newString="last\n")
    os.utime(real, (1, 1))
    with pytest.raises(ToolError, match="changed since you read it"):
        await box.call("edit", filePath="big.txt", oldString="last\n", newString="x\n")


async def test_write_keeps_mode_breaks_bom_and_other_names(box: Toolbox) -> None:
    real = box.put("run.sh", b"\xef\xbb\xbfa\r\nb\r\n")
    real.chmod(0o750)
    os.link(real, box.root / "other.sh")
    await box.call("read", filePath="run.sh")
    said = await box.text("write", filePath="run.sh", content="a\nc\n")
    assert real.read_bytes() == b"\xef\xbb\xbfa\r\nc\r\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o750
    assert (box.root / "other.sh").read_bytes() == b"\xef\xbb\xbfa\r\nb\r\n"
    assert "2 names (hard links)" in said


async def test_write_of_the_same_text_writes_nothing(box: Toolbox) -> None:
    real = box.put("a.py", "x\n")
    await box.call("read", filePath="a.py")
    before = real.stat().st_mtime_ns
    assert "already has exactly this text" in await box.text("write", filePath="a.py", content="x\n")
    assert real.stat().st_mtime_ns == before


@pytest.mark.parametrize("call", [("write", {"content": "{}"}), ("edit", {"oldString": "a", "newString": "b"})])
async def test_notebooks_are_refused_with_the_way_to_do_it(box: Toolbox, call: tuple[str, dict[str, str]]) -> None:
    box.put("n.ipynb", "a")
    with pytest.raises(ToolError, match=r"notebook_read.*notebook_edit"):
        await box.call(call[0], filePath="n.ipynb", **call[1])


class Pages:
    """A front end that has documents open with unsaved changes."""

    path, connected = "", False

    def __init__(self, *unsaved: Path) -> None:
        self.unsaved = tuple(str(path) for path in unsaved)

    def open_paths(self) -> tuple[str, ...]:
        return self.unsaved


async def test_a_tab_with_unsaved_changes_is_not_written_under(box: Toolbox) -> None:
    """By no tool, through no link, also when the tab was touched while the call was decided; other files are written."""
    for name in ("a.py", "b.py"):
        box.put(name, "x = 1\n")
        await box.call("read", filePath=name)
    (box.root / "link.py").symlink_to("a.py")
    pages = Pages(box.root / "a.py")
    box.frontend = Somebody()
    box.frontend.notebook = pages
    calls: list[tuple[str, dict[str, str]]] = [
        ("write", {"filePath": "a.py", "content": "y\n"}),
        ("edit", {"filePath": "a.py", "oldString": "x", "newString": "y"}),
        ("edit", {"filePath": "link.py", "oldString": "x", "newString": "y"}),
        ("apply_patch", {"patchText": PATCH}),
    ]
    for name, arguments in calls:
        with pytest.raises(ToolError, match=r"a\.py is open with unsaved changes.*save or close"):
            await box.call(name, **arguments)
    assert box.get("a.py") == box.get("b.py") == "x = 1\n", "a patch is all or nothing"
    await box.call("edit", filePath="b.py", oldString="x", newString="y")
    pages.unsaved = ()
    await box.call("edit", filePath="a.py", oldString="x", newString="y")
    assert box.get("a.py") == box.get("b.py") == "y = 1\n"


PATCH = """*** Begin Patch
*** Update File: b.py
@@
-x = 1
+y = 1
*** Update File: a.py
@@
-x = 1
+y = 1
*** End Patch"""


async def test_a_file_swapped_while_the_person_decides_is_not_written(box: Toolbox) -> None:
    box.put("a.py", "one\n")
    tool, context = box.tools["edit"], box.context()
    arguments = check_arguments(tool, {"filePath": "a.py", "oldString": "one", "newString": "two"})
    declaration = tool.declare(arguments, context)
    box.put("a.py", "one, but other\n")
    with pytest.raises(ToolError, match="changed by someone else"):
        await tool.act(arguments, declaration, context)
    declaration.close()
    assert box.get("a.py") == "one, but other\n"


@pytest.mark.parametrize("tool", ["write", "edit", "apply_patch"])
async def test_a_file_made_at_the_last_moment_is_not_replaced(
    box: Toolbox, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look and the rename: while the new text is brought to the disk."""
    sync = os.fsync
    theirs = box.root / "new.py"

    def slow(descriptor: int) -> None:
        theirs.write_text("theirs\n")
        sync(descriptor)

    monkeypatch.setattr("os.fsync", slow)
    arguments = {
        "write": {"filePath": "new.py", "content": "mine\n"},
        "edit": {"filePath": "new.py", "oldString": "", "newString": "mine\n"},
        "apply_patch": {"patchText": "*** Begin Patch\n*** Add File: new.py\n+mine\n*** End Patch"},
    }
    with pytest.raises(ToolError, match="exists already"):
        await box.call(tool, **arguments[tool])
    assert theirs.read_text() == "theirs\n"
    assert [path.name for path in box.root.iterdir() if path.suffix == ".tmp"] == []


async def test_a_folder_swapped_for_a_link_is_not_followed(box: Toolbox, tmp_path: Path) -> None:
    box.put("d/a.py", "one\n")
    (tmp_path / "out").mkdir()
    tool, context = box.tools["write"], box.context()
    arguments = check_arguments(tool, {"filePath": "d/new.py", "content": "x"})
    declaration = tool.declare(arguments, context)
    (box.root / "d").rename(box.root / "old")
    (box.root / "d").symlink_to(tmp_path / "out")
    await tool.act(arguments, declaration, context)
    declaration.close()
    assert list((tmp_path / "out").iterdir()) == []
    assert (box.root / "old/new.py").read_text() == "x"


MOVES = {
    "write": {"filePath": "d/new.py", "content": "mine\n"},
    "edit": {"filePath": "d/new.py", "oldString": "", "newString": "mine\n"},
    "apply_patch": {"patchText": "*** Begin Patch\n*** Add File: d/new.py\n+mine\n*** End Patch"},
}


@pytest.mark.parametrize("when", range(1, 8))
@pytest.mark.parametrize("tool", MOVES)
async def test_a_path_is_looked_up_once_for_what_is_decided_and_what_is_done(
    box: Toolbox, tmp_path: Path, tool: str, when: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ``when`` look-ups the folder is a link to another place: what is written is what was decided on, or nothing."""
    box.put("d/a.py", "one\n")
    out = tmp_path / "out"
    out.mkdir()
    count, locate = [0], Root.locate

    def counted(self: Root, spelled: str, base: Path | None = None) -> Place:
        count[0] += 1
        found = locate(self, spelled, base)
        if count[0] == when:
            (box.root / "d").rename(box.root / "old")
            (box.root / "d").symlink_to(out)
        return found

    monkeypatch.setattr(Root, "locate", counted)
    tool_, context = box.tools[tool], box.context()
    arguments = check_arguments(tool_, MOVES[tool])
    declaration = None
    try:
        declaration = tool_.declare(arguments, context)
        if all(pattern.startswith("d/") for need in declaration.needs for pattern in need.patterns):
            await tool_.act(arguments, declaration, context)
    except ToolError:
        pass
    finally:
        if declaration is not None:
            declaration.close()
    assert list(out.iterdir()) == []


async def test_what_could_not_be_shown_is_done_where_it_was_decided(box: Toolbox, tmp_path: Path) -> None:
    """Where a rule guards reading, a problem is told after the person's yes; the path may lead elsewhere by then."""
    box.rules = (*ALLOW, Rule("read", "d/*", "ask"))
    box.put("d/new.py", "one\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "new.py").write_text("x = 1\n")
    calls = {
        "edit": {"filePath": "d/new.py", "oldString": "x = 1", "newString": "mine"},
        "apply_patch": {"patchText": "*** Begin Patch\n*** Update File: d/new.py\n@@\n-x = 1\n+mine\n*** End Patch"},
    }
    for name, call in calls.items():
        tool, context = box.tools[name], box.context()
        arguments = check_arguments(tool, call)
        declaration = tool.declare(arguments, context)
        (box.root / "d").rename(box.root / "old")
        (box.root / "d").symlink_to(out)
        with pytest.raises(ToolError):
            await tool.act(arguments, declaration, context)
        declaration.close()
        assert (out / "new.py").read_text() == "x = 1\n"
        (box.root / "d").unlink()
        (box.root / "old").rename(box.root / "d")


async def test_refused_paths_are_not_looked_at(box: Toolbox) -> None:
    box.put("src/a.py", "secret text\n")
    box.rules = (*ALLOW, Rule("edit", "*", "deny", "floor"), Rule("edit", "plans/*.md", "allow", "floor"))
    for name, call in (
        ("write", {"content": "x"}),
        ("edit", {"oldString": "nothing like it", "newString": "x"}),
        ("write", {"content": "x"}),
    ):
        declared = box.declare(name, filePath="src/a.py", **call)
        assert declared.preview is None
        with pytest.raises(Denied):
            await box.call(name, filePath="src/a.py", **call)
    await box.call("write", filePath="plans/p.md", content="# plan\n")
    assert box.get("plans/p.md") == "# plan\n"
    (box.root / "plans/link.md").symlink_to(box.root / "src/a.py")
    with pytest.raises(Denied, match=r"src/a\.py"):
        await box.call("write", filePath="plans/link.md", content="x")


async def test_errors_do_not_quote_what_may_not_be_read(box: Toolbox, tmp_path: Path) -> None:
    box.put(".env", "API_KEY=hunter2\n")
    (tmp_path / "out.txt").write_text("API_KEY=hunter2\n")
    box.replies = {"external_directory": "reject"}
    for path in (".env", str(tmp_path / "out.txt")):
        declared = box.declare("edit", filePath=path, oldString="API_KEY=hunter3", newString="x")
        assert declared.preview is None
    with pytest.raises(Denied):
        await box.call("edit", filePath=str(tmp_path / "out.txt"), oldString="API_KEY=hunter3", newString="x")


# edit


async def test_edit_tells_where_and_how(box: Toolbox) -> None:
    box.put("a.py", "def f():\n    x  =  1\n    return x\n")
    result = await box.call("edit", filePath="a.py", oldString="return x", newString="return 2")
    assert result.output == "Edited a.py at line 3 (+1 -1)."
    assert result.metadata["strategy"] == "Simple"
    result = await box.call("edit", filePath="a.py", oldString="    x = 1", newString="    x = 2")
    assert result.metadata["strategy"] == "WhitespaceNormalized"
    assert "was not in the file exactly" in result.output
    assert box.get("a.py") == "def f():\n    x = 2\n    return 2\n"


async def test_edit_errors(box: Toolbox) -> None:
    box.put("a.py", "alpha\nbeta\nalpha\n")
    with pytest.raises(Ambiguous, match=r"2 places \(lines 1, 3\)"):
        await box.call("edit", filePath="a.py", oldString="alpha", newString="x")
    with pytest.raises(NotFound, match=r"nearest place is lines 2-2:\n     2\tbeta"):
        await box.call("edit", filePath="a.py", oldString="betta", newString="x")
    with pytest.raises(ToolError, match="the same"):
        await box.call("edit", filePath="a.py", oldString="beta", newString="beta")
    with pytest.raises(ToolError, match="oldString is empty"):
        await box.call("edit", filePath="a.py", oldString="", newString="x")
    with pytest.raises(ToolError, match=r"b\.py does not exist.*a\.py.*empty oldString"):
        await box.call("edit", filePath="b.py", oldString="x", newString="y")
    with pytest.raises(ArgumentError, match=r"'replace_all' is not a field; it is spelled 'replaceAll'"):
        await box.call("edit", filePath="a.py", oldString="alpha", newString="y", replace_all=True)
    assert box.get("a.py") == "alpha\nbeta\nalpha\n"


async def test_edit_of_every_occurrence_and_a_new_file(box: Toolbox) -> None:
    box.put("a.py", "aXbXc\n")
    said = await box.text("edit", filePath="a.py", oldString="X", newString="$&\\1", replaceAll="true")
    assert box.get("a.py") == "a$&\\1b$&\\1c\n"
    assert "2 places" in said
    await box.call("edit", filePath="new/b.py", oldString="", newString="hello\n")
    assert box.get("new/b.py") == "hello\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"alpha\nbeta\r\ngamma\n", "alpha\nbeta", "A\nB", b"A\nB\r\ngamma\n"),
        (b"a\r\nb\r\nc\r\n", "b", "b1\nb2", b"a\r\nb1\r\nb2\r\nc\r\n"),
        (b"a\r\nb\r\nc", "c", "c1\nc2", b"a\r\nb\r\nc1\r\nc2"),
        (b"a\r\nb\n", "a\r\nb", "x\ny", b"x\r\ny\n"),
        (b"\xef\xbb\xbfone\ntwo", "two", "2", b"\xef\xbb\xbfone\n2"),
        (b"\xef\xbb\xbfone\n", "\ufeffone", "1", b"\xef\xbb\xbf1\n"),
        (b"\xef\xbb\xbfone\n", "\ufeffone", "\ufeff1", b"\xef\xbb\xbf1\n"),
        (b"caf\xe9\nx\n", "x", "y", b"caf\xe9\ny\n"),
        (b"a\rb\rc", "b", "B", b"a\rB\rc"),
        (b"\xff\xfea\x00\n\x00", "a", "b", b"\xff\xfeb\x00\n\x00"),
        (b"x\r\ny\r\n", "x\ny\n", "", b""),
    ],
)
async def test_edit_leaves_all_other_bytes_alone(box: Toolbox, before: bytes, old: str, new: str, after: bytes) -> None:
    real = box.put("f.txt", before)
    await box.call("edit", filePath="f.txt", oldString=old, newString=new)
    assert real.read_bytes() == after


async def test_a_file_in_an_older_encoding_is_not_mixed_with_another(box: Toolbox) -> None:
    real = box.put("f.txt", b"caf\xe9\nx\n")
    for old, new in (("x", "\u00e9"), ("caf\u00e9", "cafe")):
        with pytest.raises(ToolError, match=r"f\.txt is not UTF-8.*only ASCII text"):
            await box.call("edit", filePath="f.txt", oldString=old, newString=new)
    patch = "*** Begin Patch\n*** Update File: f.txt\n@@\n-x\n+\u00e9\n*** End Patch"
    with pytest.raises(ToolError, match=r"f\.txt is not UTF-8"):
        await box.call("apply_patch", patchText=patch)
    assert real.read_bytes() == b"caf\xe9\nx\n"


async def test_an_edit_that_changes_nothing_is_no_success(box: Toolbox) -> None:
    box.put("f.txt", "  x\ny\n")
    with pytest.raises(ToolError, match=r"f\.txt already has newString in that place"):
        await box.call("edit", filePath="f.txt", oldString="x \ny", newString="  x\ny")


async def test_binary_and_folder_are_refused(box: Toolbox) -> None:
    box.put("b.bin", b"\0\1\2")
    with pytest.raises(ToolError, match=r"b\.bin: This is a binary file"):
        await box.call("edit", filePath="b.bin", oldString="a", newString="b")
    (box.root / "d").mkdir()
    with pytest.raises(ToolError, match="is a folder"):
        await box.call("write", filePath="d", content="x")


PIECES = st.lists(st.sampled_from(["a", "é", "\n", "\r\n", "\r", " ", "\ufeff", "日"]), max_size=30).map("".join)


@settings(max_examples=200, deadline=None)
@given(text=PIECES, at=st.integers(0, 30), length=st.integers(0, 10), new=st.text("xy\n", max_size=5))
def test_splicing_touches_nothing_outside_the_span(text: str, at: int, length: int, new: str) -> None:
    data = text.encode()
    file = decode_file(data)
    assert file.encode() == data
    start, end = min(at, len(file.text)), min(at + length, len(file.text))
    after = file.replaced([(start, end, new)])
    assert after.text == file.text[:start] + new + file.text[end:]
    head = file.text.count("\n", 0, start)
    tail = file.text.count("\n", end)
    assert after.breaks[:head] == file.breaks[:head]
    assert after.breaks[len(after.breaks) - tail :] == file.breaks[len(file.breaks) - tail :]
    assert decode_file(after.encode()).encode() == after.encode()
