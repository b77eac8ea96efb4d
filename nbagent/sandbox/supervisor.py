"""The small process that starts, confines, watches and ends commands. Run as a script, never imported by nbagent.

::

    kernel ── socket ──► spawner (one, single-threaded, holds no secret)
                            └── fork ──► supervisor (one a command, adopts whatever its command leaves behind)
                                            └── fork ──► the command, confined before it is executed

A fork of this process costs a fraction of a millisecond, a fork of a notebook's kernel many; and in a process with threads nothing may
safely run between fork and exec. A request is four bytes of length, JSON, and two descriptors: where output goes, and the control
socket. On the control socket the supervisor says ``{"pid"}``, at the end ``{"code", "timed_out"}`` or ``{"error"}``; a byte from the other
side, its end, or the end of the kernel means: kill everything.

Only the standard library, nothing that takes long to load, and all of it in one file: an isolated Python has no path to a second one.
"""

# ruff: noqa: PTH110, PTH123, PTH208, S605, S606

import base64
import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from typing import Any, NoReturn

LINUX = sys.platform == "linux"
TERM_GRACE = 0.3  # seconds between asking a process to end and ending it
STRAY_GRACE = 0.2  # seconds for what the command left behind to finish by itself
KILL_LIMIT = 2.0  # seconds of trying to kill before the answer goes back all the same
LAST_LIMIT = 60.0  # seconds of trying after that: on a busy machine what multiplies can outlast the first ones
BURIED_AT_ONCE = 512  # ended processes that are collected before anything else is looked at again
FILE_LIMIT = 1 << 30  # bytes a confined process may put into one file
PROCESS_LIMIT = 4096

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAP_DAC_READ_SEARCH = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
CAPSET, CAPGET, SECCOMP = (126, 125, 317) if os.uname().machine == "x86_64" else (91, 90, 277)
KILL, TKILL, TGKILL = (62, 200, 234) if os.uname().machine == "x86_64" else (129, 130, 131)
LISTEN, UNDISTURBED, NOTIFIED_RECEIVE, NOTIFIED_SEND = 1 << 3, 1 << 5, 0xC0502100, 0xC0182101
FILE_BITS = 0b1100_0000_0000_0111  # execute, write, read, truncate, device ioctl: all that a rule on a file may name
OWN_PID = 0x4E42_5049  # see seccomp.py
SIGNALS_INSIDE, SILENT_HERE = 0b10, 0b1  # a scope of Landlock; no audit lines for what this program itself is refused

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: Any, what: str) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), what)


