"""A cassette as JSON Lines, the form that is recorded.

::

    {"nbagent_cassette": 1, "answered_by": "written by hand" | model, "date": "2026-11-30", "nbagent": "0.1.0", "window": 0}
    {"asked": {"agent", "tools", "messages", "thread"}, "digest": "…", "answer": [{"say": "…"}, {"call": {…}}, {"ended": "stop"}]}
    {"person": {"ask": "once"} | {"question": [["…"]]} | {"review": "build", "comment": "…"}}
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec

from nbagent.provider.cassette import (
    BY_HAND,
    FORMAT,
    Cassette,
    Entry,
    Failure,
    Header,
    Malformed,
    PersonAnswer,
    Piece,
    Problem,
    ended,
    one_of,
)
from nbagent.provider.digest import Asked, digest_of
from nbagent.provider.provider import Called, Ended, Said, Say, Think, Used


def dump(cassette: Cassette) -> list[str]:
    """The cassette's JSON lines, in the order of ``line``."""
    header = cassette.header
    first = {"nbagent_cassette": FORMAT, "answered_by": header.answered_by}
    first |= {k: v for k in ("model", "date", "nbagent", "window") if (v := getattr(header, k))}
    first |= {} if header.attended else {"attended": False}
    lines: list[Any] = [first]
    stored: list[Entry | PersonAnswer] = [*cassette.entries, *cassette.person]
    for each in sorted(stored, key=lambda each: each.line):
        lines.append(_dump_entry(each) if isinstance(each, Entry) else {"person": _dump_person(each)})
    return [msgspec.json.encode(line).decode() for line in lines]


def dump_piece(piece: Piece) -> dict[str, Any]:
    """One piece of an answer as JSON."""
    name, build = _PIECES[type(piece)]
    return {name: build(piece)}


def load_piece(value: object) -> Piece:
    """The piece that ``dump_piece`` wrote. Raises ``ValueError`` with a sentence."""
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("a piece of an answer is an object with one key: " + ", ".join(_LOADERS))
    [(name, body)] = value.items()
    if name not in _LOADERS:
        raise ValueError(f"{name!r} is not a piece of an answer; it may be {', '.join(_LOADERS)}")
    target, field = _LOADERS[name]
    try:
        short = field and (target is not Think or isinstance(body, str))
        return msgspec.convert({field: body} if short else body, target)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise ValueError(f"{name!r}: {error}") from None


def _fields(piece: Any) -> dict[str, Any]:
    built = msgspec.to_builtins(piece)
    return {
        key: value
        for key, value in built.items()
        if key in ("text", "message") or value not in ("", None, {}, False, 0)
    }


_PIECES: dict[type, tuple[str, Any]] = {
    Say: ("say", lambda p: p.text),
    Think: ("think", lambda p: _fields(p) if p.field or p.opaque else p.text),
    Called: ("call", lambda p: {"id": p.id, "name": p.name, "arguments": p.arguments, **_fields(p)}),
    Used: ("used", lambda p: _fields(p.tokens)),
    Said: ("said", msgspec.to_builtins),
    Ended: ("ended", lambda p: p.reason),
    Failure: ("error", _fields),
}
_LOADERS: dict[str, tuple[Any, str]] = {
    "say": (Say, "text"),
    "think": (Think, "text"),
    "call": (Called, ""),
    "used": (Used, "tokens"),
    "said": (Said, ""),
    "ended": (Ended, "reason"),
    "error": (Failure, ""),
}


def _dump_entry(entry: Entry) -> dict[str, Any]:
    line: dict[str, Any] = {}
    if entry.asked is not None:
        line = {"asked": entry.asked, "digest": entry.digest or digest_of(entry.asked)}
    elif entry.agent:
        line = {"agent": entry.agent}
    return line | {"answer": [dump_piece(piece) for piece in entry.answer]}


def _dump_person(answer: PersonAnswer) -> dict[str, Any]:
    rest = {"call": answer.call_id} if answer.call_id else {}
    if answer.value == "declined":
        return {"question": None, **rest}
    if answer.kind == "question":
        return {"question": answer.choices, **rest}
    words = "feedback" if answer.kind == "ask" else "comment"
    extra = {words: answer.text, "edit": answer.edit, "change": answer.changes}
    return {answer.kind: answer.value, **{k: v for k, v in extra.items() if v}, **rest}


