"""Tools that come from MCP servers: started at the first use, each in a task of its own, closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from nbagent.config import McpSettings
from nbagent.errors import ArgumentError, ToolError
from nbagent.message import Attachment
from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult

START_SECONDS = 30.0
CALL_SECONDS = 120.0
CLOSE_SECONDS = 5.0
MAX_DESCRIPTION = 2_000
MAX_SCHEMA = 8_000
MAX_TOOLS = 200
MAX_IMAGE = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach a server: a command (stdio) that runs in ``cwd``, or a URL (streamable HTTP)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, settings: McpSettings) -> Server:
        """A server as the settings name it."""
        return cls(
            name,
            settings.command,
            settings.args,
            settings.env,
            cwd=settings.cwd,
            url=settings.url,
            headers=settings.headers,
        )

    @property
    def permission(self) -> str:
        """What starting it is decided by; the pattern is ``shown``."""
        return tool_name(self.name)

    @property
    def shown(self) -> str:
        """What would be started: the command line, or the address."""
        return shlex.join([self.command, *self.args]) if self.command else self.url


class McpArguments(Arguments, frozen=True, kw_only=True):
    """What the server's own schema describes, as it came."""

    values: dict[str, Any] = {}


class McpTool(Tool[McpArguments]):
    """One tool of a server. It only reads when the server says so (``readOnlyHint``)."""

    arguments = McpArguments
    deferred = True

    def __init__(self, name: str, remote: str, served: Mapping[str, Any], connection: Connection) -> None:
        described = " ".join(str(served.get("description") or "").split())
        self.name = self.permission = name
        self.remote = remote
        self.server = connection.server.name
        self.hint = described[:120] or f"{remote} of the server {connection.server.name}"
        self.effect = "reads" if only_reads(served.get("annotations")) else "outside"
        self.parallel = self.effect == "reads"
        self._connection = connection
        text = str(served.get("description") or "").strip()[:MAX_DESCRIPTION]
        self.__dict__["description"] = f"{text or remote}\n\n(from the MCP server {connection.server.name})"
        self.__dict__["schema"] = small_schema(served.get("inputSchema"))

    def convert(self, given: dict[str, Any]) -> McpArguments:
        """Only what is plainly wrong is refused here; the server judges the rest."""
        missing = [key for key in self.schema.get("required", ()) if key not in given]
        if missing:
            raise ArgumentError(f"the required field is missing: {', '.join(map(str, missing))}")
        return McpArguments(values=given)

    def declare(self, arguments: McpArguments, context: ToolContext) -> Declaration:
        return Declaration(
            f"{self._connection.server.name}: {self.remote}", (Need(self.permission, ("*",), always=("*",)),)
        )

    async def act(self, arguments: McpArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        answer = await self._connection.call(self.remote, arguments.values)
        text, pictures = content_of(answer)
        if answer.get("isError"):
            raise ToolError(text or f"{self.remote} failed without saying why.")
        return ToolResult(declaration.title, text or "(no output)", {"server": self._connection.server.name}, pictures)


def only_reads(hints: Any) -> bool:
    """Whether a server says that a tool only reads, and says nothing that goes against it."""
    return isinstance(hints, Mapping) and hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True


def small_schema(served: Any) -> dict[str, Any]:
    """A served schema as it may be sent on: an object schema of a bearable size."""
    schema = dict(served) if isinstance(served, Mapping) else {}
    schema = {key: value for key, value in schema.items() if key not in {"$schema", "title", "$id"}}
    schema["type"] = "object"
    properties = schema.get("properties")
    schema["properties"] = {
        str(name): each if isinstance(each, Mapping) else {}
        for name, each in (properties.items() if isinstance(properties, Mapping) else ())
    }
    required = schema.pop("required", ())
    if isinstance(required, (list, tuple)) and any(isinstance(name, str) for name in required):
        schema["required"] = [name for name in required if isinstance(name, str)]
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA:
        names = list(schema["properties"])[:100]
        required = [name for name in schema.get("required", ()) if name in names]
        return {"type": "object", "properties": {name: {} for name in names}, "required": required}
    return schema


def content_of(answer: Mapping[str, Any]) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the pictures of a result; what cannot be shown is named."""
    texts: list[str] = []
    pictures: list[Attachment] = []
    for part in answer.get("content") or ():
        kind, data = part.get("type"), str(part.get("data") or "")
        if kind == "text":
            texts.append(str(part.get("text") or ""))
        elif kind == "image" and len(data) <= MAX_IMAGE * 4 // 3:
            pictures.append(Attachment(mime=str(part.get("mimeType") or "image/png"), data=data))
            texts.append(f"[picture {part.get('mimeType')}, {len(data) * 3 // 4:,} bytes, attached]")
        elif kind == "resource" and "text" in (part.get("resource") or {}):
            texts.append(str(part["resource"]["text"]))
        else:
            texts.append(f"[{kind}{' ' + str(part.get('uri')) if part.get('uri') else ''}: not shown]")
    if not any(texts) and answer.get("structuredContent") is not None:
        texts = [msgspec.json.format(msgspec.json.encode(answer["structuredContent"])).decode()]
    return "\n".join(texts), tuple(pictures)


class Connection:
    """One server's session. It lives in a task of its own, because what opened it must also close it."""

    def __init__(
        self,
        server: Server,
        cwd: Path,
        environment: Mapping[str, str],
        start_seconds: float = START_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self.server = server
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._cwd = cwd
        self._environment = environment
        self._stop = asyncio.Event()
        self._session: Any = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> list[dict[str, Any]]:
        """Start the server; its tools as they are served. Raises ``ToolError``."""
        ready: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready), name=f"mcp {self.server.name}")
        try:
            return await asyncio.wait_for(asyncio.shield(ready), self._start_seconds)
        except TimeoutError:
            await self.close()
            raise ToolError(f"it did not answer within {self._start_seconds:.0f} s") from None
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _live(self, ready: asyncio.Future[list[dict[str, Any]]]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                session = await self._enter(stack)
                await session.initialize()
                tools = await _all_tools(session)
                self._session = session
                ready.set_result(tools)
                await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 — whatever a foreign server or library raises ends this server only
            if not ready.done():
                ready.set_exception(ToolError(_reason(error)))
        finally:
            self._session = None
            if not ready.done():
                ready.cancel()

    async def _enter(self, stack: contextlib.AsyncExitStack) -> Any:
        try:
            from mcp import ClientSession
        except ImportError as error:
            raise ToolError(
                f"the mcp package is missing or does not fit ({error}); install jupyter-nbagent[mcp]"
            ) from None
        streams = await stack.enter_async_context(self._transport(stack))
        return await stack.enter_async_context(ClientSession(streams[0], streams[1]))

    def _transport(self, stack: contextlib.AsyncExitStack) -> Any:
        server = self.server
        if server.command:
            from mcp.client.stdio import StdioServerParameters, stdio_client

            silent = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
            environment = {**self._environment, **server.env}
            parameters = StdioServerParameters(
                command=server.command, args=list(server.args), env=environment, cwd=str(self._cwd)
            )
            return stdio_client(parameters, errlog=silent)
        return _http_transport(server)

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result of one call as JSON. Raises ``ToolError`` when the server is gone, late, or refuses the call."""
        if self._session is None:
            raise ToolError(f"The MCP server {self.server.name} is not running any more. Go on without its tools.")
        try:
            answer = await asyncio.wait_for(self._session.call_tool(tool, arguments), self._call_seconds)
        except TimeoutError:
            raise ToolError(f"{tool} of {self.server.name} did not answer within {self._call_seconds:g} s.") from None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise ToolError(f"{tool} of {self.server.name} failed: {_reason(error)}.") from error
        return cast(dict[str, Any], answer.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def close(self) -> None:
        """Stop the server; one that does not stop by itself is cancelled."""
        self._stop.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)


def _http_transport(server: Server) -> Any:
    """The transport of whichever generation of the library is installed."""
    from mcp.client import streamable_http

    headers = dict(server.headers)
    if hasattr(streamable_http, "streamable_http_client") and hasattr(streamable_http, "create_mcp_http_client"):
        client = streamable_http.create_mcp_http_client(headers=headers) if headers else None
        return streamable_http.streamable_http_client(server.url, http_client=client)
    return streamable_http.streamablehttp_client(server.url, headers=headers)


async def _all_tools(session: Any) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(50):
        page = await (session.list_tools() if cursor is None else _next_page(session, cursor))
        told = page.model_dump(mode="json", by_alias=True, exclude_none=True)
        tools += told.get("tools") or []
        cursor = told.get("nextCursor")
        if not cursor or len(tools) >= MAX_TOOLS:
            break
    return tools[:MAX_TOOLS]


def _next_page(session: Any, cursor: str) -> Any:
    from mcp.types import PaginatedRequestParams

    return session.list_tools(params=PaginatedRequestParams(cursor=cursor))


def _reason(error: BaseException) -> str:
    """The first real cause in a group of errors, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


class McpServers:
    """The servers of the settings. ``tools``: where their tools are put once they run, beside the built-in ones."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        cwd: Path,
        environment: Mapping[str, str],
        tools: MutableMapping[str, Tool[Any]],
        start_seconds: float = START_SECONDS,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._servers = servers
        self._cwd = cwd
        self._environment = environment
        self._tools = tools
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._open: dict[str, Connection] = {}
        self._starting: dict[str, asyncio.Task[str]] = {}

    def waiting(self) -> list[Server]:
        """The servers that were not started yet."""
        return [server for name, server in self._servers.items() if name not in self._starting]

    async def start(self, names: Iterable[str] | None = None) -> list[str]:
        """Start the named servers (all when None), each once; a sentence for each that did not start."""
        wanted = [name for name in (self._servers if names is None else names) if name in self._servers]
        for name in wanted:
            if name not in self._starting:
                self._starting[name] = asyncio.create_task(self._start(self._servers[name]), name=f"start mcp {name}")
        said = [await asyncio.shield(self._starting[name]) for name in wanted]
        return [problem for problem in said if problem]

    def _folder(self, server: Server) -> tuple[Path, str]:
        """Where a server runs, and what is wrong with that, or ""."""
        cwd = self._cwd / Path(server.cwd).expanduser()
        if server.command and not cwd.is_dir():
            return cwd, f"The MCP server {server.name} could not be started: its cwd {cwd} is no folder."
        return cwd, ""

    async def _start(self, server: Server) -> str:
        """What went wrong, or ""."""
        cwd, fault = self._folder(server)
        if fault:
            return fault
        connection = Connection(server, cwd, self._environment, self._start_seconds, self._call_seconds)
        try:
            served = await connection.open()
        except ToolError as error:
            return f"The MCP server {server.name} could not be started: {error}."
        self._open[server.name] = connection
        for tool in served:
            remote = str(tool.get("name") or "")
            name = tool_name(server.name, remote)
            if remote and name not in self._tools:
                self._tools[name] = McpTool(name, remote, tool, connection)
        return ""

    async def close(self) -> None:
        """Stop them all. Their tools stay known and answer that their server is gone."""
        starting = [task for task in self._starting.values() if not task.done()]
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting, timeout=CLOSE_SECONDS)
        await asyncio.gather(*(connection.close() for connection in self._open.values()))
        self._open.clear()


def tool_name(server: str, remote: str = "") -> str:
    """``mcp_<server>_<tool>``, of letters that every model server takes, at most 64."""
    whole = f"mcp_{server}_{remote}" if remote else f"mcp_{server}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", whole)[:64]
