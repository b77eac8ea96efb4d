"""Running commands: what they say, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbagent.errors import ToolError
from nbagent.sandbox import Confinement, NoWall, Outcome, find_wall, run_command
from nbagent.sandbox import process as process_module
from nbagent.sandbox.landlock import LandlockWall
from nbagent.sandbox.spawner import SPAWNER, Spawner
from nbagent.sandbox.wall import Launch

pytestmark = pytest.mark.skipif(os.name == "nt", reason="these commands are for a POSIX shell")

ROOT = Path(__file__).parents[2]


class Shell:
    """Runs command lines in a folder of its own and keeps what they said live."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spill = folder / "spill" / "whole.txt"
        self.heard: list[str] = []
        self.mark = f"nbagent-test-{os.getpid()}-{os.urandom(3).hex()}"

    async def run(self, command: str, timeout: float = 20, **options: Any) -> Outcome:
        return await run_command(
            ["sh", "-c", command],
            cwd=self.folder,
            environment={"PATH": os.environ["PATH"], "MARK": self.mark, "LC_ALL": "C.UTF-8"},
            timeout=timeout,
            on_output=self.heard.append,
            spill=self.spill,
            **options,
        )

    def left(self) -> list[int]:
        """Processes of this shell that still run: they carry its mark in their environment."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marked(pid, self.mark)]


def marked(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    made = Shell(tmp_path)
    yield made
    if sys.platform == "linux":
        await until(lambda: not made.left(), 3)


async def test_output_and_exit_code(shell: Shell) -> None:
    outcome = await shell.run("echo out; echo err >&2; exit 3")
    assert (outcome.code, outcome.output, outcome.timed_out, outcome.whole) == (3, "out\nerr\n", False, None)
    assert (outcome.lines, outcome.size) == (2, 8)
    assert "".join(shell.heard) == outcome.output


async def test_a_signal_is_a_negative_code(shell: Shell) -> None:
    assert (await shell.run("kill -9 $$")).code == -9


async def test_standard_input_is_empty_and_the_session_its_own(shell: Shell) -> None:
    outcome = await shell.run("cat; ps -o sid= -p $$ | tr -d ' '; echo $$; ls /proc/self/fd | wc -l")
    session, pid, handles = outcome.output.split()
    assert session == pid
    assert int(handles) == 4  # 0, 1, 2 and the folder that ls itself reads


async def test_no_handle_of_this_process_is_inherited(shell: Shell, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        outcome = await shell.run(f"ls -l /proc/self/fd | grep -c {tmp_path}/open; true")
    assert outcome.output == "0\n"


async def test_output_comes_while_it_runs(shell: Shell) -> None:
    task = asyncio.create_task(shell.run("echo one; until test -e go; do sleep 0.02; done; echo two"))
    await until(lambda: "one\n" in "".join(shell.heard))
    assert not task.done()
    (shell.folder / "go").touch()
    assert (await task).output == "one\ntwo\n"


async def test_live_output_comes_at_most_twenty_times_a_second(shell: Shell) -> None:
    outcome = await shell.run("i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; sleep 0.2; echo end")
    assert outcome.lines == 3001
    assert len(shell.heard) <= outcome.seconds * 20 + 2
    assert shell.heard[-1].endswith("end\n")


async def test_a_character_cut_in_two_is_put_together(shell: Shell) -> None:
    outcome = await shell.run(r"printf 'a\303'; sleep 0.15; printf '\244b\377c'")
    assert outcome.output == "aäb\ufffdc"
    assert "".join(shell.heard) == outcome.output


async def test_long_output_keeps_its_end_and_goes_to_a_file(shell: Shell) -> None:
    outcome = await shell.run("seq 1 30000", keep=1000)
    assert outcome.output.endswith("29999\n30000\n")
    assert len(outcome.output) == 1000
    assert outcome.whole == shell.spill
    assert shell.spill.read_text() == "".join(f"{n}\n" for n in range(1, 30001))
    assert (outcome.lines, outcome.size) == (30000, shell.spill.stat().st_size)


async def test_output_that_fits_makes_no_file(shell: Shell) -> None:
    outcome = await shell.run("printf '%1000s' ä", keep=1000)
    assert outcome.whole is None
    assert not shell.spill.exists()


async def test_a_flood_ends_the_command_and_not_the_memory(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "OUTPUT_LIMIT", 3_000_000)
    outcome = await shell.run("yes", keep=1000)
    assert outcome.flooded
    assert outcome.code is None
    assert len(outcome.output) == 1000
    assert shell.spill.stat().st_size == 3_000_000
    assert max(map(len, shell.heard)) < 20_000


async def test_time_is_up_but_what_was_said_is_there(shell: Shell) -> None:
    began = time.monotonic()
    outcome = await shell.run("for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.2; done", timeout=0.5)
    assert outcome.timed_out
    assert outcome.code is None
    assert outcome.output.startswith("1\n2\n")
    assert "9" not in outcome.output
    assert time.monotonic() - began < 5


TREES = {
    "a plain wait": "sleep 300",
    "in the background": "sleep 300 & sleep 300",
    "a session of its own": "setsid sleep 300 & setsid sh -c 'sleep 300 & sleep 300' & sleep 300",
    "twice forked": "(setsid sh -c '(sleep 300 &) ; sleep 300' &) ; sleep 300",
    "deaf to TERM": "trap '' TERM HUP INT; sleep 300 & while true; do sleep 300; done",
    "stopped": "sleep 300 & kill -STOP $!; sleep 300",
    "multiplying": "f() { sleep 0.05; if [ $1 = 0 ]; then sleep 60; else f $(($1-1)) & f $(($1-1)) & wait; fi; }; f 9",
}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("command", TREES.values(), ids=TREES.keys())
async def test_stop_kills_the_whole_tree_at_once(shell: Shell, command: str) -> None:
    task = asyncio.create_task(shell.run(command))
    await until(lambda: len(shell.left()) >= 1)
    await asyncio.sleep(0.2)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 3
    await until(lambda: not shell.left(), 3)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("command", [TREES["a session of its own"], TREES["deaf to TERM"]])
async def test_a_time_out_kills_the_whole_tree(shell: Shell, command: str) -> None:
    assert (await shell.run(command, timeout=0.3)).timed_out
    assert shell.left() == []


async def test_what_is_left_in_the_background_holds_nothing_up(shell: Shell) -> None:
    began = time.monotonic()
    outcome = await shell.run("sleep 300 & setsid sleep 300 & echo started")
    assert (outcome.code, outcome.output) == (0, "started\n")
    assert time.monotonic() - began < 5


async def test_the_last_words_of_what_was_left_are_heard(shell: Shell) -> None:
    assert "late\n" in (await shell.run("(sleep 0.05; echo late) & echo early")).output


async def test_output_closed_while_it_goes_on(shell: Shell) -> None:
    outcome = await shell.run("exec >&- 2>&-; sleep 0.3; exit 7")
    assert (outcome.code, outcome.output) == (7, "")
    assert outcome.seconds >= 0.3


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("ending", ["kill", "return"])
async def test_the_end_of_this_process_ends_its_commands(shell: Shell, ending: str) -> None:
    """A kernel that is killed, or simply ends, cannot clean up. Its commands are gone all the same."""
    code = f"""
