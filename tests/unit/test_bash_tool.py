"""``bash``: what a call needs, what the model is told, and what changes in a mode that only looks."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from nbagent.errors import ArgumentError, Denied
from nbagent.permission.ruleset import Rule
from nbagent.sandbox import NoWall, Outcome, Wall, child_environment, find_wall
from nbagent.tools.bash import plain, shell_argv, told
from nbagent.tools.tool import ToolContext
from tests.toolbox import ALLOW, Toolbox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these lines are for bash")

PLAN = (*ALLOW, Rule("edit", "*", "deny", "floor"))


@dataclass
class Shell(Toolbox):
    """A toolbox whose commands are confined by ``wall`` when ``confined``."""

    confined: bool = False
    wall: Wall | None = None

    def context(self) -> ToolContext:
        temp = self.root.parent / "temp"
        temp.mkdir(exist_ok=True)
        made = super().context()
        environment = child_environment(self.environment)
        return replace(made, confined=self.confined, wall=self.wall, temp=temp, environment=environment, mask=mask)

    @property
    def live(self) -> str:
        return "".join(getattr(event, "text", "") for event in self.events)


def mask(text: str) -> str:
    return text.replace("hunter2-canary", "***")


def shell(tmp_path: Path, **fields: object) -> Shell:
    (tmp_path / "work").mkdir(exist_ok=True)
    return replace(Shell(tmp_path / "work"), **fields)


@pytest.fixture
def box(tmp_path: Path) -> Shell:
    return shell(tmp_path)


@pytest.fixture(params=["landlock", "bubblewrap"])
def walled(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    wall = find_wall(request.param)
    if isinstance(wall, NoWall):
        pytest.skip(wall.reason)
    return shell(tmp_path, confined=True, wall=wall, rules=PLAN)


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """A mode that only looks, on a machine without a wall."""
    return shell(tmp_path, confined=True, wall=None, rules=PLAN)


async def test_output_and_exit_code_are_told(box: Shell) -> None:
    result = await box.call("bash", command="echo hi; echo oh >&2; exit 3", description="Say hi")
    assert result.output == "hi\noh\n\nexit code: 3"
    assert result.title == "echo hi; echo oh >&2; exit 3 — Say hi"
    assert result.metadata["exit"] == 3
    assert result.metadata["wall"] == ""
    assert box.live == "hi\noh\n"


async def test_silence_and_signals_are_told(box: Shell) -> None:
    assert await box.text("bash", command="true", description="") == "(no output)\n\nexit code: 0"
    assert (await box.text("bash", command="kill -9 $$", description="")).endswith("ended by signal 9")


async def test_a_time_out_is_told_with_what_was_said(box: Shell) -> None:
    command = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done"
    result = await box.call("bash", command=command, description="Count", timeout=500)
    assert result.output.startswith("1\n2\n")
    assert "timed out after 0.5 s" in result.output
    assert result.metadata["timed_out"] is True
    assert result.metadata["exit"] is None


async def test_long_output_keeps_the_end_and_says_where_the_rest_is(box: Shell) -> None:
    box.put("lines.txt", "".join(f"line {n} hunter2-canary\n" for n in range(9000)))
    result = await box.call("bash", command="cat lines.txt", description="")
    assert "[Output cut: the last 1," in result.output
    assert "of 9,000 lines shown" in result.output
    assert "line 8999" in result.output
    assert "line 0 " not in result.output
    assert len(result.output.encode()) <= 50 * 1024
    assert result.output.count("\n") < 2000
    whole = Path(str(result.metadata["whole"]))
    assert whole.read_text() == mask(box.get("lines.txt"))
    assert result.metadata["truncated"] is True


async def test_keys_are_not_in_its_environment(tmp_path: Path) -> None:
    box = shell(tmp_path, environment=dict(os.environ) | {"OPENAI_API_KEY": "sk-canary", "DB_PASSWORD": "canary"})
    assert "canary" not in await box.text("bash", command="env; set; cat /proc/self/environ", description="")


async def test_workdir(box: Shell) -> None:
    box.put("sub/a.txt", "x")
    assert (await box.text("bash", command="ls", description="", workdir="sub")).startswith("a.txt\n")
    needs = box.declare("bash", command="cat a.txt", description="", workdir="sub").needs
    assert ("read", ("sub/a.txt",)) in [(need.permission, need.patterns) for need in needs]
    with pytest.raises(ArgumentError, match="is not a folder"):
        box.declare("bash", command="ls", description="", workdir="nowhere")


async def test_a_workdir_outside_is_asked_about(box: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    needs = box.declare("bash", command="true", description="", workdir="../other").needs
    assert needs[0].permission == "external_directory"
    assert needs[0].patterns == (str(tmp_path / "other"),)


@pytest.mark.parametrize("command", ["", "   \n", "a\0b", "echo " + "x" * 200_000])
def test_commands_that_cannot_be_run(box: Shell, command: str) -> None:
    with pytest.raises(ArgumentError):
        box.declare("bash", command=command, description="")


@pytest.mark.parametrize("timeout", [0, -5, 600_001])
def test_time_limits_that_are_none(box: Shell, timeout: int) -> None:
    with pytest.raises(ArgumentError, match="timeout"):
        box.declare("bash", command="true", description="", timeout=timeout)


def test_what_a_call_declares(box: Shell) -> None:
    declared = box.declare("bash", command="git push && echo x > a.txt", description="Push it")
    pairs = [(need.permission, pattern) for need in declared.needs for pattern in need.patterns]
    assert ("bash", "git push") in pairs
    assert ("edit", "a.txt") in pairs
    assert declared.preview is not None
    assert declared.preview.text == "git push && echo x > a.txt"
    assert "write:a.txt" in declared.effects


async def test_a_stop_leaves_nothing_running(box: Shell) -> None:
    box.put("pid")
    task = asyncio.create_task(
        box.call("bash", command="echo $$ > pid; echo on; sleep 300 & sleep 300", description="")
    )
    for _ in range(500):
        if box.live:
            break
        await asyncio.sleep(0.02)
    pid = int(box.get("pid"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_behind_the_wall_the_project_is_only_looked_at(walled: Shell) -> None:
    walled.put("a.py", "x = 1\n")
    before = walled.tree()
    looking = "cat a.py; python3 -c 'print(6 * 7)'; echo mine > $TMPDIR/m && cat $TMPDIR/m; ls -A ~ | wc -l"
    result = await walled.call("bash", command=looking, description="Look")
    assert result.output == "x = 1\n42\nmine\n1\n\nexit code: 0"
    assert result.metadata["wall"] == walled.wall.name  # type: ignore[union-attr]
    result = await walled.call("bash", command="python3 -c \"open('a.py','w')\"", description="Write")
    assert result.metadata["exit"] == 1
    assert "It ran confined" in result.output
    assert walled.tree() == before
    assert list((walled.root.parent / "temp").iterdir()) == []


async def test_behind_the_wall_a_named_write_is_refused_by_the_rule(walled: Shell) -> None:
    with pytest.raises(Denied, match=r"edit a\.py"):
        await walled.call("bash", command="echo x > a.py", description="")


async def test_each_confined_call_begins_with_an_empty_folder(walled: Shell) -> None:
    await walled.call("bash", command="echo x > $TMPDIR/kept; mkdir -m 000 $TMPDIR/shut", description="")
    assert await walled.text("bash", command="ls -A $TMPDIR", description="") == "(no output)\n\nexit code: 0"


async def test_guarded_files_are_out_of_reach_however_they_are_named(walled: Shell) -> None:
    walled.replies["read"] = "reject"
    walled.put(".env", "KEY=canary\n")
    walled.put("deep/er/prod.env", "KEY=canary\n")
    walled.put("deep/er/.env.example", "KEY=open\n")
    for command in (
        "x=.en; cat ${x}v",
        "cat $(echo LmVudgo= | base64 -d)",
        "python3 -c \"print(open('.e'+'nv').read())\"",
        "grep -rs canary $PWD/deep/er",
        "find . -type f -exec cat {} +",
        "tar -cf - . 2>/dev/null",
    ):
        try:
            said = await walled.text("bash", command=command, description="")
        except Denied:  # the reading of the line saw through it; the person said no
            continue
        assert "canary" not in said, command
    assert "open" in await walled.text("bash", command="cat deep/er/.env.example", description="")


async def test_what_a_person_has_allowed_to_be_read_can_be_read(walled: Shell) -> None:
    walled.put(".env", "KEY=wanted\n")
    walled.put("b.env", "KEY=other\n")
    assert "wanted" in await walled.text("bash", command="cat .env", description="")
    walled.replies["read"] = "reject"
    with pytest.raises(Denied):
        await walled.call("bash", command="cat .env", description="")


async def test_outside_only_what_was_allowed(walled: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.txt").write_text("allowed\n")
    (tmp_path / "other/b.txt").write_text("unasked\n")
    assert "allowed" in await walled.text("bash", command=f"cat {tmp_path}/other/a.txt", description="")
    said = await walled.text(
        "bash", command=f"p={tmp_path}; python3 -c \"print(open('$p/other/b.txt').read())\"", description=""
    )
    assert "unasked" not in said
    walled.settings["sandbox_read"] = [str(tmp_path / "other")]
    said = await walled.text(
        "bash", command=f"python3 -c \"print(open('{tmp_path}/other/b.txt').read())\"", description=""
    )
    assert "unasked" in said


@pytest.mark.parametrize("command", ["ls -la", "cat a.txt", "git log -3 --oneline", "wc -l a.txt | sort"])
async def test_without_a_wall_what_is_proven_to_look_runs(bare: Shell, command: str) -> None:
    bare.put("a.txt", "x\n")
    assert "exit code" in await bare.text("bash", command=command, description="")


@pytest.mark.parametrize(
    "command",
    [
        "echo x > a.txt",
        "python3 -c 'print(1)'",
        "cat $(ls)",
        "sed -i s/a/b/ a.txt",
        "git commit -m x",
        "touch a.txt",
        "if then",
        "find . -delete",
        "./script.sh",
        "env ls | tee a",
        "pytest --collect-only",
    ],
)
def test_without_a_wall_the_rest_is_refused_and_says_why(bare: Shell, command: str) -> None:
    with pytest.raises(Denied, match="this machine has no wall") as refused:
        bare.declare("bash", command=command, description="")
    assert refused.value.permission == "bash"


FOUND = [
    ("-delete", "find *"),
    ("-delete", "find ?delete"),
    ("-delete", "find [!x]delete"),
    ("-delete", "find . *"),
    ("-delete", "find -- *"),
    ("-oq", "sort *"),
    ("-oq", "sort [-]oq"),
    ("-oq.csv", "sort *.csv"),
    ("-oq", "shuf *"),
    ("-i", "sed p *"),
    ("--pre=x", "rg a *"),
    ("-C", "file *"),
    ("-oq", "tree *"),
    ("--output=q", "git log *"),
    ("--output=q.py", "git diff *.py"),
    ("other", "uniq *"),
    ("other", "uniq ./*"),
    ("other", "xxd *"),
    ("-v", "printf *"),
]


@pytest.mark.parametrize(("name", "command"), FOUND)
def test_without_a_wall_no_file_is_named_like_an_option_of_what_is_proven(bare: Shell, name: str, command: str) -> None:
    """Whoever made the project gave its files their names."""
    bare.put(name, "x\n")
    with pytest.raises(Denied, match="may get the name of a file as an option"):
        bare.declare("bash", command=command, description="")


@pytest.mark.parametrize(
    "command",
    ["ls *", "cat *.csv", "sort ./*", "sort -- *", "sort sub/*", "find . -name *.py", "git log -- *", "printf '%s' *"],
)
def test_without_a_wall_wildcards_that_find_no_option_are_proven(bare: Shell, command: str) -> None:
    bare.declare("bash", command=command, description="")


@pytest.mark.parametrize("command", ["sort --o=q a.txt", "git log --alternate-refs", "nm --plugin ./evil.so a.txt"])
def test_without_a_wall_an_option_that_writes_or_runs_something_is_refused(bare: Shell, command: str) -> None:
    with pytest.raises(Denied, match="this machine has no wall"):
        bare.declare("bash", command=command, description="")


# What git would run or write by the way, where no wall holds it.

LOOKS = [
    "git status",
    "git diff",
    "git log -p",
    "git show",
    "git blame a.py",
    "git log --format=%G?",
    "git -C inner status",
]


class Repository:
    """A repository with one commit (and one inside it) whose files are newer than its index says."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.root = shell.root
        self.git("init", "-q")
        shell.put("a.py", "x = 1\n")
        self.git("init", "-q", "inner")
        shell.put("inner/b.py", "y = 1\n")
        for folder in ("inner", "."):
            self.git("-C", folder, "add", "-A")
            self.git("-C", folder, "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-q", "-m", "one")
        for path in ("a.py", "inner/b.py"):
            os.utime(self.root / path, (1, 1))
        hook = shell.put(".git/hooks/post-index-change", f"#!/bin/sh\ntouch {self.root}/ran\n")
        hook.chmod(0o755)

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", str(self.root), *words], check=True, capture_output=True)

    def picture(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", LOOKS)
async def test_git_that_looks_changes_not_even_its_index(bare: Shell, command: str) -> None:
    repository = Repository(bare)
    repository.git("config", "core.fsmonitor", f"touch {bare.root}/ran; false")
    before = repository.picture()
    assert "exit code" in await bare.text("bash", command=command, description="")
    assert repository.picture() == before


PROGRAMS = """diff.external filter.evil.clean filter.evil.process diff.evil.textconv diff.evil.command gpg.program gpg.ssh.program
remote.origin.promisor core.alternaterefscommand""".split()  # noqa: SIM905


@pytest.mark.parametrize(
    ("where", "command", "setting"),
    [(".", command, setting) for command in LOOKS[:-1] for setting in PROGRAMS]
    + [("inner", command, "filter.evil.clean") for command in LOOKS],
)
def test_git_that_would_run_what_a_repository_names_is_refused(
    bare: Shell, where: str, command: str, setting: str
) -> None:
    repository = Repository(bare)
    repository.git("-C", where, "config", setting, "touch ran")
    with pytest.raises(Denied, match=re.escape(setting)):
        bare.declare("bash", command=command, description="")


def test_settings_that_a_repository_includes_count(bare: Shell) -> None:
    repository = Repository(bare)
    bare.put("theirs", "[diff]\n\texternal = touch ran\n")
    repository.git("config", "include.path", "../theirs")
    with pytest.raises(Denied, match=r"diff\.external"):
        bare.declare("bash", command="git diff", description="")


@pytest.mark.parametrize(
    "command", ["git merge-tree HEAD HEAD", "git describe --dirty --always", "cd $X && git status"]
)
def test_git_that_writes_by_the_way_is_refused(bare: Shell, command: str) -> None:
    Repository(bare)
    with pytest.raises(Denied, match="no wall"):
        bare.declare("bash", command=command, description="")


async def test_without_a_wall_no_program_of_the_project_stands_in_for_another(bare: Shell) -> None:
    for name in ("ls", "rg"):
        bare.put(f"bin/{name}", f"#!/bin/sh\ntouch {bare.root}/ran\n").chmod(0o755)
    bare.environment["PATH"] = f"{bare.root}/bin:bin:{os.environ['PATH']}"
    bare.environment["RIPGREP_CONFIG_PATH"] = str(bare.put("rg.conf", f"--pre={bare.root}/bin/ls\n"))
    assert "exit code: 0" in await bare.text("bash", command="ls", description="")
    await bare.text("bash", command="rg x", description="")
    assert not (bare.root / "ran").exists()


def test_a_shell_that_cannot_be_read_is_asked_about() -> None:
    argv, name = shell_argv("ls", {"PATH": "/nowhere"})
    assert name in {"bash", "sh"}
    assert argv[-1] == "ls"


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        ("\x1b[1;31mred\x1b[0m\n", "red\n"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("a\x08ab\x08b\n", "ab\n"),
        ("bell\x07 nul\x00 del\x7f tab\t", "bell nul del tab\t"),
        ("\x1bPq secret \x1b\\after\x1b(B", "after"),
        ("\x08\x08start", "start"),
    ],
)
def test_terminal_output_as_text(raw: str, read: str) -> None:
    assert plain(raw) == read


def test_a_flood_is_told() -> None:
    outcome = Outcome(None, "y\n", None, False, 1.0, 50_000_000, 100 << 20, flooded=True)
    assert "printed more than 100 MB" in told(outcome, 1, confined=False)[0]


@pytest.mark.parametrize("command", ["git -C inner -C deep status", "git -C deep -C ../inner/deep diff"])
def test_git_goes_from_folder_to_folder(bare: Shell, command: str) -> None:
    """Each ``-C`` is seen from the one before, so the repository that the last of them is in counts."""
    repository = Repository(bare)
    bare.put("inner/deep/c.py", "z = 1\n")
    bare.put("deep/d.py", "z = 1\n")
    repository.git("-C", "inner", "config", "filter.evil.clean", "touch ran")
    with pytest.raises(Denied, match=re.escape("filter.evil.clean")):
        bare.declare("bash", command=command, description="")