def prctl(option: int, value: int = 0, third: Any = 0) -> int:
    return int(
        libc.prctl(option, ctypes.c_ulong(value), third or ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    )


# ---- confining oneself -------------------------------------------------------------------------------------------------------


def restrict_files(rules: list[tuple[str, int]], handled: tuple[int, int, int], flags: int) -> None:
    """Landlock: only what ``rules`` name, of what ``handled`` governs."""
    files, tcp, scopes = handled
    attribute = struct.pack("=QQQ", files, tcp, scopes)[: 24 if scopes else 16 if tcp else 8]
    ruleset = syscall(
        LANDLOCK_CREATE, attribute, ctypes.c_size_t(len(attribute)), ctypes.c_uint32(0), what="landlock ruleset"
    )
    for path, access in rules:
        add_rule(ruleset, path, access & files)
    syscall(LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(flags), what="landlock")
    os.close(ruleset)


def keep_signals_inside(request: dict[str, Any], outside: int) -> bool:
    """This process and all that descends from it can signal each other and nobody else. Its command is locked in once more, so that
    what this process can reach at one stroke is the command's whole tree, and the command reaches neither it nor others.

    False where the kernel cannot do that, or did not: a process that is ``outside`` and there can still be signalled.
    """
    if request["files"] is None or not request["handled"][2] & SIGNALS_INSIDE:
        return False
    try:
        checked(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
        restrict_files([], (0, 0, SIGNALS_INSIDE), SILENT_HERE if request["restrict_flags"] else 0)
    except OSError:  # the command's own walls fail as well then, and that is said
        return False
    try:
        os.kill(outside, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def add_rule(ruleset: int, path: str, access: int) -> None:
    """What has vanished meanwhile, or became a link, needs no rule: without one it cannot be touched."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        mode = os.fstat(place).st_mode
        access = access if stat.S_ISDIR(mode) else access & FILE_BITS
        if access and not stat.S_ISLNK(mode):
            rule = struct.pack("=Qi", access, place)
            syscall(
                LANDLOCK_ADD,
                ctypes.c_int(ruleset),
                ctypes.c_int(1),
                rule,
                ctypes.c_uint32(0),
                what=f"landlock rule for {path}",
            )
    finally:
        os.close(place)


def drop_privileges() -> None:
    """No capability is left, but that root goes on reading what it could read (files of others in a mounted project)."""
    if not LINUX:
        return
    header = struct.pack("=Ii", 0x20080522, 0)
    held = ctypes.create_string_buffer(24)
    syscall(CAPGET, header, held, what="capget")
    effective = struct.unpack("=6I", held.raw)[0]
    kept = (1 << CAP_DAC_READ_SEARCH) & effective if os.getuid() == 0 else 0
    if effective & (1 << 8):  # CAP_SETPCAP
        for capability in range(64):
            if not kept >> capability & 1 and prctl(PR_CAPBSET_DROP, capability) < 0:
                break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    syscall(CAPSET, header, struct.pack("=6I", kept, kept, 0, 0, 0, 0), what="capset")


def filter_calls(program: bytes, asks: bool) -> None:
    """Seccomp. Last, since it takes away what the other steps need. ``asks``: the supervisor gets the end at which the filter asks."""
    instructions = ctypes.create_string_buffer(own(program), len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    if not asks:
        syscall(SECCOMP, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_char_p(head), what="seccomp")
        return
    try:
        listener = syscall(
            SECCOMP, ctypes.c_uint(1), ctypes.c_uint(LISTEN | UNDISTURBED), ctypes.c_char_p(head), what="seccomp"
        )
    except OSError:  # before Linux 5.19 who asks can be interrupted while it waits for the answer
        listener = syscall(SECCOMP, ctypes.c_uint(1), ctypes.c_uint(LISTEN), ctypes.c_char_p(head), what="seccomp")
    with socket.socket(fileno=4) as supervisor:
        socket.send_fds(supervisor, [b"l"], [listener])
    os.close(listener)


def own(program: bytes) -> bytes:
    """The filter with this process's pid, and its group's negative, where they were left open."""
    pid = os.getpid()
    return program.replace(struct.pack("=I", OWN_PID), struct.pack("=I", pid)).replace(
        struct.pack("=I", OWN_PID ^ 0xFFFFFFFF), struct.pack("=i", -pid)
    )


def limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (wanted, wanted))


def set_limits(seconds: float) -> None:
    limit(resource.RLIMIT_CPU, int(seconds * (os.cpu_count() or 1)) + 5)
    limit(resource.RLIMIT_FSIZE, FILE_LIMIT)
    limit(resource.RLIMIT_NPROC, PROCESS_LIMIT)


def confine(request: dict[str, Any]) -> None:
    set_limits(request["timeout"])
    if request["files"] is not None:
        checked(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
        restrict_files(request["files"], tuple(request["handled"]), request["restrict_flags"])
        drop_privileges()
    program = base64.b64decode(request["filter"])
    if program and request["filter_fd"] < 0:
        filter_calls(program, request["asks"])


# ---- the command -------------------------------------------------------------------------------------------------------------


def become(request: dict[str, Any], output: int, status: int, channel: int, supervisor: int) -> NoReturn:
    """Turn this process into the command. What goes wrong is told through ``status``, which closes when it went well."""
    try:
        os.setsid()
        arrange(output, status, channel)
        if LINUX:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(1)
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGCHLD,
            signal.SIGPIPE,
            signal.SIGXFSZ,
            signal.SIGHUP,
            signal.SIGQUIT,
        ):
            signal.signal(number, signal.SIG_DFL)
        limit(resource.RLIMIT_CORE, 0)
        os.chdir(request["cwd"])
        hand_filter(request)
        if request["confined"]:
            confine(request)
        os.execvpe(request["argv"][0], request["argv"], request["environment"])
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not live on as a second supervisor
        os.write(3, str(error).encode("utf-8", "replace")[:2000])
    finally:
        os._exit(126)


def arrange(output: int, status: int, channel: int) -> None:
    """0 is nothing, 1 and 2 are the output; until exec 3 is the status and 4 leads to the supervisor. No other descriptor is left, so
    none can be written to."""
    high = [move_up(number) for number in (os.open(os.devnull, os.O_RDWR), output, status, channel)]
    os.dup2(high[0], 0)
    os.dup2(high[1], 1)
    os.dup2(high[1], 2)
    os.dup2(high[2], 3, inheritable=False)
    os.dup2(high[3], 4, inheritable=False)
    os.closerange(5, resource_limit())


def move_up(number: int) -> int:
    return fcntl.fcntl(number, fcntl.F_DUPFD, 64)


def resource_limit() -> int:
    return 1 << 20 if LINUX else min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)


def hand_filter(request: dict[str, Any]) -> None:
    wanted = request["filter_fd"]
    if wanted < 0:
        return
    made = os.memfd_create("filter")
    with os.fdopen(made, "wb", closefd=False) as file:
        file.write(base64.b64decode(request["filter"]))
    os.lseek(made, 0, os.SEEK_SET)
    os.dup2(made, wanted)
    os.close(made)


# ---- watching one command ------------------------------------------------------------------------------------------------------


class Watch:
    """One command and everything that descends from it."""

    def __init__(self, control: socket.socket, kernel: int, parent: int, locked: bool) -> None:
        self.control = control
        self.kernel = kernel
        self.parent = parent
        self.locked = locked  # what can be signalled from here is the command's tree and nothing else
        self.command = 0
        self.code: int | None = None
        self.listener = -1  # where the filter asks about signals
        self.unheard: dict[tuple[int, ...], int] = {}  # answers that came too late for an interrupted question
        self.wakeup, self.waker = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(self.waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)

    def say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")

    def reap(self) -> bool:
        """Collect what has ended; whether anything is left. Some at a time: what ends as fast as it is collected would never let the time
        limit be seen."""
        for _ in range(BURIED_AT_ONCE):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command:
                self.code = os.waitstatus_to_exitcode(status)
        wake(self.waker)
        return True

    def poll(self, *more: int) -> select.poll:
        poll = select.poll()
        for number in (self.control.fileno(), self.wakeup, self.kernel, self.listener, *more):
            if number >= 0:
                poll.register(number, select.POLLIN)
        return poll

    def told_to_end(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a child's end; True when the other side wants an end or is gone."""
        events = dict(self.poll().poll(max(0.0, seconds) * 1000))
        if self.listener in events:
            self.answer(events.pop(self.listener))
        ready = set(events)
        if self.wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wakeup, 4096)
        return bool(ready - {self.wakeup}) or (self.kernel < 0 and os.getppid() != self.parent)

    def starting(self, status: int) -> bytes | None:
        """What went wrong before the program was executed, b"" when nothing did, None when it is to end already."""
        while True:
            ready = {number for number, _ in self.poll(status).poll(1000)}
            if status in ready:
                return os.read(status, 4096)
            if self.told_to_end(0):
                return None

    def answer(self, event: int) -> None:
        """The filter asks about a signal. It is sent from here when it stays inside."""
        if not event & select.POLLIN:
            os.close(self.listener)  # nobody is left who could ask
            self.listener = -1
            return
        asked = bytearray(80)
        with contextlib.suppress(OSError):  # the asking process may be gone
            fcntl.ioctl(self.listener, NOTIFIED_RECEIVE, asked)
            ident, *question = struct.unpack("=QIIiIQ6Q", asked)
            self.reply(ident, tuple(question))

    def reply(self, ident: int, question: tuple[int, ...]) -> None:
        """Answer one question. Who asks may be interrupted (by the very death it asked for) and then asks again: that gets the same answer
        and no second signal."""
        error = self.unheard.pop(question, None)
        if error is None:
            error = signal_inside(question[2], [ctypes.c_int(each & 0xFFFFFFFF).value for each in question[5:]])
        try:
            fcntl.ioctl(self.listener, NOTIFIED_SEND, bytearray(struct.pack("=QqiI", ident, 0, -error, 0)))
        except OSError:
            self.unheard = {question: error}

    def wait(self, seconds: float) -> str:
        """``done``, ``late`` or ``ended``."""
        deadline = time.monotonic() + seconds
        while True:
            self.reap()
            if self.code is not None:
                return "done"
            left = deadline - time.monotonic()
            if left <= 0:
                return "late"
            if self.told_to_end(min(left, 1.0 if self.kernel < 0 else 3600.0)):
                return "ended"

    def drain(self, seconds: float) -> bool:
        """Let what is left finish by itself; whether anything still runs."""
        deadline = time.monotonic() + seconds
        while self.reap():
            left = deadline - time.monotonic()
            if left <= 0 or self.told_to_end(left):
                return True
        return False

    def kill(self) -> None:
        """End the whole tree: ask, then kill. At one stroke where that reaches nobody else; elsewhere everything is stopped first, so that
        it cannot multiply."""
        with contextlib.suppress(OSError):  # what multiplies must not win by the number of its turns
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        for pid in descendants():
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)
        deadline = time.monotonic() + TERM_GRACE
        while self.reap() and time.monotonic() < deadline:
            self.pause()
        self.kill_all(KILL_LIMIT)

    def kill_all(self, seconds: float) -> None:
        """Kill what is there, and what comes meanwhile, until nothing is left or the time is up."""
        deadline = time.monotonic() + seconds
        while self.reap() and time.monotonic() < deadline:
            if self.locked:
                send(-1, signal.SIGKILL)
            else:
                stop_all()
                for pid in descendants():
                    send(pid, signal.SIGKILL)
            self.pause()

    def pause(self) -> None:
        ready, _, _ = select.select([self.wakeup], [], [], 0.02)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wakeup, 4096)


