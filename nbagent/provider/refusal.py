"""What a refusal teaches: the change that makes the next request one that this server takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from nbagent.provider.accumulator import OPAQUE_FIELDS
from nbagent.provider.failure import Failure
from nbagent.provider.overflow import is_rate
from nbagent.provider.quirks import Quirks

# Never dropped: without them it is another request.
ESSENTIAL = {"model", "messages", "input", "instructions", "tools", "stream"}
REFUSING = {400, 404, 415, 422, 500, 501, None}
OTHER_NAMES = {
    "reasoning_effort": ("reasoning_effort", "reasoning.effort", "reasoning effort", "reasoning", "thinking"),
    "reasoning": ("reasoning", "reasoning.effort", "reasoning_effort", "reasoning.summary"),
    "max_tokens": ("max_tokens",),
    "include": ("include", "encrypted content", "reasoning.encrypted_content"),
    "stream_options": ("stream_options", "include_usage"),
}
LIMIT_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class Lesson(msgspec.Struct, frozen=True):
    """``kind`` counts how often a thing may be learned for one request; ``said``: for the person ("" for nothing to say).
    ``lasting``: worth remembering beyond this session."""

    kind: str
    quirks: Quirks
    said: str = ""
    lasting: bool = True


def lesson(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    """The change to try after ``failure``, None when nothing can be changed."""
    if failure.status not in REFUSING or is_rate(failure.text):
        return None
    for judge in (_pictures, _reasoning, _streaming, _ids, _content, _system):
        found = judge(failure, body, quirks, model)
        if found is not None:
            return found
    return _parameter(failure, body, quirks, model) if failure.status in (400, 422, None) else None


def _change(quirks: Quirks, **fields: Any) -> Quirks:
    return msgspec.structs.replace(quirks, **fields)


def _mentions(text: str, name: str) -> int:
    """Where ``text`` names ``name`` as a whole word; -1 when it does not."""
    match = re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text)
    return match.start() if match else -1


def _parameter(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    name = _named(failure, body)
    if name is None:
        return None
    words = failure.words
    renamed = {value: key for key, value in quirks.rename.items()}
    for other in LIMIT_NAMES:
        wanted = re.search(
            rf"(use|instead|try|renamed|replaced)\W[^.]*?\b{other}\b|\b{other}\b[^.]{{0,20}}\binstead", words
        )
        if name in LIMIT_NAMES and other != name and wanted and name not in renamed:
            said = f"{model} wants {other} instead of {name}; it is sent that way from now on."
            return Lesson("parameter", _change(quirks, rename={**quirks.rename, name: other}), said)
    drop = tuple(dict.fromkeys((*quirks.drop, renamed.get(name, name), name)))
    return Lesson("parameter", _change(quirks, drop=drop), f"{model} does not take {name}; it is left out from now on.")


def _named(failure: Failure, body: Mapping[str, Any]) -> str | None:
    """The one parameter of ``body`` that the refusal names; the first when it names several."""
    words = failure.words
    param = failure.param.lower()
    found: list[tuple[int, str]] = []
    for key in body:
        if key in ESSENTIAL:
            continue
        names = OTHER_NAMES.get(key, (key,))
        if param and any(param == name or param.startswith((f"{name}.", f"{name}[")) for name in names):
            return key
        places = [place for name in names if (place := _mentions(words, name)) >= 0]
        if places:
            found.append((min(places), key))
    return min(found)[1] if found else None


PICTURE = re.compile(r"\b(images?|image_url|input_image|vision|multi-?modal|pictures?|mmproj)\b")
BAD_PICTURE = re.compile(
    r"too (large|big)|exceeds|maximum size|could not process|invalid image|corrupt|unsupported image"
)


def _pictures(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    if quirks.vision is False or not any(_has_picture(m) for m in _entries(body)):
        return None
    words = failure.words
    if BAD_PICTURE.search(words) and PICTURE.search(words):
        said = "The server did not take a picture; the model gets a note of its size instead."
        return Lesson("vision", _change(quirks, vision=False), said, lasting=False)
    wants_text = re.search(r"content\b.*\b(must be|should be|valid|expected|not)\b.*\b(string|str|text)\b", words)
    if PICTURE.search(words) or wants_text:
        said = f"{model} does not see pictures; it gets a note of their size instead."
        return Lesson("vision", _change(quirks, vision=False), said)
    return None


def _entries(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages or input items of a body; settings may have put anything there."""
    entries = body.get("messages") or body.get("input")
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def _has_picture(message: Mapping[str, Any]) -> bool:
    content = message.get("content") or message.get("output")
    return isinstance(content, list) and any(p.get("type") in ("image_url", "input_image") for p in content)


