"""Which notebook a call means, and whether it is edited in an open page or in its file."""

from __future__ import annotations

from dataclasses import dataclass

from nbagent.errors import ToolError
from nbagent.frontend import OpenNotebook
from nbagent.root import Place
from nbagent.tools.tool import ToolContext

MAX_SIZE = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """``live``: the open notebook, when a page can be asked for it; else the file counts. ``here``: the notebook of the run."""

    place: Place
    live: OpenNotebook | None
    here: bool


def find(spelled: str, context: ToolContext) -> Found:
    """The notebook that ``filePath`` names, or that the run was started from. Raises ``ToolError``."""
    own = context.frontend.notebook
    if not spelled:
        if own is None or not own.path:
            raise ToolError("It is not known which notebook this is. Send filePath.")
        spelled = own.path
    place = context.root.locate(spelled)
    if place.real.suffix.lower() != ".ipynb":
        raise ToolError(f"{place.pattern} is no notebook (.ipynb). Use read, edit and write for other files.")
    here = own is not None and bool(own.path) and context.root.locate(own.path).real == place.real
    live = own if own is not None and here and own.connected else None
    return Found(place, live, here)


def read_file(place: Place) -> bytes:
    """The file's bytes. Raises ``ToolError``."""
    if not place.real.exists():
        raise ToolError(f"{place.pattern} does not exist.")
    with place.open_parent() as handle:
        data = handle.read_bytes(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise ToolError(f"{place.pattern} is larger than {MAX_SIZE // 1024 // 1024} MB. Clear its outputs first.")
    return data
