"""Rules and the engine that reads them: **the last matching rule wins**."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from nbagent.errors import ConfigError
from nbagent.permission.wildcard import FOLD, covers, first, match

Action = Literal["allow", "ask", "deny"]
Layer = Literal["", "defaults", "agent", "user", "project", "session", "floor"]

ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")
PATHS = frozenset(["read", "edit", "list", "glob", "grep", "external_directory"])
"""Permissions whose patterns are paths."""

_SHARED = {
    "write": "edit",
    "apply_patch": "edit",
    "notebook_edit": "edit",
    "notebook_read": "read",
    "list_mcp_resources": "read",
    "list_mcp_resource_templates": "read",
    "read_mcp_resource": "read",
    "todowrite": "todo",
    "todoread": "todo",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of policy. ``layer`` tells where it came from and takes no part in equality."""

    permission: str
    pattern: str
    action: Action
    layer: Layer = field(default="", compare=False)

    def to_json(self) -> dict[str, str]:
        """The rule as JSON: permission, pattern, action, layer."""
        return {"permission": self.permission, "pattern": self.pattern, "action": self.action, "layer": self.layer}

    def __str__(self) -> str:
        origin = f" ({self.layer})" if self.layer else ""
        return f"{self.permission} {self.pattern}: {self.action}{origin}"


Ruleset = tuple[Rule, ...]


PERMISSIONS = (
    "edit",
    "read",
    "bash",
    "python",
    "inspect",
    "list",
    "glob",
    "grep",
    "task",
    "todo",
    "question",
    "plan_enter",
    "plan_exit",
    "webfetch",
    "skill",
    "tool_search",
    "external_directory",
    "doom_loop",
)
"""Every permission there is, but for those of MCP servers (``mcp_…``)."""


def named(ruleset: Iterable[Rule], source: str = "") -> tuple[Ruleset, list[str]]:
    """The rules under the names by which things are decided, and a remark for each name that is not one.

    A tool's name (``write``) is read as its permission (``edit``). An unknown name under which something would be allowed
    is remarked; one under which something would be denied or asked raises ``ConfigError``: it would have no effect,
    which is the wrong way for a denial to fail.
    """
    rules: list[Rule] = []
    remarks: dict[str, None] = {}
    for rule in ruleset:
        shared = permission_of(rule.permission)
        if shared != rule.permission:
            remarks[f"{source}: permission {rule.permission!r} is read as {shared!r}, which decides it"] = None
            rules.append(replace(rule, permission=shared))
            continue
        text = unknown_permission(rule.permission)
        if text and rule.action != "allow":
            raise ConfigError(f"{source}: permission: {text}")
        if text:
            remarks[f"{source}: permission: {text}"] = None
        rules.append(rule)
    return tuple(rules), list(remarks)


def unknown_permission(name: str) -> str:
    """What to say of a permission name that nothing is decided by, "" for one that is."""
    if name in PERMISSIONS or name.startswith("mcp_"):
        return ""
    if ("*" in name or "?" in name) and any(match(each, name) for each in PERMISSIONS):
        return ""
    shared = sorted({other for tool, other in _SHARED.items() if match(tool, name)})
    near = shared or difflib.get_close_matches(name.lower(), (*PERMISSIONS, *_SHARED), 2)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"there is no permission {name!r}{hint} Permissions: {', '.join(PERMISSIONS)}, mcp_*."


def permission_of(tool: str) -> str:
    """The permission that a tool's calls are decided by; several tools share one."""
    return _SHARED.get(tool, tool)


