"""Every tool there is, and the one check of a call's arguments."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from nbagent.errors import ArgumentError
from nbagent.tools.apply_patch import ApplyPatch
from nbagent.tools.bash import Bash
from nbagent.tools.edit import Edit
from nbagent.tools.glob import Glob
from nbagent.tools.grep import Grep
from nbagent.tools.inspect import Inspect
from nbagent.tools.list import List
from nbagent.tools.notebook_edit import NotebookEdit
from nbagent.tools.notebook_read import NotebookRead
from nbagent.tools.plan_enter import PlanEnter
from nbagent.tools.plan_exit import PlanExit
from nbagent.tools.python import Python
from nbagent.tools.question import AskQuestion
from nbagent.tools.read import Read
from nbagent.tools.skill import Skill
from nbagent.tools.task import Task
from nbagent.tools.todoread import TodoRead
from nbagent.tools.todowrite import TodoWrite
from nbagent.tools.tool import Arguments, Tool
from nbagent.tools.tool_search import ToolSearch
from nbagent.tools.webfetch import WebFetch
from nbagent.tools.write import Write

KINDS: tuple[type[Tool[Any]], ...] = (
    Read,
    Write,
    Edit,
    ApplyPatch,
    List,
    Glob,
    Grep,
    Inspect,
    Bash,
    Python,
    NotebookRead,
    NotebookEdit,
    Task,
    TodoWrite,
    TodoRead,
    AskQuestion,
    PlanEnter,
    PlanExit,
    WebFetch,
    Skill,
    ToolSearch,
)


def all_tools() -> dict[str, Tool[Any]]:
    """A fresh set of the built-in tools by name, in the order in which they are offered."""
    return {kind.name: kind() for kind in KINDS}


def unknown_tool(name: str, names: Iterable[str]) -> ArgumentError:
    """The answer to a call of a tool that does not exist: the names that are near, else all of them."""
    known = sorted(names)
    shown = name if len(name) <= 80 else name[:80] + "…"
    same = [known_name for known_name in known if _folded(known_name) == _folded(name)]
    near = [_folded(n) for n in same] or difflib.get_close_matches(
        _folded(name), [_folded(n) for n in known], n=3, cutoff=0.6
    )
    near_names = [n for n in known if _folded(n) in near]
    if near_names:
        return ArgumentError(f"There is no tool {shown!r}. Did you mean {' or '.join(near_names)}?")
    return ArgumentError(f"There is no tool {shown!r}. The tools are: {', '.join(known)}.")


def check_arguments(tool: Tool[Any], raw: Any) -> Arguments:
    """The typed arguments of a call. Raises ``ArgumentError`` that says what to send instead.

    Numbers and booleans written as strings, lists and objects written as JSON text, and ``null`` for a field that may be
    left out are understood. A field that is not known is ignored, unless it is a known one misspelled.
    """
    if not isinstance(raw, Mapping):
        raise _wrong(tool, f"arguments must be one JSON object, not {_kind(raw)}")
    properties = tool.schema.get("properties", {})
    required = set(tool.schema.get("required", ()))
    takes_more = tool.schema.get("additionalProperties", False) is not False
    given = {str(key): value for key, value in raw.items()}
    _refuse_misspelled(tool, given, properties)
    plain = {
        key: _unfolded(value, properties.get(key, {}))
        for key, value in given.items()
        if (key in properties or takes_more) and not (value is None and key not in required)
    }
    try:
        return cast(Arguments, tool.convert(plain))
    except msgspec.ValidationError as error:
        raise _wrong(tool, _plainly(str(error))) from None
    except ArgumentError as error:
        raise _wrong(tool, str(error)) from None


def _refuse_misspelled(tool: Tool[Any], given: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    by_fold = {_folded(name): name for name in properties}
    for key in given:
        meant = by_fold.get(_folded(key), "")
        if key not in properties and meant and meant not in given:
            raise _wrong(tool, f"{key!r} is not a field; it is spelled {meant!r}")


def _unfolded(value: Any, schema: Mapping[str, Any]) -> Any:
    """A list or object that came as JSON text, as itself."""
    if isinstance(value, str) and schema.get("type") in ("array", "object"):
        try:
            decoded = json.loads(value)
        except ValueError:
            return value
        if isinstance(decoded, (list, dict)):
            return decoded
    return value


def _wrong(tool: Tool[Any], problem: str) -> ArgumentError:
    return ArgumentError(f"Wrong arguments for {tool.name}: {problem}. Send {signature(tool)}.")


def signature(tool: Tool[Any]) -> str:
    """``read(filePath: string, offset?: integer)``: what to send, on one line."""
    required = set(tool.schema.get("required", ()))
    fields = [
        f"{name}{'' if name in required else '?'}: {_type_name(schema)}"
        for name, schema in tool.schema.get("properties", {}).items()
    ]
    return f"{tool.name}({', '.join(fields)})"


def _type_name(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"[{_type_name(schema.get('items', {}))}, …]"
    if schema.get("type") == "object" and schema.get("properties"):
        required = set(schema.get("required", ()))
        inner = [
            f"{k}{'' if k in required else '?'}: {_type_name(v)}" for k, v in list(schema["properties"].items())[:8]
        ]
        return "{" + ", ".join(inner) + "}"
    if "anyOf" in schema:
        return " | ".join(_type_name(option) for option in schema["anyOf"])
    return str(schema.get("type", "any"))


_WORDS = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "object": "object", "null": "null"}


def _plainly(message: str) -> str:
    """A validation error of msgspec in the words of JSON."""
    text, _, path = message.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    text = re.sub(r"`(\w+)`", lambda m: f"`{_WORDS.get(m[1], m[1])}`", text)
    text = text.replace("Object missing required field", "the required field is missing:").replace("`", "")
    if text.startswith("Expected"):
        text = text[0].lower() + text[1:]
    return f"{where}: {text}" if where else text


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return "text" if isinstance(value, str) else "a list"
