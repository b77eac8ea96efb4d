"""``webfetch``: which addresses it goes to, what it makes of what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nbagent.errors import ArgumentError, Denied, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.tools.hypertext import to_markdown, to_text
from nbagent.tools.web import is_public, tidy_url
from tests.toolbox import ALLOW, Toolbox, toolbox


@dataclass
class Site:
    """A web server on loopback. ``pages``: path → (status, headers, body)."""

    server: ThreadingHTTPServer
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    stall: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def page(self, path: str, body: str | bytes, mime: str = "text/html", status: int = 200, **headers: str) -> str:
        data = body if isinstance(body, bytes) else body.encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = (status, {"Content-Type": mime, **named}, data)
        return self.url(path)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers["Host"]))
            if self.path == "/stall":
                site.stall.wait(20)
                return
            status, headers, body = site.pages.get(self.path, (404, {"Content-Type": "text/plain"}, b"nothing here"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield site
    site.stall.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def box(tmp_path: Path, site: Site) -> Toolbox:
    rule = Rule("webfetch", f"http://127.0.0.1:{site.port}/*", "allow", "user")
    return toolbox(tmp_path, rules=(*ALLOW, rule), environment={"PATH": "/usr/bin:/bin"})


PAGE = """<html><head><title>Docs</title></head><body><nav><a href="/x">nav</a></nav>
<h1>Docs</h1><p>See <a href="page?a=b">the page</a> and <b>this</b>.</p><script>evil()</script></body></html>"""


async def test_html_as_markdown_text_and_html(box: Toolbox, site: Site) -> None:
    url = site.page("/d/index.html", PAGE)
    said = await box.text("webfetch", url=url)
    assert f"See [the page]({site.url('/d/page?a=b')}) and **this**." in said
    assert "# Docs" in said
    assert "evil" not in said
    assert "See the page and this." in await box.text("webfetch", url=url, format="text")
    assert await box.text("webfetch", url=url, format="html") == PAGE


@pytest.mark.parametrize(
    ("mime", "body", "shown"),
    [
        ("text/plain; charset=latin-1", "grün".encode("latin-1"), "grün"),
        ("text/plain", "grün".encode("cp1252"), "grün"),
        ("text/plain", "grün".encode(), "grün"),
        ("text/html", b'<meta charset="iso-8859-1"><p>gr\xfcn', "grün"),
        ("text/plain; charset=nonsense", "grün".encode(), "grün"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("text/plain", b"\xff\xfeg\x00", "g"),
        ("text/html", b"", "(the page is empty)"),
    ],
)
async def test_charsets(box: Toolbox, site: Site, mime: str, body: bytes, shown: str) -> None:
    assert await box.text("webfetch", url=site.page("/p", body, mime)) == shown


@pytest.mark.parametrize("how", ["gzip", "deflate", "raw deflate"])
async def test_compressed(box: Toolbox, site: Site, how: str) -> None:
    plain = b"hello " * 1000
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(plain),
        "deflate": zlib.compress(plain),
        "raw deflate": raw.compress(plain) + raw.flush(),
    }
    url = site.page("/z", packed[how], "text/plain", Content_Encoding=how.split()[-1])
    assert await box.text("webfetch", url=url) == plain.decode()


async def test_too_large_however_it_is_packed(box: Toolbox, site: Site) -> None:
    for url in (
        site.page("/big", b"x" * (5 * 1024 * 1024 + 1), "text/plain"),
        site.page("/bomb", gzip.compress(b"\x20" * (50 * 1024 * 1024)), "text/plain", Content_Encoding="gzip"),
        site.page("/said", b"x", "text/plain", Content_Length="99999999"),
    ):
        with pytest.raises(ToolError, match="larger than 5 MB"):
            await box.call("webfetch", url=url)


async def test_errors_pictures_and_binaries(box: Toolbox, site: Site) -> None:
    with pytest.raises(ToolError, match=r"answered 404 Not Found\. It says: nothing here"):
        await box.call("webfetch", url=site.url("/none"))
    result = await box.call("webfetch", url=site.page("/p.png", b"\x89PNG\r\n\x1a\nrest", "image/png"))
    assert result.attachments[0].mime == "image/png"
    with pytest.raises(ToolError, match="is not text"):
        await box.call("webfetch", url=site.page("/b", b"\0\1\2", "application/zip"))
    with pytest.raises(ToolError, match="cannot be found"):
        await box.call("webfetch", url="http://no-such-host.invalid/")


PACKED = gzip.compress(b"<p>" + b"hello " * 2000 + b"</p>", mtime=0)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<h1>Hi</h1>", {"Content_Length": "500"}),
        (PACKED[:60], {"Content_Encoding": "gzip"}),
        (PACKED[:-10], {"Content_Encoding": "gzip"}),
        (b"no gzip at all", {"Content_Encoding": "gzip"}),
        (b"\xff\xff no deflate", {"Content_Encoding": "deflate"}),
    ],
    ids=["shorter than said", "gzip cut early", "gzip cut late", "no gzip", "no deflate"],
)
async def test_a_page_that_breaks_off_is_no_page(
    box: Toolbox, site: Site, body: bytes, headers: dict[str, str]
) -> None:
    with pytest.raises(ToolError, match=r"/half came broken: .*Fetch it again"):
        await box.call("webfetch", url=site.page("/half", body, **headers))


async def test_a_body_of_several_gzip_members(box: Toolbox, site: Site) -> None:
    body = gzip.compress(b"one, ") + gzip.compress(b"two") + b"\0" * 9
    url = site.page("/members", body, "text/plain", Content_Encoding="gzip")
    assert await box.text("webfetch", url=url) == "one, two"


@pytest.mark.parametrize("charset", ["undefined", "utf\0", "hex", "no-such"])
async def test_charsets_that_are_none(box: Toolbox, site: Site, charset: str) -> None:
    url = site.page("/c", "<p>h\xe9</p>".encode(), f"text/html; charset={charset}")
    assert await box.text("webfetch", url=url) == "h\xe9"


async def test_answers_that_are_no_page(box: Toolbox, site: Site) -> None:
    for status, headers in ((304, {}), (302, {})):
        with pytest.raises(ToolError, match="without a page or an address to go to"):
            await box.call("webfetch", url=site.page("/x", b"moved", status=status, **headers))
    with pytest.raises(ToolError, match="which is no address"):
        await box.call("webfetch", url=site.page("/x", b"", status=302, Location="http://["))
    with pytest.raises(ToolError, match="is not text"):
        await box.call("webfetch", url=site.page("/d.pdf", b"%PDF-1.4 words", "application/pdf"))


async def test_the_rule_that_is_named_would_allow_it(tmp_path: Path, site: Site) -> None:
    box = toolbox(tmp_path, environment={"PATH": "/usr/bin"})
    url = site.page("/", "in here", "text/plain")
    with pytest.raises(ToolError) as refused:
        await box.call("webfetch", url=url)
    pattern = str(refused.value).partition('webfetch = { "')[2].partition('"')[0]
    box.rules = (*box.rules, Rule("webfetch", pattern, "allow", "user"))
    assert await box.text("webfetch", url=url) == "in here"


# Where it goes


PRIVATE = [
    *("127.0.0.1", "127.8.8.8", "::1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "::"),
    *(
        "fe80::1",
        "fc00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "100.64.0.1",
        "224.0.0.1",
        "::127.0.0.1",
    ),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_known(address: str) -> None:
    assert not is_public(address)


def test_public_addresses_are_known() -> None:
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "127.1", "0.0.0.0"])
async def test_this_machine_is_not_fetched_by_any_spelling(tmp_path: Path, site: Site, host: str) -> None:
    box = toolbox(tmp_path, rules=(*ALLOW, Rule("webfetch", "*", "allow", "user")), environment={"PATH": "/usr/bin"})
    site.page("/", "secret")
    with pytest.raises(ToolError, match=r"private network|cannot be found|could not be fetched"):
        await box.call("webfetch", url=site.url("/", host))
    assert site.asked == []


async def test_redirects_are_checked_again(box: Toolbox, site: Site) -> None:
    site.page("/end", "the end", "text/plain")
    url = site.page("/go", "", status=302, Location="/end#part")
    assert await box.text("webfetch", url=url) == f"[{url} led to {site.url('/end')}]\n\nthe end"
    before = len(site.asked)
    for target in (
        f"http://localhost:{site.port}/end",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "gopher://x",
    ):
        with pytest.raises((ToolError, ArgumentError)):
            await box.call("webfetch", url=site.page("/out", "", status=301, Location=target))
    assert [path for path, _ in site.asked[before:]] == ["/out"] * 4
    with pytest.raises(ToolError, match="more than 5 redirects"):
        await box.call("webfetch", url=site.page("/loop", "", status=307, Location="/loop"))


async def test_a_redirect_to_another_place_needs_its_own_call(box: Toolbox, site: Site) -> None:
    box.rules = (*box.rules, Rule("webfetch", "https://example.com/*", "ask", "user"))
    url = site.page("/away", "", status=302, Location="https://example.com/x")
    with pytest.raises(ToolError, match=r"leads to https://example\.com/x, another place"):
        await box.call("webfetch", url=url)


@pytest.mark.parametrize(
    ("spelled", "tidy"),
    [
        ("HTTP://Example.COM:80/a b?q=ü#frag", "http://example.com/a%20b?q=%C3%BC"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com:8443/x", "https://example.com:8443/x"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        (" https://example.com/%7Eme ", "https://example.com/%7Eme"),
    ],
)
def test_addresses_are_made_plain_for_rules(spelled: str, tidy: str) -> None:
    assert tidy_url(spelled) == tidy


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "example.com",
        "ftp://x/",
        "file:///etc/passwd",
        "http://",
        "http://u:p@x/",
        "http://x:99999/",
        "http://a b/",
        "javascript:1",
    ],
)
def test_wrong_addresses(wrong: str) -> None:
    with pytest.raises(ArgumentError):
        tidy_url(wrong)


async def test_the_rule_sees_the_plain_address(box: Toolbox, site: Site) -> None:
    declared = box.declare("webfetch", url="HTTPS://Example.com:443/a/b?c=1#d")
    assert declared.needs[0].patterns == ("https://example.com/a/b?c=1",)
    assert declared.needs[0].always == ("=https://example.com/a/b?c=1",)
    assert declared.needs[0].suggest == "https://example.com/*"
    box.rules = (*box.rules, Rule("webfetch", "*", "deny", "project"))
    with pytest.raises(Denied):
        await box.call("webfetch", url=site.url("/"))


# How it ends


async def test_a_silent_server_ends_with_the_time(box: Toolbox, site: Site) -> None:
    begun = time.monotonic()
    with pytest.raises(ToolError, match=r"did not answer within 1 s|did not answer in time"):
        await box.call("webfetch", url=site.url("/stall"), timeout=1)
    assert time.monotonic() - begun < 5


async def test_stopping_hangs_up(box: Toolbox, site: Site) -> None:
    task = asyncio.create_task(box.call("webfetch", url=site.url("/stall")))
    for _ in range(200):
        if site.asked:
            break
        await asyncio.sleep(0.02)
    begun = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - begun < 2


# HTML


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<p>a<p>b", "a\n\nb"),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c"),
        ("<ol start=3><li>a<li>b</ol>", "3. a\n4. b"),
        ("<pre><code class='language-py'>x\n  y</code></pre>", "```py\nx\n  y\n```"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2|3</table>", "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |"),
        ("<blockquote><p>q</blockquote>", "> q"),
        ("<b> </b>x<i>y </i>z", "x*y* z"),
        ("<img alt='A' src='i.png'><img src=x>", "![A](http://h/i.png)"),
        ("<a href='javascript:alert(1)'>x</a><a href='#y'>y</a>", "xy"),
        ("a&lt;b&amp;&nbsp;c", "a<b& c"),
        ("<svg><title>no</title></svg><style>p{}</style><template>t</template>ok", "ok"),
        ("<p hidden>no</p><div aria-hidden='true'><p>no</p></div>yes", "yes"),
        ("a<br>b", "a\nb"),
        ("</p></div></table></ul>x", "x"),
        ("<h2>T<br>wo</h2>", "## T wo"),
        ("<title>My  title</title><p>x", "# My title\n\nx"),
        ("<dl><dt>a<dd>b</dl>", "a\n\nb"),
    ],
)
def test_markdown(html: str, markdown: str) -> None:
    assert to_markdown(html, "http://h/d") == markdown


def test_text_has_no_marks() -> None:
    assert to_text("<h1>A</h1><p><b>b</b> <a href='/x'>c</a><ul><li>d</ul>") == "A\n\nb c\n\n- d"


def test_depth_does_not_break_it() -> None:
    assert "deep" in to_markdown("<div>" * 5000 + "<ul><li>" * 300 + "deep")
    assert to_markdown("<table>" * 2000 + "<tr><td>x").strip() in ("", "x")
