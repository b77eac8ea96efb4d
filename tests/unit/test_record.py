"""What a finished cell leaves: safe with hostile words, readable without style, the same bytes for the same record."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagent import event as ev
from nbagent.frontend import Form, Question, Review, Verdict
from nbagent.message import Attachment, FileChange, Tokens
from nbagent.notebook import markdown
from nbagent.notebook.receipt import receipt_line
from nbagent.notebook.record import BUDGET, MIME, mimebundle, stable
from nbagent.notebook.transcript import Transcript
from nbagent.permission.ask import Ask, Call, Need, Preview, Reply
from nbagent.permission.ruleset import Rule

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script></script>",
    "</div></details><iframe src=javascript:alert(1)>",
    "<b>.py",
    "[x](javascript:alert(1))",
    "[x](data:text/html,<script>1</script>)",
    "![x](http://evil/p.png)",
    "[a]: javascript:alert(1)\n\n[a]",
    "```\n<script>\n",
    "`<script>`",
    "<style>*{display:none}</style>",
    "<!-- x --><svg/onload=alert(1)>",
    "\u202egnp.exe",
    "\x1b[31mred\x1b]0;title\x07",
    "` ``<script>`` `",
    "&lt;script&gt;",
    '" onmouseover="alert(1)',
]
ALLOWED = {
    "div",
    "span",
    "strong",
    "em",
    "b",
    "code",
    "pre",
    "p",
    "details",
    "summary",
    "a",
    "ul",
    "ol",
    "li",
    "br",
    "hr",
    "img",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ALLOWED |= {"blockquote", "s", "del", "h1", "h2", "h3", "h4", "h5", "h6"}


class Checker(HTMLParser):
    """Tags, attributes and text of a page; complains about anything that runs or that GitHub would strip."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ("dir", "style", "open", "href", "title", "rel", "src", "alt", "align", "start"), name
            if name == "href":
                assert re.match(r"(https?://|#)", value or ""), value
            if name == "src":
                assert (value or "").startswith("data:image/png;base64,")
        if tag not in ("br", "hr", "img"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


def words(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.stack
    return "".join(checker.words)


def full_record(evil: str = "ok", now: float = 1_700_000_000.0) -> dict[str, Any]:
    """A record with an item of every kind, all of whose words are ``evil``."""
    fold = Transcript(lambda: now)
    rule = {"permission": "edit", "pattern": evil, "action": "deny", "layer": "floor"}
    fold.add(ev.SessionEvent(session="s", agent="plan", model=evil, root=evil, plan=evil, badge="PLAN", writes=evil))
    fold.add(ev.TextEvent(session="s", id="t1", text=f"# Title\n\nSays {evil}\n\n| a | b |\n|---|---|\n| 1 | {evil} |"))
    fold.add(ev.ReasoningEvent(session="s", id="r1", text=evil))
    for number in range(3):
        call = {"call_id": f"g{number}", "name": "read", "input": {"filePath": evil}}
        fold.add(ev.ToolEvent(session="s", state="completed", output=evil, effect="reads", title=evil, **call))
    edit = {"call_id": "e", "name": "edit", "input": {evil: evil, "n": 3}, "title": evil, "seconds": 1.5}
    fold.add(ev.ToolEvent(session="s", state="completed", metadata={"diff": f"-{evil}\n+{evil}"}, **edit))
    refused = {"call_id": "x", "name": evil, "input": {}}
    fold.add(ev.ToolEvent(session="s", state="error", error=evil, rule=rule, **refused))
    python = {"call_id": "py", "name": "python", "input": {"code": evil}, "effect": "code"}
    image = Attachment(mime="image/png", data="iVBORw0KGgo=")
    fold.add(ev.ToolEvent(session="s", state="completed", output=evil, attachments=(image,), **python))
    call_ = Call("e", "edit", evil, "writes", (Need("edit", (evil,)),), Preview("diff", f"+{evil}"), notes=(evil,))
    fold.open_ask(Ask("a1", "s", call_, Rule("edit", evil, "ask", "user"), (("edit", evil),)))
    fold.settle_ask("a1", Reply("reject", feedback=evil))
    fold.open_form(Form("f1", "s", (Question(evil, evil, ((evil, evil),)),), evil))
    fold.settle_form("f1", ((evil,),))
    fold.open_review(Review("v1", "s", evil, f"# {evil}\n\n- {evil}", "h", warnings=(evil,)))
    fold.settle_review("v1", Verdict("v1", "h", "build", comment=evil))
    fold.add(ev.NoticeEvent(session="s", text=evil, level="warning"))
    fold.add(ev.RetryEvent(session="s", attempt=1, error=evil, wait=2, until=4))
    fold.add(ev.CompactionEvent(session="s", status="completed", summary=evil, before=10, after=5))
    fold.add(ev.TodoEvent(session="s", todos=({"content": evil, "status": "completed"},)))
    fold.add(ev.SessionEvent(session="s", agent="build", model="m", root="/w", badge="BUILD", writes=evil))
    fold.add(ev.ErrorEvent(session="s", message=evil))
    change = FileChange(path=evil, status="modified", additions=1, deletions=1, diff=f"+{evil}")
    fold.add(ev.ReceiptEvent(session="s", files=(change,), notes=(evil,)))
    fold.add(ev.FinishEvent(session="s", reason="stop", tokens=Tokens(input=10, output=5), seconds=now % 7 + 1))
    return fold.record()


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_words_are_shown_as_written(evil: str) -> None:
    bundle = mimebundle(full_record(evil))
    text = words(bundle["text/html"])
    first = "".join(c for c in evil.splitlines()[0] if c.isprintable())
    if "\x1b" not in evil and "\u202e" not in evil and "![" not in evil:
        assert first in text
    for value in (bundle["text/html"], bundle["text/markdown"], bundle["text/plain"]):
        assert "\u202e" not in value and "\x1b" not in value
    assert "<script" not in bundle["text/html"].lower()
    json.dumps(bundle[MIME])


@pytest.mark.parametrize("evil", HOSTILE)
def test_no_viewer_finds_html_in_the_markdown(evil: str) -> None:
    text = mimebundle(full_record(evil))["text/markdown"]
    assert not markdown._risky(markdown._parser(True, False).parse(text))


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="<>/!?`~[]()&*_#:\\\n\t ab\"'-|=", max_size=60))
def test_any_markdown_is_tamed(text: str) -> None:
    words(f"<div>{markdown.to_html(text)}</div>")
    assert not markdown._risky(markdown._parser(True, False).parse(markdown.to_markdown(text)))


