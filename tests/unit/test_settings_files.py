"""Mistakes in settings: the file, the key as it is written there, and what may stand in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nbagent.config import load
from nbagent.errors import ConfigError


def told(tmp_path: Path, text: str) -> str:
    (tmp_path / "nbagent.toml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, {"HOME": str(tmp_path)})
    said = str(raised.value)
    assert said.startswith(f"{tmp_path / 'nbagent.toml'}: ")
    assert "`" not in said
    assert "[...]" not in said
    return said


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("permission = 'allow'", "permission", 'a table of rules, each "allow", "ask" or "deny"'),
        ("permission = ['a']", "permission", 'a table of rules, each "allow", "ask" or "deny"'),
        (
            "agents.mine.permission = 'allow'",
            "agents.mine.permission",
            'a table of rules, each "allow", "ask" or "deny"',
        ),
        ("[agents.mine]\nmode = 'x'", "agents.mine.mode", "primary, subagent"),
        ("[agents.good]\ndescription = 'd'\n[agents.mine]\nmode = 'x'", "agents.mine.mode", "primary, subagent"),
        ("[agents.mine]\nsteps = 0", "agents.mine.steps", "a whole number, 1 or more"),
        ("api = 'soap'", "api", "chat, responses"),
        ("limits = 3", "limits", "a table"),
        ("[limits]\nsteps = 'many'", "limits.steps", "a whole number"),
        ("[limits]\nsteps = 0", "limits.steps", "a whole number, 1 or more"),
        ("[limits]\nsteps = -1", "limits.steps", "a whole number, 1 or more"),
        ("[limits]\ntokens = -1", "limits.tokens", "a whole number, 0 or more"),
        ("[limits]\nseconds = -0.5", "limits.seconds", "a number, 0 or more"),
        ("[limits]\nseconds = nan", "limits.seconds", "a number, 0 or more"),
        ("[compaction]\nauto = 1", "compaction.auto", "true or false"),
        ("[models.'a.b']\nwindow = 'big'", 'models."a.b".window', "a whole number"),
        ("[models.'a.b']\nwindow = -1", 'models."a.b".window', "a whole number, 0 or more"),
        ("[mcp.one]\ncommand = 'x'\n[mcp.two]\ncommand = 'x'\nargs = 'b'", "mcp.two.args", "a list"),
        ("[mcp.two]\ncommand = 'x'\nargs = ['b', 3]", "mcp.two.args[1]", "text"),
        ("[mcp.two]\ncommand = 'x'\n[mcp.two.env]\nA = 'x'\nB = 1", "mcp.two.env.B", "text"),
        ("[mcp.two]", "mcp.two", "command or url"),
        ("[mcp.two]\ncommand = 'x'\nurl = 'http://127.0.0.1/'", "mcp.two", "command or url"),
        ("[mcp.two]\ncommands = 'x'", "mcp.two.commands", "Did you mean 'command'?"),
    ],
)
def test_the_key_is_named_as_it_is_written(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    said = told(tmp_path, text + "\n")
    assert f" {key} is " in said or f" {key!r}" in said or f" {key}: " in said, said
    assert allowed in said


def test_a_table_of_the_project_leaves_the_other_keys_of_the_person_s(tmp_path: Path) -> None:
    root, own = tmp_path / "work", tmp_path / "own.toml"
    root.mkdir()
    own.write_text(
        "[limits]\ntokens = 1000\nsteps = 5\n[compaction]\nauto = false\n[models.m]\nwindow = 9000\nvision = true\n"
    )
    (root / "nbagent.toml").write_text(
        "[limits]\nsteps = 7\n[compaction]\nprune = false\n[models.m]\ntemperature = 0.5\n"
    )
    found = load(root, {"HOME": str(tmp_path), "NBAGENT_CONFIG": str(own)})
    assert (found.limits.steps, found.limits.tokens) == (7, 1000)
    assert (found.compaction.auto, found.compaction.prune) == (False, False)
    model = found.models["m"]
    assert (model.window, model.vision, model.temperature) == (9000, True, 0.5)


@pytest.mark.parametrize("name", ["nbagent.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["folder", "dangling", "circle"])
def test_settings_that_are_there_and_cannot_be_read_stop_everything(tmp_path: Path, name: str, kind: str) -> None:
    """Rules may stand in them: going on without would let a denial fail open."""
    path = tmp_path / name
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("gone.toml" if kind == "dangling" else name)
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        load(tmp_path, {"HOME": str(tmp_path)})


def test_a_settings_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NBAGENT_CONFIG"):
        load(tmp_path, {"HOME": str(tmp_path), "NBAGENT_CONFIG": str(tmp_path / "gone.toml")})
    assert load(tmp_path, {"HOME": str(tmp_path), "NBAGENT_CONFIG": os.devnull}).rules == ()
    assert load(tmp_path, {"HOME": str(tmp_path), "NBAGENT_CONFIG": ""}).rules == ()


@pytest.mark.parametrize("name", ["nbagent.toml", "pyproject.toml"])
def test_settings_further_up_in_the_repository_do_not_count_and_that_is_said(tmp_path: Path, name: str) -> None:
    top, below = tmp_path / "work", tmp_path / "work" / "notebooks" / "deep"
    below.mkdir(parents=True)
    (top / name).write_text(
        "[tool.nbagent.permission]\nedit = 'deny'\n" if name != "nbagent.toml" else "permission.edit = 'deny'\n"
    )
    environment = {"HOME": str(tmp_path)}
    assert load(below, environment).warnings == ()  # no repository: nothing says that they belong together
    (top / ".git").mkdir()
    found = load(below, environment)
    (said,) = found.warnings
    assert found.rules == ()
    assert said.startswith(f"{top / name} does not count here")
    assert "--root" in said
    (below / "nbagent.toml").write_text("model = 'm'\n")
    assert load(below, environment).warnings == ()
    assert load(top, environment).warnings == ()
