"""A checker of request bodies, modelled on the pickiest model servers. Returns sentences; none means valid."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHAT_KEYS = {
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "temperature"),
    *("max_tokens", "max_completion_tokens", "reasoning_effort", "top_p", "stop", "seed", "user", "prompt_cache_key"),
    *("options", "keep_alive", "extra_body", "reasoning", "n", "store", "service_tier", "response_format"),
}
MESSAGE_KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {
        "role",
        "content",
        "tool_calls",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking_blocks",
    },
    "tool": {"role", "content", "tool_call_id", "name"},
}


def check(body: dict[str, Any]) -> list[str]:
    """Everything that a strict server would refuse in this request, as sentences."""
    if "input" in body:
        return check_responses(body)
    return check_chat(body)


def check_chat(body: dict[str, Any]) -> list[str]:
    found = [f"unknown parameter {key!r}" for key in body if key not in CHAT_KEYS]
    found += [f"parameter {key!r} is null" for key, value in body.items() if value is None]
    if not isinstance(body.get("model"), str) or not body["model"]:
        found.append("no model")
    found += _tools(body, flat=False)
    if "stream_options" in body and not body.get("stream"):
        found.append("stream_options without stream")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "messages is empty or missing"]
    found += _surrogates(body)
    for place, message in enumerate(messages):
        found += [f"messages[{place}]: {text}" for text in _message(message)]
    return found + _order(messages)


def _surrogates(body: Any) -> list[str]:
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return ["a lone surrogate in the text"]
    return []


def _tools(body: dict[str, Any], flat: bool) -> list[str]:
    tools = body.get("tools")
    if tools is None:
        return [f"{key} without tools" for key in ("tool_choice", "parallel_tool_calls") if key in body]
    if not isinstance(tools, list) or not tools:
        return ["tools is an empty list"]
    found: list[str] = []
    names: set[str] = set()
    for place, tool in enumerate(tools):
        function = tool if flat else tool.get("function") or {}
        name = function.get("name", "")
        if tool.get("type") != "function":
            found.append(f"tools[{place}]: type is not function")
        if not NAME.fullmatch(name):
            found.append(f"tools[{place}]: bad name {name!r}")
        if name in names:
            found.append(f"tools[{place}]: the name {name!r} is used twice")
        names.add(name)
        schema = function.get("parameters")
        if (
            not isinstance(schema, dict)
            or schema.get("type") != "object"
            or not isinstance(schema.get("properties"), dict)
        ):
            found.append(f"tools[{place}] ({name}): parameters is not an object schema with properties")
        elif any(key not in schema["properties"] for key in schema.get("required", [])):
            found.append(f"tools[{place}] ({name}): required names something that is not in properties")
    return found


def _message(message: dict[str, Any]) -> list[str]:
    role = message.get("role")
    if role not in MESSAGE_KEYS:
        return [f"unknown role {role!r}"]
    found = [f"unknown field {key!r} in a {role} message" for key in message if key not in MESSAGE_KEYS[role]]
    content = message.get("content")
    if role == "assistant":
        return found + _assistant(message, content)
    if role == "tool" and not message.get("tool_call_id"):
        found.append("no tool_call_id")
    if isinstance(content, list):
        found += _parts(content, role)
    elif not isinstance(content, str):
        found.append("content is neither text nor a list of parts")
    elif not content.strip() and role != "tool":
        found.append(f"empty {role} content")
    return found


def _parts(parts: list[Any], role: str) -> list[str]:
    found = [] if parts else ["content is an empty list"]
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)}:
                if not text.strip():
                    found.append("an empty text part")
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                if role != "user":
                    found.append(f"a picture in a {role} message")
                if not url.startswith(("data:image/", "https://", "http://")):
                    found.append("a picture that is no data URL")
            case _:
                found.append(f"unknown content part {str(part)[:80]}")
    return found


def _assistant(message: dict[str, Any], content: Any) -> list[str]:
    found: list[str] = []
    calls = message.get("tool_calls")
    if content is not None and not isinstance(content, str):
        found.append("assistant content is not text")
    if not calls and not (isinstance(content, str) and content.strip()):
        found.append("an assistant message with neither text nor calls")
    if calls is not None and (not isinstance(calls, list) or not calls):
        found.append("tool_calls is an empty list")
    for call in calls or []:
        function = call.get("function") or {}
        if call.get("type") != "function" or not call.get("id"):
            found.append("a call without type or id")
        if not NAME.fullmatch(function.get("name") or ""):
            found.append(f"a call with the bad name {function.get('name')!r}")
        found += _arguments(function.get("arguments"))
    return found


def _arguments(text: Any) -> list[str]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return [f"arguments are not JSON text: {str(text)[:80]!r}"]
    return [] if isinstance(value, dict) else ["arguments are not a JSON object"]


def _order(messages: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    roles = [message.get("role") for message in messages]
    if roles[0] != "system":
        found.append("the first message is not the system message")
    if roles.count("system") != 1:
        found.append(f"{roles.count('system')} system messages, not one")
    if len(roles) > 1 and roles[1] != "user":
        found.append(f"the first message after the system message is {roles[1]}, not user")
    if roles[-1] not in ("user", "tool"):
        found.append(f"the last message is {roles[-1]}")
    found += [f"two {a} messages in a row" for a, b in itertools.pairwise(roles) if a == b != "tool"]
    return found + _answered(messages)


def _answered(messages: list[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id", "")
            if call_id in open_calls:
                open_calls.remove(call_id)
            else:
                found.append(f"a result for {call_id!r}, which is not an open call right before it")
            continue
        if open_calls:
            found.append(f"calls without a result right after: {', '.join(open_calls)}")
        open_calls = [call.get("id", "") for call in message.get("tool_calls") or []]
        for call_id in open_calls:
            if call_id in seen:
                found.append(f"the call id {call_id!r} is used twice")
            seen.add(call_id)
    if open_calls:
        found.append(f"calls without a result: {', '.join(open_calls)}")
    return found


def check_responses(body: dict[str, Any]) -> list[str]:
    """The same for the Responses API."""
    found = [f"parameter {key!r} is null" for key, value in body.items() if value is None]
    found += _tools(body, flat=True) + _surrogates(body)
    if not body.get("model"):
        found.append("no model")
    if not body.get("instructions"):
        found.append("no instructions")
    items = body["input"]
    if not isinstance(items, list) or not items:
        return [*found, "input is empty"]
    open_calls: list[str] = []
    seen: set[str] = set()
    previous = ""
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        where = f"input[{place}]"
        if previous == "reasoning" and kind not in ("reasoning", "function_call") and item.get("role") != "assistant":
            found.append(f"{where}: a reasoning item without the item that followed it")
        match kind:
            case "function_call":
                call_id = item.get("call_id", "")
                if not call_id or call_id in seen:
                    found.append(f"{where}: the call id {call_id!r} is empty or used twice")
                seen.add(call_id)
                open_calls.append(call_id)
                found += [f"{where}: {text}" for text in _arguments(item.get("arguments"))]
            case "function_call_output":
                call_id = item.get("call_id", "")
                if call_id in open_calls:
                    open_calls.remove(call_id)
                else:
                    found.append(f"{where}: an output for {call_id!r}, which is not open")
            case "message":
                if open_calls:
                    found.append(f"{where}: calls without an output: {', '.join(open_calls)}")
                if item.get("role") not in ("user", "assistant"):
                    found.append(f"{where}: role {item.get('role')!r} in input")
                if item.get("role") == "user" and previous == "user":
                    found.append(f"{where}: two user messages in a row")
                if not item.get("content"):
                    found.append(f"{where}: empty content")
            case "reasoning":
                if not item.get("id"):
                    found.append(f"{where}: a reasoning item without an id")
            case _:
                found.append(f"{where}: unknown item {kind!r}")
        previous = item.get("role", "") if kind == "message" else kind
    if open_calls:
        found.append(f"calls without an output: {', '.join(open_calls)}")
    if previous not in ("user", "function_call_output"):
        found.append(f"the last item is {previous}")
    return found