def test_each_block_of_two_languages_has_its_own_direction() -> None:
    html = markdown.to_html("שלום.\n\nDone.\n\n- مرحبا\n- on")
    assert html.count('<p dir="auto">') >= 2 and html.count('<li dir="auto">') == 2
    assert "dir=" not in markdown.to_html("Done.\n\n- on")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="`a \n~<", max_size=30))
def test_code_stays_code(text: str) -> None:
    for wrapped in (markdown.fenced(text), markdown.code(text)):
        tokens = markdown._parser(True, False).parse(wrapped)
        assert not markdown._risky(tokens)
        assert tokens[0].type == "fence" or [t.type for t in tokens[1].children or []] == ["code_inline"]


def test_plain_markdown_survives() -> None:
    text = "**bold** `a < b` and x<5\n\n```py\nif a < b: pass\n```\n[site](https://example.org)\n"
    html = markdown.to_html(text)
    assert "<strong>bold</strong>" in html and "a &lt; b" in html and 'href="https://example.org"' in html
    assert markdown.to_markdown(text) == text


def test_the_last_line_is_the_receipt() -> None:
    bundle = mimebundle(full_record())
    line = bundle[MIME]["receipt"]["line"]
    assert bundle["text/plain"].splitlines()[-1] == line
    assert words(bundle["text/html"]).strip().endswith(line)
    assert bundle["text/markdown"].strip().splitlines()[-1] == f"`{line}`"


def test_the_same_record_gives_the_same_bytes_and_times_can_be_left_out() -> None:
    one, again = mimebundle(full_record()), mimebundle(full_record())
    assert json.dumps(one) == json.dumps(again)
    later = full_record(now=1_800_000_003.0)
    assert json.dumps(mimebundle(later)) != json.dumps(one)
    assert json.dumps(mimebundle(later, times=False)) == json.dumps(mimebundle(full_record(), times=False))
    assert stable(stable(later)) == stable(later)


def test_reads_are_grouped() -> None:
    assert "read 3 files" in mimebundle(full_record())["text/plain"]


def test_a_record_keeps_to_its_budget_and_the_words_of_the_model_stay() -> None:
    fold = Transcript(lambda: 0.0)
    for number in range(500):
        call = {"call_id": f"c{number}", "name": "read", "input": {"filePath": "a"}, "effect": "reads"}
        fold.add(ev.ToolEvent(session="s", state="completed", output="x" * 19_000, **call))
    fold.add(ev.TextEvent(session="s", id="t", text="the answer " * 3000))
    fold.close("stop")
    bundle = mimebundle(fold.record())
    assert len(json.dumps(bundle[MIME])) < BUDGET + 50_000
    assert len(bundle["text/html"]) < BUDGET * 2
    assert bundle[MIME]["items"][-1]["text"] == "the answer " * 3000


def test_large_pictures_become_a_note() -> None:
    fold = Transcript(lambda: 0.0)
    image = Attachment(mime="image/png", data="A" * 200_000)
    call = {"call_id": "c", "name": "python", "input": {}}
    fold.add(ev.ToolEvent(session="s", state="completed", output="done", attachments=(image,), **call))
    bundle = mimebundle(fold.record())
    assert "AAAA" not in json.dumps(bundle) and "image/png 146 KB" in bundle["text/html"]


def test_nested_children_are_drawn_inside_their_task() -> None:
    fold = Transcript(lambda: 0.0)
    fold.add(ev.ToolEvent(session="s", call_id="c", name="task", state="running", input={}))
    fold.add(ev.TextEvent(session="k", parent="c", id="t", text="inner words"))
    fold.add(ev.ToolEvent(session="s", call_id="c", name="task", state="completed", input={}, output="outer"))
    html = mimebundle(fold.record())["text/html"]
    assert html.index("<details") < html.index("inner words") < html.index("</details>")


def test_text_that_runs_from_right_to_left_may_do_so() -> None:
    """The direction is the text's own; everything of ours around it keeps its own."""
    page = mimebundle(full_record("سلام"))["text/html"]
    assert page.count('<div dir="auto">') >= 2
    assert '<div dir="auto"><h3 dir="auto">سلام</h3>' in page


def test_a_call_that_a_person_rejected_did_not_fail() -> None:
    fold = Transcript(lambda: 0.0)
    call = {"call_id": "c", "name": "edit", "input": {"filePath": "a.py"}, "title": "edit a.py"}
    fold.add(ev.ToolEvent(session="s", state="error", error="no", metadata={"refused": True}, **call))
    bundle = mimebundle(fold.record())
    assert all("refused by the person" in bundle[form] for form in ("text/html", "text/markdown", "text/plain"))


def test_a_receipt_is_never_empty() -> None:
    nothing = {"reason": "stop", "files": [], "plan": "", "counted": False}
    assert receipt_line(nothing, times=False) == "done"
