"""The system call filter that stands beside the file wall, put together by hand. Pure: values in, bytes out.

Landlock says which files may be opened. It says nothing about sockets that are not TCP, about mode, owner, times and attributes
of files, about limits set on another process, about leases, message queues or shared memory. All that is refused here.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nbagent.sandbox.syscalls import LAST_REVIEWED, Machine

_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_KILL, _ASK, _ALLOW, _ERRNO = 0x80000000, 0x7FC00000, 0x7FFF0000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000

OWN_PID = 0x4E42_5049  # stands for the pid of the confined process until the process that becomes it puts its own in

_REFUSED = """socket connect bind listen accept accept4 shmget shmat shmctl semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr ptrace process_vm_readv process_vm_writev process_madvise
process_mrelease pidfd_getfd kcmp perf_event_open move_pages migrate_pages mount umount2 pivot_root chroot open_tree move_mount fsopen
fsconfig fsmount fspick mount_setattr unshare setns open_by_handle_at fanotify_init fanotify_mark add_key request_key keyctl
lsm_set_self_attr bpf userfaultfd kexec_load kexec_file_load create_module init_module finit_module delete_module reboot swapon swapoff
acct quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm modify_ldt syslog vhangup
nfsservctl lookup_dcookie uselib _sysctl""".split()  # noqa: SIM905

# Answered as missing, so that libraries use the older call, which is looked at.
_MISSING = "clone3 openat2 io_uring_setup io_uring_enter io_uring_register".split()  # noqa: SIM905

_METADATA = """chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr""".split()  # noqa: SIM905

_NEW_NAMESPACE = 0x7E020000  # any of CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_O_ACCMODE, _O_CREAT, _O_TRUNC, _O_TMPFILE = 0o3, 0o100, 0o1000, 0o20000000
_SET_ID = 0o6000
_UNIX, _STREAM, _SEQPACKET = 1, 1, 5

# What ordinary programs ask of files and pipes. Everything else (file flags, subvolumes, verity, TIOCSTI …) is "not a terminal".
_IOCTLS = (
    0x5401,  # TCGETS
    0x5413,  # TIOCGWINSZ
    0x540F,  # TIOCGPGRP
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
    0x40049409,  # FICLONE: the target must be open for writing
    0x4020940D,  # FICLONERANGE
    0x80086601,  # FS_IOC_GETFLAGS
    0xC020660B,  # FS_IOC_FIEMAP
)
# Duplicate, flags, locks, pipe size and seals. Owners and signals of a handle reach other processes; a lease holds them up.
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 16, 36, 37, 38, 1025, 1030, 1031, 1032, 1033, 1034)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction. Jumps are counted from the next instruction, as in the kernel."""

    code: int
    value: int
    yes: int = 0
    no: int = 0

    def pack(self) -> bytes:
        return struct.pack("=HBBI", self.code, self.yes, self.no, self.value)


def _refuse(number: int) -> Step:
    return Step(_RETURN, _ERRNO | number)


_PERMIT = Step(_RETURN, _ALLOW)
_NOT_PERMITTED = _refuse(errno.EPERM)


def _low(argument: int) -> Step:
    return Step(_LOAD, _ARGUMENTS_AT + 8 * argument)


def _high(argument: int) -> Step:
    return Step(_LOAD, _ARGUMENTS_AT + 8 * argument + 4)


def _only(argument: int, values: Sequence[int], refusal: Step = _NOT_PERMITTED) -> list[Step]:
    """Allowed when the lower half of the argument is one of ``values``."""
    checks = [Step(_JUMP_EQUAL, value, yes=len(values) - at) for at, value in enumerate(values)]
    return [_low(argument), *checks, refusal, _PERMIT]


def _without(argument: int, bits: int) -> list[Step]:
    """Allowed when none of ``bits`` is set in the lower half."""
    return [_low(argument), Step(_JUMP_SET, bits, no=1), _NOT_PERMITTED, _PERMIT]


def _opening(flags: int, mode: int) -> list[Step]:
    """No cutting through a handle for reading (older Landlock does not see it), no set-id file made."""
    return [
        _low(flags),
        Step(_AND, _O_TRUNC | _O_ACCMODE),
        Step(_JUMP_EQUAL, _O_TRUNC, yes=4),
        _low(flags),
        Step(_JUMP_SET, _O_CREAT | _O_TMPFILE, no=3),
        _low(mode),
        Step(_JUMP_SET, _SET_ID, no=1),
        _NOT_PERMITTED,
        _PERMIT,
    ]


