"""A provider that plays a cassette: tools really run and rules really decide, only the model is played."""

from __future__ import annotations

import asyncio
import json
import re
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from nbagent.errors import CassetteError
from nbagent.event import AskEvent, Event, ToolEvent
from nbagent.provider.cassette import Cassette, Entry, Expectation, Failure, Piece
from nbagent.provider.cassette_file import load
from nbagent.provider.digest import prompt_text
from nbagent.provider.expectation import OF_REQUEST, Fate, Witness, disappointment, request_disappointment
from nbagent.provider.match import DEFAULTED, DigestMatch, Match, Misfit, SectionMatch, default_answer
from nbagent.provider.person import PersonScript
from nbagent.provider.places import Ids, Masker, Places, each_text
from nbagent.provider.provider import Called, Delta, Limits, Request, Said, Say, Think

_RECORD_AGAIN = (
    "It plays where the folder is as it was before the recording: what that left there (a plan, edits, the cassette itself) is read, too. "
    "Play it in a fresh copy, record it again with --record FILE and a model, or play on all the same with --cassette-lenient "
    "(the record then says so)."
)
_OWN_WAY = "You answered otherwise than the person for whom it was written, and it has no more answers for that way. Run the cell again."
_HAND_TOKEN = re.compile(r"(\\?)\{(plan|root|home)\}")


_PLAYERS: weakref.WeakSet[CassettePlayer] = weakref.WeakSet()


def left_over() -> str:
    """What the cassettes that were played in this process have left, as a JSON list of sentences."""
    return json.dumps(
        [f"{player.cassette.origin}, {left}" for player in _PLAYERS if player.used() for left in player.unused()]
    )


