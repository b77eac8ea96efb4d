"""`nbagent` as a program beside the notebook, so that it can be stopped and killed from the outside."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from played_server import serve

Program = subprocess.Popen[str]


def played(cassette: str) -> Callable[..., Program]:
    """A function that starts `nbagent` with the words that it is given. Its model is a server on this machine that plays `cassette`."""
    url = serve(str(Path(__file__).parent / cassette))
    own = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "NBAGENT_MODEL": "played"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NBAGENT_CASSETTE")}

    def nbagent(*words: str) -> Program:
        command = [sys.executable, "-m", "nbagent.cli", *words, "--format", "json"]
        return subprocess.Popen(command, env=kept | own, stdout=subprocess.PIPE, text=True)

    return nbagent


def until_it_waits(program: Program) -> str:
    """Read what the program tells, one event a line, until a command runs; the id of the session."""
    session = ""
    for line in program.stdout:
        event = json.loads(line)
        session = event["session"] if event["type"] == "session" else session
        if event["type"] == "tool" and event["state"] == "running":
            print("running:", event["input"]["command"])
            return session
    return session


def tell(program: Program) -> None:
    """Print what the program tells until it ends, and its exit status."""
    for line in program.stdout:
        event = json.loads(line)
        if event["type"] == "text":
            print("says   ", event["text"])
        elif event["type"] == "tool" and event["state"] in ("completed", "error"):
            print("tool   ", event["name"], event["title"], "·", event["state"], event["error"])
    print("status ", program.wait())
