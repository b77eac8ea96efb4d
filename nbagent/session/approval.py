"""The life of a plan: draft → awaiting → approved → built, with revise, reject and expire. Pure.

*Approved* is made in one place, ``approve``, from one person's action that bears the id of the open request and the hash
of the text that was shown; ``use`` spends it once. Every other order of events leaves a plan unapproved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

PlanStatus = Literal["draft", "awaiting", "approved", "built", "rejected"]


def plan_hash(text: str) -> str:
    """The hash that an approval is bound to: SHA-256 of the text as UTF-8, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Approval:
    """Where a plan stands. ``hash``: of the text that was shown (awaiting) or approved; ``request``: the open review's id."""

    status: PlanStatus = "draft"
    hash: str = ""
    request: str = ""


class NotApproved(Exception):
    """An action that does not fit the open request; nothing changed."""


def changed(plan: Approval) -> Approval:
    """The text was written: whatever was asked or approved before is void."""
    return Approval("draft")


def request(plan: Approval, request_id: str, digest: str) -> Approval:
    """A review is opened on the text with this hash; an older open review is void."""
    return Approval("awaiting", digest, request_id)


def approve(plan: Approval, request_id: str, shown: str, on_disk: str, final: str) -> Approval:
    """A person approved. ``shown``: hash their action bears; ``on_disk``: of the file now; ``final``: of the text as they left it.

    Raises ``NotApproved`` when the request is not the open one or the file is not what was shown.
    """
    if plan.status != "awaiting" or not request_id or plan.request != request_id:
        raise NotApproved("that review is not open any more")
    if not shown or plan.hash != shown or on_disk != shown:
        raise NotApproved("the plan is not what was shown")
    return Approval("approved", final, request_id)


def use(plan: Approval, on_disk: str) -> Approval:
    """The approved plan is carried out; an approval is used once, and only for the text it was given for."""
    if plan.status != "approved" or not plan.hash or plan.hash != on_disk:
        raise NotApproved("the plan is not approved as it is now")
    return replace(plan, status="built")


def close(plan: Approval, outcome: Literal["revise", "reject", "expire"], request_id: str) -> Approval:
    """The open review ended without approval; an action of another review changes nothing.

    ``expire``: nobody decided. The review is void, the plan still waits.
    """
    if plan.status != "awaiting" or plan.request != request_id:
        return plan
    status: dict[str, PlanStatus] = {"revise": "draft", "reject": "rejected", "expire": "awaiting"}
    return Approval(status[outcome], plan.hash)
