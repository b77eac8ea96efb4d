"""Search files for a pattern, in a process of its own: ``python -m nbagent.tools.scan`` with JSON on standard input.

A pattern that never ends is killed with the process. Input: ``{"pattern", "folder", "files": [paths], "limit"}``. Output: one JSON
array a match, ``[path, place, column, line]`` where place is a line number or a place in a notebook, and ``[]`` when the limit
cut the search.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

from nbagent.tools.cells import notebook_lines

MAX_LINE = 10_000
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def lines_of(path: str) -> Iterator[str]:
    """The lines of a file without their breaks; none for a binary one or one that cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(8192)
            mark, encoding = next(((m, e) for m, e in _MARKS if head.startswith(m)), (b"", "utf-8"))
            if encoding == "utf-8" and b"\0" in head:
                return
            file.seek(len(mark))
            if encoding != "utf-8":
                yield from (line.removesuffix("\r") for line in split(file.read().decode(encoding, "replace")))
                return
            for raw in file:
                yield raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
    except OSError:
        return


def split(text: str) -> list[str]:
    """Lines without their breaks; a last break begins no line."""
    lines = text.split("\n")
    return lines[:-1] if lines and lines[-1] == "" else lines


def scan(job: dict[str, Any]) -> Iterator[list[Any]]:
    """Matches in order, at most ``limit``; an empty list at the end when there are more."""
    search = re.compile(job["pattern"]).search
    left = int(job["limit"])
    for name in job["files"]:
        path = os.path.join(job["folder"], name)  # noqa: PTH118
        named = notebook_lines(path) if name.endswith(".ipynb") else enumerate(lines_of(path), 1)
        for place, line in named:
            found = search(line)
            if found is None:
                continue
            if left == 0:
                yield []
                return
            left -= 1
            yield [name, str(place), found.start(), line[:MAX_LINE]]


def main() -> None:
    job = json.loads(sys.stdin.buffer.read())
    out = sys.stdout.buffer
    for match in scan(job):
        out.write(json.dumps(match).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()
