"""The scripted server itself, read with nothing but a socket's eye view (http.client)."""

from __future__ import annotations

import gzip
import http.client
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server import (
    Gate,
    ScriptedServer,
    always,
    bare,
    call,
    cut,
    fault,
    hold,
    say,
    think,
    usage,
    when,
    whole,
    wire,
)

Start = Callable[..., ScriptedServer]


def body(text: str = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": text}]
    return {"model": "m", "messages": messages, "stream": True, **more}


def post(server: ScriptedServer, value: Any, path: str = "/v1/chat/completions") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", path, json.dumps(value), {"content-type": "application/json"})
    response = connection.getresponse()
    headers = {key.lower(): text for key, text in response.getheaders()}
    return response.status, response.read(), headers


def events(data: bytes) -> list[Any]:
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_an_answer_streams_with_finish_usage_and_done(server: Start) -> None:
    s = server([[think("hm"), say("hello", size=2), call("read", {"path": "a"}, size=5)]])
    status, data, headers = post(s, body(stream_options={"include_usage": True}))
    got = events(data)
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    deltas = [e["choices"][0]["delta"] for e in got[:-1] if e["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == "hello"
    assert "".join(d.get("reasoning_content") or "" for d in deltas) == "hm"
    calls = [c for d in deltas for c in d.get("tool_calls", [])]
    assert "".join(c["function"]["arguments"] for c in calls) == '{"path": "a"}'
    assert got[-1] == "[DONE]"
    assert got[-2]["usage"]["prompt_tokens"] > 0
    assert got[-3]["choices"][0]["finish_reason"] == "tool_calls"


def test_answers_are_matched_in_order_and_kept_forever(server: Start) -> None:
    s = server([when("beta", say("B")), [say("first")], always(say("rest"))])
    replies = [post(s, body(text))[1] for text in ("alpha", "beta", "x", "y")]
    said = [
        next(e["choices"][0]["delta"]["content"] for e in events(r) if e["choices"][0]["delta"].get("content"))
        for r in replies
    ]
    assert said == ["first", "B", "rest", "rest"]
    assert s.left == 0


def test_an_exhausted_script_is_a_clear_500() -> None:
    with ScriptedServer([]) as s:
        status, data, _ = post(s, body())
        assert status == 500
        assert b"no answer left" in data
        assert s.problems


def test_faults_have_status_headers_and_odd_bodies(server: Start) -> None:
    s = server([fault(429, {"error": "slow"}, {"retry-after": "3"}), fault(502, "<html>bad</html>"), fault(400)])
    assert post(s, body())[2]["retry-after"] == "3"
    status, data, headers = post(s, body())
    assert (status, data, headers["content-type"]) == (502, b"<html>bad</html>", "text/html")
    assert post(s, body())[:2] == (400, b"")


def test_cut_and_limit_end_the_connection_early(server: Start) -> None:
    s = server([[say("hello"), cut()], [wire(limit=30), say("hello")], [say("x"), cut(reset=True)]])
    for _ in range(2):
        with pytest.raises(http.client.IncompleteRead):
            post(s, body())
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        post(s, body())


def test_gzip_http10_crlf_and_sizes(server: Start) -> None:
    s = server([[wire(gzip=True), say("hé")], [wire(http10=True, crlf=True), say("hé")], [wire(size=1), say("hé")]])
    assert "hé" in gzip.decompress(post(s, body())[1]).decode()
    old = post(s, body())
    assert "transfer-encoding" not in old[2]
    assert b"\r\n\r\n" in old[1]
    assert "hé" in post(s, body())[1].decode()


def test_a_gate_holds_and_a_client_that_leaves_is_seen(server: Start) -> None:
    gate = Gate()
    s = server([[say("a"), hold(gate), say("b")]])
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
    connection.request("POST", "/v1/chat/completions", json.dumps(body()), {})
    response = connection.getresponse()
    assert gate.reached.wait(10)
    response.close()
    connection.close()
    assert s.seen[0].left.wait(10)


def test_whole_bare_and_plain_requests(server: Start) -> None:
    s = server([whole({"choices": []}), [say("x"), bare()], [say("plain"), usage(5, 6)]])
    assert json.loads(post(s, body())[1]) == {"choices": []}
    assert b"DONE" not in post(s, body())[1]
    plain = json.loads(post(s, {**body(), "stream": False})[1])
    assert plain["choices"][0]["message"]["content"] == "plain"
    assert plain["usage"]["prompt_tokens"] == 5


def test_responses_api_events(server: Start) -> None:
    s = server([[think("t", opaque="SECRET"), say("hey", size=1), call("read", {"p": 1})]])
    value = {"model": "m", "instructions": "s", "input": [{"role": "user", "content": "x"}], "stream": True}
    got = events(post(s, value, "/v1/responses")[1])
    assert [e["sequence_number"] for e in got] == list(range(len(got)))
    assert "".join(e["delta"] for e in got if e["type"] == "response.output_text.delta") == "hey"
    final = got[-1]["response"]
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
    assert final["output"][0]["encrypted_content"] == "SECRET"


def test_the_key_and_the_model_list(server: Start) -> None:
    s = server([], models=["a", {"id": "b", "max_model_len": 9}], routes={"/api/version": {"version": "1"}}, key="k")
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
    connection.request("GET", "/v1/models", headers={"authorization": "Bearer no"})
    refused = connection.getresponse()
    refused.read()
    assert refused.status == 401
    connection.request("GET", "/v1/models", headers={"authorization": "Bearer k"})
    assert [m["id"] for m in json.loads(connection.getresponse().read())["data"]] == ["a", "b"]
    connection.request("GET", "/api/version")
    assert json.loads(connection.getresponse().read()) == {"version": "1"}


def test_violations_are_collected() -> None:
    with ScriptedServer(always(say("x")).steps and [always(say("x"))]) as s:
        post(s, {"model": "m", "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})
        assert any("two user messages" in text for text in s.violations)
        assert any("system" in text for text in s.violations)


def test_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([[{"say": "hello"}], {"steps": [{"call": "read", "args": {"path": "a"}}]}]))
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "tests.server", str(script), "--log", str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=20)
        connection.request("POST", "/v1/chat/completions", json.dumps(body()), {})
        assert b"hello" in connection.getresponse().read()
        connection.close()
        process.stdin.close()
        assert process.wait(20) == 0
    assert json.loads(log.read_text())["violations"] == []
