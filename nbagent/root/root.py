"""The project root, and places in the file system as they really are."""

# This file works on descriptors, and on names that pathlib would tidy up.
# ruff: noqa: PTH100, PTH111, PTH118

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from nbagent.errors import RootError, ToolError
from nbagent.root.fault import plainly, refuse_spelling, said
from nbagent.root.handle import Handle, open_folder
from nbagent.root.resolve import Disk, resolve
from nbagent.root.windows import windows_pattern, windows_spelling


@dataclass(frozen=True, slots=True)
class Place:
    """One file or folder, existing or not.

    ``real``: absolute, links resolved (of the deepest existing ancestor). ``pattern``: what rules are matched against:
    relative to the root with ``/`` inside it (``.`` for the root), else absolute with ``/``. ``outside``: not under the
    root. ``spelled``: as the model wrote it. ``linked``: reached through a link (prompts show ``spelled → real``).
    """

    real: Path
    pattern: str
    outside: bool
    spelled: str
    linked: bool = False

    @property
    def shown(self) -> str:
        """For prompts: the pattern, with the spelling before it when a link leads elsewhere."""
        return f"{self.spelled} → {self.pattern}" if self.linked else self.pattern

    def open_parent(self, create: bool = False) -> Handle:
        """A handle on the parent folder, opened without following any link; with ``create`` missing folders are made.

        Raises ``ToolError`` when the folder is missing, is no folder, or became a link since the place was looked up.
        """
        parent = self.real.parent
        with plainly(self.pattern):
            descriptor = open_folder(str(parent), create)
        return Handle(descriptor, self.real.name, self.real, self.pattern)


class Root:
    """The folder that a session works in. Raises ``RootError`` for one that is missing or no folder, and for ``/``, the
    home folder or a drive root unless ``explicit``.

    It is resolved once and stays where it is: a later ``os.chdir`` does not move it. ``home``: what ``~`` stands for.
    """

    def __init__(self, path: Path, explicit: bool = False, home: Path | None = None, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self.explicit = explicit
        self.home = _home() if home is None else home
        self.path = self._settle(path)
        if not explicit:
            self._refuse_wide()

    def _settle(self, path: Path) -> Path:
        try:
            real, _ = resolve(os.path.abspath(os.path.expanduser(path)), self._disk)
            kind = self._disk.lstat(real).st_mode
        except FileNotFoundError:
            raise RootError(f"The project root {path} does not exist. Choose a folder with --root.") from None
        except (OSError, ToolError) as error:
            raise RootError(f"The project root {path} cannot be used: {error}. Choose another with --root.") from error
        if not stat.S_ISDIR(kind):
            raise RootError(f"The project root {path} is not a folder. Choose a folder with --root.")
        try:
            real.encode("utf-8")
        except UnicodeEncodeError:  # it can be neither stored nor told to a model
            raise RootError(
                f"The name of the project root {path} is not UTF-8, or this locale does not read it as such. "
                "Rename the folder, set PYTHONUTF8=1, or choose another with --root."
            ) from None
        return Path(real)

    def _refuse_wide(self) -> None:
        reason = ""
        if self.path == Path(self.path.anchor):
            reason = "the top of the file system" if os.name != "nt" else "the top of a drive"
        elif self.home != Path() and self.path == Path(os.path.realpath(self.home)):
            reason = "your home folder"
        if reason:
            raise RootError(
                f"The project root would be {self.path}, {reason}. "
                "Choose a project folder, or name this one with --root if you mean it."
            )

    def __repr__(self) -> str:
        return f"Root({str(self.path)!r})"

    def locate(self, spelled: str, base: Path | None = None) -> Place:
        """The place that ``spelled`` names; relative to ``base`` (absolute; the root when None). ``~`` is the home.

        Raises ``ToolError`` for a spelling that can name nothing: empty, NUL, not UTF-8, too long, links in a circle,
        a file used as a folder, a folder that may not be looked into.
        """
        refuse_spelling(spelled)
        start = self.path if base is None else base
        if os.name == "nt":  # pragma: no cover - the pure part is tested everywhere
            absolute = str(windows_spelling(_expand_home(spelled, self.home), PureWindowsPath(start)))
        else:
            absolute = os.path.join(start, _expand_home(spelled, self.home))
        try:
            real, linked = resolve(absolute, self._disk)
        except OSError as error:
            raise said(error, spelled) from error
        refuse_spelling(real)
        pattern, outside = self.pattern(Path(real))
        return Place(Path(real), pattern, outside, spelled, linked)

    def locate_link(self, spelled: str, base: Path | None = None) -> Place | None:
        """The link that ``spelled`` ends in, by its own name and not by where it leads; None when its last step is no link.

        What removes or renames a link acts on this. Raises ``ToolError`` as ``locate`` does.
        """
        head, slash, name = spelled.rpartition("/")
        if name in ("", ".", ".."):
            return None
        real = self.locate(head or slash or ".", base).real / name
        if not real.is_symlink():
            return None
        pattern, outside = self.pattern(real)
        return Place(real, pattern, outside, spelled)

    def pattern(self, real: Path) -> tuple[str, bool]:
        """What rules see of a real path, and whether it is outside the root."""
        if os.name == "nt":  # pragma: no cover
            return windows_pattern(PureWindowsPath(real), PureWindowsPath(self.path))
        if real == self.path:
            return ".", False
        if real.is_relative_to(self.path):
            return real.relative_to(self.path).as_posix(), False
        return real.as_posix(), True


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path()


def _expand_home(spelled: str, home: Path) -> str:
    head, slash, rest = spelled.partition("/")
    if not head.startswith("~") or home == Path():
        return spelled
    if head == "~":
        return f"{home}{slash}{rest}"
    expanded = os.path.expanduser(head)
    return f"{expanded}{slash}{rest}"
