"""Reading shell lines: what a command would do, before it runs."""

from __future__ import annotations

from pathlib import Path

from bench.figure import Figure, Found, median, milliseconds
from bench.place import ground

CLAIM = "One `scan` of a line (parse, fold `cd`, resolve paths, second reading of lines that are said to only read)."
CHEAP = True
SECONDS = 60
LINES = {
    "`ls -la src`": "ls -la src",
    "pipeline": "cd src && grep -rn 'def ' . | sort | head -20 > /tmp/out.txt",
    "nested": "bash -c \"for f in *.py; do sed -n 1,20p $f | tee -a log; done\" && find . -name '*.pyc' -exec rm {} +",
    "here-document of 200 lines": "python3 - <<'END'\n" + "print('x' * 40)\n" * 200 + "END\n",
}


def measure(quick: bool) -> Found:
    from nbagent.permission.shell import scan
    from nbagent.root import Root

    found: Found = []
    with ground(3) as place:
        (place.root / "src").mkdir()
        root = Root(Path(place.root), explicit=True)
        first = milliseconds(lambda: scan("ls", root=root), 1, warm=0)[0]
        found.append(Figure("first line of a process (loads the grammar)", first, "ms"))
        for name, line in LINES.items():
            taken = milliseconds(lambda line=line: scan(line, root=root), 5 if quick else 300)  # type: ignore[misc]
            found.append(Figure(name, median(taken), "ms"))
    return found
