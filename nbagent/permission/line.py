"""A second, much smaller reader of shell lines, to agree with the first before anything is called proven."""

from __future__ import annotations

import re

_RESERVED_WORDS = "if then elif else fi for while until do done case esac select function time coproc in { } ! [[ ]]"
RESERVED = frozenset(_RESERVED_WORDS.split())
_HARMLESS = re.compile(r"(?:[12]?>&[12]|(?:[12]|&)?>>? ?/dev/null)(?=[\s;|&]|$)")
_JOIN = re.compile(r"&&|\|\||[;|\n]")
_DOUBLE = re.compile(r'"((?:[^"\\$`!]|\\[^"\\$`!\n])*)"')
# A ~ inside a word and the braces of HEAD@{1} mean nothing to the shell.
_PLAIN = re.compile(r"(?:[\w./,:@%+=*?\[\]^-]|(?<=[\w}^])~|(?<=@)\{\w+\})+", re.ASCII)


def plain_commands(line: str) -> list[list[str]] | None:
    """The words of each simple command; None for any line with more in it than words, quotes, pipes, lists and streams.

    No expansion, substitution, grouping, assignment, comment, here-document, background job or file redirection is known here.
    """
    commands: list[list[str]] = [[]]
    at = 0
    while at < len(line):
        if line[at] in " \t":
            at += 1
        elif found := _HARMLESS.match(line, at):
            at = found.end()
        elif found := _JOIN.match(line, at):
            commands.append([])
            at = found.end()
        else:
            word = _word(line, at)
            if word is None or (not commands[-1] and (word[0] in RESERVED or "=" in word[0])):
                return None
            commands[-1].append(word[0])
            at = word[1]
    return [words for words in commands if words]


def _word(line: str, at: int) -> tuple[str, int] | None:
    text, start = "", at
    while at < len(line) and line[at] not in " \t\n;|&":
        if line[at] == "'":
            end = line.find("'", at + 1)
            if end < 0:
                return None
            text, at = text + line[at + 1 : end], end + 1
        elif line[at] == '"':
            quoted = _DOUBLE.match(line, at)
            if quoted is None:
                return None
            text, at = text + quoted[1], quoted.end()
        elif found := _PLAIN.match(line, at):
            if found.end() < len(line) and line[found.end()] in "<>" and found[0].isdigit():
                return None
            text, at = text + found[0], found.end()
        elif line[at] == "\\" and line[at + 1 : at + 2] not in ("", "\n"):
            text, at = text + line[at + 1], at + 2
        else:
            return None
    return (text, at) if at > start else None
