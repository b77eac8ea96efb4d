"""``bash``: a command line, behind the wall where the mode asks for it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from nbagent.errors import ArgumentError, Denied, ToolError
from nbagent.permission.ask import Need, Preview
from nbagent.permission.path import OUTSIDE
from nbagent.permission.shell import Scan, scan
from nbagent.permission.wildcard import exactly
from nbagent.removal import remove
from nbagent.root import Place
from nbagent.sandbox import Confinement, Outcome, confined_environment, run_command, unwalled_environment
from nbagent.tools.cut import MAX_BYTES, MAX_LINES
from nbagent.tools.guarded import guarded_files
from nbagent.tools.repository import runs_programs
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, in_thread, titled

SECONDS = 120
MAX_SECONDS = 600
_LONGEST = 100_000  # bytes of a command; the kernel takes no single argument of more than 128 KB
_ROOM = MAX_BYTES - 2_048  # bytes left for output beside what is said about it

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
_BACKSPACES = re.compile(r"[^\x08\n]\x08")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_REFUSED = re.compile(r"Permission denied|Operation not permitted|Read-only file system|PermissionError", re.IGNORECASE)


class BashArguments(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(description="a command line for bash")]
    description: Annotated[str, Meta(description="what it does, in five to ten words")] = ""
    timeout: Annotated[int, Meta(ge=1, le=MAX_SECONDS * 1000, description="milliseconds; at most 600000")] = (
        SECONDS * 1000
    )
    workdir: Annotated[str, Meta(description="folder to run in; the project's root when left out")] = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What was decided and will be run. ``temp``: the folder of its own of a confined command, not made yet.

    ``environment``: before a wall changes it.
    """

    scan: Scan
    cwd: Path
    argv: tuple[str, ...]
    temp: Path | None
    environment: dict[str, str]


