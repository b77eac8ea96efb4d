"""``nbagent`` in a terminal. Every command is the same engine as in a notebook.

Exit status: 0 done (a plan that waits for approval included), 1 failed, 2 wrong usage or settings, 3 the work could not be done
because something needed a person's answer and nobody was there, 130 stopped.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nbagent import __version__, streams
from nbagent.errors import CassetteError, ConfigError, NbagentError, PersonError, RootError
from nbagent.tools.textfile import counted

if TYPE_CHECKING:
    from nbagent.terminal import JsonLines, Terminal

DONE, FAILED, USAGE, UNANSWERED, STOPPED = 0, 1, 2, 3, 130


FIRST = "First time here? `nbagent demo` needs no key; `nbagent doctor` says what is still missing for your own work."


class Parser(argparse.ArgumentParser):
    """Says what was probably meant where a command, an option or a value does not exist."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, left = self.parse_known_args(args, namespace)
        if left:
            self.unknown(left, getattr(options, "parser", self))
        return options

    def unknown(self, words: Sequence[str], command: argparse.ArgumentParser) -> NoReturn:
        """Words that ``command`` cannot place."""
        option = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        if option:
            command.error(f"there is no option {option}.{_meant(option, command._option_string_actions)}")
        command.error(f"nothing is known to do with {' '.join(words)!r}. Put words that belong together in quotes.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            said = f"there is no {action.dest} {value}."
            if action.option_strings:
                said = f"{action.option_strings[-1]} cannot be {value}."
            self.error(said + (_meant(str(value), names) or f" There are: {', '.join(names)}."))

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message[:1].lower()}{message[1:]} (`{self.prog} --help`)\n")


def _meant(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(names), 1)
    return f" Did you mean {near[0]}?" if near else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    streams.settle()
    options = argparse.Namespace()
    try:
        try:
            return _obeyed(arguments, options)
        finally:
            sys.stdout.flush()
    except OSError:
        fault = streams.fault()
        if fault is None:
            raise
        if not isinstance(fault, BrokenPipeError):
            print(f"nbagent: The output cannot be written: {fault.strerror}.", file=sys.stderr)
            return FAILED
        # A reader that has seen enough of a list is the usual thing; a run is cut short by it.
        return FAILED if "format" in options else DONE


def _obeyed(arguments: Sequence[str] | None, options: argparse.Namespace) -> int:
    top = parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        top.print_help(sys.stderr)
        return USAGE
    top.parse_args(arguments, options)
    if _prints_json(options):
        streams.speak_utf8()
    work: Callable[[argparse.Namespace], int] = options.work
    try:
        return work(options)
    except (ConfigError, RootError) as error:
        return _said(options, error, USAGE)
    except NbagentError as error:
        return _said(options, error, FAILED)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED


def _prints_json(options: argparse.Namespace) -> bool:
    told = vars(options)
    return told.get("format") == "json" or told.get("json") is True or told.get("to") in ("json", "notebook")


def _said(options: argparse.Namespace, error: NbagentError, status: int) -> int:
    """The error as one sentence; as an event too where events are asked for, unless the run has shown it."""
    if getattr(options, "format", "") == "json" and not getattr(options, "shown_error", False):
        from nbagent.event import ErrorEvent, encode_event

        print(encode_event(ErrorEvent(message=str(error), kind=type(error).__name__)).decode(), flush=True)
    print(f"nbagent: {error}", file=sys.stderr)
    return status


