"""What one simple command is: a builtin of the shell, a wrapper of another command, or a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.permission.command import has_odd_git_options, only_looks, split_git, touched
from nbagent.permission.known import STANDARD, base_name, is_powerful
from nbagent.permission.line import RESERVED
from nbagent.permission.state import State
from nbagent.permission.target import Simple, Targets
from nbagent.permission.word import Field
from nbagent.permission.wrapper import Inner, unwrap

NESTED = 12
"""Levels of ``bash -c``, ``eval``, function calls and the like that are followed."""

_CODE = re.compile(r"python[\d.]*|node|deno|bun|perl|ruby|php|lua|Rscript|julia|jq")


@dataclass(slots=True)
class Context:
    """Where a command stands.

    ``raw``: as written; ``shown``: its redirections; ``strong``: assignments that change what runs; ``others``/``aliases``:
    see ``Simple``; ``more``: it gets arguments that the line does not show; ``tree``: it runs on all that is in folders.
    """

    raw: str
    shown: list[str] = field(default_factory=list)
    strong: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    more: bool = False
    tree: bool = False


class Programs(Targets):
    """Decides what each command with its arguments does. The walk over the syntax tree is left to ``Scanner``."""

    def _line(self, line: bytes, state: State) -> None:
        """Walk over a line inside this one."""
        raise NotImplementedError

    def _visit(self, node: Any, state: State) -> None:
        raise NotImplementedError

    def _bare(self, shown: list[str]) -> None:
        for text in shown:
            self.commands.append(Simple(text, tuple(text.split())))

    def _positional(self, state: State, arguments: Sequence[Field] | None) -> State:
        for number in range(1, 10):
            given = arguments[number - 1] if arguments is not None and number <= len(arguments) else None
            state.values[str(number)] = (
                (given.text,) if given is not None and given.known and not given.pattern else None
            )
        everything = None if arguments is None else tuple(each.text for each in arguments)
        whole = everything if arguments and all(each.known and not each.pattern for each in arguments) else None
        state.values["@"] = state.values["*"] = whole
        return state

    def _run(self, fields: list[Field], state: State, context: Context) -> None:
        """Decide what one command with its arguments is: a builtin, a wrapper, or a program."""
        self._depth += 1
        try:
            if self._depth > NESTED * 2:
                self._fault = "the command is nested too deeply to be read"
                return
            self._run_one(fields, state, context)
        finally:
            self._depth -= 1

    def _run_one(self, fields: list[Field], state: State, context: Context) -> None:
        name = fields[0]
        if not name.known or name.pattern or name.pipe:
            self.opaque.append(f"which command {name.text} is")
            self._record(fields, state, context)
            self._arguments(fields, state)
            return
        if name.text == "!" and len(fields) > 1:
            self._run(fields[1:], state, context)
            return
        if name.text in RESERVED and name.text not in ("time", "coproc"):
            self.opaque.append(f"what {name.text} stands for here")
        if name.text in state.functions and self._depth < NESTED:
            body, source = state.functions[name.text]
            outer, self._source = self._source, source
            before = state.functions.pop(name.text)
            self._visit(body, self._positional(state, fields[1:]))
            state.functions[name.text] = before
            self._source = outer
            self._bare(context.shown)
            return
        builtin: Callable[[list[Field], State], bool] | None = getattr(self, f"_do_{name.text}", None)
        if name.text == ".":
            builtin = self._do_source
        if builtin is not None and builtin(fields, state):
            self._bare(context.shown)
            return
        inner = unwrap(fields)
        if inner is None:
            self._program(fields, state, context)
        else:
            self._wrapped(fields, inner, state, context)

    def _wrapped(self, fields: list[Field], inner: Inner, state: State, context: Context) -> None:
        for each in inner.writes:
            self._write(each, state, False)
        for each in inner.reads:
            self._read(each, state, False)
        if inner.script is not None or inner.words or inner.fault:
            self.unknown.append(f"{base_name(fields[0].text)} runs another command")
        outer = _plain(fields)
        if inner.script is not None:
            self._script(inner.script, state, base_name(fields[0].text))
            self._bare(context.shown)
            if not inner.plain and base_name(fields[0].text) in ("sudo", "su", "flock"):
                self._record(fields, state, context)
            return
        if inner.fault or not inner.words:
            if inner.fault and "script" not in inner.fault:
                self.opaque.append(inner.fault)
            self._record(fields, state, context, looks=not inner.fault and only_looks(fields))
            return
        if inner.folder is not None:
            state = self._stand(inner.folder, state.copy())
        elif base_name(fields[0].text) not in ("command", "builtin", "time", "exec"):
            state = state.copy()
        words = list(inner.words)
        if inner.more:
            words = [replace(each, known=each.known and "{}" not in each.text) for each in words]
        strong = [each.text for each in inner.assignments if is_powerful(each.text.partition("=")[0].rstrip("+"))]
        deeper = Context(
            context.raw,
            context.shown,
            context.strong + strong,
            context.others + ([] if inner.plain else [outer]),
            context.aliases + ([outer] if inner.plain else []),
            context.more or inner.more,
            context.tree,
        )
        self._run(words, state, deeper)

    def _script(self, script: Field, state: State, name: str) -> None:
        if not script.known:
            self.opaque.append(f"what {name} is given to run")
            return
        inner = state.copy()
        inner.posix = name not in ("bash", "zsh", "eval", "trap", "alias", "env")
        self._line(script.text.encode("utf-8", "replace"), inner)

    def _program(self, fields: list[Field], state: State, context: Context) -> None:
        name = base_name(fields[0].text)
        if name == "git":
            own, rest, folders = split_git(fields[1:])
            for folder in folders:
                self._read(folder, state, False)
                state = self._stand(folder, state.copy())
            self.repositories += [None] if state.folders is None else state.folders
            spelled, fields = fields, [fields[0], *rest]
            bucket = context.others if has_odd_git_options(own) else context.aliases
            bucket += [_plain(spelled)] if own else []
            self._record(fields, state, context, looks=only_looks(spelled), spelled=spelled)
        else:
            self._record(fields, state, context)
        given = [*fields, Field("…", known=False)] if context.more else fields
        touch = touched(given)
        for word, tree in touch.writes:
            self._operand_write(word, state, tree or context.tree)
        named = {word.text for word, _ in touch.writes}
        for word, tree in touch.reads:
            if word.text not in named:
                self._read(word, state, tree or context.tree)
        if touch.unknown:
            self.hidden.append(f"{_plain(fields[:2])} ({touch.unknown})")
        if touch.opaque:
            self.opaque.append(touch.opaque)
        if name == "find":
            self._find(fields, state, context)
        self._notice_notebooks(name, fields)

    def _notice_notebooks(self, name: str, fields: list[Field]) -> None:
        if _CODE.fullmatch(name) and any(".ipynb" in each.text for each in fields[1:]):
            code = any(each.text.startswith(("-c", "-e", "-p")) for each in fields[1:])
            if code:
                self.notebooks.append(name)
                self.notes.append(f"{name} code that names a notebook file: this bypasses the notebook editor.")

    def _find(self, fields: list[Field], state: State, context: Context) -> None:
        """Commands of ``-exec`` run on whatever is found: ``{}`` stands for anything below the folders that find starts from."""
        outer, self._only = self._only, _name_asked(fields)
        starts = _until_option(fields[1:]) or [Field(".")]
        at = 0
        while at < len(fields):
            if fields[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
                end = next((e for e in range(at + 1, len(fields)) if fields[e].text in (";", "+")), len(fields))
                self.unknown.append("find runs another command")
                for start in starts:
                    words = [_with_found(each, start) for each in fields[at + 1 : end]]
                    if words:
                        self._run(words, state.copy(), Context(context.raw, tree=True))
                at = end
            at += 1
        self._only = outer

    def _record(
        self,
        fields: list[Field],
        state: State,
        context: Context,
        looks: bool | None = None,
        spelled: list[Field] | None = None,
    ) -> None:
        name = fields[0].text
        plain = _plain([replace(fields[0], text=base_name(name), shown=base_name(name)), *fields[1:]])
        suffix = "".join(f" {each}" for each in context.shown)
        others = [*context.others]
        raw = context.raw.strip()
        aliases = [*context.aliases, *([raw] if raw else []), *([plain] if suffix else [])]
        if "/" in name:
            (aliases if name.startswith(STANDARD) else others).append(_plain(fields) + suffix)
            if not name.startswith(STANDARD):
                self._read(fields[0], state, False)
        if context.strong:
            others.append(" ".join([*context.strong, plain + suffix]))
        exact = all(each.known and each.text and not set(each.text) & set(" \t\n'\"\\$`;|&<>") for each in fields)
        proven = only_looks(fields) if looks is None else looks
        self.commands.append(
            Simple(
                plain + suffix,
                tuple(each.text for each in spelled or fields),
                tuple(dict.fromkeys(others)),
                tuple(dict.fromkeys(aliases)),
                exact,
                proven and not context.strong and not context.others and not suffix and not context.more,
            )
        )

    def _arguments(self, fields: list[Field], state: State) -> None:
        for each in fields[1:]:
            if not each.text.startswith("-"):
                self._read(each, state, False)

    # Builtins: True when nothing more is to be said.

    def _do_cd(self, fields: list[Field], state: State) -> bool:
        words = [each for each in fields[1:] if each.text not in ("-P", "-L", "-e", "-@", "--")]
        self._record(fields, state, Context(""))
        if "CDPATH" in state.values or "CDPATH" in self._environment:
            state.folders = None
            return True
        target = words[0] if words else Field(str(self._home))
        if target.text != "-":
            self._read(target, state, False, True)
        self._stand(target, state)
        return True

    def _do_pushd(self, fields: list[Field], state: State) -> bool:
        state.stack = (*state.stack, state.folders)
        return self._do_cd(fields, state)

    def _do_popd(self, fields: list[Field], state: State) -> bool:
        self._record(fields, state, Context(""))
        state.folders = state.stack[-1] if state.stack and len(fields) == 1 else None
        state.stack = state.stack[:-1]
        return True

    def _do_eval(self, fields: list[Field], state: State) -> bool:
        self.unknown.append("eval runs another command")
        if not all(each.known and not each.pattern and not each.pipe for each in fields[1:]):
            self.opaque.append("what eval is given to run")
            state.lost, state.folders = True, None
            self._record(fields, state, Context(_plain(fields)))
            return True
        self._line(" ".join(each.text for each in fields[1:]).encode("utf-8", "replace"), state)
        return True

    def _do_trap(self, fields: list[Field], state: State) -> bool:
        self._record(fields, state, Context(_plain(fields)))
        given = fields[2:] if len(fields) > 1 and fields[1].text == "--" else fields[1:]
        if len(given) > 1 and given[0].text not in ("-", "", "-p", "-l"):
            self.unknown.append("trap runs another command")
            self._script(given[0], state, "trap")
        return True

    def _do_source(self, fields: list[Field], state: State) -> bool:
        self.unknown.append("source runs a file")
        self._record(fields, state, Context(_plain(fields)))
        self._arguments(fields, state)
        state.lost = True
        return True

    def _do_alias(self, fields: list[Field], state: State) -> bool:
        self.unknown.append("alias changes what words mean")
        for each in fields[1:]:
            _, equals, value = each.text.partition("=")
            if equals:
                self._script(replace(each, text=value), state, "alias")
        self._record(fields, state, Context(_plain(fields)))
        return True

    def _do_shopt(self, fields: list[Field], state: State) -> bool:
        state.odd = True
        self.unknown.append("changes how the shell reads words")
        return False

    _do_set = _do_shopt

    def _do_hash(self, fields: list[Field], state: State) -> bool:
        if any(each.text.startswith("-") and "p" in each.text for each in fields[1:]):
            self.opaque.append("which program a word stands for")
        return False

    _do_enable = _do_hash

    def _do_read(self, fields: list[Field], state: State) -> bool:
        for each in fields[1:]:
            state.values[each.text] = None
        self.unknown.append("sets a variable")
        return False

    _do_mapfile = _do_readarray = _do_getopts = _do_let = _do_unset = _do_read
    _do_export = _do_declare = _do_typeset = _do_local = _do_readonly = _do_read

    def _do_printf(self, fields: list[Field], state: State) -> bool:
        if len(fields) > 2 and fields[1].text == "-v":
            state.values[fields[2].text] = None
        return False


def _until_option(words: Sequence[Field]) -> list[Field]:
    """The folders that find starts from."""
    end = next(
        (at for at, each in enumerate(words) if each.text.startswith("-") or each.text in ("(", "!")), len(words)
    )
    return list(words[:end])


def _name_asked(words: Sequence[Field]) -> str:
    """The one ``-name`` that all that find finds must have; "" when it cannot be said so simply."""
    texts = [each.text for each in words]
    odd = {"-o", "-or", "!", "-not", ",", "-iname", "("} & set(texts)
    at = texts.index("-name") + 1 if texts.count("-name") == 1 and not odd else 0
    return texts[at] if 0 < at < len(words) and words[at].known else ""


def _with_found(word: Field, start: Field) -> Field:
    if "{}" not in word.text:
        return word
    return replace(
        word, text=word.text.replace("{}", start.text), known=word.known and start.known and not start.pattern
    )


def _plain(fields: Sequence[Field]) -> str:
    return " ".join(each.shown for each in fields if each.shown or not each.text)
