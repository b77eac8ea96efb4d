"""Which places a confined process may read: the system, this Python, the project, what was asked for; never a secret.

Inside, places are strings, not ``Path``: this runs before every confined command, over some hundreds of them.
"""

# ruff: noqa: PTH110, PTH112, PTH113, PTH114, PTH117, PTH118

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from nbagent.sandbox.wall import Confinement


def secret_places(home: Path) -> tuple[Path, ...]:
    """Where keys, tokens, passwords, browser profiles, histories and nbagent's own data lie: under ``home`` and in the system.
    Whether they exist is not looked at."""
    return tuple(Path(name) for name in _listed("secret_places.txt", str(home)))


def readable_places(confinement: Confinement, environment: Mapping[str, str], home: Path) -> list[str]:
    """Real paths that exist and may be read, none inside another, secrets not yet taken out."""
    wanted = list(_listed("readable_places.txt", str(home)))
    wanted += python_places(environment, home)
    wanted += [str(confinement.root), *map(str, confinement.readable), *git_places(confinement.root, home)]
    return outermost(place for place in map(os.path.realpath, wanted) if os.path.exists(place))


def hidden_places(confinement: Confinement, home: Path) -> list[str]:
    """What must not be read, as spelled and where links lead, none inside another."""
    return existing_places([*_listed("secret_places.txt", str(home)), *map(str, confinement.hidden)])


def existing_places(spelled: Iterable[str]) -> list[str]:
    """Those that exist, as spelled and where links lead, none inside another."""
    existing = [place for place in spelled if os.path.lexists(place)]
    return outermost([*map(os.path.realpath, existing), *map(_in_real_folder, existing)])


@lru_cache(maxsize=8)
def _listed(name: str, home: str) -> tuple[str, ...]:
    """The lines of a list beside this file, ``~`` replaced."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(home.rstrip("/") + line[1:] if line.startswith("~/") else line for line in lines)


def python_places(environment: Mapping[str, str], home: Path) -> list[str]:
    """What this Python, and the one of the child's environment, are made of. The home folder and what lies above it never is."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, site.getusersitepackages()]
    found += [environment.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "PYTHONHOME")]
    found += environment.get("PYTHONPATH", "").split(os.pathsep)
    for folder in environment.get("PATH", "").split(os.pathsep):
        found += [folder, *_beside(folder)]
    real_home = os.path.realpath(home)
    return [
        name for name in dict.fromkeys(found) if os.path.isabs(name) and not within(real_home, os.path.realpath(name))
    ]


@lru_cache(maxsize=256)
def _beside(folder: str) -> tuple[str, ...]:
    """The installation that a ``bin`` folder on the search path belongs to."""
    parent = Path(folder).parent
    if Path(folder).name not in {"bin", "sbin"} or parent.name == ".local":
        return ()
    marks = ("lib", "pyvenv.cfg", "conda-meta")
    return (str(parent),) if any(os.path.exists(parent / name) for name in marks) else ()


def git_places(root: Path, home: Path) -> list[str]:
    """Where the project's history is, when that is not inside ``root``: in a folder above (not in the home folder itself), or in the
    main checkout of a worktree, which must point back."""
    real = Path(os.path.realpath(root))
    stop = os.path.realpath(home)
    for folder in (real, *real.parents):
        if within(stop, str(folder)):
            return []
        entry = folder / ".git"
        if os.path.isdir(entry) and not os.path.islink(entry):
            return [str(entry)] if folder != real else []
        if os.path.isfile(entry):
            return [*([str(entry)] if folder != real else []), *_worktree(entry)]
    return []


def _worktree(entry: Path) -> list[str]:
    """The folders that a ``.git`` file leads to. The file is not believed: what it names must say that it belongs here."""
    try:
        named = entry.read_text(encoding="utf-8", errors="surrogateescape")[:4096].strip().removeprefix("gitdir: ")
        own = Path(os.path.realpath(entry.parent / named))
        back = (own / "gitdir").read_text(encoding="utf-8", errors="surrogateescape").strip()
        common = Path(os.path.realpath(own / (own / "commondir").read_text(encoding="utf-8").strip()))
    except (OSError, ValueError):
        return []
    belongs = os.path.realpath(own / back) == os.path.realpath(entry) and own.parent == common / "worktrees"
    whole = os.path.isfile(common / "HEAD") and os.path.isdir(common / "objects")
    return [str(common)] if belongs and whole else []


def _in_real_folder(place: str) -> str:
    """The place itself when it is a link: its folder resolved, its name kept."""
    folder, name = os.path.split(place)
    return os.path.join(os.path.realpath(folder), name)


def within(place: str, folder: str) -> bool:
    """Whether ``place`` is ``folder`` or lies in it. Both are absolute."""
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def outermost(places: Iterable[str]) -> list[str]:
    """Without those that lie inside another."""
    kept: list[str] = []
    for place in sorted(set(places), key=lambda place: place.split("/")):
        if not kept or not within(place, kept[-1]):
            kept.append(place)
    return kept


def without(places: Iterable[str], hidden: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """``places`` minus ``hidden``, as (path, whole). Not ``whole``: a folder that holds something hidden: it may be listed, and what
    else is in it comes by itself. Links inside such a folder are left out: they would lead elsewhere."""
    secrets = list(hidden)
    for place in places:
        if not any(within(place, secret) for secret in secrets):
            yield from _split(place, secrets)


def _split(place: str, secrets: list[str]) -> Iterator[tuple[str, bool]]:
    head = place.rstrip("/") + "/"
    inside = [secret for secret in secrets if secret.startswith(head)]
    yield place, not inside
    if not inside:
        return
    try:
        with os.scandir(place) as entries:
            names = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    gone = set(inside)
    for name in names:
        if name not in gone:
            yield from _split(name, inside)
