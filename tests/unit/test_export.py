from __future__ import annotations

import json
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nbagent.message import (
    AgentPart,
    Attachment,
    CompactionPart,
    FileChange,
    FilePart,
    Message,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
)
from nbagent.session.export import About, fenced, from_json, harmless, to_json, to_markdown, to_notebook

ABOUT = About(id="ses_1", title="Fix the *parser*", directory="/work/p", agent="build", time_created=1_700_000_000.0)


def said(role: str, *parts: Part, agent: str = "build", number: int = 1, error: str = "") -> Message:
    return Message(
        id=f"msg_{number}", session_id="ses_1", role=role, agent=agent, model="m-1", error=error, parts=parts
    )  # type: ignore[arg-type]


WHOLE = [
    said(
        "user",
        TextPart(id="1", text="plan it\nwell"),
        TextPart(id="2", text="<mode>hidden notice</mode>", synthetic=True),
        FilePart(id="3", mime="text/plain", filename="a.txt", text="x"),
        agent="plan",
    ),
    said(
        "assistant",
        StepStartPart(id="4", tools=("read",)),
        ReasoningPart(id="5", text="secret thought"),
        TextPart(id="6", text="Here is ![x](http://evil/x.png) and <script>alert(1)</script> and `<b>` code"),
        ToolPart(
            id="7",
            call_id="c",
            tool="read",
            status="completed",
            input={"filePath": "a.txt"},
            output="```\nnot the end",
            title="a.txt",
            attachments=(Attachment(mime="image/png", data="QUJD"),),
        ),
        ToolPart(id="8", call_id="d", tool="bash", status="error", error="interrupted"),
        StepFinishPart(id="9", reason="stop", tokens=Tokens(input=1200, output=34)),
        RetryPart(id="a", attempt=1, error="429", wait=2.0, time=1.0),
        SubtaskPart(id="b", call_id="c", session_id="ses_2", agent="explore", description="look"),
        AgentPart(id="c", agent="build", previous="plan"),
        CompactionPart(id="d", auto=True, summary="short story"),
        PatchPart(
            id="e",
            before="s1",
            after="s2",
            files=(FileChange(path="a.txt", status="modified", additions=1, deletions=2, diff="-x\n"),),
            notes=("one note",),
        ),
        agent="plan",
        number=2,
    ),
    said("user", TextPart(id="f", text="build it"), number=3),
    said("assistant", number=4, error="the server failed"),
]


def test_json_gives_back_what_went_in() -> None:
    assert from_json(to_json(ABOUT, WHOLE)) == (ABOUT, WHOLE)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "nbagent-session", "version": 99}', "nonsense"])
def test_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_markdown_shows_what_happened() -> None:
    text = to_markdown(ABOUT, WHOLE)
    for piece in (
        "# Fix the \\*parser\\*",
        "1,200 in, 34 out",
        "> plan it\n> well",
        "`a.txt`",
        "interrupted",
        "short story",
        "modified `a.txt` +1 −2",
        "one note",
        "the server failed",
        "From here on: build",
    ):
        assert piece in text
    assert "hidden notice" not in text
    assert "secret thought" not in text
    assert "secret thought" in to_markdown(ABOUT, WHOLE, reasoning=True)


def test_markdown_loads_nothing_and_runs_nothing() -> None:
    html = MarkdownIt("commonmark").render(to_markdown(ABOUT, WHOLE))
    assert "<img" not in html
    assert "<script" not in html
    assert "<code>&lt;b&gt;</code>" in html


def test_a_tool_output_is_cut_unless_asked_for() -> None:
    long = said("assistant", ToolPart(id="1", call_id="c", tool="read", status="completed", output="x" * 50_000))
    assert len(to_markdown(ABOUT, [long])) < 6_000
    assert "x" * 50_000 in to_markdown(ABOUT, [long], whole=True)


def test_notebook_is_valid_and_its_prompts_can_be_run_again() -> None:
    book = to_notebook(ABOUT, WHOLE)
    nbformat.validate(nbformat.from_dict(json.loads(json.dumps(book))))
    code = [cell["source"] for cell in book["cells"] if cell["cell_type"] == "code"]
    assert code == ["%%plan\nplan it\nwell", "%%build\nbuild it"]
    assert [cell["cell_type"] for cell in book["cells"]] == ["markdown", "code", "markdown", "code", "markdown"]


def test_notebook_of_nothing_and_ids_that_clash() -> None:
    nbformat.validate(nbformat.from_dict(to_notebook(ABOUT, [])))
    twins = [said("user", TextPart(id="1", text="a")), said("user", TextPart(id="2", text="b"))]
    odd = Message(id="ü" * 90, session_id="s", role="user", agent="explore", parts=(TextPart(id="3", text="c"),))
    book = to_notebook(ABOUT, [*twins, odd])
    nbformat.validate(nbformat.from_dict(book))
    assert book["cells"][-1]["source"].startswith("%%build\n")


@pytest.mark.parametrize("text", ["", "`", "```", "````\n```", "a\n```python\nb\n```\nc", "~~~\n`````"])
def test_a_fence_cannot_be_closed_from_inside(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(fenced(text) + "\n\nafter")
    assert tokens[0].type == "fence"
    assert tokens[-2].content == "after"


@settings(max_examples=200, deadline=None)
@given(st.text("`~!<>[]()a/ \n\\x", max_size=40))
def test_markdown_of_a_model_is_harmless(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(harmless(text))
    assert not [token for token in tokens if token.type == "html_block"]
    inline: list[Any] = [child for token in tokens for child in token.children or []]
    assert not [child for child in inline if child.type in ("image", "html_inline")]


@pytest.mark.parametrize(
    "text",
    ["plain", "a < b and c > d", "`<b>`", "```html\n<img src=x>\n```", "<https://example.org>", "x ![", "- a\n- b"],
)
def test_harmless_text_stays_as_it_is(text: str) -> None:
    assert harmless(text).replace("\\[", "[") == text or text == "x !["


@pytest.mark.parametrize(
    "text",
    [
        "- ```\n  code\n  ```\n<script>x</script>",
        "a ` b\n` <img src=x> `",
        "> ```\n> <b>\n\n<img src=x>",
        "![a\nb](http://x)",
        "![ref]\n\n[ref]: http://x/y.png",
        "<!-- x",
        "<?php",
        "a <IMG\nsrc=x>",
    ],
)
def test_markdown_that_hides_what_is_code_is_harmless_too(text: str) -> None:
    html = MarkdownIt("commonmark").render(harmless(text)).lower()
    assert not any(tag in html for tag in ("<img", "<script", "<!--", "<?"))


def test_what_follows_an_open_fence_is_not_swallowed() -> None:
    assert harmless("```\ncode") == "```\ncode\n```"
