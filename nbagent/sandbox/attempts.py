"""What a hostile command would try first. Run as a script behind a wall, never imported by nbagent: one JSON line an attempt.

An attempt that raises ``OSError`` was refused; one that returns got through, and what it returns says how. The last ones must get through.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH123, PTH202, PTH211, S103

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable

plan = json.loads(sys.argv[1])
PROJECT, OUTSIDE, HOME, TEMP, SECRET = (plan[name] for name in ("project", "outside", "home", "temp", "secret"))
VICTIM = PROJECT + "/victim.txt"
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> str:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "got through"


def write(path: str) -> str:
    with open(path, "w") as file:
        file.write("written from behind the wall")
    return f"wrote {path}"


def through_link() -> str:
    os.symlink(VICTIM, TEMP + "/link")
    return write(TEMP + "/link")


def through_handle() -> str:
    opened = os.open(VICTIM, os.O_RDONLY)
    return write(f"/proc/self/fd/{opened}")


def hard_link() -> str:
    os.link(VICTIM, TEMP + "/hard")
    return write(TEMP + "/hard")


def change_mode_by_handle() -> str:
    os.fchmod(os.open(VICTIM, os.O_RDONLY), 0o777)
    return "mode changed"


def shared_memory() -> str:
    opened = os.open(VICTIM, os.O_RDONLY)
    mmap.mmap(opened, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)[0:1] = b"X"
    return "written through memory"


def cut_for_reading() -> str:
    os.close(os.open(VICTIM, os.O_RDONLY | os.O_TRUNC))
    if os.path.getsize(VICTIM):
        raise OSError("nothing was cut")
    return "cut"


def connect(family: int, kind: int, address: tuple[str, int] | str) -> str:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
    return f"connected to {address!r}"


def listen() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
    return "bound a port"


def send_datagram() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))
    return "sent"


def read(path: str) -> str:
    with open(path) as file:
        return f"read {len(file.read())} characters of {path}"


def steer() -> str:
    import resource

    limits = resource.prlimit(plan["pid"], resource.RLIMIT_CORE)
    resource.prlimit(plan["pid"], resource.RLIMIT_CORE, limits)
    return "set a limit of another process"


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("write a file of the project", lambda: write(VICTIM)),
    ("make a file in the project", lambda: write(PROJECT + "/new.txt")),
    ("make a folder in the project", lambda: os.mkdir(PROJECT + "/folder")),
    ("write into the home folder", lambda: write(HOME + "/" + plan["mark"])),
    ("write elsewhere in the temporary folder", lambda: write(OUTSIDE + "/new.txt")),
    ("write through a symbolic link", through_link),
    ("write through a handle for reading", through_handle),
    ("write through a hard link", hard_link),
    ("rename a file of the project", lambda: os.rename(VICTIM, TEMP + "/moved")),
    ("delete a file of the project", lambda: os.unlink(VICTIM)),
    ("change a file's mode", lambda: os.chmod(VICTIM, 0o777)),
    ("change a file's mode through a handle", change_mode_by_handle),
    ("change a file's times", lambda: os.utime(VICTIM, (1, 1))),
    ("cut a file", lambda: os.truncate(VICTIM, 0)),
    ("cut a file by opening it", cut_for_reading),
    ("write through shared memory", shared_memory),
    ("signal the notebook's kernel", lambda: os.kill(plan["pid"], 0)),
    ("trace the notebook's kernel", lambda: checked(libc.ptrace(0x4206, plan["pid"], 0, 0))),
    ("steer the notebook's kernel", steer),
    ("read the kernel's environment", lambda: read(f"/proc/{plan['pid']}/environ")),
    ("connect over TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", plan["port"]))),
    ("listen on TCP", listen),
    ("send over UDP", send_datagram),
    ("connect to a socket in the file system", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, plan["socket"])),
    ("connect to an abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + plan["abstract"])),
    ("read a hidden file of the project", lambda: read(SECRET)),
    ("read a file outside the project", lambda: read(OUTSIDE + "/key")),
]
ALLOWED: list[tuple[str, Callable[[], object]]] = [
    ("read the project", lambda: read(VICTIM)),
    ("write into its own folder", lambda: write(TEMP + "/own.txt")),
    ("signal itself", lambda: os.kill(os.getpid(), signal.SIGCONT)),
]


def attempt(name: str, action: Callable[[], object], expected: bool) -> None:
    try:
        done, detail = True, str(action() or "done")
    except (OSError, AttributeError, ValueError) as error:
        done, detail = False, f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
    if name == "send over UDP" and done:
        detail += " (nobody listens, but it left)"
    print(json.dumps([name, done == expected, detail]), flush=True)


if hasattr(os, "setxattr"):
    REFUSED.insert(13, ("set an attribute of a file", lambda: os.setxattr(VICTIM, "user.wall", b"x")))
for each, act in REFUSED:
    attempt(each, act, False)
for each, act in ALLOWED:
    attempt(each, act, True)