import asyncio, os, sys
from pathlib import Path
from nbagent.sandbox import run_command
async def main():
    run = run_command(["sh", "-c", "setsid sleep 300 & trap '' TERM; sleep 300; sleep 300"], cwd=Path("/"), timeout=600,
        environment=dict(os.environ), on_output=print, spill=Path({str(shell.spill)!r}))
    task = asyncio.create_task(run)
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    os._exit(0)
asyncio.run(main())
"""
    kernel = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"MARK": shell.mark, "PYTHONPATH": str(ROOT)},
    )
    assert kernel.stdout is not None
    assert await asyncio.to_thread(kernel.stdout.readline) == b"ready\n"
    await until(lambda: len(shell.left()) >= 3)
    kernel.send_signal(signal.SIGKILL) if ending == "kill" else kernel.communicate(b"\n")
    kernel.wait()
    kernel.stdout.close()
    assert kernel.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        kernel.stdin.close()
    await until(lambda: not shell.left(), 5)


async def test_the_spawner_is_started_again_when_it_has_died(shell: Shell) -> None:
    await shell.run("true")
    first = SPAWNER.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert (await shell.run("echo again")).output == "again\n"
    assert SPAWNER.pid != first


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_killed_supervisor_leaves_nothing_behind(shell: Shell) -> None:
    task = asyncio.create_task(shell.run("setsid sleep 300 & echo $PPID; sleep 300"))
    await until(lambda: bool(shell.heard))
    os.kill(int(shell.heard[0]), signal.SIGKILL)
    with pytest.raises(ToolError, match="has died"):
        await task
    await until(lambda: not shell.left(), 3)


async def test_what_cannot_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="could not be started"):
        await run_command(
            [str(tmp_path / "no-such-program")],
            cwd=tmp_path,
            environment={},
            timeout=5,
            on_output=lambda text: None,
            spill=tmp_path / "s",
        )
    with pytest.raises(ToolError, match="could not be started"):
        await run_command(
            ["true"],
            cwd=tmp_path / "gone",
            environment={"PATH": "/bin"},
            timeout=5,
            on_output=lambda text: None,
            spill=tmp_path / "s",
        )


async def test_many_at_once(shell: Shell) -> None:
    runs = [shell.run(f"sleep 0.2; echo {n}") for n in range(12)]
    assert [outcome.output for outcome in await asyncio.gather(*runs)] == [f"{n}\n" for n in range(12)]


def test_it_needs_nothing_of_the_loop_but_calls(tmp_path: Path) -> None:
    """A loop that cannot start processes (as on Windows' selector loop) runs commands all the same."""

    class Poor(asyncio.SelectorEventLoop):
        async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

        async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    loop = Poor()
    try:
        assert loop.run_until_complete(Shell(tmp_path).run("echo hi")).output == "hi\n"
    finally:
        loop.close()


async def test_more_handles_than_select_can_count(shell: Shell) -> None:
    import resource

    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1400:
        pytest.skip("this process may not open that many")
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert (await shell.run("echo fine")).output == "fine\n"
    finally:
        for number in held:
            os.close(number)


async def test_odd_environments_and_folders_arrive_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "grün \udcff"
    folder.mkdir()
    outcome = await run_command(
        ["sh", "-c", 'printf %s "$ODD" | od -An -tx1; basename "$(pwd)" | od -An -tx1'],
        cwd=folder,
        environment={"PATH": os.environ["PATH"], "ODD": "ä\udcfe"},
        timeout=10,
        on_output=lambda text: None,
        spill=tmp_path / "s",
    )
    assert outcome.output.split() == ["c3", "a4", "fe", "67", "72", "c3", "bc", "6e", "20", "ff", "0a"]


async def test_a_wall_and_a_confinement_come_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a wall needs a confinement"):
        await run_command(
            ["true"],
            cwd=tmp_path,
            environment={},
            timeout=1,
            on_output=lambda text: None,
            spill=tmp_path / "s",
            confinement=Confinement(root=tmp_path, temp=tmp_path),
        )


@pytest.mark.skipif(sys.platform != "linux", reason="these walls are Linux's")
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
async def test_behind_a_wall_it_ends_the_same_way(shell: Shell, kind: str) -> None:
    wall = find_wall(kind)
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    temp = shell.folder / "temp"
    temp.mkdir()
    inside: dict[str, Any] = {"wall": wall, "confinement": Confinement(root=shell.folder, temp=temp)}
    outcome = await shell.run("echo kept > $TMPDIR/a; cat $TMPDIR/a; echo x > a; exit 4", **inside)
    assert outcome.code == 4
    assert outcome.output.startswith("kept\n")
    assert not (shell.folder / "a").exists()
    outcome = await shell.run("trap '' TERM; setsid sleep 300 & echo here; sleep 300; sleep 300", timeout=0.4, **inside)
    assert (outcome.timed_out, outcome.output) == (True, "here\n")
    assert shell.left() == []


COMETS = """
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    time_t end = time(0) + atoi(words[2]);
    signal(SIGTERM, SIG_IGN);
    for (int strand = atoi(words[1]); strand; strand--)
        if (fork() == 0)
            while (time(0) < end) {
                if (fork()) _exit(0);
                setsid();
                usleep(atoi(words[3]));
            }
    return 0;
}
"""
"""Processes each of which is gone some microseconds after it began, and has made the next: whoever has found one finds nobody there."""


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="a program of Linux, to be compiled")
@pytest.mark.parametrize("kind", ["landlock", "bubblewrap"])
@pytest.mark.parametrize("more", ["", "; exec sleep 300"])
@pytest.mark.parametrize(
    ("strands", "pause"),
    [
        (8, 500),
        # So many that a supervisor which falls behind leaves no process number to anybody: nothing to run beside other tests.
        pytest.param(40, 200, marks=pytest.mark.soak),
    ],
)
async def test_what_forks_faster_than_it_is_found_ends_too(
    shell: Shell, kind: str, more: str, strands: int, pause: int
) -> None:
    wall = find_wall(kind)
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    if kind == "landlock" and getattr(wall, "abi", 0) < 6:
        pytest.skip("this kernel's Landlock cannot keep signals inside, so nothing can be ended at a stroke")
    temp = shell.folder / "temp"
    temp.mkdir()
    (shell.folder / "comets.c").write_text(COMETS)
    subprocess.run(["cc", "-O2", "-static", "-o", shell.mark, "comets.c"], cwd=shell.folder, check=True)
    began = time.monotonic()
    outcome = await shell.run(
        f"./{shell.mark} {strands} 6 {pause}; echo begun{more}",
        timeout=2,
        wall=wall,
        confinement=Confinement(root=shell.folder, temp=temp),
    )
    taken = time.monotonic() - began
    assert named(shell.mark[:15], 1.0) == 0
    assert outcome.output.startswith("begun\n")
    assert outcome.timed_out or not more
    assert taken < 7, "it was given up"


