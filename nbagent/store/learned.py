"""What was learned of models' servers, kept in the store."""

from __future__ import annotations

from typing import Any

from nbagent.store.store import Store

_KEY = "quirks"


class StoredLessons:
    """model key → a JSON object, in the ``learned`` table."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, model: str) -> dict[str, Any] | None:
        value = self._store.learned(model).get(_KEY)
        return value if isinstance(value, dict) else None

    def put(self, model: str, value: dict[str, Any]) -> None:
        self._store.learn(model, _KEY, value)
