"""``%agent …``: everything that is not a run, as text. Each command is a function from a runtime and words to text."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from nbagent.errors import ConfigError, PersonError, SessionError
from nbagent.message import StepFinishPart, Tokens
from nbagent.notebook import place, view
from nbagent.notebook.desk import Desk
from nbagent.permission.ruleset import Rule
from nbagent.runtime import Runtime
from nbagent.session.explain import explain_cell
from nbagent.session.state import state_from
from nbagent.tools.textfile import counted

Words = list[str]
MANY = 6
"""Rules that differ only in their pattern and are more than this are listed as one line."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a command may look at."""

    shell: Any
    desk: Desk
    runtime: Runtime
    link: Any


@dataclass(frozen=True, slots=True)
class Command:
    """``usage``: its arguments; ``choices``: what may be completed after it."""

    name: str
    usage: str
    help: str
    work: Callable[[Context, Words], str]
    choices: tuple[str, ...] = ()


def _status(context: Context, words: Words) -> str:
    runtime = context.runtime
    config = runtime.config
    lines = [f"root     {runtime.root.path}", f"model    {config.model or 'none set (NBAGENT_MODEL)'}"]
    lines.append(f"server   {config.base_url or 'the default of OpenAI'}{'' if config.api_key else ', no key'}")
    lines.append(f"settings {', '.join(config.sources) or 'no file; defaults and environment'}")
    if runtime.session_id:
        row = runtime.store.session(runtime.session_id)
        lines.append(f"session  {row.id}: {row.title or 'no title yet'} ({row.agent}, {row.status})")
    else:
        lines.append("session  none yet; the next prompt begins one")
    lines += [f"plan     {row.status:<9} {_shown(runtime, row.path)}" for row in runtime.resources.plans.rows()[:3]]
    lines += [f"interrupted: {mark.session_id} (%agent resume)" for mark in _crashed(runtime)]
    lines += [f"note: {notice}" for notice in runtime.notices]
    return "\n".join(lines)


def _crashed(runtime: Runtime) -> list[Any]:
    return list(runtime.store.crashed(str(runtime.root.path)))


def _shown(runtime: Runtime, path: str) -> str:
    return runtime.root.locate(path).pattern


def _why(context: Context, words: Words) -> str:
    agent = _option(words, "--agent") or "build"
    whole = "--all" in words[:1]
    words = words[1:] if whole else words
    if not words:
        raise ConfigError("%agent why: say which permission, and on what: %agent why --agent plan edit src/a.py")
    return "\n".join(context.runtime.policy.why(agent, words[0], " ".join(words[1:]) or "*").lines(whole))


def _option(words: Words, name: str) -> str:
    """Take ``name VALUE`` or ``name=VALUE`` out of ``words``."""
    for index, word in enumerate(words):
        if word == name:
            if index + 1 >= len(words):
                raise ConfigError(f"{name} needs a value.")
            value = words[index + 1]
            del words[index : index + 2]
            return value
        if word.startswith(name + "="):
            del words[index]
            return word.partition("=")[2]
    return ""


def _rules(context: Context, words: Words) -> str:
    if words and words[0] == "revoke":
        return _revoke(context, words[1:])
    agent = context.runtime.config.agent(_option(words, "--agent") or (words[0] if words else "build"))
    lines = [f"Rules of {agent.name}, the last that matches wins:"]
    for (layer, permission, action), rules in groupby(context.runtime.policy.rules(agent), _all_but_pattern):
        patterns = [rule.pattern for rule in rules]
        if len(patterns) > MANY:
            patterns = [f"{patterns[0]}, {patterns[1]} and {len(patterns) - 2} more"]
        lines += [f"{layer:<9} {permission:<20} {pattern:<30} {action}" for pattern in patterns]
    lines.append(
        "Reading where keys lie (~/.ssh, ~/.aws …) is `ask`, whatever the project's file says: `%agent why read PATH`."
    )
    kept = context.runtime.store.approvals(context.runtime.session_id) if context.runtime.session_id else []
    if kept:
        lines += ["", 'Your "always" replies in this conversation (they stand before the floor and never lift a deny):']
        lines += [f"{row.id:>4}  {row.permission} {row.pattern}: allow  ({row.agent})" for row in kept]
        lines.append("%agent rules revoke N takes one back.")
    return "\n".join(lines)