def from_config(mapping: Mapping[str, Any], *, layer: Layer = "", source: str = "", home: str | None = None) -> Ruleset:
    """Rules of a settings mapping, in the order written.

    ``permission = action`` is one rule for ``*``; ``permission = {pattern = action}`` one rule a key. ``~`` and ``$HOME`` at the
    start of a pattern are the home folder; path patterns lose ``./``, doubled slashes and inner ``..``, and a trailing slash
    means all that is in the folder. Raises ``ConfigError`` that names ``source``, the key and the allowed values.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{_where(source)}permission must be a table of rules, not {mapping!r}.")
    found = str(Path.home()) if home is None else home
    rules: list[Rule] = []
    for permission, value in mapping.items():
        if isinstance(value, Mapping):
            for pattern, action in value.items():
                key = f'permission.{permission}."{pattern}"'
                rules.append(
                    Rule(permission, _written(permission, pattern, found), _action(action, key, source), layer)
                )
        else:
            rules.append(Rule(permission, "*", _action(value, f"permission.{permission}", source), layer))
    return tuple(rules)


def _where(source: str) -> str:
    return f"{source}: " if source else ""


def _action(value: Any, key: str, source: str) -> Action:
    for action in ACTIONS:
        if value == action:
            return action
    hint = ' or a table of patterns, such as { "src/*" = "allow" }' if key.count(".") == 1 else ""
    raise ConfigError(f'{_where(source)}{key} is {value!r}; it must be "allow", "ask" or "deny"{hint}.')


def _written(permission: str, pattern: str, home: str) -> str:
    for name in ("~", "$HOME"):
        if pattern == name or pattern.startswith((f"{name}/", f"{name}\\")):
            pattern = home + pattern[len(name) :].replace("\\", "/")
    return tidy(pattern) if permission in PATHS else pattern


def tidy(pattern: str) -> str:
    """A path pattern as real paths are written: no ``./``, ``//`` or inner ``..``; a trailing slash becomes ``/*``."""
    if pattern.startswith("=") or not pattern:
        return pattern
    path = pattern.replace("\\", "/")
    start = "/" if path.startswith("/") else ""
    names: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == ".." and names and names[-1] != ".." and "**" not in names[-1]:
            names.pop()
        elif name != ".." or not start:
            names.append(name)
    if path.endswith("/") and names:
        names.append("*")
    return start + "/".join(names) or ("*" if path.endswith("./") else ".")


def merge(*rulesets: Sequence[Rule]) -> Ruleset:
    """All rules one after another. Order is policy."""
    return tuple(rule for ruleset in rulesets for rule in ruleset)


def _is_bare(pattern: str) -> bool:
    return bool(pattern) and pattern[0] != "=" and not set(" *?/\\") & set(pattern)


def _meant(permission: str, pattern: str) -> str:
    """For ``bash`` a bare word (``git``) covers that command with any arguments; a file's exact name is compared as ``_named`` has it."""
    if permission == "bash" and _is_bare(pattern):
        return f"{pattern} *"
    return _named(permission, pattern) if pattern.startswith("=") else pattern


_BACKSLASH = "\uf05c"
"""Stands for a backslash in the name of a file, where that is a character like any other: for a wildcard it is a slash."""


def _named(permission: str, resource: str) -> str:
    """``src\\a.py`` is a file of that name and none in ``src``, but on Windows."""
    return resource.replace("\\", _BACKSLASH) if "\\" in resource and permission in PATHS and not FOLD else resource


def matches(rule: Rule, permission: str, pattern: str) -> bool:
    """Whether a rule speaks about this resource."""
    return match(permission, rule.permission) and match(_named(permission, pattern), _meant(permission, rule.pattern))


class _Decisions(dict[str, Rule]):
    """Pattern → the rule that decides it, for one permission; what was not asked yet is found and kept."""

    __slots__ = ("first", "permission", "rules")
    LIMIT = 20_000

    def __init__(self, permission: str, ruleset: Ruleset) -> None:
        speaking = [rule for rule in reversed(ruleset) if match(permission, rule.permission)]
        self.permission = permission
        self.first = first(tuple(_meant(permission, rule.pattern) for rule in speaking))
        self.rules = (*speaking, Rule(permission, "*", "ask"))

    def __missing__(self, pattern: str) -> Rule:
        if len(self) >= self.LIMIT:
            self.clear()
        named = _named(self.permission, pattern) if "\\" in pattern else pattern
        rule = self[pattern] = self.rules[self.first(named)]
        return rule


class _Engine(dict[str, _Decisions]):
    """A ruleset made ready: permission → what is decided about it."""

    __slots__ = ("ruleset", "sources")
    LIMIT = 1_000

    def __init__(self, sources: tuple[Sequence[Rule], ...]) -> None:
        self.sources = sources  # held, so that no other object gets these ids
        self.ruleset = merge(*sources)

    def __missing__(self, permission: str) -> _Decisions:
        if len(self) >= self.LIMIT:
            self.clear()
        decisions = self[permission] = _Decisions(permission, self.ruleset)
        return decisions


_engines: dict[Any, _Engine] = {}
_ENGINES = 128


def _engine(sources: tuple[Sequence[Rule], ...]) -> _Engine:
    if not all(type(source) is tuple for source in sources):  # a list may change under us
        return _Engine(sources)
    key = id(sources[0]) if len(sources) == 1 else tuple(map(id, sources))
    engine = _engines.get(key)
    if engine is None:
        if len(_engines) >= _ENGINES:
            _engines.clear()
        engine = _engines[key] = _Engine(sources)
    return engine


def evaluate(permission: str, pattern: str, *rulesets: Sequence[Rule]) -> Rule:
    """The rule that decides. Nothing matches → a made-up ``Rule(permission, "*", "ask")`` with layer ""."""
    engine = _engines.get(id(rulesets[0])) if len(rulesets) == 1 else None
    if engine is None:
        engine = _engine(rulesets)
    return engine[permission][pattern]


