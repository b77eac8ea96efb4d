"""A person with a script, in front of a runtime in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbagent.config import LimitSettings
from nbagent.event import AskEvent, Event, NoticeEvent, PlanEvent, TextEvent, ToolEvent
from nbagent.frontend import Form, Namespace, OpenNotebook, Review, Verdict
from nbagent.permission.ask import Ask, Reply
from nbagent.runtime import Runtime
from nbagent.session.run import Options
from nbagent.session.session import Prompt, Result
from tests.project import Project
from tests.server import ScriptedServer


class Person:
    """Answers asks, forms and reviews from lists of functions, in order; what is not scripted is a test failure."""

    attended = True
    namespace: Namespace | None = None
    notebook: OpenNotebook | None = None

    def __init__(self, *, asks: Any = (), reviews: Any = (), questions: Any = ()) -> None:
        self._asks = list(asks)
        self._reviews = list(reviews)
        self._questions = list(questions)
        self.events: list[Event] = []
        self.asked: list[Ask] = []
        self.reviewed: list[Review] = []
        self.watch: Callable[[Event], None] = lambda event: None

    def show(self, event: Event) -> None:
        self.events.append(event)
        self.watch(event)

    async def ask(self, ask: Ask) -> Reply:
        self.asked.append(ask)
        return await self._next(self._asks, ask, "ask")

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        return await self._next(self._questions, form, "form")

    async def review(self, review: Review) -> Verdict:
        self.reviewed.append(review)
        return await self._next(self._reviews, review, "review")

    async def _next(self, script: list[Any], value: Any, kind: str) -> Any:
        assert script, f"nobody expected this {kind}: {value}"
        step = script.pop(0)
        answer = step(value) if callable(step) else step
        return await answer if asyncio.iscoroutine(answer) else answer

    # what was seen

    def tools(self, name: str = "", *states: str) -> list[ToolEvent]:
        wanted = states or ("completed", "error")
        return [
            e for e in self.events if isinstance(e, ToolEvent) and e.state in wanted and (not name or e.name == name)
        ]

    def plans(self, status: str) -> list[PlanEvent]:
        return [e for e in self.events if isinstance(e, PlanEvent) and e.status == status]

    def asks(self) -> list[AskEvent]:
        return [e for e in self.events if isinstance(e, AskEvent)]

    def texts(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, TextEvent)]

    def notices(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, NoticeEvent)]


def once(ask: Ask) -> Reply:
    return Reply("once")


def always(ask: Ask) -> Reply:
    return Reply("always")


def reject(feedback: str = "") -> Callable[[Ask], Reply]:
    return lambda ask: Reply("reject", feedback=feedback)


def verdict(action: Any, *, comment: str = "", text: str | None = None) -> Callable[[Review], Verdict]:
    return lambda review: Verdict(
        review.id, review.hash, action, text=review.text if text is None else text, comment=comment
    )


class Desk:
    """A runtime at work in a project, cell after cell."""

    def __init__(self, project: Project, server: ScriptedServer, **options: Any) -> None:
        project.use(server)
        self.project = project
        self.server = server
        self.runtime = Runtime.open(project.root, environment=project.environment, **options)

    def cell(self, agent: str, text: str, person: Any, *, seconds: float = 30, **prompt: Any) -> Result:
        """Run one cell to its end."""
        prompt.setdefault("options", Options(limits=self.runtime.config.limits))
        prompt.setdefault("carry_out", agent == "build" and not text)
        result = self.runtime.start(Prompt(text, agent, **prompt), person).done.result(seconds)
        assert result is not None
        return result

    def close(self) -> None:
        self.runtime.close()


@contextmanager
def at_work(project: Project, server: ScriptedServer, **options: Any) -> Iterator[Desk]:
    desk = Desk(project, server, **options)
    desk.runtime.resources.patience = 0.01
    try:
        yield desk
    finally:
        desk.close()


def limits(**values: Any) -> Options:
    return Options(limits=LimitSettings(**values))


def plan_of(project: Project) -> Path:
    (plan,) = project.plans
    return plan
