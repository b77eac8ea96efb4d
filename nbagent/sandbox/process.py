"""Run one command: stream what it says, end it in time, leave nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nbagent.errors import ToolError
from nbagent.sandbox.spawner import SPAWNER, read_line
from nbagent.sandbox.transcript import Transcript
from nbagent.sandbox.wall import Confinement, Launch, Wall

OUTPUT_LIMIT = (
    100 * 1024 * 1024
)  # bytes of output after which a command is ended: nobody reads that, and it fills the disk
_INTERVAL = 0.05  # seconds between two pieces of live output
_PIECE = 16_384  # characters of live output at once; a view needs no more, the transcript has it all
_KILL_LIMIT = 3.0  # seconds that ending a tree may take
_START_LIMIT = 20.0  # seconds until a supervisor says that it runs
_SLACK = 5.0  # seconds past the time limit after which the supervisor is not believed any more


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. ``output``: what it said (kept end first, at most ``keep`` characters); ``whole``: a file with all of
    it when it was cut, else None; ``code``: exit status, negative for a signal, None when it was killed for time or for saying
    too much (``flooded``). ``size`` in bytes."""

    code: int | None
    output: str
    whole: Path | None
    timed_out: bool
    seconds: float
    lines: int = 0
    size: int = 0
    flooded: bool = False


class Child(Protocol):
    """A command that runs. ``read`` blocks for at most ``seconds``; b"" is the end of output, None that nothing came."""

    def read(self, seconds: float) -> bytes | None: ...

    def ended(self) -> bool: ...

    def end(self) -> None: ...

    def result(self) -> tuple[int | None, bool]: ...

    def close(self) -> None: ...


class SupervisedChild:
    """A command started by the spawner; its supervisor ends it, also when this process dies."""

    def __init__(self, launch: Launch, timeout: float) -> None:
        self._output, writer = os.pipe()
        try:
            self._control = _started(launch, timeout, writer)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(writer)
        self._report: dict[str, Any] | None = None
        self._over = False
        self._eof = False
        self._poll = select.poll()  # not select(): a busy kernel has more than 1,024 descriptors open
        self._poll.register(self._output, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)

    def read(self, seconds: float) -> bytes | None:
        if self._eof and self._over:
            return b""
        ready = {number for number, _ in self._poll.poll(seconds * 1000)}
        if self._control.fileno() in ready:
            self._listen()
        if self._output not in ready:
            return None
        data = os.read(self._output, 1 << 16)
        if not data:
            self._eof = True
            self._poll.unregister(self._output)
        return data

    def _listen(self) -> None:
        line = read_line(self._control, _SLACK)
        self._over = True
        self._report = line
        self._poll.unregister(self._control)

    def ended(self) -> bool:
        return self._over

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._control.send(b"k")

    def result(self) -> tuple[int | None, bool]:
        if self._report is None:
            raise ToolError("The command was lost: the process that watched over it has died. It may have run in part.")
        if "error" in self._report:
            raise ToolError(f"The command could not be started: {self._report['error']}")
        return self._report["code"], bool(self._report["timed_out"])

    def close(self) -> None:
        os.close(self._output)
        self._control.close()


def _started(launch: Launch, timeout: float, writer: int) -> socket.socket:
    """The control socket of a command that has started. A spawner may die with a request unread; then a new one gets it."""
    for _ in range(2):
        control = SPAWNER.start(launch, timeout, writer)
        if read_line(control, _START_LIMIT) is not None:
            return control
        control.close()
    raise ToolError("The command could not be started: the process that starts commands does not answer.")


class PlainChild:
    """A command started directly, where there is no spawner (Windows). No wall stands there."""

    def __init__(self, launch: Launch, timeout: float) -> None:
        flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
        try:
            self._process = subprocess.Popen(
                launch.argv,
                cwd=launch.cwd,
                env=launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=os.name != "nt",
                creationflags=flags if os.name == "nt" else 0,
                bufsize=0,
            )
        except OSError as error:
            raise ToolError(f"The command could not be started: {launch.argv[0]}: {error.strerror}.") from error
        self._deadline = time.monotonic() + timeout
        self._late = False
        self._pieces: list[bytes] = []
        self._news = threading.Condition()
        self._eof = False
        threading.Thread(target=self._pump, name="nbagent-output", daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while data := self._process.stdout.read(1 << 16):
                with self._news:
                    self._news.wait_for(lambda: len(self._pieces) < 64, timeout=60)
                    self._pieces.append(data)
                    self._news.notify_all()
        with self._news:
            self._eof = True
            self._news.notify_all()

    def read(self, seconds: float) -> bytes | None:
        if time.monotonic() > self._deadline and self._process.poll() is None:
            self._late = True
            self.end()
        with self._news:
            self._news.wait_for(lambda: self._pieces or self._eof, timeout=min(seconds, 0.1))
            if self._pieces:
                data = b"".join(self._pieces)
                self._pieces.clear()
                self._news.notify_all()
                return data
            return b"" if self._eof else None

    def ended(self) -> bool:
        if self._process.poll() is None:
            return False
        self.end()
        return True

    def end(self) -> None:
        if os.name == "nt":
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(self._process.pid)], capture_output=True, check=False)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()

    def result(self) -> tuple[int | None, bool]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_LIMIT)
        return (None if self._late else self._process.returncode), self._late

    def close(self) -> None:
        if self._eof and self._process.stdout is not None:
            self._process.stdout.close()


