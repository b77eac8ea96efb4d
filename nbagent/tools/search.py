"""A search through the contents of files: ripgrep where it is there, else Python, with the same results.

Both walk the same files, take the newest first, leave out binary files and look into notebooks cell by cell.
"""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from nbagent.errors import ToolError
from nbagent.tools.cells import notebook_lines
from nbagent.tools.child import Said, python_argv, run
from nbagent.tools.filelist import WALK, list_files, newest_first, not_ignored, split_names, walked
from nbagent.tools.pattern import path_matcher
from nbagent.tools.regex import in_python
from nbagent.tools.textfile import looks_binary
from nbagent.tools.tool import in_thread
from nbagent.whole import whole_text

A = TypeVar("A")
B = TypeVar("B")

MAX_PATTERN = 20_000
MATCHING = ("--text", "--crlf", "--no-messages", "--color=never")


@dataclass(frozen=True, slots=True)
class Hunt:
    """What is looked for. ``only``: one file of ``folder``, else all below it whose name matches the glob ``include``.

    ``guard``: gives those of some paths that must be left out, ``marks``: see ``Sieve.marks``. ``top``: see ``walk.ignore_top``.
    """

    pattern: str
    folder: Path
    top: Path
    only: str
    include: str
    guard: Callable[[Sequence[str]], set[str]]
    marks: tuple[str, ...]
    limit: int
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class LineMatch:
    """``place``: a line number, or ``cell ID line 3`` in a notebook; ``column``: characters before the match."""

    path: str
    place: str
    column: int
    line: str


@dataclass(frozen=True, slots=True)
class Found:
    """``more``: there are matches beyond the limit. ``guarded``: files that were left out, whatever is in them."""

    matches: tuple[LineMatch, ...]
    more: bool
    guarded: int


class PatternProblem(Exception):
    """ripgrep cannot use this pattern; the text is its reason."""


async def search(hunt: Hunt, ripgrep: str) -> Found:
    """Matches by file, the newest file first. Raises ``ToolError`` for a pattern that is none."""
    if "\n" in hunt.pattern:
        raise ToolError("The pattern has a line break, but lines are matched one by one. Search for one line of it.")
    if "\0" in hunt.pattern:
        raise ToolError("The pattern has a NUL character, which no text file has. Search for the text around it.")
    if len(hunt.pattern) > MAX_PATTERN:
        raise ToolError(
            f"The pattern has {len(hunt.pattern):,} characters; at most {MAX_PATTERN:,} can be searched for."
        )
    hunt = replace(hunt, pattern=_by_line(whole_text(hunt.pattern)))
    problem = ""
    if ripgrep:
        try:
            return await _by_ripgrep(hunt, ripgrep)
        except PatternProblem as error:
            problem = str(error)
    return await _by_python(hunt, problem)


def _included(hunt: Hunt, names: list[str]) -> list[str]:
    if not hunt.include:
        return names
    wanted = path_matcher(hunt.include)
    return [name for name in names if wanted(name)]


async def includes(hunt: Hunt, ripgrep: str) -> bool:
    """Whether any file has a name that ``include`` wants."""
    return bool(_included(hunt, await list_files(hunt.folder, hunt.top, ripgrep, hunt.environment)))


def _settle(hunt: Hunt, names: list[str]) -> tuple[list[str], int]:
    """What to search of ``names``, the newest first, and how many of them are guarded."""
    if hunt.only:
        return names, 0
    included = _included(hunt, names)
    guarded = hunt.guard(included)
    return newest_first(hunt.folder, [name for name in included if name not in guarded]), len(guarded)


def _by_line(pattern: str) -> str:
    """The ends of the text, in a search by line, are those of the line."""
    ends = re.sub(r"(?<!\\)((?:\\\\)*)\\[zZ]", r"\1$", pattern)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\A", r"\1^", ends)


# With ripgrep: all matching lines when they are not many, else which files match and then the lines of the newest of them.

Known = dict[str, list["LineMatch"]]
MOST = 512 * 1024


