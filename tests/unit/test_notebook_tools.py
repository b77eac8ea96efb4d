"""``notebook_read`` and ``notebook_edit`` on odd notebooks: a valid file, or an untouched one and a clear error."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import ArgumentError, ModelError, ToolError
from nbagent.frontend import CellResult, Nobody
from nbagent.permission.ruleset import Rule
from nbagent.root import Root
from nbagent.tools.notebook_edit import NotebookEdit
from nbagent.tools.notebook_file import content_hash, drafts_of, parse, problem, render, with_source
from nbagent.tools.notebook_read import NotebookRead
from nbagent.tools.notebook_text import outputs_text, plain
from nbagent.tools.registry import check_arguments


class Reads:
    def saw(self, real: Path, digest: str, whole: bool) -> None: ...

    def seen(self, real: Path) -> None:
        return None


def context(folder: Path, notebook: Any = None) -> Any:
    frontend = Nobody()
    frontend.notebook = notebook
    return SimpleNamespace(
        root=Root(folder),
        rules=(Rule("*", "*", "allow"),),
        frontend=frontend,
        reads=Reads(),
        call_id="call_1",
        session_id="s",
    )


def edit(folder: Path, *operations: dict[str, Any], path: str = "a.ipynb", notebook: Any = None) -> str:
    tool, place = NotebookEdit(), context(folder, notebook)
    arguments: Any = check_arguments(tool, {"filePath": path, "operations": list(operations)})
    declaration = tool.declare(arguments, place)
    try:
        return asyncio.run(tool.act(arguments, declaration, place)).output
    finally:
        declaration.close()


def read(folder: Path, path: str = "a.ipynb", **more: Any) -> Any:
    tool, place = NotebookRead(), context(folder)
    arguments: Any = check_arguments(tool, {"filePath": path, **more})
    return asyncio.run(tool.act(arguments, tool.declare(arguments, place), place))


def notebook(minor: int = 5, cells: int = 3, **metadata: Any) -> dict[str, Any]:
    made = []
    for number in range(cells):
        cell: dict[str, Any] = {
            "cell_type": "code",
            "execution_count": number + 1,
            "metadata": {"tags": [f"t{number}"]},
            "outputs": [{"name": "stdout", "output_type": "stream", "text": [f"out {number}\n"]}],
            "source": [f"x{number} = {number}\n", f"print('é', x{number})"],
        }
        if minor >= 5:
            cell = {"cell_type": "code", "execution_count": number + 1, "id": f"cell{number}", **cell}
        made.append(cell)
    info = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, **metadata}
    return {"cells": made, "metadata": info, "nbformat": 4, "nbformat_minor": minor}


def source(value: dict[str, Any], index: int) -> str:
    found = value["cells"][index]["source"]
    return found if isinstance(found, str) else "".join(found)


def save(folder: Path, text: str | bytes, name: str = "a.ipynb") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


STYLES: dict[str, Any] = {
    "jupyter": lambda v: json.dumps(v, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
    "no final newline": lambda v: json.dumps(v, indent=1, ensure_ascii=False),
    "indent 2": lambda v: json.dumps(v, indent=2, ensure_ascii=False) + "\n",
    "indent 4": lambda v: json.dumps(v, indent=4) + "\n",
    "tabs": lambda v: json.dumps(v, indent="\t") + "\n",
    "ascii": lambda v: json.dumps(v, indent=1, ensure_ascii=True) + "\n",
    "one line": lambda v: json.dumps(v),
    "compact": lambda v: json.dumps(v, separators=(",", ":")),
    "crlf": lambda v: (json.dumps(v, indent=1, ensure_ascii=False) + "\n").replace("\n", "\r\n"),
    "bom": lambda v: b"\xef\xbb\xbf" + (json.dumps(v, indent=1, ensure_ascii=False) + "\n").encode(),
    "metadata first": lambda v: json.dumps(
        {k: v[k] for k in ("metadata", "nbformat", "nbformat_minor", "cells")}, indent=1
    ),
    "string sources": lambda v: json.dumps(
        {**v, "cells": [{**c, "source": "".join(c["source"])} for c in v["cells"]]}, indent=1
    ),
    "leading space": lambda v: "\n  " + json.dumps(v, indent=1) + "\n\n",
    "odd keys": lambda v: json.dumps(
        {**v, "zzz": {"a": 1}, "cells": [{**c, "vscode": {"x": 1}} for c in v["cells"]]}, indent=1
    ),
}
VARIANTS = [(name, minor) for name in STYLES for minor in (0, 2, 4, 5)]


@pytest.mark.parametrize(("style", "minor"), VARIANTS)
def test_every_style_survives_every_operation(tmp_path: Path, style: str, minor: int) -> None:
    value = notebook(minor)
    written = STYLES[style](value)
    raw = written if isinstance(written, bytes) else written.encode()
    path = save(tmp_path, raw)
    parsed = json.loads(raw.decode("utf-8-sig"))
    names = [cell.get("id", f"#{n}") for n, cell in enumerate(parsed["cells"])]
    one = {"id": names[1], "hash": content_hash(source(parsed, 1))}

    edit(tmp_path, {"op": "replace", **one, "source": source(parsed, 1)})
    assert path.read_bytes() == raw, "the same source changes nothing"

    for operation in (
        {"op": "replace", **one, "source": "x1 = 'ü'\ny = 2"},
        {"op": "edit", **one, "old": "x1 = 1", "new": "x1 = 11"},
        {"op": "insert", "cell_type": "markdown", "source": "# new\ntext", "after": names[0]},
        {"op": "insert", "cell_type": "code", "source": "", "at": "start"},
        {"op": "delete", **one},
        {"op": "move", **one, "at": "end"},
        {"op": "move", **one, "before": names[0]},
        {"op": "type", **one, "cell_type": "markdown"},
        {"op": "type", **one, "cell_type": "raw"},
    ):
        path.write_bytes(raw)
        edit(tmp_path, operation)
        after = path.read_bytes()
        assert after != raw
        now = json.loads(after.decode("utf-8-sig"))
        assert problem(now) == ""
        assert now["nbformat_minor"] == minor and now["metadata"] == parsed["metadata"]
        assert after.startswith(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf")
        assert (b"\r\n" in after) == (b"\r\n" in raw) and after.count(b"\n") - after.count(b"\r\n") in (
            0,
            after.count(b"\n"),
        )
        assert after[-1:] == raw[-1:]
        untouched = [cell for cell in parsed["cells"] if cell != parsed["cells"][1]]
        assert [cell for cell in now["cells"] if cell in untouched] == untouched
        texts = {name: _raw_cell(raw, n) for n, name in enumerate(names) if n != 1}
        assert all(text in after for text in texts.values()), "other cells are byte for byte the same"
        assert any("id" in cell for cell in now["cells"]) == (minor >= 5)


def _raw_cell(raw: bytes, index: int) -> bytes:
    found = parse(raw, "x")
    cell = found.cells[index]
    return found.text[cell.start : cell.end].encode()


def test_a_changed_line_changes_its_line(tmp_path: Path) -> None:
    value = notebook()
    value["cells"][1]["source"] = [f"line {n}\n" for n in range(50)]
    value["cells"][1]["outputs"], value["cells"][1]["execution_count"] = [], None
    raw = STYLES["jupyter"](value)
    path = save(tmp_path, raw)
    text = source(value, 1)
    edit(tmp_path, {"op": "edit", "id": "cell1", "hash": content_hash(text), "old": "line 7\n", "new": "line seven\n"})
    before, after = raw.splitlines(), path.read_text().splitlines()
    assert len(before) == len(after)
    assert [b for a, b in zip(before, after, strict=True) if a != b] == ['    "line seven\\n",']


def test_git_counts_the_lines_of_the_cell_and_no_more(tmp_path: Path) -> None:
    value = notebook(cells=30)
    value["cells"][7]["source"] = [f"line {n}\n" for n in range(20)]
    raw = STYLES["jupyter"](value)
    path = save(tmp_path, raw)
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "a.ipynb"], check=True)

    def counted() -> tuple[int, int]:
        told = subprocess.run([*git, "diff", "--numstat"], capture_output=True, text=True, check=True).stdout.split()
        return (int(told[0]), int(told[1])) if told else (0, 0)

    text = source(value, 7)
    edit(tmp_path, {"op": "replace", "id": "cell7", "hash": content_hash(text), "source": text})
    assert counted() == (0, 0) and path.read_bytes() == raw.encode()
    changed = text.replace("line 3", "line three")
    edit(tmp_path, {"op": "replace", "id": "cell7", "hash": content_hash(text), "source": changed})
    cell = json.dumps(value["cells"][7], indent=1).count("\n") + 1
    added, removed = counted()
    assert 1 <= added <= 3 and removed <= cell
    edit(tmp_path, {"op": "insert", "cell_type": "markdown", "source": "# new", "after": "cell7"})
    more, same = counted()
    assert same == removed and more - added <= 10


def test_replace_clears_the_outputs_of_a_code_cell_and_nothing_else(tmp_path: Path) -> None:
    value = notebook()
    value["cells"][1]["attachments"] = {}
    path = save(tmp_path, STYLES["jupyter"](value))
    told = edit(tmp_path, {"op": "replace", "id": "cell1", "hash": content_hash(source(value, 1)), "source": "y"})
    cell = json.loads(path.read_text())["cells"][1]
    assert cell["outputs"] == [] and cell["execution_count"] is None and cell["metadata"] == {"tags": ["t1"]}
    assert cell["id"] == "cell1" and "cleared" in told


def test_a_stale_hash_shows_what_the_cell_is_now(tmp_path: Path) -> None:
    path = save(tmp_path, STYLES["jupyter"](notebook()))
    raw = path.read_bytes()
    with pytest.raises(ToolError, match="not what you read") as caught:
        edit(tmp_path, {"op": "replace", "id": "cell1", "hash": "00000000", "source": "y"})
    assert "print('é', x1)" in str(caught.value) and path.read_bytes() == raw


def test_all_or_nothing(tmp_path: Path) -> None:
    value = notebook()
    path = save(tmp_path, STYLES["jupyter"](value))
    raw = path.read_bytes()
    good = {"op": "replace", "id": "cell0", "hash": content_hash(source(value, 0)), "source": "y"}
    with pytest.raises(ToolError, match="no cell 'nope'"):
        edit(tmp_path, good, {"op": "delete", "id": "nope", "hash": "x"})
    assert path.read_bytes() == raw


def test_several_operations_build_on_each_other(tmp_path: Path) -> None:
    value = notebook()
    path = save(tmp_path, STYLES["jupyter"](value))
    first = content_hash(source(value, 0))
    edit(
        tmp_path,
        {"op": "edit", "id": "cell0", "hash": first, "old": "x0 = 0", "new": "x0 = 5"},
        {"op": "edit", "id": "cell0", "hash": first, "old": "print", "new": "repr"},
        {"op": "insert", "cell_type": "code", "source": "a", "after": "cell0"},
        {"op": "move", "id": "cell2", "hash": content_hash(source(value, 2)), "at": "start"},
        {"op": "delete", "id": "cell1", "hash": content_hash(source(value, 1))},
    )
    now = json.loads(path.read_text())
    assert ["".join(c["source"]) for c in now["cells"]] == [source(value, 2), "x0 = 5\nrepr('é', x0)", "a"]
    assert nbformat.validate(nbformat.from_dict(now)) is None


def test_magics_on_the_first_line_stay(tmp_path: Path) -> None:
    value = notebook()
    text = "%%sql\n" + "select 1\n" * 200 + "LIMIT 5"
    value["cells"][1]["source"] = text.splitlines(keepends=True)
    path = save(tmp_path, STYLES["jupyter"](value))
    edit(tmp_path, {"op": "edit", "id": "cell1", "hash": content_hash(text), "old": "LIMIT 5", "new": "LIMIT 9"})
    now = source(json.loads(path.read_text()), 1)
    assert now == text.replace("LIMIT 5", "LIMIT 9") and now.startswith("%%sql\n")


def test_an_edit_that_fits_twice_wants_more_words(tmp_path: Path) -> None:
    value = notebook()
    value["cells"][0]["source"] = ["a\n", "a"]
    path = save(tmp_path, STYLES["jupyter"](value))
    one = {"op": "edit", "id": "cell0", "hash": content_hash("a\na"), "old": "a", "new": "$& \\1 b"}
    with pytest.raises(ToolError, match="2 times"):
        edit(tmp_path, one)
    edit(tmp_path, {**one, "all": True})
    assert source(json.loads(path.read_text()), 0) == "$& \\1 b\n$& \\1 b"


BROKEN: dict[str, tuple[Any, str]] = {
    "empty": (b"", "is empty"),
    "no json": (b"hello", "not valid JSON"),
    "half": (STYLES["jupyter"](notebook())[:200], "not valid JSON"),
    "list": (b"[]", "not valid JSON"),
    "no notebook": (b'{"a": 1}', "not a notebook"),
    "version 2": (b'{"nbformat": 2, "nbformat_minor": 0, "worksheets": []}', "notebook format 2"),
    "version 5": (b'{"nbformat": 5, "nbformat_minor": 0, "cells": []}', "notebook format 5"),
    "version word": (b'{"nbformat": "4", "cells": []}', "not a notebook"),
    "cells no list": (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": {}}', "no list of cells"),
    "cell no object": (b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [1]}', "not an object"),
    "not utf-8": (b'{"nbformat": 4, "x": "\xff\xfe"}', "not UTF-8"),
    "utf-16": ('{"nbformat": 4}'.encode("utf-16"), "not UTF-8"),
    "conflict": (
        STYLES["jupyter"](notebook())
        .replace('    "x1', '<<<<<<< HEAD\n    "x1')
        .replace('    "x2', '>>>>>>> b\n    "x2'),
        "merge conflict markers .line",
    ),
    "duplicate ids": (
        STYLES["jupyter"](notebook()).replace('"cell2"', '"cell1"'),
        "same cell id more than once .cell1",
    ),
    "invalid": (STYLES["jupyter"]({**notebook(), "metadata": 3}), "not a valid notebook"),
    "bad output": (STYLES["jupyter"](notebook()).replace('"stream"', '"nonsense"'), "not a valid notebook"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_notebook_is_left_alone_with_a_clear_error(tmp_path: Path, name: str) -> None:
    raw, words = BROKEN[name]
    path = save(tmp_path, raw)
    before = path.read_bytes()
    with pytest.raises(ToolError, match=words):
        edit(tmp_path, {"op": "insert", "cell_type": "code", "source": "1", "at": "end"})
    assert path.read_bytes() == before


def test_ids_are_missing_in_a_format_that_wants_them(tmp_path: Path) -> None:
    value = notebook()
    for index in (0, 2):
        del value["cells"][index]["id"]
    path = save(tmp_path, STYLES["jupyter"](value))
    told = edit(tmp_path, {"op": "replace", "id": "#2", "hash": content_hash(source(value, 2)), "source": "z"})
    now = json.loads(path.read_text())
    assert "id" not in now["cells"][0] and len(now["cells"][2]["id"]) == 8 and "had no id" in told
    assert problem(now) == ""


def test_format_3_is_read_and_edited(tmp_path: Path) -> None:
    value = {
        "metadata": {"name": ""},
        "nbformat": 3,
        "nbformat_minor": 0,
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 1, "metadata": {}, "source": ["Title"]},
                    {
                        "cell_type": "code",
                        "collapsed": False,
                        "input": ["print 1"],
                        "language": "python",
                        "metadata": {},
                        "outputs": [{"output_type": "pyout", "prompt_number": 1, "metadata": {}, "text": ["1"]}],
                        "prompt_number": 1,
                    },
                ],
                "metadata": {},
            }
        ],
    }
    path = save(tmp_path, json.dumps(value, indent=1))
    assert "print 1" in read(tmp_path).output and "heading" in read(tmp_path).output
    edit(tmp_path, {"op": "replace", "id": "#1", "hash": content_hash("print 1"), "source": "print 2"})
    edit(tmp_path, {"op": "insert", "cell_type": "code", "source": "3", "at": "end"})
    now = json.loads(path.read_text())["worksheets"][0]["cells"]
    assert now[1]["input"] == ["print 2"] and now[1]["outputs"] == [] and now[2]["input"] == ["3"]
    assert problem(json.loads(path.read_text())) == ""


def test_empty_notebooks(tmp_path: Path) -> None:
    for style in STYLES:
        path = save(tmp_path, STYLES[style](notebook(cells=0)))
        edit(tmp_path, {"op": "insert", "cell_type": "code", "source": "1", "at": "end"})
        now = json.loads(path.read_bytes().decode("utf-8-sig"))
        assert len(now["cells"]) == 1 and problem(now) == ""
        only = now["cells"][0]
        edit(tmp_path, {"op": "delete", "id": only["id"], "hash": content_hash("1")})
        assert json.loads(path.read_bytes().decode("utf-8-sig"))["cells"] == []


def test_many_megabytes_of_outputs(tmp_path: Path) -> None:
    value = notebook(cells=30)
    huge = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "A" * 4_000_000, "text/plain": "fig"}}
    for cell in value["cells"][:6]:
        cell["outputs"] = [huge]
    raw = STYLES["jupyter"](value).encode()
    path = save(tmp_path, raw)
    assert len(raw) > 20_000_000
    edit(tmp_path, {"op": "replace", "id": "cell29", "hash": content_hash(source(value, 29)), "source": "y"})
    assert path.stat().st_size < len(raw)
    shown = read(tmp_path, cells=["cell0"]).output
    assert len(shown) < 1000 and "[image/png 2929 KB]" in shown


def test_a_hundred_megabytes_are_edited_in_seconds(tmp_path: Path) -> None:
    value = notebook(cells=30)
    data = {"image/png": "A" * 4_000_000, "text/plain": "fig"}
    picture = {"output_type": "display_data", "metadata": {}, "data": data}
    lines = {"output_type": "stream", "name": "stdout", "text": ["step 1 of many: loss 0.123456789\n"] * 5_000}
    for cell in value["cells"][:25]:
        cell["outputs"] = [picture, lines]
    raw = STYLES["jupyter"](value).encode()
    assert len(raw) > 100_000_000
    path = save(tmp_path, raw)
    begin = time.process_time()
    edit(tmp_path, {"op": "replace", "id": "cell29", "hash": content_hash(source(value, 29)), "source": "y"})
    assert time.process_time() - begin < 8
    place = raw.index(b'"execution_count": 30')
    same = path.read_bytes()[:place] == raw[:place]
    assert same


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text + text,
        lambda text: text + "x",
        lambda text: text.rstrip()[:-1] + ",}",
        lambda text: text.replace('"cells": [', '"cells": [,', 1),
        lambda text: text.replace('"cell_type"', "cell_type", 1),
        lambda text: text.replace('"cell_type": "code",', '"cell_type": "code",,', 1),
        lambda text: text.rstrip()[:-1],
    ],
)
def test_what_is_no_json_is_left_alone(tmp_path: Path, spoil: Any) -> None:
    value = notebook()
    spoilt = spoil(STYLES["jupyter"](value))
    with pytest.raises(ValueError, match="line"):
        json.loads(spoilt)
    path = save(tmp_path, spoilt)
    with pytest.raises(ToolError, match="not valid JSON"):
        edit(tmp_path, {"op": "replace", "id": "cell0", "hash": content_hash(source(value, 0)), "source": "y"})
    assert path.read_text() == spoilt


def test_mode_and_links_are_kept(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = save(tmp_path / "real", STYLES["jupyter"](notebook()), "n.ipynb")
    path.chmod(0o640)
    (tmp_path / "a.ipynb").symlink_to("real/n.ipynb")
    value = json.loads(path.read_text())
    edit(tmp_path, {"op": "replace", "id": "cell0", "hash": content_hash(source(value, 0)), "source": "y"})
    assert path.stat().st_mode & 0o777 == 0o640 and (tmp_path / "a.ipynb").is_symlink()
    assert source(json.loads(path.read_text()), 0) == "y"


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"op": "replace", "id": "cell0", "source": "x"}, "needs id and hash"),
        ({"op": "insert", "cell_type": "code", "at": "end"}, "needs source"),
        ({"op": "insert", "source": "x", "at": "end"}, "needs cell_type"),
        ({"op": "insert", "cell_type": "code", "source": "x"}, "exactly one anchor"),
        ({"op": "insert", "cell_type": "code", "source": "x", "at": "end", "after": "cell0"}, "exactly one anchor"),
        ({"op": "edit", "id": "cell0", "hash": "1", "old": ""}, "needs old"),
        ({"op": "explode"}, "op"),
    ],
)
def test_wrong_arguments_say_what_to_send(tmp_path: Path, operation: dict[str, Any], words: str) -> None:
    save(tmp_path, STYLES["jupyter"](notebook()))
    with pytest.raises(ArgumentError, match=words):
        edit(tmp_path, operation)


def test_a_change_between_decision_and_act_is_refused(tmp_path: Path) -> None:
    value = notebook()
    path = save(tmp_path, STYLES["jupyter"](value))
    tool, place = NotebookEdit(), context(tmp_path)
    operation = {"op": "replace", "id": "cell0", "hash": content_hash(source(value, 0)), "source": "y"}
    arguments: Any = check_arguments(tool, {"filePath": "a.ipynb", "operations": [operation]})
    declaration = tool.declare(arguments, place)
    assert declaration.preview is not None and "+y" in declaration.preview.text
    other = STYLES["jupyter"](notebook(cells=2))
    path.write_text(other)
    with pytest.raises(ToolError, match="changed by someone else"):
        asyncio.run(tool.act(arguments, declaration, place))
    declaration.close()
    assert path.read_text() == other


class Open:
    """An open notebook, as a page would have it."""

    path = "a.ipynb"
    connected = True

    def __init__(self, cells: list[dict[str, Any]], unsaved: tuple[str, ...] = ()) -> None:
        self._cells = cells
        self._unsaved = unsaved
        self.applied: list[dict[str, Any]] = []

    def open_paths(self) -> tuple[str, ...]:
        return self._unsaved

    async def cells(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self._cells)

    async def apply(self, operations: list[dict[str, Any]]) -> CellResult:
        self.applied = operations
        return CellResult(("Changed cell cell0",))


def test_the_open_notebook_is_edited_in_the_page_and_never_in_the_file(tmp_path: Path) -> None:
    path = save(tmp_path, STYLES["jupyter"](notebook()))
    raw = path.read_bytes()
    live = Open([{"id": "cell0", "cell_type": "code", "source": "unsaved"}])
    told = edit(
        tmp_path,
        {"op": "replace", "id": "cell0", "hash": content_hash("unsaved"), "source": "y"},
        {"op": "insert", "cell_type": "code", "source": "", "after": "cell0"},
        path="",
        notebook=live,
    )
    assert path.read_bytes() == raw and "open notebook" in told
    assert live.applied == [
        {"op": "replace", "id": "cell0", "source": "y", "expected": "unsaved"},
        {"op": "insert", "cell_type": "code", "source": "", "after": "cell0"},
    ]
    with pytest.raises(ToolError, match="changed since it was read"):
        edit(tmp_path, {"op": "delete", "id": "cell0", "hash": "12345678"}, notebook=live)


def test_unsaved_work_in_a_page_that_cannot_edit_is_not_overwritten(tmp_path: Path) -> None:
    value = notebook()
    path = save(tmp_path, STYLES["jupyter"](value))
    live = Open([], unsaved=(str(path),))
    live.connected = False
    with pytest.raises(ToolError, match="unsaved changes"):
        edit(tmp_path, {"op": "delete", "id": "cell0", "hash": content_hash(source(value, 0))}, notebook=live)


def test_no_notebook_is_known(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Send filePath"):
        edit(tmp_path, {"op": "insert", "cell_type": "code", "source": "", "at": "end"}, path="")


def test_reading_gives_ids_hashes_and_no_raw_json(tmp_path: Path) -> None:
    save(tmp_path, STYLES["jupyter"](notebook()))
    result = read(tmp_path)
    assert "id=cell1 hash=" + content_hash("x1 = 1\nprint('é', x1)") in result.output
    assert "out 1" in result.output and '"cell_type"' not in result.output and result.metadata["cells"] == 3
    with pytest.raises(ModelError, match="no cell zzz"):
        read(tmp_path, cells=["zzz"])


def test_outputs_as_text() -> None:
    bar = "".join(f"\r{n:3}%" for n in range(101)) + "\n"
    assert plain(bar).strip() == "100%"
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07x") == "red x"
    image = {"output_type": "display_data", "data": {"image/png": "A" * 100_000, "text/plain": "<Figure>"}}
    assert len(outputs_text([image])) < 300 and "[image/png 73 KB]" in outputs_text([image])
    widget = {
        "output_type": "display_data",
        "data": {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "W()"},
    }
    assert outputs_text([widget]) == "W()\n[widget]"
    html = {"output_type": "execute_result", "data": {"text/html": "<b>" * 1000}}
    assert outputs_text([html]) == "[text/html 2 KB]"
    stream = {"output_type": "stream", "text": "".join(f"line {n}\n" for n in range(50_000))}
    shown = outputs_text([stream])
    assert len(shown) < 7000 and "line 0" in shown and "line 49999" in shown and "left out" in shown
    trace = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[0;31mE\x1b[0m: v"]}
    assert outputs_text([trace]) == "E: v"
    assert "base64" in plain("x" * 10 + "Q" * 5000)


texts = st.text(alphabet=st.characters(blacklist_categories=()), max_size=40)


@settings(max_examples=80, deadline=None)
@given(st.lists(texts, min_size=1, max_size=4), texts, st.sampled_from(sorted(STYLES)), st.integers(0, 3))
def test_any_source_goes_in_and_comes_out(sources: list[str], new: str, style: str, index: int) -> None:
    value = notebook(cells=len(sources))
    for cell, text in zip(value["cells"], sources, strict=True):
        cell["source"] = text.splitlines(keepends=True)
    written = (
        STYLES[style](value)
        if style not in ("jupyter", "no final newline", "indent 2", "crlf", "bom")
        else json.dumps(value, indent=1)
    )
    found = parse(written if isinstance(written, bytes) else written.encode("utf-8", "surrogatepass"), "x")
    drafts = drafts_of(found)
    assert render(found, drafts) == found.text
    index %= len(drafts)
    drafts[index] = with_source(found, drafts[index], new)
    after = parse(found.encode(render(found, drafts)), "x")
    assert after.source(after.cells[index]) == new
    assert [after.source(c) for n, c in enumerate(after.cells) if n != index] == [
        s for n, s in enumerate(sources) if n != index
    ]