def read_lines(text: str) -> tuple[Cassette | None, list[Problem]]:
    """The cassette in JSON Lines and what is wrong with it, in the order of the lines."""
    problems: list[Problem] = []
    header: Header | None = None
    entries: list[Entry] = []
    person: list[PersonAnswer] = []
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        try:
            value = _object(raw, number)
            if header is None:
                header = _load_header(value, number)
            elif "person" in value:
                person.append(_load_person(value["person"], number))
            else:
                entries.append(_load_entry(value, number))
        except Malformed as error:
            problems.append(error.problem)
            if header is None:
                break
    if header is not None and not entries and not problems:
        problems.append(Problem(1, "it has no answers"))
    return (Cassette(header, tuple(entries), tuple(person)) if header else None), problems


def _object(raw: str, number: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Malformed(number, f"this is not JSON ({error}); each line is one whole JSON object") from None
    except RecursionError:
        raise Malformed(number, "this JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise Malformed(number, "each line is one JSON object")
    return value


def _load_header(value: dict[str, Any], number: int) -> Header:
    if "nbagent_cassette" not in value:
        raise Malformed(number, 'the first line must be the header, {"nbagent_cassette": 1, "answered_by": …}')
    if value["nbagent_cassette"] is True or value["nbagent_cassette"] != FORMAT:
        raise Malformed(
            number, f"its format is {value['nbagent_cassette']!r}; this nbagent reads format {FORMAT}: update nbagent"
        )
    known = {k: v for k, v in value.items() if k in ("answered_by", "model", "date", "nbagent", "window", "attended")}
    try:
        header: Header = msgspec.convert(known, Header)
    except msgspec.ValidationError as error:
        raise Malformed(number, f"the header is wrong: {error}") from None
    if header.window < 0:
        raise Malformed(number, f"the header is wrong: window is a number of tokens, not {header.window}")
    return replace(header, model=header.model or ("" if header.answered_by == BY_HAND else header.answered_by))


def _load_entry(value: dict[str, Any], number: int) -> Entry:
    if not isinstance(value.get("answer"), list):
        raise Malformed(number, 'an entry needs "answer", a list')
    try:
        answer = tuple(load_piece(piece) for piece in value["answer"])
        asked = msgspec.convert(value["asked"], Asked) if "asked" in value else None
    except (ValueError, msgspec.ValidationError) as error:
        raise Malformed(number, str(error)) from None
    if not answer:
        raise Malformed(number, "an answer needs at least one piece")
    digest = str(value.get("digest", ""))
    if asked is not None and digest and digest != digest_of(asked):
        raise Malformed(number, '"digest" does not fit "asked": one of them was changed by hand; record again')
    agent = asked.agent if asked else value.get("agent", "")
    if not isinstance(agent, str):
        raise Malformed(number, f'"agent" is the name of an agent, not {agent!r}')
    return Entry(ended(answer), agent, asked, digest, line=number)


def _load_person(value: object, number: int) -> PersonAnswer:
    if not isinstance(value, dict) or len({"ask", "question", "review"} & set(value)) != 1:
        raise Malformed(number, '"person" holds one of "ask", "question" and "review"')
    call = str(value.get("call", ""))
    try:
        if "question" in value and value["question"] is None:
            return PersonAnswer("question", "declined", call_id=call, line=number)
        if "question" in value:
            choices = msgspec.convert(value["question"], tuple[tuple[str, ...], ...])
            return PersonAnswer("question", choices=choices, call_id=call, line=number)
        kind: Literal["ask", "review"] = "ask" if "ask" in value else "review"
        body = value[kind]
        if isinstance(body, dict):
            value, body = {**value, **body}, body.get("action") or body.get("answer")
        return PersonAnswer(
            kind,
            one_of(body, ("once", "always", "reject") if kind == "ask" else ("build", "later", "revise", "reject")),
            str(value.get("feedback") or value.get("comment") or ""),
            edit=str(value.get("edit") or ""),
            changes=msgspec.convert(value.get("change") or (), tuple[tuple[str, str], ...]),
            call_id=call,
            line=number,
        )
    except (ValueError, msgspec.ValidationError) as error:
        raise Malformed(number, str(error)) from None
