"""A session's messages in memory and in the store: written there first, then kept here."""

from __future__ import annotations

from typing import Any

import msgspec

from nbagent.message import Message, Part, ToolPart
from nbagent.store.store import Store


class History:
    """All messages of one session, in order. Only the run that holds the session's mark writes through it.

    ``is_pruned``: whether any tool output has been emptied in requests.
    """

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self.session_id = session_id
        self.messages: list[Message] = store.messages(session_id)
        self.is_pruned = any(_is_pruned(part) for message in self.messages for part in message.parts)
        self._index = {message.id: number for number, message in enumerate(self.messages)}

    def add(self, message: Message) -> None:
        """Append a message with the parts it has."""
        self._store.add_message(message)
        self._append(message)

    def deliver(self, input_id: str, message: Message, **beside: Any) -> None:
        """Append the message that an accepted input becomes, taking it out of the inbox; ``beside`` as in ``Store.deliver``."""
        self._store.deliver(input_id, message, **beside)
        self._append(message)

    def put(self, message_id: str, part: Part) -> None:
        """Add a part to a message, or write it again in its place."""
        self._store.put_part(self.session_id, message_id, part)
        self.is_pruned = self.is_pruned or _is_pruned(part)
        number = self._index[message_id]
        message = self.messages[number]
        parts = list(message.parts)
        for place in range(len(parts) - 1, -1, -1):
            if parts[place].id == part.id:
                parts[place] = part
                break
        else:
            parts.append(part)
        self.messages[number] = msgspec.structs.replace(message, parts=tuple(parts))

    def change(self, message_id: str, **fields: Any) -> None:
        """Change a message's own fields."""
        number = self._index[message_id]
        message = msgspec.structs.replace(self.messages[number], **fields)
        self._store.put_message(message)
        self.messages[number] = message

    def message(self, message_id: str) -> Message:
        return self.messages[self._index[message_id]]

    def last_user(self) -> Message | None:
        """The newest message of a person."""
        return next((message for message in reversed(self.messages) if message.role == "user"), None)

    def _append(self, message: Message) -> None:
        self._index[message.id] = len(self.messages)
        self.messages.append(message)


def _is_pruned(part: Part) -> bool:
    return isinstance(part, ToolPart) and part.compacted is not None
