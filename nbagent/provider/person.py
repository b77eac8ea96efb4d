"""A person's answers on a cassette, and frontends that play and record them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, cast

from nbagent.errors import CassetteError
from nbagent.event import Event, FinishEvent, NoticeEvent
from nbagent.frontend import Form, Frontend, Namespace, OpenNotebook, Review, Verdict
from nbagent.permission.ask import Ask, Reply
from nbagent.provider.cassette import Cassette, PersonAnswer

BY = "cassette"
Choices = tuple[tuple[str, ...], ...]


class PersonScript:
    """The answers in a cassette, each given once: an ask's by its call where it is bound to one, else the next of its kind."""

    def __init__(self, cassette: Cassette, fill: Callable[[str], str]) -> None:
        self.attended = cassette.header.attended
        self._all = cassette.person
        self._left = list(cassette.person)
        self._fill = fill
        self._origin = cassette.origin

    def left(self) -> tuple[PersonAnswer, ...]:
        """Answers that nobody asked for yet."""
        return tuple(self._left)

    def restore(self, line: int) -> None:
        """A cell is run again: the answers from ``line`` on are there again."""
        again = [a for a in self._all if a.line >= line and a not in self._left]
        self._left = sorted([*self._left, *again], key=lambda answer: answer.line)

    def ask(self, ask: Ask) -> Reply | None:
        """The reply to an ask, None when there is none."""
        answer = self._take("ask", ask.call.id)
        if answer is None:
            return None
        value = cast(Literal["once", "always", "reject"], answer.value)
        return Reply(value, feedback=self._fill(answer.text), by=BY)

    def question(self, form: Form) -> tuple[Choices | None] | None:
        """The answers to a form in a tuple of one (its item is None for "declined"); None when there are none."""
        answer = self._take("question", "")
        if answer is None:
            return None
        return (None,) if answer.value == "declined" else (self._padded(answer, form),)

    def review(self, review: Review) -> Verdict | None:
        """The verdict on a plan, None when there is none. Raises ``CassetteError`` when an edit finds no place."""
        answer = self._take("review", "")
        if answer is None:
            return None
        action = cast(Literal["build", "later", "revise", "reject"], answer.value)
        text = self._edited(answer, review.text)
        return Verdict(review.id, review.hash, action, text=text, comment=self._fill(answer.text), by=BY)

    def same_ask(self, ask: Ask, reply: Reply) -> bool:
        """Whether this reply, of somebody who is there, leads where the cassette's leads, which is used up by it."""
        answer = self._take("ask", ask.call.id)
        if answer is None or "reject" not in (answer.value, reply.answer):
            return answer is not None
        return (reply.answer, reply.feedback) == (answer.value, self._fill(answer.text))

    def same_question(self, choices: Choices | None) -> bool:
        answer = self._take("question", "")
        if answer is None:
            return False
        mine = tuple(tuple(self._fill(one) for one in chosen) for chosen in answer.choices)
        return choices == (None if answer.value == "declined" else mine)

    def same_review(self, review: Review, verdict: Verdict) -> bool:
        answer = self._take("review", "")
        if answer is None:
            return False
        try:
            text = self._edited(answer, review.text)
        except CassetteError:
            return False
        given = (verdict.action, verdict.comment, verdict.text or review.text)
        return given == (answer.value, self._fill(answer.text), text)

    def _take(self, kind: str, call_id: str) -> PersonAnswer | None:
        mine = [a for a in self._left if a.kind == kind]
        bound = [a for a in mine if a.call_id and f"{call_id}_".startswith(f"{a.call_id}_")]
        free = mine if not call_id else [a for a in mine if not a.call_id]
        for answer in (*bound, *free):
            self._left.remove(answer)
            return answer
        return None

    def _padded(self, answer: PersonAnswer, form: Form) -> Choices:
        if len(answer.choices) != len(form.questions):
            asked, given = len(form.questions), len(answer.choices)
            raise CassetteError(
                f"The cassette {self._origin} answers {given} questions at line {answer.line}, but {asked} are asked."
            )
        return tuple(tuple(self._fill(one) for one in chosen) for chosen in answer.choices)

    def _edited(self, answer: PersonAnswer, text: str) -> str:
        text = self._fill(answer.edit) or text
        for old, new in answer.changes:
            if old not in text:
                raise CassetteError(
                    f"The cassette {self._origin} changes {old!r} in the plan at line {answer.line}, but the plan does not say that."
                )
            text = text.replace(old, self._fill(new), 1)
        return text


