"""Calls that came as words, and words that only speak of calls."""

from __future__ import annotations

import pytest

from nbagent.provider.lookalike import looks_like_call

NAMES = ("read", "write", "bash")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>',
        'Let me read it.\n<tool_call>{"name": "read"',
        '[TOOL_CALLS][{"name": "read", "arguments": {"path": "a"}}]',
        '{"name": "read", "arguments": {"path": "a"}}',
        '{"name": "read", "parameters": {"path": "a"}}',
        '{"type": "function", "function": {"name": "read", "arguments": "{}"}}',
        '[{"name": "read", "arguments": {}}, {"name": "bash", "arguments": {"command": "ls"}}]',
        '```json\n{"name": "read", "arguments": {"path": "a"}}\n```',
        'I will read the file.\n\n```json\n{"tool": "read", "args": {"path": "a"}}\n```',
        'Sure.\n{"name": "functions.read", "arguments": {"path": "a"}}',
        "<function=read>\n<parameter=path>\na\n</parameter>\n</function>",
        '<function_calls>\n<invoke name="read">',
        '<|python_tag|>read.call(path="a")',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0",
        'read(path="a.py")',
        'functions.read({"path": "a.py"})',
        '{"tool_calls": [{"function": {"name": "read", "arguments": "{}"}}]}',
    ],
)
def test_calls_in_words(text: str) -> None:
    assert looks_like_call(text, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I read the file and it is fine.",
        '{"name": "Ada", "age": 36}',
        '{"name": "unknown_tool", "arguments": {}}',
        'The body looks like this:\n```json\n{"name": "read", "arguments": {}}\n```\nand the server answers it.',
        "Qwen wraps calls in `<tool_call>` tags.",
        "```xml\n<tool_call>\n</tool_call>\n```\nThat is the form.",
        "print(value)",
        "read(a) returns the bytes.",
        '{"name": "demo", "version": "1.0", "arguments": 3}',
        "[1, 2, 3]",
        "[]",
        "{" * 5000,
    ],
)
def test_words_only(text: str) -> None:
    assert not looks_like_call(text, NAMES)


def test_without_names_any_name_counts() -> None:
    assert looks_like_call('{"name": "anything", "arguments": {}}')
    assert not looks_like_call("anything(x=1)")
