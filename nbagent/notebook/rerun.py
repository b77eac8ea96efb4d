"""One notebook run from top to bottom in a real kernel, in a temporary copy of its folder, with nothing of the user's own in reach."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.errors import PersonError
from nbagent.notebook.whole_output import prepare
from nbagent.removal import remove

SKIPPED = ("__pycache__", ".ipynb_checkpoints", ".pytest_cache", "node_modules", ".venv")
"""Folders that a copy leaves out: they are made, not shipped."""
OUTPUT_SECONDS = 60
_LEFT_OVER = '__import__("nbagent.provider.player", fromlist=["player"]).left_over()'

OnCell = Callable[[int, Any], None]


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a run gave. ``notebook``: as executed (an nbformat node); ``error``: why it ended early, or "".

    ``files``: path relative to the folder → the first twelve digits of its hash, "" when it was deleted, for each file that the
    run changed; ``final``: the same of every file that is there in the end. ``leftovers``: what of the played cassettes was not
    used. ``folder``: where it ran (gone by now), ``home``: where nbagent kept its data meanwhile.
    """

    notebook: Any
    error: str
    files: dict[str, str]
    final: dict[str, str]
    leftovers: tuple[str, ...]
    seconds: float
    folder: Path
    home: Path


async def rerun(path: Path, *, cell_seconds: float = 300.0, on_cell: OnCell | None = None) -> Rerun:
    """Run the notebook at ``path``.

    Its cassette (``NAME.cassette`` beside it, or the one its cells name) answers for the model and for the person.
    ``cell_seconds``: the most that a cell may take. ``on_cell`` is called with each executed cell. Raises ``PersonError`` when
    the notebook cannot be read.
    """
    notebook = read_notebook(path)
    place = await asyncio.to_thread(_own_folder)
    try:
        folder = await asyncio.to_thread(copy_folder, path.parent, place / path.parent.resolve().name)
        home = place / "nbagent-home"
        return await run_here(notebook, folder, home, name=path.stem, cell_seconds=cell_seconds, on_cell=on_cell)
    finally:
        await asyncio.to_thread(remove, place)


async def run_here(
    notebook: Any, folder: Path, home: Path, *, name: str, cell_seconds: float, on_cell: OnCell | None = None
) -> Rerun:
    """Run ``notebook`` in ``folder`` as it is, nbagent's data in ``home``."""
    from nbclient.exceptions import CellControlSignal, DeadKernelError

    before = await asyncio.to_thread(hashes, folder)
    started = time.monotonic()
    environment = kernel_environment(folder, home, name)
    error = ""
    leftovers: tuple[str, ...] = ()
    log = await asyncio.to_thread(_log_file, home)
    await asyncio.to_thread(prepare, Path(environment["IPYTHONDIR"]))
    async with _kernel(notebook, folder, environment, cell_seconds, log) as client:
        try:
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type == "code":
                    await client.async_execute_cell(cell, index)
                    if on_cell is not None:
                        on_cell(index, cell)
        except (CellControlSignal, DeadKernelError) as failure:
            error = _reason(index, failure) + (_last_words(log) if isinstance(failure, DeadKernelError) else "")
            if on_cell is not None:
                on_cell(index, notebook.cells[index])
        if not error:
            leftovers = await _left_over(client)
    after = await asyncio.to_thread(hashes, folder)
    return Rerun(notebook, error, _changed(before, after), after, leftovers, time.monotonic() - started, folder, home)


def read_notebook(path: Path) -> Any:
    """The notebook at ``path`` as an nbformat node. Raises ``PersonError`` with one sentence."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise PersonError(f"There is no notebook {path}.") from None
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise PersonError(f"{path} cannot be read as a notebook: {str(error).splitlines()[0]}") from None


def _own_folder() -> Path:
    """A new temporary folder for us alone. Its name has always the same form, since a model's tokens are counted with it."""
    for number in range(1000, 10_000):
        place = (
            Path(tempfile.gettempdir()).resolve()
            / f"nbagent-replay-{os.getuid() if hasattr(os, 'getuid') else 0}-{number}"
        )
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
            return place
    raise PersonError(f"There are too many nbagent-replay folders in {tempfile.gettempdir()}. Remove them.")


def copy_folder(source: Path, target: Path, *without: str) -> Path:
    """A copy of ``source``, links kept as links, without what is made by running, nor folders called ``without``."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*SKIPPED, *without))
    return target


def kernel_environment(folder: Path, home: Path, name: str) -> dict[str, str]:
    """The environment of a kernel that plays: no keys, no settings of the user, this Python's programs first."""
    taken = ("OPENAI_", "NBAGENT_", "JPY_", "VSCODE_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(taken)}
    cassette = folder / f"{name}.cassette"
    own = {
        "NBAGENT_HOME": str(home),
        "NBAGENT_CONFIG": os.devnull,
        "NBAGENT_CASSETTE_ANSWERS": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "COLUMNS": "100",
        "JPY_SESSION_NAME": str(folder / f"{name}.ipynb"),
    }
    return kept | own | ({"NBAGENT_CASSETTE": str(cassette)} if cassette.is_file() else {})


def hashes(folder: Path) -> dict[str, str]:
    """Path → hash of every file under ``folder``, a link by where it leads."""
    return {file.relative_to(folder).as_posix(): _hash(file) for file in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (*SKIPPED, ".git"))
        yield from (Path(place) / name for name in sorted(names))


def _hash(file: Path) -> str:
    data = str(file.readlink()).encode() if file.is_symlink() else file.read_bytes() if file.is_file() else b""
    return hashlib.sha256(data).hexdigest()[:12]


def _changed(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    names = sorted(before.keys() | after.keys())
    return {name: after.get(name, "") for name in names if before.get(name) != after.get(name)}


@contextlib.asynccontextmanager
async def _kernel(
    notebook: Any, folder: Path, environment: dict[str, str], cell_seconds: float, log: Path
) -> AsyncIterator[Any]:
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        timeout=cell_seconds,
        # The library gives up on a cell's output after 4 s and goes on without it, which a busy machine takes for a change.
        iopub_timeout=OUTPUT_SECONDS,
        raise_on_iopub_timeout=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        record_timing=False,
        shutdown_kernel="graceful",
    )
    with await asyncio.to_thread(log.open, "wb") as said:
        async with client.async_setup_kernel(env=environment, cwd=str(folder), stderr=said):
            yield client


def _log_file(home: Path) -> Path:
    """Where the kernel's own words go; they are nobody's output."""
    home.mkdir(parents=True, exist_ok=True)
    return home / "kernel.log"


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    return "".join(f"\n{line}" for line in lines)


async def _left_over(client: Any) -> tuple[str, ...]:
    """What the kernel's cassettes have left; nothing when nbagent was not used in it."""
    message = client.kc.execute("", silent=True, user_expressions={"left": _LEFT_OVER})
    reply = await asyncio.wait_for(client.async_wait_for_reply(message), 30)
    found = reply["content"].get("user_expressions", {}).get("left", {})
    if found.get("status") != "ok":
        return ()
    return tuple(json.loads(ast.literal_eval(found["data"]["text/plain"])))


def _reason(index: int, failure: Exception) -> str:
    name, value = getattr(failure, "ename", ""), getattr(failure, "evalue", "")
    said = f"{name}: {value}" if name else f"{type(failure).__name__}: {failure}"
    return f"cell {index + 1} failed: {said.strip()}"
