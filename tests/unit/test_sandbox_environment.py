"""The environment of children: keys are gone, nothing asks, and the rest is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbagent.sandbox import Confinement, child_environment, confined_environment
from nbagent.sandbox.environment import is_key

KEYS = """OPENAI_API_KEY openai_api_key Anthropic_Api_Key GITHUB_TOKEN GH_TOKEN HF_TOKEN NPM_TOKEN MY_SECRET SECRET_KEY_BASE DJANGO_SECRET
CLIENT_SECRET_ID DB_PASSWORD PGPASSWORD MYSQL_PWD password PASSPHRASE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
AZURE_CLIENT_SECRET
AZURE_CLIENT_ID GOOGLE_APPLICATION_CREDENTIALS STRIPE_KEY APIKEY X_AUTH JUPYTERHUB_API_TOKEN JPY_API_TOKEN
NBAGENT_API_KEY NBAGENT_HOME NBAGENT_WALL ENCRYPTION_KEY SIGNING_KEYS SENTRY_DSN GITLAB_PAT GIT_ASKPASS COOKIE_SECRET""".split()  # noqa: SIM905
PLAIN = """PATH HOME PWD OLDPWD LANG LC_ALL USER SHELL VIRTUAL_ENV TOKENIZERS_PARALLELISM KEYBOARD_LAYOUT
AWS_PROFILE
AWS_REGION HF_HOME CONDA_PREFIX PYTHONPATH LS_COLORS SSH_AUTH_SOCK XAUTHORITY GIT_AUTHOR_NAME COMPASS MONKEYS PASSENGERS""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", KEYS)
def test_keys_by_name(name: str) -> None:
    assert name not in child_environment({name: "v"})


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_only_look_like_it(name: str) -> None:
    assert child_environment({name: "v"})[name] == "v"


@pytest.mark.parametrize(
    "value",
    [
        "postgres://user:hunter2@db/x",
        "http://:pass@proxy:80",
        "Server=x;Password=hunter2",
        "https://x.test/?api_key=abc",
        "-----BEGIN RSA PRIVATE KEY-----\nabc",
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    ],
)
def test_keys_by_value(value: str) -> None:
    assert is_key("HARMLESS", value)
    assert "HARMLESS" not in child_environment({"HARMLESS": value})


@pytest.mark.parametrize("value", ["http://proxy:8080", "a:b@c", "postgres://localhost/db", "skip-this-one", ""])
def test_values_that_only_look_like_it(value: str) -> None:
    assert child_environment({"HARMLESS": value})["HARMLESS"] == value


def test_settings_let_one_through() -> None:
    given = {"HF_TOKEN": "hf", "GITHUB_TOKEN": "gh", "DB_URL": "postgres://u:p@h/d"}
    kept = child_environment(given, ["hf_*", "db_url"])
    assert kept["HF_TOKEN"] == "hf"
    assert kept["DB_URL"] == given["DB_URL"]
    assert "GITHUB_TOKEN" not in kept


def test_nothing_asks_or_pages() -> None:
    made = child_environment(
        {"GIT_TERMINAL_PROMPT": "1", "PAGER": "less", "EDITOR": "vi", "BASH_ENV": "/x", "BASH_FUNC_git%%": "() { :; }"}
    )
    assert made["GIT_TERMINAL_PROMPT"] == "0"
    assert made["GIT_EDITOR"] == made["EDITOR"] == made["VISUAL"] == "true"
    assert made["PAGER"] == made["GIT_PAGER"] == "cat"
    assert made["NO_COLOR"] == "1"
    assert not {"BASH_ENV", "BASH_FUNC_git%%"} & made.keys()


def test_the_notebooks_drawing_backend_stays_in_the_notebook() -> None:
    assert "MPLBACKEND" not in child_environment({"MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    assert child_environment({"MPLBACKEND": "svg"})["MPLBACKEND"] == "svg"


def test_git_settings_are_passed_whole_or_not_at_all() -> None:
    given = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    assert given.items() <= child_environment(given).items()
    secret = given | {"GIT_CONFIG_VALUE_0": "Authorization: Basic abc"}
    assert not any(name.startswith("GIT_CONFIG") for name in child_environment(secret))


def test_the_callers_mapping_is_left_alone() -> None:
    given = {"A_TOKEN": "x", "PATH": "/bin"}
    child_environment(given)
    assert given == {"A_TOKEN": "x", "PATH": "/bin"}


def test_behind_the_wall_the_home_is_the_private_folder(tmp_path: Path) -> None:
    given = {
        "HOME": "/home/a",
        "SSH_AUTH_SOCK": "/s",
        "XDG_CONFIG_HOME": "/c",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "color.ui",
        "GIT_CONFIG_VALUE_0": "never",
        "PYTEST_ADDOPTS": "-q",
    }
    made = confined_environment(child_environment(given), Confinement(root=tmp_path, temp=tmp_path), Path("/home/a"))
    assert made["HOME"] == made["TMPDIR"] == made["TMP"] == str(tmp_path.resolve())
    assert not {"SSH_AUTH_SOCK", "XDG_CONFIG_HOME"} & made.keys()
    assert made["GIT_OPTIONAL_LOCKS"] == "0"
    assert made["PYTHONDONTWRITEBYTECODE"] == "1"
    assert made["PYTEST_ADDOPTS"] == "-q -p no:cacheprovider"
    assert (made["GIT_CONFIG_COUNT"], made["GIT_CONFIG_KEY_1"]) == ("2", "safe.directory")
