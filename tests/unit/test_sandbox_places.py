"""What may be read behind the wall, and that secrets are taken out of it wherever they lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nbagent.sandbox import Confinement, secret_places
from nbagent.sandbox.places import git_places, hidden_places, outermost, python_places, readable_places, within, without


def put(place: Path, text: str = "x") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def allowed(confinement: Confinement, home: Path, environment: dict[str, str] | None = None) -> dict[str, bool]:
    places = readable_places(confinement, environment or {}, home)
    return dict(without(places, hidden_places(confinement, home)))


def readable(place: Path, rules: dict[str, bool]) -> bool:
    """Whether the content can be read: a whole rule at the place or above it."""
    real = os.path.realpath(place)
    return any(whole and within(real, rule) for rule, whole in rules.items())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def confine(
    root: Path, tmp_path: Path, *, readable: tuple[Path, ...] = (), hidden: tuple[Path, ...] = ()
) -> Confinement:
    root.mkdir(parents=True, exist_ok=True)
    return Confinement(root=root, temp=tmp_path / "temp", readable=readable, hidden=hidden)


def test_the_project_and_this_python_but_not_the_home(home: Path, tmp_path: Path) -> None:
    put(home / "notes.txt")
    root = home / "project"
    rules = allowed(confine(root, tmp_path), home)
    assert readable(put(root / "a.py"), rules)
    assert readable(Path(sys.prefix), rules)
    assert readable(Path(os.__file__), rules)
    assert readable(Path("/usr/bin"), rules)
    assert not readable(home / "notes.txt", rules)
    assert not readable(home, rules)
    assert not readable(Path("/etc/shadow"), rules)
    assert readable(Path("/etc/passwd"), rules)


def test_a_readable_home_loses_its_keys(home: Path, tmp_path: Path) -> None:
    keys = [
        ".ssh/id_rsa",
        ".aws/credentials",
        ".netrc",
        ".config/gh/hosts.yml",
        ".mozilla/x/logins.json",
        ".local/share/keyrings/a",
    ]
    for name in keys:
        put(home / name)
    open_files = [put(home / name) for name in ("data/a.csv", ".config/other/x", ".local/share/app/y", ".bashrc")]
    rules = allowed(confine(home / "project", tmp_path, readable=(home,)), home)
    assert all(readable(place, rules) for place in open_files)
    assert not any(readable(home / name, rules) for name in keys)
    assert rules[str(home)] is False


def test_hidden_places_inside_the_project(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    secret, beside, deep = put(root / "conf/.env"), put(root / "conf/app.toml"), put(root / "src/a/b.py")
    rules = allowed(confine(root, tmp_path, hidden=(secret,)), home)
    assert not readable(secret, rules)
    assert readable(beside, rules)
    assert readable(deep, rules)
    assert rules[str(root)] is False
    assert rules[str(root / "src")] is True


def test_links_do_not_lead_around(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    key = put(home / ".ssh/id_rsa")
    put(root / "conf/.env")
    (root / "keys").symlink_to(home / ".ssh")
    (root / "conf/also").symlink_to(key)
    rules = allowed(confine(root, tmp_path, hidden=(root / "conf/.env",)), home)
    assert not readable(key, rules)
    assert str(root / "keys") not in rules


def test_a_secret_that_is_a_link_is_hidden_where_it_leads(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "project"
    real = put(root / "dotfiles/ssh/id_rsa").parent
    (home / ".ssh").symlink_to(real)
    open_file = put(root / "a.py")
    rules = allowed(confine(root, tmp_path), home)
    assert not readable(real / "id_rsa", rules)
    assert readable(open_file, rules)


def test_hidden_wins_over_readable_and_over_the_root(home: Path, tmp_path: Path) -> None:
    key = put(home / ".ssh/id_rsa")
    rules = allowed(confine(home / ".ssh/project", tmp_path, readable=(home / ".ssh",)), home)
    assert not readable(key, rules)
    assert not readable(home / ".ssh/project", rules)


def test_path_variables_open_an_installation_but_never_the_home(home: Path, tmp_path: Path) -> None:
    tool = put(home / "tools/node/bin/node")
    (home / "tools/node/lib").mkdir()
    put(home / "work/secret/bin/run")
    environment = {
        "PATH": os.pathsep.join([str(tool.parent), str(home / "work/secret/bin"), str(home), "/", "relative", ""]),
        "PYTHONPATH": f"{home}{os.pathsep}{home.parent}",
        "VIRTUAL_ENV": str(home),
    }
    places = python_places(environment, home)
    assert str(home / "tools/node") in places
    assert str(home / "work/secret/bin") in places
    assert not {str(home), "/", str(home.parent), str(home / "work/secret"), "relative"} & set(places)


def test_history_of_a_repository_above_the_project(home: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository/notebooks/one"
    root.mkdir(parents=True)
    (tmp_path / "repository/.git").mkdir()
    assert git_places(root, home) == [str(tmp_path / "repository/.git")]
    (home / ".git").mkdir()
    (home / "project").mkdir()
    assert git_places(home / "project", home) == []


def test_a_worktree_is_believed_only_when_the_repository_points_back(home: Path, tmp_path: Path) -> None:
    main, tree = tmp_path / "main/.git", tmp_path / "tree"
    (main / "objects").mkdir(parents=True)
    put(main / "HEAD", "ref: refs/heads/main\n")
    put(main / "worktrees/tree/commondir", "../..\n")
    put(main / "worktrees/tree/gitdir", f"{tree}/.git\n")
    put(tree / ".git", f"gitdir: {main}/worktrees/tree\n")
    assert git_places(tree, home) == [str(main)]
    thief = tmp_path / "thief"
    put(thief / ".git", f"gitdir: {main}/worktrees/tree\n")
    assert git_places(thief, home) == []
    put(thief / ".git", f"gitdir: {home}\n")
    assert git_places(thief, home) == []
    put(thief / ".git", "\0")
    assert git_places(thief, home) == []


def test_secrets_are_listed_for_any_home(home: Path) -> None:
    places = set(secret_places(home))
    assert {
        home / ".ssh",
        home / ".aws",
        home / ".config/google-chrome",
        home / ".local/share/nbagent",
        Path("/etc/shadow"),
    } <= places
    assert home / "Library/Application Support/Google" in places
    assert all(place.is_absolute() for place in places)


def test_outermost_and_within() -> None:
    assert outermost(["/a/b", "/a", "/a-b", "/c/d/e", "/c/d"]) == ["/a", "/a-b", "/c/d"]
    assert within("/a/b", "/a")
    assert within("/a", "/")
    assert not within("/ab", "/a")