class Observer(Protocol):
    """Who wants to see the events of a run that is played, and holds the person's answers. ``stale``: what did not fit."""

    stale: list[str]

    def observe(self, event: Event) -> None: ...

    def person(self) -> PersonScript: ...

    def stray(self) -> None: ...


class _Around:
    """A frontend around ``inner``: what it does not do itself, the inner one does."""

    def __init__(self, inner: Frontend) -> None:
        self._inner = inner

    @property
    def attended(self) -> bool:
        return self._inner.attended

    @property
    def namespace(self) -> Namespace | None:
        return self._inner.namespace

    @property
    def notebook(self) -> OpenNotebook | None:
        return self._inner.notebook

    def __getattr__(self, name: str) -> Any:
        """Whatever else a driver's own frontend can do."""
        return getattr(self._inner, name)


class CassetteFrontend(_Around):
    """``inner`` while a cassette plays: the player sees the events and, with ``answers``, answers for the person.

    What the cassette does not answer goes to ``inner`` when a person is there, else it is a ``CassetteError``. The player is told
    when that person answers otherwise than the cassette's: from there on the run goes its own way.
    """

    def __init__(self, inner: Frontend, player: Observer, *, answers: bool = False) -> None:
        super().__init__(inner)
        self._player = player
        self._answers = answers
        self._told = len(player.stale)

    @property
    def attended(self) -> bool:
        """Whether somebody answers: a person, or the cassette where one was there when it was made."""
        return self._inner.attended or (self._answers and self._player.person().attended)

    def show(self, event: Event) -> None:
        self._player.observe(event)
        if isinstance(event, FinishEvent) and not event.parent:
            self._tell_stale(event.session)
        self._inner.show(event)

    def _tell_stale(self, session: str) -> None:
        """What was played although it did not fit stands in the record."""
        for reason in self._player.stale[self._told :]:
            text = f"The cassette was played although it did not fit: {reason}"
            self._inner.show(NoticeEvent(session=session, text=text, level="warning"))
        self._told = len(self._player.stale)

    async def ask(self, ask: Ask) -> Reply:
        reply = self._player.person().ask(ask) if self._answers else None
        if reply is not None:
            return reply
        self._need_person(f"the ask {ask.call.title!r} ({ask.rule.permission} {ask.rule.pattern})")
        reply = await self._inner.ask(ask)
        if self._inner.attended and not self._player.person().same_ask(ask, reply):
            self._player.stray()
        return reply

    async def question(self, form: Form) -> Choices | None:
        found = self._player.person().question(form) if self._answers else None
        if found is not None:
            return found[0]
        self._need_person(f"the question {form.questions[0].question!r}" if form.questions else "a question")
        choices = await self._inner.question(form)
        if self._inner.attended and not self._player.person().same_question(choices):
            self._player.stray()
        return choices

    async def review(self, review: Review) -> Verdict:
        verdict = self._player.person().review(review) if self._answers else None
        if verdict is not None:
            return verdict
        self._need_person(f"the review of the plan {review.path}")
        verdict = await self._inner.review(review)
        if self._inner.attended and not self._player.person().same_review(review, verdict):
            self._player.stray()
        return verdict

    def _need_person(self, what: str) -> None:
        if self._answers and not self._inner.attended:
            raise CassetteError(
                f"The cassette has no answer of the person to {what}. Add a person: line below the call."
            )


class PersonRecorder(Protocol):
    """Who wants to see the events of a run that is recorded, and writes the person's answers down."""

    attended: bool

    def observe(self, event: Event) -> None: ...

    def person(self, answer: PersonAnswer) -> None: ...


class RecordingFrontend(_Around):
    """``inner`` while a cassette is recorded: what the person answers is written down."""

    def __init__(self, inner: Frontend, recorder: PersonRecorder) -> None:
        super().__init__(inner)
        self._recorder = recorder
        recorder.attended = inner.attended

    def show(self, event: Event) -> None:
        self._recorder.observe(event)
        self._inner.show(event)

    async def ask(self, ask: Ask) -> Reply:
        reply = await self._inner.ask(ask)
        self._recorder.person(PersonAnswer("ask", reply.answer, reply.feedback, call_id=ask.call.id))
        return reply

    async def question(self, form: Form) -> Choices | None:
        choices = await self._inner.question(form)
        value = "declined" if choices is None else ""
        self._recorder.person(PersonAnswer("question", value, choices=choices or ()))
        return choices

    async def review(self, review: Review) -> Verdict:
        verdict = await self._inner.review(review)
        edit = verdict.text if verdict.text and verdict.text != review.text else ""
        self._recorder.person(PersonAnswer("review", verdict.action, verdict.comment, edit=edit))
        return verdict
