"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("openai", "httpx", "ipykernel", "ipywidgets", "anywidget", "msgspec", "tree-sitter-bash", "jupyterlab")
PROGRAMS = (("rg", "--version"), ("git", "--version"), ("chromium", "--version"), ("node", "--version"))


def machine() -> list[str]:
    """Lines about processors, memory, system."""
    model = platform.processor() or platform.machine()
    memory = ""
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    if meminfo.is_file():
        memory = f", {int(meminfo.read_text().split()[1]) / 1024**2:.0f} GB of memory"
    return [f"{os.cpu_count()} processors ({model}){memory}", f"{platform.system()} {platform.release()}"]


def versions() -> list[str]:
    from nbagent.version import __version__

    found = [
        f"nbagent {__version__}",
        f"{platform.python_implementation()} {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
    ]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            pass
    for name, argument in PROGRAMS:
        if shutil.which(name):
            said = subprocess.run([name, argument], capture_output=True, text=True, timeout=20, check=False).stdout
            first = said.splitlines()[0].strip() if said else name
            found.append(first if name in first.lower() or name == "rg" else f"{name} {first}")
    return found


def load() -> float:
    """Processes that wanted a processor in the last minute, on average."""
    return os.getloadavg()[0]
