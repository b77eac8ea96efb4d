"""``webfetch``: a page of the web, as Markdown."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Literal

from msgspec import Meta

from nbagent.errors import ToolError
from nbagent.message import Attachment
from nbagent.permission.ask import Need
from nbagent.permission.ruleset import evaluate
from nbagent.permission.wildcard import exactly
from nbagent.tools.child import python_argv, run
from nbagent.tools.read import image_type
from nbagent.tools.textfile import looks_binary
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult
from nbagent.tools.web import Fetcher, Page, host_of, tidy_url

SECONDS = 30
MAX_SECONDS = 120
CONVERT_SECONDS = 20.0


class WebFetchArguments(Arguments, frozen=True, kw_only=True):
    url: Annotated[str, Meta(min_length=1, description="http(s) address")]
    format: Literal["markdown", "text", "html"] = "markdown"
    timeout: Annotated[int, Meta(ge=1, le=MAX_SECONDS, description="seconds")] = SECONDS


class WebFetch(Tool[WebFetchArguments]):
    name = "webfetch"
    permission = "webfetch"
    effect = "outside"
    hint = "fetch a web page by its address, as Markdown"
    arguments = WebFetchArguments
    deferred = True
    parallel = False

    def declare(self, arguments: WebFetchArguments, context: ToolContext) -> Declaration:
        url = tidy_url(arguments.url)
        host = re.sub(r"^(https?://[^/]+).*", r"\1/*", url, flags=re.DOTALL)
        need = Need(self.permission, (url,), always=(exactly(url),), suggest=host)
        return Declaration(f"fetch {url[:120]}", (need,), effects=(f"fetch:{url}",), subject=url)

    async def act(self, arguments: WebFetchArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        url = str(declaration.subject)

        def inside(asked: str) -> bool:
            """Whether a rule that names this very host allows it."""
            rule = evaluate(self.permission, tidy_url(asked), context.rules)
            return rule.action == "allow" and host_of(tidy_url(asked)) in rule.pattern

        def follow(source: str, target: str) -> None:
            if host_of(source) == host_of(target) and not (source.startswith("https") and target.startswith("http:")):
                return
            if evaluate(self.permission, target, context.rules).action != "allow":
                raise ToolError(f"{source} leads to {target}, another place. Fetch that address itself if you need it.")

        page = await Fetcher(context.environment, inside, follow).get(url, arguments.timeout)
        if page.status >= 400:
            raise ToolError(f"{page.url} answered {page.status} {page.reason}.{await _excerpt(page, context)}")
        if page.status >= 300:
            raise ToolError(f"{page.url} answered {page.status} {page.reason}, without a page or an address to go to.")
        metadata = {"url": page.url, "status": page.status, "mime": page.mime, "bytes": len(page.body)}
        if (mime := image_type(page.body[:16])) is not None:
            picture = Attachment(mime=mime, data=base64.b64encode(page.body).decode("ascii"))
            return ToolResult(
                declaration.title, f"{page.url} is a picture ({mime}); it is attached.", metadata, (picture,)
            )
        if looks_binary(page.body[:8192]) or page.body.startswith(b"%PDF-"):
            raise ToolError(f"{page.url} is not text ({page.mime}, {len(page.body):,} bytes), so it cannot be shown.")
        text = await _shown(page, arguments.format, context)
        moved = f"[{url} led to {page.url}]\n\n" if page.url != url else ""
        return ToolResult(declaration.title, moved + (text or "(the page is empty)"), metadata)


async def _excerpt(page: Page, context: ToolContext) -> str:
    if looks_binary(page.body[:8192]):
        return ""
    text = await _shown(page, "text", context)
    return f" It says: {' '.join(text.split())[:300]}" if text.strip() else ""


async def _shown(page: Page, form: str, context: ToolContext) -> str:
    text = decoded(page)
    if form == "html" or not is_html(page, text):
        return text
    argv = [*python_argv("nbagent.tools.hypertext"), form, page.url]
    said = await run(
        argv,
        cwd=context.temp,
        environment=context.environment,
        given=text.encode("utf-8", "replace"),
        timeout=CONVERT_SECONDS,
    )
    if said.code != 0:
        raise ToolError(f"{page.url} could not be turned into {form}. Ask for format html.")
    return said.out.decode("utf-8", "replace")


def is_html(page: Page, text: str) -> bool:
    """Whether a page is HTML, by what it says and, where it says nothing, by how it begins."""
    if page.mime in ("text/html", "application/xhtml+xml"):
        return True
    unsaid = page.mime in ("text/plain", "application/octet-stream", "")
    return unsaid and bool(re.match(r"\s*<(!doctype html|html[\s>])", text[:200], re.IGNORECASE))


def decoded(page: Page) -> str:
    """The text of a page: byte order mark, then header, then the page's own word, then UTF-8, then Windows' Latin."""
    body = page.body
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    said = re.search(
        rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?([\w.:-]+)""", body[:4096], re.IGNORECASE
    )
    for encoding in (page.charset, said[1].decode("ascii") if said else "", "utf-8", "cp1252"):
        try:
            if encoding:
                return body.decode(encoding)
        except (LookupError, ValueError):  # unknown, no encoding of text, or not what this text is in
            continue
    return body.decode("utf-8", "replace")
