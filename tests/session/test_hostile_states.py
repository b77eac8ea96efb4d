"""Cells, replies, stops and swapped links in any order: what is not the plan stays as it is."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from nbagent.config import LimitSettings
from nbagent.errors import NbagentError
from nbagent.event import Event
from nbagent.frontend import Review, Verdict
from nbagent.permission.ask import Ask, Reply
from nbagent.session.run import Options
from nbagent.session.session import Prompt
from tests.person import Desk, Person
from tests.project import Project
from tests.server import ScriptedServer, call, say
from tests.session.scripts import plan_path
from tests.session.test_hostile import changed, picture

PATHS = [
    "src/a.py",
    "spot",
    "spot/a.py",
    "spot/new.py",
    "PLAN",
    "PLAN/../../../src/a.py",
    ".nbagent/plans/other.md",
    ".nbagent/plans/new.md",
    ".nbagent/plans/spot/a.md",
    "../home/.bashrc",
    "../sentinel/kept.txt",
    "~/new",
]
SPOTS = ["spot", "PLAN", ".nbagent/plans/spot", ".nbagent/plans/new.md", ".nbagent/plans", ".nbagent"]
TARGETS = ["src", "src/a.py", "src/missing.py", "../home", "../sentinel/kept.txt", "../sentinel", ""]
COMMANDS = [
    "echo x > spot",
    "echo x > src/a.py",
    "rm -rf src",
    "cp README.md spot/a.py",
    'python3 -c \'open("spot", "w")\'',
]

writes = st.builds(
    lambda tool, path: (tool, path), st.sampled_from(["write", "edit", "add", "delete", "move"]), st.sampled_from(PATHS)
)
others = st.one_of(
    st.builds(lambda command: ("bash", command), st.sampled_from(COMMANDS)),
    st.sampled_from([("plan_exit", ""), ("task", "general"), ("task", "explore"), ("plan_enter", ""), ("python", "1")]),
)
steps = st.lists(st.lists(st.one_of(writes, writes, others), min_size=1, max_size=4), min_size=1, max_size=3)
swaps = st.tuples(st.sampled_from(SPOTS), st.sampled_from(TARGETS))
replies = st.sampled_from(["once", "always", "save", "reject", "feedback"])
verdicts = st.sampled_from(["revise", "reject", "stale", "wrong"])


def arguments(kind: str, value: str, plan: str) -> tuple[str, dict[str, Any]]:
    """A call as the model makes it."""
    path = value.replace("PLAN", plan)
    patches = {
        "add": f"*** Add File: {path}\n+broken",
        "delete": f"*** Delete File: {path}",
        "move": f"*** Update File: {plan}\n*** Move to: {path}\n@@\n-# Fix recall\n+# Broken",
    }
    if kind in patches:
        return "apply_patch", {"patchText": f"*** Begin Patch\n{patches[kind]}\n*** End Patch"}
    known: dict[str, dict[str, Any]] = {
        "write": {"filePath": path, "content": "broken\n"},
        "edit": {"filePath": path, "oldString": "", "newString": "broken\n"},
        "bash": {"command": value, "description": "look", "timeout": 10000},
        "task": {"description": "do", "prompt": "CHILD", "subagent_type": value},
        "python": {"code": value},
    }
    return kind, known.get(kind, {})


class Fickle(Person):
    """Answers as it was drawn; a plan is approved by nobody: what looks like it bears an old id or another hash."""

    def __init__(self, answers: list[str], judged: str) -> None:
        super().__init__()
        self.answers = answers
        self.judged = judged
        self.reviews = 0

    async def ask(self, ask: Ask) -> Reply:
        answer = self.answers[len(self.asked) % len(self.answers)]
        self.asked.append(ask)
        wide = tuple((permission, "*") for permission, _ in ask.pending)
        if answer in ("always", "save"):
            return Reply("always", remember=wide, save=answer == "save")
        return Reply("once") if answer == "once" else Reply("reject", feedback="no" if answer == "feedback" else "")

    async def review(self, review: Review) -> Verdict:
        self.reviews += 1
        if self.reviews > 3:
            return Verdict(review.id, review.hash, "reject")
        if self.judged == "stale":
            return Verdict("rev_old", review.hash, "build", text=review.text)
        if self.judged == "wrong":
            return Verdict(review.id, "0" * 64, "build", text=review.text)
        return Verdict(review.id, review.hash, "revise" if self.judged == "revise" else "reject", comment="no")


class Cells(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp(prefix="states-"))
        self.project = Project(self.top, git=False)
        (self.project.root / ".git").mkdir()
        for path in ("src/a.py", "src/b.py", "README.md", ".nbagent/plans/other.md"):
            self.project.write(path, "x = 1\n")
        self.sentinel = self.top / "sentinel"
        self.sentinel.mkdir()
        (self.sentinel / "kept.txt").write_text("kept")
        (self.project.user_home / ".bashrc").write_text("mine")
        self.script: list[Any] = []
        self.plan = ".nbagent/plans/none.md"
        self.server = ScriptedServer(self.answer, strict=False)
        self.desk = Desk(self.project, self.server)
        self.desk.runtime.resources.patience = 0.01
        self.other = (self.project.root / ".nbagent/plans/other.md").stat()
        self.before = self.protected()

    def protected(self) -> dict[bytes, tuple[Any, ...]]:
        found: dict[bytes, tuple[Any, ...]] = {}
        for folder in (self.project.root / "src", self.project.user_home, self.sentinel):
            found |= picture(os.fsencode(folder))
        return found

    def answer(self, body: dict[str, Any]) -> Any:
        if not body.get("tools") or "Plan the work" not in str(body["messages"]):
            return [say("done")]
        with contextlib.suppress(AssertionError):
            self.plan = plan_path(body)
        if not self.script:
            return [say("done")]
        step = self.script.pop(0)
        return [call(*arguments(kind, value, self.plan)) for kind, value in step]

    def put(self, spot: str, target: str) -> None:
        """A link, or nothing, where something was; folders go aside and come back."""
        place = self.project.root / spot.replace("PLAN", self.plan)
        aside = place.with_name(f"{place.name}-aside")
        if place.parent.resolve() != self.project.root.resolve() / place.parent.relative_to(self.project.root):
            return  # the test itself would write where a link leads
        with contextlib.suppress(OSError):
            if place.is_symlink() or place.is_file():
                place.unlink()
            elif place.is_dir():
                place.rename(aside)
            if target:
                place.symlink_to(self.project.root / target)
            elif aside.is_dir():
                aside.rename(place)

    @rule(swap=swaps)
    def swap(self, swap: tuple[str, str]) -> None:
        self.put(*swap)

    @rule()
    def restore(self) -> None:
        for spot in SPOTS:
            self.put(spot, "")

    @rule(
        steps=steps,
        answers=st.lists(replies, min_size=1, max_size=4),
        judged=verdicts,
        cell=st.sampled_from(["", "c1", "c2"]),
        stop_at=st.one_of(st.none(), st.integers(1, 40)),
        swap_at=st.dictionaries(st.integers(1, 40), swaps, max_size=2),
        fresh=st.booleans(),
    )
    def plan_cell(
        self,
        steps: list[Any],
        answers: list[str],
        judged: str,
        cell: str,
        stop_at: int | None,
        swap_at: dict[int, tuple[str, str]],
        fresh: bool,
    ) -> None:
        if fresh:
            self.desk.runtime.new_session()
        self.script = [[("write", "PLAN")], *steps]
        person = Fickle(answers, judged)
        tasks: list[Any] = []

        def watch(event: Event) -> None:
            count = len(person.events)
            if count in swap_at:
                self.put(*swap_at[count])
            if count == stop_at and tasks:
                tasks[0].stop()

        person.watch = watch
        prompt = Prompt("Plan the work", "plan", cell=cell, options=Options(limits=LimitSettings(steps=8)))
        with contextlib.suppress(NbagentError, concurrent.futures.CancelledError):
            tasks.append(self.desk.runtime.start(prompt, person))
            tasks[0].done.result(60)

    @invariant()
    def nothing_else_changed(self) -> None:
        assert changed(self.before, self.protected()) == set()
        settings_file = self.project.root / "nbagent.toml"
        assert not settings_file.exists()
        assert self.desk.runtime.store.plans(str(self.project.root)) == [
            row
            for row in self.desk.runtime.store.plans(str(self.project.root))
            if row.status not in ("approved", "built")
        ]
        for name in ("other.md",):
            for folder in ("plans", "plans-aside"):
                path = self.project.root / ".nbagent" / folder / name
                if path.exists():
                    assert path.stat().st_mtime_ns == self.other.st_mtime_ns

    def teardown(self) -> None:
        self.desk.close()
        self.server.close()
        shutil.rmtree(self.top, ignore_errors=True)


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.timeout(240)
def test_any_order_of_events() -> None:
    few = settings(
        max_examples=4,
        stateful_step_count=4,
        phases=(Phase.generate,),  # a counterexample is shown as it is: making it smaller takes minutes
        derandomize=True,
        deadline=None,
        suppress_health_check=QUIET,
        database=None,
    )
    run_state_machine_as_test(Cells, settings=few)  # type: ignore[no-untyped-call]


@pytest.mark.fuzz
def test_many_orders_of_events() -> None:
    end = time.monotonic() + float(os.environ.get("NBAGENT_FUZZ_SECONDS", "600"))
    many = settings(max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=QUIET)
    while time.monotonic() < end:
        run_state_machine_as_test(Cells, settings=many)  # type: ignore[no-untyped-call]


def test_the_plan_can_be_written_all_the_same() -> None:
    """The machine's ordinary case, so that nothing above holds for want of trying."""
    cells = Cells()
    try:
        cells.plan_cell(
            steps=[[("write", "src/a.py")]],
            answers=["once"],
            judged="revise",
            cell="",
            stop_at=None,
            swap_at={},
            fresh=False,
        )
        assert (cells.project.root / cells.plan).read_text() == "broken\n"
    finally:
        cells.teardown()
