"""What a server's refusal means: one plain sentence with the next step, and whether to try again.

Servers word the same trouble in a hundred ways; ``failure`` reads their bodies, ``translate`` knows what the trouble is.
Nothing here waits or sends; the key is masked in every sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.errors import ContextOverflow, ProviderError, StreamDropped
from nbagent.mask import Masker
from nbagent.provider.failure import Failure, read
from nbagent.provider.overflow import is_overflow, is_rate

LONGEST_WAIT = 600.0
RETRIED = {408, 409, 425, 429}
LONGEST_QUOTE = 300


@dataclass(frozen=True, slots=True)
class Context:
    """Where a request went, for the sentence. ``estimate``: tokens of the request as we count; ``window``: 0 unknown."""

    url: str = ""
    model: str = ""
    has_key: bool = True
    estimate: int = 0
    window: int = 0
    available: tuple[str, ...] = ()
    api: str = "chat"
    masker: Masker = field(default_factory=lambda: Masker(shapes=True))


def translate(failure: Failure, context: Context) -> ProviderError:
    """The error to raise for ``failure``."""
    sentence, retryable = _verdict(failure, context)
    overflow = is_overflow(failure.status, failure.text, failure.code, context.estimate, context.window)
    if overflow:
        return ContextOverflow(
            context.masker.mask(_overflow_sentence(failure, context)), status=failure.status, code=failure.code
        )
    if retryable and failure.retry_after is not None and failure.retry_after > LONGEST_WAIT:
        sentence = (
            f"{sentence} It asks to wait {_long(failure.retry_after)}, which is too long; run the cell again then."
        )
        retryable = False
    return ProviderError(
        context.masker.mask(sentence),
        retryable=retryable,
        retry_after=failure.retry_after,
        status=failure.status,
        code=context.masker.mask(failure.code),
    )


def in_stream(body: Any, context: Context | None = None) -> ProviderError:
    """The error for an ``error`` object that came inside a stream whose HTTP status was 200."""
    return translate(in_stream_failure(body), context or Context())


def in_stream_failure(body: Any) -> Failure:
    failure = read(None, body)
    if failure.status is None and not failure.page and not is_overflow(None, failure.text, failure.code):
        return replace(failure, status=_guess(failure))
    return failure


def unreadable(text: str, started: bool) -> Failure | StreamDropped:
    """What a body means that is neither events nor JSON. ``started``: something of the answer had come."""
    if started or text.lstrip().startswith(("{", "[")):
        return StreamDropped("The model server sent something unreadable in the middle of its answer.")
    return in_stream_failure(text)


def names_no_model(failure: Failure) -> bool:
    """Whether the trouble is a model that the server does not have."""
    return _no_model(failure, Context()) is not None


def _guess(failure: Failure) -> int:
    """The status that an error without one would have had."""
    words = failure.words
    if is_rate(words):
        return 429
    if "overloaded" in words or "unavailable" in words or "timeout" in words or "timed out" in words:
        return 503
    if "invalid_request" in words or "invalid request" in words or failure.param:
        return 400
    return 401 if "api key" in words or "api_key" in words or "authentication" in words else 500


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _quote(failure: Failure) -> str:
    """The server's own words, short, as a clause."""
    text = " ".join(_CONTROL.sub(" ", failure.text).split())
    if not text:
        return ""
    text = text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"
    return f' The server said: "{text}"' if text else ""


