"""The record as it grows: items, what changed since the last look, and the whole of what was cut. Pure.

``transcript`` decides what happens to which item; here it is kept, and told as patches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbagent.notebook.item import OPEN, WAITING, WHOLE, Item, bounded, is_open, size_of

VERSION = 1
WHOLE_TOTAL = 50_000_000


class Ledger:
    """Items in order of appearance, the head and the receipt. ``now`` gives seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._head: dict[str, Any] = {
            "agent": "",
            "badge": "",
            "writes": "",
            "model": "",
            "root": "",
            "plan": "",
            "phase": "",
            "step": 0,
            "tokens": 0,
            "context": 0,
            "window": 0,
            "started": now(),
            "seconds": 0.0,
            "waiting": "",
            "title": "",
        }
        self._items: dict[str, Item] = {}
        self._receipt: dict[str, Any] | None = None
        self._done = False
        self._made = 0
        self._asked: dict[str, None] = {}
        self._streams: dict[str, list[str]] = {}
        self._whole: dict[str, Item] = {}
        self._whole_size = 0
        self._sent_head: dict[str, Any] = {}
        self._sent_state = ""
        self._dirty: dict[str, None] = {}
        self._append: dict[str, tuple[str, list[str]]] = {}
        self._receipt_dirty = False
        self._seq = 0

    # what others read

    @property
    def state(self) -> str:
        """``running``, ``waiting`` or ``done``."""
        if self._done:
            return "done"
        return "waiting" if self._head["waiting"] else "running"

    @property
    def seq(self) -> int:
        """The number of the last patch."""
        return self._seq

    def record(self) -> dict[str, Any]:
        """The whole value; the caller may keep it (it shares nothing that changes)."""
        return {
            "version": VERSION,
            "state": self.state,
            "head": dict(self._head) if self._done else {**self._head, "seconds": self._elapsed()},
            "items": [dict(item) for item in self._items.values()],
            "receipt": self._receipt,
        }

    def patch(self) -> dict[str, Any] | None:
        """What changed since the last call, in the form of a ``patch`` message; None when nothing did."""
        patch: dict[str, Any] = {}
        head = {key: value for key, value in self._head.items() if self._sent_head.get(key, ...) != value}
        if head:
            patch["head"] = head
            self._sent_head = dict(self._head)
        if self._dirty:
            patch["items"] = [dict(self._items[key]) for key in self._dirty]
        appended = {
            key: {"field": name, "text": "".join(pieces)}
            for key, (name, pieces) in self._append.items()
            if key not in self._dirty
        }
        if appended:
            patch["append"] = appended
        if self.state != self._sent_state:
            patch["state"] = self._sent_state = self.state
        if self._receipt_dirty:
            patch["receipt"] = self._receipt
        if not patch:
            return None
        self._dirty, self._append, self._receipt_dirty = {}, {}, False
        self._seq += 1
        return {"kind": "patch", "seq": self._seq, **patch}

    def full(self, item_id: str) -> Item | None:
        """An item with its output and diff uncut (as far as they were kept), or None for an unknown id."""
        item = self._items.get(item_id)
        if item is None:
            return None
        if item_id in self._streams:
            return {**item, "output": "".join(self._streams[item_id])}
        return {**item, **self._whole.get(item_id, {})}

    def open_items(self) -> list[Item]:
        """Asks, forms and reviews that wait for a person."""
        return [dict(item) for item in self._items.values() if is_open(item)]

    # what changes it

    def _elapsed(self) -> float:
        return round(max(0.0, self._now() - float(self._head["started"])), 3)

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _put_item(self, key: str, parent: str, /, **fields: Any) -> None:
        fields.pop("id", None)
        fields.pop("parent", None)
        kind = fields.pop("kind")
        self._items[key] = {"id": key, "kind": kind, "parent": parent, **fields}
        if kind in OPEN:
            self._asked[key] = None
        self._touch(key)

    def _touch(self, key: str) -> None:
        self._dirty[key] = None
        self._append.pop(key, None)

    def _append_text(self, key: str, name: str, text: str) -> None:
        """More text in a field of an item; it travels as such unless the item is to be sent whole anyway."""
        self._items[key][name] += text
        if key not in self._dirty:
            self._append.setdefault(key, (name, []))[1].append(text)

    def _settle(self, key: str, fields: dict[str, Any]) -> None:
        item = self._items.get(key)
        if item is None or not is_open(item):
            return
        item.update(fields)
        self._touch(key)
        self._update_waiting()

    @staticmethod
    def _opened(item: Item) -> bool:
        """Whether a person had the review on the screen; one that nobody saw goes on waiting for a later approval."""
        return not str(item["id"]).startswith("plan-")

    def _update_waiting(self) -> None:
        waiting = ""
        for key in list(self._asked):
            item = self._items[key]
            if not is_open(item):
                del self._asked[key]
            elif not waiting and not self._done and (item["kind"] != "review" or self._opened(item)):
                waiting = WAITING[item["kind"]](item)
        self._head["waiting"] = waiting

    def _keep(self, key: str, whole: dict[str, Any]) -> None:
        kept = bounded(whole, WHOLE)
        self._whole_size += size_of(kept) - size_of(self._whole.pop(key, {}))
        self._whole[key] = kept
        while self._whole_size > WHOLE_TOTAL and len(self._whole) > 1:
            oldest = next(iter(self._whole))
            self._whole_size -= size_of(self._whole.pop(oldest))
