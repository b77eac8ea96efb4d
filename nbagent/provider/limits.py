"""What a model can take: from the settings, else from what the server tells, else from a table, else unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from nbagent.errors import ProviderError
from nbagent.provider.endpoint import Endpoint, Refusal
from nbagent.provider.provider import Limits

WINDOW_KEYS = ("max_model_len", "context_length", "context_window", "max_context_length", "max_context_tokens")
OUTPUT_KEYS = ("max_completion_tokens", "max_output_tokens", "max_output_length")


@cache
def table() -> tuple[tuple[re.Pattern[str], Limits], ...]:
    """The built-in table, in order: the first pattern that matches the bare name of a model wins."""
    rows = json.loads(files("nbagent.provider").joinpath("limits.json").read_text(encoding="utf-8"))
    return tuple((re.compile(row.pop("name")), Limits(**row, source="table")) for row in rows["models"])


def bare_name(model: str) -> str:
    """A model's name without a router's prefix, a tag or a date's noise: ``openai/GPT-4o:free`` → ``gpt-4o``."""
    name = model.lower().rsplit("/", 1)[-1].removesuffix(".gguf")
    return name.partition(":")[0] if not name.startswith(":") else name


def from_table(model: str) -> Limits | None:
    name = bare_name(model)
    return next((limits for pattern, limits in table() if pattern.match(name)), None)


def from_entry(entry: Mapping[str, Any]) -> Limits | None:
    """What an entry of ``/models`` tells; None when it tells nothing."""
    meta = _mapping(entry.get("meta"))
    top = _mapping(entry.get("top_provider"))
    info = _mapping(entry.get("model_info"))
    window = _first(entry, WINDOW_KEYS) or _first(meta, ("n_ctx", "n_ctx_train")) or _first(top, WINDOW_KEYS)
    output = _first(entry, OUTPUT_KEYS) or _first(top, OUTPUT_KEYS) or _first(info, OUTPUT_KEYS)
    entered = _first(info, ("max_input_tokens",)) or _first(entry, ("max_input_tokens", "max_prompt_tokens"))
    if not (window or output or entered):
        return None
    return Limits(window=window, output=output, input=entered, vision=_sees(entry), source="server")


def _sees(entry: Mapping[str, Any]) -> bool | None:
    kinds = _mapping(entry.get("architecture")).get("input_modalities")
    if isinstance(kinds, list):
        return "image" in kinds
    if entry.get("type") == "vlm":
        return True
    vision = _mapping(entry.get("capabilities")).get("vision")
    return vision if isinstance(vision, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(source: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    for key in keys:
        value = source.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return int(value)
    return 0


async def find_limits(endpoint: Endpoint, entries: list[dict[str, Any]] | None, model: str) -> tuple[Limits, bool]:
    """The limits of ``model``, and whether they may be kept (False while the server may still tell more).

    ``entries``: what ``/models`` lists, None when it could not be asked.
    """
    told, kind = await _told(endpoint, entries or [], model)
    reached = entries is not None
    # Ollama cuts at a window of its own that has nothing to do with the model's.
    known = None if kind == "ollama" else from_table(model)
    found = Limits()
    for source in (known, told):
        if source is not None:
            found = _over(found, source)
    settings = endpoint.settings.models.get(model)
    if settings is not None:
        own = Limits(
            window=settings.window,
            input=settings.input,
            output=settings.output,
            vision=settings.vision,
            source="settings",
            price_input=settings.price_input,
            price_output=settings.price_output,
            price_cached=settings.price_cached,
        )
        found = _over(found, own)
    return found, reached and (kind != "ollama" or found.window > 0)


def _over(below: Limits, above: Limits) -> Limits:
    """``above`` where it says something, else ``below``. The source is that of the window."""
    changes = {
        name: value
        for name in below.__struct_fields__
        if name != "source" and (value := getattr(above, name)) not in (0, None)
    }
    if above.window:
        changes["source"] = above.source
        if above.window and below.input > above.window:
            changes.setdefault("input", above.input)
    return msgspec.structs.replace(below, **changes)


async def _told(endpoint: Endpoint, entries: list[dict[str, Any]], model: str) -> tuple[Limits | None, str]:
    """What the server tells of ``model``, and which server it is ("" for any)."""
    entry = next((e for e in entries if e.get("id") == model), None)
    if entry is None:
        entry = next((e for e in entries if bare_name(str(e.get("id", ""))) == bare_name(model)), None)
    owner = entry.get("owned_by") if entry is not None else ""
    if owner == "library":
        return Limits(window=await ollama_window(endpoint, model), source="server"), "ollama"
    limits = from_entry(entry) if entry is not None else None
    if owner == "llamacpp" and (used := await llamacpp_window(endpoint)):
        limits = msgspec.structs.replace(limits or Limits(source="server"), window=used)
    if owner == "organization_owner" and (used := await lmstudio_window(endpoint, model)):
        limits = msgspec.structs.replace(limits or Limits(source="server"), window=used)
    return limits, str(owner or "")


async def ollama_window(endpoint: Endpoint, model: str) -> int:
    """The context that Ollama has loaded ``model`` with; 0 while it is not loaded."""
    value = await _quiet(endpoint, "/api/ps")
    models = _mapping(value).get("models")
    for loaded in models if isinstance(models, list) else ():
        if _mapping(loaded).get("name") in (model, f"{model}:latest"):
            return _first(loaded, ("context_length",))
    return 0


async def llamacpp_window(endpoint: Endpoint) -> int:
    """The context that llama.cpp's server was started with; 0 when it does not tell."""
    value = await _quiet(endpoint, "/props")
    return _first(_mapping(_mapping(value).get("default_generation_settings")), ("n_ctx",))


async def lmstudio_window(endpoint: Endpoint, model: str) -> int:
    """The context that LM Studio has loaded ``model`` with; 0 when it does not tell."""
    value = await _quiet(endpoint, "/api/v0/models")
    data = _mapping(value).get("data")
    for loaded in data if isinstance(data, list) else ():
        if _mapping(loaded).get("id") == model:
            return _first(loaded, ("loaded_context_length",))
    return 0


async def _quiet(endpoint: Endpoint, path: str) -> Any:
    try:
        return await endpoint.get(endpoint.address.root + path, within=3.0)
    except (ProviderError, Refusal):
        return None
