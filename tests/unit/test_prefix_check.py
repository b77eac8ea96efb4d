"""The check of prefixes finds what it is there to find."""

from __future__ import annotations

from typing import Any

import pytest

from nbagent.session.compaction import PRUNED
from tests import prefix

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read", "edit")]


def body(*messages: tuple[str, Any], tools: Any = TOOLS) -> dict[str, Any]:
    told = [{"role": role, "content": content} for role, content in (("system", "S"), *messages)]
    return {"messages": told, **({"tools": tools} if tools else {})}


FIRST = body(("user", "do it"))
SECOND = body(("user", "do it"), ("assistant", "a"), ("tool", "result"))
NOTE = "<limit>\nThe cap.\n</limit>"


@pytest.mark.parametrize(
    "bodies",
    [
        [FIRST, SECOND],
        [FIRST, FIRST],
        [FIRST, body(("user", "do it\n\nand that"))],
        [FIRST, SECOND, body(*[(m["role"], m["content"]) for m in SECOND["messages"][1:]], tools=[*TOOLS, TOOLS[0]])],
        [FIRST, body(("user", "<summary>x</summary>"), ("tool", "result"))],
        [
            FIRST,
            SECOND,
            body(("user", "do it"), ("assistant", "a"), ("tool", PRUNED), ("assistant", "b"), ("user", "c")),
        ],
        [FIRST, SECOND, body(("user", "do it, now as build"), ("assistant", "a"), ("tool", "result"), tools=TOOLS[:1])],
        [
            FIRST,
            body(("user", f"do it\n\n{NOTE}"), tools=()),
            body(("user", "do it"), ("assistant", "x"), ("user", "y")),
        ],
        [FIRST, body(("user", "another conversation"))],
    ],
)
def test_what_is_allowed(bodies: list[dict[str, Any]]) -> None:
    assert prefix.broken(bodies) == []


@pytest.mark.parametrize(
    "bodies",
    [
        [FIRST, SECOND, body(("user", "do it"), ("assistant", "b"), ("tool", "result"))],
        [FIRST, SECOND, body(("user", "do it"), ("assistant", "a"), ("tool", "other"))],
        [FIRST, SECOND, body(("user", "do it, please"), ("assistant", "a"), ("tool", "result"))],
        [FIRST, SECOND, body(("user", "do it"), ("assistant", "b"), ("tool", "result"), tools=list(reversed(TOOLS)))],
        [FIRST, SECOND, body(("user", "do it"), ("assistant", "a"), ("user", "lost a result"))],
        [FIRST, {"messages": [{"role": "system", "content": "T"}, *SECOND["messages"][1:]], "tools": TOOLS}],
        [FIRST, SECOND, body(("user", "do it"), ("user", "from the middle"), ("assistant", "c"))],
    ],
)
def test_what_is_found(bodies: list[dict[str, Any]]) -> None:
    assert len(prefix.broken(bodies)) == 1


def test_a_copied_session_goes_on_from_the_middle_where_that_is_asked_for() -> None:
    third = body(("user", "do it"), ("assistant", "a"), ("tool", "result"), ("assistant", "b"), ("user", "go on"))
    copy = body(("user", "do it"), ("assistant", "a"), ("tool", "result"), ("assistant", "other"))
    assert prefix.broken([FIRST, SECOND, third, copy], forks=True) == []
    assert len(prefix.broken([FIRST, SECOND, third, copy])) == 1
