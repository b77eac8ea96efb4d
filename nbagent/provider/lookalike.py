"""Text that looks like a tool call. It is never executed; the model is told to make a real call."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

# Marks that chat templates put around calls: in an answer's text they mean that the server did not parse them.
_MARKS = re.compile(
    r"<tool_call>|<\|tool_call\|?>|<tool_calls>|\[TOOL_CALLS\]|\[TOOL_REQUEST\]|<\|python_tag\|>|<function_calls?>"
    r"|<function=[\w.-]+>|<invoke name=|<\|tool_calls?_(?:section_)?begin\|>|<｜tool▁calls?▁begin｜>"
    r"|<\|channel\|>commentary to=|<\|START_ACTION\|>|<minimax:tool_call>|<arg_key>|<seed:tool_call>"
)
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]+`")
_NAME_KEYS = ("name", "tool", "tool_name", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "tool_args")
LONGEST = 200_000


def looks_like_call(text: str, names: Collection[str] = ()) -> bool:
    """Whether an answer's text is a tool call that came as words.

    ``names``: the tools offered; a JSON object or ``name(…)`` counts only for one of those when they are given. Code in a
    longer answer that merely mentions a call does not count.
    """
    text = text[:LONGEST]
    if not text.strip():
        return False
    prose = _INLINE.sub(" ", _FENCE.sub(" ", text))
    if _MARKS.search(prose):
        return True
    return any(_is_call(candidate, names) for candidate in _candidates(text))


def _candidates(text: str) -> list[str]:
    """The whole answer, its end from the last brace that begins a line, and blocks that end the answer."""
    whole = text.strip()
    found = [whole]
    blocks = list(_FENCE.finditer(whole))
    if blocks and not whole[blocks[-1].end() :].strip():
        found.append(blocks[-1][2].strip())
    last = max(whole.rfind("\n{"), whole.rfind("\n["))
    if last >= 0:
        found.append(whole[last:].strip())
    return found


def _is_call(text: str, names: Collection[str]) -> bool:
    if text.startswith(("{", "[")):
        return _is_json_call(text, names)
    return bool(names) and _is_written_call(text, names)


def _is_json_call(text: str, names: Collection[str]) -> bool:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) and _names_tool(item, names) for item in items)


def _names_tool(item: dict[str, object], names: Collection[str]) -> bool:
    if isinstance(item.get("tool_calls"), list):
        return True
    inner = item.get("function")
    if isinstance(inner, dict):
        return _names_tool(inner, names)
    name = next((item[key] for key in _NAME_KEYS if isinstance(item.get(key), str)), None)
    has_arguments = any(isinstance(item.get(key), (dict, str)) for key in _ARGUMENT_KEYS)
    if name is None or not has_arguments or len(item) > 5:
        return False
    return not names or _bare(str(name)) in names


def _bare(name: str) -> str:
    return name.removeprefix("functions.").removeprefix("tools.")


def _is_written_call(text: str, names: Collection[str]) -> bool:
    """``read(path="a.py")`` or ``functions.read({...})`` as the whole of a text."""
    match = re.fullmatch(r"(?:print\()?(?:functions\.|tools\.)?(\w+)\s*\((.*)\)\)?;?", text, re.DOTALL)
    if match is None or match[1] not in names:
        return False
    inner = match[2].strip()
    return bool(re.match(r"\w+\s*=|\{", inner))
