"""``%%plan``, ``%%build`` and ``%agent``: registered silently, everything heavy loaded when it is first used.

What the shell knows of at load time is only names; ``work`` (the runs, the commands) is imported by the first magic, or on a
thread shortly after loading, so that ``%load_ext`` costs little.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand

from nbagent.collector import paused
from nbagent.notebook.awaiting import install
from nbagent.notebook.settings import Door

if TYPE_CHECKING:
    from nbagent.notebook.work import Work

_KEY = "_nbagent"
WARM_AFTER = 0.3


class Promise(Awaitable[None]):
    """A cell that begins when it is awaited; the input transformers put the ``await`` before it."""

    def __init__(self, begin: Callable[[], Awaitable[Any]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, None, Any]:
        return self._begin().__await__()

    def __repr__(self) -> str:
        return "<nbagent: nothing was run. Write `await` before this call.>"


class AgentMagics:
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.root = Path.cwd()
        self.door = Door(shell)
        self._work: Work | None = None
        self._lock = threading.Lock()
        self._undo: list[Callable[[], None]] = [self.door.close]
        self.prefix = ""

    @property
    def work(self) -> Work:
        """Runs and commands; imported here so that loading the extension stays cheap."""
        with self._lock:
            if self._work is None:
                with paused():
                    from nbagent.notebook.work import Work

                self._work = Work(self.shell, self.root, self.prefix, self.door.chosen)
            return self._work

    @no_var_expand
    def plan(self, line: str, cell: str | None = None) -> Promise:
        """Think: read what the rules allow, write one plan, ask for its approval. The text below is the prompt.

        %%plan [--quick] [--new] [--model M] [--plan FILE] [--root DIR] [--vars] [--dry] [-o NAME]
               [--cassette FILE] [--cassette-answers] [--cassette-lenient] [--record FILE] [--max-steps N] [PROMPT]

        %%plan --help explains each. @file, @folder/, @variable and @cell:ID in the prompt attach that thing.
        """
        return Promise(lambda: self.work.cell("plan", line, cell))

    @no_var_expand
    def build(self, line: str, cell: str | None = None) -> Promise:
        """Act: carry out the text below, or (when there is none) the approved plan. Each step is decided by the rules.

        %%build [--auto] [--plan FILE] [--approve-headless] [--new] [--model M] [--root DIR] [--vars] [--dry] [-o NAME]
                [--cassette FILE] [--cassette-answers] [--cassette-lenient] [--record FILE] [--max-steps N] [PROMPT]

        %%build --help explains each. @file, @folder/, @variable and @cell:ID in the prompt attach that thing.
        """
        return Promise(lambda: self.work.cell("build", line, cell))

    @no_var_expand
    def agent(self, line: str) -> Promise:
        """Everything else. %agent COMMAND [ARGUMENTS]; %agent help lists the commands with their arguments.

        What may it do?      why, rules, tools
        What did it do?      explain, plans, sessions, export, cost
        Back and forward     undo, redo, new, fork, archive, resume, compact, pending
        What is set up here? status, model, doctor, help
        """
        return Promise(lambda: self.work.command(line))

    # loading

    def register(self) -> None:
        manager = self.shell.magics_manager
        taken = [name for name in ("plan", "build") if name in manager.magics["cell"] or name in manager.magics["line"]]
        self.prefix = "nb" if taken else ""
        names = {f"{self.prefix}plan": self.plan, f"{self.prefix}build": self.build}
        for name, function in names.items():
            manager.register_function(function, magic_kind="line_cell", magic_name=name)
        agent = "nbagent" if "agent" in manager.magics["line"] else "agent"
        manager.register_function(self.agent, magic_kind="line", magic_name=agent)
        self._undo.append(lambda: _forget(manager, [*names, agent]))
        self._undo.append(install(self.shell, set(names), {*names, agent}))
        self._undo.append(self._install_completion())
        if taken:
            words = " and ".join(f"%%{name}" for name in taken)
            print(f"nbagent: {words} belong to another extension here; use %%nbplan and %%nbbuild.")

    def _install_completion(self) -> Callable[[], None]:
        completer = getattr(self.shell, "Completer", None)
        if completer is None or not hasattr(completer, "custom_matchers"):
            return lambda: None
        from IPython.core.completer import context_matcher

        @context_matcher()
        def nbagent_matcher(context: Any) -> Any:
            return self._matches(context)

        completer.custom_matchers.append(nbagent_matcher)

        def remove() -> None:
            if nbagent_matcher in completer.custom_matchers:
                completer.custom_matchers.remove(nbagent_matcher)

        return remove

    def _matches(self, context: Any) -> Any:
        if "plan" not in context.full_text and "build" not in context.full_text and "agent" not in context.full_text:
            return {"completions": []}
        return self.work.matches(context)

    def listen(self) -> None:
        """Hear the JupyterLab extension's pages, and load what is heavy, on a thread, when the cell has ended."""
        manager = getattr(getattr(self.shell, "kernel", None), "comm_manager", None)
        if manager is None:
            return
        manager.register_target("nbagent", self._on_page)
        self._undo.append(lambda: manager.targets.pop("nbagent", None))
        timer = threading.Timer(WARM_AFTER, self._warm)
        timer.daemon = True
        timer.name = "nbagent-warm"
        timer.start()
        self._undo.append(timer.cancel)

    def _on_page(self, comm: Any, opening: Any) -> None:
        """A page comes before anything heavy is loaded: load it, and let the link take over."""
        link = self.work.link
        if link is not None:
            link.on_open(comm, opening)

    def _warm(self) -> None:
        try:
            self.work.warm()
        except Exception:  # noqa: BLE001 - the first cell meets it again and says it
            return

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()
        if self._work is not None:
            self._work.close()


def _forget(manager: Any, names: list[str]) -> None:
    for name in names:
        for kind in ("line", "cell"):
            manager.magics[kind].pop(name, None)


def load(shell: Any) -> None:
    """``%load_ext nbagent``: silent, and again does no harm."""
    if getattr(shell, _KEY, None) is not None:
        return
    magics = AgentMagics(shell)
    magics.register()
    magics.listen()
    setattr(shell, _KEY, magics)


def unload(shell: Any) -> None:
    """``%unload_ext nbagent``: everything as it was before."""
    magics = getattr(shell, _KEY, None)
    if magics is not None:
        setattr(shell, _KEY, None)
        magics.remove()
