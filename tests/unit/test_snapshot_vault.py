"""The file of copies under what happens to files: two at once, a kill in the middle, a full disk."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from nbagent.session.snapshot import Snapshots

TAKE_FOR_EVER = """
    import asyncio, os, sys
    from pathlib import Path
    from nbagent.session.snapshot import Snapshots

    async def run():
        root, folder = Path(sys.argv[1]), Path(sys.argv[2])
        snapshots = Snapshots(root, folder)
        while True:
            for number in range(30):
                (root / f"f{number}").write_bytes(os.urandom(20_000))
            await snapshots.take()
            print("taken", flush=True)

    asyncio.run(run())
"""

FULL_DISK = """
    import asyncio, os, resource, signal, sys
    from pathlib import Path
    from nbagent.errors import StoreError
    from nbagent.session.snapshot import Snapshots

    async def run():
        root, folder = Path(sys.argv[1]), Path(sys.argv[2])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        snapshots = Snapshots(root, folder)
        before = await snapshots.take()
        (root / "large").write_bytes(os.urandom(900_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        try:
            await snapshots.take()
        except StoreError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        after = await snapshots.take(since=before)
        print([file.path for file in (await snapshots.compare(before, after)).files])

    asyncio.run(run())
"""


def script(text: str, *arguments: Path) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]


async def test_a_kill_in_the_middle_leaves_a_file_that_works(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "copies"
    root.mkdir()
    for number in range(3):
        process = subprocess.Popen(script(TAKE_FOR_EVER, root, folder), stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.Random(number).uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        snapshots = Snapshots(root, folder)
        before = await snapshots.take()
        was = (root / "f7").read_bytes()
        (root / "f7").write_bytes(b"changed")
        after = await snapshots.take(since=before)
        assert [file.path for file in (await snapshots.compare(before, after)).files] == ["f7"]
        assert (await snapshots.undo(before, after)).restored == ("f7",)
        assert (root / "f7").read_bytes() == was
        await snapshots.close()
    assert not list(folder.glob("*.broken"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the system")
def test_a_full_disk_is_said_and_gone_when_there_is_room_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    run = subprocess.run(script(FULL_DISK, root, tmp_path / "copies"), capture_output=True, text=True, timeout=60)
    said, files = run.stdout.splitlines()
    assert "Make room" in said, run.stderr
    assert files == "['large']"


async def test_several_at_once_and_one_that_throws_away(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "copies"
    for name in "abcd":
        (root / name).mkdir(parents=True)
        for number in range(20):
            (root / name / f"f{number}").write_bytes(os.urandom(2000))

    async def cell(name: str) -> None:
        mine = Snapshots(root, folder)
        for number in range(4):
            before = await mine.take()
            path = root / name / f"f{number}"
            was = path.read_bytes()
            path.write_bytes(os.urandom(2000))
            after = await mine.take(since=before)
            changed = [file.path for file in (await mine.compare(before, after)).files]
            assert f"{name}/f{number}" in changed
            others = [f"{other}/*" for other in "abcd" if other != name]
            result = await mine.undo(before, after, leave_out=others)
            assert result.restored == (f"{name}/f{number}",)
            assert path.read_bytes() == was
        await mine.close()

    async def throw_away() -> None:
        other = Snapshots(root, folder)
        for _ in range(8):
            await other.take()
            await other.prune(time.time() - 30)
            await asyncio.sleep(0)
        await other.close()

    await asyncio.gather(*(cell(name) for name in "abcd"), throw_away())
