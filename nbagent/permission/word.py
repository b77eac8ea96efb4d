"""Words of a shell line, made plain: quotes and escapes off, braces and known variables expanded, the rest marked unknown."""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

BARE, QUOTED, VALUE, UNKNOWN, PIPE = range(5)
"""Where a character came from: the line itself, quotes, an unquoted variable; or a piece that cannot be told, or a pipe's name."""

Token = tuple[str, int]
Tokens = tuple[Token, ...]
Lookup = Callable[[str], "tuple[str, ...] | None"]

MANY = 256
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Field:
    """One argument as the command will get it.

    ``text``: its value, with unknown pieces as they are written. ``known``: nothing in it is unknown. ``pattern``: for a
    word with wildcards, what they match against (quoted parts escaped), else "". ``shown``: how it stands in the plain command.
    ``pipe``: the name of a process substitution, not of a file.
    """

    text: str
    known: bool = True
    pattern: str = ""
    shown: str = ""
    pipe: bool = False


class Words:
    """Turns syntax nodes into fields. ``source``: the line in UTF-8; ``lookup``: the possible values of a variable, or None.

    ``posix``: the line is for a shell that need not know braces and ``$'…'``; what they become is unknown then."""

    def __init__(self, source: bytes, lookup: Lookup, posix: bool = False) -> None:
        self._source = source
        self._lookup = lookup
        self._posix = posix

    def raw(self, node: Any) -> str:
        """The text of a node as written."""
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def fields(self, nodes: Sequence[Any]) -> list[Field]:
        """The fields of one word, given as nodes that touch each other; braces and variables may make several, or none."""
        raw = self._source[nodes[0].start_byte : nodes[-1].end_byte].decode("utf-8", "replace").strip()
        versions: list[Tokens] = [()]
        for at, node in enumerate(nodes):
            if not node.is_named and self.raw(node) == "$" and at + 1 < len(nodes):
                continue  # $"…", a translated string
            versions = _joined(versions, self._tokens(node))
        if len(versions) > MANY:
            return [Field(raw, known=False, shown=raw)]
        found: list[Field] = []
        for version in versions:
            expanded = _braces(version)
            if self._posix and len(expanded) > 1:
                return [Field(raw, known=False, shown=raw)]
            for tokens in expanded:
                found.extend(_field(part) for part in _split(self._tilde(tokens)))
        if len(versions) > 1:
            found = [_shown(each, raw if at == 0 else "") for at, each in enumerate(found)]
        return found if len(found) <= MANY else [Field(raw, known=False, shown=raw)]

    def _tokens(self, node: Any) -> list[Tokens]:
        kind = node.type
        if kind in ("word", "number", "brace_expression", "variable_name", "test_operator", "regex", "heredoc_start"):
            return [tuple(_bare(self.raw(node)))]
        if kind == "concatenation":
            return self._touching(node)
        if kind == "string":
            return self._string(node)
        if kind == "raw_string":
            return [tuple((c, QUOTED) for c in self.raw(node)[1:-1]) or (("", QUOTED),)]
        if self._posix and kind in ("ansi_c_string", "translated_string"):
            return [((self.raw(node), UNKNOWN),)]
        if kind == "ansi_c_string":
            return [tuple((c, QUOTED) for c in ansi(self.raw(node)[2:-1])) or (("", QUOTED),)]
        if kind == "translated_string":
            return self._string(node.children[-1])
        if kind in ("simple_expansion", "expansion"):
            return self._variable(node, VALUE)
        if kind == "process_substitution":
            return [((self.raw(node), PIPE),)]
        if not node.is_named:
            return [tuple(_bare(self.raw(node)))]
        return [((self.raw(node), UNKNOWN),)]

    def _touching(self, node: Any) -> list[Tokens]:
        versions: list[Tokens] = [()]
        children = node.children
        for at, child in enumerate(children):
            dollar = not child.is_named and self.raw(child) == "$"
            if dollar and at + 1 < len(children) and children[at + 1].type == "string":
                continue
            versions = _joined(versions, self._tokens(child))
        return versions

    def _string(self, node: Any) -> list[Tokens]:
        versions: list[Tokens] = [(("", QUOTED),)]
        at = node.start_byte + 1
        for child in node.children:
            if not child.is_named or child.type == "string_content":
                continue
            versions = _joined(versions, [tuple(_double(self._between(at, child.start_byte)))])
            raw = self.raw(child)
            lead = raw[: len(raw) - len(raw.lstrip())]
            versions = _joined(versions, [tuple((c, QUOTED) for c in lead)])
            if child.type in ("simple_expansion", "expansion"):
                versions = _joined(versions, self._variable(child, QUOTED))
            else:
                versions = _joined(versions, [((raw.strip(), UNKNOWN),)])
            at = child.end_byte
        return _joined(versions, [tuple(_double(self._between(at, node.end_byte - 1)))])

    def _between(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")

    def _variable(self, node: Any, kind: int) -> list[Tokens]:
        raw = self.raw(node).strip()
        name = re.fullmatch(r"\$(\w+|[@*])|\$\{(\w+)\}", raw)
        values = self._lookup(name[1] or name[2]) if name else None
        if values is None:
            return [((raw, UNKNOWN),)]
        empty: Tokens = (("", QUOTED),) if kind == QUOTED else ()
        return [tuple((c, kind) for c in value) or empty for value in values]

    def _tilde(self, tokens: Tokens) -> Tokens:
        if not tokens or tokens[0] != ("~", BARE):
            return tokens
        end = next((at for at, token in enumerate(tokens) if token[0] == "/" or token[1] != BARE), len(tokens))
        if end < len(tokens) and tokens[end][1] != BARE:
            return tokens if tokens[end][1] == QUOTED else ((_text(tokens), UNKNOWN),)
        values = self._lookup(_text(tokens[:end]))
        if values is None or len(values) != 1:
            return ((_text(tokens[:end]), UNKNOWN), *tokens[end:])
        return (*((c, QUOTED) for c in values[0]), *tokens[end:])


def _joined(left: list[Tokens], right: list[Tokens]) -> list[Tokens]:
    if len(left) * len(right) > MANY:
        return [((_text(left[0]) + _text(right[0]), UNKNOWN),)]
    return [one + other for one in left for other in right]


def _text(tokens: Sequence[Token]) -> str:
    return "".join(text for text, _ in tokens)


def _bare(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            if text[at + 1] != "\n":
                yield text[at + 1], QUOTED
            at += 2
        else:
            yield text[at], BARE
            at += 1


def _double(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in '$`"\\\n':
            if text[at + 1] != "\n":
                yield text[at + 1], QUOTED
            at += 2
        else:
            yield text[at], QUOTED
            at += 1


def ansi(text: str) -> str:
    """The value of what stands inside ``$'…'``."""

    def one(found: re.Match[str]) -> str:
        octal, hexadecimal, wide, control, plain = found.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if hexadecimal or wide:
            number = int(hexadecimal or wide, 16)
            return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
        if control:
            return chr(ord(control.upper()) & 0x1F)
        return _ESCAPES.get(plain, plain if plain in "\\'\"?" else "\\" + plain)

    form = r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|[uU]([0-9a-fA-F]{1,8})|c(.)|(.))"
    return re.sub(form, one, text, flags=re.DOTALL).partition("\0")[0]


def _braces(tokens: Tokens) -> list[Tokens]:
    """The words that ``a{b,c}d`` and ``{1..3}`` stand for, in order; what would be too many becomes one unknown."""
    found = _brace(tokens)
    if found is None:
        return [tokens]
    start, parts, rest = found
    made: list[Tokens] = []
    for part in parts:
        for middle in _braces(part):
            for end in _braces(rest):
                made.append(start + middle + end)
                if len(made) > MANY:
                    return [((_text(tokens), UNKNOWN),)]
    return made


def _brace(tokens: Tokens) -> tuple[Tokens, list[Tokens], Tokens] | None:
    for at, token in enumerate(tokens):
        if token != ("{", BARE) or (at and tokens[at - 1] == ("$", BARE)):
            continue
        depth, commas = 0, [at]
        for end in range(at, len(tokens)):
            if tokens[end] == ("{", BARE):
                depth += 1
            elif tokens[end] == ("}", BARE):
                depth -= 1
            elif tokens[end] == (",", BARE) and depth == 1:
                commas.append(end)
            if depth == 0:
                parts = [tokens[one + 1 : other] for one, other in itertools.pairwise([*commas, end])]
                parts = parts if len(parts) > 1 else _sequence(tokens[at + 1 : end])
                if parts:
                    return tokens[:at], parts, tokens[end + 1 :]
                break
    return None


def _sequence(tokens: Tokens) -> list[Tokens]:
    text = _text(tokens)
    found = re.fullmatch(
        r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?|([a-zA-Z])\.\.([a-zA-Z])(?:\.\.(-?\d{1,9}))?", text
    )
    if not found or any(kind != BARE for _, kind in tokens):
        return []
    letters = found[4] is not None
    first, last = (ord(found[4]), ord(found[5])) if letters else (int(found[1]), int(found[2]))
    step = abs(int(found[3] or found[6] or 1)) or 1
    if abs(last - first) // step > MANY:
        return [((text, UNKNOWN),), ((text, UNKNOWN),)]
    width = max(map(len, (found[1], found[2]))) if not letters and re.search(r"(^|\.)-?0\d", text) else 0
    numbers = range(first, last + (1 if last >= first else -1), step if last >= first else -step)
    return [tuple((c, QUOTED) for c in (chr(n) if letters else str(n).zfill(width))) for n in numbers]


def _split(tokens: Tokens) -> list[Tokens]:
    """The words that white space in unquoted values makes; a word of nothing but empty values is none."""
    parts: list[list[Token]] = [[]]
    for text, kind in tokens:
        if kind == VALUE and text in " \t\n":
            parts.append([])
        else:
            parts[-1].append((text, kind))
    return [tuple(part) for part in parts if part]


def _field(tokens: Tokens) -> Field:
    text = _text(tokens)
    kinds = {kind for _, kind in tokens}
    open_text = "".join(c for c, kind in tokens if kind in (BARE, VALUE))
    wild = re.search(r"[*?]|\[.+\]", open_text) is not None
    pattern = "".join(c if kind in (BARE, VALUE) else glob.escape(c) for c, kind in tokens) if wild else ""
    return Field(text, UNKNOWN not in kinds, pattern, text, PIPE in kinds)


def _shown(field: Field, shown: str) -> Field:
    return Field(field.text, field.known, field.pattern, shown, field.pipe)
