"""``!command`` in a kernel that plays a notebook: all of what it prints, however busy the machine is.

IPython looks at the command's terminal every 50 ms and, on a busy machine, sometimes takes its end for the end of its output: the
output is short or missing, and a walkthrough would differ from what is stored. Here the end of the output is waited for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

STARTUP = "from nbagent.notebook.whole_output import install; install(get_ipython()); del install\n"


def prepare(ipython: Path) -> None:
    """Have kernels whose ``IPYTHONDIR`` is ``ipython`` run ``install`` when they start. Windows reads through a pipe anyway."""
    if os.name != "nt":
        startup = ipython / "profile_default" / "startup"
        startup.mkdir(parents=True, exist_ok=True)
        (startup / "00-whole-output.py").write_text(STARTUP, encoding="utf-8")


def install(shell: Any) -> None:
    """Let ``shell`` run ``!command`` as ``system`` does."""

    def system(command: str) -> None:
        shell.user_ns["_exit_code"] = run(shell.var_expand(command, depth=1))

    shell.system = system


def run(command: str) -> int:
    """Run a shell command at a terminal of its own, print all that it prints; its exit status, a signal as a negative number."""
    import pexpect  # type: ignore[import-untyped]

    child = pexpect.spawn("/bin/sh", ["-c", command], timeout=None)
    try:
        child.expect(pexpect.EOF)
        print(child.before.decode("utf-8", "replace"), end="")
    finally:
        child.close()
    return int(child.exitstatus if child.exitstatus is not None else -(child.signalstatus or 0))
