"""What is shown while a cell runs is one widget of ours, and what is saved is none at all."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "nbagent"


def test_no_output_widget_and_no_widget_state_is_written() -> None:
    """``with Output()`` loses what is printed elsewhere meanwhile; widget state in a notebook is Jupyter's to write."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"with\s+[\w.]*Output\(", text), path
        assert "vnd.jupyter.widget-state" not in text, path
