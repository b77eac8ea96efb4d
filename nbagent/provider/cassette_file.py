"""Cassettes on disk: found by name, read in either form, checked, written."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from nbagent.errors import CassetteError, ConfigError
from nbagent.provider.cassette import Cassette, Problem
from nbagent.provider.cassette_lines import dump, read_lines
from nbagent.provider.short_form import parse


def find(name: str, *folders: Path) -> Path:
    """The file that ``name`` means: a path (relative to the first folder that has it) or a cassette that comes with nbagent
    (``demo``). Raises ``ConfigError``."""
    for folder in (Path(), *folders):
        path = (folder / Path(name).expanduser()).absolute()
        if path.is_file():
            return path
    bundled = walkthroughs() / f"{name}.cassette"
    if re.fullmatch(r"[\w-]+", name) and bundled.is_file():
        return bundled
    raise ConfigError(f"There is no cassette {name!r}: no such file, and none of that name comes with nbagent.")


def walkthroughs() -> Path:
    """The folder with the notebooks, projects and cassettes that come with nbagent."""
    package = Path(str(files("nbagent")))
    installed = package / "walkthroughs"
    return installed if installed.is_dir() else package.parent / "notebooks"


def load(source: Path | str) -> Cassette:
    """Read a cassette from a path, or from its text (a string with a line break). Raises ``CassetteError`` with the line."""
    text, origin = _text_of(source)
    cassette, problems = (None, [text]) if isinstance(text, Problem) else read(text)
    if cassette is None or problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        first = problems[0]
        raise CassetteError(f"The cassette {origin} cannot be played: line {first.line}: {first.text}{more}.")
    return replace(cassette, origin=origin)


def check(text: str) -> list[Problem]:
    """What is wrong with a cassette's text, in the order of its lines; empty when it can be played."""
    return read(text)[1]


def read(text: str) -> tuple[Cassette | None, list[Problem]]:
    """The cassette in ``text`` (either form) and what is wrong with it."""
    if not text.strip():
        return None, [Problem(1, "it is empty")]
    if not text.lstrip().startswith("{"):
        return parse(text)
    return read_lines(text)


def check_file(path: Path | str) -> list[Problem]:
    """What is wrong with the cassette at ``path``. Raises ``CassetteError`` when it cannot be read."""
    text, _ = _text_of(Path(path))
    return [text] if isinstance(text, Problem) else check(text)


def write(cassette: Cassette, path: Path) -> None:
    """Write as JSON Lines in one rename."""
    data = "".join(line + "\n" for line in dump(cassette)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _text_of(source: Path | str) -> tuple[str | Problem, str]:
    """The text and the file's name; a problem in place of the text where it is none."""
    if isinstance(source, str) and "\n" in source:
        return source, "text"
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CassetteError(f"The cassette {path} cannot be read: {error.strerror or error}.") from None
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), path.name
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Problem(line, "this is not UTF-8 text; save the file as UTF-8"), path.name
