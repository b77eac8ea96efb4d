"""Notebooks run again in a real kernel: in a copy, with nothing of the user's own, and held against what is stored."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbagent.notebook.replay import replay, replay_one
from nbagent.notebook.rerun import rerun


def write(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


async def test_it_runs_in_a_copy_and_says_what_changed(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("1")
    (tmp_path / "gone.txt").write_text("1")
    (tmp_path / "link").symlink_to("data.txt")
    path = write(
        tmp_path / "a.ipynb",
        "from pathlib import Path\nPath('data.txt').write_text('2')\nPath('gone.txt').unlink()\n"
        "Path('new').mkdir()\nPath('new/x').write_text('x')",
    )
    seen: list[int] = []
    run = await rerun(path, on_cell=lambda index, cell: seen.append(index))
    assert run.error == ""
    assert set(run.files) == {"data.txt", "gone.txt", "new/x"}
    assert run.files["gone.txt"] == ""
    assert (tmp_path / "data.txt").read_text() == "1"
    assert not run.folder.exists()
    assert seen == [0]


async def test_keys_and_settings_of_the_user_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-123456")
    monkeypatch.setenv("NBAGENT_MODEL", "mine")
    (tmp_path / "a.cassette").write_text("cassette: written by hand\nplan\n  say: x\n")
    path = write(
        tmp_path / "a.ipynb", "import os\nprint(sorted(k for k in os.environ if k.startswith(('OPENAI', 'NBAGENT'))))"
    )
    run = await rerun(path)
    text = run.notebook.cells[0].outputs[0]["text"]
    assert text == "['NBAGENT_CASSETTE', 'NBAGENT_CASSETTE_ANSWERS', 'NBAGENT_CONFIG', 'NBAGENT_HOME']\n"
    assert os.environ["NBAGENT_MODEL"] == "mine"


async def test_a_cell_that_fails_ends_it_and_is_named(tmp_path: Path) -> None:
    result = await replay_one(write(tmp_path / "a.ipynb", "x = 1", "1 / 0", "print('never')"))
    assert result.failed
    assert result.lines[0] == "cell 2 failed: ZeroDivisionError: division by zero"


async def test_a_notebook_without_a_cassette_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    result = await replay_one(write(tmp_path / "work" / "a.ipynb", "%load_ext nbagent", "%%plan\nhello"))
    assert "cell 2 failed: ConfigError" in result.lines[0]
    assert result.lines[1].startswith("it has no cassette: a.cassette is not there")


async def test_a_cell_that_never_ends_is_ended(tmp_path: Path) -> None:
    result = await replay_one(write(tmp_path / "a.ipynb", "while True: pass"), cell_seconds=2)
    assert result.failed
    assert "cell 1 failed" in result.lines[0]


BUSY = """
import threading
busy = True
def spin():
    while busy:
        pass
for _ in range(3):
    threading.Thread(target=spin, daemon=True).start()
"""
COUNT = """
for _ in range(40):
    !python -c 'for i in range(4): print(i, flush=True)'
busy = False
"""


async def test_what_a_command_prints_is_whole_however_busy_the_kernel_is(tmp_path: Path) -> None:
    run = await rerun(write(tmp_path / "a.ipynb", BUSY, COUNT), cell_seconds=90)
    assert run.error == ""
    text = "".join(output["text"] for output in run.notebook.cells[1].outputs)
    assert text.split() == list("0123") * 40


async def test_a_command_reads_variables_and_leaves_its_exit_status(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.ipynb", "word = 'two'", "!echo $word {1 + 2}; exit 3", "_exit_code", "!kill -9 $$", "_exit_code"
    )
    run = await rerun(path)
    assert run.notebook.cells[1].outputs[0]["text"].split() == ["two", "3"]
    assert [run.notebook.cells[at].outputs[0]["data"]["text/plain"] for at in (2, 4)] == ["3", "-9"]


async def test_stored_outputs_and_files_come_out_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "open('made.txt', 'w').write('x'); print('here', __import__('os').getcwd())")
    assert (await replay_one(path, update=True)).updated
    stored = path.read_bytes()
    node: Any = nbformat.read(path, 4)
    assert node.cells[0].outputs[0]["text"] == "here /home/you/notebooks\n"
    assert list(node.metadata["nbagent"]["replay"]["files"]) == ["made.txt"]
    assert (await replay_one(path)).lines == ()
    assert (await replay_one(path, update=True)).updated
    assert path.read_bytes() == stored


def test_the_command_compares_side_by_side_and_says_what_differs(tmp_path: Path) -> None:
    good = write(tmp_path / "good.ipynb", "print('a')")
    bad = write(tmp_path / "bad.ipynb", "print('b')")
    assert replay([good, bad], jobs=2, update=True, out=io.StringIO()) == 0
    node: Any = nbformat.read(bad, 4)
    node.cells[0].outputs[0]["text"] = "something else\n"
    nbformat.write(node, bad)
    out = io.StringIO()
    assert replay([tmp_path], jobs=2, junit=tmp_path / "junit.xml", out=out) == 1
    text = out.getvalue()
    assert "good.ipynb: as stored" in text
    assert "bad.ipynb: differs" in text
    assert "+b" in text
    assert "2 notebooks, 1 differs" in text
    assert (tmp_path / "junit.xml").exists()
