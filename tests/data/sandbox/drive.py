"""Sets a scene, lets ``attempt.py`` loose behind one wall, and prints what has changed, leaked or got through, as one JSON object.

``drive.py <wall> <abi> <kinds>``; ``abi`` 0 is the kernel's own. Run with the project's folder on the path, as any user.
"""

import asyncio
import contextlib
import json
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbagent.sandbox import Confinement, Wall, child_environment, run_command
from nbagent.sandbox.bubblewrap import BubblewrapWall
from nbagent.sandbox.landlock import LandlockWall
from nbagent.sandbox.spawner import SPAWNER
from nbagent.sandbox.syscalls import machine

HERE = Path(__file__).parent
ATTEMPTS = [json.loads(line) for line in (HERE / "escapes.jsonl").read_text().splitlines()]
MORE_CALLS = {"renameat2": (316, 276), "linkat": (265, 37), "name_to_handle_at": (303, 264)}
KEYS = """.ssh/id_rsa .aws/credentials .netrc .config/gcloud/key.json .mozilla/profile/logins.json .git-credentials .bash_history
.local/share/nbagent/sessions.db .local/share/jupyter/runtime/kernel-1.json""".split()  # noqa: SIM905
SENTINEL = """
import os, signal, sys, time  # nbagent-escape-sentinel
def heard(number, frame): os.write(1, str(number).encode() + b" ")
for number in (1, 2, 3, 10, 12, 15, 18, 23, 24, 28, 29): signal.signal(number, heard)
os.write(1, b"ready ")
while True: time.sleep(60)
"""


def build(folder: Path, canary: str) -> None:
    files = {
        "project/a.txt": "as it was\n",
        "project/src/mod.py": "x = 1\n",
        "project/secrets/token": canary,
        "outside/a.txt": "as it was\n",
        "outside/private": canary,
        "home/.bashrc": "# as it was\n",
        "home/notes.txt": "readable\n",
    }
    files |= {f"home/{name}": canary for name in KEYS}
    files["home/.ssh/authorized_keys"] = ""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("temp", "project/empty"):
        (folder / name).mkdir()
    (folder / "project/a-link").symlink_to("a.txt")
    (folder / "project/key-link").symlink_to(folder / "home/.ssh/id_rsa")
    with contextlib.suppress(OSError):
        os.setxattr(folder / "project/a.txt", "user.kept", b"kept")
    if shutil.which("git"):
        git = ["git", "-C", str(folder / "project"), "-c", "user.name=a", "-c", "user.email=a@localhost"]
        for words in (["init", "-q"], ["add", "a.txt", "src"], ["commit", "-qm", "first"]):
            subprocess.run([*git, *words], check=True, env={"PATH": os.environ["PATH"], "HOME": str(folder / "temp")})


def look(folder: Path) -> dict[str, list[object]]:
    """Everything that can be seen of the project, the home and the other temporary folder."""
    seen: dict[str, list[object]] = {}
    for part in ("project", "home", "outside", ""):
        for place in [folder / part, *((folder / part).rglob("*") if part else [])]:
            stat = place.lstat()
            facts: list[object] = [stat.st_mode, stat.st_uid, stat.st_gid, stat.st_ino]
            if part:
                facts += [stat.st_nlink, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
                facts.append(place.read_bytes().hex() if place.is_file() else place.is_symlink() and os.readlink(place))
                facts.append([(n, os.getxattr(place, n).hex()) for n in os.listxattr(place, follow_symlinks=False)])
            seen[str(place)] = facts
    seen["names"] = sorted(os.listdir(folder))
    return seen


def machine_state() -> dict[str, object]:
    """What an attempt could change in the machine itself."""
    state: dict[str, object] = {"host": platform.node()}
    for name in ("/dev/shm/nbagent-escape", "/sys/fs/cgroup/nbagent-escape", "/root/nbagent-escape"):
        with contextlib.suppress(OSError):
            state[name] = Path(name).exists()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            state[kind] = str(0x4E42) in Path(f"/proc/sysvipc/{kind}").read_text().split()
    return state


def process_state(pid: int) -> list[object]:
    import resource

    limits = [
        resource.prlimit(pid, kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)
    ]
    adjust = Path(f"/proc/{pid}/oom_score_adj").read_text()
    return [
        limits,
        os.getpriority(os.PRIO_PROCESS, pid),
        sorted(os.sched_getaffinity(pid)),
        os.sched_getscheduler(pid),
        adjust,
        Path(f"/proc/{pid}/cgroup").read_text(),
    ]


def make_wall(name: str, abi: int, home: Path) -> Wall:
    table = machine(platform.machine())
    assert table is not None
    if name == "bubblewrap":
        return BubblewrapWall(shutil.which("bwrap") or "bwrap", table, home)
    return LandlockWall(min(abi or 99, SPAWNER.landlock(), 7), table, home)


def listeners(folder: Path) -> tuple[list[socket.socket], dict[str, object]]:
    abstract = "nbagent-escape-" + secrets.token_hex(4)
    tcp = socket.create_server(("127.0.0.1", 0))
    made = [tcp]
    for kind, address in (
        (socket.SOCK_STREAM, str(folder / "outside/socket")),
        (socket.SOCK_STREAM, "\0" + abstract),
        (socket.SOCK_DGRAM, str(folder / "outside/datagram")),
    ):
        sock = socket.socket(socket.AF_UNIX, kind)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen()
        made.append(sock)
    for sock in made:
        sock.setblocking(False)
    places = {
        "socket": str(folder / "outside/socket"),
        "datagram": str(folder / "outside/datagram"),
        "abstract": abstract,
    }
    return made, {"port": tcp.getsockname()[1], **places}


def reached(sock: socket.socket) -> bool:
    with contextlib.suppress(BlockingIOError):
        if sock.type == socket.SOCK_DGRAM:
            return bool(sock.recv(10))
        sock.accept()[0].close()
        return True
    return False


async def main(name: str, abi: int, kinds: list[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="nbagent-escape-")).resolve()
    canary = "CANARY-" + secrets.token_hex(8)
    os.environ["KERNEL_API_KEY"] = canary
    build(folder, canary)
    sentinel = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SENTINEL],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={"SENTINEL_TOKEN": canary},
    )
    try:
        report = await play(name, abi, kinds, folder, canary, sentinel)
    finally:
        sentinel.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report))


