"""Runs behind a wall: makes every attempt of a file, each in a process of its own, and prints what came of it as JSON lines."""

# ruff: noqa: F401, E741 - the attempts use these names

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import re
import struct
import subprocess
import sys

plan = json.loads(sys.argv[1])
P, H, O, T = plan["project"], plan["home"], plan["outside"], plan["temp"]
PID, KERNEL, PORT = plan["pid"], plan["kernel"], plan["port"]
SOCK, DGRAM, ABSTRACT, NR = plan["socket"], plan["datagram"], plan["abstract"], plan["numbers"]
X86 = platform.machine() == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)
OWN: set[int] = set()


def ok(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def sc(number: int, *arguments: object) -> int:
    sent = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return ok(libc.syscall(ctypes.c_long(number), *sent))


def stop() -> None:
    raise OSError("it does not apply here")


def put(path: str, text: str) -> None:
    opened = os.open(path, os.O_WRONLY)
    os.write(opened, text.encode())


def leak(text: str) -> None:
    os.write(1, ("LEAK " + text).encode("utf-8", "replace")[:500])


def alive(number: int) -> bool:
    if number in OWN:
        return False
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False


def assert_changed(path: str) -> None:
    if os.path.getsize(path):
        raise OSError("nothing has changed")


def in_python(code: str) -> tuple[bool, str]:
    """Whether it was refused, and what it said."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        OWN.update((reader, writer))
        os.dup2(writer, 1)
        try:
            exec(compile(code, "attempt", "exec"), globals())
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:300])
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read(1000).decode("utf-8", "replace")
    return os.waitpid(pid, 0)[1] != 0, text


def in_shell(code: str) -> tuple[bool, str]:
    names = {"P": P, "H": H, "O": O, "PID": str(PID), "KERNEL": str(KERNEL), "PORT": str(PORT)}
    try:
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", code],
            env=os.environ | names,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
        )
    except subprocess.TimeoutExpired as late:
        return False, "TIMEOUT " + (late.output or b"").decode("utf-8", "replace")[-200:]
    text = done.stdout.decode("utf-8", "replace")
    return done.returncode != 0, "\n".join(re.findall(r"CANARY-\w+", text)) + text[-200:]


with open(plan["attempts"]) as file:
    for line in file:
        each = json.loads(line)
        kind = "python" if "python" in each else "shell"
        if each.get("machine", platform.machine()) != platform.machine() or kind not in plan["kinds"]:
            continue
        refused, said = in_python(each["python"]) if kind == "python" else in_shell(each["shell"])
        print(json.dumps([each["name"], refused, said]), flush=True)
