"""Windows spellings of paths, as pure functions."""

from __future__ import annotations

from pathlib import PureWindowsPath

from nbagent.errors import ToolError

_RESERVED = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
    + [f"{stem}{n}" for stem in ("COM", "LPT") for n in "0123456789¹²³"]
)


def windows_spelling(spelled: str, base: PureWindowsPath) -> PureWindowsPath:
    """An absolute path for a Windows spelling, by the rules that Windows itself applies.

    Verbatim prefixes (``\\\\?\\``) are taken off, trailing dots and spaces of each name dropped, ``..`` folded. Raises
    ``ToolError`` for what names no file of its own: devices, reserved names, streams (``a.txt:s``), ``C:name``.
    """
    text = spelled.replace("/", "\\")
    if text.startswith("\\\\?\\UNC\\"):
        text = "\\\\" + text[8:]
    elif text.startswith("\\\\?\\") and text[5:6] == ":":
        text = text[4:]
    elif text.startswith(("\\\\?\\", "\\\\.\\", "\\??\\")):
        raise ToolError(f"{spelled} names a device, not a file.")
    path = PureWindowsPath(text)
    if path.drive and not path.root:
        raise ToolError(f"{spelled} depends on the current folder of a drive. Write the whole path.")
    if ":" in text[2:]:
        raise ToolError(f"{spelled} names an alternate stream of a file. Name the file itself.")
    if not path.is_absolute():
        path = base / path
    names: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            names = names[:-1]
        else:
            names.append(_windows_name(part, spelled))
    whole = PureWindowsPath(path.anchor, *names)
    if not whole.is_absolute():
        raise ToolError(f"{spelled} is no path of a file.")
    return whole


def _windows_name(part: str, spelled: str) -> str:
    if ":" in part:
        raise ToolError(f"{spelled} names an alternate stream of a file. Name the file itself.")
    name = part.rstrip(". ")
    if not name or name.split(".")[0].rstrip(" ").upper() in _RESERVED:
        raise ToolError(f"{spelled} is a name that Windows keeps for itself. Choose another.")
    return name


def windows_pattern(real: PureWindowsPath, root: PureWindowsPath) -> tuple[str, bool]:
    """What rules see of a Windows path (``/`` between names), and whether it is outside ``root``, whatever the case."""
    if real == root:
        return ".", False
    if real.is_relative_to(root):
        return real.relative_to(root).as_posix(), False
    return real.as_posix(), True
