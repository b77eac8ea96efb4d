"""Runs the agent's code in the user's namespace, on the cell's thread, so that nothing of the shell is touched by it:
``In``, ``Out``, ``_`` and the prompt number stay as they were.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from types import CodeType, FrameType
from typing import Any

from nbagent.frontend import CodeOutcome
from nbagent.notebook.capture import Collected, captured
from nbagent.notebook.interrupts import CalledOff, Interrupts, TimeUp

TICK = 0.05
_KEPT_SOURCES = 50
_LIVE = 20_000
_FRAMES = 15
_NAME = "<agent code {}>"


class Execution:
    """Runs one piece of code at a time. ``pump`` is called now and then, so that a view goes on while code runs."""

    def __init__(self, shell: Any, interrupts: Interrupts, pump: Callable[[], None]) -> None:
        self._shell = shell
        self._interrupts = interrupts
        self._pump = pump
        self._pumped = 0.0
        self._runs = 0

    async def run(
        self, code: str, token: object, seconds: float, scratch: bool, on_output: Callable[[str], None]
    ) -> CodeOutcome:
        """Run ``code``; ``token`` names it for ``Interrupts.throw``. A press of Stop raises ``KeyboardInterrupt`` on after it."""
        begin = time.perf_counter()
        space: dict[str, Any] = dict(self._shell.user_ns) if scratch else self._shell.user_ns

        pieces: list[str] = []

        def output(text: str) -> None:
            pieces.append(text)
            if time.monotonic() - self._pumped > TICK:
                on_output("".join(pieces)[-_LIVE:])
                pieces.clear()
                self._pump()
                self._pumped = time.monotonic()

        collected = Collected(output)
        timed_out, error = False, ""
        name = self._remember(code)
        try:
            parts = self._compile(code, name)
        except SyntaxError as problem:
            return CodeOutcome("", error=_syntax_error(problem))
        try:
            with captured(self._shell, collected), self._interrupts.limited(token, seconds):
                await self._parts(parts, name, space, token, collected)
        except TimeUp:
            timed_out, error = True, f"timed out after {seconds:g} s"
        except CalledOff:
            error = "interrupted"
        except KeyboardInterrupt:
            error = "interrupted by the person"
        except SystemExit as problem:
            error = f"SystemExit: {problem.code}"
        except BaseException as problem:
            if isinstance(problem, asyncio.CancelledError) and _task_cancelled():
                raise
            error = tidy(problem, name)
        images = tuple(collected.images)
        return CodeOutcome(collected.text(), error, images, timed_out, time.perf_counter() - begin)

    def _remember(self, code: str) -> str:
        """Keep the source where tracebacks look for it."""
        self._runs += 1
        name = _NAME.format(self._runs)
        lines = [line + "\n" for line in code.splitlines()]
        linecache.cache[name] = (len(code), None, lines, name)
        linecache.cache.pop(_NAME.format(self._runs - _KEPT_SOURCES), None)
        return name

    def _compile(self, code: str, name: str) -> list[tuple[CodeType, bool]]:
        """(code object, whether its value is shown), statement block then last expression."""
        source = self._shell.transform_cell(code)
        if source != code:
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        tree = ast.parse(source, name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        parts: list[tuple[CodeType, bool]] = []
        last = tree.body[-1] if tree.body else None
        quiet = source.rstrip().endswith(";")
        if isinstance(last, ast.Expr) and not quiet:
            tree.body.pop()
            parts.append((compile(ast.Expression(last.value), name, "eval", flags, dont_inherit=True), True))
        if tree.body:
            parts.insert(0, (compile(tree, name, "exec", flags, dont_inherit=True), False))
        return parts

    async def _parts(
        self, parts: list[tuple[CodeType, bool]], name: str, space: dict[str, Any], token: object, collected: Collected
    ) -> None:
        for code, shown in parts:
            if code.co_flags & inspect.CO_COROUTINE:
                value = await self._await(code, name, space, token)
            else:
                with self._interrupts.blocking(token):
                    value = eval(code, space)  # noqa: S307 - running this is what a person allowed
            if shown and value is not None:
                with self._interrupts.blocking(token):
                    data, _ = self._shell.display_formatter.format(value)
                    _show_value(collected, value, data)

    async def _await(self, code: CodeType, name: str, space: dict[str, Any], token: object) -> Any:
        """Code with a top-level ``await``: a task, while the view goes on."""

        def inside(frame: FrameType | None) -> bool:
            while frame is not None:
                if frame.f_code.co_filename == name:
                    return True
                frame = frame.f_back
            return False

        waiting: Awaitable[Any] = eval(code, space)  # noqa: S307
        task: asyncio.Future[Any] = asyncio.ensure_future(_held(waiting))
        try:
            while not task.done():
                with self._interrupts.blocking(token, inside):
                    await asyncio.wait({task}, timeout=TICK)
                self._pump()
                late = self._interrupts.take_late(token)
                if late is not None:
                    raise late
                if self._interrupts.pressed:
                    raise KeyboardInterrupt
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)
        outcome = task.result()
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _held(waiting: Awaitable[Any]) -> Any:
    """What the code gave or raised; an interrupt must not travel through the event loop itself."""
    try:
        return await waiting
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a person's code raises
        return _Raised(error)


def _task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _show_value(collected: Collected, value: Any, data: dict[str, Any]) -> None:
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(value, figure.Figure):
        from nbagent.notebook.capture import small_png

        data = {"image/png": small_png(value)}
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close(value)
    collected.show(data)


def _syntax_error(problem: SyntaxError) -> str:
    return "".join(traceback.format_exception_only(type(problem), problem)).strip()


def tidy(error: BaseException, name: str) -> str:
    """A traceback that begins in the agent's code; plain text, long ones cut in the middle."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((index for index, frame in enumerate(frames) if frame.filename == name), len(frames))
    frames = traceback.StackSummary.from_list(frames[first:])
    if len(frames) > _FRAMES:
        half = _FRAMES // 2
        listed = traceback.format_list(frames[:half])
        listed += [f"  … {len(frames) - 2 * half} frames …\n", *traceback.format_list(frames[-half:])]
    else:
        listed = traceback.format_list(frames)
    head = ["Traceback (most recent call last):\n"] if listed else []
    return "".join([*head, *listed, *_only(error)]).strip()


def _only(error: BaseException) -> list[str]:
    try:
        return traceback.format_exception_only(type(error), error)
    except Exception:  # noqa: BLE001 - an exception whose own words raise
        return [type(error).__name__ + "\n"]
