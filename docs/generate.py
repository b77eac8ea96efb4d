"""Writes the parts of the reference that come from the code: ``python -m docs.generate`` (``--check`` only compares).

Each page is made whole; nothing in it is written by hand. A test fails when a page is not what the code says.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from nbagent import config, event
from nbagent.agent import BUILTIN, DEFAULTS, layered
from nbagent.cli import parser
from nbagent.notebook import commands, options
from nbagent.permission.ruleset import Rule
from nbagent.sandbox.find import KINDS
from nbagent.tools.registry import all_tools
from nbagent.tools.table import agents_table, effects_table

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- Made from the code by `python -m docs.generate`; edit the code, not this page. -->\n"


def tools() -> str:
    """Every tool: permission, effect, arguments, the description that the model reads."""
    lines = ["# Tools", "", effects_table(), "", "## Who sees what", "", agents_table(_agent_rules()), ""]
    for tool in all_tools().values():
        lines += [
            f"## `{tool.name}`",
            "",
            *_arguments(tool.schema),
            "",
            "What the model is told:",
            "",
            "~~~text",
            tool.description,
            "~~~",
            "",
        ]
    return "\n".join(lines)


def _agent_rules() -> dict[str, tuple[Rule, ...]]:
    return {agent.name: layered(agent, ()) + agent.floor for agent in BUILTIN if agent.mode != "hidden"}


def _arguments(schema: dict[str, Any]) -> list[str]:
    properties = schema.get("properties", {})
    if not properties:
        return ["No arguments."]
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}`{'' if name in required else ' (optional)'} | {_type(field)} | {field.get('description', '')} |"
        for name, field in properties.items()
    ]
    return ["| argument | type | |", "|---|---|---|", *rows]


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(each) for each in field["anyOf"] if each.get("type") != "null")
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def rules() -> str:
    """The defaults and what each built-in agent adds."""
    lines = ["# Rules", "", "Order is policy: **the last rule that matches wins**.", ""]
    lines += ['`defaults < agent < user < project < this session\'s "always" replies < floor`', ""]
    lines += ["## Defaults", "", *_ruleset(DEFAULTS), ""]
    lines += [
        "After an agent's own rules come those for the places where keys lie (`~/.ssh`, `~/.aws`, browser profiles, histories, nbagent's",
        "own data; those that exist): `read` there is `ask`. Your own settings file and your replies loosen that, a project's does not.",
        "",
    ]
    for agent in BUILTIN:
        if agent.mode == "hidden":
            continue
        lines += [f"## `{agent.name}`", "", agent.description, ""]
        flags = [name for name in ("confined", "planning") if getattr(agent, name)]
        if flags:
            lines += [f"Data: {', '.join(f'`{name}`' for name in flags)}.", ""]
        lines += [*_ruleset(agent.rules), ""]
        if agent.floor:
            lines += [
                "Floor, after everything else (`{plans}` stands for the cell's plan file and the plans folder):",
                "",
                *_ruleset(agent.floor),
                "",
            ]
    return "\n".join(lines)


def _ruleset(ruleset: tuple[Rule, ...]) -> list[str]:
    return [
        "| permission | pattern | action |",
        "|---|---|---|",
        *(f"| `{r.permission}` | `{r.pattern}` | {r.action} |" for r in ruleset),
    ]


def settings() -> str:
    """Everything that a settings file may hold, and the environment variables."""
    lines = ["# Settings", "", inspect.cleandoc(config.__doc__ or ""), ""]
    tables: list[tuple[str, type[msgspec.Struct]]] = [
        ("top level", config.FileSettings),
        ('[models."name"]', config.ModelSettings),
        ("[limits]", config.LimitSettings),
        ("[compaction]", config.CompactionSettings),
        ("[environment]", config.EnvironmentSettings),
        ("[sandbox]", config.SandboxSettings),
        ("[mcp.name]", config.McpSettings),
        ("[agents.name]", config.AgentSettings),
    ]
    for title, struct in tables:
        lines += [f"## `{title}`" if title.startswith("[") else f"## {title.capitalize()}", "", *_struct(struct), ""]
    lines += ["## Environment", "", "| variable | sets |", "|---|---|"]
    lines += [f"| `{name}` | `{key}` |" for name, key in config._VARIABLES.items()]
    lines += ["| `NBAGENT_MAX_STEPS` | `limits.steps` |", "| `NBAGENT_HOME` | the folder of nbagent's own data |"]
    lines += ["| `NBAGENT_CONFIG` | the user's settings file |"]
    lines += ["| `NBAGENT_CASSETTE_ANSWERS` | `1`: the person's answers in a cassette count (`--cassette-answers`) |"]
    lines += ["| `NBAGENT_HEADLESS` | `1`: nobody is there to answer, whatever the front end says; `0`: somebody is |"]
    lines += [
        f"| `NBAGENT_WALL` | one kind of wall ({', '.join(KINDS)}) instead of the best one, or `none` for no wall, which is stricter |",
        "",
    ]
    return "\n".join(lines)


def _struct(struct: type[msgspec.Struct]) -> list[str]:
    rows = [inspect.cleandoc(struct.__doc__ or ""), "", "| key | type | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        default = "" if field.default is msgspec.NODEFAULT else _default(field.default)
        rows.append(f"| `{field.name}` | {_annotation(field.type)} | {default} |")
    return rows


def _default(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return "see its table"
    return f"`{msgspec.json.encode(value).decode()}`" if value not in ("", (), {}) else ""


def _annotation(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Annotated:
        base, bounds = typing.get_args(kind)
        return f"{_annotation(base)}, {bounds.ge} or more"
    if optional := [each for each in typing.get_args(kind) if typing.get_origin(each) is typing.Annotated]:
        return _annotation(optional[0])
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(f"`{each}`" for each in typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    text = re.sub(r"\b(?:nbagent|typing|msgspec)\.(?:\w+\.)*", "", str(kind).replace("<class '", "").replace("'>", ""))
    return text.replace("|", "\\|")


def magics() -> str:
    """The magics, their options, and the commands of ``%agent``."""
    lines = ["# Magics", ""]
    for name, table in (("%%plan", options.PLAN), ("%%build", options.BUILD)):
        lines += [f"## `{name}`", "", "| option | |", "|---|---|"]
        for option in table:
            shown = ", ".join(f"`{each}`" for each in (option.short, option.name) if each)
            lines.append(f"| {shown} {option.value} | {option.help} |")
        lines.append("")
    lines += ["`%plan` and `%build` are the same in one line.", "", "## `%agent`", "", "| command | |", "|---|---|"]
    lines += [
        f"| `%agent {(command.name + ' ' + command.usage).strip().replace('|', chr(92) + '|')}` | {command.help} |"
        for command in commands.COMMANDS.values()
    ]
    return "\n".join([*lines, ""])


def cli() -> str:
    """``nbagent --help`` of every command."""
    top = parser()
    lines = ["# Command line", "", "`jupyter nbagent …` is the same program.", "", *_exit_statuses(), ""]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                command.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=100)
                lines += [f"## `nbagent {name}`", "", "```text", command.format_help().strip(), "```", ""]
    return "\n".join(lines)


def _exit_statuses() -> list[str]:
    from nbagent import cli as module

    text = inspect.cleandoc(module.__doc__ or "")
    return [text[text.index("Exit status") :]]


def events() -> str:
    """The events of a run, as ``nbagent run --format json`` prints them."""
    lines = ["# Events", "", inspect.cleandoc(event.__doc__ or ""), ""]
    for kind in typing.get_args(event.Event):
        tag = kind.__struct_config__.tag
        live = " (live views only)" if issubclass(kind, event.LIVE_ONLY) else ""
        lines += [f"## `{tag}`{live}", "", inspect.cleandoc(kind.__doc__ or ""), "", "| field | type |", "|---|---|"]
        for field in msgspec.structs.fields(kind):
            lines.append(f"| `{field.name}` | {_annotation(field.type)} |")
        lines.append("")
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "tools.md": tools,
    "rules.md": rules,
    "settings.md": settings,
    "magics.md": magics,
    "cli.md": cli,
    "events.md": events,
}


def stale() -> Iterator[str]:
    """Pages that are not what the code says."""
    for name, make in PAGES.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != NOTE + make():
            yield name


def main() -> int:
    if "--check" in sys.argv[1:]:
        names = list(stale())
        print(
            "\n".join(
                f"docs/reference/{name} is not what the code says; run `python -m docs.generate`." for name in names
            )
        )
        return 1 if names else 0
    for name, make in PAGES.items():
        (FOLDER / name).write_text(NOTE + make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
