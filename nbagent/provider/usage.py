"""Token counts as servers report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagent.message import Tokens


def read_usage(usage: Mapping[str, Any]) -> Tokens | None:
    """What a ``usage`` object of either API says; None when it says nothing."""

    def number(source: Any, *names: str) -> int:
        for name in names:
            value = source.get(name) if isinstance(source, dict) else None
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return int(value)
        return 0

    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    spent = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    tokens = Tokens(
        input=number(usage, "prompt_tokens", "input_tokens"),
        output=number(usage, "completion_tokens", "output_tokens"),
        reasoning=number(spent, "reasoning_tokens") or number(usage, "reasoning_tokens"),
        cache_read=number(details, "cached_tokens") or number(usage, "prompt_cache_hit_tokens", "cached_tokens"),
    )
    return tokens if tokens.total else None
