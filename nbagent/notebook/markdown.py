"""Markdown of a model, made safe: as HTML for the record, and as Markdown that no viewer can be tricked with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from nbagent.notebook.words import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"*": {"dir"}, "a": {"href", "title"}, "th": {"align"}, "td": {"align"}, "ol": {"start"}}
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_WEB = re.compile(r"https?://[^\s/?#]+", re.IGNORECASE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_TICKS = re.compile(r"(?<!`)(`+)(?!`)([\s\S]*?)(?<!`)\1(?!`)")
_OPENING = re.compile(r"<(?=[A-Za-z/!?])")
_SHIFT = 2
_PRE = "overflow:auto;padding:6px 8px;border-radius:4px;background:rgba(127,127,127,.1);color:inherit"


@cache
def _parser(html: bool, check_links: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": html}).enable(["table", "strikethrough"])
    parser.validateLink = _is_web if check_links else (lambda url: True)  # type: ignore[method-assign]
    return parser


def _is_web(url: str) -> bool:
    return bool(_WEB.match(url.strip())) or url.startswith("#")


def to_html(text: str) -> str:
    """A model's Markdown as HTML: no raw HTML (it shows as written), no pictures, links only to http and https."""
    import nh3

    parser = _parser(False, True)
    tokens = parser.parse(clean(text))
    _tame(tokens)
    if _RIGHT_TO_LEFT.search(text):
        _direct(tokens)
    html = parser.renderer.render(tokens, parser.options, {})
    clean_html = nh3.clean(
        html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes={"http", "https"}, link_rel="noopener noreferrer"
    )
    return clean_html.replace("<pre>", f'<pre style="{_PRE}">').strip()


def _tame(tokens: Sequence[Token]) -> None:
    """Headings two levels down (the record stands inside a page), pictures as links with their words."""
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + _SHIFT)}"
        if token.type == "fence":
            token.info = ""
        if token.children:
            _tame_inline(token)


def _direct(tokens: Sequence[Token]) -> None:
    """Each block finds its own direction: one language beside another is not turned around."""
    for token in tokens:
        if token.nesting == 1 and token.tag in ("p", "li", "blockquote", "td", "th", "h3", "h4", "h5", "h6"):
            token.attrSet("dir", "auto")


def _tame_inline(token: Token) -> None:
    children: list[Token] = []
    for child in token.children or []:
        if child.type == "image":
            child.type, child.tag, child.nesting = "text", "", 0
            child.content = f"[picture: {child.content or 'no words'} {child.attrGet('src') or ''}]".replace(" ]", "]")
            child.children = None
        children.append(child)
    token.children = children


def to_markdown(text: str) -> str:
    """A model's Markdown with its raw HTML and its odd links shown as written, and every fence closed."""
    text = clean(text)
    safe = _close_fence("".join(_escape_block(block, fenced) for block, fenced in _blocks(text)))
    if _risky(_parser(True, False).parse(safe)):
        safe = _close_fence(text.replace("&", "&amp;").replace("<", "&lt;"))
        safe = re.sub(r"\](?=[(:\[])", "]\\\\", safe)
    return safe


def _blocks(text: str) -> list[tuple[str, bool]]:
    """The text in runs of lines: (lines, whether they are inside a fence)."""
    runs: list[tuple[str, bool]] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if fence:
            runs.append((line, True))
            if match and match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line[match.end() :].strip():
                fence = ""
        elif match and not (match[1][0] == "`" and "`" in line[match.end() :]):
            fence = match[1]
            runs.append((line, True))
        elif runs and not runs[-1][1]:
            runs[-1] = (runs[-1][0] + line, False)
        else:
            runs.append((line, False))
    return runs


def _escape_block(block: str, fenced: bool) -> str:
    if fenced:
        return block
    out, last = [], 0
    for match in _TICKS.finditer(block):
        out += [_escape(block[last : match.start()]), match[0]]
        last = match.end()
    return "".join([*out, _escape(block[last:])])


def _escape(text: str) -> str:
    return _OPENING.sub("&lt;", text)


def _close_fence(text: str) -> str:
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if not match:
            continue
        if not fence:
            fence = match[1]
        elif match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line[match.end() :].strip():
            fence = ""
    return text if not fence else f"{text.rstrip()}\n{fence}"


def _risky(tokens: Sequence[Any]) -> bool:
    for token in tokens:
        if token.type in ("html_inline", "html_block", "image"):
            return True
        if token.type == "link_open" and not _is_web(str(token.attrGet("href") or "")):
            return True
        if token.children and _risky(token.children):
            return True
    return False


def fenced(text: str, language: str = "") -> str:
    """``text`` as a fenced block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{clean(text).rstrip()}\n{ticks}"


def code(text: str) -> str:
    """``text`` as an inline code span on one line."""
    flat = " ".join(clean(text).split()) or " "
    longest = max((len(run) for run in re.findall(r"`+", flat)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{pad}{flat}{pad}{ticks}"
