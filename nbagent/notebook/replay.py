"""``nbagent replay``: notebooks run against their cassettes and held against what they say when stored."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

from nbagent.errors import PersonError
from nbagent.notebook.compare import differences, file_differences, settle
from nbagent.notebook.rerun import Rerun, read_notebook, rerun


@dataclass(frozen=True, slots=True)
class Replayed:
    """How one notebook went: ``lines`` is empty when it says what it said when it was stored."""

    path: Path
    lines: tuple[str, ...]
    seconds: float
    failed: bool = False
    updated: bool = False


def replay(
    paths: Sequence[Path],
    *,
    jobs: int = 1,
    junit: Path | str | None = None,
    update: bool = False,
    cell_seconds: float = 300.0,
    out: TextIO | None = None,
) -> int:
    """Replay every notebook (``jobs`` at once), print what differs, write ``junit`` (XML) when given.

    ``update``: store the outputs instead of comparing them. 0: all as stored, 1: something differs or failed. Raises
    ``PersonError`` for a path that is no notebook.
    """
    out = out or sys.stdout
    found = list(_notebooks(paths))
    if not found:
        raise PersonError("There is no notebook to replay. Name .ipynb files or a folder that has some.")
    results = asyncio.run(_all(found, max(1, jobs), update, cell_seconds, _Progress(len(found), sys.stderr)))
    for result in results:
        _tell(result, out)
    if junit is not None:
        write_junit(results, Path(junit))
    bad = sum(bool(result.lines) for result in results)
    out.write(
        f"{len(results)} notebook{'s' if len(results) != 1 else ''}, {bad or 'none'} differ{'s' if bad == 1 else ''}\n"
    )
    return 1 if bad else 0


async def replay_one(path: Path, *, update: bool = False, cell_seconds: float = 300.0) -> Replayed:
    """Replay one notebook."""
    stored = read_notebook(path)
    run = await rerun(path, cell_seconds=cell_seconds)
    settle(run.notebook, run.folder, run.home)
    lines = [run.error] if run.error else []
    if "No model server" in run.error and not _has_cassette(path, stored):
        lines.append(
            f"it has no cassette: {path.stem}.cassette is not there, and none of its cells names one (--record makes one)"
        )
    lines += [f"the cassette was not played to its end: {left}" for left in run.leftovers]
    if update and not lines:
        await asyncio.to_thread(store, path, run)
        return Replayed(path, (), run.seconds, updated=True)
    lines += differences(stored, run.notebook)
    files = _stored_files(stored)
    lines += file_differences(files, run.files, run.final) if files is not None else []
    return Replayed(path, tuple(lines), run.seconds, failed=bool(run.error))


def _has_cassette(path: Path, notebook: Any) -> bool:
    named = any("cassette" in cell.source for cell in notebook.cells if cell.cell_type == "code")
    return named or path.with_suffix(".cassette").is_file()


def store(path: Path, run: Rerun) -> None:
    """Write an executed notebook over the one at ``path``, in one rename, with the files that it changed."""
    import nbformat

    run.notebook.metadata["nbagent"] = {"replay": {"files": run.files}}
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            nbformat.write(run.notebook, file)
        Path(temporary).chmod(path.stat().st_mode & 0o777)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_junit(results: Sequence[Replayed], path: Path) -> None:
    """JUnit XML: one test case a notebook."""
    failures = sum(bool(r.lines) and not r.failed for r in results)
    errors = sum(r.failed for r in results)
    suite = ElementTree.Element(
        "testsuite",
        name="nbagent replay",
        tests=str(len(results)),
        failures=str(failures),
        errors=str(errors),
        time=f"{sum(r.seconds for r in results):.3f}",
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=result.path.parent.as_posix(),
            name=result.path.name,
            time=f"{result.seconds:.3f}",
        )
        if result.lines:
            kind = "error" if result.failed else "failure"
            first = result.lines[0]
            if first.startswith("cell ") and first.endswith(":"):
                first = f"differs from what is stored, first in {first[:-1]}"
            told = "\n".join(result.lines)
            ElementTree.SubElement(case, kind, message=_xml_text(first)).text = _xml_text(told)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _notebooks(paths: Sequence[Path]) -> Sequence[Path]:
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(sorted(path.glob("*.ipynb"))))
        elif path.suffix == ".ipynb":
            read_notebook(path)
            found[path] = None
        else:
            raise PersonError(f"{path} is no notebook: its name must end with .ipynb.")
    return list(found)


async def _all(
    paths: Sequence[Path], jobs: int, update: bool, cell_seconds: float, progress: _Progress
) -> list[Replayed]:
    slots = asyncio.Semaphore(jobs)

    async def one(path: Path) -> Replayed:
        async with slots:
            progress.begin(path)
            try:
                result = await replay_one(path, update=update, cell_seconds=cell_seconds)
            except PersonError as error:
                result = Replayed(path, (str(error),), 0.0, failed=True)
            progress.end(path)
            return result

    results = await asyncio.gather(*(one(path) for path in paths))
    progress.close()
    return list(results)


def _stored_files(notebook: Any) -> dict[str, str] | None:
    files = notebook.metadata.get("nbagent", {}).get("replay", {}).get("files")
    return dict(files) if isinstance(files, dict) else None


def _tell(result: Replayed, out: TextIO) -> None:
    word = "failed" if result.failed else "differs" if result.lines else "stored" if result.updated else "as stored"
    out.write(f"{result.path}: {word} ({result.seconds:.1f} s)\n")
    out.writelines(f"    {line}\n" for text in result.lines for line in text.splitlines())


def _xml_text(text: str) -> str:
    """Without characters that XML cannot hold."""
    return "".join(
        c for c in text if c in "\t\n" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE or ord(c) > 0xFFFF
    )


class _Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._done = 0
        self._running: list[str] = []
        self._stream = stream
        self._shown = stream.isatty()

    def begin(self, path: Path) -> None:
        self._running.append(path.name)
        self._draw()

    def end(self, path: Path) -> None:
        self._running.remove(path.name)
        self._done += 1
        self._draw()

    def close(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if not self._shown:
            return
        filled = 24 * self._done // self._total
        bar = "█" * filled + "·" * (24 - filled)
        self._stream.write(f"\r\x1b[K{bar} {self._done}/{self._total}  {', '.join(self._running)[:48]}")
        self._stream.flush()
