"""Where a model server is: a base URL as people write it, tidied, and what may be meant by it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlsplit

from nbagent.errors import ConfigError

OPENAI = "https://api.openai.com/v1"
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/models", "/embeddings")
SERVERS = {
    11434: ("Ollama", "start it with `ollama serve`"),
    1234: ("LM Studio", "start its local server (Developer tab, or `lms server start`)"),
    8080: ("llama.cpp's server", "start it with `llama-server -m MODEL --jinja`"),
    8000: ("vLLM", "start it with `vllm serve MODEL`"),
    4000: ("LiteLLM", "start it with `litellm --config FILE`"),
}


@dataclass(frozen=True, slots=True)
class Address:
    """``url``: without a slash at its end. ``query``: parameters that every request carries. ``bare``: no path was written."""

    url: str
    query: tuple[tuple[str, str], ...] = ()
    bare: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def shown(self) -> str:
        """The URL without a name and password in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{self.host}{parts.path}"

    @property
    def root(self) -> str:
        """The server without any path."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def local(self) -> bool:
        """On this machine: no proxy is asked."""
        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def is_openai(self) -> bool:
        name = urlsplit(self.url).hostname or ""
        return name == "api.openai.com" or name.endswith((".api.openai.com", ".openai.azure.com"))

    @property
    def is_azure(self) -> bool:
        return (urlsplit(self.url).hostname or "").endswith(".azure.com")

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown of it: a password, and a query that may hold a key."""
        return (urlsplit(self.url).password or "", *(value for _, value in self.query))

    def others(self) -> tuple[Address, ...]:
        """Where else the server's paths may be, when they are not here: with ``/v1``, or without it."""
        if self.bare:
            return (replace(self, url=self.url.removesuffix("/v1")),)
        if self.url.rsplit("/", 1)[-1].lower() in ("v1", "v2", "v3", "v4", "v1beta", "openai"):
            return ()
        return (replace(self, url=f"{self.url}/v1"),)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address:
    """``text`` as a person may have written it: with or without scheme, ``/v1``, a slash, or a whole endpoint.

    Raises ``ConfigError`` for what is no HTTP address.
    """
    url = text.strip().strip("\"'") or OPENAI
    if "://" not in url:
        url = f"{_scheme(url)}://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(_wrong(text)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in url) or port == 0:
        raise ConfigError(_wrong(text))
    path = parts.path.rstrip("/")
    for endpoint in ENDPOINTS:
        path = path.removesuffix(endpoint)
    path = path.rstrip("/")
    query = tuple(parse_qsl(parts.query, keep_blank_values=True))
    base = f"{parts.scheme}://{parts.netloc}"
    return Address(f"{base}{path}", query) if path else Address(f"{base}/v1", query, bare=True)


def _scheme(url: str) -> str:
    host = url.split("/")[0].rpartition("@")[2]
    name = host.rsplit(":", 1)[0] if host.count(":") == 1 else host
    local = is_loopback(name) or name == "host.docker.internal" or "." not in name
    return "http" if local or name.replace(".", "").isdigit() else "https"


def _wrong(text: str) -> str:
    return f"{text!r} is no address of a model server. Set OPENAI_BASE_URL (or base_url in nbagent.toml) to one like http://127.0.0.1:11434/v1."


def unreachable(address: Address, why: str) -> str:
    """The sentence for a server that does not answer."""
    known = SERVERS.get(urlsplit(address.url).port or 0)
    if known and (address.local or "." not in (urlsplit(address.url).hostname or "")):
        return (
            f"No server answers at {address.shown}; is {known[0]} running? If not, {known[1]} and run the cell again."
        )
    if address.local:
        return f"No server answers at {address.shown}. Start your model server, or set OPENAI_BASE_URL to where it is."
    return f"No server answers at {address.shown} ({why}). Check the network and OPENAI_BASE_URL."