def _long(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def _overflow_sentence(failure: Failure, context: Context) -> str:
    known = f" of {context.window:,} tokens" if context.window else ""
    return f"The conversation is larger than the window{known} of {context.model or 'the model'}.{_quote(failure)}"


def _verdict(failure: Failure, context: Context) -> tuple[str, bool]:
    """The sentence and whether the same request may succeed later."""
    for judge in (_money, _rate, _access, _no_model, _no_tools, _filtered):
        sentence = judge(failure, context)
        if sentence is not None:
            return sentence, judge is _rate
    return _by_status(failure, context)


def _any(words: str, *phrases: str) -> bool:
    return any(phrase in words for phrase in phrases)


QUOTA = (
    "insufficient_quota",
    "exceeded your current quota",
    "insufficient balance",
    "billing_hard_limit",
    "insufficient credits",
    "requires more credits",
    "credit balance is too low",
    "payment required",
    "out of credits",
    "insufficient funds",
    "account is not active",
    "budget has been exceeded",
)


def _money(failure: Failure, context: Context) -> str | None:
    words = failure.words
    # Gemini says "exceeded your current quota" for limits a minute too, and then tells when to come back.
    passing = failure.retry_after is not None or _any(words, "per minute", "perminute")
    told = _any(words, *QUOTA) and (not passing or "insufficient_quota" in words)
    if failure.status != 402 and not told:
        return None
    return (
        f"The account at {_host(context)} has no credit or quota left. "
        f"Add credit there, or use another key or server.{_quote(failure)}"
    )


def _rate(failure: Failure, context: Context) -> str | None:
    if failure.status == 429 or (failure.status in (None, 400, 503) and is_rate(failure.words)):
        return f"{_host(context)} asks to slow down (too many requests or tokens).{_quote(failure)}"
    return None


BAD_KEY = re.compile(
    r"\b(invalid|incorrect|expired|revoked)( \w+)?[ _]api[ _]?key"
    r"|\bapi[ _]?key( provided)?( is| has)?( been)?[ _](not valid|invalid|incorrect|expired|revoked)"
)


def _access(failure: Failure, context: Context) -> str | None:
    words, host, quote = failure.words, _host(context), _quote(failure)
    if failure.status == 401 or (BAD_KEY.search(words) and failure.status in (400, 403, None)):
        if context.has_key:
            return (
                f"{host} does not accept the API key. Check OPENAI_API_KEY (or the variable named by "
                f"`api_key_env`), and that base_url is the server it belongs to.{quote}"
            )
        return (
            f"{host} wants an API key and none is set. "
            "Set OPENAI_API_KEY (or `api_key_env` in nbagent.toml) and run the cell again."
        )
    if failure.status != 403:
        return None
    if failure.page:
        return f"A proxy or firewall in front of {host} refused the request (HTTP 403).{quote}"
    if _any(words, "country", "region", "territory"):
        return f"{host} does not serve this country or region.{quote}"
    model = context.model or "this model"
    return f"{host} does not allow this key to use {model}. Choose another model or ask for access.{quote}"


NO_MODEL = re.compile(
    r"model_not_found|model not exist|no models? loaded|unknown[ _]model|invalid model name|not a valid model"
    r"|deploymentnotfound|deployment for this resource does not exist|invalid_model|model_not_supported"
    r"|models? [^.]{0,200}?(?:not found|does ?n[o']t exist|is not available|was not found|not supported)"
    r"|no endpoints found for|no healthy deployments|try pulling it|is not found for api version|model is not loaded"
)


def _no_model(failure: Failure, context: Context) -> str | None:
    words, quote = failure.words, _quote(failure)
    if failure.status not in (400, 403, 404, 422, None) or not NO_MODEL.search(words):
        return None
    if re.search(r"\b(tools?|images?|streaming|stream)\b|parameter", words):
        return None  # the model is there; it lacks something
    if _any(words, "no models loaded", "no model loaded", "model is not loaded"):
        return f"{_host(context)} has no model loaded. Load one there and run the cell again.{quote}"
    name = context.model or "by this name"
    sentence = f"{_host(context)} has no model {name!r}. Set NBAGENT_MODEL or `model` in nbagent.toml to one it has"
    if "try pulling" in words or ":11434" in context.url:
        sentence += f", or fetch it with `ollama pull {name}`"
    if not context.available:
        return f"{sentence}.{quote}"
    more = ", …" if len(context.available) > 12 else ""
    return f"{sentence}. It has: {', '.join(context.available[:12])}{more}."


_TOOLS = r"\b(tools?|tool[ _-]?(use|calling|calls?|choice)|function[ _-]?(calling|calls?)|functions)\b"
NO_TOOLS = re.compile(
    rf"(not support(ed)?|n't support|unsupported|no endpoints found that support)[^.]{{0,40}}?{_TOOLS}"
    rf"|{_TOOLS}[^.]{{0,30}}?(not (yet )?supported|unsupported|not available|not enabled)"
)


def _no_tools(failure: Failure, context: Context) -> str | None:
    words = failure.words
    if failure.status not in (400, 404, 422, 500, 501, None):
        return None
    start = "The server was started without tool calling."
    if _any(words, "enable-auto-tool-choice", "tool-call-parser"):
        return (
            f"{start} Start vLLM with --enable-auto-tool-choice --tool-call-parser NAME "
            "(the parser that fits the model), or choose another server."
        )
    if "--jinja" in words:
        return f"{start} Start llama.cpp's server with --jinja, or choose another server."
    if not NO_TOOLS.search(words) or "parallel" in words:
        return None
    model = context.model or "This model"
    return (
        f"{model} cannot call tools, which nbagent needs. Choose a model that supports tool calling.{_quote(failure)}"
    )


def _filtered(failure: Failure, context: Context) -> str | None:
    phrases = ("content_filter", "content management policy", "responsibleaipolicy", "content_policy")
    told = _any(failure.words, *phrases, "data_inspection_failed")
    if failure.status not in (400, 403, None) or not told:
        return None
    return f"The content filter of {_host(context)} refused the request. Word it differently.{_quote(failure)}"


def _by_status(failure: Failure, context: Context) -> tuple[str, bool]:
    status, quote, host = failure.status, _quote(failure), _host(context)
    check = "Check base_url: it is usually the address that ends in /v1."
    if failure.page and status in (None, 200, 404, 405):
        return f"{host} answered with a web page, not a model's answer. {check}", False
    if status in (404, 405, 410):
        if context.api == "responses":
            check = 'If the server has no Responses API, set `api = "chat"` in nbagent.toml.'
        return f"There is no such address at {context.url or host}. {check}{quote}", False
    if status in RETRIED:
        return f"{host} could not answer now (HTTP {status}).{quote}", True
    if status is not None and status >= 500:
        return f"{host} has trouble (HTTP {status}).{quote}", True
    if status == 413:
        advice = "Attach less, or compact the session with %agent compact."
        return f"The request is too large for {host} (HTTP 413). {advice}{quote}", False
    if status is None:
        return f"{host} reported an error.{quote}", True
    advice = "" if quote else " It gave no reason; the server's own log may."
    return f"{host} refused the request (HTTP {status}).{quote}{advice}", False


def _host(context: Context) -> str:
    match = re.match(r"https?://([^/]+)", context.url)
    return match[1].rpartition("@")[2] if match else "The model server"