def _all_but_pattern(rule: Rule) -> tuple[str, str, str]:
    return rule.layer, rule.permission, rule.action


def _revoke(context: Context, words: Words) -> str:
    if len(words) != 1 or not words[0].isdecimal():
        raise ConfigError("%agent rules revoke N: which one? %agent rules lists them with their numbers.")
    runtime = context.runtime
    if not runtime.session_id or not runtime.store.revoke_approval(runtime.session_id, int(words[0])):
        raise ConfigError(f"There is no remembered reply {words[0]} in this conversation. %agent rules lists them.")
    return f"Reply {words[0]} is taken back: the next such call is asked again."


def _fork(context: Context, words: Words) -> str:
    at = words[words.index("at") + 1] if "at" in words[:-1] else ""
    start = words[0] if words and words[0] != "at" else ""
    row = context.runtime.fork(start, at)
    return f"The next prompt goes on in {row.id}, a copy ({row.title})."


def _archive(context: Context, words: Words) -> str:
    if len(words) != 1:
        raise ConfigError("%agent archive ID: which one? %agent sessions lists them.")
    return f"{context.runtime.archive(words[0]).id} is out of the list; nothing was deleted."


def _explain(context: Context, words: Words) -> str:
    runtime = context.runtime
    if not runtime.session_id:
        raise SessionError("There is no finished cell to explain yet.")
    back = next((int(word) for word in words if word.isdecimal()), 0)
    row = runtime.store.session(runtime.session_id)
    return explain_cell(runtime.messages(), state_from(row.state), back, whole="--whole" in words)


def _tools(context: Context, words: Words) -> str:
    first = _option(words, "--agent")
    names = [first] if first else (words or ["plan", "build"])
    if len(names) == 1:
        return "\n".join(
            f"{name:<16} {state:<9} {rule}".rstrip() for name, state, rule in context.runtime.policy.tools(names[0])
        )
    return side_by_side(context.runtime, names)


