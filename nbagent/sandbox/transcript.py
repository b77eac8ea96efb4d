"""What a command says, as it says it: decoded, counted, its end kept, all of it in a file when it is long."""

from __future__ import annotations

import codecs
from collections import deque
from pathlib import Path
from typing import BinaryIO


class Transcript:
    """Takes bytes, keeps at most ``keep`` characters (the last ones) and, once there were more, everything in ``path``.

    No more than ``keep`` characters and one piece are in memory at any time; ``limit`` bytes end the writing to the file.
    """

    def __init__(self, path: Path, keep: int, limit: int) -> None:
        self._path = path
        self._keep = max(keep, 1)
        self._limit = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: deque[str] = deque()
        self._held = 0
        self._total = 0
        self._raw: list[bytes] = []
        self._file: BinaryIO | None = None
        self._last = "\n"
        self.size = 0
        self.lines = 0
        self.whole: Path | None = None

    @property
    def full(self) -> bool:
        """More was said than may be kept anywhere."""
        return self.size >= self._limit

    def feed(self, data: bytes) -> str:
        """Take a piece; what it reads as comes back (a character cut in two waits for its other half)."""
        text = self._take(self._decoder.decode(data))
        self._store(data)
        self.size += len(data)
        return text

    def finish(self) -> str:
        """The end: the rest that never became a character, and the file is closed."""
        rest = self._take(self._decoder.decode(b"", final=True))
        if self._file is not None:
            self._file.close()
        return rest

    def text(self) -> str:
        """The end of what was said, whole when nothing was cut."""
        return "".join(self._pieces)[-self._keep :]

    def _take(self, text: str) -> str:
        if text:
            self.lines += text.count("\n") + (self._last == "\n") - text.endswith("\n")
            self._last = text[-1]
            self._pieces.append(text)
            self._held += len(text)
            self._total += len(text)
        while self._pieces and self._held - len(self._pieces[0]) >= self._keep:
            self._held -= len(self._pieces.popleft())
        if self._held > 2 * self._keep:
            self._pieces = deque([self.text()])
            self._held = len(self._pieces[0])
        return text

    def _store(self, data: bytes) -> None:
        """Hold the bytes until they are too many, then write them all."""
        if self._file is not None:
            self._file.write(data[: max(0, self._limit - self.size)])
            return
        self._raw.append(data)
        if self._total <= self._keep:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("xb" if not self._path.exists() else "wb")
        self.whole = self._path
        self._file.write(b"".join(self._raw)[: self._limit])
        self._raw.clear()
