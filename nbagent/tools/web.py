"""One HTTP GET that cannot be led astray: the address is checked, and the connection goes to the address that was checked."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from nbagent.errors import ArgumentError, ToolError
from nbagent.tools.textfile import counted

MAX_SIZE = 5 * 1024 * 1024
MAX_REDIRECTS = 5
_AGENT = "nbagent"
_REDIRECTS = {301, 302, 303, 307, 308}


@dataclass(frozen=True, slots=True)
class Page:
    """What came back. ``url``: where it was in the end; ``body``: decoded from any compression; ``mime`` without parameters."""

    url: str
    status: int
    reason: str
    mime: str
    charset: str
    body: bytes


def tidy_url(spelled: str) -> str:
    """The address as rules see it: scheme and host in small letters, no default port, no fragment. Raises ``ArgumentError``."""
    try:
        parts = urlsplit(spelled.strip())
        port = parts.port
    except ValueError as error:
        raise ArgumentError(f"{spelled[:200]!r} is not an address: {error}.") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ArgumentError(f"{spelled[:200]!r} cannot be fetched: only http:// and https:// addresses are.")
    if not parts.hostname:
        raise ArgumentError(
            f"{spelled[:200]!r} names no host. Send the whole address, such as https://docs.python.org/3/."
        )
    if parts.username is not None or parts.password is not None:
        raise ArgumentError("An address with a user name or a password in it is not fetched. Send it without.")
    scheme = parts.scheme.lower()
    host = _ascii_host(parts.hostname, spelled)
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _default_port(scheme):
        shown = f"{shown}:{port}"
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return urlunsplit(SplitResult(scheme, shown, path, quote(parts.query, safe="/%:@!$&'()*+,;=?~-._"), ""))


def _ascii_host(host: str, spelled: str) -> str:
    if host.isascii():
        if any(not (c.isalnum() or c in ".-_:%") for c in host):
            raise ArgumentError(f"{spelled[:200]!r} names no host that there can be.")
        return host.lower().rstrip(".") or host
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise ArgumentError(f"{spelled[:200]!r} names no host that there can be.") from None


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def host_of(url: str) -> str:
    """The host of a tidy address."""
    return urlsplit(url).hostname or ""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the open internet, also when it is wrapped in another."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is None and found in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is None and int(found) >> 32 == 0:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None and not is_public(str(inner)):
            return False
    return found.is_global and not found.is_multicast


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises ``ToolError`` when it has none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"The host {host} cannot be found: {reason}.") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def public_address(parts: SplitResult, inside: bool) -> str:
    """The address to connect to. Raises ``ToolError`` for one that is not public, unless ``inside`` is allowed."""
    host = parts.hostname or ""
    addresses = resolve(host, parts.port or _default_port(parts.scheme))
    hidden = [address for address in addresses if not is_public(address)]
    if hidden and not inside:
        named = host if host == hidden[0] else f"{host} is {hidden[0]}, which"
        raise ToolError(
            f"{named} is an address of this machine or of a private network, and such are not fetched. A person can allow it with a rule "
            f'that names the host, such as webfetch = {{ "{parts.scheme}://{parts.netloc}/*" = "allow" }}.'
        )
    return addresses[0]


class Fetcher:
    """Gets one page. ``inside``: whether a host that is not public may be asked; ``follow``: whether a redirect may be followed."""

    def __init__(
        self, environment: Mapping[str, str], inside: Callable[[str], bool], follow: Callable[[str, str], None]
    ) -> None:
        self._environment = environment
        self._inside = inside
        self._follow = follow
        self._connection: http.client.HTTPConnection | None = None
        self._gone = threading.Event()

    async def get(self, url: str, timeout: float) -> Page:
        """The page at ``url``, redirects followed. Raises ``ToolError``."""
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.to_thread(self._get, url, timeout)
        except TimeoutError:
            raise ToolError(f"{url} did not answer within {timeout:.0f} s.") from None
        finally:
            self._gone.set()
            self._hang_up()

    def _hang_up(self) -> None:
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _get(self, url: str, timeout: float) -> Page:
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._once(url, timeout)
            if isinstance(answer, Page):
                return answer
            try:
                following = tidy_url(urljoin(url, answer))
            except ValueError as error:
                raise ToolError(f"{url} leads to {answer[:200]!r}, which is no address: {error}.") from None
            self._follow(url, following)
            url = following
        raise ToolError(f"{url}: more than {MAX_REDIRECTS} redirects.")

    def _once(self, url: str, timeout: float) -> Page | str:
        """The page, or the address that it sends us to."""
        if self._gone.is_set():
            raise ToolError("The fetch was stopped.")
        parts = urlsplit(url)
        self._connection = connection = self._connect(parts, timeout)
        target = urlunsplit(("", "", parts.path, parts.query, ""))
        headers = {
            "Host": parts.netloc,
            "User-Agent": _AGENT,
            "Accept": "text/html,text/markdown,text/plain,application/json,*/*;q=0.5",
            "Accept-Encoding": "gzip, deflate",
        }
        try:
            connection.request("GET", url if isinstance(connection, _Proxied) else target, headers=headers)
            response = connection.getresponse()
            location = response.getheader("location")
            if response.status in _REDIRECTS and location:
                return location
            return _page(url, response)
        except (OSError, http.client.HTTPException) as error:
            raise ToolError(f"{url} could not be fetched: {_reason(error)}.") from None
        finally:
            connection.close()

    def _connect(self, parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
        host, scheme = parts.hostname or "", parts.scheme
        port = parts.port or _default_port(scheme)
        proxy = self._proxy(scheme, host)
        if proxy is not None:
            self._refuse_private_behind_proxy(parts)
            return _through(proxy, scheme, host, port, timeout)
        address = public_address(parts, self._inside(urlunsplit(parts)))
        if scheme == "https":
            return _PinnedTLS(host, port, address, timeout)
        return _Pinned(host, port, address, timeout)

    def _proxy(self, scheme: str, host: str) -> SplitResult | None:
        found = getproxies_environment() if not self._environment else _proxies(self._environment)
        spelled = found.get(scheme) or found.get("all")
        if not spelled or proxy_bypass_environment(host, found):
            return None
        proxy = urlsplit(spelled if "://" in spelled else f"http://{spelled}")
        return proxy if proxy.scheme == "http" and proxy.hostname else None

    def _refuse_private_behind_proxy(self, parts: SplitResult) -> None:
        """A name that only the proxy can resolve is the proxy's to judge; one that we know to be private is not asked for."""
        try:
            public_address(parts, self._inside(urlunsplit(parts)))
        except ToolError as error:
            if "cannot be found" not in str(error):
                raise


