"""A real kernel and a front end that is played: messages as JupyterLab sends them, record folded as a page folds it."""

from __future__ import annotations

import copy
import queue
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

Message = dict[str, Any]
RECORD = "application/vnd.nbagent.record+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass
class Done:
    """A cell that has run. ``outputs``: as a front end has them in the end (display ids applied)."""

    reply: Message
    outputs: list[Message]
    messages: list[Message]
    prompts: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def record(self) -> dict[str, Any]:
        (found,) = [o["data"][RECORD] for o in self.outputs if RECORD in o.get("data", {})]
        return dict(found)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.record["items"] if item["kind"] == kind]

    @property
    def text(self) -> str:
        """Streams, plain text of displays, errors."""
        parts = []
        for output in self.outputs:
            parts.append(
                output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output.get("traceback", []))
            )
        return "\n".join(parts)

    @property
    def status(self) -> str:
        return str(self.reply["content"]["status"])

    def count(self, kind: str) -> int:
        return sum(message["msg_type"] == kind for message in self.messages)


class Page:
    """What the browser has of one live widget, and how it answers. ``subshell``: answers travel over that subshell."""

    def __init__(self, kernel: Kernel, comm_id: str, record: dict[str, Any]) -> None:
        self.kernel = kernel
        self.comm_id = comm_id
        self.record = copy.deepcopy(record)
        self.got: list[dict[str, Any]] = []
        self.closed = False

    def send(self, **content: Any) -> None:
        self.kernel.send_comm(self.comm_id, {"method": "custom", "content": content})

    def take(self, data: dict[str, Any]) -> None:
        if data["method"] == "update" and "record" in data["state"]:
            self.record = copy.deepcopy(data["state"]["record"])
        if data["method"] != "custom":
            return
        content = data["content"]
        self.got.append(content)
        if content["kind"] == "patch":
            fold(self.record, content)

    @property
    def open(self) -> list[dict[str, Any]]:
        """Items that wait for the person."""
        waits = {"ask": ("reply", ""), "question": ("status", "open"), "review": ("status", "awaiting")}
        return [i for i in self.record["items"] if i["kind"] in waits and i[waits[i["kind"]][0]] == waits[i["kind"]][1]]


def fold(record: dict[str, Any], patch: dict[str, Any]) -> None:
    """What a page does with a patch."""
    record["head"].update(patch.get("head", {}))
    record["state"] = patch.get("state", record["state"])
    record["receipt"] = patch.get("receipt", record["receipt"])
    places = {item["id"]: index for index, item in enumerate(record["items"])}
    for item in patch.get("items", []):
        if item["id"] in places:
            record["items"][places[item["id"]]] = item
        else:
            places[item["id"]] = len(record["items"])
            record["items"].append(item)
    for name, more in patch.get("append", {}).items():
        record["items"][places[name]][more["field"]] += more["text"]


Person = Callable[[Page], None]


