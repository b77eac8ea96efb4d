"""The open notebook, through the pages that are linked to this kernel (the JupyterLab extension's side is ``link.ts``).

A page opens a comm over a subshell of its own, so that its messages arrive while a cell runs, on that subshell's thread. What
is sent goes out in the context that the comm was opened in: the kernel routes a page's answers by it.
Nothing is opened from here: a kernel whose front end has no extension never hears of a comm.

Messages of the page: ``hello`` (as the comm's first data: ``session``, ``path``, ``root``, ``dirty``, ``editing``), ``dirty``
(``paths``), ``response`` (to a request, by ``id``), ``message`` (``message``: what the view sends), ``watch`` (the page was loaded
while a cell ran: it wants the record). Messages of the kernel: ``hello``, ``request`` (``id``, ``op``: ``ping``, ``cells``, ``apply``),
``ack``, ``refused``, ``full``, ``record`` (``cell``, ``data``: the record as a MIME bundle, at the end of the run in every form).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nbagent.errors import ToolError
from nbagent.frontend import CellResult
from nbagent.notebook.record import MIME, fit, mimebundle
from nbagent.notebook.words import UNFINISHED

TARGET = "nbagent"
PING_SECONDS = 4.0
"""A page that draws a long record on a busy machine answers nothing meanwhile, and is there all the same."""
WATCH_SECONDS = 0.4
REQUEST_SECONDS = 10.0

Message = dict[str, Any]

CLOSED: Message = {"ok": False, "error": "The page was closed. Read the notebook again before you edit it."}


class Page:
    """One open notebook in one browser page. Methods may be called from any thread."""

    def __init__(self, comm: Any, hello: Message, session: str) -> None:
        self._comm = comm
        self._context = contextvars.copy_context()
        self._waiting: dict[str, Future[Message]] = {}
        self._lock = threading.Lock()
        self.session = session
        self.path = _text(hello.get("path"))
        self.root = _text(hello.get("root"))
        self.dirty = _texts(hello.get("dirty"))
        self.editing = hello.get("editing") is not False
        self.open = True
        self.watching = False

    def send(self, message: Message) -> None:
        """Send, always in the context of the comm's opening: one message sent otherwise moves all answers to the main shell."""
        if self.open:
            self._context.copy().run(self._comm.send, message)

    def request(self, op: str, **fields: Any) -> Future[Message]:
        """Ask the page; the future gets its response (``ok`` and more)."""
        name = uuid.uuid4().hex
        future: Future[Message] = Future()
        if not self.open:
            future.set_result(CLOSED)
            return future
        with self._lock:
            self._waiting[name] = future
        self.send({"kind": "request", "id": name, "op": op, **fields})
        return future

    def take_response(self, message: Message) -> None:
        with self._lock:
            future = self._waiting.pop(_text(message.get("id")), None)
        if future is not None and not future.done():
            future.set_result(message)

    def take_dirty(self, message: Message) -> None:
        self.dirty = _texts(message.get("paths"))
        self.editing = message.get("editing") is not False

    def close(self) -> None:
        """The page is gone: whoever waits for it hears so."""
        self.open = False
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            if not future.done():
                future.set_result(CLOSED)

    def absolute(self, path: str) -> Path | None:
        """A path of the page as one of this machine, or None when the files are elsewhere."""
        return _absolute(self.root, path)


class Told(Protocol):
    """A run as a value (``transcript.Transcript``)."""

    def record(self) -> Message: ...

    def full(self, item_id: str) -> Message | None: ...


@dataclass(frozen=True)
class _Run:
    take: Callable[[Message], str]
    told: Told
    cell: str


