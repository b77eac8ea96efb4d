"""Secrets taken out of text: keys, tokens and whatever else must never be shown, stored or sent on.

``Masker`` knows values and also finds them URL-encoded, in base64 and escaped as JSON; ``MaskStream`` does the same for
text that comes in pieces. Where nothing matches, text passes through at the cost of one search.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

SHOWN = "***"
SHORTEST = 6

# Keys of model servers and a few others by their shape, for texts that hold a key nobody told us about.
KEY_SHAPES = (
    r"sk-[A-Za-z0-9_\-]{16,}",
    r"sk-(?:ant|or|proj|svcacct|admin)-[A-Za-z0-9_\-]{8,}",
    r"AIza[A-Za-z0-9_\-]{30,}",
    r"gsk_[A-Za-z0-9]{20,}",
    r"hf_[A-Za-z0-9]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{40,}",
    r"xai-[A-Za-z0-9]{30,}",
    r"AKIA[A-Z0-9]{16}",
    r"(?i:bearer)\s+[A-Za-z0-9._~+/\-]{16,}=*",
)
_SHAPES = re.compile(r"(?<![A-Za-z0-9_\-])(?:" + "|".join(KEY_SHAPES) + ")")
# A server that "hides" a key itself still tells its ends: sk-abc****wxyz.
_HALF_HIDDEN = re.compile(r"\b[A-Za-z]{2,4}-[A-Za-z0-9_\-]{0,12}\*{3,}[A-Za-z0-9_\-]{0,8}")


def spellings(secret: str) -> set[str]:
    """Every form in which ``secret`` may turn up in a text: plain, URL-encoded, JSON-escaped, base64 at any offset."""
    data = secret.encode("utf-8", "surrogatepass")
    found = {secret, quote_plus(secret, errors="replace")}
    found |= {quote(secret, safe=safe, errors="replace") for safe in ("", "/")}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    if len(data) >= 8:  # shorter ones would leave a core of a few letters, which matches by chance
        found |= _base64_cores(data)
    return {text for text in found if len(text) >= SHORTEST}


def _base64_cores(data: bytes) -> set[str]:
    """The letters of a base64 text that depend on ``data`` alone, for each of the three places where it may begin."""
    found: set[str] = set()
    for before in range(3):
        first = (before * 8 + 5) // 6
        last = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(b"\0" * before + data).decode()[first:last])
    return found


class Masker:
    """Replaces every known secret in a text by ``***``.

    ``secrets``: values of six characters or more; shorter ones are ignored, since masking them would spoil innocent
    text. ``shapes``: also mask what looks like a key (``sk-…``, ``ghp_…``, a bearer token).
    """

    def __init__(self, secrets: Iterable[str] = (), *, shapes: bool = False) -> None:
        self.shapes = shapes
        values = {secret.strip() for secret in secrets}
        forms = {form for value in values if len(value) >= SHORTEST for form in spellings(value)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if self._forms else None
        self._firsts = {form[0] for form in self._forms}
        self.longest = max((len(form) for form in self._forms), default=0)

    def __bool__(self) -> bool:
        return self._pattern is not None or self.shapes

    def __repr__(self) -> str:
        return f"Masker({len(self._forms)} forms, shapes={self.shapes})"

    def mask(self, text: str) -> str:
        """``text`` without secrets; the very same object when there are none."""
        if self._pattern is not None and self._pattern.search(text):
            text = self._pattern.sub(SHOWN, text)
        if self.shapes:
            text = _SHAPES.sub(SHOWN, text)
            text = _HALF_HIDDEN.sub(SHOWN, text)
        return text

    def mask_json(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys of objects too."""
        match value:
            case str():
                return self.mask(value)
            case dict():
                return {self.mask(key) if isinstance(key, str) else key: self.mask_json(v) for key, v in value.items()}
            case list():
                return [self.mask_json(item) for item in value]
            case tuple():
                return tuple(self.mask_json(item) for item in value)
        return value

    def held(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of a secret."""
        start = max(0, len(text) - self.longest + 1)
        for place in range(start, len(text)):
            if text[place] not in self._firsts:
                continue
            rest = text[place:]
            if any(len(form) > len(rest) and form.startswith(rest) for form in self._forms):
                return len(rest)
        return 0

    def stream(self) -> MaskStream:
        return MaskStream(self)


class MaskStream:
    """Masks text that comes in pieces: what may be the beginning of a secret waits for the next piece.

    Known values only: a key's shape shows only in a whole text.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._waiting = ""

    def feed(self, piece: str) -> str:
        """What may be shown now."""
        masker, text = self._masker, self._waiting + piece
        cut = len(text) - masker.held(text)
        if masker._pattern is not None:
            for match in masker._pattern.finditer(text):
                if match.start() < cut < match.end():  # it begins first, so nothing can begin inside it
                    cut = len(text) - masker.held(text[match.end() :])
        self._waiting = text[cut:]
        return masker.mask(text[:cut])

    def close(self) -> str:
        """What was held back, at the end of the text."""
        rest, self._waiting = self._waiting, ""
        return self._masker.mask(rest)
