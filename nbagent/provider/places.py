"""What differs from machine to machine, taken out of a text and put back: paths, ids, times.

A cassette holds tokens like ``⟨root⟩`` where the machine that made it had its own folders, so that it names nobody's home and
fits anywhere. ``out`` and ``back`` are for what the model said (they undo each other); ``plain`` goes further and is for
comparing only.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Protocol

from nbagent.event import Event, SessionEvent
from nbagent.mask import Masker as Secrets


class Mask(Protocol):
    """Takes known secrets out of a text."""

    def mask(self, text: str) -> str: ...


Masker = Mask | Callable[[str], str]

_ID = re.compile(r"\b[a-z]{2,12}_[0-9a-f]{22}\b")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SHOWN_PLAN = re.compile(r"[^\s\"'`<>()|]*/plans/[^\s\"'`<>()|]+?\.md|\.nbagent/plans/[^\s\"'`<>()|]+?\.md")
_PLAN_FILE = re.compile(r"(?:\.nbagent|⟨data⟩|⟨home⟩\S*?)/plans/[^\s\"'`<>|]+?\.md")
_FORGET = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "⟨time⟩"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "⟨time⟩"),
    (
        re.compile(r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} +(?:\d\d:\d\d|\d{4})\b"),
        "⟨time⟩",
    ),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:s|ms|µs|us|ns|sec|secs|seconds|min)\b"), "⟨duration⟩"),
    (re.compile(r"\b0x[0-9a-fA-F]{6,16}\b"), "⟨address⟩"),
    (re.compile(r"\bpid[ =:]+\d+\b", re.IGNORECASE), "pid ⟨n⟩"),
    (re.compile(r"(\[image/[\w.+-]+) \d+ KB\]"), r"\1]"),  # how large a picture comes out is its library's affair
)


_KEYS = Secrets(shapes=True)
"""What looks like a key is one: a cassette is given away, and a key that nobody told us about may stand in a prompt or a file."""


def as_is(text: str) -> str:
    """The masker that masks nothing."""
    return text


class Places:
    """The folders of this machine and the plan file of this run. ``data``: nbagent's own data; ``scratch``: the run's temporary folder.

    ``plan`` may change from run to run; it is the path as the model is told it (relative to the root inside it). While nobody
    sets it, it is the one that ``see`` found in what the model was told last.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        home: Path | str | None = None,
        plan: str = "",
        masker: Masker | None = None,
        data: Path | str | None = None,
        scratch: Path | str | None = None,
    ) -> None:
        self.root = str(root) if root is not None else ""
        self.home = str(home) if home is not None else str(Path.home())
        self._plan = plan
        self._shown_plan = ""
        self.mask: Callable[[str], str] = (
            masker.mask if masker is not None and hasattr(masker, "mask") else masker or as_is
        )
        named = {
            "⟨root⟩": self.root,
            "⟨data⟩": str(data or ""),
            "⟨scratch⟩": str(scratch or ""),
            "⟨home⟩": self.home,
            "⟨tmp⟩": tempfile.gettempdir(),
        }
        self._named = {token: folder for token, folder in named.items() if folder}
        inner_first = sorted(self._named.items(), key=lambda pair: -len(pair[1]))  # one may lie in another
        self._folders = [(_folder_pattern(folder), token) for token, folder in inner_first]

    @property
    def plan(self) -> str:
        return self._plan or self._shown_plan

    @plan.setter
    def plan(self, path: str) -> None:
        self._plan = path

    def observe(self, event: Event) -> None:
        """A run's first event names its plan file; it counts unless somebody sets another."""
        if isinstance(event, SessionEvent) and event.plan and not event.parent:
            self._shown_plan = event.plan

    def see(self, *texts: str) -> None:
        """Look for a plan file's path in what a model is told; the first text that names one wins."""
        for text in texts:
            if found := _SHOWN_PLAN.findall(text):
                self._shown_plan = found[-1]
                return

    def out(self, text: str) -> str:
        """``text`` with secrets masked and this machine's folders and plan file as tokens."""
        text = _KEYS.mask(self.mask(text))
        if self.plan:
            text = re.sub(rf"(?<![\w.-]){re.escape(self.plan)}(?![\w-])", "⟨plan⟩", text)
        for pattern, token in self._folders:
            if pattern is not None:
                text = pattern.sub(token, text)
        return text

    def back(self, text: str) -> str:
        """``text`` with the tokens of ``out`` as this machine's folders and plan file."""
        if "⟨" not in text:
            return text
        text = text.replace("⟨plan⟩", self.plan or ".nbagent/plans/plan.md")
        for token, folder in self._named.items():
            text = text.replace(token, folder)
        return text

    def plain(self, text: str) -> str:
        """``text`` as it is compared: also without plan names, ids, times, durations and addresses."""
        text = _PLAN_FILE.sub("⟨plan⟩", self.out(text)).replace("⟨root⟩/⟨plan⟩", "⟨plan⟩")
        for pattern, token in _FORGET:
            text = pattern.sub(token, text)
        text = re.sub(r"⟨(?:tmp|scratch)⟩/[^\s\"'`:)\]]+", "⟨tmp⟩/⟨file⟩", text)
        return _UUID.sub("⟨id⟩", text)


class Ids:
    """The ids that a conversation has mentioned, numbered as they turned up: ``⟨id 1⟩``.

    A played model can so name a thing (a child session, a message) whose id was another one when it was recorded.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def learn(self, text: str) -> None:
        for found in _ID.findall(text):
            self._numbers.setdefault(found, len(self._numbers) + 1)

    def out(self, text: str) -> str:
        return _ID.sub(lambda m: f"⟨id {self._numbers[m[0]]}⟩" if m[0] in self._numbers else "⟨id⟩", text)

    def back(self, text: str) -> str:
        if "⟨id " not in text:
            return text
        known = {number: name for name, number in self._numbers.items()}
        return re.sub(r"⟨id (\d+)⟩", lambda m: known.get(int(m[1]), m[0]), text)


def each_text(value: object, change: Callable[[str], str]) -> object:
    """A JSON value with ``change`` applied to every string in it, keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key) if isinstance(key, str) else key: each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(item, change) for item in value]
    return value


def _folder_pattern(folder: str) -> re.Pattern[str] | None:
    """Matches ``folder`` however it is spelled, whole path steps only. None for no folder and for a root folder."""
    if len(folder.rstrip("/\\")) < 2 or re.fullmatch(r"[A-Za-z]:[\\/]?", folder):
        return None
    spellings = {folder.rstrip("/\\"), str(Path(folder).resolve())}
    if "\\" in folder:
        spellings |= {PureWindowsPath(folder).as_posix(), folder.replace("\\", "\\\\")}
    ordered = sorted(spellings, key=len, reverse=True)
    return re.compile(r"(?<![\w.-])(?:" + "|".join(re.escape(s) for s in ordered) + r")(?![\w-]|\.\w)")
