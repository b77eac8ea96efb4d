"""The short form: what a teacher writes, and what the player makes of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagent.errors import CassetteError
from nbagent.provider.cassette import Cassette, Failure
from nbagent.provider.cassette_file import check, check_file, load, read
from nbagent.provider.provider import Called, Ended, Say, Think, Used

LESSON = """\
# A lesson
cassette: written by hand
model: a model that misbehaves
window: 4000

plan
  prompt: Find out why
  say: I look around first.
  call: list {"path": "."}
  expect: completed
  ---
  # the second answer
  think: Shall I?
  call: write
    filePath: {plan}
    content:
      # Plan

      1. Mend `recall`: it divides by {x}.
         Deeper.
  expect: refused by edit *
  call: plan_exit
  person: keep planning because it says no test
  ---
  call: plan_exit
  person: approve and build, saying go on
    change: "recall" -> "recall()"

build
  say: |
    Two
    lines.
  used: 1200 in, 80 out, 5 reasoning
  ---
  call: bash {"command": "make", "description": "x", "timeout": 5}
  expect: asked
  person: reject because not now
  call: edit
    filePath: "src/a.py"
    oldString: |-
      a
    newString: 12
    replaceAll: true
  cut call: write {"filePath": "a
  ended: length
  ---
  error: 429 (retry after 0.5) slow down
  ---
  error: dropped
"""


def lesson() -> Cassette:
    cassette, problems = read(LESSON)
    assert problems == []
    assert cassette is not None
    return cassette


def test_header_and_sections() -> None:
    cassette = lesson()
    assert cassette.header.answered_by == "written by hand"
    assert cassette.header.model == "a model that misbehaves"
    assert cassette.header.window == 4000
    assert [(e.agent, e.section, e.prompt) for e in cassette.entries] == [
        *[("plan", 1, "Find out why")] * 3,
        *[("build", 2, "")] * 4,
    ]


def test_first_answer_and_its_expectation() -> None:
    entry = lesson().entries[0]
    assert entry.answer == (
        Say("I look around first."),
        Called("call_9", "list", {"path": "."}),
        Ended("tool-calls"),
    )
    assert [(e.kind, e.call_id, e.line) for e in entry.expects] == [("completed", "call_9", 10)]


def test_blocks_keep_their_shape() -> None:
    entry = lesson().entries[1]
    written = entry.answer[1]
    assert isinstance(written, Called)
    assert entry.answer[0] == Think("Shall I?")
    assert written.arguments == {
        "filePath": "{plan}",
        "content": "# Plan\n\n1. Mend `recall`: it divides by {x}.\n   Deeper.\n",
    }
    assert entry.expects[0].values == ("edit", "*")


def test_values_are_json_where_they_read_as_json() -> None:
    call = lesson().entries[4].answer[1]
    assert isinstance(call, Called)
    assert call.arguments == {"filePath": "src/a.py", "oldString": "a", "newString": 12, "replaceAll": True}


def test_the_rest_of_an_answer() -> None:
    build = lesson().entries[3:]
    assert build[0].answer[0] == Say("Two\nlines.")
    used = build[0].answer[1]
    assert isinstance(used, Used)
    assert (used.tokens.input, used.tokens.output, used.tokens.reasoning) == (1200, 80, 5)
    cut = build[1].answer[2]
    assert isinstance(cut, Called)
    assert cut.problem
    assert cut.raw == '{"filePath": "a'
    assert build[1].answer[-1] == Ended("length")
    assert build[2].answer == (Failure("slow down", "error", 429, True, 0.5),)
    assert isinstance(build[3].answer[0], Failure)
    assert build[3].answer[0].kind == "dropped"


def test_person_answers_are_bound_to_their_call() -> None:
    answers = [(a.kind, a.value, a.text, a.call_id, a.changes) for a in lesson().person]
    assert answers == [
        ("review", "revise", "it says no test", "", ()),
        ("review", "build", "go on", "", (("recall", "recall()"),)),
        ("ask", "reject", "not now", "call_35", ()),
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("plan\n  say: x\n", 1, "cassette: written by hand"),
        ("cassette: written by hand\n", 1, "no answers"),
        ("cassette: written by hand\nplan\n  sya: x\n", 3, "sya: is not known here"),
        ("cassette: written by hand\nplan\n  call: read {oops}\n", 3, "not JSON"),
        ('cassette: written by hand\nplan\n  call: read ["a"]\n', 3, "JSON object"),
        ("cassette: written by hand\nplan\n  expect: completed\n  say: x\n", 3, "below the call"),
        ("cassette: written by hand\nplan\n  call: a\n  expect: refused from *\n", 4, "not something to expect"),
        ("cassette: written by hand\nplan\n  call: a\n  expect: tool b hidden\n", 4, "before what is answered"),
        ("cassette: written by hand\nplan\n  call: a\n  person: yes\n", 4, "not an answer of a person"),
        ("cassette: written by hand\nplan\n  person: once\n  say: x\n", 3, "below the call"),
        ("cassette: written by hand\nplan\n  say: x\n  ---\n", 5, "at least one"),
        ("cassette: written by hand\nplan\n\tsay: x\n", 3, "spaces"),
        ("cassette: written by hand\n  say: x\n", 2, "name the agent"),
        ("cassette: written by hand\nwindow: big\nplan\n  say: x\n", 1, "number of tokens"),
        ("cassette: written by hand\ncolour: red\nplan\n  say: x\n", 2, "colour: is not known"),
        ("cassette: written by hand\nplan\n  say: x\nmodel: late\n", 4, "above the first agent"),
        ("cassette: written by hand\nplan\n  say: x\n    more\n", 3, "text behind it and lines below"),
        ("cassette: written by hand\nplan\n  say:\n      a\n    b\n", 5, "left of the block"),
        ("cassette: written by hand\nplan\n  call: a\n    b: 1\n    b: 2\n", 5, "given twice"),
        ('cassette: written by hand\nplan\n  call: a\n    b: "x\n', 4, "not JSON"),
        ('cassette: written by hand\nplan\n  call: a {"b": 1}\n    c: 2\n', 3, "not both"),
        ("cassette: written by hand\nplan\n  error: perhaps\n", 3, "status"),
        ("cassette: written by hand\nplan\n  used: many\n", 3, "1200 in"),
        ("cassette: written by hand\nplan\n  ended: soon\n", 3, "one of"),
        ("cassette: written by hand\nplan\n  say: a\n  prompt: b\n", 4, "right below the agent"),
        (
            "cassette: written by hand\nplan\n  call: plan_exit\n  person: approve and build\n    change: a to b\n",
            5,
            "old words",
        ),
        ("cassette: written by hand\nplan\n  call:\n", 3, "name of a tool"),
        ("cassette: written by hand\nplan\n  ended: stop\n  say: x\n", 4, "ended above"),
        ("cassette: written by hand\nplan\n  error: dropped\n  call: a\n", 4, "ended above"),
        ("cassette: written by hand\nplan\n  call: a " + '{"b": ' + "[" * 50_000 + "\n", 3, "nested too deeply"),
        ("cassette: written by hand\nplan\n  call: a\n    b: " + "[" * 50_000 + "\n", 4, "nested too deeply"),
        ("cassette: written by hand\nwhat is this?\n", 2, "stands alone"),
    ],
)
def test_a_problem_says_its_line(text: str, line: int, words: str) -> None:
    problems = check(text)
    assert any(p.line == line and words in p.text for p in problems), problems


def test_all_problems_are_told_in_order() -> None:
    problems = check("cassette: written by hand\nplan\n  sya: x\n  say: ok\n  call: r {bad}\n")
    assert [p.line for p in problems] == [3, 5]


def test_load_says_file_and_line() -> None:
    with pytest.raises(CassetteError, match="line 3: sya: is not known here"):
        load("cassette: written by hand\nplan\n  sya: x\n")


def test_windows_line_ends_and_empty_arguments() -> None:
    cassette, problems = read("cassette: written by hand\r\nplan\r\n  call: plan_exit\r\n  say:\r\n    a\r\n    b\r\n")
    assert problems == []
    assert cassette is not None
    assert cassette.entries[0].answer[0] == Called("call_3", "plan_exit", {})
    assert cassette.entries[0].answer[1] == Say("a\nb")


def test_question_answers() -> None:
    text = 'cassette: written by hand\nplan\n  call: question {"questions": []}\n  person: answers Yes; A, B\n'
    cassette, problems = read(text)
    assert problems == []
    assert cassette is not None
    assert cassette.person[0].choices == (("Yes",), ("A", "B"))
    cassette, _ = read(text.replace("answers Yes; A, B", 'answers [["a; b"]]'))
    assert cassette is not None
    assert cassette.person[0].choices == (("a; b",),)
    cassette, _ = read(text.replace("answers Yes; A, B", "declines to answer"))
    assert cassette is not None
    assert cassette.person[0].value == "declined"


def test_a_block_may_keep_its_own_indent() -> None:
    text = "cassette: written by hand\nbuild\n  call: edit\n    oldString: |=\n          a\n        b\n    newString: |=-\n      c\n"
    cassette, problems = read(text)
    assert problems == []
    assert cassette is not None
    call = cassette.entries[0].answer[0]
    assert isinstance(call, Called)
    assert call.arguments == {"oldString": "    a\n  b\n", "newString": "c"}


def test_the_examples_in_the_pages_are_cassettes() -> None:
    docs = Path(__file__).parents[2] / "docs"
    for page in (docs / "reference" / "cassettes.md", docs / "how-to" / "write-a-lesson.md"):
        example = page.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
        assert check(textwrap.dedent(example)) == [], page


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "notebooks").glob("*.cassette")), ids=lambda p: p.name
)
def test_every_cassette_of_a_lesson_is_fine(path: Path) -> None:
    assert check_file(path) == []


@given(st.text())
def test_any_text_is_a_cassette_or_has_problems(text: str) -> None:
    cassette, problems = read(text)
    assert problems or cassette is not None


WORDS = [
    "plan",
    "  say: a",
    "  call: b",
    "    c: 1",
    "    d:",
    "      e",
    "  expect: completed",
    "  person: once",
    "  ---",
    "",
    "  #",
    "x: y",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_lines_in_any_order_are_a_cassette_or_have_problems_with_a_line_of_the_text(lines: list[str]) -> None:
    text = "\n".join(["cassette: written by hand", *lines])
    cassette, problems = read(text)
    assert all(1 <= problem.line <= len(lines) + 2 for problem in problems)
    if not problems:
        assert cassette is not None
        assert all(entry.answer for entry in cassette.entries)
