"""The options of the magics: read from the front of the first line; what follows is the prompt, word for word.

A prompt is prose (``don't``), so it is never taken apart like a shell's line; only options and their values are.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

from nbagent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``value``: a word for its value in the help, "" for a flag."""

    name: str
    help: str
    value: str = ""
    short: str = ""

    @property
    def key(self) -> str:
        return self.name.lstrip("-").replace("-", "_")


_SHARED = (
    Option("--model", "the model's name", "M"),
    Option("--new", "begin a new conversation"),
    Option("--root", "the project root (default: the folder that the kernel was in when nbagent was loaded)", "DIR"),
    Option("--vars", "put variables in: {name} in the prompt becomes the value"),
    Option("--dry", "show what the cell would send, and send nothing"),
    Option("--output", "put the result (text, plan, files, tokens) into this variable", "NAME", "-o"),
    Option("--cassette", "play model answers from a file; demo is the bundled one", "FILE"),
    Option("--cassette-answers", "the person's answers in the cassette count"),
    Option("--cassette-lenient", "play on where the cassette does not fit"),
    Option("--record", "record the model's answers into a cassette", "FILE"),
    Option("--max-steps", "model calls at most", "N"),
    Option("--help", "show this"),
)

PLAN = (
    Option("--quick", "a short plan without subagents"),
    Option("--plan", "the plan file to write (a .md inside the project)", "FILE"),
    *_SHARED,
)
BUILD = (
    Option("--auto", "approve edits and confined commands inside the project by itself"),
    Option("--plan", "the approved plan to carry out (with an empty body: the newest approved one)", "FILE"),
    Option("--approve-headless", "where nobody is there to ask: approve the plan as it is now"),
    *_SHARED,
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Options that were given (flags as True) and the rest of the line."""

    given: dict[str, Any] = field(default_factory=dict)
    rest: str = ""

    def text(self, key: str) -> str:
        return str(self.given.get(key, ""))

    def flag(self, key: str) -> bool:
        return bool(self.given.get(key))


def parse(line: str, options: tuple[Option, ...], magic: str) -> Parsed:
    """Raises ``ConfigError`` (one line) for an option that does not exist or lacks its value."""
    known = {name: option for option in options for name in (option.name, option.short) if name}
    given: dict[str, Any] = {}
    rest = line.strip()
    while rest.startswith("-") and len(rest) > 1 and not rest[1].isspace():
        word, after = _word(rest)
        if word == "--":
            rest = after
            break
        name, equals, value = word.partition("=")
        option = known.get(name)
        if option is None:
            raise ConfigError(_unknown(name, known, magic))
        if not option.value:
            if equals:
                raise ConfigError(f"{magic}: {name} takes no value.")
            given[option.key] = True
        else:
            if not equals:
                value, after = _word(after)
            if not value:
                raise ConfigError(f"{magic}: {name} needs a value: {name} {option.value}")
            given[option.key] = value
        rest = after
    return Parsed(given, rest)


def _unknown(name: str, known: dict[str, Option], magic: str) -> str:
    if name.lstrip("-").replace("_", "-") in ("api-key", "key", "token", "apikey"):
        return f"{magic}: a key is never given on the magic's line, it would stay in the notebook. Set OPENAI_API_KEY instead."
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean {near[0]}?" if near else f" Options: {', '.join(n for n in known if n.startswith('--'))}."
    return f"{magic}: there is no option {name}.{hint}"


def _word(text: str) -> tuple[str, str]:
    """The first word, its quotes taken off, and what follows."""
    text = text.lstrip()
    head = text.partition("=")[0] if text.startswith("--") else ""
    quoted = text[len(head) + 1 :] if head and not any(c.isspace() for c in head) and len(head) < len(text) else ""
    if quoted[:1] in ("'", '"'):
        value, after = _quoted(quoted)
        return f"{head}={value}", after
    if text[:1] in ("'", '"'):
        return _quoted(text)
    word = text.split(None, 1)[0] if text else ""
    return word, text[len(word) :].lstrip()


def _quoted(text: str) -> tuple[str, str]:
    end = text.find(text[0], 1)
    if end < 0:
        raise ConfigError(f"A quote is not closed: {text[:40]}")
    return text[1:end], text[end + 1 :].lstrip()


def usage(magic: str, what: str, options: tuple[Option, ...]) -> str:
    """The help of a magic."""
    rows = []
    for option in options:
        names = ", ".join(name for name in (option.short, option.name) if name)
        rows.append((f"{names} {option.value}".strip(), option.help))
    width = max(len(names) for names, _ in rows)
    return "\n".join(
        [what, "", f"Options (before the prompt, on the line of {magic}):", *(f"  {n:<{width}}  {h}" for n, h in rows)]
    )
