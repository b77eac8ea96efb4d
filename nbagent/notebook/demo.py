"""``nbagent demo``: the first walkthrough, run in a real kernel with no key and no network, and then opened."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from nbagent.errors import PersonError
from nbagent.notebook.compare import merged
from nbagent.notebook.record import MIME
from nbagent.notebook.replay import store
from nbagent.notebook.rerun import Rerun, copy_folder, kernel_environment, read_notebook, run_here
from nbagent.provider.cassette_file import walkthroughs
from nbagent.removal import remove

NOTEBOOKS = {"01-plan-and-build.ipynb": "pandas", "04-asking-and-approving.ipynb": ""}
"""What may be shown, the best first, and what each needs beside nbagent."""

_WORDS = len("    " + "  REFUSED   ")
"""The column where the words of a line begin, behind what it tells of."""

_NEXT = "For a project of your own: `nbagent doctor` says what to set; then `%load_ext nbagent` in a notebook there.\n"


def demo(*, open_lab: bool = True, keep: Path | None = None, out: TextIO | None = None) -> int:
    """Copy the walkthrough to ``keep`` (else a new temporary folder), run it, print what happened cell by cell, and open it.

    ``open_lab``: open JupyterLab where there are a terminal, a browser and JupyterLab; else the command is printed. 0: it ran to
    its end. Raises ``PersonError`` when something that it needs is missing.
    """
    out = out or sys.stdout
    name, note = _chosen()
    folder = _prepared(keep)
    notebook = read_notebook(folder / name)
    out.write(f"{note}The walkthrough {name} runs in {folder}, with played model answers: no key, no network.\n")
    teller = _Teller(notebook, out)
    home = folder / ".nbagent-home"
    run = asyncio.run(run_here(notebook, folder, home, name=Path(name).stem, cell_seconds=300.0, on_cell=teller.cell))
    remove(home)
    _store(folder / name, run)
    if run.error or run.leftovers:
        out.write("\nThe walkthrough did not run to its end:\n")
        out.writelines(f"  {line}\n" for line in (run.error, *run.leftovers) if line)
        return 1
    out.write("\nThe walkthrough ran to its end.\n")
    out.write(_NEXT)
    return _open(folder / name, open_lab, out)


def _chosen() -> tuple[str, str]:
    """The walkthrough that can be shown here, and a note where it is not the first one."""
    there = [name for name in NOTEBOOKS if (walkthroughs() / name).is_file()]
    if not there:
        raise PersonError(
            f"This installation has no walkthroughs ({walkthroughs()} lacks them). Install nbagent again."
        )
    for name in there:
        if not NOTEBOOKS[name] or importlib.util.find_spec(NOTEBOOKS[name]) is not None:
            first = NOTEBOOKS[there[0]]
            return name, "" if name == there[0] else f"The first walkthrough needs {first} (pip install {first}).\n"
    raise PersonError(f"The walkthrough needs {NOTEBOOKS[there[0]]}. Install it: pip install {NOTEBOOKS[there[0]]}")


def _prepared(keep: Path | None) -> Path:
    """A folder with a copy of the walkthroughs."""
    if keep is None:
        return copy_folder(
            walkthroughs(), Path(tempfile.mkdtemp(prefix="nbagent-demo-")).resolve() / "notebooks", "work"
        )
    if keep.exists() and any(keep.iterdir()):
        raise PersonError(f"{keep} is not empty. Name a new folder for the walkthrough.")
    remove(keep)
    return copy_folder(walkthroughs(), keep.absolute(), "work")


def _store(path: Path, run: Rerun) -> None:
    """Save the executed notebook, so that it opens with what was just seen."""
    for cell in run.notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    store(path, run)


class _Teller:
    """Prints each executed cell: what was asked, and line by line what came of it."""

    def __init__(self, notebook: Any, out: TextIO) -> None:
        self._out = out
        self._width = shutil.get_terminal_size().columns if out.isatty() else 0
        self._headings = _headings(notebook)

    def cell(self, index: int, cell: Any) -> None:
        heading = self._headings.get(index, "")
        first = cell.source.strip().splitlines()[0] if cell.source.strip() else ""
        self._out.write(f"\n[{index + 1}] {heading or first}\n")
        for output in merged(cell.outputs):
            lines = (f"    {line}".rstrip() for line in output_lines(output))
            if self._width and MIME in output.get("data", {}):
                lines = (part for line in lines for part in folded(line, self._width))
            self._out.writelines(line + "\n" for line in lines)
        self._out.flush()


def folded(line: str, width: int) -> list[str]:
    """A line of a run as lines of ``width``; what goes on stands below the column of words where it began."""
    begins = len(line) - len(line.lstrip())
    indent = " " * max(_WORDS, begins)
    if len(line) <= width or width < 2 * _WORDS:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _headings(notebook: Any) -> dict[int, str]:
    """Index of a code cell → the heading above it."""
    found: dict[int, str] = {}
    heading = ""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            titles = [line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("#")]
            heading = titles[-1] if titles else heading
        elif heading:
            found[index], heading = heading, ""
    return found


def output_lines(output: Any) -> Iterator[str]:
    """One output of a cell as lines for a terminal."""
    if output["output_type"] == "stream":
        yield from "".join(output["text"]).splitlines()
    elif output["output_type"] == "error":
        yield f"{output['ename']}: {output['evalue']}"
    elif MIME in output["data"]:
        yield from record_lines(output["data"][MIME])
    elif "text/plain" in output["data"]:
        yield from "".join(output["data"]["text/plain"]).splitlines()


def record_lines(record: dict[str, Any]) -> Iterator[str]:
    """A run as lines: what was planned, what was refused by which rule, what was approved, which files changed."""
    head = record["head"]
    began = next((item["previous"].upper() for item in record["items"] if item["kind"] == "agent"), "")
    writes = "" if began else head["writes"]
    yield f"{began or head['badge'] or head['agent']}  {head['model']}  {writes}".rstrip()
    for item in record["items"]:
        yield from _item_lines(item)
    receipt = record["receipt"]
    if receipt is not None:
        yield f"receipt: {receipt['line']}"


def _item_lines(item: dict[str, Any]) -> Iterator[str]:
    kind = item["kind"]
    if kind == "text":
        yield from (f"  says      {line}" for line in item["text"].strip().splitlines() if line.strip())
    elif kind == "tool":
        yield from _tool_lines(item)
    elif kind == "ask" and item["reply"]:
        because = f", because {item['feedback']}" if item["feedback"] else ""
        yield f"  answered  {item['reply']}{because} — {item['title']} ({_by(item)})"
    elif kind == "review":
        yield from _review_lines(item)
    elif kind == "agent":
        yield f"  now       {item['badge'] or item['agent']}"
    elif kind in ("error", "notice"):
        yield f"  {kind:<9} {item.get('message') or item.get('text')}"


def _tool_lines(item: dict[str, Any]) -> Iterator[str]:
    title = item["title"] or _call(item)
    if not (item["refused"] or item["metadata"].get("refused")):
        yield f"  {'did' if item['state'] == 'completed' else 'failed':<9} {title}"
        return
    rule = item["rule"]
    by = (
        f"the rule {rule['permission']} {rule['pattern']}: {rule['action']} ({rule['layer']})" if rule else "the person"
    )
    yield f"  REFUSED   {title} — by {by}"


def _call(item: dict[str, Any]) -> str:
    """A call that has no title since it was never decided to run: its name, and what it was for."""
    given = item["input"]
    target = next(
        (str(given[key]) for key in ("filePath", "command", "path", "pattern", "subagent_type") if given.get(key)), ""
    )
    words = " ".join(f"{item['name']} {target}".split())
    return words if len(words) <= 100 else words[:99] + "…"


def _review_lines(item: dict[str, Any]) -> Iterator[str]:
    words = {"approved": "APPROVED", "revised": "sent back", "rejected": "REJECTED", "awaiting": "waits"}
    edited = ", edited" if item["edited"] else ""
    comment = f", saying: {item['comment']}" if item["comment"] else ""
    by = f" ({_by(item)})" if item["by"] else ""
    yield f"  {words.get(item['status'], item['status']):<9} {item['path']}{edited}{comment}{by}"
    yield from (f"              {line}" for line in item["text"].strip().splitlines())


def _by(item: dict[str, Any]) -> str:
    return {"cassette": "answered by the cassette", "person": "a person"}.get(item["by"], item["by"] or "nobody")


def _open(notebook: Path, open_lab: bool, out: TextIO) -> int:
    """Open JupyterLab on the notebook, or say how."""
    command = lab_command(notebook, root=hasattr(os, "geteuid") and os.geteuid() == 0)
    if not (open_lab and _can_open()):
        first = "" if importlib.util.find_spec("jupyterlab") else "  pip install jupyterlab\n"
        out.write(f"Open it with:\n{first}  {shlex.join(command)}\n")
        return 0
    out.write(f"JupyterLab opens it now ({shlex.join(command)}); Ctrl-C ends it.\n")
    out.flush()
    home = notebook.parent / ".nbagent-home"
    environment = kernel_environment(notebook.parent, home, notebook.stem)
    (home / "ipython").mkdir(parents=True, exist_ok=True)  # the server reads it before any kernel would make it
    for name in ("NBAGENT_CASSETTE_ANSWERS", "MPLBACKEND", "COLUMNS"):
        environment.pop(name, None)
    try:
        return subprocess.run(command, cwd=notebook.parent, env=environment, check=False).returncode
    except KeyboardInterrupt:
        return 0


def lab_command(notebook: Path, *, root: bool) -> list[str]:
    """What opens JupyterLab on ``notebook``. For root, who one is in a container, it starts only when told to."""
    return [sys.executable, "-m", "jupyterlab", *(["--allow-root"] if root else []), str(notebook)]


def _can_open() -> bool:
    """A terminal, JupyterLab, and a browser that is no text browser."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or importlib.util.find_spec("jupyterlab") is None:
        return False
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
