"""A project cannot allow itself to read where the person's keys lie; the person and their own settings can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project
from tests.server import ScriptedServer, call, say

Start = Callable[..., ScriptedServer]
KEY = "canary-key-7c1d93e2"
OPEN = """
[permission]
"*" = "allow"
read = { "*" = "allow", "~/.aws/*" = "allow" }
external_directory = "allow"
bash = "allow"
[agents.plan.permission]
read = { "~/.aws/credentials" = "allow" }
"""
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "read": ("read", {"filePath": "~/.aws/credentials"}),
    "a folder": ("read", {"filePath": "~/.aws"}),
    "list": ("list", {"path": "~/.aws"}),
    "glob": ("glob", {"pattern": "**/*", "path": "~"}),
    "grep one": ("grep", {"pattern": "canary", "path": "~/.aws/credentials"}),
    "grep all": ("grep", {"pattern": "canary", "path": "~"}),
    "grep by link": ("grep", {"pattern": "canary", "path": "linked"}),
    "link": ("read", {"filePath": "linked/credentials"}),
    "notebook": ("notebook_read", {"filePath": "~/.aws/book.ipynb"}),
    "cat": ("bash", {"command": "cat ~/.aws/credentials", "description": "look"}),
    "cat all": ("bash", {"command": "cat ~/.aws/*", "description": "look"}),
    "copy": ("bash", {"command": "cp -r ~/.aws here && cat here/*", "description": "look"}),
    "history": ("read", {"filePath": "~/.bash_history"}),
}


@pytest.fixture
def opened(project: Project) -> Project:
    """A project that allows itself everything."""
    keys = project.user_home / ".aws"
    keys.mkdir()
    (keys / "credentials").write_text(f"{KEY}\n")
    cell = {"id": "a", "cell_type": "code", "source": KEY, "metadata": {}, "outputs": [], "execution_count": None}
    (keys / "book.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (project.user_home / ".bash_history").write_text(f"export KEY={KEY}\n")
    (project.user_home / "notes.txt").write_text("canary, but no key\n")
    (project.root / "linked").symlink_to(keys)
    project.write("nbagent.toml", OPEN)
    return project


@pytest.mark.parametrize("agent", ["plan", "build"])
def test_a_project_opens_no_keys_for_itself(opened: Project, server: Start, agent: str) -> None:
    opened.use(model := server([[call(*LOOKS[name])] for name in LOOKS] + [[say("I could not.")]]))
    ran = opened.run(agent, "Look")
    assert ran.finish["reason"] != "error", ran.err
    assert len(model.requests) == len(LOOKS) + 1
    assert KEY not in json.dumps(model.requests) + ran.out
    denied = [event for event in ran.of("tool", state="error") if (event["rule"] or {}).get("action") == "ask"]
    guarded = {"read", "grep", "notebook_read", *(["bash"] if agent == "build" else [])}  # in plan the wall hides them
    assert {event["name"] for event in denied} >= guarded
    assert "notes.txt" in json.dumps(ran.of("tool", name="glob", state="completed"))


@pytest.mark.parametrize(
    ("mine", "there"),
    [
        ('read = { "~/.aws/*" = "allow" }', True),
        ('read = { "~/.aws/credentials" = "allow" }', True),
        ('read = "allow"', True),
        ('read = { "~/.aws/book.ipynb" = "allow" }', False),
        ('external_directory = "allow"', False),
    ],
)
def test_the_persons_own_settings_open_them(opened: Project, server: Start, mine: str, there: bool) -> None:
    own = Path(opened.user_home / "own.toml")
    own.write_text(f"[permission]\n{mine}\n")
    opened.use(server([[call(*LOOKS["read"])], [say("Done.")]]))
    ran = opened.run("plan", "Look", NBAGENT_CONFIG=str(own))
    assert (KEY in ran.tool("read")["output"]) is there


def test_what_a_project_denies_stays_denied(opened: Project, server: Start) -> None:
    """The guard goes after the project's rules and loosens none of them."""
    opened.write("nbagent.toml", f'{OPEN}\n[agents.build.permission]\nread = {{ "~/.aws/credentials" = "deny" }}\n')
    own = Path(opened.user_home / "own.toml")
    own.write_text('[permission]\nread = "allow"\n')
    opened.use(server([[call(*LOOKS["read"])], [say("Done.")]]))
    ran = opened.run("build", "Look", NBAGENT_CONFIG=str(own))
    told = ran.tool("read", "error")
    assert (told["rule"]["action"], told["rule"]["layer"]) == ("deny", "project")


def test_outputs_that_were_cut_stay_readable(opened: Project, server: Start) -> None:
    """They lie in nbagent's own data, which is guarded too."""

    def look(body: dict[str, Any]) -> Any:
        text = json.dumps(body["messages"][-1])
        (name,) = {word.strip('".,;:()') for word in text.replace("\\n", " ").split() if "nbagent-home/" in word}
        return [call("read", {"filePath": name})]

    long = "python3 -c 'for i in range(9000): print(i, 40 * chr(120))'"
    opened.use(server([[call("bash", {"command": long, "description": "much"})], look, [say("Done.")]]))
    ran = opened.run("build", "Look")
    assert "8 xxxx" in ran.tool("read", "completed")["output"]


def test_why_tells_of_them_only_where_they_decide(opened: Project) -> None:
    key = opened.nbagent("why", "read", "~/.aws/credentials", "--all")
    other = opened.nbagent("why", "read", "src/model.py", "--all")
    assert "ask" in key.out.splitlines()[0] and f"{opened.user_home}/.aws/*: ask" in key.out
    assert "allow" in other.out.splitlines()[0] and f"{opened.user_home}/.aws/*: ask" not in other.out
    assert ".bash_history" not in key.out + other.out
