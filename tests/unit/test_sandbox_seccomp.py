"""The call filter, run by a small interpreter: what it lets through, what it refuses, on both machines."""

from __future__ import annotations

import errno
import struct

import pytest

from nbagent.sandbox import seccomp
from nbagent.sandbox.syscalls import LAST_REVIEWED, Machine, machine

X86, ARM = machine("x86_64"), machine("aarch64")
assert X86 is not None
assert ARM is not None
MACHINES = [X86, ARM]
ALLOW, KILL, ASK = "allow", "kill", "ask"
EPERM, ENOSYS, ENOTTY, EINVAL = errno.EPERM, errno.ENOSYS, errno.ENOTTY, errno.EINVAL
MINUS = (1 << 64) - 100  # AT_FDCWD as the kernel sees it


def run(program: bytes, audit: int, number: int, arguments: tuple[int, ...] = ()) -> str | int:
    """What the kernel would answer: allow, kill, or an error number."""
    padded = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("<iIQ6Q", number, audit, 0, *(each & (1 << 64) - 1 for each in padded))
    steps = list(struct.iter_unpack("<HBBI", program))
    register = at = 0
    for _ in range(len(steps)):
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            (register,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            register &= value
        elif code == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: KILL, 0x7FC00000: ASK}.get(value, value & 0xFFFF)
        else:
            held = {0x15: register == value, 0x25: register > value, 0x45: bool(register & value)}[code]
            at += yes if held else no
    raise AssertionError("the program ends nowhere")


def answer(
    table: Machine, call: str, *arguments: int, signals: bool = True, metadata: bool = True, truncate: bool = True
) -> str | int:
    number = table.number(call)
    assert number is not None
    program = seccomp.program(table, signals=signals, metadata=metadata, truncate=truncate)
    return run(program, table.audit, number, arguments)


CASES: list[tuple[str, tuple[int, ...], str | int]] = [
    ("socket", (1, 1, 0), EPERM),
    ("socket", (2, 1, 0), EPERM),
    ("connect", (3,), EPERM),
    ("socketpair", (1, 1, 0), ALLOW),
    ("socketpair", (1, 1 | 0o2004000, 0), ALLOW),
    ("socketpair", (1, 5, 0), ALLOW),
    ("socketpair", (1, 2, 0), EPERM),
    ("socketpair", (2, 1, 0), EPERM),
    ("ptrace", (16, 1), EPERM),
    ("unshare", (0,), EPERM),
    ("clone", (17,), ALLOW),
    ("clone", (0x3D0F00,), ALLOW),
    ("clone", (0x10000000 | 17,), EPERM),
    ("clone", (0x00020000 | 17,), EPERM),
    ("clone3", (0, 88), ENOSYS),
    ("io_uring_setup", (4, 0), ENOSYS),
    ("openat2", (3, 0, 0, 24), ENOSYS),
    ("openat", (MINUS, 1, 0o1101, 0o644), ALLOW),
    ("openat", (MINUS, 1, 0, 0o7777), ALLOW),
    ("openat", (MINUS, 1, 0o1000, 0), EPERM),
    ("openat", (MINUS, 1, 0o1002, 0), ALLOW),
    ("openat", (MINUS, 1, 0o101, 0o4755), EPERM),
    ("openat", (MINUS, 1, 0o20200000 | 2, 0o2600), EPERM),
    ("mkdirat", (MINUS, 1, 0o755), ALLOW),
    ("mkdirat", (MINUS, 1, 0o2755), EPERM),
    ("mknodat", (MINUS, 1, 0o104755, 0), EPERM),
    ("fchmod", (3, 0o644), EPERM),
    ("fchmodat", (MINUS, 1, 0o644), EPERM),
    ("fchmodat2", (MINUS, 1, 0o644, 0), EPERM),
    ("utimensat", (MINUS, 1, 0, 0), EPERM),
    ("fsetxattr", (3,), EPERM),
    ("truncate", (1, 0), EPERM),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), ENOTTY),
    ("ioctl", (3, 0x40086602), ENOTTY),
    ("ioctl", (3, 0x5000940E), ENOTTY),
    ("ioctl", (3, 0x5401 | 1 << 32), ALLOW),  # the kernel looks at the lower half only, and so does the filter
    ("fcntl", (3, 1030, 3), ALLOW),
    ("fcntl", (3, 8, 1), EINVAL),
    ("fcntl", (3, 15, 1), EINVAL),
    ("fcntl", (3, 1024, 0), EINVAL),
    ("prlimit64", (0, 7, 5, 0), ALLOW),
    ("prlimit64", (77, 7, 0, 5), ALLOW),
    ("prlimit64", (77, 7, 5, 0), EPERM),
    ("prlimit64", (77, 7, 1 << 40, 0), EPERM),
    ("setpriority", (0, 0, 5), ALLOW),
    ("setpriority", (0, 77, 5), EPERM),
    ("setpriority", (2, 0, 5), EPERM),
    ("ioprio_set", (1, 0, 0), ALLOW),
    ("ioprio_set", (3, 0, 0), EPERM),
    ("sched_setaffinity", (0, 8, 1), ALLOW),
    ("sched_setaffinity", (77, 8, 1), EPERM),
    ("kill", (0, 15), ALLOW),
    ("kill", (seccomp.OWN_PID, 15), ALLOW),
    ("kill", ((1 << 64) - 1 - seccomp.OWN_PID, 15), ALLOW),
    ("kill", (77, 15), ASK),
    ("kill", ((1 << 64) - 1, 15), ASK),
    ("tgkill", (seccomp.OWN_PID, 78, 6), ALLOW),
    ("tgkill", (77, 77, 15), ASK),
    ("tkill", (77, 15), ASK),
    ("pidfd_send_signal", (3, 15), EPERM),
]


