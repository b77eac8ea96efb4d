"""HTML as Markdown or as plain text, without scripts, styles and what is only there for looks.

Run in a process of its own (``child.python_argv``) on pages from outside: a page made to be slow is killed with it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = {
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "canvas",
    "iframe",
    "object",
    "select",
    "button",
    "dialog",
}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_BLOCKS = {
    "address",
    "article",
    "aside",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "html",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "section",
    "summary",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "ul",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "pre",
    "hr",
    "caption",
    "title",
}
_MARKS = {
    "strong": "**",
    "b": "**",
    "em": "*",
    "i": "*",
    "code": "`",
    "kbd": "`",
    "samp": "`",
    "tt": "`",
    "del": "~~",
    "s": "~~",
}


@dataclass
class _List:
    ordered: bool
    number: int = 1


@dataclass
class _Table:
    rows: list[list[str]] = field(default_factory=list)
    in_cell: bool = False


class _Writer(HTMLParser):
    """``plain``: no marks and no link targets."""

    def __init__(self, base: str, plain: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = base
        self._plain = plain
        self._out: list[str] = []
        self._inline: list[str] = []
        self._skipping: list[str] = []
        self._lists: list[_List] = []
        self._bullet = ""
        self._quotes = 0
        self._pre: list[str] | None = None
        self._language = ""
        self._links: list[tuple[str, int]] = []
        self._tables: list[_Table] = []
        self._in_title = False
        self._loose = True

    # Tags.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.append(tag)
            return
        given = {name: value or "" for name, value in attrs}
        if tag in _SKIPPED or (tag not in _VOID and ("hidden" in given or given.get("aria-hidden") == "true")):
            self._skipping.append(tag)
            return
        if self._pre is not None:
            self._pre_tag(tag, given)
        elif tag in _BLOCKS:
            self._block_start(tag, given)
        elif tag == "br":
            self._inline.append("\n")
        elif tag == "img":
            self._image(given)
        elif tag == "a":
            self._links.append((given.get("href", ""), len(self._inline)))
        elif tag in _MARKS and not self._plain:
            self._inline.append(_MARKS[tag])

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if self._pre is not None:
            if tag == "pre":
                self._pre_end()
        elif tag in _BLOCKS:
            self._block_end(tag)
        elif tag == "a" and self._links:
            self._link_end()
        elif tag in _MARKS and not self._plain:
            self._mark_end(_MARKS[tag])

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._in_title:
            self.title += data
        elif self._pre is not None:
            self._pre.append(data)
        else:
            self._inline.append(data.replace("\n", " "))

    def _block_start(self, tag: str, given: dict[str, str]) -> None:
        if self._tables and self._tables[-1].in_cell and tag in ("td", "th", "tr"):
            self._block_end("td")  # a cell that was never closed ends where the next begins
        self._flush()
        if tag == "title":
            self._in_title = True
        elif tag in ("ul", "ol"):
            self._loose = not self._lists
            start = given.get("start", "1")
            self._lists.append(_List(tag == "ol", int(start) if start.isdigit() and len(start) < 9 else 1))
        elif tag == "li":
            self._start_item()
        elif tag == "blockquote":
            self._quotes += 1
        elif tag == "pre":
            self._pre = []
        elif tag == "hr" and not self._plain:
            self._emit("---")
        elif tag == "table":
            self._tables.append(_Table())
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag in ("td", "th") and self._tables:
            self._tables[-1].in_cell = True

    def _start_item(self) -> None:
        if not self._lists:
            self._lists.append(_List(False))
        current = self._lists[-1]
        self._bullet = f"{current.number}. " if current.ordered else "- "
        current.number += 1

    def _block_end(self, tag: str) -> None:
        if tag in ("td", "th") and self._tables and self._tables[-1].rows:
            cell = _folded("".join(self._inline)).replace("\n", " ").replace("|", "\\|")
            if self._tables[-1].in_cell:
                self._tables[-1].rows[-1].append(cell)
            self._tables[-1].in_cell = False
            self._inline = []
            return
        if tag[0] == "h" and tag[1:].isdigit():
            text = _folded("".join(self._inline)).replace("\n", " ")
            self._inline = []
            if text:
                self._emit(text if self._plain else f"{'#' * int(tag[1:])} {text}")
            return
        self._flush()
        if tag == "title":
            self._in_title = False
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._bullet = ""
        elif tag == "blockquote":
            self._quotes = max(0, self._quotes - 1)
        elif tag == "table" and self._tables:
            if self._tables[-1].in_cell:
                self._block_end("td")
            self._table_end(self._tables.pop())

    # What has become of them.

    def _image(self, given: dict[str, str]) -> None:
        text = given.get("alt", "").strip()
        source = given.get("src", "")
        if text and not self._plain and not source.startswith("data:"):
            self._inline.append(f"![{text}]({urljoin(self._base, source)})")
        elif text:
            self._inline.append(text)

    def _link_end(self) -> None:
        href, start = self._links.pop()
        text = _folded("".join(self._inline[start:]))
        useful = href and text and not href.startswith(("#", "javascript:", "data:")) and not self._plain
        if useful and start <= len(self._inline):
            before = "".join(self._inline[start:])
            pad = " " if before[:1].isspace() else ""
            del self._inline[start:]
            self._inline.append(f"{pad}[{text}]({_joined(self._base, href)})")

    def _mark_end(self, mark: str) -> None:
        """Close a mark; one around nothing is taken back."""
        for at in range(len(self._inline) - 1, -1, -1):
            if self._inline[at] == mark:
                inner = "".join(self._inline[at + 1 :])
                if not inner.strip():
                    del self._inline[at]
                    return
                lead, tail = inner[: len(inner) - len(inner.lstrip())], inner[len(inner.rstrip()) :]
                self._inline[at:] = [f"{lead}{mark}{inner.strip()}{mark}{tail}"]
                return

    def _pre_tag(self, tag: str, given: dict[str, str]) -> None:
        found = re.search(r"(?:language|lang|highlight-source)-([\w+#-]+)", given.get("class", ""))
        if tag == "code" and found:
            self._language = found[1]
        if tag == "br" and self._pre is not None:
            self._pre.append("\n")

    def _pre_end(self) -> None:
        text = "".join(self._pre or ()).strip("\n")
        fence = "```" if "```" not in text else "~~~~"
        self._emit(text if self._plain else f"{fence}{self._language}\n{text}\n{fence}")
        self._pre, self._language = None, ""

    def _table_end(self, table: _Table) -> None:
        rows = [row for row in table.rows if any(row)]
        if not rows:
            return
        width = max(map(len, rows))
        if width == 1 or self._plain:
            self._emit("\n".join("  ".join(row).strip() for row in rows))
            return
        padded = [row + [""] * (width - len(row)) for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in padded]
        lines.insert(1, f"|{' --- |' * width}")
        self._emit("\n".join(lines))

    def _flush(self) -> None:
        if self._tables and self._tables[-1].rows:
            self._inline.append(" ")  # a block inside a cell
            return
        text = _folded("".join(self._inline))
        self._inline = []
        self._links = [(href, 0) for href, _ in self._links]
        if text:
            self._emit(text)

    def _emit(self, text: str) -> None:
        if self._tables and self._tables[-1].rows:
            self._inline.append(f" {' '.join(text.split())} ")
            return
        depth = max(0, len(self._lists) - 1)
        indent = "  " * depth if self._lists else ""
        hanging = indent + ("  " if self._lists else "")
        lines = text.split("\n")
        first = f"{indent}{self._bullet}" if self._bullet else hanging
        quote = "> " * min(self._quotes, 8)
        shaped = [f"{quote}{first if i == 0 else hanging}{line}".rstrip() for i, line in enumerate(lines)]
        tight = bool(self._lists) and not self._loose
        self._loose = False
        self._out.append(("" if tight else "\n") + "\n".join(shaped))
        self._bullet = ""

    def result(self) -> str:
        while self._tables:
            self._inline = []
            self._table_end(self._tables.pop())
        if self._pre is not None:
            self._pre_end()
        self._flush()
        return "\n".join(self._out).strip("\n")


def _folded(text: str) -> str:
    """White space folded; the breaks that ``<br>`` made stay."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join(lines).strip()


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href.strip()).replace(" ", "%20").replace(")", "%29")
    except ValueError:
        return href


def to_markdown(html: str, base: str = "") -> str:
    """A page as Markdown, its title first. ``base``: the address that relative links are meant from."""
    return _written(html, base, plain=False)


def to_text(html: str) -> str:
    """A page as plain text."""
    return _written(html, "", plain=True)


def _written(html: str, base: str, plain: bool) -> str:
    writer = _Writer(base, plain)
    writer.feed(html)
    writer.close()
    text = re.sub(r"\n{3,}", "\n\n", writer.result())
    title = " ".join(writer.title.split())
    if not title or title in text[:400]:
        return text
    return f"{title if plain else '# ' + title}\n\n{text}"


def main() -> None:
    """Standard input to standard output; arguments: ``markdown`` or ``text``, and the page's address."""
    kind, base = sys.argv[-2:]
    html = sys.stdin.buffer.read().decode("utf-8", "replace")
    text = to_markdown(html, base) if kind == "markdown" else to_text(html)
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
