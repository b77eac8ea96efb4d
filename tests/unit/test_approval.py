"""Approved has one producer; no other order of events reaches it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nbagent.session.approval import Approval, NotApproved, approve, changed, close, plan_hash, request, use

HASHES = ("h1", "h2", "h3")
REQUESTS = ("r1", "r2")

events = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(HASHES)),
        st.tuples(st.just("request"), st.sampled_from(REQUESTS)),
        st.tuples(st.just("approve"), st.sampled_from(REQUESTS), st.sampled_from(HASHES)),
        st.tuples(st.sampled_from(("revise", "reject", "expire")), st.sampled_from(REQUESTS)),
        st.tuples(st.just("use")),
    ),
    max_size=30,
)


@given(events)
def test_build_needs_an_approval_of_the_very_text_that_is_built(script: list[tuple[str, ...]]) -> None:
    plan, disk = Approval(), "h1"
    open_request: tuple[str, str] | None = None  # (id, hash that is on the screen)
    granted: str | None = None  # hash that a person said yes to and that was not used yet
    for event in script:
        match event:
            case ("write", digest):
                disk = digest
                # A tool's write is seen only through the file: the state is told by its hash.
            case ("request", name):
                plan, open_request, granted = request(plan, name, disk), (name, disk), None
            case ("approve", name, shown):
                try:
                    plan = approve(plan, name, shown, disk, disk)
                except NotApproved:
                    continue
                assert open_request == (name, shown), "approved something that was not on the screen"
                assert shown == disk
                granted, open_request = disk, None
            case ("use",):
                try:
                    plan = use(plan, disk)
                except NotApproved:
                    continue
                assert granted == disk, "built what nobody approved"
                granted = None
            case (outcome, name):
                plan = close(plan, outcome, name)  # type: ignore[arg-type]
                if open_request is not None and open_request[0] == name:
                    open_request = None


def test_an_approval_is_void_when_the_text_changes() -> None:
    plan = approve(request(Approval(), "r", "h"), "r", "h", "h", "h")
    assert changed(plan).status == "draft"
    for disk in ("other", ""):
        try:
            use(plan, disk)
        except NotApproved:
            continue
        raise AssertionError("used for another text")


def test_an_edit_by_the_person_is_what_is_approved() -> None:
    plan = approve(request(Approval(), "r", "shown"), "r", "shown", "shown", "edited")
    assert use(plan, "edited").status == "built"


def test_an_answer_to_an_older_review_changes_nothing() -> None:
    plan = request(request(Approval(), "r1", "h"), "r2", "h")
    assert close(plan, "reject", "r1") == plan
    try:
        approve(plan, "r1", "h", "h", "h")
    except NotApproved:
        return
    raise AssertionError("an old review approved")


def test_the_hash_is_of_the_text() -> None:
    assert plan_hash("a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert plan_hash("\udcff") != plan_hash("?")
