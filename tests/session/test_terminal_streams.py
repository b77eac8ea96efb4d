"""Where the program stands: any encoding, closed or full streams, a folder that is gone, a name that is no UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import Project
from tests.server import ScriptedServer, call, say

Start = Callable[..., ScriptedServer]
NARROW = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


def shell(project: Project, line: str, folder: Path | bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """A command line in which ``$NBAGENT`` is the program."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder or project.root,
        env={**project.environment, "NBAGENT": f"{sys.executable} -m nbagent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def writes() -> list[list[object]]:
    return [[say("größe 日本 ✓"), call("write", {"filePath": "out.txt", "content": "ö\n"})], [say("done")]]


@pytest.mark.parametrize("encoding", NARROW, ids=["ascii", "latin-1", "posix"])
def test_json_is_utf8_whatever_the_terminal_speaks(project: Project, server: Start, encoding: dict[str, str]) -> None:
    project.use(server(writes()))
    project.environment |= encoding
    ran = shell(project, "$NBAGENT run --format json hi")
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in ran.stdout.decode("utf-8").splitlines()]
    assert [each["text"] for each in events if each["type"] == "text"] == ["größe 日本 ✓", "done"]
    assert project.read("out.txt") == "ö\n"


@pytest.mark.parametrize("encoding", NARROW, ids=["ascii", "latin-1", "posix"])
def test_what_an_encoding_lacks_is_replaced(project: Project, server: Start, encoding: dict[str, str]) -> None:
    project.use(server(writes()))
    project.environment |= encoding
    ran = shell(project, "$NBAGENT run hi")
    assert ran.returncode == 0, ran.stderr
    assert b"BUILD" in ran.stdout
    assert b"\ndone" in ran.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_closed_stream_is_nobody(project: Project, server: Start, closed: str, form: str) -> None:
    project.use(
        server(
            [
                [call("write", {"filePath": "a.txt", "content": "a\n"}), call("bash", {"command": "echo hi"})],
                [say("ok")],
            ]
        )
    )
    project.write("nbagent.toml", '[permission]\nbash = "allow"\n')
    ran = shell(project, f"exec $NBAGENT run --format {form} hi {closed}")
    assert ran.returncode == 0, ran.stderr
    assert project.read("a.txt") == "a\n"


def test_a_prompt_from_a_closed_stream_is_a_sentence(project: Project, server: Start) -> None:
    project.use(model := server([]))
    ran = shell(project, "exec $NBAGENT run - <&-")
    assert ran.returncode == 2
    assert b"standard input" in ran.stderr
    assert ran.stderr.count(b"\n") == 1
    assert model.requests == []


def test_a_reader_that_goes_away_is_no_fault_of_the_program(project: Project, server: Start) -> None:
    project.use(server([[say("ok")]]))
    ran = shell(project, "$NBAGENT run --format json hi | head -n 1 >&2; exit ${PIPESTATUS[0]}")
    assert ran.returncode == 1  # the run was cut short
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr
    listed = shell(project, "$NBAGENT why --all edit | head -n 1; exit ${PIPESTATUS[0]}")
    assert listed.returncode == 0
    assert listed.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("words", ["run --format json hi", "run hi", "why edit a.py"])
def test_output_that_cannot_be_written_is_a_sentence(project: Project, server: Start, words: str) -> None:
    project.use(server([[say("ok")]]))
    ran = shell(project, f"$NBAGENT {words} > /dev/full")
    assert ran.returncode == 1
    assert ran.stderr.decode().splitlines() == ["nbagent: The output cannot be written: No space left on device."]


@pytest.mark.parametrize("words", ["run --format json hi", "why edit a.py", "plans"])
def test_a_current_folder_that_is_gone_is_a_sentence(project: Project, server: Start, words: str) -> None:
    project.use(model := server([]))
    gone = project.root / "gone"
    gone.mkdir()
    ran = shell(project, f"cd {gone} && rmdir {gone} && exec $NBAGENT {words}")
    assert ran.returncode == 2, ran.stderr
    assert b"--root" in ran.stderr
    assert ran.stderr.count(b"\n") == 1
    assert model.requests == []


@pytest.mark.parametrize("words", ["run --format json hi", "why edit a.py", "plans", "sessions"])
def test_a_root_whose_name_is_no_utf8_is_a_sentence(project: Project, server: Start, words: str) -> None:
    project.use(model := server([]))
    folder = os.fsencode(project.root) + b"/caf\xe9"
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("this file system has no such names")
    ran = shell(project, f"$NBAGENT {words}", folder)
    assert ran.returncode == 2, ran.stderr
    assert b"UTF-8" in ran.stderr
    assert ran.stderr.count(b"\n") == 1
    assert model.requests == []
