"""A fresh copy of a lesson's project to work on, so that a notebook can be run again and again.

Everything happens in `work/`, beside the notebooks: the copy is made anew each time, and what the lesson ships stays as it is.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

LESSONS = Path(__file__).parent


def fresh(project: str, cassette: str = "") -> None:
    """Copy `project` to `work/project`, put it under version control, and make it the current folder.

    With `cassette`, the answers in that file are played, so that no key and no network are needed. Leave it away to ask the
    model that your settings name.
    """
    work = LESSONS / "work" / project
    os.chdir(LESSONS)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(LESSONS / project, work, ignore=shutil.ignore_patterns("__pycache__", ".nbagent"))
    _version(work)
    _date(work)
    os.chdir(work)
    sys.path.insert(0, str(LESSONS))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    _this_python_first()
    if cassette:
        os.environ["NBAGENT_CASSETTE"] = str(LESSONS / cassette)
    print(f"work/{project}: {', '.join(sorted(p.name for p in work.iterdir() if p.name != '.git'))}")


def _this_python_first() -> None:
    """`python` in a command is the Python of this kernel, whose packages the lesson needs: also when its environment was never
    activated."""
    here = str(Path(sys.executable).parent)
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([here, *(place for place in places if place != here)])


def _version(work: Path) -> None:
    """An empty git repository: nbagent keeps the plans of a project that is under version control inside it."""
    try:
        subprocess.run(["git", "init", "-q", str(work)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        for folder in ("objects", "refs"):
            (work / ".git" / folder).mkdir(parents=True)
        (work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


def _date(work: Path) -> None:
    """Files dated one second apart, by name: tools that list the newest first give the same order each time."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and ".git" not in path.parts)
    for age, path in enumerate(files):
        os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
