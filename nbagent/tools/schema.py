"""Typed arguments as a small JSON schema: no titles, no ``$defs``, no defaults that a model would only repeat."""

from __future__ import annotations

from typing import Any

import msgspec

_DROPPED = {"title", "default"}


def schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema object of ``arguments``, with every reference put in place."""
    (schema,), definitions = msgspec.json.schema_components([arguments], ref_template="{name}")
    return _inline(schema, definitions)  # type: ignore[no-any-return]


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"]], definitions)
    if "properties" in node:
        kept = {key: _inline(value, definitions) for key, value in node.items() if key not in _DROPPED}
        kept["properties"] = {key: _inline(value, definitions) for key, value in node["properties"].items()}
        return kept
    return {key: _inline(value, definitions) for key, value in node.items() if key not in _DROPPED}
