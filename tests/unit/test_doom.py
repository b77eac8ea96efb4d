from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.session.doom import canonical, doom_loop

Call = tuple[str, dict[str, Any]]
A: Call = ("read", {"filePath": "a", "limit": 5})
B: Call = ("bash", {"command": "ls"})
C: Call = ("grep", {"pattern": "x"})
D: Call = ("glob", {"pattern": "*"})


def first_stop(calls: list[Call], **options: int) -> int | None:
    """1-based place of the first call that closes a loop."""
    return next((n for n in range(1, len(calls) + 1) if doom_loop(calls[:n], **options)), None)


@pytest.mark.parametrize(
    ("calls", "stop"),
    [
        ([A, B, A, B, A, B], 6),
        ([A, ("read", {"limit": 5, "filePath": "a"}), A], 3),
        ([("read", {"filePath": "p", "offset": n}) for n in (0, 100, 200)], None),
        ([A, B, C] * 3, 9),
        ([A, B, C, D] * 3, 12),
        ([A, A, B, A, A, B, A, A, B], 9),
        ([A, B, C, D, ("list", {})] * 3, None),
        ([C, D, A, A, A], 5),
        ([A, A, B, A, A], None),
        ([("t", {"n": 1}), ("t", {"n": 1.0}), ("t", {"n": 1})], 3),
        ([("t", {"n": 1}), ("t", {"n": True}), ("t", {"n": 1})], None),
        ([("t", {"n": "1"}), ("t", {"n": 1}), ("t", {"n": "1"})], None),
        ([], None),
    ],
)
def test_where_a_loop_is_seen(calls: list[Call], stop: int | None) -> None:
    assert first_stop(calls) == stop


def test_the_loop_says_what_repeats() -> None:
    loop = doom_loop([A, B] * 3)
    assert loop is not None
    assert (loop.period, loop.repeats, loop.tools) == (2, 3, ("read", "bash"))
    assert "3 times over" in str(loop)


def test_threshold_is_a_setting() -> None:
    assert first_stop([A] * 9, repeats=5) == 5
    assert first_stop([A] * 9, repeats=0) is None
    assert first_stop([A, B] * 9, longest=1) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(st.text("xyz", max_size=2), values, max_size=3)
calls = st.tuples(st.sampled_from(["read", "bash"]), arguments)


@given(st.lists(calls, min_size=1, max_size=4), st.lists(calls, max_size=4))
def test_any_block_three_times_over_is_seen_whatever_came_before(block: list[Call], before: list[Call]) -> None:
    assert doom_loop([*before, *block, *block, *block]) is not None


@given(st.lists(calls, max_size=14))
def test_a_loop_is_only_seen_where_the_calls_really_repeat(run: list[Call]) -> None:
    loop = doom_loop(run)
    if loop is not None:
        tail = [(tool, canonical(given)) for tool, given in run[-loop.period * 3 :]]
        assert tail == tail[: loop.period] * 3


@given(st.lists(st.integers(), min_size=3, unique=True, max_size=14))
def test_calls_that_all_differ_are_never_a_loop(numbers: list[int]) -> None:
    assert first_stop([("read", {"offset": n}) for n in numbers]) is None


@given(arguments, st.randoms())
def test_canonical_does_not_depend_on_the_order_of_keys(given_arguments: dict[str, Any], random: Any) -> None:
    items = list(given_arguments.items())
    random.shuffle(items)
    assert canonical(dict(items)) == canonical(given_arguments)
