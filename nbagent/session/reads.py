"""What the model has seen of files in a session: kept in the store, so that it survives a crash."""

from __future__ import annotations

from pathlib import Path

from nbagent.store.store import Store


class SeenFiles:
    """real path → (digest, whether all of it was seen)."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._seen = store.seen(session_id)

    def saw(self, real: Path, digest: str, whole: bool) -> None:
        """The model read, or wrote, this version. Parts of one version never make less of it than was seen before."""
        known = self._seen.get(str(real))
        whole = whole or (known is not None and known[0] == digest and known[1])
        if known != (digest, whole):
            self._store.put_seen(self._session_id, str(real), digest, whole)
            self._seen[str(real)] = (digest, whole)

    def seen(self, real: Path) -> tuple[str, bool] | None:
        return self._seen.get(str(real))
