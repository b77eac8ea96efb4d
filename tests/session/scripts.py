"""Models that tests play."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.server import call, content_text

PLAN = "# Fix recall\n\nThe recall is computed with false positives.\n\n## Files\n- `src/model.py`\n\n## Verification\nRun the tests.\n"


def told(body: dict[str, Any]) -> str:
    """Everything that a request says, as one text."""
    return "\n".join(content_text(message.get("content")) for message in body["messages"])


def tool_names(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def plan_path(body: dict[str, Any]) -> str:
    """Where the model was told to write the plan, the newest word counting."""
    found = re.findall(r"[^\s`]*\.nbagent/plans/[^\s`]+?\.md", told(body))
    assert found, told(body)[-2000:]
    return str(found[-1])


def write_plan(text: str = PLAN) -> Callable[[dict[str, Any]], Any]:
    """An answer: the plan is written where the model was told to."""
    return lambda body: [call("write", {"filePath": plan_path(body), "content": text})]


def edit_model(old: str = "(tp + fp)", new: str = "(tp + fn)") -> list[Any]:
    return [call("edit", {"filePath": "src/model.py", "oldString": old, "newString": new})]


READ_MODEL = [call("read", {"filePath": "src/model.py"})]
EXIT = [call("plan_exit", {})]
