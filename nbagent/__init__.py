"""nbagent: a coding agent at home in Jupyter. ``%load_ext nbagent`` gives ``%%plan``, ``%%build`` and ``%agent``."""

from __future__ import annotations

from typing import Any

from nbagent.version import __version__ as __version__


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext nbagent``."""
    from nbagent.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext nbagent``."""
    from nbagent.notebook.magics import unload

    unload(shell)