def wake(waker: int) -> None:
    """There is more to be done than was done: look again at once."""
    with contextlib.suppress(BlockingIOError):
        os.write(waker, b"\0")


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_inside(call: int, arguments: list[int]) -> int:
    """Send a signal to what descends from here; the error number when it is not that."""
    target, number = (arguments[0], arguments[2]) if call == TGKILL else (arguments[0], arguments[1])
    inside = set(descendants())
    targets = [pid for pid in inside if pid == target or (call == KILL and target < -1 and group(pid) == -target)]
    if not targets:
        return errno.ESRCH if target > 0 and not os.path.exists(f"/proc/{target}") else errno.EPERM
    try:
        for pid in targets:
            if call == TGKILL:
                checked(libc.tgkill(pid, arguments[1], number), "tgkill")
            else:
                send_surely(pid, number)
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def send_surely(pid: int, number: int) -> None:
    """Signal a descendant, and not whoever got its number meanwhile."""
    handle = os.pidfd_open(pid)
    try:
        if pid in descendants():
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def group(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return 0


def stop_all() -> None:
    """A process that is stopped cannot fork; three looks catch what was born during the first two."""
    stopped: set[int] = set()
    for _ in range(3):
        new = set(descendants()) - stopped
        if not new:
            return
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new


def parents() -> dict[int, int]:
    """pid → parent, of every process."""
    if not LINUX:
        return parents_by_ps()
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def parents_by_ps() -> dict[int, int]:
    with os.popen("/bin/ps -A -o pid=,ppid=") as lines:
        return {int(pid): int(parent) for pid, parent in (line.split() for line in lines)}


def descendants() -> list[int]:
    """Everything below this process. What left its group or session is still below: a supervisor adopts orphans."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = list(children.get(os.getpid(), ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


def supervise(request: dict[str, Any], output: int, control: socket.socket, kernel: int, parent: int) -> None:
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    watch = Watch(control, kernel, parent, keep_signals_inside(request, parent))
    status, teller = os.pipe()
    ours, channel = socket.socketpair()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(request, output, teller, channel.detach(), me)
    watch.command = pid
    os.close(teller)
    channel.close()
    os.close(output)
    watch.say(pid=pid)
    trouble = watch.starting(status)
    if trouble is None:
        watch.kill()
        watch.say(code=None, timed_out=False)
        watch.kill_all(LAST_LIMIT)
        return
    if trouble:
        watch.drain(1.0)
        watch.say(error=trouble.decode("utf-8", "replace"))
        return
    if request["asks"]:
        watch.listener = socket.recv_fds(ours, 1, 1)[1][0]
    end = watch.wait(request["timeout"])
    if end != "done" or watch.drain(STRAY_GRACE):
        watch.kill()
    watch.say(code=None if end == "late" else watch.code, timed_out=end == "late")
    watch.kill_all(LAST_LIMIT)  # nobody waits for that


# ---- the spawner -------------------------------------------------------------------------------------------------------------


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One request, or None at the end."""
    head, numbers, _, _ = socket.recv_fds(sock, 4, 2)
    for number in numbers:
        os.set_inheritable(number, False)
    while head and len(head) < 4:
        head += sock.recv(4 - len(head))
    if not head:
        return None
    (left,) = struct.unpack("=I", head)
    pieces = []
    while left:
        piece = sock.recv(min(left, 1 << 16))
        if not piece:
            return None
        pieces.append(piece)
        left -= len(piece)
    return json.loads(b"".join(pieces)), numbers


def serve(sock: socket.socket, kernel: int, parent: int) -> None:
    wakeup, writer = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watched = [sock.fileno(), wakeup] + ([kernel] if kernel >= 0 else [])
    supervisors: set[int] = set()
    while True:
        ready, _, _ = select.select(watched, [], [], None if kernel >= 0 else 1.0)
        if kernel in ready or (kernel < 0 and os.getppid() != parent):
            return
        if wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 4096)
            collect(supervisors, writer)
        if sock.fileno() in ready:
            received = receive(sock)
            if received is None:
                return
            start(received, sock, kernel, supervisors)


