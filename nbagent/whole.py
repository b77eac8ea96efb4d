"""Text that can be encoded: surrogates joined or replaced."""

from __future__ import annotations

from typing import Any


def whole_text(text: str) -> str:
    """``text`` with pairs of surrogates joined and lone ones replaced, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean(value: Any) -> Any:
    """A JSON value without lone surrogates, which cannot be encoded."""
    match value:
        case str():
            return whole_text(value)
        case dict():
            return {clean(key): clean(item) for key, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
    return value
