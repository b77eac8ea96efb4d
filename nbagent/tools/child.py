"""A short-lived helper process of a search: run off the event loop, killed on cancel and when its time is up."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbagent.errors import ToolError

TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """Exit status and output of a process. ``cut``: it had more to say."""

    code: int
    out: bytes
    error: str
    cut: bool = False


async def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    given: bytes | None = None,
    timeout: float = TIMEOUT,
    most: int | None = None,
) -> Said:
    """Run ``argv`` to its end, or until it has said more than ``most`` bytes.

    Raises ``ToolError`` when it takes longer than ``timeout`` seconds or cannot be started.
    """
    try:
        process = subprocess.Popen(  # noqa: ASYNC220
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise ToolError(f"{Path(argv[0]).name} could not be started: {error.strerror or error}.") from None
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.to_thread(_collect, process, given, most)
    except TimeoutError:
        raise ToolError(f"The search took longer than {timeout:.0f} s. Search a smaller folder, or for less.") from None
    finally:
        # The thread that reads ends as soon as there is nobody left to write.
        if process.poll() is None:
            process.kill()
            await asyncio.shield(asyncio.to_thread(process.wait))


def _collect(process: subprocess.Popen[bytes], given: bytes | None, most: int | None) -> Said:
    if most is None or process.stdout is None:
        out, err = process.communicate(given)
        return Said(process.returncode, out, err.decode("utf-8", "replace"))
    out = process.stdout.read(most + 1)
    if len(out) > most:
        process.kill()
    _, err = process.communicate()
    return Said(process.returncode, out[:most], err.decode("utf-8", "replace"), len(out) > most)


def find_ripgrep(environment: Mapping[str, str], root: Path) -> str:
    """The path of ``rg``, or "" when there is none. One inside the project is never run."""
    found = shutil.which("rg", path=environment.get("PATH"))
    if not found:
        return ""
    return "" if Path(found).resolve().is_relative_to(root) else found


# The package by its folder and nothing else of the environment: no site, and never the folder that is worked in.
_MAIN = "import sys; sys.path.append(sys.argv[1]); from {module} import main; main()"


def python_argv(module: str) -> list[str]:
    """A command that runs ``main()`` of one of our modules in a bare interpreter; arguments may follow."""
    return [sys.executable, "-I", "-S", "-c", _MAIN.format(module=module), str(Path(__file__).parents[2])]
