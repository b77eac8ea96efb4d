"""Which answer of a cassette belongs to a request: by digest when it was recorded, by section when it was written by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from nbagent.provider.cassette import Cassette, Entry
from nbagent.provider.digest import Asked, ask_of, difference, digest_of, prompt_text
from nbagent.provider.places import Ids, Places
from nbagent.provider.provider import Ended, Request, Say, Text, UserTurn


class Misfit(Exception):
    """No answer belongs to the request; the text says why."""


class Match(Protocol):
    """Finds answers, each once. ``rewound``: the last one found began a cell that is run again."""

    rewound: bool

    def find(self, request: Request, ids: Ids, lenient: bool) -> tuple[int, str]:
        """Index of the entry that answers ``request``, and in what it does not fit ("" when it does). Raises ``Misfit``.

        An entry that does not fit is used up only when it is played all the same (``lenient``).
        """
        ...


class DigestMatch:
    """Recorded answers. Conversations that run side by side (subagents) are told apart by their first message; within one,
    the order is that of the recording. A prompt that was played before, word for word, plays again from there."""

    def __init__(self, cassette: Cassette, places: Places) -> None:
        self._entries = cassette.entries
        self._attended = cassette.header.attended
        self._places = places
        self._left = list(range(len(cassette.entries)))
        self.rewound = False

    def find(self, request: Request, ids: Ids, lenient: bool) -> tuple[int, str]:
        asked = ask_of(request, self._places, ids)
        self._rewind(asked, request)
        if not self._left:
            raise Misfit(
                f"all its {len(self._entries)} answers were played, and {_who_asks(request)} asks for one more."
            )
        index, misfit = self._choose(asked)
        if lenient or not misfit:
            self._left.remove(index)
        return index, misfit

    def _rewind(self, asked: Asked, request: Request) -> None:
        """A cell that is run again: what was played from its prompt on is there again."""
        digest = digest_of(asked)
        same = [i for i, e in enumerate(self._entries) if e.digest == digest and self._thread(i) == asked.thread]
        self.rewound = bool(same) and isinstance(request.turns[-1], UserTurn) and not set(same) & set(self._left)
        if self.rewound:
            self._left = sorted({*self._left, *range(same[0], len(self._entries))})

    def _choose(self, asked: Asked) -> tuple[int, str]:
        digest = digest_of(asked)
        thread = [i for i in self._left if self._thread(i) == asked.thread]
        for index in thread:
            if self._entries[index].digest == digest:
                return index, ""
        for index in self._left:
            entry = self._entries[index]
            if entry.asked is None and entry.agent in ("", asked.agent):
                return index, ""
        same_agent = [i for i in self._left if self._entries[i].agent == asked.agent]
        index = (thread or same_agent or self._left)[0]
        return index, self._misfit(index, asked)

    def _misfit(self, index: int, asked: Asked) -> str:
        entry = self._entries[index]
        where = f"answer {index + 1} of {len(self._entries)} (line {entry.line}) was given to another request."
        if entry.asked is None:
            return f"{where}\n  agent: it was answered for {entry.agent!r}, {asked.agent!r} asks now"
        lines = difference(entry.asked, asked) or ["the first message of the conversation is another one"]
        if self._attended and "question" in entry.asked.tools and "question" not in asked.tools:
            lines.append(
                "a person was there when it was recorded, and nobody is now: --cassette-answers lets the cassette answer"
            )
        return "\n  ".join([where, *lines])

    def _thread(self, index: int) -> str:
        asked = self._entries[index].asked
        return asked.thread if asked is not None else ""


@dataclass(slots=True)
class _Open:
    """A section that a conversation is in: its number, the entries still to come, and how many prompts it has seen."""

    number: int
    left: list[int]
    prompts: int


class SectionMatch:
    """Answers by hand: sections in their order, each for one agent, and for one prompt where it says so.

    A cell that is run again plays its section again, and those behind it are there again.
    """

    def __init__(self, cassette: Cassette, places: Places) -> None:
        self._entries = cassette.entries
        self._sections: dict[int, list[int]] = {}
        for index, entry in enumerate(cassette.entries):
            self._sections.setdefault(entry.section, []).append(index)
        self._opened: dict[int, str] = {}
        self._open: dict[tuple[str, str], _Open] = {}
        self.rewound = False

    def find(self, request: Request, ids: Ids, lenient: bool) -> tuple[int, str]:
        key = (request.session_id, request.agent)
        prompts = sum(isinstance(turn, UserTurn) for turn in request.turns)
        open_ = self._open.get(key)
        self.rewound = False
        if open_ is None or not open_.left or self._begins_anew(request, open_, prompts):
            broken_off = open_ is not None and open_.left and self._opened.get(open_.number) == _person_said(request)
            number = open_.number if open_ is not None and broken_off else self._choose(request)
            open_ = self._open[key] = _Open(number, list(self._begin(number, request)), prompts)
        return open_.left.pop(0), ""

    def _begins_anew(self, request: Request, open_: _Open, prompts: int) -> bool:
        """Whether a person asks something that has a section of its own, or runs a cell again that broke off."""
        if not isinstance(request.turns[-1], UserTurn) or prompts <= open_.prompts:
            return False
        return bool(self._named(request)) or self._opened.get(open_.number) == _person_said(request)

    def _begin(self, number: int, request: Request) -> list[int]:
        """The entries of a section that is played from here; run again, those behind it are there again, too."""
        self.rewound = number in self._opened
        if self.rewound:
            self._opened = {other: said for other, said in self._opened.items() if other < number}
        self._opened[number] = _person_said(request)
        return self._sections[number]

    def _choose(self, request: Request) -> int:
        mine = [number for number in self._sections if self._first(number).agent == request.agent]
        named = [number for number in self._named(request) if number not in self._opened]
        unnamed = [number for number in mine if not self._first(number).prompt and number not in self._opened]
        for choice in (named, unnamed, self._again(request, mine)):
            if choice:
                return choice[0]
        raise Misfit(self._why(request, mine))

    def _again(self, request: Request, mine: list[int]) -> list[int]:
        """The section that this prompt was answered with before."""
        if not isinstance(request.turns[-1], UserTurn):
            return []
        named, said = self._named(request), _person_said(request)
        return named[-1:] or [number for number in mine if self._opened.get(number) == said][-1:]

    def _named(self, request: Request) -> list[int]:
        """The sections whose prompt is the one that is asked."""
        text = " ".join(prompt_text(request).split())
        return [
            number
            for number in self._sections
            if (first := self._first(number)).prompt and first.agent == request.agent and _is_in(first.prompt, text)
        ]

    def _why(self, request: Request, mine: list[int]) -> str:
        waiting = [self._first(number) for number in self._sections if number not in self._opened]
        asks = f"{_who_asks(request)} asks"
        if any(number not in self._opened for number in mine):
            others = "; ".join(f"line {e.line}: {e.prompt!r}" for e in waiting if e.agent == request.agent)
            return f"{asks} {prompt_text(request)[:80]!r}, and its answers are for other prompts ({others})."
        if waiting:
            return f"{asks}, but the next answer (line {waiting[0].line}) is for {waiting[0].agent!r}."
        return f"{asks} for one more answer, and all were played (the last one is at line {self._entries[-1].line})."

    def _first(self, number: int) -> Entry:
        return self._entries[self._sections[number][0]]


def default_answer(request: Request) -> Entry | None:
    """What answers an agent whose answers a cassette need not hold: a title is the first words of the prompt."""
    make = _DEFAULTS.get(request.agent)
    return make(request) if make is not None else None


def _title(request: Request) -> Entry:
    words = prompt_text(request).split()[:6]
    return Entry((Say(" ".join(words)[:50] or "Untitled"), Ended("stop")), request.agent)


_DEFAULTS = {"title": _title}
DEFAULTED = frozenset(_DEFAULTS)
"""Agents whose answers a cassette need not hold."""


def _person_said(request: Request) -> str:
    """The last prompt, without the notices that ride on it."""
    turn = next((turn for turn in reversed(request.turns) if isinstance(turn, UserTurn)), None)
    return next((piece.text for piece in turn.content if isinstance(piece, Text)), "") if turn else ""


def _is_in(prompt: str, text: str) -> bool:
    """Whether the words of ``prompt`` stand in ``text``; ``*`` stands for anything."""
    pieces = (re.escape(" ".join(piece.split())) for piece in prompt.split("*"))
    return re.search(".*?".join(pieces), text) is not None


def _who_asks(request: Request) -> str:
    return f"the agent {request.agent!r}" if request.agent else "an agent"
