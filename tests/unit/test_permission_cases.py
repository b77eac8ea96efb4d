"""The engine against tables of inputs and right answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagent.permission.arity import arity_prefix
from nbagent.permission.ruleset import Rule, disabled, evaluate, from_config, merge
from nbagent.permission.wildcard import match

DATA = Path(__file__).parent.parent / "data" / "permission"


def cases(name: str) -> list[Any]:
    rows = json.loads((DATA / f"permission_{name}.json").read_text())
    return [pytest.param(row["inputs"], row["expected"], id=row["id"]) for row in rows]


def rules(rows: list[dict[str, Any]]) -> tuple[Rule, ...]:
    return tuple(Rule(row["permission"], row["pattern"], row["action"]) for row in rows)


@pytest.mark.parametrize(("inputs", "expected"), cases("wildcard"))
def test_wildcard(inputs: Any, expected: bool) -> None:
    assert match(inputs["text"], inputs["pattern"], fold=False) is expected


@pytest.mark.parametrize(("inputs", "expected"), cases("evaluate"))
def test_evaluate(inputs: Any, expected: Any) -> None:
    won = evaluate(inputs["permission"], inputs["pattern"], *map(rules, inputs["rulesets"]))
    assert won.action == expected["action"]
    assert won == rules([expected["matched_rule"]])[0]


@pytest.mark.parametrize(("inputs", "expected"), cases("disabled"))
def test_disabled(inputs: Any, expected: Any) -> None:
    assert disabled(inputs["tools"], rules(inputs["ruleset"])) == expected


@pytest.mark.parametrize(("inputs", "expected"), cases("merge"))
def test_merge(inputs: Any, expected: Any) -> None:
    assert merge(*map(rules, inputs["rulesets"])) == rules(expected)


@pytest.mark.parametrize(("inputs", "expected"), cases("from_config"))
def test_from_config(inputs: Any, expected: Any) -> None:
    assert from_config(inputs["config"], home=inputs["home"]) == rules(expected)


@pytest.mark.parametrize(("inputs", "expected"), cases("arity"))
def test_arity(inputs: Any, expected: Any) -> None:
    assert list(arity_prefix(inputs["tokens"])) == expected
