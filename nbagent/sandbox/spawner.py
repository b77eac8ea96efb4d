"""This side of the small process that starts commands (see ``supervisor.py``): start it once, talk to it, start it again when it died."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from nbagent.errors import ToolError
from nbagent.sandbox.wall import Launch

_SCRIPT = Path(__file__).with_name("supervisor.py")
_START_LIMIT = 20.0  # seconds for the helper process to say hello; a loaded machine is slow, a broken one never answers


class Spawner:
    """Starts commands for this process. One a process; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self.abi = 0

    @property
    def pid(self) -> int | None:
        """The process id of the spawner that runs now."""
        return self._process.pid if self._process else None

    def landlock(self) -> int:
        """The kernel's Landlock version, 0 for none. Raises ``ToolError`` when no spawner can be started."""
        with self._lock:
            self._connected()
        return self.abi

    def start(self, launch: Launch, timeout: float, output: int) -> socket.socket:
        """Start a command that writes to the descriptor ``output``; the control socket comes back. Raises ``ToolError``."""
        message = _request(launch, timeout)
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                self._send(message, [output, theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def close(self) -> None:
        """End the spawner; commands that still run are killed by their supervisors only when their control closes."""
        with self._lock:
            self._drop()

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        for attempt in (1, 2):
            sock = self._connected()
            try:
                sent = socket.send_fds(sock, [message], descriptors)
                sock.sendall(message[sent:])
                return
            except OSError as error:
                self._drop()
                if attempt == 2:
                    raise ToolError(f"No command can be started: {error}.") from error

    def _connected(self) -> socket.socket:
        if self._owner != os.getpid():  # a fork of the kernel must not talk through its parent's socket
            self._socket, self._process, self._owner = None, None, os.getpid()
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._drop()
        return self._launch()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        if self._process is not None:
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = [python(), "-I", "-S", "-E", "-B", "-X", "utf8", str(_SCRIPT), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
            )
        except OSError as error:
            ours.close()
            raise ToolError(f"No command can be started: {command[0]}: {error.strerror}.") from error
        finally:
            theirs.close()
        hello = read_line(ours, _START_LIMIT)
        if hello is None:
            self._process.kill()
            self._process.wait()
            ours.close()
            self._process = None
            raise ToolError(f"No command can be started: {command[0]} did not run {_SCRIPT.name}.")
        self.abi = int(hello["abi"])
        self._socket = ours
        return ours


def _request(launch: Launch, timeout: float) -> bytes:
    body = json.dumps(
        {
            "argv": launch.argv,
            "cwd": launch.cwd,
            "environment": launch.environment,
            "timeout": timeout,
            "confined": launch.confined,
            "files": launch.files,
            "handled": launch.handled,
            "restrict_flags": launch.restrict_flags,
            "filter": base64.b64encode(launch.filter).decode("ascii"),
            "filter_fd": launch.filter_fd,
            "asks": launch.asks,
        }
    ).encode("ascii")
    return struct.pack("=I", len(body)) + body


def python() -> str:
    """A Python that can run the script. An embedded interpreter has none of its own."""
    return sys.executable or getattr(sys, "_base_executable", "") or shutil.which("python3") or "python3"


def read_line(sock: socket.socket, seconds: float) -> dict[str, Any] | None:
    """One JSON line, None at the end or when nothing comes for ``seconds``."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    data = b""
    while not data.endswith(b"\n"):
        if not poll.poll(seconds * 1000):
            return None
        piece = sock.recv(1)
        if not piece:
            return None
        data += piece
    parsed: dict[str, Any] = json.loads(data)
    return parsed


SPAWNER = Spawner()
