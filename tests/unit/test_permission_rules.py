"""Rules as people write them: read, explained, checked, anchored to real places."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from nbagent.errors import ConfigError
from nbagent.permission.explanation import explain
from nbagent.permission.path import anchored, path_effects, path_needs
from nbagent.permission.ruleset import (
    Rule,
    check,
    evaluate,
    from_config,
    lint,
    merge,
    permission_of,
    shadowed,
)
from nbagent.permission.wildcard import exactly, match
from nbagent.root import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    for name in ("w/src", "w/secrets", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "w/vendor").symlink_to(tmp_path / "out")
    (tmp_path / "w/secrets/key").write_text("")
    return Root(tmp_path / "w", home=tmp_path)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("src/a.py", "src/**/*", True),
        ("src/x/y.py", "src/**/*", True),
        ("src/x/y.py", "src/*.py", True),
        ("docs/a.md", "*.md", True),
        ("a.py", "**/a.py", True),
        ("x/y/a.py", "**/a.py", True),
        ("xa.py", "**/a.py", False),
        ("x/ba.py", "**/a.py", False),
        ("src/a/b/c", "src/**/b/**/c", True),
        ("src/b/c", "src/**/b/**/c", True),
        ("src/bb/c", "src/**/b/**/c", False),
        ("src/", "src/**/", True),
        ("srcx", "src/**/x", False),
        ("src/x", "src/**/**/x", True),
        ("a\nb", "a*b", True),
        ("a\nb", "a?b", True),
        ("a\n", "a", False),
        ("git\nstatus", "git *", False),
        ("rm x", "=rm x", True),
        ("rm x", "=rm *", False),
        ("rm *", "=rm *", True),
        ("=x", "==x", True),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("a b", "a *", True),
        ("a", "a *", True),
        ("ab", "a *", False),
        ("É", "?", True),
        ("abcabc", "*abc", True),
        ("aab", "*a*b", True),
        ("a(b", "a(*", True),
    ],
)
def test_wildcards(text: str, pattern: str, expected: bool) -> None:
    assert match(text, pattern, fold=False) is expected


def test_case_may_be_ignored() -> None:
    assert match("SRC\\A.py", "src/a.PY", fold=True) and match("X", "=x", fold=True)
    assert not match("SRC", "src", fold=False)


def test_ten_thousand_stars_end_quickly() -> None:
    started = time.process_time()
    assert match("a" * 10_000, "*" * 10_000)
    assert not match("a" * 10_000, "*a" * 10_000 + "b")
    assert not match("a/" * 5_000, "**/a" * 3_000 + "b")
    assert not match("x" * 50_000, "*x" * 50 + "y")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("text", ["a", "*", "a*b", "=x", "a\\b", "?", "", "x y"])
def test_exactly_matches_that_text_alone(text: str) -> None:
    assert match(text, exactly(text), fold=False)
    assert not match(text + "x", exactly(text), fold=False)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"edit": "yes"}, ["permission.edit is 'yes'", '"allow", "ask" or "deny"']),
        ({"bash": {"rm *": "Deny"}}, ['permission.bash."rm *"', "'Deny'"]),
        ({"edit": None}, ["permission.edit"]),
        ({"edit": ["a"]}, ["permission.edit"]),
        ({"bash": {"x": {"y": "allow"}}}, ['permission.bash."x"']),
        ("allow", ["must be a table"]),
    ],
)
def test_a_wrong_setting_names_file_key_and_values(config: object, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        from_config(config, source="nbagent.toml")  # type: ignore[arg-type]
    assert str(caught.value).startswith("nbagent.toml: ")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("./x", "x"),
        ("a//b", "a/b"),
        ("a/./b", "a/b"),
        ("a/../b", "b"),
        ("secrets/", "secrets/*"),
        ("./", "*"),
        (".", "."),
        ("~/x/", "/h/x/*"),
        ("$HOME/x", "/h/x"),
        ("$HOME", "/h"),
        ("a\\b", "a/b"),
        ("/a/../b", "/b"),
        ("../x", "../x"),
        ("src/**/", "src/**/*"),
        ("=./x", "=./x"),
        ("*", "*"),
    ],
)
def test_path_patterns_are_tidied(written: str, read: str) -> None:
    assert from_config({"edit": {written: "deny"}}, home="/h")[0].pattern == read


def test_other_patterns_are_left_alone() -> None:
    assert from_config({"bash": {"./run.sh": "allow", "~/bin/x *": "allow"}}, home="/h") == (
        Rule("bash", "./run.sh", "allow"),
        Rule("bash", "/h/bin/x *", "allow"),
    )


def test_bare_words_for_bash_cover_arguments() -> None:
    rules = from_config({"bash": {"*": "allow", "git": "deny"}})
    assert evaluate("bash", "git push", rules).action == "deny"
    assert evaluate("bash", "git", rules).action == "deny"
    assert evaluate("bash", "gitk", rules).action == "allow"
    assert evaluate("edit", "git push", from_config({"edit": {"git": "deny"}})).action == "ask"


def test_explain_shows_every_rule_and_the_winner() -> None:
    rules = (Rule("*", "*", "allow", "defaults"), Rule("edit", "*", "deny", "floor"), Rule("bash", "*", "ask", "user"))
    told = explain("edit", "src/a.py", rules)
    assert told.to_json() == {
        "permission": "edit",
        "pattern": "src/a.py",
        "action": "deny",
        "rule": {"permission": "edit", "pattern": "*", "action": "deny", "layer": "floor"},
    }
    assert [hit for _, hit in told.rows] == [True, True, False]
    assert told.lines() == [
        "edit src/a.py: deny (it is refused)",
        "Decided by the rule “edit *: deny” of the agent's floor, which no setting and no reply changes.",
        "",
        "Rules are read from the first to the last, and the last that matches decides. The 2 that match:",
        "  * *: allow    defaults  matches",
        "  edit *: deny  floor     decides",
        "",
        "--all shows the rules that do not match, too.",
    ]
    assert told.lines(whole=True)[3:] == [
        "Rules are read from the first to the last, and the last that matches decides. All 3 rules:",
        "  * *: allow    defaults  matches",
        "  edit *: deny  floor     decides",
        "  bash *: ask   user",
    ]
    nothing = explain("x", "y", ())
    assert nothing.to_json()["rule"] is None and nothing.action == "ask"
    assert nothing.lines()[1:] == ["Decided by no rule: none matches, and then a person is asked."]


@pytest.mark.skipif(os.name == "nt", reason="there a backslash separates folders")
@pytest.mark.parametrize("permission", ["edit", "read", "external_directory"])
def test_a_backslash_in_the_name_of_a_file_is_no_slash(permission: str) -> None:
    rules = (Rule(permission, "*", "deny"), Rule(permission, "plans/*.md", "allow"))
    assert evaluate(permission, "plans/x.md", rules).action == "allow"
    assert evaluate(permission, "plans\\x.md", rules).action == "deny"
    assert explain(permission, "plans\\x.md", rules).action == "deny"
    named = (*rules, Rule(permission, exactly("plans\\x.md"), "allow"))
    assert evaluate(permission, "plans\\x.md", named).action == "allow"
    assert evaluate(permission, "plans/y\\x.md", rules).action == "allow"
    assert evaluate(permission, "plans\\y/x.md", rules).action == "deny"


def test_shadowed_rules_are_reported() -> None:
    rules = (
        Rule("external_directory", "/data/ok/*", "allow", "user"),
        Rule("external_directory", "/data/*", "deny", "user"),
    )
    (found,) = shadowed(rules)
    assert found.at == 0 and found.by == rules[1]
    assert "rule 1 (external_directory /data/ok/*: allow (user)) never applies" in lint(rules)[0]
    assert shadowed(tuple(reversed(rules))) == []


@pytest.mark.parametrize(
    ("earlier", "later", "gone"),
    [
        (("bash", "git status"), ("bash", "git *"), True),
        (("bash", "git"), ("bash", "git *"), True),
        (("bash", "git *"), ("bash", "git"), True),
        (("edit", "git *"), ("edit", "git"), False),
        (("bash", "gitk"), ("bash", "git *"), False),
        (("bash", "gitk"), ("bash", "git*"), True),
        (("edit", "a?c"), ("edit", "a*"), True),
        (("edit", "a*"), ("edit", "a?c"), False),
        (("edit", "x"), ("*", "*"), True),
        (("*", "x"), ("edit", "*"), False),
        (("mcp_*", "x"), ("mcp_a*", "*"), False),
        (("mcp_ab", "x"), ("mcp_a*", "*"), True),
        (("edit", "src/**/x"), ("edit", "src/*"), True),
        (("edit", "src/*"), ("edit", "src/**/*"), True),
        (("edit", "=a*"), ("edit", "a*"), True),
        (("edit", "a*"), ("edit", "=a*"), False),
        (("*", "git"), ("*", "git"), True),
        (("*", "git"), ("*", "git *"), True),
    ],
)
def test_what_shadows_what(earlier: tuple[str, str], later: tuple[str, str], gone: bool) -> None:
    assert bool(shadowed((Rule(*earlier, "allow"), Rule(*later, "deny")))) is gone


def test_rules_that_cover_more_than_they_seem_to_are_warned_about() -> None:
    assert "lsof" in lint(from_config({"bash": {"ls*": "allow"}}, layer="user"))[0]
    assert "starts with foo" in lint(from_config({"bash": {"foo*": "allow"}}, layer="user"))[0]
    assert lint(from_config({"bash": {"ls *": "allow", "ls": "allow"}, "edit": {"ls*": "deny"}}, layer="user")) == [
        "rule 1 (bash ls *: allow (user)) never applies: the later rule bash ls: allow (user) matches everything it does"
    ]
    assert lint((Rule("edit", "*", "allow", "user"), Rule("edit", "*", "deny", "floor"))) == []


@pytest.mark.parametrize("pattern", ["", "../x", "a/../x", "~bob/x", "./x", "x/", "a//b", "=../x"])
def test_a_deny_that_can_match_nothing_is_an_error(pattern: str) -> None:
    with pytest.raises(ConfigError, match="match nothing"):
        check((Rule("edit", pattern, "deny"),), "nbagent.toml")
    check((Rule("edit", pattern, "allow"), Rule("bash", pattern, "deny")))


def test_a_relative_deny_for_places_outside_is_an_error() -> None:
    with pytest.raises(ConfigError, match="relative"):
        check((Rule("external_directory", "data/*", "deny"),))
    check((Rule("external_directory", "/data/*", "deny"), Rule("external_directory", "*.pem", "deny")))


@pytest.mark.parametrize(
    "written",
    [
        "src/x",
        "./src/x",
        "src//x",
        "src/../src/x",
        "{root}/src/x",
        "{root}/./src/x",
        "~/w/src/x",
        "../w/src/x",
        "$HOME/w/src/x",
        "src/",
        "s*/x",
        "**/x",
        "src/**/x",
        "{root}/src/*",
        "{root}/**/x",
        "../w/src/*",
        "{root}/*/x",
    ],
)
def test_every_spelling_of_a_deny_comes_to_the_file(root: Root, written: str) -> None:
    config = {"edit": {"*": "allow", written.format(root=root.path): "deny"}}
    rules = anchored(from_config(config, home=str(root.home)), root)
    for spelled in ("src/x", "./src/../src/x", str(root.path / "src/x"), "~/w/src/x"):
        assert evaluate("edit", root.locate(spelled).pattern, rules).action == "deny"
    assert evaluate("edit", "other", rules).action == "allow"


@pytest.mark.parametrize(
    "written", ["vendor/*", "vendor/x", "../out/*", "{out}/x", "~/out/*", "vendor/**/x", "{root}/vendor/x"]
)
def test_rules_follow_links_and_lead_outside(root: Root, written: str) -> None:
    out = root.path.parent / "out"
    config = {"read": {"*": "allow", written.format(root=root.path, out=out): "deny"}}
    rules = anchored(from_config(config, home=str(root.home)), root)
    for spelled in ("vendor/x", str(out / "x"), "../out/x"):
        assert evaluate("read", root.locate(spelled).pattern, rules).action == "deny"
    outside = anchored(from_config({"external_directory": {str(root.path / "vendor") + "/*": "deny"}}), root)
    assert evaluate("external_directory", str(out / "x"), outside).action == "deny"


def test_anchoring_keeps_order_layers_and_other_rules(root: Root) -> None:
    rules = (
        Rule("*", "*", "allow", "defaults"),
        Rule("bash", "./x *", "deny", "user"),
        Rule("edit", f"{root.path}/a", "deny", "user"),
        Rule("edit", "a", "allow", "project"),
    )
    assert anchored(rules, root) == (*rules[:2], Rule("edit", "a", "deny"), rules[3])
    assert anchored(rules, root)[2].layer == "user"


def test_a_deny_for_a_folder_as_if_it_were_a_file_is_an_error(root: Root) -> None:
    with pytest.raises(ConfigError, match=r'write "secrets/\*"'):
        anchored(from_config({"read": {"secrets": "deny"}}), root, "nbagent.toml")
    anchored(from_config({"read": {"secrets/": "deny", "nothing": "deny"}, "list": {"secrets": "deny"}}), root)


def test_path_needs_put_the_question_about_places_outside_first(root: Root) -> None:
    inside, outside = root.locate("src/a*b"), root.locate("vendor/n.txt")
    first, second = path_needs("edit", inside, outside)
    assert first.permission == "external_directory" and first.patterns == (str(outside.real),)
    assert first.suggest == f"{outside.real.parent}/*"
    assert second.permission == "edit" and second.patterns == ("src/a*b", str(outside.real))
    assert second.always == ("=src/a*b", str(outside.real)) and second.suggest == "src/*"
    assert [need.permission for need in path_needs("read", inside)] == ["read"]
    assert path_effects("write", inside, outside) == ("write:src/a*b", f"write:{outside.real}")


def test_tools_share_permissions() -> None:
    tools = ["edit", "write", "apply_patch", "notebook_edit", "notebook_read", "todowrite", "todoread", "bash"]
    assert [permission_of(tool) for tool in tools] == ["edit"] * 4 + ["read", "todo", "todo", "bash"]


def test_decisions_are_fast() -> None:
    rules = merge(from_config({"*": "allow", "bash": {f"p{n} *": "deny" for n in range(9)}}))
    evaluate("bash", "git status", rules)
    started = time.perf_counter()
    for _ in range(100_000):
        evaluate("bash", "git status", rules)
    assert time.perf_counter() - started < 0.5  # about 0.015 s on an idle machine
    many = tuple(Rule("edit", f"p{n}/*", "allow") for n in range(5_000))
    evaluate("edit", "q", many)
    started = time.perf_counter()
    evaluate("edit", "r", many)
    assert time.perf_counter() - started < 0.5


def test_a_list_of_rules_may_change_between_decisions() -> None:
    rules = [Rule("edit", "*", "allow")]
    assert evaluate("edit", "x", rules).action == "allow"
    rules.append(Rule("edit", "*", "deny"))
    assert evaluate("edit", "x", rules).action == "deny"