async def _by_ripgrep(hunt: Hunt, ripgrep: str) -> Found:
    known: Known | None = None
    ordered, guarded = [hunt.only], 0
    if not hunt.only:
        (names, known), (notebooks, guarded) = await _both(_matching(hunt, ripgrep), _beside(hunt))
        if _PLAIN.fullmatch(hunt.pattern):
            notebooks = [name for name in names if name.endswith(".ipynb")]
        found = [*(name for name in names if not name.endswith(".ipynb")), *notebooks]
        ordered, _ = await in_thread(lambda: _settle(hunt, found))
    matches: list[LineMatch] = []
    at, size = 0, hunt.limit + 1
    while at < len(ordered) and len(matches) <= hunt.limit:
        matches += await _lines_of(hunt, ripgrep, ordered[at : at + size], known)
        at, size = at + size, size * 2
    return Found(tuple(matches[: hunt.limit]), len(matches) > hunt.limit, guarded)


async def _both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Both at once; when one fails the other is stopped."""
    try:
        async with asyncio.TaskGroup() as group:
            one, other = group.create_task(first), group.create_task(second)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return one.result(), other.result()


async def _beside(hunt: Hunt) -> tuple[list[str], int]:
    """By their names alone: the notebooks, and how many files are left out. Whether those match is nobody's business.

    Few names are wanted, so a walk in Python takes less of the processors from ripgrep, which searches meanwhile, than a second one.
    """
    plain = _PLAIN.fullmatch(hunt.pattern)
    wanted = hunt.marks if plain else (*hunt.marks, ".ipynb")
    if not wanted:
        return [], 0
    names = _included(hunt, await walked(hunt.folder, hunt.top, wanted))
    return [name for name in names if name.endswith(".ipynb")], len(hunt.guard(names))


_SIMPLE_INCLUDE = re.compile(r"\*\.[A-Za-z0-9_]+|\*\.\{[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*\}")
# A pattern of these characters stands in a notebook's JSON just as it does in the cell.
_PLAIN = re.compile(r"[A-Za-z0-9_ ,:;=<>@#%&!~-]+")


async def _matching(hunt: Hunt, ripgrep: str) -> tuple[list[str], Known | None]:
    """The files that match, and their lines when these are not too many."""
    chosen: list[str] = []
    if _SIMPLE_INCLUDE.fullmatch(hunt.include):
        # A type, not a glob: a glob would bring back files that git ignores.
        chosen = [f"--type-add=wanted:{hunt.include}", "--type=wanted"]
    argv = [*_line_argv(hunt, ripgrep), *WALK, *chosen, "--with-filename", "--null", "--", "./"]
    said = await run(argv, cwd=hunt.folder, environment=hunt.environment, most=MOST)
    if not said.cut:
        known = await in_thread(lambda: _rows(said))
        return not_ignored(list(known), hunt.folder, hunt.top), known
    argv = [
        ripgrep,
        "--no-config",
        *WALK,
        *MATCHING,
        *chosen,
        "--files-with-matches",
        "--null",
        "-e",
        hunt.pattern,
        "--",
        "./",
    ]
    said = await run(argv, cwd=hunt.folder, environment=hunt.environment)
    return await in_thread(lambda: not_ignored(split_names(said.out), hunt.folder, hunt.top)), None


async def _lines_of(hunt: Hunt, ripgrep: str, paths: list[str], known: Known | None) -> list[LineMatch]:
    notebooks = [path for path in paths if path.endswith(".ipynb")]
    texts = await in_thread(lambda: [p for p in paths if not p.endswith(".ipynb") and not _binary(hunt.folder, p)])
    by_path = (
        {path: known.get(path, []) for path in texts} if known is not None else await _text_lines(hunt, ripgrep, texts)
    )
    for match in await _cell_lines(hunt, ripgrep, notebooks):
        by_path.setdefault(match.path, []).append(match)
    return [match for path in paths for match in by_path.get(path, ())]


def _binary(folder: Path, path: str) -> bool:
    try:
        with (folder / path).open("rb") as file:
            head = file.read(8192)
    except OSError:
        return True
    return b"\0" in head and looks_binary(head)


async def _text_lines(hunt: Hunt, ripgrep: str, paths: list[str]) -> Known:
    if not paths:
        return {}
    argv = [*_line_argv(hunt, ripgrep), "--with-filename", "--null", "--", *(f"./{path}" for path in paths)]
    return _rows(await run(argv, cwd=hunt.folder, environment=hunt.environment))


# A name may hold anything but NUL, a line anything but its break.
_ROW = re.compile(rb"([^\0]+)\0(\d+):(\d+):([^\n]*)\n")


def _rows(said: Said) -> Known:
    """The lines that ripgrep printed, by file. Raises ``PatternProblem``."""
    if said.code == 2 and said.error.strip():
        raise PatternProblem(said.error)
    found: Known = {}
    for name, number, column, line in _ROW.findall(said.out):
        path = split_names(name)[0]
        found.setdefault(path, []).append(_match(path, number.decode(), int(column), line))
    return found


async def _cell_lines(hunt: Hunt, ripgrep: str, paths: list[str]) -> list[LineMatch]:
    """Matches in notebooks: all their lines as one text for ripgrep, and its line numbers back to cells."""
    if not paths:
        return []
    places: list[tuple[str, str]] = []
    lines: list[str] = []

    def gather() -> bytes:
        for path in paths:
            for place, line in notebook_lines(str(hunt.folder / path)):
                places.append((path, place))
                lines.append(line)
        return "\n".join([*lines, ""]).encode("utf-8", "replace")

    given = await in_thread(gather)
    argv = [*_line_argv(hunt, ripgrep, len(paths)), "--no-filename", "--", "-"]
    said = await run(argv, cwd=hunt.folder, environment=hunt.environment, given=given)
    if said.code == 2 and said.error.strip():
        raise PatternProblem(said.error)
    matches = []
    for raw in said.out.split(b"\n")[:-1]:
        number, column, line = raw.split(b":", 2)
        path, place = places[int(number) - 1]
        matches.append(_match(path, place, int(column), line))
    return matches


def _line_argv(hunt: Hunt, ripgrep: str, files: int = 1) -> list[str]:
    return [
        ripgrep,
        "--no-config",
        *MATCHING,
        "--no-heading",
        "--line-number",
        "--column",
        f"--max-count={(hunt.limit + 1) * files}",
        "--max-columns=40000",
        "--max-columns-preview",
        "-e",
        hunt.pattern,
    ]


def _match(path: str, place: str, column: int, line: bytes) -> LineMatch:
    before = len(line[: column - 1].decode("utf-8", "replace"))
    return LineMatch(path, place, before, line.decode("utf-8", "replace").removesuffix("\r"))


# With Python: a child process looks at the files, the newest first, and stops when there is enough.


async def _by_python(hunt: Hunt, problem: str = "") -> Found:
    pattern = _python_pattern(hunt.pattern, problem)
    paths = [hunt.only] if hunt.only else await list_files(hunt.folder, hunt.top, "", hunt.environment)
    ordered, guarded = await in_thread(lambda: _settle(hunt, paths))
    job = {"pattern": pattern, "folder": str(hunt.folder), "files": ordered, "limit": hunt.limit}
    said = await run(
        python_argv("nbagent.tools.scan"),
        cwd=hunt.folder,
        environment=hunt.environment,
        given=json.dumps(job).encode("ascii"),
    )
    if said.code != 0:
        raise ToolError(f"The search failed: {said.error.strip()[-300:]}")
    rows = [json.loads(line) for line in said.out.splitlines()]
    matches = tuple(LineMatch(*row) for row in rows if row)
    return Found(matches, [] in rows, guarded)


def _python_pattern(pattern: str, problem: str) -> str:
    """The pattern as Python spells it. Raises ``ToolError`` with the reason when it is no pattern."""
    spelled = in_python(pattern, bool(problem))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(spelled)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(_bad_pattern(pattern, str(error))) from None
    if problem and r'"\n" is not allowed' in problem:
        raise ToolError(
            "The pattern asks for a line break, but lines are matched one by one. Search for one line of it."
        )
    return spelled


def _bad_pattern(pattern: str, reason: str) -> str:
    return (
        f"{pattern[:200]!r} is not a regular expression: {reason}. "
        "Put a backslash before ( ) [ ] { } . * + ? | ^ $ where they are meant as themselves."
    )
