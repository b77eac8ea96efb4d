"""``@file.py``, ``@data/``, ``@df`` and ``@cell:ID`` in a person's prompt, as file parts.

Only the person's own words are looked through, never a model's. What the rules do not allow to be read is not attached, and
that is said. A name that is nothing here stays plain text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from nbagent.errors import ToolError
from nbagent.message import FilePart
from nbagent.root import Place, Root

LIMIT = 50_000
IMAGE_LIMIT = 3_000_000
ENTRIES = 100
_MENTION = re.compile(r"(?<![\w@`.])@(cell:[\w-]+|\"[^\"\n]+\"|[^\s@\"'`<>(){}\[\]]+)")
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}

Allowed = Callable[[str, str], bool]


class Attacher:
    """Finds mentions and makes parts. ``allowed(permission, pattern)``: whether the rules allow it without asking.

    ``describe(name)``: a variable in words; ``cells``: the notebook's cells as nbformat dicts.
    """

    def __init__(
        self,
        root: Root,
        allowed: Allowed,
        variables: Mapping[str, Any],
        describe: Callable[[str], str],
        cells: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._root = root
        self._allowed = allowed
        self._variables = variables
        self._describe = describe
        self._cells = cells
        self.notes: list[str] = []

    def parts(self, text: str) -> tuple[FilePart, ...]:
        """One part a mention, in order, each once."""
        found: dict[str, FilePart] = {}
        for match in _MENTION.finditer(text):
            name = match[1].strip('"')
            if name in found:
                continue
            part = self._part(name)
            trimmed = name.rstrip(".,;:!?")
            if part is None and trimmed != name and trimmed not in found:
                name, part = trimmed, self._part(trimmed)
            if part is not None:
                found[name] = part
        return tuple(found.values())

    def _part(self, name: str) -> FilePart | None:
        if name.startswith("cell:"):
            return self._cell(name[5:])
        if name.isidentifier() and name in self._variables:
            return FilePart(id="", mime="text/plain", filename=name, source="variable", text=self._describe(name))
        return self._path(name)

    def _cell(self, cell_id: str) -> FilePart | None:
        for cell in self._cells():
            if cell.get("id") == cell_id:
                source = cell.get("source", "")
                text = source if isinstance(source, str) else "".join(source)
                return FilePart(id="", mime="text/plain", filename=f"cell:{cell_id}", source="cell", text=text)
        self.notes.append(f"@cell:{cell_id} was not attached: this notebook has no such cell.")
        return None

    def _path(self, name: str) -> FilePart | None:
        try:
            place = self._root.locate(name)
            if not place.real.exists():
                return None
            if not self._may_read(place, name):
                return None
            return self._folder(place, name) if place.real.is_dir() else self._file(place, name)
        except (ToolError, OSError, ValueError) as error:
            if "/" in name or PurePosixPath(name).suffix:
                self.notes.append(f"@{name} was not attached: {error}")
            return None

    def _may_read(self, place: Place, name: str) -> bool:
        if place.outside and not self._allowed("external_directory", place.pattern):
            self.notes.append(f"@{name} was not attached: it is outside of the project.")
            return False
        if not self._allowed("read", place.pattern):
            self.notes.append(f"@{name} was not attached: the rules do not allow it to be read without asking.")
            return False
        return True

    def _folder(self, place: Place, name: str) -> FilePart:
        entries = sorted(place.real.iterdir(), key=lambda path: path.name)
        lines = [entry.name + ("/" if entry.is_dir() else "") for entry in entries[:ENTRIES]]
        if len(entries) > ENTRIES:
            lines.append(f"… {len(entries) - ENTRIES} more")
        return FilePart(id="", mime="text/plain", filename=name, source="folder", text="\n".join(lines))

    def _file(self, place: Place, name: str) -> FilePart:
        image = _IMAGES.get(place.real.suffix.lower())
        with place.open_parent() as handle:
            data = handle.read_bytes(IMAGE_LIMIT + 1 if image else LIMIT + 1)
        if image and len(data) <= IMAGE_LIMIT:
            return FilePart(id="", mime=image, filename=name, data=base64.b64encode(data).decode())
        if b"\0" in data[:8000]:
            self.notes.append(f"@{name} was not attached: it is not text.")
            return FilePart(id="", mime="text/plain", filename=name, text="(a binary file; not shown)")
        text = data[:LIMIT].decode("utf-8", "replace")
        if len(data) > LIMIT:
            text += f"\n… (cut after {LIMIT:,} bytes; read the file for the rest)"
        return FilePart(id="", mime="text/plain", filename=name, text=text)
