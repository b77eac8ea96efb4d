"""Commands that run another one: ``env``, ``sudo``, ``xargs``, ``bash -c`` …"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nbagent.permission.known import base_name, is_assignment, is_powerful, is_shell, listed, tables
from nbagent.permission.options import is_option, options
from nbagent.permission.word import Field


@dataclass(frozen=True, slots=True)
class Inner:
    """What a wrapper runs. ``words``: the inner command (empty: none). ``script``: a whole line instead. ``more``: arguments
    that the line does not show are added. ``plain``: the wrapper changes nothing about what is decided. ``fault``: it could not
    be told. ``reads``: operands of the wrapper itself."""

    words: tuple[Field, ...] = ()
    assignments: tuple[Field, ...] = ()
    script: Field | None = None
    more: bool = False
    plain: bool = False
    folder: Field | None = None
    writes: tuple[Field, ...] = ()
    reads: tuple[Field, ...] = ()
    fault: str = ""


def unwrap(words: Sequence[Field]) -> Inner | None:
    """What the command runs when it is a wrapper (``env``, ``xargs``, ``sudo``, ``bash -c`` …); None when it is none."""
    name = base_name(words[0].text)
    if is_shell(name):
        return _unwrap_shell(words[1:])
    if name == "su":
        given = options(words[1:], frozenset(["-c", "--command", "-s", "-g", "-G"])).values(
            frozenset(["-c", "--command"])
        )
        return Inner(script=given[0]) if given else Inner(fault="su starts a shell")
    if name == "find":
        return None
    runner = listed("runner", name)
    if runner and len(words) > 2 and words[1].text in runner:
        return _unwrap_runner(words[2:])
    known = tables()["wrapper"].get(name)
    return None if known is None else _unwrap(name, known, words[1:])


def _unwrap_shell(arguments: Sequence[Field]) -> Inner:
    rest = list(arguments)
    while rest and rest[0].text.startswith(("-", "+")) and rest[0].text not in ("-", "--"):
        word = rest.pop(0)
        if not word.text.startswith("--") and "c" in word.text[1:]:
            rest = [each for at, each in enumerate(rest) if at or not each.text.startswith("-")]
            return Inner(script=rest[0]) if rest else Inner(fault="no command after -c")
        if word.text in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") and rest:
            rest.pop(0)
    if not rest or rest[0].text == "-":
        return Inner(fault="runs a shell that reads its commands from its input")
    return Inner(fault="runs a script", reads=tuple(rest))


def _unwrap_runner(arguments: Sequence[Field]) -> Inner:
    rest = list(arguments)
    while rest and rest[0].text.startswith("-"):
        word = rest.pop(0)
        if word.text in (
            "-n",
            "--name",
            "-p",
            "--prefix",
            "--with",
            "--extra",
            "--python",
            "-e",
            "--environment",
            "--package",
        ):
            rest = rest[1:]
    return Inner(words=tuple(rest))


def _unwrap(name: str, known: dict[str, Any], arguments: Sequence[Field]) -> Inner:
    values = frozenset(known.get("values", "").split())
    script, folder = frozenset(known.get("script", "").split()), frozenset(known.get("folder", "").split())
    writes: list[Field] = []
    where: Field | None = None
    rest = list(arguments)
    while rest and rest[0].text.startswith("-") and (rest[0].text != "-" or known.get("dash")):
        word = rest.pop(0)
        if word.text == "--":
            break
        if word.text == "-":
            continue
        if name == "command" and set(word.text[1:]) & set("vV"):
            return Inner(plain=True)
        sorted_out = options([word, *rest[:1]], values | script)
        option, value = sorted_out.named[-1]
        if rest and value is rest[0]:
            rest.pop(0)
        if is_option(option, script):
            return Inner(script=_line([*([value] if value else []), *rest]))
        if is_option(option, folder):
            where = value
        if value is not None and is_option(option, frozenset(known.get("write", "").split())):
            writes.append(value)
        if name in ("sudo", "doas") and option in ("-s", "-i", "--shell", "--login", "-e", "--edit"):
            return Inner(fault="starts a shell or an editor")
    assignments: list[Field] = []
    while known.get("assign") and rest and is_assignment(rest[0].text):
        assignments.append(rest.pop(0))
    if known.get("whole"):
        return Inner(script=_line(rest)) if rest else Inner()
    reads = rest[: known.get("skip", 0)]
    inner = rest[known.get("skip", 0) :]
    if inner and is_option(inner[0].text, script):
        return Inner(script=_line(inner[1:]), reads=tuple(reads))
    fault = "the wrapped command cannot be told" if inner and not inner[0].known else ""
    plain = bool(known.get("plain")) and not any(
        is_powerful(each.text.partition("=")[0].rstrip("+")) for each in assignments
    )
    return Inner(
        tuple(inner), tuple(assignments), None, bool(known.get("more")), plain, where, tuple(writes),
        tuple(reads) if name in ("flock", "chroot") else (), fault,
    )  # fmt: skip


def _line(words: Sequence[Field]) -> Field:
    return Field(" ".join(each.text for each in words), all(each.known for each in words))
