"""What a tool said, cut to what a model should read. The whole goes to a file that can be read in pieces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

MAX_LINES = 2_000
MAX_BYTES = 50 * 1024


def cut(output: str, spill: Path, call_id: str, tail: bool = False) -> tuple[str, dict[str, Any]]:
    """``output`` within 2,000 lines and 50 KB, and metadata about the cut (empty when nothing was cut).

    The head is kept, or with ``tail`` the end. The whole is written to ``spill`` and the notice says where and how to read it;
    a folder that cannot be written costs the file, never the result. Metadata: ``truncated``, ``lines``, ``bytes``, ``whole``.
    """
    size = len(output.encode("utf-8", "replace"))
    lines = output.count("\n") + (not output.endswith("\n") and output != "")
    if lines <= MAX_LINES and size <= MAX_BYTES:
        return output, {}
    kept = _end(output) if tail else _head(output)
    path = _keep_whole(output, spill, call_id)
    notice = _notice(lines, size, kept, path, tail)
    text = f"{notice}\n\n{kept}" if tail else f"{kept}\n\n{notice}"
    return text, {"truncated": True, "lines": lines, "bytes": size, "whole": str(path or "")}


def _head(output: str) -> str:
    lines = output.split("\n", MAX_LINES)[:MAX_LINES]
    room, kept = MAX_BYTES, []
    for line in lines:
        needed = len(line.encode("utf-8", "replace")) + 1
        if needed > room:
            # Part of a line only where nothing else would be left of the output.
            if room > MAX_BYTES // 2:
                kept.append(line.encode("utf-8", "replace")[: room - 1].decode("utf-8", "ignore"))
            break
        kept.append(line)
        room -= needed
    return "\n".join(kept)


def _end(output: str) -> str:
    lines = output.rstrip("\n").rsplit("\n", MAX_LINES)[-MAX_LINES:]
    room, kept = MAX_BYTES, []
    for line in reversed(lines):
        needed = len(line.encode("utf-8", "replace")) + 1
        if needed > room:
            if room > MAX_BYTES // 2:
                kept.append(line.encode("utf-8", "replace")[-(room - 1) :].decode("utf-8", "ignore"))
            break
        kept.append(line)
        room -= needed
    return "\n".join(reversed(kept))


def _keep_whole(output: str, spill: Path, call_id: str) -> Path | None:
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", call_id).strip(".")[:100] or "output"
    path = spill / f"{name}.txt"
    try:
        spill.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(output, encoding="utf-8", errors="replace", newline="")
    except OSError:
        return None
    return path


def _notice(lines: int, size: int, kept: str, path: Path | None, tail: bool) -> str:
    shown = kept.count("\n") + 1
    which = "last" if tail else "first"
    told = f"[Output cut: the {which} {shown:,} of {lines:,} lines shown, {size:,} bytes in all."
    if path is None:
        return f"{told} The whole could not be kept; ask for less.]"
    return f"{told} The whole is in {path}; read it in pieces (read with offset and limit) or search it with grep.]"