class Bash(Tool[BashArguments]):
    name = "bash"
    permission = "bash"
    effect = "command"
    hint = "run a shell command"
    arguments = BashArguments
    tail = True

    def declare(self, arguments: BashArguments, context: ToolContext) -> Declaration:
        command = _checked(arguments.command)
        folder = _folder(arguments.workdir, context)
        walled = context.confined and context.wall is not None
        temp = _own_folder(context) if walled else None
        bare = context.confined and not walled
        environment = unwalled_environment(context.environment, context.root.path) if bare else context.environment
        argv, shell = shell_argv(command, environment)
        found = scan(
            command,
            root=context.root,
            cwd=folder.real,
            home=temp,
            environment=_inside(environment, context, temp),
            shell=shell,
            temp=temp,
        )
        unproven = (found.unproven or runs_programs(found.repositories, environment)) if bare else ""
        if unproven:
            raise Denied(_no_wall(unproven), permission=self.permission, pattern=command)
        needs = (*_folder_needs(folder), *found.needs(walled))
        title = titled(command, arguments.description)
        notes = (*found.notes, *_where(context))
        preview = Preview("command", command, shell)
        return Declaration(
            title, needs, preview, found.effects, notes, Job(found, folder.real, argv, temp, environment)
        )

    async def act(self, arguments: BashArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        job: Job = declaration.subject
        confinement = await in_thread(lambda: _confinement(job, declaration.needs, context))
        try:
            outcome = await run_command(
                job.argv,
                cwd=job.cwd,
                environment=job.environment,
                timeout=arguments.timeout / 1000,
                on_output=lambda text: context.output(plain(text)),
                spill=context.spill / f"{_file_name(context.call_id)}.txt",
                wall=context.wall if confinement is not None else None,
                confinement=confinement,
            )
        finally:
            if job.temp is not None:
                remove(job.temp)
        whole = outcome.whole
        if whole is not None:
            await in_thread(lambda: _mask_file(whole, context))
        output, about = told(outcome, arguments.timeout / 1000, confined=confinement is not None)
        metadata = {
            "command": job.scan.command,
            "exit": outcome.code,
            "timed_out": outcome.timed_out,
            "seconds": round(outcome.seconds, 3),
            "wall": context.wall.name if confinement is not None and context.wall is not None else "",
            "workdir": str(job.cwd),
        }
        return ToolResult(declaration.title, output, metadata | about, tail=True)


def shell_argv(command: str, environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """How to run a command line here, and the name of the shell that reads it."""
    if sys.platform == "win32":
        return _windows_argv(command, environment)
    bash = shutil.which("bash", path=environment.get("PATH")) or shutil.which("bash", path=os.defpath)
    if bash:
        return (bash, "--noprofile", "--norc", "-c", command), "bash"
    return ("/bin/sh", "-c", command), "sh"


def _windows_argv(command: str, environment: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Git's bash; the bash of the subsystem for Linux sees other paths, so it is not taken."""
    for base in (environment.get("ProgramFiles", ""), environment.get("LOCALAPPDATA", "") + "\\Programs"):
        bash = Path(base) / "Git" / "bin" / "bash.exe"
        if bash.is_file():
            return (str(bash), "--noprofile", "--norc", "-c", command), "bash"
    return ("powershell", "-NoProfile", "-NonInteractive", "-Command", command), "powershell"


def _checked(command: str) -> str:
    if not command.strip():
        raise ArgumentError("command is empty.")
    if "\0" in command:
        raise ArgumentError("command contains a NUL character. Leave it out.")
    if len(command.encode("utf-8", "replace")) > _LONGEST:
        raise ArgumentError(f"command is longer than {_LONGEST:,} bytes. Write a script with `write` and run that.")
    return command.strip("\n")


def _folder(workdir: str, context: ToolContext) -> Place:
    place = context.root.locate(workdir or ".")
    if not place.real.is_dir():
        raise ArgumentError(f"workdir {workdir} is not a folder. Give an existing folder, or leave it out.")
    return place


def _folder_needs(folder: Place) -> tuple[Need, ...]:
    if not folder.outside:
        return ()
    return (Need(OUTSIDE, (folder.pattern,), (exactly(folder.pattern),)),)


def _file_name(call_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", call_id).strip(".")[:100] or "output"


def _own_folder(context: ToolContext) -> Path:
    return Path(os.path.realpath(context.temp)) / f"shell-{_file_name(context.call_id)}-{os.urandom(4).hex()}"


def _inside(environment: dict[str, str], context: ToolContext, temp: Path | None) -> dict[str, str]:
    """What the command will find in its environment."""
    if temp is None:
        return environment
    return confined_environment(environment, Confinement(root=context.root.path, temp=temp), context.root.home)


def _where(context: ToolContext) -> tuple[str, ...]:
    if not context.confined:
        return ()
    if context.wall is None:
        return ("this machine has no wall; the command is proven to only read",)
    return (f"it runs behind {context.wall.name}: it can write to a folder of its own, and nothing else",)


def _no_wall(unproven: str) -> str:
    return (
        "Not run: in this mode commands are confined, and this machine has no wall to confine them (%agent doctor says why). "
        f"Without one only commands that are proven to change nothing run, and this one is not: {unproven}. "
        "Use plain ls, cat, head, wc, git log and the like, or the read, grep and glob tools."
    )


def _confinement(job: Job, needs: tuple[Need, ...], context: ToolContext) -> Confinement | None:
    """What the command may touch: the project, what the settings and the gate's answer let it read besides, and not what rules guard."""
    if job.temp is None:
        return None
    job.temp.mkdir(mode=0o700, parents=True)
    decided = {pattern for need in needs if need.permission == "read" for pattern in need.patterns}
    outside = [each.place.real for each in job.scan.reads if each.place is not None and each.place.outside]
    settings = [Path(name).expanduser() for name in context.settings.get("sandbox_read", ())]
    home = context.settings.get("home")
    return Confinement(
        root=context.root.path,
        temp=job.temp,
        readable=(job.cwd, *outside, *settings),
        hidden=(*guarded_files(context.root, context.rules, decided), *([Path(home)] if home else [])),
    )


def told(outcome: Outcome, seconds: float, confined: bool) -> tuple[str, dict[str, object]]:
    """What the model reads of a command, and what is known of a cut."""
    text = plain(outcome.output).rstrip("\n")
    about: dict[str, object] = {}
    if outcome.whole is not None:
        text = _end(text)
        about = {"truncated": True, "lines": outcome.lines, "bytes": outcome.size, "whole": str(outcome.whole)}
        text = f"{_cut_notice(outcome, text.count(chr(10)) + 1)}\n\n{text}"
    return "\n\n".join([text or "(no output)", _ending(outcome, seconds, confined)]), about


def _ending(outcome: Outcome, seconds: float, confined: bool) -> str:
    if outcome.flooded:
        return f"It was ended because it printed more than {outcome.size // (1 << 20)} MB. Print less, or send it to a file."
    if outcome.timed_out:
        return f"It timed out after {seconds:g} s and was ended with everything it had started; above is what it printed until then."
    ending = f"exit code: {outcome.code}"
    if outcome.code is not None and outcome.code < 0:
        ending = f"ended by signal {-outcome.code}"
    if confined and outcome.code and _REFUSED.search(outcome.output):
        ending += "\n(It ran confined: only $TMPDIR can be written to, file modes cannot be changed, and there is no network.)"
    return ending


def _cut_notice(outcome: Outcome, shown: int) -> str:
    return (
        f"[Output cut: the last {shown:,} of {outcome.lines:,} lines shown, {outcome.size:,} bytes in all. The whole is in "
        f"{outcome.whole}; read it in pieces (read with offset and limit) or search it with grep.]"
    )


def _end(text: str) -> str:
    """The last lines that a tool's result has room for."""
    kept = "\n".join(text.split("\n")[-(MAX_LINES - 20) :])
    return kept.encode("utf-8", "replace")[-_ROOM:].decode("utf-8", "ignore")


def plain(text: str) -> str:
    """Terminal output as text: no escape sequences, a line that was written over and over only as it was last."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    while "\x08" in text:
        shorter = _BACKSPACES.sub("", text)
        if shorter == text:
            break
        text = shorter
    return _CONTROLS.sub("", text)


def _mask_file(path: Path, context: ToolContext) -> None:
    """The file with the whole output shows no more secrets than the output does."""
    masked = path.with_suffix(".masked")
    try:
        with (
            path.open(encoding="utf-8", errors="replace", newline="") as source,
            masked.open("w", encoding="utf-8", newline="") as target,
        ):
            masked.chmod(stat.S_IRUSR | stat.S_IWUSR)
            for line in source:
                target.write(context.mask(line))
        masked.replace(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ToolError(f"The command ran, but its whole output could not be kept: {error.strerror}.") from error
