"""A program of its own in which a person sits before a review and does not answer, or only accepts a prompt.

``python -m tests.session.sitting review PLAN`` | ``accept TEXT``
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from nbagent.frontend import Review, Verdict
from nbagent.runtime import Runtime
from nbagent.session.session import Prompt
from tests.person import Person


class Sitting(Person):
    async def review(self, review: Review) -> Verdict:
        print(json.dumps({"type": "review", "path": review.path}), flush=True)
        await asyncio.sleep(120)
        raise AssertionError("nobody was to answer")


def main(what: str, value: str) -> None:
    runtime = Runtime.open(Path.cwd())
    if what == "review":
        runtime.start(Prompt("", "build", plan=value, carry_out=True), Sitting()).done.result(150)
        return
    session = runtime.session("build")
    runtime.worker.call(session.prompt(Prompt(value, "build"), Sitting(), resume=False))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
