"""The match ladder against a table of contents, quotes and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ToolError
from nbagent.tools.replace import Ambiguous, NotFound, replace

CASES = json.loads((Path(__file__).parents[1] / "data/tools/edit_replace.json").read_text(encoding="utf-8"))
ERRORS = {"ambiguous": Ambiguous, "not-found": NotFound, "empty": ToolError}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_ladder(case: dict[str, Any]) -> None:
    given, expected = case["inputs"], case["expected"]
    if "error" in expected:
        with pytest.raises(ERRORS[expected["error"]]):
            replace(given["content"], given["oldString"], given["newString"], given["replaceAll"])
        return
    result, strategy = replace(given["content"], given["oldString"], given["newString"], given["replaceAll"])
    assert result == expected["result"]
    assert strategy == expected["first_strategy_with_a_hit"]