class _Run:
    """One command in a thread of its own, its news handed to the loop. Nothing here needs the loop's own subprocesses."""

    def __init__(
        self, launch: Callable[[], Launch], timeout: float, transcript: Transcript, say: Callable[[str], None]
    ) -> None:
        self._launch = launch
        self._timeout = timeout
        self._transcript = transcript
        self._say = say
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Outcome] = self._loop.create_future()
        self._cancelled = threading.Event()
        self._child: Child | None = None
        self._pending: list[str] = []
        self._said = 0.0

    def start(self) -> None:
        threading.Thread(target=self._work, name="nbagent-command", daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()
        if self._child is not None:
            self._child.end()

    def _post(self, function: Callable[..., object], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(function, *arguments)

    def _settle(self, outcome: Outcome | BaseException) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Outcome):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)

    def _work(self) -> None:
        try:
            outcome: Outcome | BaseException = self._run()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the command is awaited
            outcome = error
        self._post(self._settle, outcome)

    def _run(self) -> Outcome:
        launch = self._launch()
        began = time.monotonic()
        child: Child = (
            PlainChild(launch, self._timeout) if sys.platform == "win32" else SupervisedChild(launch, self._timeout)
        )
        self._child = child
        try:
            if self._cancelled.is_set():
                child.end()
            flooded, lost = self._follow(child, began + self._timeout + _SLACK)
            code, timed_out = (None, True) if lost else child.result()
        finally:
            self._flush(self._transcript.finish())
            child.close()
        transcript = self._transcript
        return Outcome(
            code=None if flooded else code,
            output=transcript.text(),
            whole=transcript.whole,
            timed_out=timed_out,
            seconds=time.monotonic() - began,
            lines=transcript.lines,
            size=transcript.size,
            flooded=flooded,
        )

    def _follow(self, child: Child, deadline: float) -> tuple[bool, bool]:
        """Read to the end: (it said too much, it could not be ended in time). Once the command has ended only what is there already
        is read."""
        flooded = lost = False
        while not child.ended():
            self._hear(child.read(_INTERVAL if self._pending else 1.0) or b"")
            if self._transcript.full and not flooded:
                flooded = True
                child.end()
            if time.monotonic() > deadline:
                child.end()
                lost = True
                break
        rest = time.monotonic() + 1.0
        while time.monotonic() < rest and (data := child.read(0.2)):
            self._hear(data)
        return flooded, lost

    def _hear(self, data: bytes) -> None:
        text = self._transcript.feed(data) if data and not self._transcript.full else ""
        if text:
            self._pending.append(text)
        if self._pending and time.monotonic() - self._said >= _INTERVAL:
            self._flush("")

    def _flush(self, rest: str) -> None:
        text = "".join(self._pending) + rest
        self._pending.clear()
        self._said = time.monotonic()
        if len(text) > _PIECE:
            text = "…\n" + text[-_PIECE:]
        if text:
            self._post(self._say, text)


async def run_command(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: dict[str, str],
    timeout: float,
    on_output: Callable[[str], None],
    spill: Path,
    keep: int = 50_000,
    wall: Wall | None = None,
    confinement: Confinement | None = None,
) -> Outcome:
    """Run a command in a session of its own with no standard input; behind ``wall`` when given (then ``confinement`` says what it
    may touch). Cancelling, a time-out (``timeout`` seconds) and the death of this process kill the whole tree; whatever the
    command leaves in the background is killed when it ends.

    ``on_output`` is called on the running loop, at most twenty times a second. ``spill``: the file that gets everything when it is
    more than ``keep`` characters. Raises ``ToolError`` when it cannot be started.
    """
    if (wall is None) != (confinement is None):
        raise ValueError("a wall needs a confinement, and a confinement a wall")

    def launch() -> Launch:
        if wall is not None and confinement is not None:
            return wall.launch(argv, cwd, environment, confinement)
        return Launch(argv=tuple(argv), cwd=str(cwd), environment=environment)

    run = _Run(launch, timeout, Transcript(spill, keep, OUTPUT_LIMIT), on_output)
    run.start()
    try:
        return await asyncio.shield(run.future)
    except asyncio.CancelledError:
        run.cancel()
        await asyncio.wait([run.future], timeout=_KILL_LIMIT)
        if run.future.done() and not run.future.cancelled():
            run.future.exception()  # looked at, so that nobody warns about it
        raise


def run_to_end(launch: Launch, timeout: float) -> tuple[int | None, str]:
    """Run something short and wait for it, blocking: (exit status, the first megabyte of output). Raises ``ToolError``."""
    child = SupervisedChild(launch, timeout)
    output = b""
    deadline = time.monotonic() + timeout + _SLACK
    try:
        while not child.ended() and time.monotonic() < deadline:
            output += (child.read(1.0) or b"")[: (1 << 20) - len(output)]
        while data := child.read(0.2):
            output += data[: (1 << 20) - len(output)]
        code, _ = child.result()
    finally:
        child.close()
    return code, output.decode("utf-8", "replace")
