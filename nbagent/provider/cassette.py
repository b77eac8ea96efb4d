"""What a cassette holds: model answers and a person's answers, as values.

``cassette_lines.py`` and ``short_form.py`` are its two written forms, ``cassette_file.py`` opens either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nbagent.errors import ContextOverflow, ProviderError, StreamDropped
from nbagent.provider.digest import Asked
from nbagent.provider.provider import Called, Delta, Ended

FORMAT = 1
BY_HAND = "written by hand"


@dataclass(frozen=True, slots=True)
class Header:
    """Who answered (a model's name or ``written by hand``), when and with which nbagent. ``model``: the name that the
    played model goes by. ``window``: of the model, in tokens, 0 for unknown. ``attended``: a person was there to answer."""

    answered_by: str = BY_HAND
    model: str = ""
    date: str = ""
    nbagent: str = ""
    window: int = 0
    attended: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """The server failed here. ``kind``: ``error``, ``dropped`` or ``overflow``."""

    message: str
    kind: Literal["error", "dropped", "overflow"] = "error"
    status: int | None = None
    retryable: bool = False
    retry_after: float | None = None
    code: str = ""

    def error(self) -> ProviderError:
        """The exception that a real provider would have raised."""
        if self.kind == "dropped":
            return StreamDropped(self.message)
        cls = ContextOverflow if self.kind == "overflow" else ProviderError
        return cls(
            self.message, retryable=self.retryable, retry_after=self.retry_after, status=self.status, code=self.code
        )

    @staticmethod
    def of(error: ProviderError) -> Failure:
        kind: Literal["error", "dropped", "overflow"] = "error"
        if isinstance(error, StreamDropped):
            kind = "dropped"
        elif isinstance(error, ContextOverflow):
            kind = "overflow"
        return Failure(str(error), kind, error.status, error.retryable, error.retry_after, error.code)


Piece = Delta | Failure


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must have become of a call (``call_id``), or must be true of the request (``call_id`` ""). ``line``: where it is
    written; ``text``: as it is written. ``kind`` and its values: see ``expectation.py``."""

    kind: str
    text: str
    line: int
    call_id: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One model call. Recorded: ``asked`` and ``digest`` say to which request it belongs. By hand: ``section`` (all entries of
    one have the same number), whose ``prompt`` is the start of the person's prompt or ""."""

    answer: tuple[Piece, ...]
    agent: str = ""
    asked: Asked | None = None
    digest: str = ""
    expects: tuple[Expectation, ...] = ()
    section: int = 0
    prompt: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """What a person answered: to an ask (``value``: once, always, reject; ``text``: feedback), a question (``choices``) or a plan
    review (``value``: build, later, revise, reject; ``text``: comment; ``edit``: the plan's whole new text; ``changes``: pieces
    replaced in it). ``call_id``: the call that it belongs to, "" when it is the next of its kind."""

    kind: Literal["ask", "question", "review"]
    value: str = ""
    text: str = ""
    choices: tuple[tuple[str, ...], ...] = ()
    edit: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    call_id: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cassette:
    """A whole cassette. ``origin``: the file's name for messages."""

    header: Header
    entries: tuple[Entry, ...] = ()
    person: tuple[PersonAnswer, ...] = ()
    origin: str = "cassette"
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a cassette, and the line (from 1) that it is in."""

    line: int
    text: str


class Malformed(Exception):
    """What cannot be read as a cassette; carries a ``Problem``. Never leaves this room."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(line, text)


def ended(answer: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """``answer`` with the last piece that every answer has."""
    if answer and isinstance(answer[-1], Ended | Failure):
        return answer
    return (*answer, Ended("tool-calls" if any(isinstance(p, Called) for p in answer) else "stop"))


def one_of(value: object, allowed: tuple[str, ...]) -> str:
    """``value`` when it is allowed. Raises ``ValueError`` with a sentence."""
    if value not in allowed:
        raise ValueError(f"{value!r} is not an answer here; it may be {', '.join(allowed)}")
    return str(value)
