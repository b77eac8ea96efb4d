"""The temporary folder of a process: its own, and no other's is taken away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nbagent.session.skills import find_skills
from nbagent.temporary import temporary_folder

pytestmark = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="where processes can be told")


@pytest.fixture
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_dead_process_left_goes_and_nothing_else(
    tmp_path: Path, dead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    numbers = os.readlink("/proc/self/ns/pid")
    kept = {
        "nbagent-2024-analysis": None,  # somebody's own
        f"nbagent-{dead}-elsewher": "pid:[1]",  # of a container that shares the folder
        f"nbagent-{os.getpid()}-alive000": numbers,
    }
    for name, owner in {**kept, f"nbagent-{dead}-left0000": numbers}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
        if owner is not None:
            (tmp_path / name / ".owner").write_text(owner)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / ".owner").write_text(numbers)
    (tmp_path / f"nbagent-{dead}-link0000").symlink_to(victim)
    made = temporary_folder()
    assert made.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "victim", f"nbagent-{dead}-link0000", made.name}
    assert all((tmp_path / name / "file").exists() for name in kept) and (victim / ".owner").exists()


@pytest.mark.timeout(20)
def test_a_skill_that_is_a_pipe_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / ".nbagent" / "skills" / "endless"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "SKILL.md")
    assert find_skills(tmp_path, tmp_path / "nobody") == {}
