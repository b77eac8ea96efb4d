"""The walk over a parsed command line that ``shell.scan`` makes: statement by statement, as the shell would."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nbagent.permission.known import is_powerful
from nbagent.permission.program import NESTED, Context, Programs
from nbagent.permission.state import State
from nbagent.permission.syntax import joined, parse
from nbagent.permission.word import Field, Words

_LEAST = frozenset(["comment", "heredoc_start", "heredoc_end", "file_descriptor"])
_BRANCHES = frozenset(["if_statement", "case_statement", "elif_clause", "else_clause", "case_item"])
_WORDS = frozenset(
    [
        "word",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "concatenation",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
        "number",
        "brace_expression",
        "extglob_pattern",
        "regex",
        "array",
        "test_operator",
    ]
)
_STATEMENTS = frozenset(["command", "pipeline", "list", "subshell", "redirected_statement", "compound_statement"])
SEPARATE = 8
"""So many commands that a loop makes of one are decided by their own text."""
CHOICES = 256
"""So many combinations of the values of variables are looked at; of more, none is known."""
_LOOPS = frozenset(["while_statement", "c_style_for_statement"])
_ARITHMETIC = re.compile(r"\(\(|\blet\b|\[\[|\bdeclare\b|\btypeset\b|\bexport\b|\bunset\b|\bread\b|-v\b|\$\[")


class Scanner(Programs):
    """Collects what a line does. ``read`` it, then look at the lists."""

    def read(self, line: bytes) -> str:
        """Walk over a whole line; a sentence says why it (or a line inside it) could not be parsed, else ""."""
        self._line(line, self._start)
        text = line.decode("utf-8", "replace")
        if _ARITHMETIC.search(text) and re.search(r"['\\][^']*(\$\(|`)", text):
            self.opaque.append("arithmetic over quoted text may run commands")
        return self._fault

    def _line(self, line: bytes, state: State) -> None:
        whole = joined(line)
        tree = "a word goes on in the next line" if whole is None else parse(whole)
        line = whole or line
        if isinstance(tree, str):
            self._fault = self._fault or tree
            return
        outer, self._source = self._source, line
        self._depth += 1
        if self._depth > NESTED:
            self._fault = "the command is nested too deeply to be read"
        else:
            self._sequence(tree.children, state)
        self._depth -= 1
        self._source = outer

    def _sequence(self, nodes: Sequence[Any], state: State) -> None:
        for at, node in enumerate(nodes):
            background = at + 1 < len(nodes) and nodes[at + 1].type == "&"
            self._visit(node, state.copy() if background else state)
            state.settle()

    def _visit(self, node: Any, state: State) -> None:
        if not node.is_named or node.type in _LEAST:
            return
        special: Callable[[Any, State], None] | None = getattr(self, f"_on_{node.type}", None)
        if special is not None:
            special(node, state)
        elif node.type in _BRANCHES:
            before = state.copy()
            self._sequence(node.children, state)
            state.merge(before)
        elif node.type in _LOOPS:
            self._loop(node, state)
        else:
            self._sequence(node.children, state)

    def _loop(self, node: Any, state: State) -> None:
        before = state.copy()
        self._sequence(node.children, state)
        if state.forget(before):
            self._sequence(node.children, state)
        state.merge(before)

    def _on_list(self, node: Any, state: State) -> None:
        for other in self._chain(node, [], state):
            state.merge(other)

    def _chain(self, node: Any, redirects: list[Any], state: State) -> list[State]:
        """``a && b``: what follows in the chain stands where ``b`` left off; the other outcomes count only after it."""
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        if left.type == "list" and operator == left.children[1].type == "&&":
            others = self._chain(left, [], state)
        else:
            others = []
            self._visit(left, state)
        if operator != "&&":
            state.settle()
        elif state.fallback is not None:
            others.append(replace(state.copy(), folders=state.fallback, fallback=None))
            state.fallback = None
        others.append(state.copy())
        if redirects:
            self._redirected(right, redirects, state)
        else:
            self._visit(right, state)
        return others

    def _on_pipeline(self, node: Any, state: State) -> None:
        for child in node.children:
            self._visit(child, state.copy())

    def _on_subshell(self, node: Any, state: State) -> None:
        self._sequence(node.children, state.copy())

    _on_command_substitution = _on_subshell
    _on_process_substitution = _on_subshell

    def _on_for_statement(self, node: Any, state: State) -> None:
        name = next(child for child in node.children if child.type == "variable_name")
        words = node.children[node.children.index(name) + 1 :]
        values: list[str] | None = []
        for child in words:
            if child.type == "do_group" or child.type == "compound_statement":
                break
            if child.is_named:
                self._nested(child, state)
                values = self._values(child, state, values)
        state.values[self._raw(name)] = tuple(values) if values else None
        self._loop(node.children[-1], state)

    def _values(self, node: Any, state: State, values: list[str] | None) -> list[str] | None:
        for word in self._words(state).fields([node]):
            if values is None or not word.known or word.pipe:
                return None
            names = [word.text]
            if word.pattern:
                # What the line wrote before may be among the names by then.
                unsure = state.odd or self.writes or self.hidden
                expanded = None if unsure else self._finder.names(word, state.folders)
                if expanded is None:
                    return None
                names = expanded
            values += names
            if len(values) > 200:
                return None
        return values

    def _on_function_definition(self, node: Any, state: State) -> None:
        name = next(child for child in node.children if child.type == "word")
        body = next(child for child in reversed(node.children) if not child.type.endswith("_redirect"))
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        if redirects:
            self._redirected(None, redirects, state)
        state.functions[self._raw(name)] = (body, self._source)
        self.unknown.append("defines a function")
        self._visit(body, self._positional(state.copy(), None))

    def _on_redirected_statement(self, node: Any, state: State) -> None:
        body = node.children[0] if not node.children[0].type.endswith("_redirect") else None
        self._redirected(body, [child for child in node.children if child.type.endswith("_redirect")], state)

    def _redirected(self, body: Any, redirects: list[Any], state: State) -> None:
        """A statement with its redirections. The grammar hangs them on a whole list or pipe; they belong to its last command."""
        if body is not None and body.type == "list":
            for other in self._chain(body, redirects, state):
                state.merge(other)
            return
        if body is not None and body.type == "pipeline":
            for child in body.children[:-1]:
                self._visit(child, state.copy())
            self._redirected(body.children[-1], redirects, state.copy())
            return
        if body is not None and body.type == "negated_command":
            self._redirected(body.children[-1], redirects, state)
            return
        extra: list[Any] = []
        shown: list[str] = []
        rest: list[Any] = []
        for redirect in redirects:
            self._redirect(redirect, state, extra, shown, rest)
        if body is not None and body.type == "command":
            before = state.copy()
            self._command(body, state, extra, shown)
            state.doubt(before)
        else:
            if extra:
                self._fault = self._fault or "arguments after a redirection could not be placed"
            self._bare(shown)
            if body is not None:
                before = state.copy()
                self._visit(body, state)
                state.doubt(before)
        self._after_here(rest, state)

    def _after_here(self, rest: list[Any], state: State) -> None:
        """What follows a ``<<`` in its line. The grammar takes ``| a && b`` for a pipe into ``a && b``; only ``a`` is in the pipe."""
        for node in rest:
            pipe = node.children if node.type == "pipeline" else ()
            for child in pipe[:-1]:
                self._visit(child, state.copy())
            chain = [pipe[-1] if pipe else node]
            while chain[0].type == "list":
                chain[:1] = [chain[0].children[0], chain[0].children[-1]]
            for place, child in enumerate(chain):
                before = state.copy()
                self._visit(child, state.copy() if pipe and place == 0 else state)
                state.settle()
                state.merge(before)  # it may not have run

    def _ends_alone(self, node: Any) -> bool:
        """Whether the word that ends a here-document is all of its line (but for tabs before it, after ``<<-``)."""
        end = next((child for child in node.children if child.type == "heredoc_end"), None)
        if end is None:
            return True
        before = self._source[: end.start_byte].rpartition(b"\n")[2]
        if any(child.type == "<<-" for child in node.children):
            before = before.lstrip(b"\t")
        return not before and self._source[end.end_byte : end.end_byte + 1] in (b"", b"\n")

    def _redirect(self, node: Any, state: State, extra: list[Any], shown: list[str], rest: list[Any]) -> None:
        """One redirection: its target, words that belong to the command (``extra``), its plain form, what follows a ``<<``."""
        if node.type == "heredoc_redirect":
            raw = {child.type: self._raw(child) for child in node.children}
            if not set("'\"\\") & set(raw.get("heredoc_start", "'")) and any(
                self._hides_command(child) for child in node.children if child.type == "heredoc_body"
            ):
                self.opaque.append("a substitution in a here-document")  # the grammar takes it for text
            if not self._ends_alone(node):
                self.opaque.append(
                    "a here-document with its end in a line of more"
                )  # the grammar ends it there, the shell goes on
            if not _goes_on_in_its_line(node):
                self.opaque.append(
                    "a here-document whose line goes on below"
                )  # the grammar goes on with the text, the shell after it
            for child in node.children:
                if child.type == "heredoc_body":
                    self._nested(child, state)
                elif child.type.endswith("_redirect"):
                    self._redirect(child, state, extra, shown, rest)
                elif child.type in _WORDS:
                    extra.append(child)
                elif child.is_named and child.type not in _LEAST:
                    rest.append(child)
            return
        self._nested(node, state)
        if node.type != "file_redirect":
            return
        operator = "".join(
            self._source[child.start_byte : child.end_byte].decode() for child in node.children if not child.is_named
        )
        words = [child for child in node.children if child.is_named and child.type != "file_descriptor"]
        if not words:
            return
        groups = _touching(words)
        for group in groups[1:]:
            extra.extend(group)
        fields = self._words(state).fields(groups[0])
        copies = operator in (">&", "<&") and len(fields) == 1 and re.fullmatch(r"\d+-?|-", fields[0].text)
        if copies or not operator:
            return
        for each in fields:
            if ">" in operator:
                if self._write(each, state, False):
                    shown.append(f"{'>>' if '>>' in operator else '>'} {each.text}")
            elif not each.pipe:
                self._read(each, state, False, True)

    def _on_command(self, node: Any, state: State) -> None:
        self._command(node, state, [], [])

    def _command(self, node: Any, state: State, extra: list[Any], shown: list[str]) -> None:
        nodes: list[Any] = []
        assignments: list[Any] = []
        rest: list[Any] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assignments.append(child)
            elif child.type.endswith("_redirect"):
                self._redirect(child, state, extra, shown, rest)
            elif child.is_named and child.type not in _WORDS and child.type != "command_name":
                rest.append(child)
            else:
                nodes.extend(child.children if child.type == "command_name" else [child])
        for each in (*nodes, *extra):
            self._nested(each, state)
        groups = [*_touching(nodes), *_touching(extra)]
        inner = state
        before = state.copy()  # FOO=1 cmd $FOO: the words are read first
        for assignment in assignments:
            inner = self._assign(assignment, inner, temporary=bool(groups))
        for child in rest:
            self._visit(child, state.copy())
        names = [self._raw(each) for each in assignments]
        strong = [each for each in names if is_powerful(re.split(r"\+?=|\[", each)[0])]
        if assignments:
            self.unknown.append("sets a variable")
        if not self._each(groups, before, state, Context(self._raw(node), shown, [*strong])):
            self._bare([*names, *shown])
            return
        if shown or any(child.type.endswith("_redirect") for child in node.children):
            state.doubt(before)

    def _each(self, groups: list[list[Any]], before: State, state: State, context: Context) -> bool:
        """Run a command; one that names variables with several possible values is several commands. False: it has no words.

        ``before``: where its words are read; ``state``: where it runs, and what it leaves behind.
        """
        choices = self._choices(groups, before)
        if not choices:
            fields = self._fields(groups, before)
            if fields:
                self._run(fields, state, context)
            return bool(fields)
        start, first, ends = state.copy(), len(self.commands), []
        last = first
        for choice in choices:
            inner = start.copy()
            fields = self._fields(groups, replace(before, values=before.values | choice))
            if fields:
                self._run(fields, inner, context)
            ends.append(inner)
            last = last if len(ends) > 1 else len(self.commands)
        if len(choices) > SEPARATE and first < last:
            others = dict.fromkeys(text for each in self.commands[last:] for text in (each.text, *each.others))
            alike = dict.fromkeys(text for each in self.commands[last:] for text in each.aliases)
            shown = self.commands[first]
            self.commands[first] = replace(shown, below=tuple(others), aliases=(*shown.aliases, *alike))
            del self.commands[last:]
        state.become(ends[0])
        for end in ends[1:]:
            state.merge(end)
        return True

    def _choices(self, groups: list[list[Any]], state: State) -> list[dict[str, tuple[str, ...] | None]]:
        """The possible values of the variables that these words name, one of each at a time; none when no choice is left."""
        raw = " ".join(self._raw(node) for group in groups for node in group)
        several = {
            name: values
            for name in dict.fromkeys(re.findall(r"\$\{?([A-Za-z_]\w*)", raw))
            if (values := state.values.get(name)) and len(values) > 1
        }
        if not several:
            return []
        if math.prod(map(len, several.values())) > CHOICES:
            return [dict.fromkeys(several)]
        return [
            dict(zip(several, [(each,) for each in combined], strict=True))
            for combined in itertools.product(*several.values())
        ]

    def _fields(self, groups: list[list[Any]], state: State) -> list[Field]:
        words = self._words(state)
        return [each for group in groups for each in words.fields(group)]

    def _assign(self, node: Any, state: State, temporary: bool) -> State:
        self._nested(node, state)
        name, _, _ = self._raw(node).partition("=")
        value = node.children[-1]
        plain = re.fullmatch(r"\w+", name) and len(node.children) > 2 and value.type != "array"
        found = self._words(state).fields([value]) if plain and value.is_named else [Field("")] if plain else []
        known = len(found) == 1 and found[0].known and not found[0].pipe
        given: tuple[str, ...] | None = (found[0].text,) if known else None
        if value.type == "string" and found and all(each.known for each in found):
            given = tuple(each.text for each in found)
        state.values[re.split(r"\+?$|\[", name)[0]] = None if temporary else given
        return state

    def _on_variable_assignment(self, node: Any, state: State) -> None:
        self._assign(node, state, temporary=False)
        self.unknown.append("sets a variable")
        self._bare([" ".join(self._raw(node).split())])

    def _on_declaration_command(self, node: Any, state: State) -> None:
        self._nested(node, state)
        for child in node.children:
            if child.type == "variable_assignment":
                self._assign(child, state, temporary=False)
            elif child.type in ("word", "variable_name", "concatenation", "simple_expansion", "string"):
                state.values[re.split(r"\+?=", self._raw(child).strip("\"'"))[0]] = None
        self.unknown.append("sets a variable")
        self._bare([" ".join(self._raw(node).split())])

    def _on_unset_command(self, node: Any, state: State) -> None:
        self._nested(node, state)
        for child in node.children:
            state.values[self._raw(child)] = None
        self.unknown.append("sets a variable")
        self._bare([" ".join(self._raw(node).split())])

    def _on_test_command(self, node: Any, state: State) -> None:
        if node.children[0].type == "[":
            self._test(node, state)
            return
        self._nested(node, state)
        self.unknown.append("a test that is not looked into")
        self._bare([" ".join(self._raw(node).split())])

    def _test(self, node: Any, state: State) -> None:
        """``[ … ]`` is a program like any other; the grammar takes it apart, so its words are put together again."""
        self._nested(node, state)
        leaves: list[Any] = []
        pending = list(reversed(node.children))
        while pending:
            each = pending.pop()
            if each.type.endswith("_expression") and each.children and each.type != "brace_expression":
                pending.extend(reversed(each.children))
            else:
                leaves.append(each)
        words = self._words(state)
        fields = [one for group in _touching(leaves) for one in words.fields(group)]
        self._run(fields, state, Context(self._raw(node)))

    def _on_compound_statement(self, node: Any, state: State) -> None:
        if node.children and node.children[0].type == "((":
            for child in node.children:
                self._nested(child, state)
            for name in re.findall(r"[A-Za-z_]\w*", self._raw(node)):
                state.values[name] = None
            self.unknown.append("arithmetic")
            self._bare([" ".join(self._raw(node).split())])
            return
        self._sequence(node.children, state)

    def _raw(self, node: Any) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _words(self, state: State) -> Words:
        return Words(self._source, lambda name: self._lookup(name, state), state.posix)

    def _nested(self, node: Any, state: State) -> None:
        """Commands in substitutions anywhere inside a node."""
        if node.type in ("command_substitution", "process_substitution"):
            self.unknown.append("a substitution")
        if node.type in _STATEMENTS or node.type in ("command_substitution", "process_substitution"):
            self._visit(node, state)
            return
        if node.type in ("expansion", "string") and self._hides_command(node):
            self.opaque.append("a substitution inside quotes or an expansion")  # the grammar takes it for text
        if node.type in ("arithmetic_expansion", "expansion"):
            name = re.match(r"\$\{(\w+):?=", self._raw(node).strip())
            for each in (
                [name[1]] if name else re.findall(r"([A-Za-z_]\w*)\s*(?:=|\+\+|--|[-+*/%&|^]=)", self._raw(node))
            ):
                state.values[each] = None
        for child in node.children:
            self._nested(child, state)

    def _hides_command(self, node: Any) -> bool:
        """Whether text here runs commands that the grammar does not show: backquotes in an expansion, what stands in single quotes
        between double ones, a substitution that is the first of a here-document after a space."""
        shown = sorted((each.start_byte, each.end_byte) for each in _substitutions(node))
        text, at = b"", node.start_byte
        for start, end in shown:
            text, at = text + self._source[at:start] + b" ", end
        text += self._source[at : node.end_byte]
        return bool(re.search(rb"(?<!\\)(?:\\\\)*(?:`|\$\()", text))


def _substitutions(node: Any) -> Iterator[Any]:
    if node.type in ("command_substitution", "process_substitution", "arithmetic_expansion"):
        yield node
        return
    for child in node.children:
        yield from _substitutions(child)


def _touching(nodes: Sequence[Any]) -> list[list[Any]]:
    """Words: nodes with nothing between them are one."""
    groups: list[list[Any]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _goes_on_in_its_line(node: Any) -> bool:
    """Whether what follows ``<<`` in its line ends there."""
    row = node.start_point[0]
    return all(child.end_point[0] == row for child in node.children if child.type not in _TEXT)


_TEXT = ("heredoc_body", "heredoc_end")
