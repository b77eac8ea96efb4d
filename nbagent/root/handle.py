"""Acting on a file through its opened folder, so that nothing is looked up twice."""

# This file works on descriptors, and on names that pathlib would tidy up.
# ruff: noqa: PTH102, PTH103, PTH104, PTH105, PTH112, PTH116, PTH208

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from nbagent.errors import ToolError
from nbagent.root.fault import plainly, refuse_odd, said

# Only the last step needs to be readable; the folders on the way need no more than search permission.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_PATIENT = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_BY_HANDLE = os.open in os.supports_dir_fd


class Handle:
    """An opened parent folder and one name in it. Everything acts on that object: no path is looked up again.

    Close it (context manager). Methods raise ``ToolError`` with a plain sentence (a directory, a FIFO, a device, a link
    in the last step, vanished, no permission, no space).
    """

    def __init__(self, descriptor: int, name: str, real: Path, shown: str) -> None:
        self._descriptor = descriptor
        self.name = name or "."
        self.real = real
        self.shown = shown

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _at(self, name: str) -> tuple[str, dict[str, Any]]:
        if _BY_HANDLE:
            if self._descriptor < 0:
                raise ValueError(f"the handle on {self.shown} is closed")
            return name, {"dir_fd": self._descriptor}
        parent = str(self.real.parent)
        if os.path.realpath(parent) != parent:
            raise ToolError(f"{self.shown}: a folder on the way to it became a link; nothing was done")
        return str(self.real.parent / name), {}

    def stat(self) -> os.stat_result:
        """Of the thing itself, a link not followed. Raises ``ToolError`` when it is not there."""
        name, at = self._at(self.name)
        with plainly(self.shown):
            return os.stat(name, follow_symlinks=False, **at)

    def exists(self) -> bool:
        """Whether the name is taken, by whatever (a dangling link too)."""
        name, at = self._at(self.name)
        try:
            os.stat(name, follow_symlinks=False, **at)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise said(error, self.shown) from error
        return True

    @property
    def links(self) -> int:
        """How many names the file has (hard links); 0 when it is not there."""
        return self.stat().st_nlink if self.exists() else 0

    def open_read(self) -> BinaryIO:
        """The file, open for reading from its start. Only a regular file: nothing here can block or ring a device."""
        refuse_odd(self.stat(), self.shown)
        name, at = self._at(self.name)
        with plainly(self.shown):
            descriptor = os.open(name, os.O_RDONLY | _PATIENT | _BINARY, **at)
        try:
            refuse_odd(os.fstat(descriptor), self.shown)
        except BaseException:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    def read_bytes(self, limit: int | None = None) -> bytes:
        """The whole file, or its first ``limit`` bytes."""
        with self.open_read() as file, plainly(self.shown):
            return file.read(-1 if limit is None else limit)

    def write_bytes(self, data: bytes, like: os.stat_result | None = None, *, new: bool = False) -> None:
        """Whole file in one rename; keeps the mode of a file that was there, else takes that of ``like``.

        Another name of that file (a hard link) keeps the old text. ``new``: only where nothing has the name yet, up to the last
        moment; else a ``ToolError``, and what is there stays.
        """
        before = self.stat() if self.exists() else None
        if before is not None:
            refuse_odd(before, self.shown)
            name, at = self._at(self.name)
            if not os.access(name, os.W_OK, **at):
                raise ToolError(f"{self.shown} is read-only (its mode or its owner forbids writing).")
        temporary = f".{self.name[:64]}.{secrets.token_hex(8)}.tmp"
        with plainly(self.shown):
            self._write_new(temporary, data, before or like)
            self._take_place(temporary, new)

    def _write_new(self, temporary: str, data: bytes, before: os.stat_result | None) -> None:
        name, at = self._at(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(name, flags, 0o666 if before is None else 0o600, **at)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _keep_owner_and_mode(descriptor, before)
                os.fsync(descriptor)
        except BaseException:
            self._drop(temporary)
            raise

    def _take_place(self, temporary: str, new: bool = False) -> None:
        source, at = self._at(temporary)
        target, _ = self._at(self.name)
        try:
            if new:
                self._take_free_place(source, target)
            elif at:
                os.replace(source, target, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            else:
                os.replace(source, target)
        except BaseException:
            self._drop(temporary)
            raise
        self._sync()

    def _take_free_place(self, source: str, target: str) -> None:
        """Rename unless the name is taken. Where neither the kernel nor the file system can do that in one act, look, then rename."""
        if not _BY_HANDLE:  # pragma: no cover - Windows: its rename takes no name that is taken
            os.rename(source, target)
            return
        folder = self._descriptor
        if _rename_to_free(folder, source, target):
            return
        try:
            os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links, or one that may make none
            if self.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
            os.replace(source, target, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(source, dir_fd=folder)

    def _drop(self, temporary: str) -> None:
        name, at = self._at(temporary)
        try:
            os.unlink(name, **at)
        except OSError:
            pass

    def _sync(self) -> None:
        """Make the rename durable where the platform can; a file system that cannot is no reason to fail."""
        if not _BY_HANDLE:
            return
        try:
            descriptor = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=self._descriptor)
        except OSError:
            return
        try:
            os.fsync(descriptor)
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def unlink(self) -> None:
        """Remove a regular file (never a folder, a link or a device)."""
        refuse_odd(self.stat(), self.shown)
        name, at = self._at(self.name)
        with plainly(self.shown):
            os.unlink(name, **at)

    def mkdir(self) -> None:
        """Make the folder; one that is there already is fine."""
        name, at = self._at(self.name)
        try:
            with plainly(self.shown):
                os.mkdir(name, 0o777, **at)
        except ToolError:
            if not (self.exists() and stat.S_ISDIR(self.stat().st_mode)):
                raise

    def listdir(self) -> list[str]:
        """Names in the folder, sorted. Names that are not UTF-8 come with surrogate escapes."""
        name, at = self._at(self.name)
        with plainly(self.shown):
            if not at:
                return sorted(os.listdir(name))
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _PATIENT, **at)
            try:
                return sorted(os.listdir(descriptor))
            finally:
                os.close(descriptor)


def _keep_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    if not hasattr(os, "fchmod"):  # pragma: no cover - Windows keeps neither
        return
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(descriptor, before.st_uid, before.st_gid)
        except OSError:
            pass
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def open_folder(path: str, create: bool) -> int:
    """A descriptor of the folder, by a chain in which no step is a link. Raises ``OSError``."""
    if not _BY_HANDLE:  # pragma: no cover - Windows: the handle looks again before each act
        if create:
            os.makedirs(path, exist_ok=True)
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return -1
    if sys.platform == "linux":
        descriptor = _open_in_one(path)
        if descriptor is not None:
            return descriptor
    return walk(path, create)


def _open_in_one(path: str) -> int | None:
    """``openat2`` with no link anywhere; None where the kernel has no such call or the folder is not (yet) there."""
    opener = _openat2()
    return None if opener is None else opener(path)


@cache
def _openat2() -> Any:
    import ctypes

    class How(ctypes.Structure):
        _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]

    number, no_links, here = 437, 0x02 | 0x04, -100
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    how = How(_FOLDER, 0, no_links)

    def opener(path: str) -> int | None:
        result = call(
            ctypes.c_long(number),
            ctypes.c_long(here),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        # Whatever went wrong, the walk meets it again and says it step by step.
        return int(result) if result >= 0 else None

    return opener


def _rename_to_free(folder: int, source: str, target: str) -> bool:
    """``renameat2`` that takes no name that is taken (``FileExistsError``); False where there is no such call."""
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(source), folder, os.fsencode(target), 1) == 0:
        return True
    import ctypes

    error = ctypes.get_errno()
    if error in (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP):
        return False
    raise OSError(error, os.strerror(error), target)


@cache
def _renameat2() -> Any:
    if sys.platform != "linux":
        return None
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return call


def walk(path: str, create: bool) -> int:
    current = os.open("/", _FOLDER)
    for part in path.split("/"):
        if not part:
            continue
        try:
            following = _step(current, part, create)
        finally:
            os.close(current)
        current = following
    return current


def _step(folder: int, name: str, create: bool) -> int:
    try:
        return os.open(name, _FOLDER | _NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    try:
        os.mkdir(name, 0o777, dir_fd=folder)
    except FileExistsError:
        pass
    return os.open(name, _FOLDER | _NOFOLLOW, dir_fd=folder)
