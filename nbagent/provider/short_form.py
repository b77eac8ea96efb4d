"""The short form of a cassette, for teachers: a lesson in which the model says and does what is written here.

::

    cassette: written by hand
    model: a model that misbehaves

    plan                                   the agent that answers, alone on a line
      prompt: Find out why                 words of the person's prompt (optional; * stands for anything)
      say: I look around first.
      call: list {"path": "."}
      expect: completed                    about the call above it
      ---                                  the next model request
      say:
        Several lines,
        indented.
      call: write
        filePath: {plan}
        content:
          # Plan
          1. Mend `recall`.
      call: plan_exit
      person: approve and build            what a person answers, where the cassette may answer

Values of a call's arguments are JSON where they read as JSON (numbers, true, lists, objects, "quoted"), else text. A block of
lines ends with a line break (``key: |-`` takes it off) and loses its indent (``key: |=`` keeps what is more than two spaces
deeper than the key; ``|=-`` does both). ``{plan}`` (the run's plan file), ``{root}`` and ``{home}`` stand for
paths; ``\\{plan}`` is literal.
Lines that start with ``#`` outside blocks are comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from nbagent.message import Tokens
from nbagent.provider.cassette import (
    BY_HAND,
    Cassette,
    Entry,
    Expectation,
    Failure,
    Header,
    Malformed,
    PersonAnswer,
    Piece,
    Problem,
    ended,
)
from nbagent.provider.expectation import OF_REQUEST, read_expectation
from nbagent.provider.provider import Called, Ended, Said, Say, Think, Used
from nbagent.provider.short_lines import KEY, MARKERS, Line, block, keys, text_of
from nbagent.provider.short_person import edits, read_person

_SECTION = re.compile(r"(?P<agent>[A-Za-z_][\w-]*):?")
_HEADER_KEYS = ("cassette", "model", "date", "nbagent", "window")
_STATUS = re.compile(r"(\d{3})\b(?: \(retry after ([\d.]+)\))? ?(.*)", re.DOTALL)
_USED = re.compile(r"(\d+) in, (\d+) out(?:, (\d+) reasoning)?(?:, (\d+) cached)?")


@dataclass(slots=True)
class _Step:
    """One answer as it is being read."""

    line: int
    pieces: list[Piece] = field(default_factory=list)
    expects: list[Expectation] = field(default_factory=list)
    last_call: str = ""
    broken: bool = False


@dataclass(slots=True)
class _Reader:
    """Where the reader of a short form is."""

    header: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    person: list[PersonAnswer] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    agent: str = ""
    prompt: str = ""
    section: int = 0
    section_line: int = 0
    step: _Step | None = None


def parse(text: str) -> tuple[Cassette | None, list[Problem]]:
    """The cassette that ``text`` describes, and what is wrong with it in the order of the lines."""
    reader = _Reader()
    lines = text.replace("\r\n", "\n").split("\n")
    position = 0
    while position < len(lines):
        position = _take(reader, lines, position)
    _close_step(reader)
    header = _header(reader)
    if not reader.entries and not reader.problems:
        reader.problems.append(
            Problem(1, "it has no answers: name an agent (plan, build, …) alone on a line, then say: or call:")
        )
    reader.problems.sort(key=lambda problem: problem.line)
    if header is None:
        return None, reader.problems
    return Cassette(header, tuple(reader.entries), tuple(reader.person), by_hand=True), reader.problems


def _take(reader: _Reader, lines: list[str], position: int) -> int:
    """Read the line at ``position`` and what belongs to it; the next position."""
    raw = lines[position]
    number = position + 1
    stripped = raw.strip()
    if not stripped or stripped.startswith("#"):
        return position + 1
    indent = len(raw) - len(raw.lstrip(" "))
    below, after = block(lines, position + 1, indent)
    try:
        if raw[indent] == "\t":
            raise Malformed(number, "indent with spaces, not with tabs")
        if indent == 0:
            return _take_outer(reader, number, stripped, position)
        if stripped == "---":
            _next_step(reader, number)
            return position + 1
        match = KEY.fullmatch(raw[indent:].rstrip())
        if match is None:
            raise Malformed(number, f"{stripped!r} is not understood; a line is KEY: VALUE, or --- for the next answer")
        _take_inner(reader, Line(number, indent, match["key"], match["value"] or "", below))
    except Malformed as error:
        reader.problems.append(error.problem)
        if reader.step is not None:
            reader.step.broken = True
    return after


def _take_outer(reader: _Reader, number: int, text: str, position: int) -> int:
    match = KEY.fullmatch(text)
    if match and match["key"] in _HEADER_KEYS and match["value"]:
        if reader.section:
            raise Malformed(number, f"{match['key']}: belongs above the first agent")
        reader.header[match["key"]] = match["value"].strip()
    elif section := _SECTION.fullmatch(text):
        _close_step(reader)
        reader.agent, reader.prompt, reader.section_line = section["agent"], "", number
        reader.section += 1
        reader.step = _Step(number)
    elif match:
        known = ", ".join(f"{key}:" for key in _HEADER_KEYS)
        raise Malformed(number, f"{match['key']}: is not known here; above the first agent there may be {known}")
    else:
        raise Malformed(number, f"{text!r} is not understood; an agent's name stands alone on a line")
    return position + 1


def _take_inner(reader: _Reader, line: Line) -> None:
    if reader.step is None:
        raise Malformed(
            line.number, "name the agent that answers first (plan, build, …), alone on a line without indent"
        )
    known = _STEP_KEYS.get(line.key)
    if known is None:
        raise Malformed(
            line.number, f"{line.key}: is not known here; there may be {', '.join(f'{k}:' for k in _STEP_KEYS)}"
        )
    last = reader.step.pieces[-1] if reader.step.pieces else None
    if isinstance(last, Ended | Failure) and line.key in ("say", "think", "call", "cut call", "error", "ended"):
        raise Malformed(line.number, f"{line.key}: the answer has ended above; --- begins the next one")
    known(reader, reader.step, line)


def _next_step(reader: _Reader, number: int) -> None:
    if reader.step is None:
        raise Malformed(number, "--- stands between two answers of an agent")
    _close_step(reader)
    reader.step = _Step(number + 1)


def _close_step(reader: _Reader) -> None:
    step = reader.step
    if step is None:
        return
    reader.step = None
    if not step.pieces:
        if not step.broken:
            reader.problems.append(Problem(step.line, "an answer needs at least one say:, call: or error:"))
        return
    entry = Entry(
        ended(tuple(step.pieces)),
        reader.agent,
        expects=tuple(step.expects),
        section=reader.section,
        prompt=reader.prompt,
        line=step.line,
    )
    reader.entries.append(entry)


def _header(reader: _Reader) -> Header | None:
    values = reader.header
    if "cassette" not in values:
        reader.problems.append(Problem(1, f"the first line must be cassette: {BY_HAND}"))
        return None
    window = values.get("window", "0")
    if not window.isdigit():
        reader.problems.append(Problem(1, f"window: is a number of tokens, not {window!r}"))
        window = "0"
    model = values.get("model", "a model played by hand")
    return Header(values["cassette"], model, values.get("date", ""), values.get("nbagent", ""), int(window))


def _prompt(reader: _Reader, step: _Step, line: Line) -> None:
    if step.pieces or reader.prompt or any(entry.section == reader.section for entry in reader.entries):
        raise Malformed(line.number, "prompt: stands once, right below the agent")
    reader.prompt = text_of(line).strip()
    if not reader.prompt:
        raise Malformed(line.number, "prompt: needs some words of the person's prompt")


def _say(reader: _Reader, step: _Step, line: Line) -> None:
    step.pieces.append(Say(text_of(line)))


def _think(reader: _Reader, step: _Step, line: Line) -> None:
    step.pieces.append(Think(text_of(line)))


def _call(reader: _Reader, step: _Step, line: Line) -> None:
    name, _, rest = line.value.strip().partition(" ")
    if not name:
        raise Malformed(line.number, 'call: needs the name of a tool, as in call: read {"filePath": "a.py"}')
    if rest and line.block:
        raise Malformed(line.number, "give the arguments either behind the name or below it, not both")
    arguments = _inline(rest, line.number) if rest.strip() else dict(_arguments(line.block or []))
    step.last_call = f"call_{line.number}"
    step.pieces.append(Called(step.last_call, name, arguments))


def _cut_call(reader: _Reader, step: _Step, line: Line) -> None:
    name, _, rest = line.value.strip().partition(" ")
    if not name:
        raise Malformed(line.number, "cut call: needs the name of a tool, then the arguments as far as they came")
    step.last_call = f"call_{line.number}"
    step.pieces.append(Called(step.last_call, name, {}, problem="the arguments were cut off", raw=rest[:800]))


def _expect(reader: _Reader, step: _Step, line: Line) -> None:
    expected = read_expectation(text_of(line).strip(), line.number, step.last_call)
    if expected.kind in OF_REQUEST and step.pieces:
        raise Malformed(line.number, f"expect: {expected.text} is about the request: it stands before what is answered")
    step.expects.append(expected)


def _used(reader: _Reader, step: _Step, line: Line) -> None:
    match = _USED.fullmatch(line.value.strip())
    if match is None:
        raise Malformed(line.number, "used: reads like 1200 in, 80 out")
    count = [int(number or 0) for number in match.groups()]
    step.pieces.append(Used(Tokens(input=count[0], output=count[1], reasoning=count[2], cache_read=count[3])))


def _said(reader: _Reader, step: _Step, line: Line) -> None:
    step.pieces.append(Said(text_of(line)))


def _ended(reader: _Reader, step: _Step, line: Line) -> None:
    reasons = ("stop", "tool-calls", "length", "content-filter")
    if line.value.strip() not in reasons:
        raise Malformed(line.number, f"ended: is one of {', '.join(reasons)}")
    step.pieces.append(Ended(line.value.strip()))


def _error(reader: _Reader, step: _Step, line: Line) -> None:
    text = text_of(line).strip()
    kind, _, rest = text.partition(" ")
    if kind == "dropped":
        step.pieces.append(
            Failure(rest or "the connection ended before the answer was complete", "dropped", retryable=True)
        )
    elif kind == "overflow":
        step.pieces.append(Failure(rest or "the request is larger than the model's window", "overflow"))
    elif match := _STATUS.fullmatch(text):
        status = int(match[1])
        after = float(match[2]) if match[2] else None
        retryable = status in (408, 409, 429) or status >= 500
        step.pieces.append(Failure(match[3] or f"the server answered {status}", "error", status, retryable, after))
    else:
        raise Malformed(line.number, "error: is dropped, overflow, or a status like 429 (retry after 0.1) slow down")


def _person(reader: _Reader, step: _Step, line: Line) -> None:
    answer = read_person(line.value.strip(), line.number)
    if answer.kind != "review" and not step.last_call:
        raise Malformed(line.number, "person: must stand below the call that the person is asked about")
    bound = "" if answer.kind == "review" else step.last_call
    reader.person.append(replace(answer, call_id=bound, **edits(line, answer.kind)))


_STEP_KEYS: dict[str, Callable[[_Reader, _Step, Line], None]] = {
    "prompt": _prompt,
    "say": _say,
    "think": _think,
    "call": _call,
    "cut call": _cut_call,
    "expect": _expect,
    "person": _person,
    "used": _used,
    "said": _said,
    "error": _error,
    "ended": _ended,
}


def _inline(text: str, number: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text.strip())
    except msgspec.DecodeError as error:
        raise Malformed(number, f"the arguments are not JSON ({error})") from None
    except RecursionError:
        raise Malformed(number, "the arguments are nested too deeply") from None
    if not isinstance(value, dict):
        raise Malformed(number, 'the arguments are a JSON object, as in {"path": "."}')
    return value


def _arguments(block: list[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for line in keys(block):
        if line.key in seen:
            raise Malformed(line.number, f"{line.key}: is given twice")
        seen.add(line.key)
        below = line.block is not None and any(text.strip() for _, text in line.block)
        if below or line.value.strip() in MARKERS:
            yield line.key, text_of(line, keep_end=True)
        else:
            yield line.key, _value(line)


def _value(line: Line) -> Any:
    text = line.value.strip()
    if re.match(r"\\?\{(?:plan|root|home)\}", text):
        return text
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise Malformed(line.number, f"{line.key}: this JSON is nested too deeply") from None
    except msgspec.DecodeError:
        if text[:1] in ("{", "[", '"') and text:
            raise Malformed(
                line.number, f"{line.key}: this is not JSON; put text that starts with {text[0]} on lines below"
            ) from None
        return text
