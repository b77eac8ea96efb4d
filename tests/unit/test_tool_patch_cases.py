"""Whole patches against a table of files before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ModelError
from nbagent.permission.ruleset import Rule
from tests.toolbox import toolbox

CASES = json.loads((Path(__file__).parents[1] / "data/tools/apply_patch.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_patch(case: dict[str, Any], tmp_path: Path) -> None:
    given, expected = case["inputs"], case["expected"]
    rules = tuple(Rule(rule["permission"], rule["pattern"], rule["action"]) for rule in given["rules"])
    reading = (Rule("read", "*", "allow"), *rules)
    box = toolbox(tmp_path, rules=reading, replies=given.get("replies", {}))
    for path, text in given["files"].items():
        box.put(path, text)
    try:
        await box.call("apply_patch", patchText=given["patchText"])
        status = "completed"
    except ModelError:
        status = "error"
    assert status == expected["status"]
    assert box.tree() == expected["files_after"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]
