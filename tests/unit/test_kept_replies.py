"""Replies that are saved: where they may go, and what they may not outrank."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.clock import CountingClock
from nbagent.config import add_rule
from nbagent.errors import ConfigError
from nbagent.permission.ruleset import Ruleset, from_config, merge
from nbagent.root import Root
from nbagent.session.kept import KeptReplies, outranked
from nbagent.store.store import Store

RULES = merge(
    from_config({"edit": {"*": "ask", "secrets/*": "deny"}, "bash": {"*": "ask", "git push": "deny"}}, layer="user"),
)


def kept(tmp_path: Path, rules: Ruleset, *, confined: bool = False) -> tuple[KeptReplies, list[str]]:
    said: list[str] = []
    (tmp_path / "work").mkdir()
    store = Store.open(tmp_path / "sessions.db", CountingClock())
    store.create_session(directory=str(tmp_path / "work"), agent="build", session_id="ses_1")
    replies = KeptReplies(
        store,
        "ses_1",
        "build",
        Root(tmp_path / "work"),
        rules=lambda: rules,
        confined=confined,
        warn=said.append,
    )
    return replies, said


@pytest.mark.parametrize(
    ("permission", "pattern", "denied"),
    [
        ("edit", "*", "secrets/*"),
        ("edit", "secrets/new/*", "secrets/*"),
        ("edit", "sec*", "secrets/*"),
        ("edit", "s?crets/a", "secrets/*"),
        ("edit", "src/*", ""),
        ("edit", "src/a.py", ""),
        ("edit", "=src/a*.py", ""),
        ("bash", "git *", "git push"),
        ("bash", "git push *", "git push"),
        ("bash", "git status *", ""),
        ("webfetch", "https://x/*", ""),
    ],
)
def test_what_a_saved_rule_would_outrank(permission: str, pattern: str, denied: str) -> None:
    found = outranked(RULES, permission, pattern)
    assert (found.pattern if found else "") == denied


def test_a_deny_that_is_overruled_already_is_no_hindrance() -> None:
    rules = from_config({"edit": {"*": "deny", "src/*": "ask"}}, layer="project")
    assert outranked(rules, "edit", "src/lib/*") is None
    assert outranked(rules, "edit", "s*") is not None


def test_saved_only_where_it_may_be(tmp_path: Path) -> None:
    replies, said = kept(tmp_path, RULES)
    settings = tmp_path / "work" / "nbagent.toml"
    replies.add("edit", "*", save=True)
    assert not settings.exists() and "secrets/*" in said[0]
    replies.add("edit", "src/*")
    assert not settings.exists()
    replies.add("edit", "src/*", save=True)
    assert settings.read_text() == '[permission.edit]\n"src/*" = "allow"\n'
    assert [each.pattern for each in replies.list()] == ["*", "src/*", "src/*"]


def test_a_confined_run_saves_nothing(tmp_path: Path) -> None:
    replies, said = kept(tmp_path, RULES, confined=True)
    replies.add("webfetch", "https://example.org/*", save=True)
    assert list((tmp_path / "work").iterdir()) == [] and "session" in said[0]
    assert [each.permission for each in replies.list()] == ["webfetch"]


@pytest.mark.parametrize("name", ["nbagent.toml", ".nbagent.toml.new"])
def test_links_in_the_way_of_the_settings(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine = 1\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / name).symlink_to(victim)
    if name == "nbagent.toml":
        with pytest.raises(ConfigError, match="link"):
            add_rule(work / "nbagent.toml", "edit", "src/*", "allow")
    else:
        add_rule(work / "nbagent.toml", "edit", "src/*", "allow")
        assert (work / "nbagent.toml").is_file()
    assert victim.read_text() == "mine = 1\n" and (work / name).is_symlink()


def test_a_file_that_cannot_be_changed_is_said(tmp_path: Path) -> None:
    replies, said = kept(tmp_path, RULES)
    (tmp_path / "work" / "nbagent.toml").write_text("this is = = no toml")
    replies.add("edit", "src/*", save=True)
    assert "could not be changed" in said[0]
