"""Long runs on made-up streams: ``make fuzz``."""

from __future__ import annotations

import os
import random
import time

import pytest

from nbagent.errors import ProviderError
from nbagent.provider.provider import Called, Delta, Ended
from tests.streams import NAMES, byte_cuts, read, stream

pytestmark = pytest.mark.fuzz


def damaged(data: bytes, rng: random.Random) -> bytes:
    """``data`` with a few bytes lost, doubled, changed, or lines of it moved."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        place = rng.randrange(len(out))
        match rng.randrange(5):
            case 0:
                del out[place : place + rng.randrange(1, 30)]
            case 1:
                out[place:place] = out[place : place + rng.randrange(1, 60)]
            case 2:
                out[place] = rng.randrange(256)
            case 3:
                out[place:place] = rng.choice([b"\n\n", b"\r", b"data: ", b"null", b"[DONE]", b'"', b"}", b"\xff"])
            case _:
                lines = bytes(out).split(b"\n")
                a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[a], lines[b] = lines[b], lines[a]
                out = bytearray(b"\n".join(lines))
        if not out:
            return b""
    return bytes(out)


def test_damaged_streams_end_in_an_answer_or_a_sentence() -> None:
    """Whatever the damage: no other error, ``Ended`` last, calls with objects only and ids of their own."""
    seed = int(os.environ.get("NBAGENT_FUZZ_SEED", str(time.time_ns())))
    rng = random.Random(seed)
    end = time.monotonic() + float(os.environ.get("NBAGENT_FUZZ_SECONDS", "60")) / 2
    while time.monotonic() < end:
        name = rng.choice(NAMES)
        data, expected = stream(name)
        bad = damaged(data, rng)
        pieces = byte_cuts(bad, rng.randrange(1, 1 << 30)) if len(bad) > 1 else [bad]
        deltas: list[Delta] = []
        try:
            deltas = list(read(pieces, expected.get("api", "chat")))
        except ProviderError as error:
            assert str(error).strip(), (seed, name, bad)
            continue
        assert isinstance(deltas[-1], Ended), (seed, name, bad)
        calls = [delta for delta in deltas if isinstance(delta, Called)]
        assert len({call.id for call in calls}) == len(calls), (seed, name, bad)
        assert all(isinstance(call.arguments, dict) for call in calls), (seed, name, bad)
