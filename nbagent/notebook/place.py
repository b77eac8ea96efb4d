"""Where a cell runs: which notebook, which cell, and whether a person is there. Looks, and changes nothing."""

from __future__ import annotations

import os
import sys
from typing import Any


def attended(shell: Any) -> bool:
    """Whether a person can answer: programs that run notebooks send ``allow_stdin`` false. ``NBAGENT_HEADLESS`` decides if set."""
    if forced():
        return forced() in ("0", "false", "no")
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return sys.stdin is not None and sys.stdin.isatty()
    return standard_input(kernel)


def forced() -> str:
    """What ``NBAGENT_HEADLESS`` says, "" when it is not set."""
    return os.environ.get("NBAGENT_HEADLESS", "").strip().lower()


def standard_input(kernel: Any) -> bool:
    """Whether the front end that sent the running cell answers ``input()``."""
    return bool(getattr(kernel, "_allow_stdin", False))


def parent(shell: Any) -> dict[str, Any]:
    """The message that the running cell came with, {} outside a kernel."""
    kernel = getattr(shell, "kernel", None)
    try:
        found = kernel.get_parent("shell") if kernel is not None else {}
    except (AttributeError, LookupError):
        found = {}
    return found if isinstance(found, dict) else {}


def notebook_path(shell: Any) -> str:
    """The notebook's path as the front end names it, "" when unknown."""
    told = shell.user_ns.get("__vsc_ipynb_file__")
    if isinstance(told, str) and told:
        return told
    session = os.environ.get("JPY_SESSION_NAME", "")
    return session if session.endswith(".ipynb") else ""


def cell_id(shell: Any) -> str:
    """The id of the running cell, "" when the front end does not say."""
    metadata = parent(shell).get("metadata")
    found = metadata.get("cellId") if isinstance(metadata, dict) else ""
    return found if isinstance(found, str) else ""


def cell_name(shell: Any) -> str:
    """Notebook and cell in one word, "" when either is unknown."""
    path, cell = notebook_path(shell), cell_id(shell)
    return f"{path}#{cell}" if path and cell else ""