def disabled(tools: Sequence[str], ruleset: Sequence[Rule]) -> list[str]:
    """Names of tools that are never offered: the last rule about their permission is a deny for ``*``."""
    hidden = []
    for tool in tools:
        permission = permission_of(tool)
        last = next((rule for rule in reversed(ruleset) if match(permission, rule.permission)), None)
        if last is not None and last.pattern == "*" and last.action == "deny":
            hidden.append(tool)
    return hidden


@dataclass(frozen=True, slots=True)
class Shadow:
    """A rule that can never win: ``by`` comes later and matches whatever it matches. ``at`` counts from 0."""

    at: int
    rule: Rule
    by: Rule

    def __str__(self) -> str:
        return f"rule {self.at + 1} ({self.rule}) never applies: the later rule {self.by} matches everything it does"


def shadowed(ruleset: Sequence[Rule]) -> list[Shadow]:
    """Rules that can be taken away without changing any decision. Sound, not complete."""
    found = []
    for at, rule in enumerate(ruleset):
        by = next((later for later in ruleset[at + 1 :] if _outdoes(later, rule)), None)
        if by is not None:
            found.append(Shadow(at, rule, by))
    return found


def _outdoes(later: Rule, rule: Rule) -> bool:
    if not covers(later.permission, rule.permission):
        return False
    # Bare words mean more when they are asked about for bash, so a rule that may be asked about so is looked at both ways.
    modes = ["bash"] if rule.permission == "bash" else ["bash", ""] if match("bash", rule.permission) else [""]
    return all(covers(_meant(mode, later.pattern), _meant(mode, rule.pattern)) for mode in modes)


def check(ruleset: Iterable[Rule], source: str = "") -> None:
    """Raise ``ConfigError`` for a deny on paths that no path can match: it would fail open without a word."""
    faults = [(rule, fault) for rule in ruleset if rule.action == "deny" and (fault := _matches_nothing(rule))]
    if faults:
        told = "; ".join(f'permission.{rule.permission}."{rule.pattern}" {fault}' for rule, fault in faults)
        raise ConfigError(f"{_where(source)}a deny that can match nothing would let everything through: {told}.")


def _matches_nothing(rule: Rule) -> str:
    if rule.permission not in PATHS:
        return ""
    pattern = rule.pattern.removeprefix("=").replace("\\", "/")
    if not pattern:
        return "is empty; write a path such as src/*"
    if pattern.endswith("/"):
        return f"ends in a slash; write {pattern}*"
    names = pattern.split("/")
    if ".." in names or "." in names[:-1] or (len(names) > 1 and names[-1] == ".") or "" in names[1:]:
        return (
            "has . , .. or // in it, and real paths have none; write the path from the project root, or an absolute one"
        )
    if pattern.startswith("~") and len(names) > 1:
        return "starts with ~ and a name; write the absolute path"
    if rule.permission == "external_directory" and names[0] and not _can_be_absolute(pattern):
        return "is relative, and paths outside the project are absolute"
    return ""


def _can_be_absolute(pattern: str) -> bool:
    return pattern[0] in "*?" or pattern[1:2] in (":", "*", "?")


def lint(ruleset: Sequence[Rule]) -> list[str]:
    """Warnings about rules that people wrote: those that never apply, and bash rules that cover more words than they seem to."""
    mine = tuple(rule for rule in ruleset if rule.layer in ("", "user", "project", "session"))
    told = [str(shadow) for shadow in shadowed(mine)]
    told += [warning for rule in mine if (warning := _too_wide(rule))]
    return told


_ALSO = {
    "ls": "lsof and lsblk",
    "git": "gitk and git-shell",
    "rm": "rmdir and rmmod",
    "cp": "cpio",
    "go": "gofmt and google-chrome",
}


def _too_wide(rule: Rule) -> str:
    word = rule.pattern[:-1]
    if rule.permission != "bash" or not rule.pattern.endswith("*") or not _is_bare(word):
        return ""
    other = _ALSO.get(word, f"any command whose name starts with {word}")
    return f'bash "{rule.pattern}" also matches {other}; write "{word} *" for {word} alone'


__all__ = [
    "ACTIONS",
    "FOLD",
    "PATHS",
    "Action",
    "Layer",
    "Rule",
    "Ruleset",
    "Shadow",
    "check",
    "disabled",
    "evaluate",
    "from_config",
    "lint",
    "matches",
    "merge",
    "permission_of",
    "shadowed",
    "tidy",
    "unknown_permission",
]
