"""Agents as Markdown files: what is read, and what is said about a file that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.agent_file import front_matter
from nbagent.config import load
from nbagent.errors import ConfigError

FILE = """---
# who looks at SQL
description: Reviews SQL: carefully
mode: subagent
temperature: 0.2
steps: 20
permission:
  edit: deny
  bash:
    "*": ask
    git log *: allow
---

Look at the queries of $1.
---
(not a second head)
"""


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "NBAGENT_HOME": str(home / "data")}


def project(folder: Path, name: str, text: str, place: str = "work/.nbagent/agents") -> Path:
    path = folder / place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    (folder / "work").mkdir(exist_ok=True)
    return folder / "work"


def test_a_file_is_an_agent(tmp_path: Path) -> None:
    root = project(tmp_path, "sql.md", FILE)
    agent = load(root, environment(tmp_path)).agent("sql")
    assert (agent.description, agent.mode, agent.temperature, agent.steps) == (
        "Reviews SQL: carefully",
        "subagent",
        0.2,
        20,
    )
    assert agent.prompt == "Look at the queries of $1.\n---\n(not a second head)"
    assert [(r.permission, r.pattern, r.action, r.layer) for r in agent.own] == [
        ("edit", "*", "deny", "project"),
        ("bash", "*", "ask", "project"),
        ("bash", "git log *", "allow", "project"),
    ]


def test_a_persons_agent_is_in_every_project_and_the_projects_file_has_the_last_word(tmp_path: Path) -> None:
    project(tmp_path, "mine.md", "---\ndescription: one\nmodel: small\n---\nOne.", ".config/nbagent/agents")
    root = project(tmp_path, "mine.md", "---\ndescription: other\n---\nOther.")
    agent = load(root, environment(tmp_path)).agent("mine")
    assert (agent.description, agent.prompt, agent.model) == ("other", "Other.", "small")
    assert load(tmp_path / "work" / ".nbagent", environment(tmp_path)).agent("mine").prompt == "One."


def test_a_built_in_agent_can_be_given_words_but_not_less_of_a_floor(tmp_path: Path) -> None:
    root = project(tmp_path, "plan.md", "---\npermission:\n  edit: allow\n---\nThink of the users.")
    agent = load(root, environment(tmp_path)).agent("plan")
    assert agent.floor and agent.planning and agent.prompt == "Think of the users."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no head", "must begin with a line ---"),
        ("---\ndescription: x\n", "never closed"),
        ("---\ndescription x\n---\n", ":2: 'description x'"),
        ("---\ndescription: [a, b]\n---\n", "not understood"),
        ("---\ndescription: x\ntools: a\n---\n", "unknown key 'tools'"),
        ("---\ndescription: x\nmode: both\n---\n", "mode"),
        ("---\ndescription: x\nsteps: many\n---\n", "steps"),
        ("---\nmodel: x\n---\nHello.", "needs a description"),
        ("---\ndescription: x\npermission:\n  edit: maybe\n---\n", "edit"),
        ("---\nname: a b\ndescription: x\n---\n", "no name for an agent"),
        ("---\ndescription: 'x\n---\n", "not closed"),
        ("---\ndescription: x\n\tmode: y\n---\n", "tab"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    root = project(tmp_path, "bad.md", text)
    with pytest.raises(ConfigError) as told:
        load(root, environment(tmp_path))
    assert says in str(told.value) and "bad.md" in str(told.value)
    assert "\n" not in str(told.value)


def test_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text(FILE)
    root = project(tmp_path, "ok.md", FILE)
    (root / ".nbagent/agents/leak.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(ConfigError, match="link"):
        load(root, environment(tmp_path))


def test_bytes_that_are_no_text_are_a_sentence(tmp_path: Path) -> None:
    root = project(tmp_path, "bad.md", "")
    (root / ".nbagent/agents/bad.md").write_bytes(b"---\n\xff\xfe\n---\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(root, environment(tmp_path))


@given(st.lists(st.text(alphabet="ab :#'\"-\t|>[]{}*&!0.\\", max_size=20), max_size=8))
def test_any_lines_are_read_or_refused(lines: list[str]) -> None:
    try:
        assert isinstance(front_matter(lines, Path("a.md")), dict)
    except ConfigError as error:
        assert str(error).startswith("a.md:")


@given(st.dictionaries(st.text("abc*?/._ ", min_size=1).map(str.strip).filter(bool), st.text(max_size=20), max_size=4))
def test_quoted_words_come_back(table: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'

    lines = [f"{quoted(key)}: {quoted(value)}" for key, value in table.items()]
    if all(len(line.splitlines()) == 1 and line.strip() == line for line in lines):
        assert front_matter(lines, Path("a.md")) == table