def named(name: str, seconds: float) -> int:
    """How many processes of this name are met within ``seconds``."""
    found, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                found += Path(f"/proc/{pid}/comm").read_text().strip() == name
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
async def test_a_wall_that_cannot_be_raised_starts_nothing(tmp_path: Path) -> None:
    """The confinement fails, so the command does not run: never the other way round."""

    class Broken:
        name = "broken"

        def launch(self, argv: Any, cwd: Path, environment: Any, confinement: Any) -> Launch:
            return Launch(tuple(argv), str(cwd), environment, True, (("/usr", 1 << 40),), (1 << 60, 0, 0), 0, b"")

        def prove(self) -> list[tuple[str, bool, str]]:
            return []

    with pytest.raises(ToolError, match="landlock"):
        await run_command(
            ["touch", str(tmp_path / "made")],
            cwd=tmp_path,
            environment={"PATH": os.environ["PATH"]},
            timeout=5,
            on_output=lambda text: None,
            spill=tmp_path / "s",
            wall=Broken(),
            confinement=Confinement(root=tmp_path, temp=tmp_path),
        )
    assert not (tmp_path / "made").exists()


def test_a_spawner_holds_no_secret() -> None:
    os.environ["PLANTED_API_KEY"] = "planted-secret"
    spawner = Spawner()
    try:
        spawner.landlock()
        assert spawner.pid is not None
        if sys.platform == "linux":
            assert b"planted-secret" not in Path(f"/proc/{spawner.pid}/environ").read_bytes()
            assert b"PLANTED" not in Path(f"/proc/{spawner.pid}/cmdline").read_bytes()
    finally:
        spawner.close()
        del os.environ["PLANTED_API_KEY"]
    assert spawner.pid is None


