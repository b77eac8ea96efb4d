"""What is known of commands by their name alone; the data is in ``commands.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

STANDARD = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_POWERFUL = re.compile(
    r"(PATH|IFS|ENV|SHELL|SHELLOPTS|BASHOPTS|BASH_ENV|CDPATH|HOME|PROMPT_COMMAND|PS4|EDITOR|VISUAL|BROWSER|JAVA_TOOL_OPTIONS|"
    r"NODE_OPTIONS|RUSTC_WRAPPER|(LD|DYLD|GIT|PYTHON|PERL|RUBY|NODE|BASH_FUNC|LESS|TAR|RIPGREP|GREP|PIP|NPM|UV|SSH)_?\w*|\w*PAGER)",
    re.ASCII,
)


@cache
def tables() -> dict[str, Any]:
    return tomllib.loads(files("nbagent.permission").joinpath("commands.toml").read_text(encoding="utf-8"))


@cache
def listed(table: str, key: str) -> frozenset[str]:
    found = tables()[table].get(key, "")
    return frozenset(found.split()) if isinstance(found, str) else frozenset()


def base_name(word: str) -> str:
    """The name of a program: ``rm`` of ``/bin/rm``."""
    return word.rpartition("/")[2]


def never_widens(words: Sequence[str]) -> bool:
    """Whether "always" for this command may only ever remember exactly what was shown."""
    if not words:
        return True
    name = base_name(words[0])
    return name in listed("narrow", "words") or bool(set(words[1:]) & listed("narrow", name))


def is_assignment(word: str) -> bool:
    """Whether a word before a command sets a variable."""
    return _ASSIGNMENT.match(word) is not None


def is_powerful(name: str) -> bool:
    """Whether a variable changes which program runs or what it loads."""
    return _POWERFUL.fullmatch(name) is not None


def is_text(name: str) -> bool:
    """Whether the arguments of a command are text rather than paths."""
    return name in listed("text", "words")


def is_shell(name: str) -> bool:
    return name in listed("shell", "words")
