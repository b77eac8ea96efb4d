"""Windows and output limits: settings, else the server, else the table; and what the probe makes of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nbagent.config import ModelSettings
from nbagent.provider.limits import bare_name, from_entry, from_table, table
from nbagent.provider.openai import make_provider
from nbagent.provider.probe import probe
from nbagent.provider.provider import Limits
from nbagent.provider.settings import ServerSettings
from tests.server import ScriptedServer, call, fault, say, usage

Start = Callable[..., ScriptedServer]


async def limits(server: ScriptedServer, model: str, **options: Any) -> Limits:
    provider = make_provider(ServerSettings(**{"base_url": server.url, **options}))
    try:
        return await provider.limits(model)
    finally:
        await provider.close()


async def test_settings_then_server_then_table_then_unknown(server: Start) -> None:
    s = server([], models=[{"id": "gpt-4o", "max_model_len": 1000}, "gpt-4.1", "strange"])
    own = {"gpt-4o": ModelSettings(window=500, price_input=2.0, price_output=8.0)}
    assert await limits(s, "gpt-4o", models=own) == Limits(
        window=500, output=16384, vision=True, source="settings", price_input=2.0, price_output=8.0
    )
    assert (await limits(s, "gpt-4o")).window == 1000
    assert (await limits(s, "gpt-4o")).source == "server"
    assert (await limits(s, "gpt-4.1")).source == "table"
    assert await limits(s, "strange") == Limits()


async def test_vllm_and_llamacpp_and_routers(server: Start) -> None:
    s = server(
        [],
        models=[
            {"id": "q", "owned_by": "vllm", "max_model_len": 32768},
            {"id": "l.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072, "n_vocab": 5}},
            {
                "id": "x/r",
                "context_length": 200000,
                "architecture": {"input_modalities": ["text", "image"]},
                "top_provider": {"context_length": 100000, "max_completion_tokens": 64000},
            },
            {"id": "g", "context_window": 131072, "max_completion_tokens": 8192},
        ],
    )
    assert (await limits(s, "q")).window == 32768
    assert (await limits(s, "l.gguf")).window == 131072
    routed = await limits(s, "x/r")
    assert (routed.window, routed.output, routed.vision) == (200000, 64000, True)
    assert (await limits(s, "g")).output == 8192


async def test_llamacpp_tells_what_it_was_started_with(server: Start) -> None:
    entry = {"id": "l", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}
    s = server([], models=[entry], routes={"/props": {"default_generation_settings": {"n_ctx": 4096}}})
    assert (await limits(s, "l")).window == 4096


async def test_lm_studio_tells_what_it_has_loaded(server: Start) -> None:
    loaded = {"data": [{"id": "q", "loaded_context_length": 8192, "max_context_length": 32768}]}
    s = server([], models=[{"id": "q", "owned_by": "organization_owner"}], routes={"/api/v0/models": loaded})
    assert (await limits(s, "q")).window == 8192


async def test_ollamas_window_is_the_loaded_one_and_the_table_is_not_asked(server: Start) -> None:
    entry = {"id": "qwen3:8b", "owned_by": "library"}
    s = server([], models=[entry], routes={"/api/ps": {"models": []}})
    provider = make_provider(ServerSettings(base_url=s.url))
    assert (await provider.limits("qwen3:8b")).window == 0
    s.routes["/api/ps"] = {"models": [{"name": "qwen3:8b", "context_length": 4096}]}
    assert (await provider.limits("qwen3:8b")).window == 4096
    await provider.close()


async def test_a_server_that_cannot_be_asked_leaves_the_table() -> None:
    provider = make_provider(ServerSettings(base_url="http://127.0.0.1:9/v1"))
    assert (await provider.limits("gpt-4o")).window == 128000
    await provider.close()


async def test_the_list_is_asked_for_once(server: Start) -> None:
    s = server([], models=["a", "b"])
    provider = make_provider(ServerSettings(base_url=s.url))
    assert await provider.models() == ("a", "b")
    await provider.limits("a")
    await provider.limits("b")
    await provider.close()
    assert [seen.path for seen in s.seen] == ["/v1/models"]


@pytest.mark.parametrize("value", [None, [], {}, {"data": None}, {"data": [1, {"no": "id"}]}, "text"])
async def test_odd_lists(server: Start, value: Any) -> None:
    s = server([], routes={"/v1/models": value})
    provider = make_provider(ServerSettings(base_url=s.url))
    assert await provider.models() == ()
    assert (await provider.limits("gpt-4o")).source == "table"
    await provider.close()


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o-mini", 128000),
        ("openai/gpt-4o", 128000),
        ("GPT-4O", 128000),
        ("gpt-4", 8192),
        ("gpt-4-0613", 8192),
        ("gpt-4-turbo", 128000),
        ("gpt-4.1-nano", 1047576),
        ("gpt-5-mini", 400000),
        ("o3", 200000),
        ("o4-mini", 200000),
        ("anthropic/claude-sonnet-4.5", 200000),
        ("models/gemini-2.5-pro", 1048576),
        ("qwen2.5-coder:7b", 32768),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262144),
        ("llama3.1:8b", 131072),
        ("meta-llama/Llama-3.3-70B-Instruct", 131072),
        ("deepseek/deepseek-chat:free", 131072),
        ("mistral-large-latest", 131072),
    ],
)
def test_the_table(model: str, window: int) -> None:
    found = from_table(model)
    assert found is not None
    assert (found.window, found.source) == (window, "table")


def test_the_table_is_sound() -> None:
    for _, row in table():
        assert row.window > 0
        assert row.input <= row.window
        assert row.output <= row.window
    assert from_table("my-own-model") is None
    assert from_table("") is None
    assert bare_name("a/b/Name.gguf") == "name"


@pytest.mark.parametrize(
    "entry", [{}, {"max_model_len": None}, {"max_model_len": True}, {"meta": None}, {"max_model_len": -1}]
)
def test_entries_that_tell_nothing(entry: dict[str, Any]) -> None:
    assert from_entry(entry) is None


# The probe


async def test_a_good_server(server: Start) -> None:
    s = server(
        [[call("report", {"word": "ready"}), usage(90, 5)]],
        models=[{"id": "m", "owned_by": "vllm", "max_model_len": 32768}],
    )
    checks = {check.check: check for check in await probe(ServerSettings(base_url=s.url, api_key="sk-aaaaaaaa"), "m")}
    assert all(check.ok for check in checks.values()), checks
    assert set(checks) == {"connection", "key", "model", "streaming", "tools", "usage", "context"}
    assert "vLLM" in checks["connection"].text
    assert "32,768" in checks["context"].text
    assert "sk-aaaa" not in str(checks)
    assert len(s.requests) == 1


async def test_a_server_with_faults(server: Start) -> None:
    s = server(
        [[say("ready"), usage(30, 2)]],
        models=["other"],
        routes={"/api/version": {"version": "0.12"}, "/api/ps": {"models": [{"name": "m", "context_length": 4096}]}},
    )
    s.models = [{"id": "m", "owned_by": "library"}]
    checks = {check.check: check for check in await probe(ServerSettings(base_url=s.url), "m")}
    assert "Ollama" in checks["connection"].text
    assert checks["tools"].ok is False
    assert checks["context"].ok is False
    assert "OLLAMA_CONTEXT_LENGTH" in checks["context"].text


async def test_a_server_that_refuses_the_call(server: Start) -> None:
    s = server([fault(400, {"error": {"message": "m does not support tools"}})], models=["m"])
    checks = await probe(ServerSettings(base_url=s.url), "m")
    assert any(check.check == "answer" and check.ok is False and "tool calling" in check.text for check in checks)


async def test_no_model_wrong_key_nobody_and_no_address(server: Start) -> None:
    s = server([], models=["a", "b"], key="sk-right-0000")
    checks = await probe(ServerSettings(base_url=s.url, api_key="sk-right-0000"))
    assert checks[-1].check == "model"
    assert "a, b" in checks[-1].text
    checks = await probe(ServerSettings(base_url=s.url, api_key="sk-wrong-zebra"), "a")
    assert [(check.check, check.ok) for check in checks] == [("key", False)]
    assert "zebra" not in checks[0].text
    checks = await probe(ServerSettings(base_url="http://127.0.0.1:9"), "a")
    assert [(check.check, check.ok) for check in checks] == [("connection", False)]
    checks = await probe(ServerSettings(base_url="ftp://x"), "a")
    assert [(check.check, check.ok) for check in checks] == [("address", False)]
