"""The program's standard streams, fit for use whatever it was started with."""

from __future__ import annotations

import io
import os
import sys

_NAMES = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def settle() -> None:
    """A closed stream becomes the null device, and what the encoding of standard output lacks is replaced.

    The numbers 0, 1 and 2 are taken too, or the next file that is opened would be what children believe to be their output.
    """
    for number, (name, mode) in enumerate(_NAMES):
        if getattr(sys, name) is None:
            _occupy(number)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole process
    _reconfigure(errors="replace")


def speak_utf8() -> None:
    """JSON is UTF-8, whatever the terminal speaks."""
    _reconfigure(encoding="utf-8", errors="replace")


def fault() -> OSError | None:
    """Why standard output takes nothing any more, if it does not; what is left for it is then given up."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the same error comes again at exit
        return error
    return None


def _reconfigure(**how: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(**how)  # type: ignore[arg-type]


def _occupy(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        taken = os.open(os.devnull, os.O_RDWR)
        if taken == number:
            os.set_inheritable(taken, True)
        else:  # a lower number was free: that one is no stream of ours
            os.close(taken)
