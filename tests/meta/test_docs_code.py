"""Code in the documentation is run: settings are loaded, command lines and magics parsed, programs executed, files of every
kind read by what reads them. What is only a drawing is named here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from nbagent import config
from nbagent.agent_file import agent_files
from nbagent.cli import parser
from nbagent.notebook.commands import COMMANDS, Context
from nbagent.notebook.desk import Desk
from nbagent.notebook.options import BUILD, PLAN, parse
from nbagent.provider.cassette_file import check_file
from nbagent.runtime import Runtime
from nbagent.session.skills import find_skills

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MADE = {"tools.md", "cli.md"}
"""Pages whose blocks come from the code whole: descriptions for the model and help texts."""
DRAWINGS = {"architecture.md", "record.md", "labextension.md", "cassettes.md"}
"""Pages with blocks that show the shape of something and run nowhere."""
FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.text.splitlines() if line.strip()]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        if page.name in MADE:
            continue
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            yield Block(page, text[: found.start()].count("\n") + 1, found[3].strip(), dedent(found[4]))


def spans() -> Iterator[Block]:
    """Code inside sentences."""
    for page in PAGES:
        text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
        for found in SPAN.finditer(text):
            yield Block(page, text[: found.start()].count("\n") + 1, "", found[1].replace("\\|", "|"))


BLOCKS = list(blocks())
LINES = [
    *(Block(block.page, block.line, "", line) for block in BLOCKS for line in block.lines),
    *spans(),
]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def starting(*words: str) -> list[Block]:
    return [each for each in LINES if each.text.startswith(words)]


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_settings_load_without_a_warning(block: Block, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "nbagent.toml").write_text(block.text, encoding="utf-8")
    environment = {"HOME": str(tmp_path), "NBAGENT_HOME": str(tmp_path / "home"), "MY_SERVER_KEY": "k"}
    runtime = Runtime.open(tmp_path / "project", environment=environment)
    try:
        assert runtime.notices == []
        assert str(tmp_path / "project" / "nbagent.toml") in runtime.config.sources or runtime.config.sources
    finally:
        runtime.close()


@pytest.mark.parametrize("line", starting("nbagent ", "jupyter nbagent "), ids=str)
def test_command_lines_are_understood(line: Block) -> None:
    words = shlex.split(line.text.removeprefix("jupyter "), comments=True)[1:]
    if words == ["…"]:
        return
    if len(words) == 1 and not words[0].startswith("-"):  # a command that is only named
        words.append("--help")
    try:
        parser().parse_args(words)
    except SystemExit as end:
        assert not end.code, f"{line}: {line.text}"


@pytest.mark.parametrize("line", starting("%%plan", "%%build", "%plan", "%build"), ids=str)
def test_magics_are_understood(line: Block) -> None:
    word, _, rest = line.text.partition(" ")
    table = PLAN if word.lstrip("%") == "plan" else BUILD
    assert word.lstrip("%") in ("plan", "build"), f"{line}: {line.text}"
    parse(rest, table, word)


@pytest.mark.parametrize("line", starting("%agent"), ids=str)
def test_commands_of_the_notebook_are_there(line: Block) -> None:
    words = line.text.split()[1:]
    if words and words[0] not in ("…", "..."):
        command = COMMANDS[words[0]]
        options = {word for word in words[1:] if word.startswith("--")}
        known = set(re.findall(r"--[\w-]+", command.usage)) | set(command.choices)
        assert options <= known, f"{line}: {line.text}"


@pytest.mark.parametrize("line", starting("nbagent why ", "%agent why ", "%agent rules ", "%agent tools "), ids=str)
def test_questions_about_rules_are_answered(line: Block, tmp_path: Path) -> None:
    words = shlex.split(line.text, comments=True)[1:]
    if any(word.strip("[]").isupper() for word in words) or words[1] == "revoke":
        return  # how it is written, or about replies that were given before
    runtime = Runtime.open(tmp_path, environment={"HOME": str(tmp_path), "NBAGENT_HOME": str(tmp_path / "home")})
    try:
        told = COMMANDS[words[0]].work(Context(None, Desk(tmp_path, {}), runtime, None), words[1:])
    finally:
        runtime.close()
    assert told.strip()


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_programs_run(block: Block, tmp_path: Path) -> None:
    """In a copy of the notebooks' folder, where such code is written."""
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("work", ".*"))
    done = subprocess.run(
        [sys.executable, "-c", block.text], cwd=tmp_path / "notebooks", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if re.search(r"^cassette: ", each.text, re.MULTILINE)], ids=str
)
def test_hand_written_cassettes_are_fine(block: Block, tmp_path: Path) -> None:
    (tmp_path / "a.cassette").write_text(block.text, encoding="utf-8")
    assert [(problem.line, problem.text) for problem in check_file(tmp_path / "a.cassette")] == []


@pytest.mark.parametrize("block", of("markdown"), ids=str)
def test_agents_and_skills_are_read(block: Block, tmp_path: Path) -> None:
    if "\nname:" in block.text:
        place = tmp_path / ".nbagent" / "skills" / "one" / "SKILL.md"
        place.parent.mkdir(parents=True)
        place.write_text(block.text, encoding="utf-8")
        ((description, _),) = find_skills(tmp_path, tmp_path / "nobody").values()
        assert description
        return
    (tmp_path / "one.md").write_text(block.text, encoding="utf-8")
    (agent,) = agent_files(tmp_path, tmp_path)
    assert agent.settings["description"] and agent.settings["permission"]


@pytest.mark.parametrize("line", [*starting("make ")], ids=str)
def test_targets_are_there(line: Block) -> None:
    words = line.text.split("#")[0].split()[1:]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(words) <= targets, f"{line}: {line.text}"


@pytest.mark.parametrize("line", starting("jlpm ", "jlpm "), ids=str)
def test_scripts_of_the_extension_are_there(line: Block) -> None:
    scripts = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))["scripts"]
    assert line.text.split()[1] in {*scripts, "install"}


@pytest.mark.parametrize("line", starting("pip install"), ids=str)
def test_extras_are_there(line: Block) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for found in re.findall(r"jupyter-nbagent\[([\w,]+)\]", line.text):
        assert set(found.split(",")) <= set(extras), f"{line}: {line.text}"


def test_variables_are_those_that_are_read() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "nbagent").rglob("*.py"))
    read = set(re.findall(r"NBAGENT_[A-Z_]+[A-Z]", source)) | {"NBAGENT_SKIP_LABEXTENSION"}
    build = {"NBAGENT_FUZZ_SECONDS"}
    for page in PAGES:
        named = set(re.findall(r"\bNBAGENT_[A-Z_]+[A-Z]\b", page.read_text(encoding="utf-8")))
        assert named <= read | build, page.name
    table = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    told = set(re.findall(r"NBAGENT_[A-Z_]+[A-Z]", table)) | {"NBAGENT_SKIP_LABEXTENSION"}
    assert read - told == set(), "every variable that the program reads is in the reference"
    assert set(config._VARIABLES) <= set(re.findall(r"[A-Z_]{8,}", table))


KNOWN = ("nbagent ", "%", "make ", "pip install", "export ", "jlpm ", "cd ", "#", "jupyter ")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_is_of_a_kind_that_is_run_here(block: Block) -> None:
    if block.language in ("toml", "python", "markdown") or block.page.name in DRAWINGS:
        return
    first = block.lines[0]
    if first.startswith(("%%", "cassette: ")):
        return  # what follows is a prompt, or checked whole
    assert all(line.startswith(KNOWN) for line in block.lines), f"{block}: nothing runs {block.text!r}"
