"""What a finished cell leaves in the notebook: static, readable everywhere, no widget. Pure.

The same record gives the same bytes. ``times=False`` leaves out what a clock made, so that two plays of one cassette
compare equal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nbagent.notebook.item import cut_text
from nbagent.notebook.receipt import receipt_line
from nbagent.notebook.record_html import to_html
from nbagent.notebook.record_text import to_markdown, to_plain

MIME = "application/vnd.nbagent.record+json"
BUDGET = 600_000
IMAGE_LIMIT = 100_000
_LIMITS = (20_000, 8_000, 3_000, 1_000, 300)
_LONG = ("output", "error", "text", "summary", "diff", "message")


def mimebundle(record: dict[str, Any], *, times: bool = True) -> dict[str, Any]:
    """The record in every form: HTML, Markdown, plain text, and its own JSON."""
    kept = fit(record if times else stable(record))
    return {
        MIME: kept,
        "text/html": to_html(kept, times=times),
        "text/markdown": to_markdown(kept, times=times),
        "text/plain": to_plain(kept, times=times),
    }


def stable(record: dict[str, Any]) -> dict[str, Any]:
    """The record without anything that a clock made."""
    head = {**record["head"], "started": 0.0, "seconds": 0.0}
    items = [_timeless(item) for item in record["items"]]
    receipt = record["receipt"]
    if receipt is not None:
        receipt = {**receipt, "seconds": 0.0, "line": receipt_line(receipt, times=False)}
    return {**record, "head": head, "items": items, "receipt": receipt}


def _timeless(item: dict[str, Any]) -> dict[str, Any]:
    if item["kind"] == "tool":
        metadata = {key: value for key, value in item["metadata"].items() if key not in ("seconds", "time", "pid")}
        return {**item, "seconds": None, "metadata": metadata}
    if item["kind"] == "retry":
        return {**item, "wait": 0.0, "until": 0.0}
    return item


def fit(record: dict[str, Any], budget: int = BUDGET) -> dict[str, Any]:
    """The record cut so that its JSON keeps to ``budget`` bytes as far as outputs can give; no picture over 100 KB."""
    base = {**record, "items": [_without_large_images(item) for item in record["items"]]}
    kept = base
    for limit in _LIMITS:
        kept = _limited(base, limit)
        if len(msgspec.json.encode(kept)) <= budget:
            break
    return kept


def _limited(record: dict[str, Any], limit: int) -> dict[str, Any]:
    items = [_limited_item(item, limit) for item in record["items"]]
    receipt = record["receipt"]
    if receipt is not None:
        files = [{**entry, "diff": cut_text(entry.get("diff", ""), limit)} for entry in receipt["files"]]
        receipt = {**receipt, "files": files}
    return {**record, "items": items, "receipt": receipt}


def _limited_item(item: dict[str, Any], limit: int) -> dict[str, Any]:
    """Outputs, diffs and arguments give; what the model said and the plan stay whole."""
    if item["kind"] not in ("tool", "ask", "reasoning"):
        return item
    shorter = _shorten(item, limit)
    return {**shorter, "images": item["images"], "cut": True} if shorter != item and item["kind"] == "tool" else shorter


def _shorten(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, dict):
        return {key: entry if key == "images" else _shorten(entry, limit) for key, entry in value.items()}
    if isinstance(value, list):
        return [_shorten(entry, limit) for entry in value]
    return value


def _without_large_images(item: dict[str, Any]) -> dict[str, Any]:
    images = item.get("images")
    if not images or all(len(image["data"]) <= IMAGE_LIMIT for image in images):
        return item
    kept = [image for image in images if len(image["data"]) <= IMAGE_LIMIT]
    notes = [
        f"[{image['mime']} {len(image['data']) * 3 // 4 // 1024} KB, not kept in the notebook]"
        for image in images
        if len(image["data"]) > IMAGE_LIMIT
    ]
    return {**item, "images": kept, "output": "\n".join([item["output"], *notes]).strip()}
