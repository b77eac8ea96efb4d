"""The tool calls of one answer: which call a fragment belongs to, and what a call is at the end."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Mapping
from typing import Any

from nbagent.provider.arguments import parse_arguments
from nbagent.provider.provider import Called
from nbagent.whole import whole_text

KNOWN_CALL_FIELDS = {"index", "id", "type", "function"}
MOST_RAW = 800

_ALPHABET = string.ascii_letters + string.digits


def fresh_id() -> str:
    """An id for a call that came without a usable one. Nine letters and digits, which the pickiest server wants."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(9))


class OpenCall:
    """A tool call that is being put together."""

    __slots__ = ("announced", "extra", "id", "index", "name", "pieces", "size", "slot")

    def __init__(self, slot: int, index: int | None, wire_id: str, name: str) -> None:
        self.slot = slot
        self.index = index
        self.id = wire_id
        self.name = name
        self.pieces: list[str] = []
        self.size = 0
        self.extra: dict[str, Any] = {}
        self.announced = False  # named once more, without arguments, when it was whole: a call of that name may follow

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def complete(self) -> bool:
        """Whether its arguments are a whole JSON object already."""
        text = self.text
        return text.rstrip().endswith("}") and not parse_arguments(text).problem


class CallBook:
    """All calls of one answer, and which of them a fragment belongs to.

    By id first (a new id at a used index is a new call), then by index, else the call that was written to last. A
    fragment with a name that finds a call whose arguments are whole already begins a new call.
    """

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self._by_id: dict[str, OpenCall] = {}
        self._by_index: dict[int, OpenCall] = {}
        self._last: OpenCall | None = None

    def add(self, element: Mapping[str, Any]) -> OpenCall | None:
        """Take one element of ``tool_calls``; the call that grew, None for an element that is no call."""
        function = element.get("function")
        function = function if isinstance(function, dict) else element if "name" in element else {}
        wire_id = element.get("id")
        wire_id = str(wire_id) if isinstance(wire_id, (str, int)) and not isinstance(wire_id, bool) else ""
        index = element.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        arguments = _arguments_text(function.get("arguments"))
        if not (wire_id or name or arguments or self._last is not None):
            return None
        call = self._find(wire_id, index, name, arguments)
        if call is not None and call.announced and arguments.strip() and not name:
            call.announced = False
            name, call = call.name, None
        if call is None:
            call = self._begin(wire_id, index)
        self._take(call, wire_id, index, name, arguments, element)
        return call

    def _find(self, wire_id: str, index: int | None, name: str, arguments: str) -> OpenCall | None:
        if wire_id and wire_id in self._by_id:
            found = self._by_id[wire_id]
            moved = index is not None and found.index is not None and index != found.index
            return (
                None
                if name and self._begins(found, name, arguments, moved, sent_again=arguments == found.text)
                else found
            )
        if wire_id:
            return self._find_for_new_id(index, name)
        found_at = self._by_index.get(index) if index is not None else self._last
        if found_at is None:
            return None if name else self._last
        return None if name and self._begins(found_at, name, arguments, False, sent_again=False) else found_at

    def _find_for_new_id(self, index: int | None, name: str) -> OpenCall | None:
        """An id not seen before: a new call, unless it only names one that began without, or goes on with one in pieces."""
        found = self._by_index.get(index) if index is not None else self._last
        if found is None:
            return None
        if not found.id and index is not None:
            return None if name and found.name and found.size else found
        half_written = found.size > 0 and not found.complete()
        return found if not name and half_written else None

    def _begins(self, found: OpenCall, name: str, arguments: str, moved: bool, *, sent_again: bool) -> bool:
        """Whether a fragment with a name, found to belong to ``found``, is a call of its own."""
        if not found.name:
            return False
        if found.complete():
            more = bool(arguments.strip()) and not sent_again
            return moved or more or name != found.name
        if moved and not found.size:
            return True
        return name != found.name and found.size > 0

    def _begin(self, wire_id: str, index: int | None) -> OpenCall:
        call = OpenCall(len(self.calls), index, wire_id, "")
        self.calls.append(call)
        return call

    def _take(
        self,
        call: OpenCall,
        wire_id: str,
        index: int | None,
        name: str,
        arguments: str,
        element: Mapping[str, Any],
    ) -> None:
        again = name and name == call.name and arguments and arguments == call.text and call.complete()
        if name and not call.name:
            call.name = name
        elif name and name != call.name and not call.size:
            call.name += name
        if name and not arguments and not wire_id and call.complete():
            call.announced = True
        if not again:
            call.add(arguments)
        if wire_id:
            call.id = call.id or wire_id
            self._by_id[wire_id] = call
        if index is not None:
            call.index = index if call.index is None else call.index
            self._by_index[index] = call
        for key, value in element.items():
            if key not in KNOWN_CALL_FIELDS and value is not None and key not in ("name", "arguments"):
                call.extra[key] = value
        self._last = call


def _arguments_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def unused_id(wire_id: str, taken: set[str], new_id: Callable[[], str]) -> str:
    """``wire_id``, or a fresh one when it is empty or ``taken``; taken from now on."""
    while not wire_id or wire_id in taken:
        wire_id = new_id()
    taken.add(wire_id)
    return wire_id


def called(call: OpenCall, call_id: str, cut: str, *, proper: bool, needed: bool) -> Called:
    """A call at the end of the answer. ``cut``: the answer ended at a limit (``length``) or a filter, so nothing runs.
    ``proper``: the answer had a finish word; ``needed``: the tool has required arguments."""
    text = whole_text(call.text)
    if cut:
        why = "at the output limit" if cut == "length" else "by the server's content filter"
        problem = f"the answer was cut {why}, so this call did not run; write smaller pieces"
        return Called(call_id, call.name, {}, problem, text[:MOST_RAW], call.extra)
    if text.strip():
        parsed = parse_arguments(text)
        raw = text[:MOST_RAW] if parsed.problem else ""
        return Called(call_id, call.name, parsed.value, parsed.problem, raw, call.extra)
    problem = ""
    if not proper:
        problem = "the arguments are missing: the answer ended before they came; send the call again"
    elif needed:
        problem = "the arguments are empty, but this tool has required ones; send them as a JSON object"
    return Called(call_id, call.name, {}, problem, "", call.extra)
