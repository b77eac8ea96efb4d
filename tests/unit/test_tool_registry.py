"""The one check of arguments, names that do not exist, and the one cut of output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent.errors import ArgumentError
from nbagent.tools.cut import MAX_BYTES, MAX_LINES, cut
from nbagent.tools.registry import all_tools, check_arguments, signature, unknown_tool

TOOLS = all_tools()


@pytest.mark.parametrize(
    ("tool", "raw", "field", "value"),
    [
        ("read", {"filePath": "a", "offset": "3"}, "offset", 3),
        ("read", {"filePath": "a", "offset": 3.0}, "offset", 3),
        ("read", {"filePath": "a", "offset": None}, "offset", 1),
        ("edit", {"filePath": "a", "oldString": "x", "newString": "y", "replaceAll": "true"}, "replaceAll", True),
        ("edit", {"filePath": "a", "oldString": "x", "newString": "y", "why": "because"}, "replaceAll", False),
        ("list", {"ignore": '["*.log"]'}, "ignore", ("*.log",)),
        ("grep", {"pattern": "12"}, "pattern", "12"),
    ],
)
def test_what_is_meant_is_understood(tool: str, raw: dict[str, Any], field: str, value: object) -> None:
    assert getattr(check_arguments(TOOLS[tool], raw), field) == value


@pytest.mark.parametrize(
    ("tool", "raw", "said"),
    [
        (
            "read",
            {},
            "the required field is missing: filePath. Send read(filePath: string, offset?: integer, limit?: integer).",
        ),
        ("read", {"file_path": "a"}, "'file_path' is not a field; it is spelled 'filePath'"),
        ("read", {"filePath": 5}, "filePath: expected string, got integer"),
        ("read", {"filePath": ["a"]}, "filePath: expected string, got array"),
        ("read", {"filePath": "a", "limit": "many"}, "limit: expected integer, got string"),
        ("read", "a.py", "arguments must be one JSON object, not text"),
        ("read", None, "arguments must be one JSON object, not null"),
        ("todowrite", {"todos": "milk"}, "todos: expected array, got string"),
        (
            "todowrite",
            {"todos": [{"content": "x", "status": "done"}]},
            'status: "cancelled" | "completed" | "in_progress"',
        ),
        ("todowrite", {"todos": [{"status": "pending"}]}, "todos[0]: the required field is missing: content"),
        ("webfetch", {"url": "http://x", "format": "pdf"}, "Invalid enum value 'pdf'"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_send(tool: str, raw: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as error:
        check_arguments(TOOLS[tool], raw)
    assert said in str(error.value)
    assert f"Send {signature(TOOLS[tool])}" in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(TOOLS)), data=st.data())
def test_any_json_is_either_understood_or_an_argument_error(name: str, data: st.DataObject) -> None:
    tool = TOOLS[name]
    fields = st.sampled_from(sorted(tool.schema.get("properties", {})) or ["x"])
    raw = data.draw(JSON | st.dictionaries(fields | st.text(max_size=5), JSON, max_size=4))
    try:
        assert isinstance(check_arguments(tool, raw), tool.arguments)
    except ArgumentError as error:
        assert "Send" in str(error)


def test_unknown_tools() -> None:
    assert str(unknown_tool("Read", TOOLS)) == "There is no tool 'Read'. Did you mean read?"
    assert "todowrite" in str(unknown_tool("TodoWrite", TOOLS))
    assert str(unknown_tool("xyzzy", ["b", "a"])) == "There is no tool 'xyzzy'. The tools are: a, b."
    assert len(str(unknown_tool("read</think>" + "x" * 5000, TOOLS))) < 1000


# Cutting


def test_what_fits_is_left_alone(tmp_path: Path) -> None:
    assert cut("x\n" * MAX_LINES, tmp_path, "c") == ("x\n" * MAX_LINES, {})
    assert cut("", tmp_path, "c") == ("", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tail", [False, True])
def test_many_lines(tmp_path: Path, tail: bool) -> None:
    whole = "".join(f"line {n}\n" for n in range(5000))
    text, about = cut(whole, tmp_path / "spill", "call/../7", tail)
    kept = tmp_path / "spill" / "call_.._7.txt"
    assert kept.read_text() == whole
    assert about == {"truncated": True, "lines": 5000, "bytes": len(whole), "whole": str(kept)}
    assert f"the {'last' if tail else 'first'} 2,000 of 5,000 lines shown" in text
    assert str(kept) in text
    assert "read with offset and limit" in text
    assert ("line 4999" in text) is tail
    assert ("line 0\n" in text) is not tail


@pytest.mark.parametrize("tail", [False, True])
def test_one_huge_line_leaves_something(tmp_path: Path, tail: bool) -> None:
    text, _ = cut("a" + "é" * 60_000 + "z\nshort\n", tmp_path, "c", tail)
    assert text.count("é") > (20_000 if tail else 25_000)
    assert ("short" in text) is tail


def test_a_folder_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "wall").write_text("")
    text, about = cut("x\n" * 3000, tmp_path / "wall", "c")
    assert about["whole"] == ""
    assert "could not be kept" in text


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.integers(0, 4000).map(lambda n: "ü" * n), min_size=1, max_size=60),
    tail=st.booleans(),
    ending=st.sampled_from(["", "\n"]),
)
def test_cut_is_within_bounds_and_a_part_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], tail: bool, ending: str
) -> None:
    whole = "\n".join(lines) + ending
    text, about = cut(whole, tmp_path_factory.mktemp("spill"), "c", tail)
    if not about:
        assert text == whole
        return
    body = text.split("\n\n", 1)[1] if tail else text.rsplit("\n\n", 1)[0]
    assert 0 < len(body.encode()) <= MAX_BYTES
    assert whole.rstrip("\n").endswith(body.rstrip("\n")) if tail else whole.startswith(body)
