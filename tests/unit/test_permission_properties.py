"""Laws of the engine, for any rules and any call. The same with many more examples is in tests/fuzz."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbagent.agent import Agent, layered
from nbagent.clock import CountingClock
from nbagent.permission.ask import Call, Need
from nbagent.permission.explanation import explain
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import PATHS, Rule, disabled, evaluate, matches, merge, permission_of, shadowed
from nbagent.permission.wildcard import FOLD, TOGETHER, covers, exactly, first, match, pieces, within

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STRICT = {"allow": 0, "ask": 1, "deny": 2}

permissions = st.sampled_from(["edit", "bash", "read", "*", "e*", "task", "mcp_x", "mcp_*", "b*sh"])
texts = st.text(alphabet="ab/. *?=\\", max_size=7)
patterns = st.one_of(
    st.just("*"),
    texts,
    st.lists(st.sampled_from(["a", "b", "/", "*", "**/", "?", " *", ".", " ", "src/"]), max_size=6).map("".join),
)
actions = st.sampled_from(["allow", "ask", "deny"])
rules = st.builds(Rule, permissions, patterns, actions)
rulesets = st.lists(rules, max_size=8).map(tuple)
asked = st.sampled_from(["edit", "bash", "read", "task", "mcp_x", "write", "other"])


def plain_match(text: str, pattern: str) -> bool:
    """What a wildcard means, said as slowly and plainly as possible."""
    if pattern.startswith("="):
        return text == pattern[1:]
    text = text.replace("\\", "/")
    parts = pieces(pattern)

    def fits(at: int, rest: int) -> bool:
        if rest == len(parts):
            return at == len(text)
        part = parts[rest]
        if part.kind == "text":
            here = text[at : at + len(part.text)]
            same = len(here) == len(part.text) and all(p in ("?", t) for p, t in zip(part.text, here, strict=True))
            return same and fits(at + len(part.text), rest + 1)
        if part.kind == "*":
            return any(fits(end, rest + 1) for end in range(at, len(text) + 1))
        if part.kind == "**/":
            ends = [at] + [end + 1 for end in range(at, len(text)) if text[end] == "/"]
            return any(fits(end, rest + 1) for end in ends)
        return at == len(text) or text[at] == " "

    return fits(0, 0)


@QUICK
@given(texts, patterns)
def test_the_fast_match_means_what_the_plain_one_does(text: str, pattern: str) -> None:
    assert match(text, pattern, fold=False) == plain_match(text, pattern)


def speaks(permission: str, text: str, pattern: str) -> bool:
    """A backslash in the name of a file is a character that nothing but a wildcard, or the whole name, matches."""
    whole = pattern.startswith("=")
    inside = text.replace("\\", "\0") if permission in PATHS and not FOLD and not whole else text
    return plain_match(inside, meant(permission, pattern))


def meant(permission: str, pattern: str) -> str:
    """A bare word in a rule about commands covers the word with any arguments."""
    bare = permission == "bash" and pattern and pattern[0] != "=" and not set(" *?/\\") & set(pattern)
    return f"{pattern} *" if bare else pattern


OTHERS = [f"never{number}*" for number in range(TOGETHER + 1)]
"""So many that one regular expression does not hold them; they match none of ``texts``."""


@QUICK
@given(st.lists(texts, min_size=1, max_size=4), *[st.lists(patterns, max_size=6)] * 2, st.booleans(), st.booleans())
def test_many_patterns_at_once_mean_what_they_mean_one_by_one(
    said: list[str], some: list[str], more: list[str], many: bool, fold: bool
) -> None:
    together = (*some, *(OTHERS if many else ()), *more)
    find = first(tuple(pattern.upper() for pattern in together) if fold else together, fold=fold)
    for text in said:
        plain = [place for place, pattern in enumerate(together) if plain_match(text, pattern)]
        assert find(text) == (plain[0] if plain else len(together))


@pytest.mark.parametrize(
    "together",
    [("*aa", "*a"), ("*a", "*aa"), ("b*aa", "b*a"), ("**/a", "**/*a"), ("?*a", "?*aa"), ("=baa", "*a"), ("*a", "baa")],
)
def test_of_patterns_that_match_alike_the_first_counts(together: tuple[str, ...]) -> None:
    text = "baa" if all(match("baa", pattern) for pattern in together) else "b/a"
    assert all(match(text, pattern) for pattern in together)
    assert first(together)(text) == 0


@QUICK
@given(st.text(max_size=20), st.text(max_size=20))
def test_matching_is_total(text: str, pattern: str) -> None:
    match(text, pattern)
    assert match(text, exactly(text), fold=False)
    assert match(text, "*")


@QUICK
@given(texts, patterns, patterns)
def test_what_covers_matches_whatever_is_covered(text: str, wide: str, narrow: str) -> None:
    if covers(wide, narrow, fold=False) and match(text, narrow, fold=False):
        assert match(text, wide, fold=False)


@QUICK
@given(asked, texts, rulesets)
def test_the_last_rule_that_matches_decides(permission: str, pattern: str, ruleset: tuple[Rule, ...]) -> None:
    won = evaluate(permission, pattern, ruleset)
    hits = [rule for rule in ruleset if matches(rule, permission, pattern)]
    assert hits == [
        rule
        for rule in ruleset
        if plain_match(permission, rule.permission) and speaks(permission, pattern, rule.pattern)
    ]
    assert won == (hits[-1] if hits else Rule(permission, "*", "ask"))
    told = explain(permission, pattern, ruleset)
    assert told.action == won.action and told.rule == (hits[-1] if hits else None)
    assert evaluate(permission, pattern, list(ruleset)) == won


@QUICK
@given(asked, texts, rulesets, rulesets, rulesets)
def test_merging_is_associative_and_evaluating_merges(
    permission: str, pattern: str, a: tuple[Rule, ...], b: tuple[Rule, ...], c: tuple[Rule, ...]
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)
    assert evaluate(permission, pattern, a, b, c) == evaluate(permission, pattern, merge(a, b, c))
    assert merge(a) == a and merge() == ()


@QUICK
@given(asked, texts, rulesets, st.lists(st.builds(Rule, permissions, patterns, st.just("deny")), max_size=4).map(tuple))
def test_a_floor_is_never_lifted(
    permission: str, pattern: str, mine: tuple[Rule, ...], floor: tuple[Rule, ...]
) -> None:
    if evaluate(permission, pattern, floor).action == "deny":
        assert evaluate(permission, pattern, mine, floor).action == "deny"


@QUICK
@given(st.lists(asked, max_size=5), texts, rulesets)
def test_hidden_means_denied_for_every_pattern(tools: list[str], pattern: str, ruleset: tuple[Rule, ...]) -> None:
    for tool in disabled(tools, ruleset):
        assert evaluate(permission_of(tool), pattern, ruleset).action == "deny"


@QUICK
@given(asked, texts, rulesets)
def test_shadowed_rules_can_be_taken_away(permission: str, pattern: str, ruleset: tuple[Rule, ...]) -> None:
    gone = {each.at for each in shadowed(ruleset)}
    kept = tuple(rule for at, rule in enumerate(ruleset) if at not in gone)
    assert evaluate(permission, pattern, kept).action == evaluate(permission, pattern, ruleset).action


@QUICK
@given(rulesets, st.lists(st.tuples(asked, st.lists(texts, min_size=1, max_size=3)), min_size=1, max_size=3))
def test_a_call_is_as_strict_as_its_strictest_part(
    ruleset: tuple[Rule, ...], parts: list[tuple[str, list[str]]]
) -> None:
    gate = Gate(ruleset, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    call = Call("c", "t", "t", "writes", tuple(Need(permission, tuple(found)) for permission, found in parts))
    strictest = max((evaluate(p, each, ruleset).action for p, found in parts for each in found), key=STRICT.__getitem__)
    assert max((each.action for each in gate.findings(call)), key=STRICT.__getitem__) == strictest


@QUICK
@given(rulesets, asked, texts, st.booleans(), st.lists(texts, max_size=2), st.lists(texts, max_size=2))
def test_what_a_need_adds_only_makes_it_stricter(
    ruleset: tuple[Rule, ...], permission: str, pattern: str, lost: bool, aliases: list[str], below: list[str]
) -> None:
    gate = Gate(ruleset, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    gate.approvals.add(permission, "*")
    need = Need(permission, (pattern,), unresolved=lost, aliases=tuple(aliases), below=tuple(below))
    found = {each.action for each in gate.findings(Call("c", "t", "t", "command", (need,)))}
    if evaluate(permission, pattern, ruleset).action == "deny" or any(
        evaluate(permission, each, ruleset).action == "deny" for each in (*aliases, *below)
    ):
        assert "deny" in found
    if (
        lost
        and any(rule.action == "deny" and rule.permission in ("*", "e*", "edit") for rule in ruleset)
        and permission == "edit"
    ):
        assert found - {"allow"}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_short_pattern_against_every_short_text(size: int) -> None:
    found = ["".join(each) for n in range(size + 1) for each in itertools.product("a/* ?", repeat=n)]
    said = ["".join(each) for n in range(3) for each in itertools.product("a/ b", repeat=n)]
    for pattern in found:
        for text in said:
            assert match(text, pattern, fold=False) == plain_match(text, pattern), (text, pattern)


FOLDER = "/h/k"
near = st.lists(
    st.sampled_from(["/", "h", "k", "*", "**/", "?", " *", ".", "/h/k", "/h/k/", "/h/", "k/", "a"]), max_size=6
).map("".join)
below = st.text(alphabet="ak/. h", max_size=6).map(lambda tail: f"{FOLDER}/{tail}")


@QUICK
@given(near.filter(bool), st.one_of(st.just(FOLDER), st.just("/h/ka"), st.just("/h"), below, texts))
def test_a_pattern_within_a_folder_says_the_same_in_there_and_nothing_elsewhere(pattern: str, path: str) -> None:
    parts = within(pattern, FOLDER)
    path = path.replace("\\", "/")
    inside = path == FOLDER or path.startswith(f"{FOLDER}/")
    assert any(match(path, part) for part in parts) is (inside and match(path, pattern)), parts


reading = st.builds(Rule, st.sampled_from(["read", "*", "r*"]), near.filter(bool), actions)
KEYS = (Rule("read", FOLDER, "ask", "defaults"), Rule("read", f"{FOLDER}/*", "ask", "defaults"))


@QUICK
@given(st.lists(reading, max_size=5), st.lists(reading, max_size=5), st.one_of(st.just(FOLDER), below, texts))
def test_a_project_loosens_nothing_where_keys_lie(user: list[Rule], project: list[Rule], path: str) -> None:
    agent = Agent("some", "", "primary")
    mine = tuple(replace(rule, layer="user") for rule in user)
    theirs = tuple(replace(rule, layer="project") for rule in project)
    whole = evaluate("read", path, layered(agent, mine + theirs, (), KEYS)).action
    if path != FOLDER and not path.startswith(f"{FOLDER}/"):
        assert whole == evaluate("read", path, layered(agent, mine + theirs)).action
        return
    alone = evaluate("read", path, layered(agent, mine, (), KEYS)).action
    assert STRICT[whole] >= STRICT[alone]
    if evaluate("read", path, layered(agent, mine + theirs)).action == "deny":
        assert whole == "deny"
