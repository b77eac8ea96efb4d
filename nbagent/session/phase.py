"""Where a planning run is: told by what it does, for the view. Pure."""

from __future__ import annotations

PHASES = ("understand", "design", "review", "final", "exit")


def phase_after(phase: str, tool: str, *, effect: str, on_plan: bool, seen_before: bool) -> str:
    """The phase once ``tool`` was called; phases go forward only, but for a plan that is taken up again after it was sent back.

    Looking around is *understand*; its children coming back begin *design*; a question, or a second look at a file that was
    read before, is *review*; writing the plan is *final*; asking for approval is *exit*.
    """
    if tool == "plan_exit":
        return "exit"
    if on_plan and effect == "writes":
        return "final"
    if tool == "question" or (effect == "reads" and seen_before):
        return _later(phase, "review")
    if tool == "task":
        return _later(phase, "design")
    return phase or "understand"


def _later(one: str, other: str) -> str:
    if one not in PHASES:
        return other
    return PHASES[max(PHASES.index(one), PHASES.index(other))]
