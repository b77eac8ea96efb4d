"""Is this server fit for nbagent? A few small questions, each with an answer a person can act on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from nbagent.errors import ConfigError, ProviderError
from nbagent.provider.endpoint import Refusal
from nbagent.provider.estimate import estimate_request
from nbagent.provider.openai import OpenAIProvider, make_provider
from nbagent.provider.provider import Called, Delta, Ended, Request, Said, Say, Text, Think, ToolSpec, Used, UserTurn
from nbagent.provider.quirks import Learned
from nbagent.provider.settings import ServerSettings

SMALL_WINDOW = 16_000
SYSTEM = "You are being tested. Do exactly what the user asks, with the tool you are given."
ASK = "Call the tool `report` with the argument word set to ready. Say nothing else."
REPORT = ToolSpec(
    "report",
    "Reports one word.",
    {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)


class Check(NamedTuple):
    """``check``: what was looked at; ``ok``: True, False, or None for a hint; ``text``: what was found and what to do."""

    check: str
    ok: bool | None
    text: str


class Answer:
    """What came of one tiny call."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.said: list[str] = []

    @property
    def pieces(self) -> int:
        return sum(isinstance(delta, (Say, Think)) for delta in self.deltas)

    @property
    def call(self) -> Called | None:
        return next((delta for delta in self.deltas if isinstance(delta, Called)), None)

    @property
    def used(self) -> int:
        return next((delta.tokens.input for delta in self.deltas if isinstance(delta, Used)), 0)


async def probe(settings: ServerSettings, model: str = "", learned: Learned | None = None) -> list[Check]:
    """Connect, name the server, look at the model, call a tool once. Never raises for what a server does."""
    try:
        provider = make_provider(settings, learned)
    except ConfigError as error:
        return [Check("address", False, str(error))]
    try:
        return [check async for check in _checks(provider, model)]
    finally:
        await provider.close()


async def _checks(provider: OpenAIProvider, model: str) -> AsyncIterator[Check]:
    address = provider.endpoint.address
    try:
        models = await provider.models()
    except ProviderError as error:
        refused = error.status in (401, 403)
        yield Check("key" if refused else "connection", False, str(error))
        return
    yield Check("connection", True, f"{await server_name(provider)} answers at {address.shown}.")
    yield _key(provider)
    yield _model(model, models)
    if not model:
        return
    async for check in _tiny_call(provider, model):
        yield check
    yield await _window(provider, model)


def _key(provider: OpenAIProvider) -> Check:
    if provider.settings.api_key:
        return Check("key", True, "An API key is set; it is not shown.")
    if provider.endpoint.address.local:
        return Check("key", True, "No API key is set; a server on this machine seldom wants one.")
    return Check("key", None, "No API key is set. If the server wants one, set OPENAI_API_KEY.")


def _model(model: str, models: tuple[str, ...]) -> Check:
    shown = ", ".join(models[:12]) + (", …" if len(models) > 12 else "")
    if not model:
        return Check("model", False, f"No model is chosen. Set NBAGENT_MODEL to one of: {shown or 'none are listed'}.")
    if model in models or f"{model}:latest" in models:
        return Check("model", True, f"The server has {model}.")
    if not models:
        return Check("model", None, f"The server lists no models, so {model} could not be looked up.")
    return Check("model", None, f"The server does not list {model}. It lists: {shown}.")


async def _tiny_call(provider: OpenAIProvider, model: str) -> AsyncIterator[Check]:
    request = Request(model=model, system=SYSTEM, turns=(UserTurn((Text(ASK),)),), tools=(REPORT,))
    answer = Answer()
    try:
        async for delta in provider.stream(request):
            (answer.said.append(delta.text) if isinstance(delta, Said) else answer.deltas.append(delta))
    except ProviderError as error:
        yield Check("answer", False, str(error))
        return
    ended = isinstance(answer.deltas[-1], Ended)
    yield Check("streaming", ended, "Answers stream." if ended else "The answer had no end.")
    yield _tools(answer, model)
    for text in answer.said:
        yield Check("note", None, text)
    yield _usage(answer.used, estimate_request(request))


def _tools(answer: Answer, model: str) -> Check:
    call = answer.call
    if call is None:
        return Check(
            "tools",
            False,
            f"{model} answered in words instead of calling a tool. Choose a model made for tool calling; "
            "for vLLM add --enable-auto-tool-choice and its parser, for llama.cpp --jinja.",
        )
    if call.problem or call.name != "report":
        return Check("tools", False, f"{model} called a tool, but not well: {call.problem or call.name}.")
    return Check("tools", True, f"{model} calls tools.")


def _usage(read: int, sent: int) -> Check:
    if not read:
        return Check("usage", None, "The server reports no token counts; nbagent estimates them.")
    return Check("usage", True, f"The server reports token counts ({read:,} read; about {sent:,} sent).")


async def _window(provider: OpenAIProvider, model: str) -> Check:
    limits = await provider.limits(model)
    if not limits.window:
        return Check(
            "context",
            None,
            f"The window of {model} is unknown, so long sessions are compacted only when the server refuses. "
            f'Set window under [models."{model}"] in nbagent.toml.',
        )
    text = f"The context in use is {limits.window:,} tokens (from: {limits.source})."
    if limits.window >= SMALL_WINDOW:
        return Check("context", True, text)
    return Check(
        "context",
        False,
        f"{text} That is small for an agent: give it {2 * SMALL_WINDOW:,} or more (OLLAMA_CONTEXT_LENGTH for Ollama, "
        "-c for llama.cpp, --max-model-len for vLLM, the context length setting in LM Studio).",
    )


async def server_name(provider: OpenAIProvider) -> str:
    """Which server this is, by what it answers to; "A model server" when it does not tell."""
    known = {
        "api.openai.com": "OpenAI",
        "openrouter.ai": "OpenRouter",
        "api.deepseek.com": "DeepSeek",
        "generativelanguage.googleapis.com": "Gemini",
        "api.mistral.ai": "Mistral",
        "api.groq.com": "Groq",
    }
    address = provider.endpoint.address
    host = address.host.partition(":")[0]
    if host in known:
        return known[host]
    if address.is_azure:
        return "Azure OpenAI"
    return await _by_owner(provider) or await _by_paths(provider) or "A model server"


async def _by_owner(provider: OpenAIProvider) -> str:
    owners = {"library": "Ollama", "vllm": "vLLM", "llamacpp": "llama.cpp's server", "sglang": "SGLang"}
    owners |= {"organization_owner": "LM Studio"}
    return next((owners[o] for e in await provider.entries() if (o := str(e.get("owned_by", ""))) in owners), "")


async def _by_paths(provider: OpenAIProvider) -> str:
    paths = {"/api/version": "Ollama", "/api/v0/models": "LM Studio", "/props": "llama.cpp's server"}
    paths |= {"/version": "vLLM", "/health/readiness": "LiteLLM"}
    for path, name in paths.items():
        try:
            value: Any = await provider.endpoint.get(provider.endpoint.address.root + path, within=3.0)
        except (ProviderError, Refusal):
            continue
        if isinstance(value, dict) and "error" not in value:
            return name
    return ""
