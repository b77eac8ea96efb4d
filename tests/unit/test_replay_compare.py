"""What counts as a difference between two runs of a notebook, and how it is told."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest

from nbagent.errors import PersonError
from nbagent.notebook.compare import differences, file_differences, merged, settle
from nbagent.notebook.demo import folded, lab_command, output_lines, record_lines
from nbagent.notebook.record import MIME
from nbagent.notebook.replay import Replayed, _Progress, replay, write_junit


def notebook(*outputs: Any, source: str = "x") -> Any:
    cell = nbformat.v4.new_code_cell(source, outputs=[nbformat.from_dict(o) for o in outputs])
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# hi"), cell])


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: Any) -> dict[str, Any]:
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {k.replace("__", "/").replace("_", "+"): v for k, v in data.items()},
    }


def test_same_is_same() -> None:
    assert differences(notebook(stream("a\nb\n")), notebook(stream("a\n"), stream("b\n"))) == []


def test_how_a_stream_is_cut_is_chance() -> None:
    assert [o["text"] for o in merged([stream("a"), stream("b"), stream("c", "stderr"), stream("d")])] == [
        "ab",
        "c",
        "d",
    ]


def test_another_text_is_told_with_a_diff_and_the_cell() -> None:
    lines = differences(notebook(stream("recall 0.93\n")), notebook(stream("recall 0.32\n")))
    assert lines[0] == "cell 2:"
    assert "  -recall 0.93" in lines
    assert "  +recall 0.32" in lines


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 0.31 s", "took 12 s"),
        ("at 2026-11-30 10:00:00", "at 2023-01-01 11:11:11"),
        ("<Axes at 0x7fe0a1b2c3d4>", "<Axes at 0x7fe0ffffffff>"),
        ("/tmp/abc/x.txt", "/tmp/def/y.txt"),
        ("the system prompt (2,576 characters), then", "the system prompt (2,579 characters), then"),
    ],
)
def test_what_changes_from_run_to_run_is_no_difference(one: str, other: str) -> None:
    assert differences(notebook(stream(one)), notebook(stream(other))) == []


def test_a_picture_is_a_picture_wherever_it_stands() -> None:
    """Another version of a drawing library is no other lesson; words beside the picture count."""

    def drawn(data: str, size: int, words: str) -> Any:
        record = {
            "head": {},
            "items": [{"kind": "text", "images": [{"mime": "image/png", "data": data}]}],
            "receipt": None,
        }
        page = f'<p>{words} [image/png {size} KB]</p><img src="data:image/png;base64,{data}">'
        return notebook({"output_type": "display_data", "metadata": {}, "data": {MIME: record, "text/html": page}})

    one, other = "iVBORw0KGgo" * 10, "iVBORw1KGgo" * 12
    assert differences(drawn(one, 33, "seen"), drawn(other, 35, "seen")) == []
    lines = differences(drawn(one, 33, "seen"), drawn(other, 35, "not seen"))
    assert any("not seen" in line for line in lines)
    assert not any(one[:40] in line for line in lines)


def test_an_output_more_or_less_is_told() -> None:
    assert "  there is a new output:" in differences(notebook(), notebook(stream("new")))
    assert "  an output is gone:" in differences(notebook(stream("old")), notebook())


def test_other_forms_are_told() -> None:
    lines = differences(notebook(shown(text__plain="a")), notebook(shown(text__plain="a", text__html="<b>a</b>")))
    assert "text/html" in lines[1]


def test_plain_text_is_what_a_difference_is_shown_in() -> None:
    lines = differences(
        notebook(shown(text__html="<b>a</b>", text__plain="a")), notebook(shown(text__html="<b>b</b>", text__plain="b"))
    )
    assert "  --- stored (text/plain)" in lines


def test_a_picture_is_a_picture() -> None:
    assert differences(notebook(shown(image__png="AAAA")), notebook(shown(image__png="BBBB"))) == []


def test_errors_compare_by_name_and_value() -> None:
    one = {"output_type": "error", "ename": "E", "evalue": "x", "traceback": ["at line 1"]}
    assert differences(notebook(one), notebook({**one, "traceback": ["elsewhere"]})) == []
    assert differences(notebook(one), notebook({**one, "evalue": "y"})) != []


def test_changed_cells_are_told() -> None:
    assert differences(notebook(source="a"), notebook(source="b")) == ["the cells themselves differ"]


def test_files() -> None:
    stored = {"a": "1", "b": "2", "c": "3", "e": "", "f": "6"}
    lines = file_differences(stored, {"b": "2", "c": "4", "d": "5"}, {"b": "2", "c": "4", "d": "5", "f": "6", "g": "7"})
    assert [line.split()[1] for line in lines] == ["a", "c", "d"]
    assert file_differences({"a": "1"}, {"a": "1"}, {"a": "1"}) == []


def test_a_settled_notebook_does_not_say_where_it_ran() -> None:
    run_folder = f"{tempfile.gettempdir()}/nbagent-2201-xxv3ir2c"
    node = notebook(stream(f"in /tmp/xyz/copy/work and /tmp/xyz/home/db and {run_folder}/*"))
    node.metadata["language_info"] = {"name": "python", "version": "3.11.7"}
    node.cells[1].metadata["execution"] = {"iopub.status.busy": "now"}
    settle(node, Path("/tmp/xyz/copy"), Path("/tmp/xyz/home"))
    assert node.cells[1].outputs[0]["text"] == (
        "in /home/you/notebooks/work and /home/you/.local/share/nbagent/db and /home/you/.cache/nbagent/*"
    )
    assert node.metadata["language_info"] == {"name": "python"}
    assert node.cells[1].metadata == {}


def test_junit(tmp_path: Path) -> None:
    results = [
        Replayed(Path("n/a.ipynb"), (), 1.5),
        Replayed(Path("n/b.ipynb"), ("cell 2:", "  -a \x1b[31m<&"), 0.5),
        Replayed(Path("n/c.ipynb"), ("cell 1 failed: ValueError: x",), 0.1, failed=True),
    ]
    write_junit(results, tmp_path / "out" / "junit.xml")
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert {k: suite.get(k) for k in ("tests", "failures", "errors")} == {"tests": "3", "failures": "1", "errors": "1"}
    cases = list(suite)
    assert [c.get("name") for c in cases] == ["a.ipynb", "b.ipynb", "c.ipynb"]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.text == "cell 2:\n  -a [31m<&"
    assert failure.get("message") == "differs from what is stored, first in cell 2"


@pytest.mark.parametrize(("name", "words"), [("none.ipynb", "no notebook"), ("a.txt", "must end with .ipynb")])
def test_a_path_that_is_no_notebook_is_one_sentence(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(PersonError, match=words):
        replay([tmp_path / name])
    with pytest.raises(PersonError, match="no notebook to replay"):
        replay([tmp_path])
    (tmp_path / "broken.ipynb").write_text("{")
    with pytest.raises(PersonError, match="cannot be read as a notebook"):
        replay([tmp_path / "broken.ipynb"])


def test_the_bar_shows_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream_, drawn in ((io.StringIO(), False), (Terminal(), True)):
        progress = _Progress(2, stream_)
        progress.begin(Path("n/a.ipynb"))
        progress.end(Path("n/a.ipynb"))
        progress.close()
        assert ("1/2" in stream_.getvalue()) == drawn


RECORD: dict[str, Any] = {
    "head": {"agent": "plan", "badge": "BUILD", "model": "m", "writes": "only p.md"},
    "items": [
        {"kind": "text", "text": "I look.\n\nThen I act."},
        {
            "kind": "tool",
            "name": "read",
            "title": "read a.py",
            "state": "completed",
            "refused": False,
            "metadata": {},
            "rule": None,
        },
        {
            "kind": "tool",
            "name": "write",
            "title": "",
            "input": {"filePath": "a.py", "content": "x"},
            "state": "error",
            "refused": True,
            "metadata": {},
            "rule": {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"},
        },
        {
            "kind": "review",
            "status": "approved",
            "path": "p.md",
            "edited": True,
            "comment": "well",
            "by": "cassette",
            "text": "# Plan\n1. x",
        },
        {"kind": "ask", "title": "make", "reply": "once", "feedback": "", "by": "person"},
        {"kind": "agent", "badge": "BUILD", "agent": "build", "previous": "plan"},
    ],
    "receipt": {"line": "1 file changed: a.py (+1 −1)"},
}


def test_a_run_as_lines_for_a_terminal() -> None:
    assert list(record_lines(RECORD)) == [
        "PLAN  m",
        "  says      I look.",
        "  says      Then I act.",
        "  did       read a.py",
        "  REFUSED   write a.py — by the rule edit *: deny (floor)",
        "  APPROVED  p.md, edited, saying: well (answered by the cassette)",
        "              # Plan",
        "              1. x",
        "  answered  once — make (a person)",
        "  now       BUILD",
        "receipt: 1 file changed: a.py (+1 −1)",
    ]


def test_an_output_as_lines_for_a_terminal() -> None:
    assert list(output_lines(stream("a\nb\n"))) == ["a", "b"]
    assert list(output_lines({"output_type": "error", "ename": "E", "evalue": "x"})) == ["E: x"]
    assert next(output_lines({"output_type": "display_data", "data": {MIME: RECORD}})) == "PLAN  m"
    assert list(output_lines({"output_type": "execute_result", "data": {"text/plain": "42"}})) == ["42"]


def test_a_long_line_goes_on_below_its_words() -> None:
    assert folded("      says      Found it: confusion swaps the two kinds of mistake.", 40) == [
        "      says      Found it: confusion",
        "                swaps the two kinds of",
        "                mistake.",
    ]
    plan = " " * 18 + "1. Swap the two lines in metrics.py."
    assert folded(plan, 40) == [" " * 18 + "1. Swap the two lines", " " * 18 + "in metrics.py."]
    assert folded("      did       list", 40) == ["      did       list"]


def test_jupyterlab_opens_for_root_too() -> None:
    """In a container one is root, and there the server starts only when it is told to."""
    assert lab_command(Path("a.ipynb"), root=True) == [sys.executable, "-m", "jupyterlab", "--allow-root", "a.ipynb"]
    assert lab_command(Path("a.ipynb"), root=False) == [sys.executable, "-m", "jupyterlab", "a.ipynb"]


def test_the_memory_that_a_value_takes_is_no_difference() -> None:
    """It depends on the version of the library that holds it."""
    from nbagent.notebook.compare import _plain

    assert _plain("wind: DataFrame, 120 rows, 4 KB; index") == _plain("wind: DataFrame, 120 rows, 3 KB; index")
    assert _plain("120 rows, 4 KB; index") != _plain("121 rows, 4 KB; index")
