"""Every tool says what it does to the world, has its words beside it, and stays small."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, get_args

import pytest

from nbagent.permission.ask import Effect
from nbagent.permission.ruleset import permission_of
from nbagent.tools.registry import KINDS, all_tools
from nbagent.tools.table import agents_table, effects_table
from nbagent.tools.tool import Tool

TOOLS = all_tools()
# Together with the system prompt the core request stays under 24 KB.
CORE_BYTES = 16_000


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_every_tool_is_described(tool: Tool[Any]) -> None:
    kind = type(tool)
    assert tool.effect in get_args(Effect)
    assert "effect" in vars(kind), "each tool declares its own effect"
    assert 10 <= len(tool.hint) <= 100
    assert tool.permission == permission_of(tool.name)
    assert 30 <= len(tool.description) <= 2_200
    assert files("nbagent.tools").joinpath(f"{kind.__module__.rpartition('.')[2]}.md").is_file()
    if tool.parallel:
        assert tool.effect == "reads" or tool.name == "task"


@pytest.mark.parametrize("tool", TOOLS.values(), ids=list(TOOLS))
def test_every_schema_is_small_and_plain(tool: Tool[Any]) -> None:
    text = json.dumps(tool.schema)
    assert tool.schema["type"] == "object"
    assert len(text) <= 1_500
    for word in ("$defs", "$ref", '"title"', "anyOf", "allOf"):
        assert word not in text, word


def test_names_are_unique_and_every_kind_is_there() -> None:
    assert len(TOOLS) == len(KINDS)
    assert all(name == tool.name for name, tool in TOOLS.items())


def test_the_core_is_small() -> None:
    sent = [
        {"name": t.name, "description": t.description, "parameters": t.schema} for t in TOOLS.values() if not t.deferred
    ]
    assert len(json.dumps(sent)) <= CORE_BYTES


def test_descriptions_name_only_tools_that_exist() -> None:
    import re

    for tool in TOOLS.values():
        quoted = set(re.findall(r"`([a-z]+_[a-z_]+)`", tool.description))
        unknown = quoted - set(TOOLS) - set(_fields(tool.schema))
        assert not unknown, f"{tool.name}: {unknown}"


def _fields(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = list(schema.get("properties", {}))
        return own + [name for value in schema.values() for name in _fields(value)]
    return [name for value in schema for name in _fields(value)] if isinstance(schema, list) else []


def test_tables_have_a_row_a_tool() -> None:
    table = effects_table()
    assert all(f"| `{name}` |" in table for name in TOOLS)
    assert "| `edit` | `edit` | writes files | always |" in table
    from nbagent.permission.ruleset import Rule

    agents = agents_table(
        {"plan": (Rule("*", "*", "allow"), Rule("bash", "*", "deny")), "build": (Rule("*", "*", "allow"),)}
    )
    assert "| tool | plan | build |" in agents
    assert "| `bash` | hidden | visible |" in agents or "bash" not in TOOLS
    assert "| `webfetch` | deferred | deferred |" in agents
