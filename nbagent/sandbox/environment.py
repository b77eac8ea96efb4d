"""The environment of child processes: no keys, nothing that asks, and behind the wall a home of its own."""

from __future__ import annotations

import os
import re
import site
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from nbagent.sandbox.wall import Confinement

_WORDS = frozenset(
    """KEY KEYS APIKEY APIKEYS TOKEN TOKENS SECRET SECRETS PASS PASSWD PASSWORD PASSWORDS PASSPHRASE CREDENTIAL CREDENTIALS CREDS
    AUTH DSN PAT JWT COOKIE BEARER""".split()  # noqa: SIM905
)
_PIECES = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "ACCESSKEY", "PRIVATEKEY")
_ENDINGS = ("TOKEN", "_PWD", "KEY", "_PSW", "_KEYFILE")
_NAMES = frozenset(["AZURE_CLIENT_ID", "AZURE_TENANT_ID", "JPY_PARENT_PID", "JPY_SESSION_NAME"])
_ASKING = frozenset(["GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS"])
_NO_KEYS = frozenset(["SSH_AUTH_SOCK"])  # where an agent listens; the keys stay with it
_OWN = "NBAGENT_"
_GIT_SETTING = re.compile(r"GIT_CONFIG_(?:COUNT|PARAMETERS|KEY_\d+|VALUE_\d+)")
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@"  # a password in an address
    r"|(?i:(?:^|[?&;\s])(?:password|passwd|pwd|api_?key|access_?token|auth_?token|accountkey|sharedaccesskey|secret|sig)=[^\s;&]+)"
    r"|(?i:authorization:\s*\S+)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:sk|rk|pk)[-_](?:[A-Za-z]+[-_])*[A-Za-z0-9]{20,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{40,}"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\."
)

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "EDITOR": "true",
    "VISUAL": "true",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "AWS_PAGER": "",
    "GH_PAGER": "cat",
    "GH_PROMPT_DISABLED": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "HGPLAIN": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
    "PY_COLORS": "0",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUNBUFFERED": "1",
}
_LOUD = (
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    "LESSOPEN",
    "LESSCLOSE",
    "PROMPT_COMMAND",
    "BASH_ENV",
    "ENV",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
)


def child_environment(environment: dict[str, str], allow: Sequence[str] = ()) -> dict[str, str]:
    """``environment`` without keys and with git, pagers and editors told not to ask.

    A variable is a key by its name (``*_API_KEY``, ``*_TOKEN``, ``*SECRET*``, ``*PASSWORD*``, cloud credentials, nbagent's own; case does
    not matter) or by its value (a password in an address, a private key, a well-known token). ``allow``: names or wildcards
    that are let through all the same.
    """
    kept = {name: value for name, value in environment.items() if _let_through(name, allow) or not is_key(name, value)}
    kept = {name: value for name, value in kept.items() if name not in _LOUD and not name.startswith("BASH_FUNC_")}
    settings = [name for name in environment if _GIT_SETTING.fullmatch(name)]
    if not all(name in kept for name in settings):  # git refuses to run with half of them
        kept = {name: value for name, value in kept.items() if name not in settings}
    if kept.get("MPLBACKEND", "").startswith("module:"):
        del kept["MPLBACKEND"]  # the notebook's own backend has no notebook in a child
    kept |= _QUIET
    kept.setdefault("LANG", "C.UTF-8")
    return kept


def is_key(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name or by what it looks like."""
    upper = name.upper()
    if upper in _NO_KEYS:
        return False
    if upper.startswith(_OWN) or upper in _NAMES or upper in _ASKING:
        return True
    return bool(_SECRET_VALUE.search(value)) or (_named_like_key(upper) and not _GIT_SETTING.fullmatch(upper))


def _named_like_key(upper: str) -> bool:
    words = set(re.split(r"[^A-Z0-9]+", upper))
    return bool(_WORDS & words) or upper.endswith(_ENDINGS) or any(piece in upper for piece in _PIECES)


def _let_through(name: str, allow: Sequence[str]) -> bool:
    return any(fnmatchcase(name.upper(), pattern.upper()) for pattern in allow)


# Ways to something outside the wall, and folders in a home that cannot be read there.
_OUTSIDE = frozenset(
    """SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY
    XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME DOCKER_HOST CONTAINER_HOST TMUX TMUX_PANE STY
    IPYTHONDIR JUPYTER_CONFIG_DIR JUPYTER_RUNTIME_DIR JUPYTER_DATA_DIR MPLCONFIGDIR GIT_CONFIG_GLOBAL HISTFILE
    NOTIFY_SOCKET""".split()  # noqa: SIM905
)


def confined_environment(environment: dict[str, str], confinement: Confinement, home: Path) -> dict[str, str]:
    """``environment`` for a process behind the wall: its home and its temporary folder are ``confinement.temp``, git and Python do
    not try to write where they cannot."""
    temp = str(confinement.temp.resolve())
    inside = {name: value for name, value in environment.items() if name not in _OUTSIDE}
    inside |= dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP", "TEMPDIR"), temp)
    inside |= {"PYTHONDONTWRITEBYTECODE": "1", "HISTFILE": "/dev/null"}
    inside["PYTEST_ADDOPTS"] = " ".join(filter(None, [inside.get("PYTEST_ADDOPTS"), "-p no:cacheprovider"]))
    inside.setdefault("PYTHONUSERBASE", site.getuserbase())
    return _trust(inside)


def unwalled_environment(environment: dict[str, str], root: Path) -> dict[str, str]:
    """``environment`` for a command that only looks and that no wall holds: git writes nothing by the way and starts nothing, and no
    program of the project stands in for one of the system."""
    kept = {name: value for name, value in environment.items() if name not in _STARTING}
    top = Path(os.path.realpath(root))
    places = [Path(place) for place in environment.get("PATH", os.defpath).split(os.pathsep) if place]
    outside = [
        place for place in places if place.is_absolute() and not Path(os.path.realpath(place)).is_relative_to(top)
    ]
    kept["PATH"] = os.pathsep.join(map(str, outside))
    return _with_git_settings(kept | {"GIT_NO_LAZY_FETCH": "1"}, _STILL)


_STARTING = frozenset(
    ["RIPGREP_CONFIG_PATH", "GIT_EXTERNAL_DIFF", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXEC_PATH"]
)
_STILL = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "diff.autoRefreshIndex": "false",
    "log.showSignature": "false",
    "safe.bareRepository": "explicit",
}


def _trust(environment: dict[str, str]) -> dict[str, str]:
    """Let git look at a project that another user owns: the person's own settings, which may say so, cannot be read here."""
    return _with_git_settings(environment, {"safe.directory": "*"})


def _with_git_settings(environment: dict[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    count = environment.get("GIT_CONFIG_COUNT", "0")
    number = int(count) if count.isdigit() else 0
    added: dict[str, str] = {}
    for at, (name, value) in enumerate(settings.items(), number):
        added |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return environment | added | {"GIT_CONFIG_COUNT": str(number + len(settings))}