def start(received: tuple[dict[str, Any], list[int]], sock: socket.socket, kernel: int, supervisors: set[int]) -> None:
    request, (output, control) = received
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            sock.close()
            supervise(request, output, socket.socket(fileno=control), kernel, me)
        finally:
            os._exit(0)
    supervisors.add(pid)
    os.close(output)
    os.close(control)


def collect(supervisors: set[int], waker: int) -> None:
    """Bury ended supervisors. One that was killed left its command to us: end that too, and whatever that leaves."""
    orphaned = False
    with contextlib.suppress(ChildProcessError):
        for _ in range(BURIED_AT_ONCE):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            orphaned |= pid not in supervisors or os.waitstatus_to_exitcode(status) < 0
            supervisors.discard(pid)
        else:
            wake(waker)
    if orphaned:
        me = os.getpid()
        for pid, parent in parents().items():
            if parent == me and pid not in supervisors:
                send(pid, signal.SIGKILL)


def abi() -> int:
    """The kernel's Landlock version; 0 when there is none."""
    if not LINUX:
        return 0
    return max(0, int(libc.syscall(ctypes.c_long(LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def main() -> None:
    parent = int(sys.argv[1])
    sock = socket.socket(fileno=move_up(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    kernel = -1
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            kernel = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    gc.disable()
    sock.sendall(json.dumps({"abi": abi()}).encode() + b"\n")
    serve(sock, kernel, parent)


if __name__ == "__main__":
    main()
