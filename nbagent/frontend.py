"""Who shows events and answers asks: a notebook, a terminal, or nobody. Protocols and values; the drivers implement them.

Everything here is called on the run's thread, on the run's event loop. ``show`` must return at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nbagent.event import Event
from nbagent.permission.ask import Ask, Reply


@dataclass(frozen=True, slots=True)
class Question:
    """One field of a form. ``options``: (label, description) pairs; ``custom``: free text is welcome."""

    header: str
    question: str
    options: tuple[tuple[str, str], ...] = ()
    multiple: bool = False
    custom: bool = True


@dataclass(frozen=True, slots=True)
class Form:
    """Questions that are shown together and answered together."""

    id: str
    session_id: str
    questions: tuple[Question, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """A plan that waits for a person. ``hash`` is that of ``text``; ``previous``: the version reviewed before ("" for none)."""

    id: str
    session_id: str
    path: str
    text: str
    hash: str
    previous: str = ""
    warnings: tuple[str, ...] = ()
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person did with a review: it bears the review's ``id`` and ``hash``. ``text``: the plan as the person left it.

    ``build``: approve and go on; ``later``: approve, build in a later cell; ``revise``: keep planning; ``reject``: end the cell.
    """

    id: str
    hash: str
    action: Literal["build", "later", "revise", "reject"]
    text: str = ""
    comment: str = ""
    by: str = "person"


@dataclass(frozen=True, slots=True)
class CodeOutcome:
    """What running code in the user's namespace gave. ``images``: (mime, base64) pairs; ``error``: a tidy traceback or ""."""

    text: str
    error: str = ""
    images: tuple[tuple[str, str], ...] = ()
    timed_out: bool = False
    seconds: float = 0.0


class Namespace(Protocol):
    """The user's variables, for the ``python`` and ``inspect`` tools. Work happens on the kernel's main thread."""

    async def run(
        self, code: str, *, timeout: float, scratch: bool, on_output: Callable[[str], None]
    ) -> CodeOutcome: ...

    async def describe(self, names: tuple[str, ...], detail: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class CellResult:
    """Outcome of notebook operations: one line each, and the ids of new cells."""

    lines: tuple[str, ...]
    new_ids: tuple[str, ...] = ()


class OpenNotebook(Protocol):
    """The notebook that the run was started from, as its front end has it open (unsaved work included)."""

    @property
    def path(self) -> str:
        """Path relative to the root, or absolute outside it; "" when unknown."""
        ...

    @property
    def connected(self) -> bool:
        """Whether a front end can be asked to edit it now."""
        ...

    def open_paths(self) -> tuple[str, ...]:
        """Absolute paths of documents that are open with unsaved changes."""
        ...

    async def cells(self) -> list[dict[str, Any]]:
        """Cells as nbformat dicts (id, cell_type, source, outputs, metadata)."""
        ...

    async def apply(self, operations: list[dict[str, Any]]) -> CellResult: ...


class Frontend(Protocol):
    """Where a run is watched and decided."""

    @property
    def attended(self) -> bool:
        """Whether a person can answer. When False nothing below is called but ``show``."""
        ...

    @property
    def namespace(self) -> Namespace | None: ...

    @property
    def notebook(self) -> OpenNotebook | None: ...

    def show(self, event: Event) -> None: ...

    async def ask(self, ask: Ask) -> Reply: ...

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        """The answers, one tuple of chosen labels or typed text a question; None when the person declined."""
        ...

    async def review(self, review: Review) -> Verdict: ...


class Nobody:
    """A frontend without a person: shows through ``sink`` and answers nothing."""

    attended = False
    namespace: Namespace | None = None
    notebook: OpenNotebook | None = None

    def __init__(self, sink: Callable[[Event], None] | None = None) -> None:
        self._sink = sink

    def show(self, event: Event) -> None:
        if self._sink is not None:
            self._sink(event)

    async def ask(self, ask: Ask) -> Reply:
        return Reply("reject", feedback="nobody is there to answer", by="nobody")

    async def question(self, form: Form) -> tuple[tuple[str, ...], ...] | None:
        return None

    async def review(self, review: Review) -> Verdict:
        return Verdict(review.id, review.hash, "reject", by="nobody")