def _proxies(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in environment.items():
        if value and name.lower().endswith("_proxy"):
            found[name.lower()[:-6]] = value
    return found


class _Pinned(http.client.HTTPConnection):
    """Connects to an address that was checked, whatever the host's name means by now."""

    def __init__(self, host: str, port: int, address: str, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)


class _PinnedTLS(_Pinned):
    """The same with TLS; the certificate must be that of the host."""

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


class _Proxied(http.client.HTTPConnection):
    """To a proxy that is asked for whole addresses."""


def _through(proxy: SplitResult, scheme: str, host: str, port: int, timeout: float) -> http.client.HTTPConnection:
    headers = {}
    if proxy.username:
        import base64

        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    if scheme == "http":
        return _Proxied(proxy.hostname or "", proxy.port or 80, timeout=timeout)
    return _Tunnel(proxy, host, port, headers, timeout)


class _Tunnel(http.client.HTTPConnection):
    """TLS to the host through a tunnel that a plain HTTP proxy digs."""

    def __init__(self, proxy: SplitResult, host: str, port: int, headers: dict[str, str], timeout: float) -> None:
        super().__init__(proxy.hostname or "", proxy.port or 80, timeout=timeout)
        self._server = host
        self.set_tunnel(host, port, headers)

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self._server)


def _page(url: str, response: http.client.HTTPResponse) -> Page:
    told = response.getheader("content-length") or ""
    if told.isdigit() and int(told) > MAX_SIZE:
        raise _too_large(url)
    if response.headers.defects:
        raise _broken(url, "its header is not whole")
    body = _decoded(url, response)
    if response.length:  # what was promised and did not come
        raise _broken(url, f"the connection ended {counted(response.length, 'byte')} too early")
    message = response.headers
    return Page(
        url,
        response.status,
        response.reason or "",
        message.get_content_type(),
        message.get_content_charset() or "",
        body,
    )


def _decoded(url: str, response: http.client.HTTPResponse) -> bytes:
    """The body without compression; never more than the limit in memory, however well it was packed."""
    encoding = (response.getheader("content-encoding") or "").lower().strip()
    if encoding in ("", "identity"):
        body = response.read(MAX_SIZE + 1)
        if len(body) > MAX_SIZE:
            raise _too_large(url)
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(f"{url} came compressed in a way that is not understood ({encoding[:40]}).")
    try:
        return _inflated(url, response, encoding)
    except zlib.error as error:
        raise _broken(url, str(error)) from None


def _inflated(url: str, response: http.client.HTTPResponse, encoding: str) -> bytes:
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    began = False
    while chunk := response.read(65536):
        while chunk:
            if unpack.eof:  # several gzip members, one after another
                unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                body += unpack.decompress(chunk, MAX_SIZE + 1 - len(body))
            except zlib.error:
                if began and body:
                    break  # what follows a whole member is padding
                if began or encoding != "deflate":
                    raise
                unpack = zlib.decompressobj(-zlib.MAX_WBITS)
                body += unpack.decompress(chunk, MAX_SIZE + 1 - len(body))
            began = True
            if len(body) > MAX_SIZE or unpack.unconsumed_tail:
                raise _too_large(url)
            chunk = unpack.unused_data.lstrip(b"\0")
    if began and not unpack.eof:
        raise _broken(url, "the compressed text ends too early")
    return bytes(body)


def _broken(url: str, why: str) -> ToolError:
    return ToolError(f"{url} came broken: {why}. Fetch it again.")


def _too_large(url: str) -> ToolError:
    return ToolError(f"{url} is larger than {MAX_SIZE // 1024 // 1024} MB, which is the most that is fetched.")


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, http.client.IncompleteRead):
        return f"the answer broke off after {counted(len(error.partial), 'byte')}"
    if isinstance(error, (http.client.BadStatusLine, http.client.UnknownProtocol)) and not isinstance(
        error, http.client.RemoteDisconnected
    ):
        return f"it does not speak HTTP/1: {str(error).strip()[:80]!r}"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
