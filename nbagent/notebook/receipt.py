"""The last line of a cell: what changed, what it cost. A pure function of the record's ``receipt``."""

from __future__ import annotations

from typing import Any

_REASONS = {
    "stopped": "stopped",
    "limit": "stopped at a limit",
    "blocked": "ended: refused too often",
    "length": "cut: the model's answer reached its length limit",
    "error": "failed",
    "rejected": "plan rejected",
    "awaiting": "plan not approved yet",
    "approved": "plan approved, to be built later",
}
_SHOWN_FILES = 5


def receipt_line(receipt: dict[str, Any], times: bool = True) -> str:
    """The receipt as one line of plain text; ``times=False`` leaves the duration out."""
    parts = [_REASONS[receipt["reason"]]] if receipt["reason"] in _REASONS else []
    parts += [_unanswered(receipt.get("unanswered", 0)), _changes(receipt)]
    total = _total(receipt.get("tokens") or {})
    if total:
        parts.append(f"{total:,} tokens")
    cost = receipt.get("cost")
    if cost:
        parts.append(f"${cost:.4f}" if cost < 0.1 else f"${cost:.2f}")
    if times and receipt.get("seconds"):
        parts.append(duration(receipt["seconds"]))
    return " · ".join(part for part in parts if part) or "done"


def _unanswered(calls: int) -> str:
    if not calls:
        return ""
    return f"{calls} call{'' if calls == 1 else 's'} needed a person's answer and nobody was there"


def _changes(receipt: dict[str, Any]) -> str:
    files, plan = receipt["files"], receipt["plan"]
    others = [entry for entry in files if entry["path"] != plan]
    wrote_plan = len(others) < len(files)
    if others:
        return _listed(files)
    if receipt.get("confined"):
        return f"plan {plan} written, nothing else was written" if wrote_plan else "nothing was written"
    if wrote_plan:
        return _listed(files)
    return "no files changed" if receipt.get("counted", True) else ""


def _listed(files: list[dict[str, Any]]) -> str:
    names = ", ".join(_one(entry) for entry in files[:_SHOWN_FILES])
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    return f"{len(files)} file{'' if len(files) == 1 else 's'} changed: {names}{more}"


def _one(entry: dict[str, Any]) -> str:
    added, deleted = entry.get("additions"), entry.get("deletions")
    marks = {"added": "new", "deleted": "deleted"}.get(entry["status"], "")
    counts = "" if added is None and deleted is None else f"+{added or 0} −{deleted or 0}"
    inner = " ".join(part for part in (marks, counts) if part)
    return f"{entry['path']} ({inner})" if inner else str(entry["path"])


def _total(tokens: dict[str, int]) -> int:
    return int(tokens.get("input", 0)) + int(tokens.get("output", 0))


def duration(seconds: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
