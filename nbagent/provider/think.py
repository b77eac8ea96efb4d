"""Reasoning that comes inside the text, between ``<think>`` tags, told apart from the answer as it streams."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["say", "think", "unsay"]
Piece = tuple[Kind, str]

_TAG = re.compile(r"<(/?)(think|thinking|thought)>")
_TAGS = tuple(f"<{slash}{name}>" for slash in ("", "/") for name in ("think", "thinking", "thought"))
LONGEST_UNSAID = 400_000


def _held(text: str, tags: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may be the beginning of one of ``tags``."""
    place = text.rfind("<", max(0, len(text) - 12))
    if place < 0:
        return 0
    rest = text[place:]
    return len(rest) if any(tag.startswith(rest) for tag in tags) else 0


class ThinkFilter:
    """Parts text into answer (``say``) and reasoning (``think``).

    An opening tag counts at the beginning of a line outside a code block. One in the middle of a line is text until a closing tag
    follows: then what lies between is taken back (``unsay``, the text before it once more, ``think``). A closing tag that
    nothing opened (some chat templates open it in the prompt) makes reasoning of all text before it in the same way.
    Tags in code blocks or in quotes are text like any other.
    """

    def __init__(self) -> None:
        self._waiting = ""
        self._inside = ""  # the closing tag that is waited for
        self._tagged = False  # a tag has been seen: a lone closing tag is text from now on
        self._foreign = False  # reasoning comes in a field of its own
        self._mid: tuple[int, str] | None = (
            None  # where in the text, and which, an opening tag stands in the middle of a line
        )
        self._said: list[str] = []
        self._said_size = 0
        self._spoken = False  # something other than white space was said
        self._line = ""  # the last, open line of the answer
        self._fenced = False
        self._trim = False

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain with ``text``."""
        if not text:
            return []
        if not self._waiting and not self._inside and not self._trim and "<" not in text:
            self._note(text)
            return [("say", text)]
        return self._parse(self._waiting + text, last=False)

    def end(self) -> list[Piece]:
        """What was held back, at the end of the answer."""
        return self._parse(self._waiting, last=True)

    def no_lone_tags(self) -> None:
        """Reasoning comes in a field of its own, so a closing tag in the text means nothing."""
        self._tagged = self._foreign = True

    def _parse(self, text: str, last: bool) -> list[Piece]:
        out: list[Piece] = []
        self._waiting = ""
        while text:
            text = self._inner(text, last, out) if self._inside else self._outer(text, last, out)
        return out

    def _inner(self, text: str, last: bool, out: list[Piece]) -> str:
        place = text.find(self._inside)
        if place >= 0:
            rest = text[place + len(self._inside) :]
            if text[:place]:
                out.append(("think", text[:place]))
            self._inside, self._trim = "", True
            return rest
        keep = 0 if last else _held(text, (self._inside,))
        self._waiting = text[len(text) - keep :] if keep else ""
        if len(text) > keep:
            out.append(("think", text[: len(text) - keep]))
        return ""

    def _outer(self, text: str, last: bool, out: list[Piece]) -> str:
        if self._trim:
            text = text if self._spoken else text.lstrip()
            if not text:
                return ""
            self._trim = False
        match = _TAG.search(text)
        if match is None:
            keep = 0 if last else _held(text, _TAGS)
            self._waiting = text[len(text) - keep :] if keep else ""
            self._say(text[: len(text) - keep], out)
            return ""
        self._say(text[: match.start()], out)
        if not match[1] and self._opens():
            self._inside, self._tagged = f"</{match[2]}>", True
        elif match[1] and self._closes(match[2]):
            self._unsay(out)
        else:
            if not match[1] and self._mid is None and not self._fenced and not self._quoted():
                self._mid = self._said_size, match[0]
            self._say(match[0], out)
        return text[match.end() :]

    def _opens(self) -> bool:
        return not self._fenced and not self._line.strip()

    def _quoted(self) -> bool:
        return self._line.endswith(("`", "'", '"')) or self._line.count("`") % 2 == 1

    def _closes(self, name: str) -> bool:
        if self._fenced or self._foreign or self._quoted() or self._said_size > LONGEST_UNSAID:
            return False
        if self._mid is not None and self._mid[1] != f"<{name}>":
            self._mid = None
        return self._mid is not None or not self._tagged

    def _unsay(self, out: list[Piece]) -> None:
        text = "".join(self._said)
        before, thought = "", text
        if self._mid is not None:
            place, tag = self._mid
            before, thought = text[:place], text[place + len(tag) :]
        self._said, self._said_size, self._line, self._spoken = [], 0, "", False
        self._mid = None
        self._tagged = True
        if text:
            out[:] = [("unsay", ""), *(piece for piece in out if piece[0] == "think")]
        self._say(before, out)
        if thought:
            out.append(("think", thought))
        self._trim = True

    def _say(self, text: str, out: list[Piece]) -> None:
        if text:
            self._note(text)
            out.append(("say", text))

    def _note(self, text: str) -> None:
        """Remember where the answer stands: its last line, whether in a code block, and all of it while it may be unsaid."""
        self._said_size += len(text)
        self._spoken = self._spoken or not text.isspace()
        if self._said_size <= LONGEST_UNSAID:
            self._said.append(text)
        *whole, last = (self._line + text).split("\n")
        for line in whole:
            if line.lstrip().startswith(("```", "~~~")):
                self._fenced = not self._fenced
        # A fence's opening line counts as soon as it is complete; an open line never does.
        self._line = last[-400:] if len(last) > 400 else last
