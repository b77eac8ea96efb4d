"""Show that a wall holds by trying to get through it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from nbagent.errors import ToolError
from nbagent.sandbox.process import run_to_end
from nbagent.sandbox.spawner import python
from nbagent.sandbox.wall import Confinement, Wall

_SCRIPT = Path(__file__).with_name("attempts.py")
_LIMIT = 30.0  # seconds for all attempts; they take a tenth of one
_TEXT = "as it was\n"

Attempt = tuple[str, bool, str]


@dataclass(frozen=True, slots=True)
class _Scene:
    """Folders and listeners that the attempts aim at."""

    folder: Path
    plan: dict[str, object]
    confinement: Confinement


def prove(wall: Wall) -> list[Attempt]:
    """Every attempt as (what was tried, whether the wall held, detail). The last line looks at what is left from outside."""
    with ExitStack() as stack:
        try:
            scene = _scene(stack)
            launch = wall.launch(
                [python(), "-I", "-S", "-B", str(_SCRIPT), json.dumps(scene.plan)],
                scene.confinement.root,
                {"PATH": os.environ.get("PATH", os.defpath)},
                scene.confinement,
            )
            before = _look(scene)
            code, output = run_to_end(launch, _LIMIT)
        except (ToolError, OSError, ValueError) as error:
            return [("start a confined process", False, str(error))]
        tried = _parse(output)
        if code != 0 or not tried:
            return [*tried, ("run all attempts", False, f"ended with {code}: {output[-400:].strip()}")]
        return [*tried, _compare(before, _look(scene))]


def _scene(stack: ExitStack) -> _Scene:
    folder = Path(tempfile.mkdtemp(prefix="nbagent-wall-")).resolve()
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    for name in ("project/keys", "outside", "temp"):
        (folder / name).mkdir(parents=True)
    for name in ("project/victim.txt", "project/keys/id", "outside/key"):
        (folder / name).write_text(_TEXT)
    mark = f".nbagent-wall-{secrets.token_hex(8)}"
    stack.callback((Path.home() / mark).unlink, missing_ok=True)
    plan: dict[str, object] = {
        "project": str(folder / "project"),
        "outside": str(folder / "outside"),
        "temp": str(folder / "temp"),
        "secret": str(folder / "project/keys/id"),
        "home": str(Path.home()),
        "mark": mark,
        "pid": os.getpid(),
        **_listeners(stack, folder),
    }
    confinement = Confinement(root=folder / "project", temp=folder / "temp", hidden=(folder / "project/keys",))
    return _Scene(folder, plan, confinement)


def _listeners(stack: ExitStack, folder: Path) -> dict[str, object]:
    abstract = f"nbagent-wall-{secrets.token_hex(8)}"
    tcp = stack.enter_context(socket.socket())
    tcp.bind(("127.0.0.1", 0))
    tcp.listen()
    unix = stack.enter_context(socket.socket(socket.AF_UNIX))
    unix.bind(str(folder / "outside/socket"))
    unix.listen()
    with suppress(OSError):  # there are none outside Linux
        other = stack.enter_context(socket.socket(socket.AF_UNIX))
        other.bind("\0" + abstract)
        other.listen()
    return {"port": tcp.getsockname()[1], "socket": str(folder / "outside/socket"), "abstract": abstract}


def _look(scene: _Scene) -> dict[str, tuple[object, ...]]:
    """What can be seen of everything that must not change."""
    seen: dict[str, tuple[object, ...]] = {}
    for place in sorted(scene.folder.rglob("*")):
        if place.is_relative_to(scene.confinement.temp):
            continue
        stat = place.lstat()
        content = place.read_bytes() if place.is_file() else b""
        seen[str(place)] = (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_mtime_ns, stat.st_nlink, content)
    return seen


def _compare(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> Attempt:
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ("leave a trace anywhere", not changed, ", ".join(changed) or "nothing has changed")


def _parse(output: str) -> list[Attempt]:
    tried: list[Attempt] = []
    for line in output.splitlines():
        with suppress(ValueError, TypeError):
            name, held, detail = json.loads(line)
            tried.append((str(name), held is True, str(detail)))
    return tried
