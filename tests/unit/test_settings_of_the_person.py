"""Settings that only the person's own file may make: elsewhere they are left out, and that is said."""

from __future__ import annotations

from pathlib import Path

from nbagent.config import OF_THE_PERSON, load

TEXT = """
api_key_env = "MY_KEY"
headers = { x-team = "a" }
[environment]
allow = ["MY_*"]
[sandbox]
"""


def test_a_project_s_file_has_no_say_and_is_told_so(tmp_path: Path) -> None:
    root, own = tmp_path / "work", tmp_path / "own.toml"
    root.mkdir()
    own.write_text(TEXT)
    environment = {"HOME": str(tmp_path), "NBAGENT_CONFIG": str(own), "MY_KEY": "sk-mine-123456"}
    mine = load(root, environment)
    assert (mine.api_key, mine.headers, mine.warnings) == ("sk-mine-123456", {"x-team": "a"}, ())

    own.write_text("")
    (root / "nbagent.toml").write_text(TEXT)
    project = load(root, environment)
    assert (project.api_key, project.headers, project.environment) == ("", {}, type(project.environment)())
    assert [
        name for name in OF_THE_PERSON if not any(f" {name} is left out" in told for told in project.warnings)
    ] == []
    assert all(str(own) in told for told in project.warnings)
