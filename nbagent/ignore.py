"""What git would not look at: ignore files, the files git tracks all the same, and folders that programs make for themselves.

No git is run and nothing of a repository is executed; its files are only read. Paths are relative with ``/``.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj", ".bzr"})
MADE_BY_PROGRAMS = (
    "__pycache__/",
    "node_modules/",
    ".ipynb_checkpoints/",
    ".venv/",
    ".tox/",
    ".nox/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".DS_Store",
)
MARKERS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
"""A folder that holds one of these names was made by a program and can be made again."""

MAX_RULES_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Level:
    """The lines of one ignore file, for paths below ``base`` ("" or ends in ``/``)."""

    base: str
    folders: re.Pattern[str] | None
    files: re.Pattern[str] | None
    kept: tuple[frozenset[int], frozenset[int]]
    by_name: bool

    def verdict(self, path: str, name: str, folder: bool) -> bool | None:
        """True ignored, False taken back with ``!``, None nothing said."""
        pattern = self.folders if folder else self.files
        if pattern is None:
            return None
        found = pattern.fullmatch(name if self.by_name else path[len(self.base) :])
        return None if found is None else found.lastindex not in self.kept[0 if folder else 1]


@dataclass(frozen=True, slots=True)
class Rules:
    """Ignore files from the weakest to the strongest. ``ignored`` is about one step: a folder above must have been asked first."""

    levels: tuple[Level, ...] = ()

    def ignored(self, path: str, name: str, folder: bool) -> bool:
        """Whether ``path`` (its last step being ``name``) is left out."""
        for level in reversed(self.levels):
            verdict = level.verdict(path, name, folder)
            if verdict is not None:
                return verdict
        return False

    def below(self, base: str, text: str) -> Rules:
        """With one more ignore file, which stands in ``base``."""
        level = parse(base, text)
        return Rules((*self.levels, level)) if level.folders is not None else self


@lru_cache(maxsize=1024)
def parse(base: str, text: str) -> Level:
    """One ignore file. Lines that mean nothing are left out, as git does."""
    lines = [line for line in (_line(raw) for raw in text.split("\n")) if line is not None]
    lines.reverse()  # the last line that matches decides, and the first alternative of a regular expression does
    by_name = all(line.by_name for line in lines)
    files = [line for line in lines if not line.folders_only]
    return Level(
        base,
        _either(lines, by_name),
        _either(files, by_name),
        (_kept(lines), _kept(files)),
        by_name,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    expression: str
    by_name: bool
    folders_only: bool
    keep: bool


def _either(lines: Iterable[_Line], by_name: bool) -> re.Pattern[str] | None:
    alternatives = [
        f"({line.expression if by_name or not line.by_name else '(?:.*/)?' + line.expression})" for line in lines
    ]
    return re.compile("|".join(alternatives), re.DOTALL) if alternatives else None


def _kept(lines: Iterable[_Line]) -> frozenset[int]:
    return frozenset(number for number, line in enumerate(lines, 1) if line.keep)


def _line(raw: str) -> _Line | None:
    text = raw.removesuffix("\r")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    keep = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    by_name = "/" not in text
    expression = _expression(text.removeprefix("/"))
    return None if not text or expression is None else _Line(expression, by_name, folders_only, keep)


def _expression(glob: str) -> str | None:
    """A regular expression without groups; None for a glob that can match nothing."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        piece, at = _piece(glob, at)
        if piece is None:
            return None
        out.append(piece)
    expression = "".join(out)
    try:
        re.compile(expression)
    except re.error:
        return None
    return expression


def _piece(glob: str, at: int) -> tuple[str | None, int]:
    if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
        return "(?:.*/)?", at + 3
    if glob.startswith("/**", at) and at + 3 == len(glob):
        return "/.+", at + 3
    if glob.startswith("/**/", at):
        return "/(?:.*/)?", at + 4
    sign = glob[at]
    if sign == "*":
        end = at
        while end < len(glob) and glob[end] == "*":
            end += 1
        return "[^/]*", end
    if sign == "?":
        return "[^/]", at + 1
    if sign == "[":
        return _set(glob, at)
    if sign == "\\":
        return (re.escape(glob[at + 1]), at + 2) if at + 1 < len(glob) else (None, at + 1)
    return re.escape(sign), at + 1


CLASSES = {  # of ``[[:alpha:]]``, as the inside of a set
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
}


def _set(glob: str, at: int) -> tuple[str | None, int]:
    """``[…]`` as git reads it; it never matches a slash."""
    begin = at + 1
    negated = glob[begin : begin + 1] in ("!", "^")
    here = begin + negated
    first = here
    inside: list[str] = []
    while here < len(glob) and (glob[here] != "]" or here == first):
        named = re.compile(r"\[:(\w+):\]").match(glob, here)
        if named:
            inside.append(CLASSES.get(named[1], ""))
            here = named.end()
            continue
        if glob[here] == "\\" and here + 1 < len(glob):
            here += 1
        ranged = glob[here] == "-" and here != first and glob[here + 1 : here + 2] not in ("", "]")
        inside.append("-" if ranged else re.escape(glob[here]))
        here += 1
    if here >= len(glob) or not "".join(inside):
        return None, here + 1
    return f"(?!/)[{'^' if negated else ''}{''.join(inside)}]", here + 1


