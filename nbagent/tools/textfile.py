"""A text file's bytes as text that can be matched and spliced, and back, leaving alone what was not touched."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field

from nbagent.errors import ToolError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# What bytes that are no UTF-8 are decoded to.
_ESCAPED = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class TextFile:
    """``text`` with every line break as ``\\n``; ``breaks``: the break that each of them really is, in order.

    ``bom``: the bytes before the text. ``encoding``: how the rest is encoded; bytes that are no UTF-8 survive a round trip.
    """

    text: str
    breaks: tuple[str, ...] = ()
    bom: bytes = b""
    encoding: str = "utf-8"
    default_break: str = field(default="\n")

    def replaced(self, spans: list[tuple[int, int, str]]) -> TextFile:
        """The file with each (start, end, new text) of ``text`` replaced; spans ascend and do not overlap.

        A new line break is what the one in its place was, else what the line's neighbours have; all others stay.
        """
        out: list[str] = []
        breaks: list[str] = []
        at = used = 0
        for start, end, new in spans:
            out.append(self.text[at:start])
            kept = self.text.count("\n", at, start)
            breaks.extend(self.breaks[used : used + kept])
            used += kept
            gone = self.text.count("\n", start, end)
            breaks.extend(self._fresh(new.count("\n"), used, gone))
            used += gone
            out.append(new)
            at = end
        out.append(self.text[at:])
        breaks.extend(self.breaks[used:])
        return TextFile("".join(out), tuple(breaks), self.bom, self.encoding, self.default_break)

    def _fresh(self, count: int, used: int, gone: int) -> list[str]:
        old = list(self.breaks[used : used + gone])
        if not old and self.breaks:
            # Inside one line: the break that ends it, else (last line without one) the break before it.
            old = [self.breaks[used] if used < len(self.breaks) else self.breaks[-1]]
        last = old[-1] if old else self.default_break
        return [old[i] if i < len(old) else last for i in range(count)]

    def encode(self) -> bytes:
        """The bytes of the file."""
        if all(one == "\n" for one in self.breaks):
            whole = self.text
        else:
            pieces = self.text.split("\n")
            whole = "".join(a + b for a, b in zip(pieces, (*self.breaks, ""), strict=True))
        return self.bom + encode_text(whole, self.encoding)


def refuse_mixed(file: TextFile, text: str, path: str) -> None:
    """A file in some old 8-bit encoding keeps its bytes, but text beyond ASCII cannot be found in it or put into it."""
    if not text.isascii() and _ESCAPED.search(file.text):
        raise ToolError(
            f"{path} is not UTF-8: it seems to be in an older encoding, such as Latin-1, so that only ASCII text can be matched or put "
            "into it. Keep to ASCII, or convert the file first (iconv -f latin1 -t utf-8)."
        )


def encode_text(text: str, encoding: str = "utf-8") -> bytes:
    """``text`` as bytes; raises ``ToolError`` for half a surrogate pair that no file can hold."""
    try:
        return text.encode(encoding, "surrogateescape" if encoding == "utf-8" else "strict")
    except UnicodeEncodeError as error:
        raise ToolError(f"The text cannot be written as {encoding}: {error.reason}. Send valid Unicode.") from None


def decode_file(data: bytes) -> TextFile:
    """The text in ``data``. Raises ``ToolError`` for what is no text."""
    bom, encoding = next(((mark, name) for mark, name in _BOMS if data.startswith(mark)), (b"", "utf-8"))
    body = data[len(bom) :]
    if encoding == "utf-8":
        if b"\0" in body[:8192]:
            raise ToolError("This is a binary file.")
        whole = body.decode("utf-8", "surrogateescape")
    else:
        try:
            whole = body.decode(encoding)
        except UnicodeDecodeError as error:
            raise ToolError(f"This file says it is {encoding}, but it is not: {error.reason}.") from None
    if "\r\n" not in whole:
        return TextFile(whole, ("\n",) * whole.count("\n"), bom, encoding)
    lines = whole.split("\n")
    breaks = tuple("\r\n" if line.endswith("\r") else "\n" for line in lines[:-1])
    text = "\n".join([*(line.removesuffix("\r") for line in lines[:-1]), lines[-1]])
    common = "\r\n" if breaks.count("\r\n") * 2 >= len(breaks) else "\n"
    return TextFile(text, breaks, bom, encoding, common)


def encoding_of(head: bytes) -> tuple[int, str]:
    """(length of the byte order mark, encoding) of a file that begins with ``head``."""
    bom, encoding = next(((mark, name) for mark, name in _BOMS if head.startswith(mark)), (b"", "utf-8"))
    return len(bom), encoding


def looks_binary(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is no text: a NUL byte, or more than a third of control characters."""
    _, encoding = encoding_of(head)
    if encoding != "utf-8" or not head:
        return False
    if b"\0" in head:
        return True
    control = sum(head.count(bytes((code,))) for code in range(32) if code not in (8, 9, 10, 12, 13, 27))
    return control * 3 > len(head)


def counted(number: int, one: str, more: str = "") -> str:
    """``1 line``, ``2 lines``."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def printable(text: str) -> str:
    """``text`` with a replacement mark where a file's bytes were no UTF-8, so that it can be stored and sent."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
