"""Whole runs against servers that are simpler than the usual ones, and answer by what they find in the messages."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import strict
from tests.project import Project
from tests.server import content_text

PLAN = "# Fix recall\n\nIn `src/model.py`.\n\n## Verification\nRun it.\n"
Answer = str | list[tuple[str, dict[str, Any]]]
Model = Callable[[dict[str, Any]], Answer]


class OddServer:
    """HTTP/1.0, no route but the completions, no usage; everything of a kind in one chunk. ``leave_out``: of ``id``, ``index``,
    ``done``, ``finish``, ``role``, ``type``."""

    def __init__(
        self, model: Model, leave_out: tuple[str, ...] = (), finish: str = "stop", stream: bool = True
    ) -> None:
        self.bodies: list[dict[str, Any]] = []
        odd = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def log_message(self, *_: Any) -> None:
                """Quiet."""

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                odd.bodies.append(body)
                delta = odd.delta(model(body), leave_out)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if stream else "application/json")
                self.end_headers()
                if stream:
                    self.wfile.write(odd.chunks(delta, leave_out, finish))
                else:
                    choice = {"index": 0, "message": delta, "finish_reason": finish}
                    self.wfile.write(json.dumps({"choices": [choice]}).encode())

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def delta(self, answer: Answer, leave_out: tuple[str, ...]) -> dict[str, Any]:
        if isinstance(answer, str):
            return {"role": "assistant", "content": answer}
        calls = []
        for index, (name, arguments) in enumerate(answer):
            call: dict[str, Any] = {"id": f"call-{len(self.bodies)}-{index}", "type": "function", "index": index}
            call["function"] = {"name": name, "arguments": json.dumps(arguments)}
            calls.append({key: value for key, value in call.items() if key not in leave_out})
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def chunks(self, delta: dict[str, Any], leave_out: tuple[str, ...], finish: str) -> bytes:
        delta = {key: value for key, value in delta.items() if key not in leave_out}
        frames = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
        if "finish" not in leave_out:
            frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        lines = [f"data: {json.dumps(each)}\n\n" for each in frames]
        return "".join([*lines, *([] if "done" in leave_out else ["data: [DONE]\n\n"])]).encode()


@contextmanager
def serving(odd: OddServer) -> Iterator[OddServer]:
    thread = threading.Thread(target=odd.http.serve_forever, daemon=True)
    thread.start()
    yield odd
    odd.http.shutdown()
    odd.http.server_close()
    thread.join(5)
    assert [problem for body in odd.bodies for problem in strict.check_chat(body)] == []


def results(body: dict[str, Any]) -> int:
    return sum(message["role"] == "tool" for message in body["messages"])


def planner(absolute: Path | None = None) -> Model:
    """Reads, writes the plan where some message names it, leaves."""

    def model(body: dict[str, Any]) -> Answer:
        text = "\n".join(content_text(message.get("content")) for message in body["messages"])
        found = re.search(r"[^\s`]*(?:plans/|docs/)[^\s`]+?\.md", text)
        assert found
        path = str(absolute / found[0]) if absolute is not None else found[0]
        match results(body):
            case 0:
                return [("read", {"filePath": "src/model.py"}), ("list", {})]
            case 2:
                return [("write", {"filePath": path, "content": PLAN})]
            case 3:
                return [("plan_exit", {})]
        return "Nothing more."

    return model


def builder(body: dict[str, Any]) -> Answer:
    match results(body):
        case 0:
            return [("read", {"filePath": "src/model.py"})]
        case 1:
            return [("edit", {"filePath": "src/model.py", "oldString": "(tp + fp)", "newString": "(tp + fn)"})]
    return "Done."


SHAPES: list[tuple[tuple[str, ...], str, bool]] = [
    ((), "stop", True),
    ((), "tool_calls", True),
    (("id", "type"), "stop", True),
    (("id", "index", "type", "role"), "tool_calls", True),
    (("done",), "stop", True),
    (("finish",), "stop", True),
    ((), "stop", False),
]


@pytest.mark.parametrize(("leave_out", "finish", "stream"), SHAPES)
def test_planned_approved_and_built(project: Project, leave_out: tuple[str, ...], finish: str, stream: bool) -> None:
    with serving(OddServer(planner(), leave_out, finish, stream)) as odd:
        project.environment["OPENAI_BASE_URL"] = odd.url
        ran = project.run("plan", "Why did recall drop? Plan the fix.")
    assert ran.status == 0, ran.err
    (plan,) = ran.of("plan")
    assert (plan["status"], ran.finish["reason"]) == ("awaiting", "awaiting")
    assert project.nbagent("approve", plan["path"]).status == 0
    with serving(OddServer(builder, leave_out, finish, stream)) as odd:
        project.environment["OPENAI_BASE_URL"] = odd.url
        ran = project.run("build", "", "--plan", plan["path"])
    assert ran.status == 0, ran.err
    assert "(tp + fn)" in project.read("src/model.py")
    assert [file["path"] for file in ran.of("receipt")[0]["files"]] == ["src/model.py"]


@pytest.mark.parametrize("git", [True, False])
@pytest.mark.parametrize("named", ["", "docs/p.md"])
def test_the_plan_is_written_by_its_absolute_path(tmp_path: Path, git: bool, named: str) -> None:
    project = Project(tmp_path, git=git)
    project.write("src/model.py", "x = 1\n")
    with serving(OddServer(planner(absolute=project.root))) as odd:
        project.environment["OPENAI_BASE_URL"] = odd.url
        ran = project.run("plan", "Plan it.", *(["--plan", named] if named else []))
        assert ran.of("plan", status="awaiting"), ran.out + ran.err
        (plan,) = ran.of("plan", status="awaiting")
        path = project.root / plan["path"]
        assert path.read_text() == PLAN
        assert plan["path"] == named or not named
        absolute = project.nbagent("approve", str(path))
    assert absolute.status == 0, absolute.err
    assert [row["status"] for row in json.loads(project.nbagent("plans", "--json").out)] == ["approved"]


def test_no_plan_by_another_name(project: Project) -> None:
    """A model that takes the plan's file for another is told where the plan is, and the run ends by itself."""

    def model(body: dict[str, Any]) -> Answer:
        return [("write", {"filePath": "plan.md", "content": PLAN})] if results(body) < 2 else "I could not write it."

    with serving(OddServer(model)) as odd:
        project.environment["OPENAI_BASE_URL"] = odd.url
        ran = project.run("plan", "Plan it.")
    told = ran.tool("write")
    assert ran.of("session")[0]["plan"] in told["error"]
    assert not (project.root / "plan.md").exists()
    assert (ran.status, ran.finish["reason"]) == (0, "stop")
