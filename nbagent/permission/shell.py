"""A command line, read: which simple commands it runs, what they write and read, and what cannot be told.

``scan`` parses with tree-sitter-bash and decides nothing; ``Scan.needs`` is what the gate decides, and the strictest part wins.
Reading a line explains and asks; what holds a confined command is the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nbagent.permission.arity import arity_prefix
from nbagent.permission.ask import Need
from nbagent.permission.command import may_find_options
from nbagent.permission.known import never_widens
from nbagent.permission.line import plain_commands
from nbagent.permission.path import OUTSIDE
from nbagent.permission.scanner import Scanner
from nbagent.permission.target import Simple, Target
from nbagent.permission.wildcard import exactly
from nbagent.root import Root

READABLE = frozenset(["sh", "bash", "dash", "zsh", "ksh"])
_UNSAFE = set(" \t\n'\"\\$`;|&<>()*?[]{}~#!")


@dataclass(frozen=True, slots=True)
class Scan:
    """What a line does, as far as it can be told.

    ``fault``: why the line could not be parsed ("" when it could). ``opaque``: what is run but cannot be seen (``eval "$x"``).
    ``hidden``: commands that write what the line does not name. ``unknown``: all else that is not understood.
    ``read_only``: proven to change nothing. ``notes``: warnings for the person. ``repositories``: folders where git runs, None for
    one that is not known.
    """

    command: str
    commands: tuple[Simple, ...] = ()
    writes: tuple[Target, ...] = ()
    reads: tuple[Target, ...] = ()
    fault: str = ""
    opaque: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    read_only: bool = False
    notes: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = field(default=())
    repositories: tuple[Path | None, ...] = ()

    @property
    def verdict(self) -> Literal["read_only", "write", "unknown"]:
        """``read_only`` is proven; ``write`` names what it writes; anything else is ``unknown``."""
        if self.read_only:
            return "read_only"
        told = not (self.fault or self.opaque or self.hidden or self.unknown) and all(
            each.place for each in self.writes
        )
        return "write" if self.writes and told else "unknown"

    @property
    def unproven(self) -> str:
        """Why the line is not proven to change nothing, as the end of a sentence; "" when it is."""
        if self.read_only:
            return ""
        if self.fault:
            return self.fault
        if self.writes:
            return f"it writes {', '.join(dict.fromkeys(each.text for each in self.writes))}"
        reasons = (*self.hidden, *self.opaque, *self.unknown)
        if reasons:
            return "; ".join(reasons)
        odd = [each.text for each in self.commands if not each.looks]
        wild = [each.text for each in self.commands if not each.looks and may_find_options(each.words)]
        if wild:
            return (
                f"{wild[0]} may get the name of a file as an option or as what it writes (name the files, or write ./*)"
            )
        return f"{odd[0]} is not on the list of commands that only look" if odd else "more than plain words is in it"

    @property
    def effects(self) -> tuple[str, ...]:
        """Keys by which a refused effect is known again."""
        writes = [f"write:{each.place.pattern}" for each in self.writes if each.place]
        reads = [f"read:{each.place.pattern}" for each in self.reads if each.place]
        return tuple(dict.fromkeys([f"command:{' '.join(self.command.split())}", *writes, *reads]))

    def needs(self, confined: bool = False) -> tuple[Need, ...]:
        """What the gate has to decide. ``confined``: the command runs behind the sandbox's wall, so that what cannot be told
        about reading is left to the wall."""
        needs = [*self._outside(confined), *self._edits(), *self._reading(confined), *self._bash(confined)]
        return tuple(need for need in needs if need.patterns)

    def _outside(self, confined: bool) -> list[Need]:
        known = [each.place.pattern for each in (*self.writes, *self.reads) if each.place and each.place.outside]
        patterns = tuple(dict.fromkeys(known))
        folder = patterns[0].rpartition("/")[0] if patterns else ""
        needs = [Need(OUTSIDE, patterns, tuple(map(exactly, patterns)), f"{folder}/*" if folder else "")]
        lost = () if confined else self.reads
        texts = tuple(dict.fromkeys(each.text for each in (*self.writes, *lost) if each.place is None))
        return [*needs, Need(OUTSIDE, texts, unresolved=True)]

    def _edits(self) -> list[Need]:
        known = dict.fromkeys(each.place.pattern for each in self.writes if each.place)
        plain = tuple(pattern for pattern in known if not pattern.endswith(".ipynb"))
        notebooks = tuple(pattern for pattern in known if pattern.endswith(".ipynb"))
        below = tuple(dict.fromkeys(pattern for each in self.writes for pattern in each.below))
        lost = tuple(dict.fromkeys([each.text for each in self.writes if each.place is None] + list(self.hidden)))
        return [
            Need("edit", plain, tuple(map(exactly, plain)), below=below),
            Need("edit", notebooks, least="ask", below=() if plain else below),
            Need("edit", lost, unresolved=True),
        ]

    def _reading(self, confined: bool) -> list[Need]:
        patterns = tuple(dict.fromkeys(each.place.pattern for each in self.reads if each.place))
        below = tuple(dict.fromkeys(pattern for each in self.reads for pattern in each.below))
        lost = () if confined else tuple(dict.fromkeys(each.text for each in self.reads if each.place is None))
        return [
            Need("read", patterns, tuple(map(exactly, patterns)), below=below),
            Need("read", lost, unresolved=True),
        ]

    def _bash(self, confined: bool) -> list[Need]:
        whole = (" ".join(self.command.split()), self.command)
        if self.fault:
            return [Need("bash", (self.command,), least="ask", aliases=whole)]
        alone = len(self.commands) == 1
        needs = [
            Need(
                "bash",
                (each.text, *each.others),
                (_remembered(each), *map(_pattern, each.others)),
                _wider(each) if alone and not each.others else "",
                aliases=tuple(dict.fromkeys([*each.aliases, *whole])),
                below=each.below,
                once=not each.exact and never_widens(each.words),
            )
            for each in dict.fromkeys(self.commands)
        ]
        if (self.opaque and not confined) or not needs or self.notebooks:
            needs.append(Need("bash", (self.command.strip(),), least="ask", aliases=whole))
        return needs


def _pattern(text: str) -> str:
    """A pattern for exactly this command: a bare word in a rule would cover any arguments."""
    return f"={text}" if re.fullmatch(r"[^\s=/*?\\]+", text) else exactly(text)


def _remembered(simple: Simple) -> str:
    if not simple.exact and never_widens(simple.words):
        return ""
    return _pattern(simple.text)


def _wider(simple: Simple) -> str:
    prefix = arity_prefix(simple.words)
    odd = any(set(word) & _UNSAFE for word in prefix)
    return "" if odd or never_widens(simple.words) or " > " in simple.text else f"{' '.join(prefix)} *"


def scan(
    command: str,
    *,
    root: Root,
    cwd: Path | None = None,
    home: Path | None = None,
    environment: Mapping[str, str] | None = None,
    shell: str = "bash",
    temp: Path | None = None,
) -> Scan:
    """Read a line. ``cwd``: where it will run (the root when None); ``environment``: of the process that will run it;
    ``temp``: a folder of its own where writing is nobody's business. Never raises for a bad line: see ``Scan.fault``."""
    if Path(shell).name.removesuffix(".exe") not in READABLE:
        return Scan(command, fault=f"{shell} is not a shell whose commands can be read")
    try:
        line = command.encode()
    except UnicodeEncodeError:
        return Scan(command, fault="the command is not valid UTF-8")
    scanner = Scanner(
        root, root.path if cwd is None else cwd, root.home if home is None else home, environment or {}, temp
    )
    try:
        fault = scanner.read(line)
    except RecursionError:
        fault = "the command is nested too deeply to be read"
    if fault:
        return Scan(command, fault=fault, writes=tuple(scanner.writes), notes=(f"Not understood: {fault}.",))
    return Scan(
        command,
        commands=tuple(scanner.commands),
        writes=tuple(dict.fromkeys(scanner.writes)),
        reads=tuple(dict.fromkeys(scanner.reads)),
        opaque=tuple(dict.fromkeys(scanner.opaque)),
        hidden=tuple(dict.fromkeys(scanner.hidden)),
        unknown=tuple(dict.fromkeys(scanner.unknown)),
        read_only=_is_proven(command, scanner.commands, scanner),
        notes=tuple(dict.fromkeys(scanner.notes)),
        notebooks=tuple(dict.fromkeys(scanner.notebooks)),
        repositories=tuple(dict.fromkeys(scanner.repositories)),
    )


def _is_proven(command: str, commands: list[Simple], scanner: Scanner) -> bool:
    """Every command is on the list, nothing is unknown, and a second reading of the line finds the same words."""
    if not commands or scanner.writes or scanner.opaque or scanner.hidden or scanner.unknown:
        return False
    again = plain_commands(command)
    return (
        again is not None and all(each.looks for each in commands) and again == [list(each.words) for each in commands]
    )