# ── repositories ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Paths:
    """A set of files, and the folders on the way to them."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, files: Iterable[str]) -> Paths:
        whole = frozenset(files)
        folders: set[str] = set()
        for path in whole:
            end = path.rfind("/")
            while end > 0 and path[:end] not in folders:
                folders.add(path[:end])
                end = path.rfind("/", 0, end)
        return cls(whole, frozenset(folders))

    def __contains__(self, path: str) -> bool:
        return path in self.files or path in self.folders


def git_folder(top: Path) -> Path | None:
    """The folder where git keeps its own files for the work tree at ``top``; None when there is none."""
    git = top / ".git"
    try:
        if git.is_dir():
            return git
        pointer = _text(git)
    except OSError:
        return None
    if pointer is None or not pointer.startswith("gitdir:"):
        return None
    target = top / pointer.removeprefix("gitdir:").strip()
    return target if target.is_dir() else None


def repository(folder: Path) -> Path | None:
    """The top of the work tree that ``folder`` is in."""
    return next((each for each in (folder, *folder.parents) if git_folder(each) is not None), None)


def weakest(top: Path | None, base: str = "") -> Rules:
    """What is said outside the work tree: folders made by programs, the person's own ignore file, ``info/exclude`` of ``top``."""
    rules = Rules().below(base, "\n".join(MADE_BY_PROGRAMS))
    for path in (_own_ignore_file(), _exclude_file(top)):
        text = _text(path) if path is not None else None
        rules = rules.below(base, text) if text else rules
    return rules


def above(top: Path, folder: Path) -> Rules:
    """The rules that stand above ``folder`` in the work tree at ``top``; bases are relative to ``top``.

    When they leave ``folder`` itself out they are not used: the person chose it.
    """
    rules = weakest(top)
    here, base = top, ""
    for name in folder.relative_to(top).parts:
        text = _text(here / ".gitignore")
        rules = rules.below(base, text) if text else rules
        if rules.ignored(base + name, name, True):
            return weakest(None)
        here, base = here / name, f"{base}{name}/"
    return rules


def tracked(top: Path) -> Paths:
    """The files that git tracks in the work tree at ``top``, ignored or not, from its index. Nothing when it cannot be read."""
    git = git_folder(top)
    if git is None:
        return Paths()
    index = git / "index"
    try:
        found = index.stat()
    except OSError:
        return Paths()
    if found.st_size > MAX_INDEX_BYTES:
        return Paths()
    return _tracked(str(index), str(git), (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))


@lru_cache(maxsize=8)
def _tracked(index: str, git: str, _state: tuple[int, ...]) -> Paths:
    try:
        data = Path(index).read_bytes()
        return Paths.of(index_names(data, 32 if _long_hashes(Path(git)) else 20))
    except (OSError, ValueError, IndexError, struct.error):
        return Paths()


def index_names(data: bytes, hash_size: int = 20) -> list[str]:
    """The paths in a git index (versions 2 to 4). Raises ``ValueError`` or ``struct.error`` for anything else."""
    if data[:4] != b"DIRC":
        raise ValueError("not a git index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4):
        raise ValueError(f"a git index of version {version}")
    names: list[str] = []
    at, name = 12, b""
    for _ in range(count):
        start = at
        (flags,) = struct.unpack_from(">H", data, at + 40 + hash_size)
        at += 42 + hash_size + (2 if flags & 0x4000 else 0)
        if version == 4:
            drop, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - drop] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        names.append(os.fsdecode(name).removesuffix("/"))
    return names


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1


def _long_hashes(git: Path) -> bool:
    text = _text(_common(git) / "config") or ""
    return re.search(r"^\s*objectformat\s*=\s*sha256\s*$", text, re.IGNORECASE | re.MULTILINE) is not None


def _common(git: Path) -> Path:
    """Where several work trees of one repository keep what they share."""
    pointer = _text(git / "commondir")
    return git / pointer.strip() if pointer else git


def _exclude_file(top: Path | None) -> Path | None:
    git = git_folder(top) if top is not None else None
    return None if git is None else _common(git) / "info" / "exclude"


def _own_ignore_file() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git"
    for config in (home / ".gitconfig", settings / "config"):
        found = re.search(
            r'^\s*excludesfile\s*=\s*"?([^"\n]+?)"?\s*$', _text(config) or "", re.IGNORECASE | re.MULTILINE
        )
        if found:
            return Path(found[1].replace("~", str(home), 1) if found[1].startswith("~/") else found[1])
    return settings / "ignore"


def _text(path: Path) -> str | None:
    """A small text file, or None. Never a device, which could make us wait."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_RULES_BYTES:
            return None
        return path.read_bytes().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    except OSError:
        return None
