"""One model server over HTTP, by the ``openai`` client: bodies out, events in. Its errors are translated here and nowhere else.

The client is made at the first request, on the running loop, and closed there; importing it takes a thread.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from nbagent.collector import paused
from nbagent.errors import ProviderError, StreamDropped
from nbagent.mask import Masker
from nbagent.provider.address import Address, parse_address, unreachable
from nbagent.provider.failure import Failure, read
from nbagent.provider.settings import ServerSettings
from nbagent.provider.sse import Event, EventReader, decode_json
from nbagent.provider.wire import encode_json

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def client_library() -> Any:
    """The ``openai`` package: hundreds of modules, whose values all live on."""
    with paused():
        return importlib.import_module("openai")


class Refusal(Exception):
    """The server answered with an error. Never leaves ``provider/``."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class Progress:
    """What the reader of a stream tells back: whether the answer is ``finished``, and ``over`` (the stream said so)."""

    finished = False
    over = False


class Endpoint:
    """Requests to one server. ``address`` moves when the server's paths turn out to be elsewhere.

    ``linger``: seconds to wait for usage and ``[DONE]`` once an answer is complete. ``drain``: seconds to wait for the
    end of the body after ``[DONE]``, so that the connection can be used again.
    """

    linger = 10.0
    drain = 0.25

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.address: Address = parse_address(settings.base_url)
        self.masker = Masker(
            [settings.api_key, *_secret_headers(settings.headers), *self.address.secrets()], shapes=True
        )
        self._client: AsyncOpenAI | None = None
        self._takes_content: bool | None = None
        self._transport_errors: tuple[type[Exception], ...] = ()

    async def client(self) -> AsyncOpenAI:
        if self._client is None:
            openai = await asyncio.to_thread(client_library)
            self._client = self._connect(openai)
        return self._client

    def _connect(self, openai: Any) -> AsyncOpenAI:
        settings, address = self.settings, self.address
        headers: dict[str, Any] = dict(settings.headers)
        if address.is_azure and settings.api_key:
            headers.setdefault("api-key", settings.api_key)
        timeout = openai.Timeout(settings.read_timeout, connect=settings.connect_timeout)
        # A proxy for the outside world knows nothing of servers on this machine.
        inner = openai.DefaultAsyncHttpxClient(timeout=timeout, trust_env=not address.local)
        self._transport_errors = _transport_errors(inner)
        client: AsyncOpenAI = openai.AsyncOpenAI(
            base_url=address.url,
            api_key=settings.api_key or "none",
            max_retries=0,
            timeout=timeout,
            default_headers=headers,
            default_query=dict(address.query) or None,
            http_client=inner,
        )
        return client

    def move(self, address: Address) -> None:
        """Go on at another base URL of the same server."""
        self.address = address
        if self._client is not None:
            self._client.base_url = address.url

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def events(self, path: str, body: Mapping[str, Any], progress: Progress) -> AsyncGenerator[list[Event], None]:
        """The events of one streamed answer, as they come. Raises ``Refusal`` for an HTTP error, ``ProviderError`` when
        the server cannot be reached and ``StreamDropped`` when the connection breaks before ``progress.finished``."""
        reader = EventReader()
        async with self._response(path, body) as response, aclosing(response.iter_bytes()) as pieces:
            while True:
                try:
                    data = await self._next(pieces, progress)
                except (StopAsyncIteration, TimeoutError):
                    break
                except self._transport_errors as error:
                    if progress.finished:
                        break
                    raise self._dropped(error) from None
                events = reader.feed(data)
                if events and not progress.over:
                    yield events
            if not progress.over and (events := reader.end()):
                yield events

    async def _next(self, pieces: AsyncIterator[bytes], progress: Progress) -> bytes:
        if not progress.finished:
            return await anext(pieces)
        async with asyncio.timeout(self.drain if progress.over else self.linger):
            return await anext(pieces)

    @asynccontextmanager
    async def _response(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        client = await self.client()
        openai = importlib.import_module("openai")
        more = {"stream": True, "extra_body": body, "extra_headers": self._without_key(openai)}
        if self._takes_content is None:
            self._takes_content = "content" in inspect.signature(client.post).parameters
        if self._takes_content:
            request: Any = self._posted(client, openai, path, getattr(body, "content", b"") or encode_json(body))
        elif path == "/responses":
            create: Any = client.responses.with_streaming_response.create
            request = create(model="", input="", **more)
        else:
            create = client.chat.completions.with_streaming_response.create
            request = create(model="", messages=[], **more)
        try:
            response = await request.__aenter__()
        except openai.APIStatusError as error:
            raise Refusal(await self._read_refusal(error)) from None
        except openai.APITimeoutError as error:
            raise self._timed_out(error) from None
        except openai.APIConnectionError as error:
            raise self._unreachable(error) from None
        except UnicodeError:
            raise ProviderError("The API key holds characters that no key has. Set OPENAI_API_KEY again.") from None
        try:
            yield response
        finally:
            await request.__aexit__(None, None, None)

    @asynccontextmanager
    async def _posted(self, client: Any, openai: Any, path: str, content: bytes) -> AsyncIterator[Any]:
        """The answer to a body that is JSON already: a long conversation is not encoded once more."""
        response = await client.post(
            path,
            cast_to=object,
            content=content,
            options={"headers": {"X-Stainless-Raw-Response": "stream", **self._without_key(openai)}},
            stream=True,
            stream_cls=openai.AsyncStream,
        )
        try:
            yield response
        finally:
            await response.close()

    def _without_key(self, openai: Any) -> dict[str, Any]:
        """Headers of a request to a server that has no key: the client would not send one without being told."""
        own = any(name.lower() == "authorization" for name in self.settings.headers)
        return {} if self.settings.api_key or own else {"Authorization": openai.Omit()}

    async def _read_refusal(self, error: Any) -> Failure:
        response = error.response
        try:
            data = await response.aread()
        except self._transport_errors:
            data = b""
        return read(error.status_code, data, dict(response.headers))

    async def get(self, url: str, within: float = 5.0) -> Any:
        """JSON at a path of the server (``/models``, or ``http…`` for one outside the base URL); None when there is none.

        Raises ``ProviderError`` when nothing answers and ``Refusal`` for 401 and 403.
        """
        client: Any = await self.client()
        openai = importlib.import_module("openai")
        headers = {"X-Stainless-Raw-Response": "true", **self._without_key(openai)}
        options = {"headers": headers, "timeout": within}
        try:
            response = await client.get(url, cast_to=object, options=options)
            return decode_json(response.http_response.content)
        except openai.APIStatusError as error:
            if error.status_code in (401, 403):
                raise Refusal(await self._read_refusal(error)) from None
            return None
        except openai.APITimeoutError as error:
            raise self._timed_out(error) from None
        except openai.APIConnectionError as error:
            raise self._unreachable(error) from None
        except ValueError:
            return None

    def _unreachable(self, error: Exception) -> ProviderError:
        cause = error.__cause__
        text = str(cause) if cause is not None else str(error)
        name = type(cause).__name__
        if name in ("RemoteProtocolError", "ReadError", "WriteError"):
            return StreamDropped(f"{self.address.host} closed the connection before it answered.")
        if name == "DecodingError":
            return ProviderError(f"{self.address.host} sent an answer that cannot be unpacked.", retryable=True)
        if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
            plain = self.address.shown.replace("https://", "http://", 1)
            return ProviderError(f"{self.address.host} does not speak HTTPS. Set OPENAI_BASE_URL to {plain}.")
        if "CERTIFICATE" in text.upper():
            return ProviderError(
                f"The certificate of {self.address.host} cannot be verified. Set SSL_CERT_FILE to your "
                "organisation's certificates, or check base_url."
            )
        why = "the name is not known" if "name" in text.lower() and "known" in text.lower() else _first_line(text)
        return ProviderError(self.masker.mask(unreachable(self.address, why)), retryable=True)

    def _timed_out(self, error: Exception) -> ProviderError:
        if type(error.__cause__).__name__ == "ConnectTimeout":
            return ProviderError(self.masker.mask(unreachable(self.address, "it did not connect")), retryable=True)
        seconds = self.settings.read_timeout
        return ProviderError(f"{self.address.host} said nothing for {seconds:g} seconds.", retryable=True)

    def _dropped(self, error: Exception) -> StreamDropped:
        if "Timeout" in type(error).__name__:
            seconds = self.settings.read_timeout
            return StreamDropped(
                f"{self.address.host} said nothing for {seconds:g} seconds in the middle of its answer."
            )
        return StreamDropped(f"The connection to {self.address.host} broke in the middle of the answer.")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no reason given"


def _transport_errors(client: Any) -> tuple[type[Exception], ...]:
    """The errors that the HTTP library beneath the client raises while a body is read."""
    base = next(kind for kind in type(client).__mro__ if kind.__name__ == "AsyncClient")
    library = importlib.import_module(base.__module__.partition(".")[0])
    return (library.HTTPError, library.StreamError)


def _secret_headers(headers: Mapping[str, str]) -> list[str]:
    secret = ("key", "token", "auth", "secret", "cookie")
    found = [value for name, value in headers.items() if any(word in name.lower() for word in secret)]
    return [*found, *(value.partition(" ")[2] for value in found)]