class Link:
    """All pages of this kernel, and the run that they may answer."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._watcher: threading.Thread | None = None

    # the run

    def begin(self, take: Callable[[Message], str], told: Told, cell: str) -> None:
        """A cell of nbagent runs. ``take`` gets what a page's view says, on another thread; "" when it was taken, else why not."""
        self._run = _Run(take, told, cell)

    def end(self) -> None:
        """The cell is over. Pages that watch get its record once more."""
        self._run = None

    def _watch(self) -> None:
        with self._lock:
            if self._run is None or self._watcher is not None:
                return
            self._watcher = threading.Thread(target=self._tell, args=(self._run,), name="nbagent-watch", daemon=True)
        self._watcher.start()

    def _tell(self, run: _Run) -> None:
        """The record, as it changes, to pages that came while the run went on."""
        sent: dict[int, Message] = {}
        over = False
        while not over and (watching := [page for page in self.pages() if page.watching]):
            over = self._run is not run
            record = _copied(run.told)
            for page in watching:
                page.watching = not over
                if record is not None and (over or sent.get(id(page)) != record):
                    sent[id(page)] = record
                    data = mimebundle(record) if over else {MIME: fit(record), "text/plain": UNFINISHED}
                    page.send({"kind": "record", "cell": run.cell, "data": data})
            time.sleep(0 if over else WATCH_SECONDS)
        with self._lock:
            self._watcher = None
        if any(page.watching for page in self.pages()):
            self._watch()

    # the comm

    def on_open(self, comm: Any, opening: Message) -> None:
        """A page opens a comm; on the thread of its subshell."""
        hello = opening["content"].get("data") or {}
        page = Page(comm, hello, _text(opening["header"].get("session")))
        with self._lock:
            self._pages[comm.comm_id] = page

        def on_message(message: Message) -> None:
            self._take(page, message["content"].get("data") or {})

        def on_close(message: Message) -> None:
            self._drop(comm.comm_id)

        # the usual way around fires the shell's cell events, on this thread
        comm.handle_msg = on_message
        comm.on_close(on_close)
        page.send({"kind": "hello", "version": 1})

    def _take(self, page: Page, data: Message) -> None:
        kind = data.get("kind")
        page.open = True  # it was only slow
        if kind == "response":
            page.take_response(data)
        elif kind == "dirty":
            page.take_dirty(data)
        elif kind == "watch":
            page.watching = True
            self._watch()
        elif kind == "message" and isinstance(data.get("message"), dict):
            self._forward(page, data["message"])

    def _forward(self, page: Page, message: Message) -> None:
        run = self._run
        if message.get("kind") == "fetch":
            item = run.told.full(_text(message.get("id"))) if run is not None else None
            if item is not None:
                page.send({"kind": "full", "item": item})
            return
        why = "expired: no cell of nbagent runs" if run is None else run.take(message)
        if "id" in message:
            answer = (
                {"kind": "refused", "id": message["id"], "error": why} if why else {"kind": "ack", "id": message["id"]}
            )
            page.send(answer)

    def _drop(self, comm_id: str) -> None:
        with self._lock:
            page = self._pages.pop(comm_id, None)
        if page is not None:
            page.close()

    def close(self) -> None:
        """Forget all pages (nbagent is unloaded)."""
        with self._lock:
            pages, self._pages = list(self._pages.values()), {}
        for page in pages:
            page.close()

    # who is there

    def pages(self) -> list[Page]:
        """Linked pages, newest last."""
        with self._lock:
            return [page for page in self._pages.values() if page.open]

    def page(self, session: str, path: str) -> Page | None:
        """The page with this session of the messaging protocol, else (it was reloaded) the newest that has ``path`` open."""
        pages = self.pages()
        mine = [page for page in pages if page.session == session]
        if mine:
            return mine[-1]
        same = [page for page in pages if path and page.path == path]
        return same[-1] if same else None