def _pair() -> list[Step]:
    """A connected pair that cannot be pointed elsewhere: datagram pairs can send to any address, so they are refused."""
    return [
        _low(0),
        Step(_JUMP_EQUAL, _UNIX, no=4),
        _low(1),
        Step(_AND, 0xF),
        Step(_JUMP_EQUAL, _STREAM, yes=2),
        Step(_JUMP_EQUAL, _SEQPACKET, yes=1),
        _NOT_PERMITTED,
        _PERMIT,
    ]


def _limits_of_others() -> list[Step]:
    """``prlimit64``: reading anybody's limits is harmless, setting only one's own."""
    return [
        _low(0),
        Step(_JUMP_EQUAL, 0, yes=5),
        _low(2),
        Step(_JUMP_EQUAL, 0, no=2),
        _high(2),
        Step(_JUMP_EQUAL, 0, yes=1),
        _NOT_PERMITTED,
        _PERMIT,
    ]


def _priority(which: int, who: int, process: int) -> list[Step]:
    return [
        _low(which),
        Step(_JUMP_EQUAL, process, no=2),
        _low(who),
        Step(_JUMP_EQUAL, 0, yes=1),
        _NOT_PERMITTED,
        _PERMIT,
    ]


def _signals() -> dict[str, list[Step]]:
    """Where the kernel cannot keep signals inside: the own group and itself are free, for all else the supervisor is asked, which
    signals what descends from the command and nothing else."""
    ask = Step(_RETURN, _ASK)
    own = [OWN_PID, OWN_PID ^ 0xFFFFFFFF]  # the second becomes the negative pid, which is the group
    return {
        "kill": _only(0, [0, *own], ask),
        "tgkill": _only(0, own[:1], ask),
        "tkill": [ask],
        "rt_sigqueueinfo": [_NOT_PERMITTED],
        "rt_tgsigqueueinfo": [_NOT_PERMITTED],
        "pidfd_send_signal": [_NOT_PERMITTED],
    }


def rules(*, signals: bool, metadata: bool, truncate: bool) -> dict[str, list[Step]]:
    """What happens to each named call. ``signals``: ask about signals to others, because nothing else holds
    them. ``metadata``: refuse changes of mode, owner, times and attributes here, because the mounts are not read-only.
    ``truncate``: refuse cutting by path."""
    table: dict[str, list[Step]] = {name: [_NOT_PERMITTED] for name in _REFUSED}
    table |= {name: [_refuse(errno.ENOSYS)] for name in _MISSING}
    if metadata:
        table |= {name: [_NOT_PERMITTED] for name in _METADATA}
    else:
        table |= {name: _without(1, _SET_ID) for name in ("chmod", "fchmod")}
        table |= {name: _without(2, _SET_ID) for name in ("fchmodat", "fchmodat2")}
    if truncate:
        table["truncate"] = [_NOT_PERMITTED]
    if signals:
        table |= _signals()
    table |= {
        "clone": _without(0, _NEW_NAMESPACE),
        "socketpair": _pair(),
        "prlimit64": _limits_of_others(),
        "setpriority": _priority(0, 1, process=0),
        "ioprio_set": _priority(0, 1, process=1),
        "open": _opening(1, 2),
        "openat": _opening(2, 3),
        "creat": _without(1, _SET_ID),
        "mkdir": _without(1, _SET_ID),
        "mkdirat": _without(2, _SET_ID),
        "mknod": _without(1, _SET_ID),
        "mknodat": _without(2, _SET_ID),
        "ioctl": _only(1, _IOCTLS, _refuse(errno.ENOTTY)),
        "fcntl": _only(1, _FCNTLS, _refuse(errno.EINVAL)),
    }
    table |= {
        name: _only(0, [0]) for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    }
    return table


@lru_cache(maxsize=8)
def program(machine: Machine, *, signals: bool, metadata: bool, truncate: bool) -> bytes:
    """The filter as the kernel reads it: eight bytes an instruction."""
    steps = [
        Step(_LOAD, _MACHINE_AT),
        Step(_JUMP_EQUAL, machine.audit, yes=1),
        Step(_RETURN, _KILL),
        Step(_LOAD, _NUMBER_AT),
    ]
    if machine.has_x32:
        steps += [Step(_JUMP_SET, _X32_BIT, no=1), Step(_RETURN, _KILL)]
    steps += [Step(_JUMP_ABOVE, LAST_REVIEWED, no=1), _refuse(errno.ENOSYS)]
    for name, body in rules(signals=signals, metadata=metadata, truncate=truncate).items():
        number = machine.number(name)
        if number is not None:
            steps += [Step(_JUMP_EQUAL, number, no=len(body)), *body]
    steps.append(_PERMIT)
    return b"".join(step.pack() for step in steps)