REASONING = re.compile(r"\b(reasoning_content|reasoning_details|thinking_blocks|reasoning)\b")
REQUIRED = re.compile(
    r"must be (passed|provided|included|sent|present)|passed back|is missing|missing\W{1,3}(field|reasoning)|required"
    r"|must (contain|include|have)|expected"
)
IN_MESSAGES = re.compile(r"messages?\b|role\W{1,3}assistant|extra (inputs|fields)|assistant message")


def _reasoning(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    """A server that insists on earlier reasoning, or one that refuses it."""
    if _bad_items(failure, body) and quirks.reasoning != "never":
        return Lesson("reasoning", _change(quirks, reasoning="never"), lasting=False)
    match = REASONING.search(failure.words)
    answers = [m for m in _entries(body) if m.get("role") == "assistant"]
    if match is None or not answers or failure.status not in (400, 422, None):
        return None
    sent = any(m.keys() & {"reasoning_content", "reasoning", *OPAQUE_FIELDS} for m in answers)
    field = match[1] if match[1] == "reasoning" else "reasoning_content"
    if (
        REQUIRED.search(failure.words)
        and quirks.reasoning != field
        and not re.search("not (permitted|allowed)", failure.words)
    ):
        return Lesson("reasoning", _change(quirks, reasoning=field), lasting=False)
    names_parameter = match[1] == "reasoning" and not IN_MESSAGES.search(failure.words)
    if sent and quirks.reasoning != "never" and not names_parameter:
        return Lesson("reasoning", _change(quirks, reasoning="never"), lasting=False)
    return None


def _bad_items(failure: Failure, body: Mapping[str, Any]) -> bool:
    """Reasoning items that this server cannot read, as after a change of model."""
    items = any(item.get("type") == "reasoning" for item in _entries(body))
    told = "encrypted_content" in failure.words or "encrypted content" in failure.words
    return items and (told or "of type 'reasoning'" in failure.words or "reasoning item" in failure.words)


def _streaming(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    words = failure.words
    refused = re.search(r"(cannot|can't|not|un)\W?(be )?(use|support|allow|enable)\w*[^.]*\bstream(ing)?\b(?!_)", words)
    verified = "verified to stream" in words or failure.param == "stream"
    if not body.get("stream") or not (refused or verified):
        return None
    return Lesson(
        "stream", _change(quirks, no_stream=True), f"{model} does not stream here; answers come in one piece."
    )


def _ids(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    if quirks.short_ids or not re.search(r"tool[ _]call[ _]?id.*length of 9|length of 9.*tool[ _]call", failure.words):
        return None
    return Lesson("ids", _change(quirks, short_ids=True))


def _content(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    words = failure.words
    empty = any(m.get("content", "") is None for m in _entries(body))
    told = re.search(
        r"\bcontent\b.*\b(null|none|nil|required|missing|string|str)\b|\b(missing|null|none)\b.*\bcontent\b", words
    )
    if quirks.empty_content or not empty or not told:
        return None
    return Lesson("content", _change(quirks, empty_content=True))


def _system(failure: Failure, body: Mapping[str, Any], quirks: Quirks, model: str) -> Lesson | None:
    if quirks.no_system or not re.search(r"system (role|messages?|prompts?) (is |are )?not supported", failure.words):
        return None
    return Lesson("system", _change(quirks, no_system=True))
