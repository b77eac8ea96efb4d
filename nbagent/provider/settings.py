"""What a provider has to know of its server. A value; ``config`` is where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagent.config import API, ModelSettings


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """``base_url``: as the person wrote it ("" for OpenAI). ``api_key``: never shown. ``headers``: sent with every request.

    ``models``: what the settings say of a model. ``options``: model → more parameters of the request body, as they are.
    ``connect_timeout`` and ``read_timeout``: seconds until a connection stands, and of silence in an answer.
    """

    base_url: str = ""
    api_key: str = field(default="", repr=False)
    api: API = "chat"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    connect_timeout: float = 15.0
    read_timeout: float = 300.0
