"""Taking a folder away: however deep it is, whatever its rights are, and nothing that a link leads to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbagent.removal import remove

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no command fills a folder there")

DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(3000):
    os.mkdir("deep" * 10)
    os.chdir("deep" * 10)
    open("file", "w").close()
"""


def test_a_tree_deeper_than_a_stack_and_longer_than_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", DEEP, str(folder)], check=True)
    remove(folder)
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="another user is a process of its own")
def test_folders_that_lost_their_own_rights(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "none" / "inner").mkdir(parents=True)
    (folder / "no list" / "inner").mkdir(parents=True)
    (folder / "no write" / "inner").mkdir(parents=True)
    (folder / "no write" / "inner" / "file").touch()
    for name, mode in (("none", 0), ("no list", 0o300), ("no write/inner", 0o500), ("no write", 0o500)):
        (folder / name).chmod(mode)
    folder.chmod(0o500)
    if os.getuid() == 0:  # root needs no rights
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, 65534, 65534)
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.chdir(tmp_path)
                os.setgid(65534)
                os.setuid(65534)
                remove(Path("folder"))
            else:
                remove(folder)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert not folder.exists()


def test_no_link_is_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("kept")
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for place in (folder, folder / "inner"):
        (place / "link").symlink_to(kept)
        (place / "file link").symlink_to(kept / "file")
    remove(folder)
    assert not folder.exists()
    (tmp_path / "only a link").symlink_to(kept)
    remove(tmp_path / "only a link")
    remove(tmp_path / "nothing")
    assert (kept / "file").read_text() == "kept" and kept.stat().st_mode & 0o777 == 0o755