def side_by_side(runtime: Runtime, names: list[str]) -> str:
    """Agents beside each other, a line a tool: what each may do with it, and the rule where it is hidden or narrowed."""
    columns = [runtime.policy.summary(name) for name in names]
    rows = [("", *names), *((tool, *(column[tool] for column in columns)) for tool in columns[0])]
    widths = [max(len(row[place]) for row in rows) for place in range(len(names) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _sessions(context: Context, words: Words) -> str:
    runtime = context.runtime
    rows = runtime.store.sessions(str(runtime.root.path))
    if not rows:
        return "No sessions in this project yet."
    marks = {mark.session_id for mark in _crashed(runtime)}
    lines = []
    for row in rows[:30]:
        here = "*" if row.id == runtime.session_id else " "
        status = "interrupted" if row.id in marks else row.status
        lines.append(f"{here} {row.id}  {status:<11} {row.agent:<6} {row.title}")
    return "\n".join([*lines, "%agent resume ID goes on with one."])


def _new(context: Context, words: Words) -> str:
    context.runtime.new_session()
    return "The next prompt begins a new conversation."


def _undo(context: Context, words: Words) -> str:
    result = context.runtime.undo()
    return _told("put back", result)


def _redo(context: Context, words: Words) -> str:
    result = context.runtime.redo()
    return _told("done again", result)


def _told(what: str, result: Any) -> str:
    lines = [f"{what}: {path}" for path in result.restored]
    lines += [f"left alone: {path}: {why}" for path, why in result.kept]
    return "\n".join(lines) or "Nothing had to be changed."


def _export(context: Context, words: Words) -> str:
    from nbagent.session.export import export

    form = _option(words, "--to") or "markdown"
    if form not in ("markdown", "json", "notebook"):
        raise ConfigError(f"%agent export: --to {form}: it can be markdown, json or notebook.")
    runtime = context.runtime
    name = words[0] if words else runtime.session_id
    if not name:
        raise SessionError("There is no conversation yet, so there is nothing to export.")
    row = runtime.store.find_session(name)
    return export(row, runtime.store.messages(row.id), form)


def _model(context: Context, words: Words) -> str:
    if words:
        context.desk.settings["model"] = words[0]
        return f"The next cells use {words[0]}."
    return f"model {context.runtime.config.model or 'none set (NBAGENT_MODEL, or %agent model NAME)'}"


def _cost(context: Context, words: Words) -> str:
    runtime = context.runtime
    if not runtime.session_id:
        return "Nothing was spent: there is no conversation yet."
    total, cost, steps = Tokens(), 0.0, 0
    for message in runtime.messages():
        for part in message.parts:
            if isinstance(part, StepFinishPart):
                total, steps = total + part.tokens, steps + 1
                cost += part.cost or 0.0
    price = f", ${cost:.4f}" if cost else ", price unknown"
    cached = f" ({total.cache_read:,} of them from the cache)" if total.cache_read else ""
    return f"{counted(steps, 'model call')}: {total.input:,} tokens in{cached}, {total.output:,} out{price}"


def _plans(context: Context, words: Words) -> str:
    runtime = context.runtime
    plans = runtime.resources.plans
    if words and words[0] in ("show", "diff"):
        if len(words) < 2:
            raise ConfigError(f"%agent plans {words[0]}: which one? %agent plans lists them.")
        plan = plans.named(words[1])
        text = plan.text()
        if text is None:
            raise PersonError(f"There is no plan at {plan.shown}.")
        return text if words[0] == "show" else _plan_diff(plan.path, text)
    rows = plans.listed()
    if not rows:
        return "No plans in this project yet."
    lines = [f"{row.status:<9} {_shown(runtime, row.path)}" for row in rows]
    return "\n".join([*lines, "%agent plans show FILE · %agent plans diff FILE (to the version before)"])


def _plan_diff(path: Path, text: str) -> str:
    kept = sorted((path.parent / ".history").glob(f"{path.stem}*"), key=lambda p: p.stat().st_mtime)
    if not kept:
        return "There is no version before this one."
    before = kept[-1].read_text(encoding="utf-8", errors="replace")
    lines = difflib.unified_diff(before.splitlines(), text.splitlines(), kept[-1].name, path.name, lineterm="")
    return "\n".join(lines) or "The version before is the same."


def _doctor(context: Context, words: Words) -> str:
    from nbagent.doctor import examine

    checks = [check.line() for check in examine(context.runtime, ask_server="--offline" not in words)]
    return "\n".join([*checks, *kernel_lines(context.shell, context.link)])


def kernel_lines(shell: Any, link: Any) -> list[str]:
    """What this kernel and its front end can do, and by which way an ask will reach the person."""
    kernel = getattr(shell, "kernel", None)
    lines = [f"      kernel                 {sys.executable}"]
    lines += [f"      {name:<22} {_version(name)}" for name in ("ipython", "ipykernel", "ipywidgets", "anywidget")]
    why = view.missing()
    pages = link.pages() if link is not None else []
    lines.append(f"      live view              {'text: ' + why if why else 'widget'}")
    lines.append(
        f"      JupyterLab extension   {'connected' if pages else 'not connected: everything works without it'}"
    )
    there = place.attended(shell)
    forced = place.forced()
    if forced:
        lines.append(
            f"      NBAGENT_HEADLESS       {forced}: {'a person is there' if there else 'nobody is there'}, it says"
        )
    lines.append(f"      standard input         {_input_words(kernel, there)}")
    lines.append(f"      questions come as      {_rung(kernel, there, bool(why), bool(pages))}")
    return lines


def _input_words(kernel: Any, there: bool) -> str:
    if kernel is not None and there and not place.standard_input(kernel):
        return "no: asks are answered with buttons only"
    return "yes" if there else "no: nobody is there to answer"


def _rung(kernel: Any, there: bool, no_widget: bool, linked: bool) -> str:
    if not there:
        return "refusals: nobody is there"
    if kernel is None:
        return "text prompts: this is a terminal"
    if linked:
        return "buttons, over the extension's own link and the widget's"
    if no_widget:
        return "text prompts: no widget can be shown"
    parts = tuple(int(part) for part in _version("ipykernel").split(".")[:2] if part.isdigit())
    if parts < (7, 0):
        return "text prompts after 3 s: this ipykernel hears no click while a cell runs"
    if parts < (7, 4):
        return "buttons where the front end uses subshells (JupyterLab does), else text prompts after 3 s"
    return "buttons, else text prompts after 3 s"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _help(context: Context, words: Words) -> str:
    return help_text()


def help_text() -> str:
    """All commands, and how to begin."""
    width = max(len(f"{command.name} {command.usage}".strip()) for command in COMMANDS.values())
    rows = [
        f"  %agent {(command.name + ' ' + command.usage).strip():<{width}}  {command.help}"
        for command in COMMANDS.values()
    ]
    first = [
        "%%plan   think: read everything the rules allow, write one plan, ask for approval",
        "%%build  act: carry out the text below, or (empty) the approved plan",
        "         %%plan --help and %%build --help list their options; @file, @variable and @cell:ID attach things",
        "",
    ]
    return "\n".join([*first, *rows])


_AGENTS = ("plan", "build", "explore", "general")

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command("status", "", "root, model, session, plans", _status),
        Command(
            "why", "[--agent A] [--all] PERMISSION [PATTERN]", "which rule decides, and why", _why, ("--agent", "--all")
        ),
        Command(
            "rules", "[AGENT] | revoke N", "the rules in force, your remembered replies", _rules, (*_AGENTS, "revoke")
        ),
        Command(
            "explain", "[BACK] [--whole]", "a finished cell step by step, as the model saw it", _explain, ("--whole",)
        ),
        Command(
            "tools",
            "[AGENT …]",
            "tools: visible, deferred, hidden and why; plan and build side by side",
            _tools,
            _AGENTS,
        ),
        Command("sessions", "", "the conversations of this project", _sessions),
        Command("new", "", "begin a new conversation", _new),
        Command("fork", "[ID] [at MESSAGE]", "go on in a copy of a conversation", _fork),
        Command("archive", "ID", "take a conversation out of the list", _archive),
        Command("undo", "", "put files back as they were before the last build cell", _undo),
        Command("redo", "", "and forward again", _redo),
        Command("resume", "[ID]", "go on with what was interrupted, or with session ID", lambda context, words: ""),
        Command("compact", "", "summarise the conversation now", lambda context, words: ""),
        Command("pending", "", "show what waits for an answer, here", lambda context, words: ""),
        Command("plans", "[show|diff FILE]", "the plans and where each stands", _plans, ("show", "diff")),
        Command("export", "[ID] [--to markdown|json|notebook]", "a conversation as text", _export, ("--to",)),
        Command("model", "[NAME]", "show or choose the model", _model),
        Command("cost", "", "tokens and money of this conversation", _cost),
        Command("doctor", "[--offline]", "what works here, shown by trying", _doctor, ("--offline",)),
        Command("help", "", "this", _help),
    )
}


def find_command(name: str, words: Words | None = None) -> Command:
    """Raises ``ConfigError`` (one line) for a command that does not exist, and for ``words`` behind one that takes none: whoever
    writes ``%agent undo a.py`` means that file, and not all of them."""
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(COMMANDS)}."
        raise ConfigError(f"%agent: there is no command {name}. {hint}")
    if words and not command.usage and command.work is not _help:
        raise ConfigError(
            f"%agent {name}: it takes nothing behind it, and {' '.join(words)!r} is there. Nothing was done."
        )
    return command
