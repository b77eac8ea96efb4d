"""Tools of MCP servers: started at the first use, offered, called, and gone at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ArgumentError, Denied, ToolError
from nbagent.permission.ruleset import Rule
from nbagent.tools.mcp import McpServers, Server, content_of, small_schema, tool_name
from nbagent.tools.registry import all_tools, check_arguments
from nbagent.tools.tool import Tool
from tests.toolbox import Host, Toolbox, toolbox

pytest.importorskip("mcp")

SCRIPT = str(Path(__file__).parents[1] / "data/tools/mcp_server.py")
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def stdio(name: str = "tiny", **env: str) -> Server:
    return Server(name, command=sys.executable, args=(SCRIPT,), env=env)


class Offering(Host):
    """A host that offers what is deferred, as a session does."""

    tools: dict[str, Tool[Any]]

    def deferred(self) -> list[Tool[Any]]:
        return [tool for tool in self.tools.values() if tool.deferred]


async def with_servers(tmp_path: Path, *servers: Server, **seconds: float) -> tuple[Toolbox, McpServers]:
    host = Offering()
    box = toolbox(tmp_path, host=host)
    host.tools = box.tools
    running = McpServers({server.name: server for server in servers}, box.root, ENVIRONMENT, box.tools, **seconds)
    box.tools["tool_search"].servers = running  # type: ignore[attr-defined]
    return box, running


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    made, servers = await with_servers(tmp_path, stdio(MINE="yes"))
    await servers.start()
    yield made
    await servers.close()


async def test_nothing_is_started_before_the_first_search(tmp_path: Path) -> None:
    box, servers = await with_servers(tmp_path, stdio())
    assert not any(name.startswith("mcp_") for name in box.tools)
    said = await box.text("tool_search", query="add numbers")
    assert "- mcp_tiny_add: Add two numbers." in said
    assert "mcp_tiny_add" in box.host.revealed
    assert sorted(name for name in box.tools if name.startswith("mcp_")) == [
        "mcp_tiny_add",
        "mcp_tiny_die",
        "mcp_tiny_fail",
        "mcp_tiny_picture",
        "mcp_tiny_sleep",
        "mcp_tiny_store_it_",
    ]
    await servers.close()


async def test_starting_a_server_is_decided_by_its_own_rule(tmp_path: Path) -> None:
    box, servers = await with_servers(tmp_path, stdio("tiny"), stdio("other"))
    shown = servers.waiting()[0].shown
    box.rules = (*box.rules, Rule("mcp_*", "*", "ask", "defaults"))
    said = await box.text("tool_search", query="add")
    assert "The MCP server tiny was not started: the rules do not allow mcp_tiny." in said
    assert len(servers.waiting()) == 2
    box.rules = (*box.rules, Rule("mcp_tiny", shown, "allow", "user"))
    said = await box.text("tool_search", query="add")
    assert "- mcp_tiny_add" in said
    assert "The MCP server other was not started" in said
    box.attended = True
    (_, need) = box.declare("tool_search", query="add").needs
    assert (need.permission, need.patterns) == ("mcp_other", (shown,))
    box.replies["mcp_other"] = "reject"
    with pytest.raises(Denied):
        await box.call("tool_search", query="add")
    assert [server.name for server in servers.waiting()] == ["other"]
    await servers.close()


async def test_calls(box: Toolbox) -> None:
    assert await box.text("mcp_tiny_add", a=2, b=3) == "5"
    stored = await box.text("mcp_tiny_store_it_", anything={"deep": [1]})
    assert '"given": {\n    "anything"' in stored
    assert '"mine": "yes"' in stored
    result = await box.call("mcp_tiny_picture")
    assert result.output == "here\n[picture image/png, 3 bytes, attached]\n[audio: not shown]"
    assert result.attachments[0].data == "aGk="
    with pytest.raises(ToolError, match="it went wrong"):
        await box.call("mcp_tiny_fail")
    with pytest.raises(
        ArgumentError, match=r"required field is missing: b\. Send mcp_tiny_add\(a: number, b: number\)"
    ):
        await box.call("mcp_tiny_add", a=1)


async def test_what_they_declare(box: Toolbox) -> None:
    add, store = box.tools["mcp_tiny_add"], box.tools["mcp_tiny_store_it_"]
    assert (add.effect, add.parallel, add.deferred, add.permission) == ("reads", True, True, "mcp_tiny_add")
    assert (store.effect, store.parallel) == ("outside", False)
    assert "$schema" not in add.schema
    assert "from the MCP server tiny" in add.description
    assert check_arguments(store, {"x": 1}).values == {"x": 1}  # type: ignore[attr-defined]
    (need,) = box.declare("mcp_tiny_add", a=1, b=2).needs
    assert (need.permission, need.patterns) == ("mcp_tiny_add", ("*",))


async def test_the_scrubbed_environment_is_what_a_server_gets(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    assert "hunter2" not in await box.text("mcp_tiny_store_it_")


async def test_servers_that_do_not_start_are_named_and_the_others_work(tmp_path: Path) -> None:
    box, servers = await with_servers(
        tmp_path,
        stdio("good"),
        stdio("broken", WAY="broken"),
        stdio("silent", WAY="silent"),
        Server("missing", command="/no/such/program"),
        Server("nowhere", url="http://127.0.0.1:9/mcp"),
        start_seconds=4.0,
    )
    result = await box.call("tool_search", query="add")
    assert "- mcp_good_add" in result.output
    problems = " ".join(result.metadata["problems"])
    assert len(result.metadata["problems"]) == 4
    assert "The MCP server silent could not be started: it did not answer within 4 s." in problems
    for name in ("broken", "missing", "nowhere"):
        assert f"The MCP server {name} could not be started: " in problems
    await servers.close()


async def test_a_server_that_dies_says_so(box: Toolbox) -> None:
    with pytest.raises(ToolError):
        await asyncio.wait_for(box.call("mcp_tiny_die"), 20)
    with pytest.raises(ToolError, match=r"failed|not running"):
        await asyncio.wait_for(box.call("mcp_tiny_add", a=1, b=1), 20)


async def test_stopping_a_call_and_closing(tmp_path: Path) -> None:
    box, servers = await with_servers(tmp_path, stdio())
    await servers.start()
    pid = int((await box.text("mcp_tiny_store_it_")).partition('"pid": ')[2].partition(",")[0])
    begun_mark = tmp_path / "begun"
    task = asyncio.create_task(box.call("mcp_tiny_sleep", mark=str(begun_mark)))
    for _ in range(500):
        if begun_mark.exists():
            break
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    begun = time.monotonic()
    await servers.close()
    assert time.monotonic() - begun < 12
    assert not _alive(pid)
    with pytest.raises(ToolError, match="not running any more"):
        await box.call("mcp_tiny_add", a=1, b=1)


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


async def test_too_slow_a_call(tmp_path: Path) -> None:
    box, servers = await with_servers(tmp_path, stdio(), call_seconds=0.5)
    await servers.start()
    with pytest.raises(ToolError, match=r"sleep of tiny did not answer within 0\.5 s"):
        await box.call("mcp_tiny_sleep")
    await servers.close()


@pytest.fixture
def port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, SCRIPT, "--http"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


async def test_http_with_headers(tmp_path: Path, port: int) -> None:
    box, servers = await with_servers(
        tmp_path,
        Server("web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "k"}),
        Server("locked", url=f"http://127.0.0.1:{port}/mcp"),
    )
    result = await box.call("tool_search", query="add")
    assert "- mcp_web_add" in result.output
    assert "The MCP server locked could not be started" in result.output
    assert await box.text("mcp_web_add", a=20, b=22) == "42"
    await servers.close()


def test_names_and_schemas_are_tamed() -> None:
    assert tool_name("my srv", "do/it" + "x" * 80) == ("mcp_my_srv_do_it" + "x" * 80)[:64]
    big = {"type": "object", "properties": {f"p{n}": {"description": "d" * 500} for n in range(50)}, "required": ["p1"]}
    assert small_schema(big)["properties"]["p1"] == {}
    assert small_schema(big)["required"] == ["p1"]
    assert small_schema(None) == {"type": "object", "properties": {}}
    odd = {"type": ["object"], "properties": {"a": True, "b": None}, "required": None}
    assert small_schema(odd) == {"type": "object", "properties": {"a": {}, "b": {}}}
    assert small_schema({"properties": [], "required": ["a", 3]})["required"] == ["a"]
    assert content_of({"content": [{"type": "resource", "resource": {"uri": "x", "text": "inside"}}]})[0] == "inside"
    assert all_tools()["tool_search"].servers is None  # type: ignore[attr-defined]
