"""The syntax tree of a shell line."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

LONGEST = 30_000
"""Bytes of a line that are still read; a longer one is only ever asked about."""
DEEPEST = 150
"""Levels of a syntax tree that are still read."""


@cache
def _language() -> Any:
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _parsed(line: bytes) -> Any:
    """A parser for each line: lines are read on several threads, and a parser is for one."""
    from tree_sitter import Parser

    return Parser(_language()).parse(line)


def parse(line: bytes) -> Any:
    """The syntax tree of a line, or a sentence (``str``) that says why there is none."""
    if len(line) > LONGEST:
        return f"the command is too long to be read ({len(line)} bytes)"
    if b"\0" in line:
        return "the command contains a NUL byte"
    if _HERE.search(line):
        return "the command has several here-documents in one line"
    line = _SLASHED.sub(b"\n_", line)
    tree = _parsed(line)
    if tree.root_node.has_error and b"<>" in line:
        # The grammar lacks this operator, which opens a file for reading and writing; the offsets stay the same.
        tree = _parsed(line.replace(b"<>", b" >"))
    if tree.root_node.has_error:
        return "the command could not be parsed"
    if _depth(tree.root_node) > DEEPEST:
        return "the command is nested too deeply to be read"
    if b"\n\\" in line and _swallows_a_line(tree.root_node):
        return "a line that begins with a backslash could not be told from the one before it"
    return tree.root_node


# A backslash at the end of a line, inside a word: the shell joins the halves, and the grammar does not.
_SPLIT = re.compile(rb"(?<=[^\s\\])((?:\\\\)*)\\\n(?=\S)")
# To the grammar a line that begins with a backslash is a word of the line before. Before a letter a backslash does no more than keep a
# word from being an alias or a keyword, as an underscore does; the offsets stay the same, and what is read there is what was written.
_SLASHED = re.compile(rb"\n\\(?=[A-Za-z0-9])")
_HERE = re.compile(rb"(?<!<)<<(?!<)[^\n]*(?<!<)<<(?!<)")


def joined(line: bytes) -> bytes | None:
    """The line with words that go on in the next line put together; None when quotes and the like make that unsure."""
    if not _SPLIT.search(line):
        return line
    if any(mark in line for mark in (b"'", b"<<", b"#")):
        return None
    return _SPLIT.sub(rb"\1", line)


# A backslash and what it takes away the meaning of.
_ESCAPED = re.compile(rb"\\.", re.DOTALL)


def _swallows_a_line(root: Any) -> bool:
    """Whether a word goes over the end of a line."""
    todo = [root]
    while todo:
        node = todo.pop()
        todo += node.children
        if not node.children and node.is_named and node.type in _BARE and b"\n" in _ESCAPED.sub(b"", node.text):
            return True
    return False


_BARE = frozenset(
    ["word", "extglob_pattern", "variable_name", "regex", "test_operator", "special_variable_name", "number"]
)
"""Leaves that no quotes hold together."""


def _depth(root: Any) -> int:
    deepest, level = 0, [root]
    while level and deepest <= DEEPEST:
        level = [child for node in level for child in node.children]
        deepest += 1
    return deepest