async def test_without_a_spawner_commands_run_and_end_too(shell: Shell) -> None:
    """What Windows uses, tried with a POSIX shell."""
    launch = Launch(("sh", "-c", "echo one; sleep 300"), str(shell.folder), {"PATH": os.environ["PATH"]})
    child = process_module.PlainChild(launch, 0.5)
    said = b""
    end = time.monotonic() + 10
    while not child.ended() and time.monotonic() < end:
        said += child.read(0.1) or b""
    assert said == b"one\n"
    assert child.result() == (None, True)
    child.close()
    with pytest.raises(ToolError, match="could not be started"):
        process_module.PlainChild(Launch(("no-such-program",), "/", {}), 1)


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
@pytest.mark.parametrize("abi", [1, 5, 6])
async def test_signals_stay_inside_and_work_there(shell: Shell, abi: int) -> None:
    """Also where the kernel cannot tell inside from outside: then the supervisor does."""
    wall = find_wall("landlock")
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    assert isinstance(wall, LandlockWall)
    temp = shell.folder / "temp"
    temp.mkdir()
    inside: dict[str, Any] = {
        "wall": replace(wall, abi=min(abi, wall.abi)),
        "confinement": Confinement(root=shell.folder, temp=temp),
    }
    command = "sleep 300 & kill $! && wait $!; echo $?"
    for _ in range(5):
        said = (await shell.run(command, **inside)).output
        assert said.endswith("143\n")
        assert "No such process" not in said
    group = "import os, subprocess; p = subprocess.Popen(['sleep', '300'], process_group=0); os.killpg(p.pid, 9); print(p.wait())"
    assert (await shell.run(f'{sys.executable} -c "{group}"', **inside)).output == "-9\n"
    waiting = "import subprocess; subprocess.run(['sleep', '300'], timeout=0.1)"
    assert "TimeoutExpired" in (await shell.run(f'{sys.executable} -c "{waiting}"', **inside)).output
    assert (await shell.run("timeout 0.1 sleep 300; echo $?", **inside)).output == "124\n"
    outside = await shell.run(
        f"kill -0 {os.getpid()} || kill -0 -- -{os.getpgid(0)} || kill -0 $PPID || echo kept", **inside
    )
    assert outside.output.endswith("kept\n")
    gone = await shell.run("sleep 0 & wait $!; kill $!", **inside)
    assert "No such process" in gone.output
