"""What the magics do: from a cell's text to a run and back, and the commands of ``%agent``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbagent.config import LimitSettings
from nbagent.errors import ConfigError, NbagentError, PersonError
from nbagent.frontend import Frontend
from nbagent.message import FilePart
from nbagent.notebook import place
from nbagent.notebook.attach import Attacher
from nbagent.notebook.cell import Cell, active, one_line
from nbagent.notebook.commands import Context, find_command, kernel_lines
from nbagent.notebook.completion import complete
from nbagent.notebook.desk import Desk
from nbagent.notebook.live import Link, LiveNotebook, install, running_page, uninstall
from nbagent.notebook.options import BUILD, PLAN, Parsed, parse, usage
from nbagent.notebook.variables import describe
from nbagent.provider.endpoint import client_library
from nbagent.runtime import CassetteOptions, Runtime
from nbagent.session.run import Options
from nbagent.session.session import Prompt

_NAME = re.compile(r"\{([A-Za-z_]\w*)\}")
_ABOUT = {
    "plan": (PLAN, "%%plan: read what the rules allow, write one plan, ask for its approval."),
    "build": (BUILD, "%%build: carry out the text below, or (when there is none) the approved plan."),
}
_FAILURES = ("error", "blocked")


class Work:
    """One shell's runs. ``prefix``: ``nb`` where the short names of the magics belong to someone else."""

    def __init__(self, shell: Any, root: Path, prefix: str = "", settings: dict[str, Any] | None = None) -> None:
        self._shell = shell
        self._prefix = prefix
        self.desk = Desk(root, {} if settings is None else settings)
        self.link: Link | None = install(shell)
        self._said_crash = False

    def warm(self) -> None:
        """Import what the first run needs."""
        client_library()

    def close(self) -> None:
        uninstall(self._shell)
        self.desk.close()

    # cells

    async def cell(self, agent: str, line: str, body: str | None) -> None:
        """``%%plan`` and ``%%build``. Every error that a person or a server caused is one line."""
        try:
            await self._cell(agent, line, body)
        except NbagentError as error:
            raise one_line(error) from None

    async def _cell(self, agent: str, line: str, body: str | None) -> None:
        options, about = _ABOUT[agent]
        magic = f"%%{self._prefix}{agent}"
        parsed = parse(line, options, magic)
        if parsed.flag("help"):
            print(usage(magic, about, options))
            return
        _check_name(parsed.text("output"))
        runtime = self._runtime(parsed)
        prompt = self._prompt(agent, parsed, body, runtime)
        there = place.attended(self._shell)
        if parsed.flag("dry"):
            print(self._dry(runtime, prompt, there))
            return
        said = self._before(runtime, parsed, prompt, there)
        notebook = self._notebook(runtime)
        prompt = replace(prompt, files=self._files(prompt.text, runtime, agent, said))
        cell = Cell(self._shell, attended=there, notebook=notebook, times=not self._played(runtime, parsed))
        result = await self._run(
            cell, runtime, said, lambda frontend: runtime.start(prompt, frontend, notebook=notebook.path)
        )
        if parsed.text("output"):
            self._shell.user_ns[parsed.text("output")] = result
        if result is not None and result.reason in _FAILURES and not there:
            raise PersonError(result.message or "The run could not do its work; the record above says why.")

    async def _run(self, cell: Cell, runtime: Runtime, said: list[str], start: Callable[[Frontend], Any]) -> Any:
        if self.link is not None:
            self.link.begin(cell.take, cell.transcript, running_page(self._shell)[1])
        try:
            return await cell.run(start, said)
        finally:
            if self.link is not None:
                self.link.end()

    def _runtime(self, parsed: Parsed) -> Runtime:
        if active:
            raise PersonError("Another cell of nbagent is running in this kernel. Wait for it, or stop it.")
        runtime = self.desk.runtime(parsed.text("root"))
        if not runtime.config.model:  # the cell's own model counts for the cell; here it is the only one
            runtime.with_options(model=parsed.text("model"))
        runtime.use_cassette(self._cassette(runtime, parsed))
        if parsed.flag("new"):
            runtime.new_session()
        return runtime

    def _cassette(self, runtime: Runtime, parsed: Parsed) -> CassetteOptions:
        from nbagent.provider.cassette_file import find

        named = parsed.text("cassette") or runtime.config.cassette
        record = parsed.text("record")
        if named and record:
            raise ConfigError("--cassette plays and --record records: give one of the two.")
        return CassetteOptions(
            play=str(find(named, runtime.root.path)) if named else "",
            record=str((runtime.root.path / Path(record).expanduser()).absolute()) if record else "",
            lenient=parsed.flag("cassette_lenient"),
            answers=parsed.flag("cassette_answers")
            or runtime.environment.get("NBAGENT_CASSETTE_ANSWERS", "") not in ("", "0"),
        )

    def _played(self, runtime: Runtime, parsed: Parsed) -> bool:
        return bool(parsed.text("cassette") or runtime.config.cassette)

    def _prompt(self, agent: str, parsed: Parsed, body: str | None, runtime: Runtime) -> Prompt:
        text = "\n".join(part for part in (parsed.rest.strip(), (body or "").strip("\n")) if part.strip())
        if parsed.flag("vars"):
            text = expand(text, self._shell.user_ns)
        planning = runtime.config.agent(agent).planning
        limits = _limits(runtime.config.limits, parsed.text("max_steps"))
        options = Options(
            model=parsed.text("model"), quick=parsed.flag("quick"), auto=parsed.flag("auto"), limits=limits
        )
        return Prompt(
            text=text,
            agent=agent,
            cell=place.cell_name(self._shell),
            plan=parsed.text("plan"),
            options=options,
            carry_out=not planning and not text.strip(),
        )

    def _dry(self, runtime: Runtime, prompt: Prompt, there: bool) -> str:
        said: list[str] = []
        prompt = replace(prompt, files=self._files(prompt.text, runtime, prompt.agent, said))
        return "\n".join([*said, *runtime.preview(prompt, attended=there).lines(runtime.root.path)])

    def _before(self, runtime: Runtime, parsed: Parsed, prompt: Prompt, there: bool) -> list[str]:
        """What a person should know before the run; a plan is approved here where that was asked for and nobody is there."""
        said = self.desk.news(runtime)
        if not self._said_crash and not self._played(runtime, parsed):
            self._said_crash = True
            crashed = [
                mark for mark in runtime.store.crashed(str(runtime.root.path)) if mark.session_id != runtime.session_id
            ]
            said += [
                f"Session {mark.session_id} was interrupted; %agent resume {mark.session_id} goes on with it "
                f"(%agent archive {mark.session_id} lets it rest)."
                for mark in crashed[:3]
            ]
        if parsed.flag("approve_headless") and not there and (prompt.plan or prompt.carry_out):
            said.append(self._approve(runtime, prompt.plan))
        return said

    def _approve(self, runtime: Runtime, spelled: str) -> str:
        if not spelled:
            waiting = [row for row in runtime.resources.plans.rows() if row.status in ("awaiting", "draft")]
            if not waiting:
                return "--approve-headless: there is no plan that waits."
            spelled = waiting[0].path
        plan = runtime.approve(spelled, comment="approved by --approve-headless, nobody was there")
        return f"The plan {plan.shown} was approved by --approve-headless: no person looked at it."

    def _notebook(self, runtime: Runtime) -> LiveNotebook:
        session, cell = running_page(self._shell)
        path = place.notebook_path(self._shell)
        return LiveNotebook(self.link or Link(), session, cell, root=runtime.root.path, fallback=path)

    def _files(self, text: str, runtime: Runtime, agent: str, said: list[str]) -> tuple[FilePart, ...]:
        if "@" not in text:
            return ()
        attacher = Attacher(
            runtime.root,
            lambda permission, pattern: runtime.policy.why(agent, permission, pattern).action == "allow",
            self._variables(),
            lambda name: describe(self._shell.user_ns, {}, (name,), True, lambda _, one: one()),
            self._cells,
        )
        parts = attacher.parts(text)
        said += attacher.notes
        return tuple(replace_text(part, runtime.masker.mask(part.text)) for part in parts)

    def _cells(self) -> list[dict[str, Any]]:
        path = place.notebook_path(self._shell)
        if not path or not Path(path).is_file():
            return []
        import json

        try:
            found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            return []
        cells = found.get("cells") if isinstance(found, dict) else None
        return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []

    def _variables(self) -> dict[str, Any]:
        hidden = getattr(self._shell, "user_ns_hidden", {})
        return {n: v for n, v in self._shell.user_ns.items() if not n.startswith("_") and n not in hidden}

    # commands

    async def command(self, line: str) -> None:
        """``%agent …``"""
        try:
            await self._command(line)
        except NbagentError as error:
            raise one_line(error) from None

    async def _command(self, line: str) -> None:
        words = line.split()
        if not words or words[0] in ("--help", "-h"):
            words = ["help"]
        rest = words[1:]
        command = find_command(words[0], rest)
        if command.name == "help":
            from nbagent.notebook.commands import help_text

            print(help_text())
        elif command.name == "pending":
            self._pending()
        elif command.name in ("resume", "compact"):
            await self._going_on(command.name, rest)
        elif command.name == "doctor":
            self._doctor(rest)
        else:
            runtime = self.desk.runtime()
            text = command.work(Context(self._shell, self.desk, runtime, self.link), rest)
            print(runtime.masker.mask(text))

    def _doctor(self, words: list[str]) -> None:
        """What works here; a root or settings that cannot be used are findings too."""
        try:
            runtime = self.desk.runtime()
        except PersonError as error:
            print("\n".join([f"FAIL  settings               {error}", *kernel_lines(self._shell, self.link)]))
            return
        context = Context(self._shell, self.desk, runtime, self.link)
        print(find_command("doctor").work(context, words))

    def _pending(self) -> None:
        if not active:
            print("Nothing waits for an answer.")
            return
        active[-1].show_here(self._shell)

    async def _going_on(self, name: str, words: list[str]) -> None:
        runtime = self._runtime(Parsed())
        if name == "resume" and words:
            runtime.open_session(words[0])
        elif name == "resume" and not runtime.session_id:
            crashed = runtime.store.crashed(str(runtime.root.path))
            if not crashed:
                raise PersonError("Nothing was interrupted in this project. %agent sessions lists the conversations.")
            runtime.open_session(crashed[0].session_id)
        store, session = runtime.store, runtime.session_id
        if name == "resume" and store.mark(session) is None and not store.undelivered(session):
            print("Nothing was interrupted there; the next prompt goes on with it.")
            return
        cell = Cell(
            self._shell,
            attended=place.attended(self._shell),
            notebook=self._notebook(runtime),
            times=not self._played(runtime, Parsed()),
        )
        begin = runtime.resume if name == "resume" else runtime.compact
        result = await self._run(cell, runtime, self.desk.news(runtime), begin)
        if result is None and name == "compact":
            print("There was nothing to summarise.")

    # completion

    def matches(self, context: Any) -> Any:
        """Completions in the form of IPython's matchers."""
        from IPython.core.completer import SimpleCompletion

        lines = context.full_text.split("\n")
        cursor = sum(len(line) + 1 for line in lines[: context.cursor_line]) + context.cursor_position
        if len(lines) == 1:
            cursor = context.cursor_position
        values = {"models": self._model_names, "plans": self._plan_names, "sessions": self._session_names}
        found = complete(context.full_text, cursor, self._variables(), self.desk.root, values)
        if found is None:
            return {"completions": []}
        piece, names = found
        completions = [SimpleCompletion(text=name, type="nbagent") for name in names]
        return {"completions": completions, "matched_fragment": piece, "suppress": True}

    def _model_names(self, piece: str) -> list[str]:
        """Names from the settings; the server is not asked while someone types."""
        try:
            config = self.desk.runtime().config
        except NbagentError:
            return []
        return [name for name in {config.model, config.small_model, *config.models} if name]

    def _plan_names(self, piece: str) -> list[str]:
        try:
            runtime = self.desk.runtime()
            return [runtime.root.locate(row.path).pattern for row in runtime.resources.plans.listed()]
        except NbagentError:
            return []

    def _session_names(self, piece: str) -> list[str]:
        try:
            runtime = self.desk.runtime()
            return [row.id for row in runtime.store.sessions(str(runtime.root.path))][:50]
        except NbagentError:
            return []


def replace_text(part: FilePart, text: str) -> FilePart:
    """``part`` with another text."""
    import msgspec

    return msgspec.structs.replace(part, text=text)


def expand(text: str, variables: dict[str, Any]) -> str:
    """``{name}`` as the variable's value; ``{{`` and ``}}`` are braces. Raises ``ConfigError`` for a name that is not there."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in variables:
            raise ConfigError(
                f"--vars: there is no variable {match[1]}. Write {{{{{match[1]}}}}} for the braces themselves."
            )
        return str(variables[match[1]])

    pieces = re.split(r"(\{\{|\}\})", text)
    return "".join({"{{": "{", "}}": "}"}.get(piece, "") or _NAME.sub(value, piece) for piece in pieces)


def _check_name(name: str) -> None:
    if name and not name.isidentifier():
        raise ConfigError(f"-o {name}: that is not the name of a variable.")


def _limits(limits: LimitSettings, steps: str) -> LimitSettings:
    if not steps:
        return limits
    if not steps.isdecimal() or int(steps) < 1:
        raise ConfigError(f"--max-steps {steps}: it must be a whole number from 1 on.")
    return LimitSettings(steps=int(steps), tokens=limits.tokens, seconds=limits.seconds)