async def play(
    name: str, abi: int, kinds: list[str], folder: Path, canary: str, sentinel: "subprocess.Popen[bytes]"
) -> dict[str, object]:
    assert sentinel.stdout is not None
    assert sentinel.stdout.read(6) == b"ready "
    sockets, addresses = listeners(folder)
    wall = make_wall(name, abi, folder / "home")
    table = machine(platform.machine())
    assert table is not None
    calls = set(re.findall(r"NR\['(\w+)'\]", json.dumps(ATTEMPTS)))
    numbers = {call: MORE_CALLS[call][table.column] if call in MORE_CALLS else table.number(call) for call in calls}
    plan = {part: str(folder / part) for part in ("project", "home", "outside", "temp")}
    plan |= {"pid": sentinel.pid, "kernel": os.getpid(), "attempts": str(HERE / "escapes.jsonl"), "kinds": kinds}
    plan |= {**addresses, "numbers": numbers}
    before, machine_before, process_before = look(folder), machine_state(), process_state(sentinel.pid)
    outcome = await run_command(
        [sys.executable, "-I", "-S", "-B", str(HERE / "attempt.py"), json.dumps(plan)],
        cwd=folder / "project",
        environment=child_environment(dict(os.environ)),
        timeout=100,
        on_output=lambda text: print(text, file=sys.stderr) if "-vv" in sys.argv else None,
        spill=folder / "outside" / "spill",
        keep=1_000_000,
        wall=wall,
        confinement=Confinement(
            root=folder / "project",
            temp=folder / "temp",
            readable=(folder / "home", HERE),
            hidden=(folder / "project/secrets",),
        ),
    )
    time.sleep(0.15)  # what was left behind would have written by now
    after = look(folder)
    alive = sentinel.poll() is None
    state = process_state(sentinel.pid) if alive else []
    sentinel.send_signal(signal.SIGKILL)
    heard = sentinel.communicate()[0].decode()
    results = [json.loads(line) for line in outcome.output.splitlines() if line.startswith("[")]
    refused = {each["name"]: each.get("refused", False) for each in ATTEMPTS}
    if "-v" in sys.argv:
        for line in results:
            print(*line, file=sys.stderr)
    return {
        "wall": wall.name,
        "code": outcome.code,
        "count": len(results),
        "changed": sorted(place for place in before.keys() | after.keys() if before.get(place) != after.get(place)),
        "machine": machine_before == machine_state(),
        "sentinel": alive and not heard.strip() and state == process_before,
        "reached": [str(sock.getsockname()) for sock in sockets if reached(sock)],
        "leaked": [name for name, _, said in results if canary in said],
        "through": [[name, said] for name, stopped, said in results if refused[name] and not stopped],
        "late": [name for name, _, said in results if said.startswith("TIMEOUT")],
        "tail": "" if results and outcome.code == 0 else outcome.output[-2000:],
        "seconds": round(outcome.seconds, 2),
    }


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")))