class CassettePlayer:
    """Plays the cassette in ``source`` (a path, a cassette's text with line breaks, or a ``Cassette``).

    One player goes with one session from cell to cell; ``rewind`` starts over. ``root``, ``home``, ``data`` (nbagent's own) and
    ``scratch`` (the run's temporary one) are folders of this machine. ``plan`` (settable, per run) is the plan file as the model is
    told it; when it is "" the path is taken from the prompt. ``stale``: what did not fit and was played all the same (``lenient``).
    Raises ``CassetteError``.
    """

    name = "cassette"

    def __init__(
        self,
        source: Path | str | Cassette,
        *,
        lenient: bool = False,
        root: Path | str | None = None,
        home: Path | str | None = None,
        plan: str = "",
        data: Path | str | None = None,
        scratch: Path | str | None = None,
        masker: Masker | None = None,
    ) -> None:
        self.cassette = source if isinstance(source, Cassette) else load(source)
        self.lenient = lenient
        self.places = Places(root, home, plan, masker, data, scratch)
        self.rewind()
        _PLAYERS.add(self)

    def rewind(self) -> None:
        """Start over: nothing is used, nothing is pending."""
        self.stale: list[str] = []
        self._strayed = False
        self.witness = Witness()
        self._ids: dict[str, Ids] = {}
        self._pending: dict[str, list[Expectation]] = {}
        self._plays: dict[int, int] = {}
        self._match: Match = (SectionMatch if self.cassette.by_hand else DigestMatch)(self.cassette, self.places)
        self._person = PersonScript(self.cassette, self._filled)

    @property
    def plan(self) -> str:
        return self.places.plan

    @plan.setter
    def plan(self, path: str) -> None:
        self.places.plan = path

    @property
    def model(self) -> str:
        """The name that the played model goes by."""
        return self.cassette.header.model or self.cassette.header.answered_by

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        entry = self._entry(request)
        for piece in entry.answer:
            for delta in _pieces(self._fill(piece, entry, request.session_id)):
                if isinstance(delta, Failure):
                    raise delta.error()
                yield delta
                await asyncio.sleep(0)

    async def models(self) -> tuple[str, ...]:
        return (self.model,)

    async def limits(self, model: str) -> Limits:
        window = self.cassette.header.window
        return Limits(window=window, source="settings" if window else "unknown")

    async def close(self) -> None:
        """Nothing is open."""

    def person(self) -> PersonScript:
        """What the person answers in this cassette. Whether that may count is for the caller to say."""
        return self._person

    def used(self) -> tuple[Entry, ...]:
        """The answers that were played, in the cassette's order."""
        return tuple(entry for index, entry in enumerate(self.cassette.entries) if self._plays.get(index))

    def unused(self) -> tuple[str, ...]:
        """What was not played, asked or checked, one sentence each; empty when the whole cassette was."""
        entries = enumerate(self.cassette.entries)
        left = [
            f"line {e.line}: this answer ({e.agent}) was never asked for"
            for i, e in entries
            if not self._plays.get(i) and e.agent not in DEFAULTED
        ]
        left += [f"line {a.line}: the person was never asked for this answer" for a in self._person.left()]
        open_ = [e for pending in self._pending.values() for e in pending if not self._settle_seen(e)]
        return (*left, *(f"line {e.line}: expect: {e.text} was never checked" for e in open_))

    def stray(self) -> None:
        """A person who is there answered otherwise than the cassette's: what was expected of the way that was written down says
        nothing about theirs, and is not checked until its cell is run again."""
        self._strayed = True

    def observe(self, event: Event) -> None:
        """Look at an event of the run: where the plan is, which rule refused which call, when a person was asked."""
        self.places.observe(event)
        if isinstance(event, ToolEvent) and event.state in ("completed", "error"):
            failed = event.state == "error"
            self.witness.fates[event.call_id] = Fate(failed, event.error if failed else event.output)
            if event.rule is not None:
                self.witness.rules[event.call_id] = event.rule
        elif isinstance(event, AskEvent) and event.call_id:
            self.witness.asked.add(event.call_id)
            if event.reply == "reject":
                self.witness.rejected.add(event.call_id)

    def _entry(self, request: Request) -> Entry:
        self._check_calls(request)
        self.places.see(prompt_text(request), request.system)
        ids = self._ids.setdefault(request.session_id, Ids())
        if all(entry.agent != request.agent for entry in self.cassette.entries):
            answer = default_answer(request)
            if answer is not None:
                return answer
        try:
            index, misfit = self._match.find(request, ids, self.lenient)
        except Misfit as error:
            own = f"\n{_OWN_WAY}" if self._strayed else ""
            raise CassetteError(f"{self._who} {error}{own}") from None
        entry = self.cassette.entries[index]
        if misfit:
            self._complain(misfit)
        self._plays[index] = self._plays.get(index, 0) + 1
        if self._match.rewound:
            self._person.restore(entry.line)
            self._strayed = False
        self._expect(entry, index, request)
        return entry

    def _expect(self, entry: Entry, index: int, request: Request) -> None:
        """Check what was expected of the request, and keep what is expected of the calls until their results are in."""
        pending = self._pending.setdefault(request.session_id, [])
        for expected in entry.expects:
            if expected.kind not in OF_REQUEST:
                pending.append(_bound(expected, self._plays[index]))
            elif reason := request_disappointment(expected, request):
                self._disappointed(expected, reason)

    def _check_calls(self, request: Request) -> None:
        pending = self._pending.get(request.session_id, [])
        for expected in list(pending):
            fate = self.witness.fate(expected.call_id, request)
            if fate is None:
                continue
            pending.remove(expected)
            if reason := disappointment(expected, fate):
                self._disappointed(expected, reason)

    def _settle_seen(self, expected: Expectation) -> bool:
        """Whether an expectation that no later request settled came true by what was observed."""
        fate = self.witness.known(expected.call_id)
        return fate is not None and not disappointment(expected, fate)

    def _disappointed(self, expected: Expectation, reason: str) -> None:
        if self._strayed:
            return
        text = f"line {expected.line}: expect: {expected.text}, but {reason.removesuffix('.')}"
        if not self.lenient:
            raise CassetteError(f"{self._who} {text}.")
        self.stale.append(text)

    def _complain(self, misfit: str) -> None:
        if not self.lenient:
            raise CassetteError(f"{self._who} {misfit}\n{_RECORD_AGAIN}")
        self.stale.append(misfit)

    @property
    def _who(self) -> str:
        return f"The cassette {self.cassette.origin} does not fit:"

    def _fill(self, piece: Piece, entry: Entry, session_id: str) -> Piece:
        """``piece`` with this machine's paths and this run's ids."""

        def change(text: str) -> str:
            return self._filled(self._ids[session_id].back(text))

        if isinstance(piece, Say | Think | Said):
            return msgspec.structs.replace(piece, text=change(piece.text))
        if isinstance(piece, Failure):
            return replace(piece, message=change(piece.message))
        if isinstance(piece, Called):
            arguments: Any = each_text(piece.arguments, change)
            plays = next((self._plays[i] for i, one in enumerate(self.cassette.entries) if one is entry), 1)
            return msgspec.structs.replace(piece, id=_again(piece.id, plays), arguments=arguments)
        return piece

    def _filled(self, text: str) -> str:
        """``text`` with folders and plan file put in, by the tokens of the cassette's form."""
        if not self.cassette.by_hand:
            return self.places.back(text)
        values = {"root": self.places.root, "home": self.places.home, "plan": self.places.plan}
        return _HAND_TOKEN.sub(lambda m: m[0][1:] if m[1] else values[m[2]], text)


def _bound(expected: Expectation, plays: int) -> Expectation:
    return replace(expected, call_id=_again(expected.call_id, plays))


def _again(call_id: str, plays: int) -> str:
    """The id of a call that is played for the ``plays``-th time: ids of calls are unique in a session."""
    return call_id if plays == 1 else f"{call_id}_{plays}"


def _pieces(piece: Piece) -> list[Piece]:
    """A long text in pieces of some words, as servers stream it; nothing else changes."""
    if not isinstance(piece, Say | Think) or len(piece.text) < 60:
        return [piece]
    parts = re.findall(r"(?:\S+\s*|\s+){1,8}", piece.text)
    if isinstance(piece, Say):
        return [Say(part) for part in parts]
    last = len(parts) - 1
    return [Think(part, piece.field, piece.opaque if index == last else {}) for index, part in enumerate(parts)]