class Kernel:
    """Started in ``folder``; ``close`` it."""

    def __init__(self, folder: Path, environment: dict[str, str], kernel_name: str = "python3") -> None:
        # Sockets in a folder of its own: free ports, once chosen, can be taken by a kernel that starts beside this one.
        self.sockets = tempfile.mkdtemp(prefix="nbk-")
        self.manager = KernelManager(kernel_name=kernel_name, transport="ipc", ip=f"{self.sockets}/k")
        ipython = folder.parent / "ipython"
        self.manager.start_kernel(
            cwd=str(folder),
            env={**environment, "IPYTHONDIR": str(ipython), "JUPYTER_RUNTIME_DIR": str(folder.parent / "runtime")},
        )
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.pages: dict[str, Page] = {}
        self.subshell: str | None = None

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def send_comm(self, comm_id: str, data: dict[str, Any]) -> None:
        message = self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        if self.subshell:
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)

    def make_subshell(self) -> str:
        """As a page does before it opens a comm."""
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        reply = self.client.control_channel.get_msg(timeout=10)
        self.subshell = reply["content"]["subshell_id"]
        return str(self.subshell)

    def start(self, code: str, *, stdin: bool = True, cell: str = "", stop_on_error: bool = True) -> str:
        """Send a cell; its message id."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": stdin,
            "stop_on_error": stop_on_error,
        }
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell} if cell else {})
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(
        self,
        code: str,
        *,
        person: Person | None = None,
        typed: list[str] | None = None,
        seconds: float = 30,
        **more: Any,
    ) -> Done:
        """Run a cell to its end. ``person`` is called at every message while a widget is there; ``typed`` answers prompts."""
        return self.finish(self.start(code, **more), person=person, typed=typed, seconds=seconds)

    def finish(
        self,
        msg_id: str,
        *,
        person: Person | None = None,
        typed: list[str] | None = None,
        seconds: float = 30,
        on_prompt: Callable[[str], None] | None = None,
    ) -> Done:
        begin = time.monotonic()
        messages: list[Message] = []
        prompts: list[str] = []
        answers = list(typed or [])
        outputs = Outputs()
        idle = False
        while not idle:
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"the cell did not end in {seconds} s\n{outputs.items}")
            try:
                message = self.client.get_iopub_msg(timeout=0.05)
            except queue.Empty:
                message = None
            if message is not None:
                self._comms(message)
                if message["parent_header"].get("msg_id") == msg_id:
                    messages.append(message)
                    outputs.take(message)
                    idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            if person is not None:
                for page in list(self.pages.values()):
                    if not page.closed:
                        person(page)
            self._prompts(prompts, answers, on_prompt)
        while True:
            reply = self.client.get_shell_msg(timeout=10)
            if reply["parent_header"].get("msg_id") == msg_id:
                break
        return Done(reply, outputs.items, messages, prompts, time.monotonic() - begin)

    def _prompts(self, prompts: list[str], answers: list[str], on_prompt: Callable[[str], None] | None) -> None:
        try:
            request = self.client.get_stdin_msg(timeout=0)
        except queue.Empty:
            return
        prompts.append(request["content"]["prompt"])
        if on_prompt is not None:
            on_prompt(prompts[-1])
        elif answers:
            self.client.input(answers.pop(0))
        else:
            raise AssertionError(f"nobody expected a prompt: {prompts[-1]}")

    def _comms(self, message: Message) -> None:
        content = message["content"]
        if message["msg_type"] == "comm_open" and "record" in content["data"].get("state", {}):
            self.pages[content["comm_id"]] = Page(self, content["comm_id"], content["data"]["state"]["record"])
        elif message["msg_type"] == "comm_msg" and content["comm_id"] in self.pages:
            self.pages[content["comm_id"]].take(content["data"])
        elif message["msg_type"] == "comm_close" and content["comm_id"] in self.pages:
            self.pages[content["comm_id"]].closed = True

    def use(self, url: str) -> None:
        """Talk to this model server from the next cell on."""
        self.value("None", f"__import__('os').environ['OPENAI_BASE_URL'] = {url!r}")

    def value(self, expression: str, code: str = "") -> str:
        """``repr`` of an expression, looked at without leaving a trace."""
        message = self.client.session.msg(
            "execute_request",
            {
                "code": code,
                "silent": True,
                "store_history": False,
                "user_expressions": {"x": expression},
                "allow_stdin": False,
                "stop_on_error": False,
            },
        )
        self.client.shell_channel.send(message)
        while True:
            reply = self.client.get_shell_msg(timeout=10)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                found = reply["content"]["user_expressions"]["x"]
                return str(found.get("data", {}).get("text/plain", found))


class Outputs:
    """A cell's outputs as a front end keeps them."""

    def __init__(self) -> None:
        self.items: list[Message] = []
        self._by_id: dict[str, Message] = {}

    def take(self, message: Message) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind in ("display_data", "execute_result"):
            item = {"output_type": kind, "data": content["data"]}
            self.items.append(item)
            name = content.get("transient", {}).get("display_id")
            if name:
                self._by_id[name] = item
        elif kind == "update_display_data":
            item = self._by_id.get(content["transient"]["display_id"], {})
            item["data"] = content["data"]
        elif kind == "stream":
            self.items.append({"output_type": kind, "name": content["name"], "text": content["text"]})
        elif kind == "error":
            self.items.append({"output_type": kind, **content})
        elif kind == "clear_output":
            self.items.clear()


class Clicker:
    """A person who answers what opens: ``asks`` and ``reviews`` give the message for an item. Says that it lives."""

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        review: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        question: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._answers = {"ask": ask, "review": review, "question": question}
        self.answered: list[str] = []
        self.seen: list[dict[str, Any]] = []

    def __call__(self, page: Page) -> None:
        for item in page.open:
            if item["id"] in self.answered:
                continue
            self.answered.append(item["id"])
            self.seen.append(copy.deepcopy(item))
            page.send(kind="alive", seq=len(self.answered))
            answer = self._answers[item["kind"]]
            if answer is not None:
                page.send(**answer(item))


def once(item: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "reply", "id": item["id"], "answer": "once", "feedback": "", "remember": None, "save": False}


def reject(feedback: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda item: {**once(item), "answer": "reject", "feedback": feedback}


def verdict(action: str, text: str | None = None, comment: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda item: {
        "kind": "verdict",
        "id": item["id"],
        "hash": item["hash"],
        "action": action,
        "text": item["text"] if text is None else text,
        "comment": comment,
    }
