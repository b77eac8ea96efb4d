"""Hundreds of command lines: what they write, what is proven harmless, what three rulesets say; the harmless ones are run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nbagent.sandbox import Confinement, NoWall, find_wall, run_command
from tests.unit.shell_ground import RULESETS, Ground, action

DATA = Path(__file__).parent.parent / "data" / "permission" / "shell_lines.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground") / "w").with_git()


def test_there_are_many_lines_and_each_once() -> None:
    assert len(ROWS) >= 400 and len({row["line"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[repr(row["line"])[:60] for row in ROWS])
def test_line(row: dict[str, Any], ground: Ground) -> None:
    scanned = ground.scan(row["line"])
    assert ("fault" if scanned.fault else scanned.verdict) == row["verdict"]
    assert [ground.generic(ground.shown(target)) for target in scanned.writes] == row["writes"]
    assert {name: action(name, scanned) for name in RULESETS} == {name: row[name] for name in RULESETS}


def test_what_is_called_read_only_changes_nothing(ground: Ground) -> None:
    lines = [row["line"] for row in ROWS if row["verdict"] == "read_only"]
    assert len(lines) > 150
    before = ground.digest()
    for line in lines:
        ground.run(line)
        assert ground.digest() == before, line


async def test_nor_does_it_behind_the_wall(ground: Ground, tmp_path: Path) -> None:
    wall = find_wall()
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    lines = [row["line"] for row in ROWS if row["verdict"] == "read_only"]
    temp, spill = tmp_path / "temp", tmp_path / "spill"
    temp.mkdir()
    before = ground.digest()
    outcome = await run_command(
        ["bash", "-c", "\n".join(f"(\n{line}\n)" for line in lines) + "\necho all done"],
        cwd=ground.root.path,
        environment=ground.environment,
        timeout=60,
        on_output=lambda text: None,
        spill=spill,
        wall=wall,
        confinement=Confinement(ground.root.path, temp),
    )
    assert "all done" in outcome.output and ground.digest() == before
