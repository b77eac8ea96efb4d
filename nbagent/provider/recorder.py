"""A provider that writes down what another one answers, through the very same path."""

from __future__ import annotations

import datetime
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from nbagent.errors import ProviderError
from nbagent.event import Event
from nbagent.provider.cassette import Cassette, Entry, Failure, Header, PersonAnswer, Piece
from nbagent.provider.cassette_file import write
from nbagent.provider.digest import ask_of, digest_of, prompt_text
from nbagent.provider.match import DEFAULTED
from nbagent.provider.places import Ids, Masker, Places, each_text
from nbagent.provider.provider import Called, Delta, Ended, Limits, Provider, Request, Said, Say, Think, Unsaid, Writing


class RecordingProvider:
    """Answers with ``inner`` and keeps the answers for ``path``, without secrets (``masker``) and home paths.

    ``finish`` writes everything kept so far, in one rename; ``abort`` forgets what came since the last ``finish``. A file that
    was there stays as it was until ``finish``. ``plan``, ``data`` and ``scratch`` as in ``CassettePlayer``. What a cassette need not
    hold (a title) goes by unrecorded.
    """

    def __init__(
        self,
        inner: Provider,
        path: Path,
        *,
        masker: Masker | None = None,
        root: Path | str | None = None,
        home: Path | str | None = None,
        plan: str = "",
        data: Path | str | None = None,
        scratch: Path | str | None = None,
        version: str = "",
        today: datetime.date | None = None,
    ) -> None:
        self.inner = inner
        self.path = path
        self.places = Places(root, home, plan, masker, data, scratch)
        self._version = version or _installed()
        self._today = today
        self._model = ""
        self._window = 0
        self.attended = True
        self._ids: dict[str, Ids] = {}
        self._entries: list[Entry] = []
        self._person: list[PersonAnswer] = []
        self._kept = (0, 0)

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def plan(self) -> str:
        return self.places.plan

    @plan.setter
    def plan(self, path: str) -> None:
        self.places.plan = path

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        if request.agent in DEFAULTED:
            async with aclosing(_closable(self.inner.stream(request))) as passing:
                async for delta in passing:
                    yield delta
            return
        self._model = self._model or self._shown(request.model)
        ids = self._ids.setdefault(request.session_id, Ids())
        self.places.see(prompt_text(request), request.system)
        asked = ask_of(request, self.places, ids)
        place = len(self._entries)
        self._entries.append(Entry((), request.agent, asked, digest_of(asked), line=self._next_line()))
        pieces: list[Piece] = []
        try:
            async with aclosing(_closable(self.inner.stream(request))) as deltas:
                async for delta in deltas:
                    pieces.append(delta)
                    yield delta
        except ProviderError as error:
            pieces.append(replace(Failure.of(error), message=self.places.out(str(error))))
            raise
        finally:
            self._entries[place] = replace(self._entries[place], answer=self._answer(pieces, ids))

    async def models(self) -> tuple[str, ...]:
        return await self.inner.models()

    async def limits(self, model: str) -> Limits:
        limits = await self.inner.limits(model)
        self._window = limits.window
        return limits

    async def close(self) -> None:
        await self.inner.close()

    def observe(self, event: Event) -> None:
        """Look at an event of the run that is recorded."""
        self.places.observe(event)

    def person(self, answer: PersonAnswer) -> None:
        """Write down what the person answered."""
        out = self.places.out
        choices = tuple(tuple(out(one) for one in chosen) for chosen in answer.choices)
        self._person.append(
            replace(answer, text=out(answer.text), edit=out(answer.edit), choices=choices, line=self._next_line())
        )

    def _shown(self, model: str) -> str:
        """A model's name; local servers call it by its file, and where that lies is nobody's business."""
        name = self.places.out(model)
        return re.split(r"[/\\]", name)[-1] if name.startswith("⟨") else name

    def _next_line(self) -> int:
        """Where in the cassette something stands that happens now."""
        return len(self._entries) + len(self._person) + 2

    def finish(self) -> None:
        """The run went well: write the cassette with all that was answered up to now."""
        self._entries = [entry for entry in self._entries if _complete(entry)]
        self._kept = (len(self._entries), len(self._person))
        today = self._today or datetime.datetime.now(datetime.UTC).date()
        header = Header(self._model or "unknown", "", today.isoformat(), self._version, self._window, self.attended)
        write(Cassette(header, tuple(self._entries), tuple(self._person)), self.path)

    def abort(self) -> None:
        """The run failed: forget what it answered."""
        entries, person = self._kept
        del self._entries[entries:]
        del self._person[person:]

    def _answer(self, pieces: list[Piece], ids: Ids) -> tuple[Piece, ...]:
        def change(text: str) -> str:
            return self.places.out(ids.out(text))

        return tuple(_out(piece, change, self.places.mask) for piece in _joined(pieces))


def _installed() -> str:
    """nbagent's version, "" when it is not installed."""
    try:
        return metadata.version("jupyter-nbagent")
    except metadata.PackageNotFoundError:
        return ""


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Pieces of one text put together: secrets and paths may lie across them, and the file is easier to read."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, Writing):
            continue
        if isinstance(piece, Unsaid):
            joined = [other for other in joined if not isinstance(other, Say)]
            continue
        if isinstance(piece, Say) and isinstance(last, Say):
            joined[-1] = Say(last.text + piece.text)
        elif isinstance(piece, Think) and isinstance(last, Think) and last.field == piece.field and not last.opaque:
            joined[-1] = Think(last.text + piece.text, piece.field, piece.opaque)
        else:
            joined.append(piece)
    return joined


def _out(piece: Piece, change: Callable[[str], str], mask: Callable[[str], str]) -> Piece:
    """``piece`` as it is written down. What a server wants back untouched is only masked."""
    if isinstance(piece, Think):
        opaque: Any = each_text(piece.opaque, mask)
        return msgspec.structs.replace(piece, text=change(piece.text), opaque=opaque)
    if isinstance(piece, Say | Said):
        return msgspec.structs.replace(piece, text=change(piece.text))
    if isinstance(piece, Called):
        arguments: Any = each_text(piece.arguments, change)
        extra: Any = each_text(piece.extra, mask)
        return msgspec.structs.replace(piece, arguments=arguments, extra=extra, raw=change(piece.raw))
    return piece


def _complete(entry: Entry) -> bool:
    """Whether an answer came to its end; one that a person stopped did not."""
    return bool(entry.answer) and isinstance(entry.answer[-1], Ended | Failure)


async def _closable(deltas: AsyncIterator[Delta]) -> Any:
    """Any iterator as a generator that can be closed, and closes what it iterates over."""
    try:
        async for delta in deltas:
            yield delta
    finally:
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()
