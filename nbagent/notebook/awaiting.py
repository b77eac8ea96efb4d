"""Makes the cells of ``%%plan``, ``%%build`` and ``%agent`` await their run, so that a kernel can hear clicks meanwhile.

``%%plan …`` becomes ``await get_ipython().run_cell_magic('plan', …)``; blank lines and comments above the magic are fine. The
one-line forms are found by their tokens, as IPython finds them, so that text in a string stays text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.inputtransformer2 import EscapedCommand, MagicAssign

Lines = list[str]


def cell_transformer(names: set[str]) -> Callable[[Lines], Lines]:
    """A transformer of whole cells for the magics called ``names``."""

    def nbagent_cell(lines: Lines) -> Lines:
        first = next((n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), None)
        if first is None or not lines[first].startswith("%%"):
            return lines
        name, _, rest = lines[first][2:].rstrip("\n").partition(" ")
        name, rest = (name.strip(), rest.strip()) if name.strip() else ("", "")
        if name not in names:
            return lines
        body = "".join(lines[first + 1 :])
        if not body.strip():  # IPython refuses a cell magic without a body; here it means something
            return [f"await get_ipython().run_line_magic({name!r}, {rest!r})\n"]
        return [f"await get_ipython().run_cell_magic({name!r}, {rest!r}, {body!r})\n"]

    nbagent_cell.has_side_effects = True  # type: ignore[attr-defined]  # a terminal must still see a cell magic as unfinished
    return nbagent_cell


def line_transformers(names: set[str]) -> list[Any]:
    """Token transformers for the one-line forms, to stand before IPython's own.

    ``%plan fix it`` on a line of its own and ``result = %plan fix it``. They go before the help syntax: a prompt may end with
    a question mark.
    """
    return [_awaiting(form, names) for form in (MagicAssign, EscapedCommand)]


def _awaiting(form: type[Any], names: set[str]) -> type[Any]:
    """``form``, a transformer of IPython's, for the magics called ``names``, with ``await`` put before the call."""

    class Await(form):
        priority = 1

        @classmethod
        def find(cls, tokens_by_line: Any) -> Any:
            return _first(super().find, tokens_by_line, names)

        def transform(self, lines: Lines) -> Lines:
            return _awaited(super().transform(lines), self.start_line, "get_ipython().run_line_magic(")

    return Await


def _first(find: Callable[[Any], Any], tokens_by_line: Any, names: set[str]) -> Any:
    """The first command of this kind that is ours; lines of other magics are left to IPython."""
    for tokens in tokens_by_line:
        found = find([tokens])
        if found is None:
            continue
        start = (found.start_line + 1, found.start_col)
        source = next((token.line[token.start[1] :] for token in tokens if token.start == start), "")
        words = source[1:].split(None, 1) if source.startswith("%") else []
        if words and words[0] in names:
            return found
    return None


def _awaited(lines: Lines, number: int, call: str) -> Lines:
    changed = list(lines)
    for index in range(number, len(changed)):
        if call in changed[index]:
            changed[index] = changed[index].replace(call, f"await {call}", 1)
            break
    return changed


def install(shell: Any, cells: set[str], lines: set[str]) -> Callable[[], None]:
    """Put the transformers in; the function that is returned takes them out again."""
    whole, pieces = cell_transformer(cells), line_transformers(lines)
    manager = shell.input_transformer_manager
    shell.input_transformers_cleanup.append(whole)
    manager.token_transformers[:0] = pieces

    def remove() -> None:
        if whole in shell.input_transformers_cleanup:
            shell.input_transformers_cleanup.remove(whole)
        manager.token_transformers[:] = [one for one in manager.token_transformers if one not in pieces]

    return remove