@pytest.mark.parametrize("table", MACHINES, ids=lambda table: table.name)
@pytest.mark.parametrize(("call", "arguments", "expected"), CASES)
def test_a_call(table: Machine, call: str, arguments: tuple[int, ...], expected: str | int) -> None:
    assert answer(table, call, *arguments) == expected


@pytest.mark.parametrize("table", MACHINES, ids=lambda table: table.name)
def test_what_programs_need_is_let_through(table: Machine) -> None:
    numbers = {"x86_64": (0, 1, 3, 9, 12, 57, 59, 60, 231, 262), "aarch64": (63, 64, 57, 222, 214, 221, 93, 94, 79)}
    program = seccomp.program(table, signals=True, metadata=True, truncate=True)
    for number in numbers[table.name]:  # read, write, close, mmap, brk, fork, execve, exit, exit_group, stat
        assert run(program, table.audit, number, (1 << 63, 1 << 40, 3)) == ALLOW


@pytest.mark.parametrize("table", MACHINES, ids=lambda table: table.name)
def test_calls_that_nobody_has_looked_at_do_not_exist(table: Machine) -> None:
    program = seccomp.program(table, signals=False, metadata=False, truncate=False)
    assert run(program, table.audit, LAST_REVIEWED + 1) == ENOSYS
    assert run(program, table.audit, 469) == ENOSYS
    assert run(program, table.audit, LAST_REVIEWED) == ALLOW


def test_another_machine_and_the_third_set_of_calls_end_the_process() -> None:
    assert X86 is not None
    program = seccomp.program(X86, signals=True, metadata=True, truncate=True)
    assert run(program, 0x40000003, 15) == KILL
    assert run(program, X86.audit, 0x40000000 | 1) == KILL
    assert run(program, 0xC00000B7, 64) == KILL


def test_what_mounts_or_the_kernel_hold_already_is_let_through() -> None:
    assert X86 is not None
    assert answer(X86, "chmod", 1, 0o644, metadata=False) == ALLOW
    assert answer(X86, "chmod", 1, 0o4755, metadata=False) == EPERM
    assert answer(X86, "truncate", 1, 0, truncate=False) == ALLOW
    assert answer(X86, "kill", 77, 15, signals=False) == ALLOW


def test_a_program_fits_into_the_kernel() -> None:
    for table in MACHINES:
        assert table is not None
        program = seccomp.program(table, signals=True, metadata=True, truncate=True)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096


def test_a_machine_without_a_table_has_none() -> None:
    assert machine("riscv64") is None
    assert machine("AMD64") is X86
    assert machine("arm64") is ARM