class LiveNotebook:
    """An ``OpenNotebook``: the one that the running cell is in, as the page has it.

    ``session``: of the page that runs the cell. ``cell``: id of the running cell ("" unknown). ``root``: of the project.
    ``fallback``: path of the notebook file when no page is linked ("" unknown).
    """

    def __init__(self, link: Link, session: str, cell: str = "", root: Path | None = None, fallback: str = "") -> None:
        self._link = link
        self._session = session
        self._cell = cell
        self._root = root
        self._fallback = fallback
        self._path = ""
        self._page()  # a page that is reloaded later is known by its path

    @property
    def path(self) -> str:
        """Relative to the root, or absolute outside of it; "" when unknown."""
        page = self._page()
        absolute = page.absolute(page.path) if page is not None else None
        if absolute is None:
            absolute = Path(self._fallback).absolute() if self._fallback else None
        if absolute is None:
            return ""
        if self._root is not None and absolute.is_relative_to(self._root):
            return absolute.relative_to(self._root).as_posix()
        return str(absolute)

    @property
    def cell(self) -> str:
        """Id of the cell that runs, "" when unknown."""
        return self._cell

    @property
    def connected(self) -> bool:
        page = self._page()
        return page is not None and page.editing

    def open_paths(self) -> tuple[str, ...]:
        """Absolute paths of documents with unsaved changes, of every linked page."""
        found = (page.absolute(path) for page in self._link.pages() for path in page.dirty)
        return tuple(sorted({str(path) for path in found if path is not None}))

    async def cells(self) -> list[dict[str, Any]]:
        """Raises ``ToolError`` when no page answers."""
        response = await self._request("cells")
        cells = response.get("cells")
        return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else []

    async def apply(self, operations: list[dict[str, Any]]) -> CellResult:
        """Carry out all operations, or none. Raises ``ToolError`` with what to do.

        Each has ``op``: ``insert`` (``source``, ``cell_type``, ``new_id``?, anchor), ``replace`` (``id``, ``source``), ``edit`` (``id``,
        ``old``, ``new``, ``all``?), ``delete``, ``move`` (``id``, anchor), ``type`` (``id``, ``cell_type``). Anchor: one of ``after`` and
        ``before`` (ids) and ``at`` (``start``, ``end``). ``expected``: the source that the cell had when it was read; another one now
        refuses the edit.
        """
        response = await self._request("apply", operations=operations, running=self._cell)
        return CellResult(tuple(_texts(response.get("lines"))), tuple(_texts(response.get("new_ids"))))

    def _page(self) -> Page | None:
        page = self._link.page(self._session, self._path)
        if page is not None:
            self._session, self._path = page.session, page.path
        return page

    async def _request(self, op: str, **fields: Any) -> Message:
        page = await self._reached()
        response = await _answer(page.request(op, **fields), REQUEST_SECONDS)
        if response is None:
            # it may still be done: a second try elsewhere could do it twice
            raise ToolError("The page did not answer in time; read the notebook again before you edit it.")
        if response.get("ok") is not True:
            raise ToolError(_text(response.get("error")) or "The page could not do it.")
        return response

    async def _reached(self) -> Page:
        """A page that answers. A slow one is not given up before another has been asked, and nothing is sent twice."""
        page = self._page()
        while page is not None:
            response = await _answer(page.request("ping"), PING_SECONDS)
            if response is not None and response.get("ok") is True:
                return page
            page.close()
            page = self._page()
        raise ToolError("The notebook is not open in a page that can edit it.")


async def _answer(future: Future[Message], seconds: float) -> Message | None:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
    except TimeoutError:
        return None


def _copied(told: Told) -> Message | None:
    """The record; None when the run changed it just then, again and again."""
    for _ in range(5):
        try:
            return told.record()
        except RuntimeError:
            continue
    return None


def _absolute(root: str, path: str) -> Path | None:
    if not root or not path or ":" in path.split("/", 1)[0]:
        return None  # another drive of the front end, not a file of this machine
    found = Path(root).expanduser() / path
    return found if found.exists() else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def install(shell: Any) -> Link | None:
    """Listen for pages in this shell's kernel; None where there is no kernel. Installing again gives the same link."""
    manager = getattr(getattr(shell, "kernel", None), "comm_manager", None)
    if manager is None:
        return None
    known = manager.targets.get(TARGET)
    owner = getattr(known, "__self__", None)
    if isinstance(owner, Link):
        return owner
    link = Link()
    manager.register_target(TARGET, link.on_open)
    return link


def uninstall(shell: Any) -> None:
    """Stop listening."""
    manager = getattr(getattr(shell, "kernel", None), "comm_manager", None)
    known = manager.targets.get(TARGET) if manager is not None else None
    owner = getattr(known, "__self__", None)
    if manager is not None and isinstance(owner, Link):
        manager.unregister_target(TARGET, known)
        owner.close()


def running_page(shell: Any) -> tuple[str, str]:
    """(session of the page that runs this cell, id of the cell), each "" when unknown. Call it on the cell's thread."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return "", ""
    try:
        parent = kernel.get_parent("shell")
    except (AttributeError, LookupError):
        return "", ""
    header, metadata = parent.get("header") or {}, parent.get("metadata") or {}
    return _text(header.get("session")), _text(metadata.get("cellId"))
