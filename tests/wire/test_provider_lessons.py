"""What a server refuses is learned once: the request goes again in another way, and every later one from the start."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nbagent.config import ModelSettings
from nbagent.errors import ContextOverflow, ProviderError
from nbagent.provider.openai import OpenAIProvider, make_provider
from nbagent.provider.provider import (
    AssistantTurn,
    CallTurn,
    Delta,
    Image,
    Request,
    ResultTurn,
    Said,
    Text,
    Thought,
    ToolSpec,
    UserTurn,
)
from nbagent.provider.quirks import MemoryLearned
from nbagent.provider.settings import ServerSettings
from tests.server import ScriptedServer, fault, frame, say, think
from tests.streams import summed

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})
ASK = UserTurn((Text("hi"),))
FULL = Request(
    model="m", system="s", turns=(ASK,), tools=(READ,), temperature=0.5, effort="high", max_output=999, session_id="x"
)
DOT = Image(
    "image/png",
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "dot.png",
)
Start = Callable[..., ScriptedServer]


def connect(server: ScriptedServer, **options: Any) -> OpenAIProvider:
    learned = options.pop("learned", None)
    return make_provider(ServerSettings(**{"base_url": server.url, "api_key": "sk-aaaaaaaa", **options}), learned)


async def answer(provider: OpenAIProvider, request: Request = FULL) -> list[Delta]:
    return [delta async for delta in provider.stream(request)]


def refuses(text: str, status: int = 400, **more: Any) -> Any:
    return fault(status, {"error": {"message": text, "type": "invalid_request_error", **more}})


TOO_LARGE = (
    "'max_tokens' or 'max_completion_tokens' is too large: 999. This model's maximum context length is 900 tokens "
    "and your request has 100 input tokens (999 > 900 - 100)."
)
REFUSALS = [
    (
        "temperature",
        refuses("Unsupported value: 'temperature' does not support 0.5 with this model.", param="temperature"),
    ),
    ("temperature", refuses("`temperature` is deprecated for this model.")),
    ("max_tokens", refuses("max_tokens is too large: 999. This model supports at most 500 completion tokens")),
    (
        "max_tokens",
        refuses(TOO_LARGE),
    ),
    ("reasoning_effort", refuses("Unrecognized request argument supplied: reasoning_effort")),
    ("reasoning_effort", refuses('"m" does not support thinking')),
    ("reasoning_effort", refuses("Unknown parameter: 'reasoning.effort'", param="reasoning.effort")),
    (
        "stream_options",
        fault(
            422,
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "stream_options"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
        ),
    ),
    (
        "stream_options",
        fault(
            400,
            [
                {
                    "error": {
                        "code": 400,
                        "message": 'Invalid JSON payload received. Unknown name "stream_options": Cannot find field.',
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ],
        ),
    ),
]


@pytest.mark.parametrize(("name", "refusal"), REFUSALS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(REFUSALS)])
async def test_a_refused_parameter_is_dropped_and_remembered(server: Start, name: str, refusal: Any) -> None:
    s = server([refusal, [say("ok")], [say("again")], [say("other provider")]])
    learned = MemoryLearned()
    provider = connect(s, learned=learned)
    got = await answer(provider)
    assert summed(got).text == "ok"
    assert next(delta.text for delta in got if isinstance(delta, Said)).startswith("m does not take")
    assert not any(isinstance(delta, Said) for delta in await answer(provider))
    await provider.close()
    other = connect(s, learned=learned)
    await answer(other)
    await other.close()
    assert name in s.requests[0]
    assert [name in body for body in s.requests] == [True, False, False, False]
    before, after = s.requests[:2]
    assert {k: v for k, v in before.items() if k != name} == after


async def test_max_tokens_is_renamed(server: Start) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    s = server([refuses(text, param="max_tokens", code="unsupported_parameter"), [say("ok")], [say("ok")]])
    provider = connect(s)
    await answer(provider)
    await answer(provider)
    await provider.close()
    assert all(body["max_completion_tokens"] == 999 and "max_tokens" not in body for body in s.requests[1:])


async def test_and_back_again_but_not_for_ever(server: Start) -> None:
    s = server(
        [
            refuses("Use 'max_completion_tokens' instead of 'max_tokens'.", param="max_tokens"),
            refuses("Unknown parameter max_completion_tokens, use max_tokens instead"),
            [say("ok")],
        ]
    )
    provider = connect(s)
    await answer(provider)
    await provider.close()
    assert not {"max_tokens", "max_completion_tokens"} & s.requests[2].keys()


async def test_at_most_three_parameters(server: Start) -> None:
    names = ["temperature", "max_tokens", "reasoning_effort", "stream_options"]
    s = server([refuses(f"Unsupported parameter: {name}") for name in names])
    provider = connect(s)
    with pytest.raises(ProviderError, match="stream_options"):
        await answer(provider)
    await provider.close()
    assert len(s.requests) == 4


async def test_a_parameter_from_the_settings_may_be_refused_too(server: Start) -> None:
    s = server([refuses("Unknown parameter: 'top_p'."), [say("ok")]])
    provider = connect(s, options={"m": {"top_p": 0.9}})
    await answer(provider)
    await provider.close()
    assert s.requests[0]["top_p"] == 0.9
    assert "top_p" not in s.requests[1]


@pytest.mark.parametrize(
    "refusal",
    [
        refuses("Invalid schema for function 'read'"),
        refuses("The messages are odd"),
        fault(400, "some text that names no parameter"),
        fault(500, {"error": {"message": "temperature of the machine is too high"}}),
        fault(429, {"error": {"message": "max_tokens per minute"}}),
        refuses("the temperature is too hot", status=401),
    ],
    ids=["schema", "messages", "text", "500", "429", "401"],
)
async def test_other_refusals_teach_nothing(server: Start, refusal: Any) -> None:
    s = server([refusal])
    provider = connect(s)
    with pytest.raises(ProviderError):
        await answer(provider)
    await provider.close()
    assert len(s.requests) == 1


async def test_overflow_is_not_mistaken_for_a_parameter(server: Start) -> None:
    s = server(
        [refuses("This model's maximum context length is 8192 tokens. Please reduce the length of the messages.")]
    )
    provider = connect(s)
    with pytest.raises(ContextOverflow):
        await answer(provider)
    await provider.close()
    assert len(s.requests) == 1


async def test_a_refusal_inside_a_200_teaches_too(server: Start) -> None:
    bad = frame({"error": {"message": "Unsupported parameter: temperature", "code": 400, "param": "temperature"}})
    s = server([[bad], [say("ok")]])
    provider = connect(s)
    assert summed(await answer(provider)).text == "ok"
    await provider.close()
    assert "temperature" not in s.requests[1]


# Tools


@pytest.mark.parametrize(
    ("text", "status", "hint"),
    [
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            400,
            "--tool-call-parser",
        ),
        ("registry.ollama.ai/library/x does not support tools", 400, "supports tool calling"),
        ("tools param requires --jinja flag", 500, "--jinja"),
        ("No endpoints found that support tool use.", 404, "supports tool calling"),
        ("Function calling is not enabled for this model", 400, "supports tool calling"),
    ],
)
async def test_tools_unsupported_is_one_request_and_a_cure(server: Start, text: str, status: int, hint: str) -> None:
    s = server([refuses(text, status)])
    provider = connect(s)
    with pytest.raises(ProviderError, match=hint) as caught:
        await answer(provider)
    await provider.close()
    assert not caught.value.retryable
    assert len(s.requests) == 1
    assert "tool_choice" not in s.requests[0]


# Reasoning


def history(*thoughts: Thought) -> Request:
    call = CallTurn("c1", "read", {"path": "a"})
    turns = (ASK, AssistantTurn("I look.", thoughts, (call,)), ResultTurn("c1", "read", (Text("data"),)))
    return msgspec.structs.replace(FULL, turns=turns)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_in_the_field_it_came_in(server: Start, field: str) -> None:
    s = server([[think("let me ", field), think("see", field), say("x")], [say("y")]])
    provider = connect(s)
    thought = summed(await answer(provider))
    await answer(provider, history(Thought(thought.reasoning, thought.field)))
    await provider.close()
    assert s.requests[1]["messages"][2][field] == "let me see"


@pytest.mark.parametrize(
    "refusal",
    [
        refuses(
            "'messages.2' : for 'role:assistant' the following must be satisfied"
            "[('messages.2' : property 'reasoning_content' is unsupported)]"
        ),
        fault(
            422,
            {
                "detail": [
                    {"loc": ["body", "messages", 2, "reasoning_content"], "msg": "Extra inputs are not permitted"}
                ]
            },
        ),
        refuses("messages[2]: unknown field `reasoning_content`"),
        refuses("The reasoning_content field is not allowed in the input messages"),
    ],
)
async def test_a_server_that_refuses_reasoning_is_asked_without(server: Start, refusal: Any) -> None:
    s = server([refusal, [say("ok")], [say("ok")]])
    provider = connect(s)
    request = history(Thought("hm", "reasoning_content"))
    await answer(provider, request)
    await answer(provider, request)
    await provider.close()
    assert ["reasoning_content" in body["messages"][2] for body in s.requests] == [True, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        "Missing `reasoning_content` field in the assistant message at message index 2",
    ],
)
async def test_a_server_that_needs_reasoning_gets_it(server: Start, text: str) -> None:
    s = server([refuses(text), [say("ok")], [say("ok")]])
    provider = connect(s)
    request = history(Thought("hm", ""))
    await answer(provider, request)
    await answer(provider, request)
    await provider.close()
    assert [body["messages"][2].get("reasoning_content") for body in s.requests] == [None, "hm", "hm"]


async def test_opaque_reasoning_goes_back_whole(server: Start) -> None:
    details = [{"type": "reasoning.encrypted", "data": "zz", "index": 0}]
    s = server([[say("ok")]])
    provider = connect(s)
    await answer(
        provider, history(Thought("hm", "reasoning"), Thought("", "reasoning", {"reasoning_details": details}))
    )
    await provider.close()
    message = s.requests[0]["messages"][2]
    assert (message["reasoning"], message["reasoning_details"]) == ("hm", details)


async def test_opaque_fields_of_calls_go_back(server: Start) -> None:
    s = server([[say("ok")]])
    provider = connect(s)
    extra = {"extra_content": {"google": {"thought_signature": "abc"}}}
    turns = (ASK, AssistantTurn(calls=(CallTurn("c1", "read", {}, extra),)), ResultTurn("c1", "read", (Text("x"),)))
    await answer(provider, msgspec.structs.replace(FULL, turns=turns))
    await provider.close()
    assert s.requests[0]["messages"][2]["tool_calls"][0]["extra_content"] == extra["extra_content"]


async def test_reasoning_items_of_the_responses_api(server: Start) -> None:
    s = server(
        [
            [think("plan", opaque="SEALED"), say("x")],
            [say("y")],
            refuses("The encrypted content gAAA could not be verified.", code="invalid_encrypted_content"),
            [say("z")],
        ]
    )
    provider = connect(s, api="responses")
    result = summed(await answer(provider))
    item = result.opaque["reasoning_item"]
    assert item["encrypted_content"] == "SEALED"
    request = history(Thought("plan", "", {"reasoning_item": item}))
    await answer(provider, request)
    await answer(provider, request)
    await provider.close()
    assert s.requests[1]["input"][1] == item
    assert s.requests[2]["input"][1] == item
    assert not any(entry.get("type") == "reasoning" for entry in s.requests[3]["input"])


async def test_a_model_without_sealed_reasoning(server: Start) -> None:
    s = server([refuses("Encrypted content is not supported with this model.", param="include"), [say("ok")]])
    provider = connect(s, api="responses")
    assert summed(await answer(provider)).text == "ok"
    await provider.close()
    assert "include" not in s.requests[1]


# Pictures

SEEN = msgspec.structs.replace(
    FULL,
    turns=(
        UserTurn((Text("what is this?"), DOT)),
        AssistantTurn(calls=(CallTurn("c1", "read", {"path": "plot.png"}), CallTurn("c2", "read", {"path": "b"}))),
        ResultTurn("c1", "read", (Text("a plot"), DOT)),
        ResultTurn("c2", "read", (Text("b"),)),
    ),
)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_pictures_go_to_models_that_see(server: Start, api: str) -> None:
    s = server([[say("a dot")]])
    provider = connect(s, api=api)
    await answer(provider, SEEN)
    await provider.close()
    entries = s.requests[0]["messages"][1:] if api == "chat" else s.requests[0]["input"]
    assert [entry.get("role", entry.get("type")) for entry in (entries[0], entries[-1])] == ["user", "user"]
    assert json.dumps(entries[0]).count("data:image/png;base64,iVBOR") == 1
    assert json.dumps(entries[-1]).count("data:image/png;base64,iVBOR") == 1
    assert json.dumps(entries[1:-1]).count("base64") == 0


@pytest.mark.parametrize(
    "refusal",
    [
        refuses("Invalid content type. image_url is only supported by certain models."),
        refuses("Failed to deserialize: messages[1]: unknown variant `image_url`, expected `text`", 422),
        fault(
            500,
            {
                "error": {
                    "code": 500,
                    "message": "image input is not supported - hint: you may need to provide the mmproj",
                }
            },
        ),
        fault(404, {"error": {"message": "No endpoints found that support image input", "code": 404}}),
        refuses("At most 0 image(s) may be provided in one request."),
        refuses("m is not a multimodal model"),
        refuses("messages.1.content: Input should be a valid string"),
    ],
)
async def test_a_model_that_does_not_see_gets_a_size_note(server: Start, refusal: Any) -> None:
    s = server([refusal, [say("ok")], [say("ok")], [say("ok")]])
    learned = MemoryLearned()
    provider = connect(s, learned=learned)
    got = await answer(provider, SEEN)
    assert "does not see" in next(delta.text for delta in got if isinstance(delta, Said))
    await answer(provider, SEEN)
    await provider.close()
    other = connect(s, learned=learned)
    await answer(other, SEEN)
    await other.close()
    assert ["base64" in json.dumps(body) for body in s.requests] == [True, False, False, False]
    text = json.dumps(s.requests[1])
    assert text.count("[picture: dot.png, image/png, 7") == 2
    assert [m["role"] for m in s.requests[1]["messages"]] == ["system", "user", "assistant", "tool", "tool"]


async def test_settings_say_that_a_model_does_not_see(server: Start) -> None:
    s = server([[say("ok")]])
    provider = connect(s, models={"m": ModelSettings(vision=False)})
    await answer(provider, SEEN)
    await provider.close()
    assert "base64" not in json.dumps(s.requests[0])


async def test_a_bad_picture_is_left_out_but_the_model_still_sees(server: Start) -> None:
    s = server([refuses("image exceeds 5 MB maximum: 6000000 bytes"), [say("ok")], [say("ok")]])
    learned = MemoryLearned()
    provider = connect(s, learned=learned)
    await answer(provider, SEEN)
    await provider.close()
    other = connect(s, learned=learned)
    await answer(other, SEEN)
    await other.close()
    assert ["base64" in json.dumps(body) for body in s.requests] == [True, False, True]


# Other ways of servers


async def test_ids_of_nine_letters(server: Start) -> None:
    s = server([refuses("Tool call id was call_abc123 but must be a-z, A-Z, 0-9, with a length of 9."), [say("ok")]])
    provider = connect(s)
    turns = (
        ASK,
        AssistantTurn(calls=(CallTurn("call_abc123", "read", {}),)),
        ResultTurn("call_abc123", "read", (Text("x"),)),
    )
    await answer(provider, msgspec.structs.replace(FULL, turns=turns))
    await provider.close()
    message, result = s.requests[1]["messages"][2:]
    assert len(message["tool_calls"][0]["id"]) == 9
    assert message["tool_calls"][0]["id"] == result["tool_call_id"]


async def test_content_that_may_not_be_null(server: Start) -> None:
    s = server([refuses("messages.2.content: none is not an allowed value", 422), [say("ok")]])
    provider = connect(s)
    turns = (ASK, AssistantTurn(calls=(CallTurn("c", "read", {}),)), ResultTurn("c", "read", (Text("x"),)))
    await answer(provider, msgspec.structs.replace(FULL, turns=turns))
    await provider.close()
    assert [body["messages"][2]["content"] for body in s.requests] == [None, ""]


async def test_no_system_role() -> None:
    with ScriptedServer([refuses("System role not supported"), [say("ok")]], strict=False) as s:
        provider = connect(s)
        await answer(provider)
        await provider.close()
        assert s.requests[1]["messages"] == [{"role": "user", "content": "s\n\nhi"}]


async def test_no_streaming(server: Start) -> None:
    text = "Your organization must be verified to stream this model."
    s = server([refuses(text, param="stream", code="unsupported_value"), [think("t"), say("whole")]])
    provider = connect(s)
    result = summed(await answer(provider))
    await provider.close()
    assert (result.text, result.reasoning, result.reason) == ("whole", "t", "stop")
    assert s.requests[1]["stream"] is False
    assert "stream_options" not in s.requests[1]


# Where the server is


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
async def test_a_base_url_as_people_write_it(server: Start, tail: str) -> None:
    s = server([[say("ok")]])
    provider = connect(s, base_url=s.url.removesuffix("/v1") + tail)
    await answer(provider)
    await provider.close()
    assert s.seen[0].path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("tail", "paths"),
    [
        ("", ["/v1/chat/completions", "/chat/completions"]),
        ("/api", ["/api/chat/completions", "/api/v1/chat/completions"]),
    ],
)
async def test_paths_that_are_elsewhere_are_found_once(server: Start, tail: str, paths: list[str]) -> None:
    s = server([fault(404, "404 page not found"), [say("ok")], [say("ok")]])
    provider = connect(s, base_url=s.url.removesuffix("/v1") + tail)
    await answer(provider)
    await answer(provider)
    await provider.close()
    assert [seen.path for seen in s.seen] == [*paths, paths[-1]]


async def test_paths_that_are_nowhere_leave_the_address_as_it_was(server: Start) -> None:
    s = server([fault(404, "404 page not found")] * 4)
    provider = connect(s, base_url=s.url.removesuffix("/v1"))
    for _ in range(2):
        with pytest.raises(ProviderError, match="Check base_url"):
            await answer(provider)
    await provider.close()
    assert [seen.path for seen in s.seen] == ["/v1/chat/completions", "/chat/completions"] * 2


async def test_a_server_without_the_responses_api(server: Start) -> None:
    s = server([fault(404, {"detail": "Not Found"})])
    provider = connect(s, api="responses")
    with pytest.raises(ProviderError, match='api = "chat"'):
        await answer(provider)
    await provider.close()


async def test_a_password_in_the_address_is_not_shown() -> None:
    provider = make_provider(ServerSettings(base_url="http://ada:hunter2222@127.0.0.1:9/v1"))
    with pytest.raises(ProviderError) as caught:
        await answer(provider)
    await provider.close()
    assert "hunter" not in str(caught.value) + repr(provider) + provider.name


async def test_a_query_goes_with_every_request(server: Start) -> None:
    s = server([[say("ok")]])
    provider = connect(s, base_url=f"{s.url}?api-version=2024-10-21")
    await answer(provider)
    await provider.close()
    assert s.seen[0].path == "/v1/chat/completions?api-version=2024-10-21"


async def test_nobody_there() -> None:
    provider = make_provider(ServerSettings(base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(ProviderError, match=r"No server answers at http://127\.0\.0\.1:9/v1") as caught:
        await answer(provider)
    await provider.close()
    assert caught.value.retryable


async def test_https_to_a_server_that_speaks_http(server: Start) -> None:
    s = server([])
    provider = connect(s, base_url=s.url.replace("http://", "https://"))
    with pytest.raises(ProviderError, match="http://127") as caught:
        await answer(provider)
    await provider.close()
    assert not caught.value.retryable


async def test_a_proxy_is_not_asked_for_this_machine(server: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    s = server([[say("ok")]])
    provider = connect(s)
    assert summed(await answer(provider)).text == "ok"
    await provider.close()


@pytest.mark.parametrize(
    ("words", "window", "overflow"), [(900, 1000, True), (100, 1000, False), (900, 0, False), (900, 100_000, False)]
)
@pytest.mark.parametrize("status", [400, 413])
async def test_a_refusal_without_a_body(server: Start, words: int, window: int, overflow: bool, status: int) -> None:
    s = server([fault(status)])
    provider = connect(s, models={"m": ModelSettings(window=window)})
    with pytest.raises(ProviderError) as caught:
        await answer(provider, Request(model="m", system="s", turns=(UserTurn((Text("word " * words),)),)))
    await provider.close()
    assert isinstance(caught.value, ContextOverflow) is overflow
    assert len(s.requests) == 1


async def test_an_unknown_model_lists_those_there_are(server: Start) -> None:
    s = server([refuses("The model `m` does not exist", 404, code="model_not_found")], models=["alpha", "beta"])
    provider = connect(s)
    with pytest.raises(ProviderError, match="It has: alpha, beta") as caught:
        await answer(provider)
    await provider.close()
    assert not caught.value.retryable
    assert len(s.requests) == 1


async def test_without_a_key_none_is_sent_and_a_refusal_says_so(server: Start) -> None:
    s = server([], key="sk-needed-0000")
    provider = connect(s, api_key="")
    with pytest.raises(ProviderError, match="none is set"):
        await answer(provider)
    with pytest.raises(ProviderError, match="none is set"):
        await provider.models()
    await provider.close()
    assert "authorization" not in s.seen[0].headers


async def test_a_wrong_key_that_the_server_repeats_is_not_shown(server: Start) -> None:
    s = server([], key="sk-needed-0000")
    provider = connect(s, api_key="wrong-key-zebra-77")
    for act in (answer(provider), provider.models()):
        with pytest.raises(ProviderError, match="does not accept the API key") as caught:
            await act
        assert "zebra" not in str(caught.value)
    await provider.close()
