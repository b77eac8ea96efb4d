"""Server-sent events as servers really send them: bytes in, JSON values out.

Takes what the standard allows and what is seen beyond it: any line ending, comments, keep-alives, UTF-8 cut between
reads, events without the blank line after them, a last line without its newline, one JSON object a line without
``data:``, and a whole JSON body where a stream was asked for.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

LARGEST_LINE = 64 * 1024 * 1024
LARGEST_LOOSE = 32 * 1024 * 1024
FIELDS = (b"data:", b"event:", b"error:", b"id:", b"retry:")

_decode = msgspec.json.Decoder().decode


class Done:
    """The stream said ``[DONE]``."""


class Broken:
    """An event that is no JSON, or a body that is neither events nor JSON. ``text``: its beginning."""

    def __init__(self, text: str) -> None:
        self.text = text


DONE: Final = Done()
Event = tuple[str, Any]


def decode_json(data: bytes) -> Any:
    """JSON from a server: broken UTF-8 and lone surrogates are taken as they are. Raises ``ValueError``."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


class EventReader:
    """Splits a body into ``(event name, value)`` pairs; a value is JSON, ``DONE`` or ``Broken``."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._after_cr = False
        self._first = True
        self._event = ""
        self._pending: list[bytes] = []
        self._loose: list[bytes] = []
        self._loose_size = 0
        self._out: list[Event] = []

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete with ``data``."""
        if self._first and data:
            self._first = False
            data = data.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in data or self._after_cr:
            data = self._newlines(data)
        lines = data.split(b"\n")
        if len(lines) > 1 and self._partial:
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial, self._partial_size = [], 0
        rest = lines.pop()
        if rest:
            self._keep(rest)
        for line in lines:
            self._line(line)
        out, self._out = self._out, []
        return out

    def end(self) -> list[Event]:
        """What is left when the body is over. A last event that was cut off is dropped."""
        rest, self._partial = b"".join(self._partial), []
        if rest and not any(field.startswith(rest) for field in FIELDS):
            self._line(rest)
        self._pending = []
        if self._loose:
            self._out.append(("", self._whole()))
        out, self._out = self._out, []
        return out

    def _newlines(self, data: bytes) -> bytes:
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r") if data else self._after_cr
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._partial.append(rest)
        self._partial_size += len(rest)
        if self._partial_size > LARGEST_LINE:
            self._out.append((self._event, Broken("a line of more than 64 MB")))
            self._partial, self._partial_size = [], 0

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data(line[5:].strip())
        elif not line.strip():
            self._blank()
        elif line.startswith(b"event:"):
            self._event = line[6:].strip().decode("utf-8", "replace")
        elif line.startswith(b"error:"):
            self._error(line[6:].strip())
        elif not line.startswith((b":", b"id:", b"retry:")):
            self._other(line)

    def _error(self, payload: bytes) -> None:
        """llama.cpp's own field for what goes wrong in the middle of a stream."""
        try:
            self._out.append(("error", decode_json(payload)))
        except ValueError:
            self._out.append(("error", payload[:4000].decode("utf-8", "replace")))

    def _data(self, payload: bytes) -> None:
        if payload.startswith(b"[DONE]"):
            self._out.append((self._event, DONE))
        elif self._pending:
            self._continued(payload)
        elif payload:
            try:
                self._out.append((self._event, decode_json(payload)))
            except ValueError:
                self._pending.append(payload)

    def _continued(self, payload: bytes) -> None:
        """One more ``data:`` line of an event whose first lines are no JSON yet."""
        self._pending.append(payload)
        try:
            value = decode_json(b"\n".join(self._pending))
        except ValueError:
            return
        self._pending = []
        self._out.append((self._event, value))

    def _blank(self) -> None:
        if self._pending:
            text = b"\n".join(self._pending)[:400].decode("utf-8", "replace")
            self._pending = []
            self._out.append((self._event, Broken(text)))
        self._event = ""

    def _other(self, line: bytes) -> None:
        """A line that is no field of an event: a JSON object on its own, or a piece of a body that is no stream."""
        if line.startswith(b"{") and not self._loose:
            try:
                self._out.append((self._event, decode_json(line)))
                return
            except ValueError:
                pass
        if self._loose_size < LARGEST_LOOSE:
            self._loose.append(line)
            self._loose_size += len(line) + 1

    def _whole(self) -> Any:
        body = b"\n".join(self._loose)
        self._loose = []
        try:
            return decode_json(body)
        except ValueError:
            return Broken(body[:4000].decode("utf-8", "replace"))
