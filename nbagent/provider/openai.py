"""Any OpenAI-compatible server as a ``Provider``: one request, its lessons, and its answer as deltas."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from nbagent.errors import NbagentError, ProviderError, StreamDropped
from nbagent.provider.address import Address
from nbagent.provider.chat import ChatForm
from nbagent.provider.endpoint import Endpoint, Progress, Refusal
from nbagent.provider.errors import Context, in_stream_failure, names_no_model, translate, unreadable
from nbagent.provider.estimate import Estimates, estimate_request
from nbagent.provider.failure import Failure
from nbagent.provider.limits import find_limits
from nbagent.provider.provider import Delta, Limits, Request, Said, Used
from nbagent.provider.quirks import Learned, Memory, MemoryLearned, Quirks
from nbagent.provider.refusal import lesson
from nbagent.provider.responses import ResponsesForm
from nbagent.provider.settings import ServerSettings
from nbagent.provider.sse import Broken

MOST_PARAMETERS = 3
# The server read less than this share of what was sent, by our estimate: it cut the rest away in silence.
CUT_SHARE = 0.5
CUT_AT_LEAST = 1000


class Reader(Protocol):
    """Puts one answer together. ``finished``: complete; ``started``: something came; ``over``: the stream said it is."""

    over: bool

    @property
    def finished(self) -> bool: ...

    @property
    def started(self) -> bool: ...

    def feed(self, event: str, value: Any) -> None: ...

    def take(self) -> list[Delta]: ...

    def end(self) -> list[Delta]: ...

    def rest(self) -> list[Delta]:
        """What was held back when the stream broke: text that is to stay, no call."""
        ...


class Form(Protocol):
    """An API: where it is, how a request is written and how its answer is read."""

    path: str

    def body(self, request: Request, quirks: Quirks, options: Mapping[str, Any]) -> dict[str, Any]: ...

    def reader(self, request: Request, failure: Callable[[Any], Exception]) -> Reader: ...


class OpenAIProvider:
    """A model server that speaks OpenAI's API. Lives on one event loop; waiting and trying again is the caller's."""

    def __init__(self, settings: ServerSettings, learned: Learned | None = None) -> None:
        self.settings = settings
        self.endpoint = Endpoint(settings)
        self._memory = Memory(learned or MemoryLearned(), self.endpoint.address.host)
        modern = self.endpoint.address.is_openai
        self._form: Form = ResponsesForm() if settings.api == "responses" else ChatForm(modern)
        self._models: list[dict[str, Any]] | None = None
        self._limits: dict[str, Limits] = {}
        self._warned: set[str] = set()
        self._estimates = Estimates()
        self._written: Address | None = None

    @property
    def name(self) -> str:
        return self.endpoint.address.host

    def __repr__(self) -> str:
        return f"OpenAIProvider({self.endpoint.address.shown!r})"

    async def close(self) -> None:
        await self.endpoint.close()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """See ``Provider.stream``. At most three parameters are dropped or renamed for one request."""
        learned: Counter[str] = Counter()
        while True:
            quirks = self._quirks(request.model)
            options = self.settings.options.get(request.model, {})
            body = self._form.body(request, quirks, options)
            reader = self._form.reader(request, lambda value: Refusal(in_stream_failure(value)))
            try:
                async with aclosing(self._attempt(body, reader)) as batches:
                    async for batch in batches:
                        for delta in batch:
                            yield delta
                            if isinstance(delta, Used) and (warning := self._cut_silently(delta, request)):
                                yield warning
                return
            except Refusal as refusal:
                failure = refusal.failure
                said = None if reader.started else self._learn(failure, body, request.model, learned)
                if said is None:
                    raise await self._error(failure, request) from None
            for text in said:
                yield Said(self.endpoint.masker.mask(text))

    async def _attempt(self, body: Mapping[str, Any], reader: Reader) -> AsyncGenerator[list[Delta], None]:
        progress = Progress()
        try:
            async with aclosing(self.endpoint.events(self._form.path, body, progress)) as events:
                async for batch in events:
                    for event, value in batch:
                        if isinstance(value, Broken):
                            found = unreadable(value.text, reader.started)
                            raise found if isinstance(found, StreamDropped) else Refusal(found)
                        reader.feed(event, value)
                    progress.finished, progress.over = reader.finished, reader.over
                    if deltas := reader.take():
                        yield deltas
            last = reader.end()
        except (StreamDropped, Refusal):
            # What came with the very bytes that the error came with is on the screen too.
            if rest := reader.rest():
                yield rest
            raise
        yield last

    # Learning

    def _quirks(self, model: str) -> Quirks:
        quirks = self._memory.get(model)
        known = self.settings.models.get(model)
        if known is not None and known.vision is not None and quirks.vision is None:
            return Quirks(**{**_fields(quirks), "vision": known.vision})
        return quirks

    def _learn(self, failure: Failure, body: Mapping[str, Any], model: str, learned: Counter[str]) -> list[str] | None:
        """What to tell the person when the request may be sent again in another way; None when it may not."""
        if failure.status in (404, 405) and not names_no_model(failure) and self._elsewhere(learned):
            return []
        found = lesson(failure, body, self._quirks(model), model)
        if found is None or learned[found.kind] >= (MOST_PARAMETERS if found.kind == "parameter" else 1):
            return None
        learned[found.kind] += 1
        self._memory.put(model, found.quirks, found.lasting)
        return [found.said] if found.said else []

    def _elsewhere(self, learned: Counter[str]) -> bool:
        """Whether to look for the server's paths at another base URL; back to the first one when they were not there."""
        learned["address"] += 1
        others = self.endpoint.address.others()
        if learned["address"] == 1 and others:
            self._written = self.endpoint.address
            self.endpoint.move(others[0])
            self._models = None
            return True
        if learned["address"] == 2 and self._written is not None:
            self.endpoint.move(self._written)
        return False

    async def _error(self, failure: Failure, request: Request) -> NbagentError:
        available: tuple[str, ...] = ()
        if names_no_model(failure):
            try:
                available = await self.models()
            except ProviderError:
                pass
        return translate(failure, await self._context(failure, request, available))

    async def _context(self, failure: Failure, request: Request, available: tuple[str, ...]) -> Context:
        known = self._limits.get(request.model)
        if known is None and failure.status in (400, 413) and not failure.text.strip():
            known = await self.limits(request.model)  # only then does the window decide
        return Context(
            url=self.endpoint.address.shown,
            api=self.settings.api,
            model=request.model,
            has_key=bool(self.settings.api_key),
            estimate=estimate_request(request),
            window=known.window if known else 0,
            available=available,
            masker=self.endpoint.masker,
        )

    def _cut_silently(self, used: Used, request: Request) -> Said | None:
        """A warning, once for a model, when the server read far less than was sent."""
        read = max(used.tokens.input, used.tokens.cache_read)
        if request.model in self._warned or read < 256:
            return None
        sent = self._estimates.request(request)
        if read >= CUT_SHARE * sent or sent - read < CUT_AT_LEAST:
            return None
        self._warned.add(request.model)
        return Said(
            f"{self.name} read only {read:,} of about {sent:,} tokens, so it cut the conversation in silence. "
            f"Give {request.model} a larger context: OLLAMA_CONTEXT_LENGTH (or num_ctx) for Ollama, -c for llama.cpp, "
            "the context length setting in LM Studio.",
            level="warning",
        )

    # Models

    async def models(self) -> tuple[str, ...]:
        """Ids of the models the server offers. Raises ``ProviderError`` when it cannot be asked."""
        entries = await self.entries()
        return tuple(str(entry["id"]) for entry in entries if entry.get("id"))

    async def entries(self) -> list[dict[str, Any]]:
        """What ``/models`` lists, asked once."""
        if self._models is None:
            self._models = await self._fetch_models()
        return self._models

    async def _fetch_models(self) -> list[dict[str, Any]]:
        try:
            value = await self.endpoint.get("/models")
        except Refusal as refusal:
            context = Context(
                url=self.endpoint.address.shown,
                api=self.settings.api,
                has_key=bool(self.settings.api_key),
                masker=self.endpoint.masker,
            )
            raise translate(refusal.failure, context) from None
        data = value.get("data") if isinstance(value, dict) else value
        if not isinstance(data, list) and isinstance(value, dict):
            data = value.get("models")
        return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []

    async def limits(self, model: str) -> Limits:
        """Window and output limit: settings, else the server, else the table, else unknown."""
        if model not in self._limits:
            entries: list[dict[str, Any]] | None = None
            try:
                entries = await self.entries()
            except ProviderError:
                pass
            found, final = await find_limits(self.endpoint, entries, model)
            if not final:
                return found
            self._limits[model] = found
        return self._limits[model]


def _fields(quirks: Quirks) -> dict[str, Any]:
    return {name: getattr(quirks, name) for name in quirks.__struct_fields__}


def make_provider(settings: ServerSettings, learned: Learned | None = None) -> OpenAIProvider:
    """A provider for the server that ``settings`` name. Nothing is imported or sent before the first request.

    ``learned``: where what a server refuses is remembered. Raises ``ConfigError`` for an address that is none.
    """
    return OpenAIProvider(settings, learned)