def parser() -> argparse.ArgumentParser:
    """The command line, as ``docs/reference`` prints it."""
    top = Parser(prog="nbagent", description="A coding agent at home in Jupyter.", epilog=FIRST)
    top.add_argument("--version", action="version", version=f"nbagent {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    _add_run(commands)
    _add_session_commands(commands)
    _add_plan_commands(commands)
    _add_looking_commands(commands)
    _add_walkthrough_commands(commands)
    return top


def _command(commands: Any, name: str, work: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.set_defaults(work=work, parser=command)
    command.add_argument("--root", metavar="DIR", help="the project root (default: the current folder)")
    return command


def _add_format(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one event a line, and nothing is asked"
    )


def _add_run(commands: Any) -> None:
    run = _command(commands, "run", _run, "Run one prompt with an agent.")
    run.add_argument(
        "prompt",
        nargs="?",
        default="",
        help="what to do; @file and @folder/ are attached; - reads it from standard input",
    )
    run.add_argument("--agent", default="build", help="plan, build, or an agent of your own (default: build)")
    run.add_argument("--model", help="the model's name (default: NBAGENT_MODEL or the settings)")
    run.add_argument("--plan", metavar="FILE", help="plan: the file to write; build: the approved plan to carry out")
    run.add_argument("--quick", action="store_true", help="plan: a short plan without subagents")
    run.add_argument(
        "--auto", action="store_true", help="build: approve edits and commands inside the project by itself"
    )
    run.add_argument("--session", metavar="ID", help="go on with this session")
    run.add_argument("--cassette", metavar="FILE", help="play model answers from a file")
    run.add_argument("--cassette-lenient", action="store_true", help="play on where the cassette does not fit")
    run.add_argument("--cassette-answers", action="store_true", help="the person's answers in the cassette count")
    run.add_argument("--record", metavar="FILE", help="record the model's answers into a cassette")
    run.add_argument("--max-steps", type=_whole, metavar="N", help="model calls at most")
    run.add_argument("--max-tokens", type=_whole, metavar="N", help="tokens at most, in and out together")
    run.add_argument("--max-seconds", type=_time_cap, metavar="S", help="seconds at most")
    _add_format(run)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on.")
    return int(text)


def _time_cap(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0.")
    return found


def _add_session_commands(commands: Any) -> None:
    sessions = _command(
        commands, "sessions", _sessions, "List sessions; `sessions prune --older 90d` deletes old ones."
    )
    sessions.add_argument("action", nargs="?", choices=("list", "prune"), default="list")
    sessions.add_argument("--json", action="store_true", help="as JSON")
    sessions.add_argument("--all", action="store_true", help="of every project, archived ones too")
    sessions.add_argument("--older", metavar="AGE", default="90d", help="prune: not used for this long (90d, 12h)")
    resume = _command(commands, "resume", _resume, "Go on with a session that a crash interrupted.")
    resume.add_argument("id", help="the session's id, or its beginning or end")
    _add_format(resume)
    for name, text in (
        ("undo", "Put files back as they were before the last run that changed any."),
        ("redo", "Apply again what was undone."),
    ):
        turn = _command(commands, name, _turn, text)
        turn.add_argument(
            "--session", metavar="ID", help="of this session (default: the one used last in this project)"
        )
    archive = _command(commands, "archive", _archive, "Take a session out of the list; nothing is deleted.")
    archive.add_argument("id", help="the session's id, or its beginning or end")
    export = _command(commands, "export", _export, "Print a session as Markdown, JSON or a notebook.")
    export.add_argument("id")
    export.add_argument("--to", choices=("markdown", "json", "notebook"), default="markdown")


def _add_plan_commands(commands: Any) -> None:
    plans = _command(commands, "plans", _plans, "List the project's plans and where each stands.")
    plans.add_argument("--json", action="store_true", help="as JSON")
    approve = _command(commands, "approve", _approve, "Approve a plan as it is now, so that a build can carry it out.")
    approve.add_argument("plan", help="the plan file")
    approve.add_argument("--comment", default="", help="what the builder should know")


def _add_looking_commands(commands: Any) -> None:
    why = _command(commands, "why", _why, "Explain which rule decides a permission on a resource.")
    why.add_argument("permission", help="edit, read, bash, … or a tool's name")
    why.add_argument("pattern", nargs="*", help="a path, a command line, an agent, a URL (default: anything)")
    why.add_argument("--agent", default="build", help="for which agent (default: build)")
    why.add_argument("--all", action="store_true", help="show every rule, not only those that match")
    why.add_argument("--json", action="store_true", help="as JSON")
    tools = _command(commands, "tools", _tools, "List an agent's tools: visible, deferred or hidden, and why.")
    tools.add_argument("name", nargs="?", metavar="agent", help="the agent (default: build)")
    tools.add_argument("--agent", default="build", help="the same")
    tools.add_argument("--json", action="store_true", help="as JSON")
    models = _command(commands, "models", _models, "List the server's models.")
    models.add_argument("--json", action="store_true", help="as JSON")
    doctor = _command(commands, "doctor", _doctor, "Check the wall, the server and the settings by trying them.")
    doctor.add_argument("--offline", action="store_true", help="do not ask the model server anything")


def _add_walkthrough_commands(commands: Any) -> None:
    demo = _command(commands, "demo", _demo, "Run the bundled walkthrough with no key, then open it in JupyterLab.")
    demo.add_argument("--no-lab", action="store_true", help="do not open JupyterLab")
    replay = _command(
        commands, "replay", _replay, "Run notebooks against their cassettes and compare with what is stored."
    )
    replay.add_argument("notebooks", nargs="+", metavar="NOTEBOOK")
    replay.add_argument("-j", "--jobs", type=int, default=1, help="notebooks at once")
    replay.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    replay.add_argument("--update", action="store_true", help="store what came out instead of comparing")
    cassette = _command(commands, "cassette", _cassette, "Check a cassette.")
    cassette.add_argument("action", choices=("check",))
    cassette.add_argument("file", nargs="+")


# -- commands ----------------------------------------------------------------------------------------------------------


def _folder(options: argparse.Namespace) -> Path:
    try:
        return Path(options.root) if options.root else Path.cwd()
    except FileNotFoundError:
        raise RootError("The current folder does not exist any more. Choose a folder with --root.") from None


def _open(options: argparse.Namespace, **settings: Any) -> Any:
    from nbagent.runtime import Runtime

    runtime = Runtime.open(_folder(options), explicit_root=bool(options.root), **settings)
    _ = runtime.store  # a damaged database is said before anything else
    for notice in runtime.notices:
        print(f"nbagent: {notice}", file=sys.stderr)
    return runtime


def _run(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from nbagent.runtime import CassetteOptions
    from nbagent.session.run import Options
    from nbagent.session.session import Prompt

    text = _standard_input() if options.prompt == "-" else options.prompt
    runtime = _open(options, model=options.model)
    try:
        runtime.use_cassette(
            CassetteOptions(
                options.cassette or runtime.config.cassette,
                options.record or "",
                options.cassette_lenient,
                options.cassette_answers,
            )
        )
        if options.session:
            runtime.open_session(options.session)
        else:
            _tell_crashed(runtime)
        limits = runtime.config.limits
        limits = type(limits)(
            steps=options.max_steps or limits.steps,
            tokens=options.max_tokens or limits.tokens,
            seconds=options.max_seconds or limits.seconds,
        )
        agent = runtime.config.agent(options.agent)
        prompt = Prompt(text, options.agent, plan=options.plan or "", carry_out=not agent.planning and not text.strip())
        prompt = replace(
            prompt,
            files=_mentioned(runtime, options.agent, text),
            options=Options(model=options.model or "", quick=options.quick, auto=options.auto, limits=limits),
        )
        frontend = _frontend(options)
        return _watch(options, frontend, runtime.start(prompt, frontend))
    finally:
        runtime.close()


def _standard_input() -> str:
    text = sys.stdin.read()
    if not text.strip():
        raise ConfigError("Nothing came from standard input; the prompt is read there when it is given as -.")
    return text


def _tell_crashed(runtime: Any) -> None:
    """Sessions of this project whose process died: said once before a new one begins."""
    for mark in runtime.store.crashed(str(runtime.root.path))[:3]:
        print(
            f"nbagent: session {mark.session_id} was interrupted; nbagent resume {mark.session_id} goes on with it "
            f"(nbagent archive {mark.session_id} lets it rest).",
            file=sys.stderr,
        )


def _mentioned(runtime: Any, agent: str, text: str) -> tuple[Any, ...]:
    """What the prompt names with ``@``: files and folders; a terminal has no variables and no cells."""
    from msgspec.structs import replace

    from nbagent.notebook.attach import Attacher

    if "@" not in text:
        return ()
    attacher = Attacher(
        runtime.root,
        lambda permission, pattern: runtime.policy.why(agent, permission, pattern).action == "allow",
        {},
        str,
        list,
    )
    parts = attacher.parts(text)
    for note in attacher.notes:
        print(f"nbagent: {note}", file=sys.stderr)
    return tuple(replace(part, text=runtime.masker.mask(part.text)) for part in parts)


def _frontend(options: argparse.Namespace) -> JsonLines | Terminal:
    from nbagent.terminal import JsonLines, Terminal

    return JsonLines() if options.format == "json" else Terminal(attended=sys.stdin.isatty())


def _watch(options: argparse.Namespace, frontend: JsonLines | Terminal, task: Any) -> int:
    """Wait for a run; Ctrl-C stops it."""
    import concurrent.futures

    try:
        while True:
            try:
                result = task.done.result(timeout=0.2)
                break
            except TimeoutError:
                if task.done.done():
                    raise
    except KeyboardInterrupt:
        task.stop()
        concurrent.futures.wait([task.done], timeout=5)
        return STOPPED
    except concurrent.futures.CancelledError:
        return STOPPED
    except NbagentError:
        from nbagent.terminal import JsonLines

        options.shown_error = isinstance(frontend, JsonLines) and frontend.told_error
        raise
    if result is None:
        print("There is nothing to go on with.", file=sys.stderr)
        return DONE
    if result.reason == "stopped":
        return STOPPED
    if result.unanswered and result.reason in ("stop", "blocked", "limit", "length"):
        print(
            "nbagent: something needed a person's answer and nobody was there; allow it in nbagent.toml, or run it in a terminal.",
            file=sys.stderr,
        )
        return UNANSWERED
    return DONE if result.reason in ("stop", "awaiting", "approved") else FAILED


def _sessions(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        if options.action == "prune":
            return _prune(runtime, options.older)
        directory = None if options.all or not options.root else str(runtime.root.path)
        rows = [session_line(runtime.store, row) for row in runtime.store.sessions(directory, archived=options.all)]
        if options.json:
            print(json.dumps(rows, indent=2))
            return DONE
        for row in rows:
            print(f"{row['id']}  {row['status']:<11}  {row['agent']:<8} {row['directory']}  {row['title']}")
        print(
            f"{counted(len(rows), 'session')}, {runtime.store.size() / 1e6:.1f} MB in {runtime.store.path}",
            file=sys.stderr,
        )
        return DONE
    finally:
        runtime.close()


def session_line(store: Any, row: Any) -> dict[str, Any]:
    """A session as ``nbagent sessions --json`` shows it."""
    mark = store.mark(row.id)
    status = row.status
    if mark is not None:
        status = "running" if mark.owner.alive() else "interrupted"
    return {
        "id": row.id,
        "title": row.title,
        "directory": row.directory,
        "agent": row.agent,
        "status": status,
        "time_created": row.time_created,
        "time_updated": row.time_updated,
    }


def _prune(runtime: Any, age: str) -> int:
    seconds = _seconds(age)
    kept = runtime.resources.snapshots

    def size() -> int:
        return int(runtime.store.size() + runtime.worker.call(kept.size()))

    before = size()
    count = runtime.store.delete_sessions(runtime.clock.now() - seconds)
    snapshots = runtime.worker.call(kept.prune(runtime.clock.now() - seconds))
    print(
        f"{counted(count, 'session')} and {counted(snapshots, 'snapshot')} deleted, {max(before - size(), 0) / 1e6:.1f} MB freed."
    )
    return DONE


def _seconds(age: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    if age[:-1].isdecimal() and age[-1:] in units:
        return int(age[:-1]) * units[age[-1]]
    raise ConfigError(f"--older {age}: write a number and a unit, such as 90d or 12h.")


def _resume(options: argparse.Namespace) -> int:
    from nbagent.config import home_folder
    from nbagent.store.store import Store

    if not options.root:
        store = Store.open(home_folder() / "sessions.db")
        try:
            options.root = store.find_session(options.id).directory
        finally:
            store.close()
    runtime = _open(options)
    try:
        runtime.open_session(options.id)
        frontend = _frontend(options)
        return _watch(options, frontend, runtime.resume(frontend))
    finally:
        runtime.close()


def _export(options: argparse.Namespace) -> int:
    from nbagent.session.export import export

    runtime = _open(options)
    try:
        row = runtime.store.find_session(options.id)
        sys.stdout.write(export(row, runtime.store.messages(row.id), options.to))
        return DONE
    finally:
        runtime.close()


def _archive(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        print(f"{runtime.archive(options.id).id} is out of the list; nothing was deleted.")
        return DONE
    finally:
        runtime.close()


def _turn(options: argparse.Namespace) -> int:
    """``undo`` and ``redo``."""
    runtime = _open(options)
    try:
        recent = runtime.store.sessions(str(runtime.root.path))
        if options.session or recent:
            runtime.open_session(options.session or recent[0].id)
        result = runtime.undo() if options.command == "undo" else runtime.redo()
        for path in result.restored:
            print(f"{options.command}: {path}")
        for path, why in result.kept:
            print(f"left alone: {path}: {why}")
        return DONE
    finally:
        runtime.close()


def _plans(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        rows = [
            {
                "path": runtime.root.locate(row.path).pattern,
                "status": row.status,
                "hash": row.hash,
                "time_updated": row.time_updated,
            }
            for row in runtime.resources.plans.listed()
        ]
        if options.json:
            print(json.dumps(rows, indent=2))
        for row in [] if options.json else rows:
            print(f"{row['status']:<9} {row['path']}")
        return DONE
    finally:
        runtime.close()


def _approve(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        plan = runtime.approve(options.plan, options.comment)
        print(f"Approved: {plan.shown}. Carry it out with: nbagent run --agent build --plan {plan.shown}")
        return DONE
    finally:
        runtime.close()


def _why(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        found = runtime.policy.why(options.agent, options.permission, " ".join(options.pattern) or "*")
        print(json.dumps(found.to_json()) if options.json else "\n".join(found.lines(options.all)))
        return DONE
    finally:
        runtime.close()


def _tools(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        rows = runtime.policy.tools(options.name or options.agent)
        if options.json:
            print(json.dumps([{"tool": name, "state": state, "rule": rule} for name, state, rule in rows], indent=2))
        for name, state, rule in [] if options.json else rows:
            print(f"{name:<16} {state:<9} {rule}")
        return DONE
    finally:
        runtime.close()


def _models(options: argparse.Namespace) -> int:
    runtime = _open(options)
    try:
        names = runtime.worker.call(runtime.provider.models(), 30)
        if options.json:
            print(json.dumps(list(names)))
        elif names:
            print("\n".join(names))
        else:
            print("The server lists no models. Name one with NBAGENT_MODEL or --model.", file=sys.stderr)
        return DONE
    finally:
        runtime.close()


def _doctor(options: argparse.Namespace) -> int:
    from nbagent.doctor import examine

    runtime = _open(options)
    try:
        checks = examine(runtime, ask_server=not options.offline)
        for check in checks:
            print(check.line())
        return DONE if all(check.ok is not False for check in checks) else FAILED
    finally:
        runtime.close()


def _demo(options: argparse.Namespace) -> int:
    from nbagent.notebook.demo import demo

    return demo(open_lab=not options.no_lab)


def _replay(options: argparse.Namespace) -> int:
    from nbagent.notebook.replay import replay

    return replay(
        [Path(name) for name in options.notebooks], jobs=options.jobs, junit=options.junit, update=options.update
    )


def _cassette(options: argparse.Namespace) -> int:
    from nbagent.provider.cassette_file import check_file

    status = DONE
    for name in options.file:
        try:
            problems = check_file(Path(name))
        except CassetteError as error:  # the others are checked all the same
            status = _said(options, error, FAILED)
            continue
        for problem in problems:
            print(f"{name}:{problem.line}: {problem.text}")
        status = FAILED if problems else status
        if not problems:
            print(f"{name}: fine")
    return status


def _exit() -> None:
    sys.exit(main())


if __name__ == "__main__":
    _exit()

__all__ = ["PersonError", "main", "parser"]
