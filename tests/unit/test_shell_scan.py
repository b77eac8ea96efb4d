"""What a command line is taken apart into, and what is remembered of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nbagent.clock import CountingClock
from nbagent.errors import Denied
from nbagent.permission.ask import Ask, Call, Reply
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Rule, Ruleset, from_config
from nbagent.permission.shell import Scan, scan
from tests.unit.shell_ground import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground") / "w")


def verdict(scanned: Scan, rules: Ruleset, confined: bool = False) -> str:
    gate = Gate(rules, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    found = {each.action for each in gate.findings(call(scanned, confined))}
    return "deny" if "deny" in found else "ask" if "ask" in found else "allow"


def call(scanned: Scan, confined: bool = False) -> Call:
    return Call("c", "bash", scanned.command, "command", scanned.needs(confined), effects=scanned.effects)


def texts(scanned: Scan) -> list[str]:
    return [each.text for each in scanned.commands]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git   status   --short", ["git status --short"]),
        ("\"git\" 'status'", ["git status"]),
        ("CI=true git commit -m x", ["git commit -m x"]),
        ("git -C sub --no-pager log", ["git log"]),
        ("env A=1 B=2 nice -n 3 timeout 5 git push", ["git push"]),
        ("a && b || c; d | e & f\ng", list("abcdefg")),
        ("$(a) `b` <(c)", ["a", "b", "c", "$(a) `b` <(c)"]),
        ("bash -c 'a; bash -c \"b\"'", ["a", "b"]),
        ("find . -exec a {} \\; -exec b {} +", ["find . -exec a {} ; -exec b {} +", "a {}", "b {}"]),
        ("if a; then b; else c; fi", ["a", "b", "c"]),
        ("case x in x) a;; *) b;; esac", ["a", "b"]),
        ("for i in $(a); do b; done", ["a", "b"]),
        ("until a; do b; done", ["a", "b"]),
        ("time (a; b)", ["a", "b", "time"]),
        ("cat <<E\n$(a)\nE", ["a", "cat"]),
        ("cat <<'E'\n$(a)\nE", ["cat"]),
        ("x[$(a)]=1", ["a", "x[$(a)]=1"]),
        ("r{m,n} f", ["rm rn f"]),
        ("echo x > f", ["echo x > f"]),
        ("ls > /dev/null 2>&1", ["ls"]),
        ("> f", ["> f"]),
        ("[[ -f x ]]", ["[[ -f x ]]"]),
        ("a <<E && b\nx\nE", ["a", "b"]),
        ("coproc a", ["a"]),
        ("! a", ["a"]),
        ("trap 'a' EXIT", ["trap a EXIT", "a"]),
        ("eval 'a; b'", ["a", "b"]),
        ("env -S 'a b'", ["a b"]),
    ],
)
def test_every_simple_command_is_found_and_made_plain(line: str, expected: list[str], ground: Ground) -> None:
    found = texts(ground.scan(line))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    "line",
    [
        "/bin/rm f",
        "\\rm f",
        '"r"m f',
        "$'\\x72m' f",
        "env -i rm f",
        "time rm f",
        "bash -c 'rm f'",
        "a=rm; $a f",
        "xargs rm",
        "sudo rm f",
        "command rm f",
        "nohup rm f &",
        "if x; then rm f; fi",
        "f() { rm f; }; f",
        "eval rm f",
        "find . -exec rm {} +",
        "echo $(rm f)",
        "cat <(rm f)",
        "echo x | xargs -I{} rm {}",
        "sh -c 'sh -c \"rm f\"'",
    ],
)
def test_a_denied_command_is_denied_however_it_is_written(line: str, ground: Ground) -> None:
    assert verdict(ground.scan(line), from_config({"*": "allow", "bash": {"*": "allow", "rm": "deny"}})) == "deny"


@pytest.mark.parametrize("line", ["rmdir2 f", "echo rm f", "gitk", "./tool --rm f", "grep rm f"])
def test_and_another_command_is_not(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "bash": {"*": "allow", "rm": "deny", "git": "deny"}})
    assert verdict(ground.scan(line), rules) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "echo x > protected.txt",
        'printf x > "$PWD/protected.txt"',
        "rm protected.txt",
        "rm p*.txt",
        "rm -rf .",
        "tee protected.txt",
        "cp a protected.txt",
        "mv protected.txt b",
        "cd src && rm ../protected.txt",
        "sed -i s/a/b/ protected.txt",
        "find . -delete",
        "rm ./src/../protected.txt",
        "git checkout -- protected.txt",
        "f=protected.txt; rm $f",
        "for f in *; do rm $f; done",
        "bash -c 'rm protected.txt'",
        "chmod -R 777 .",
        "dd of=protected.txt",
        "truncate -s0 protected.txt",
        "find . -name 'p*' -exec rm {} +",
        "cp -t . src/protected.txt",
        "ln -sf a protected.txt",
        "sort -oprotected.txt a",
        "mv src/protected.txt .",
    ],
)
def test_a_denied_file_is_denied_however_it_is_written(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "edit": {"*": "allow", "protected.txt": "deny"}, "bash": "allow"})
    assert verdict(ground.scan(line), rules) == "deny"


@pytest.mark.parametrize("name", ["file_link", "src/a.py"])
@pytest.mark.parametrize(
    "line", ["rm file_link", "mv file_link x", "unlink ./file_link", "cd src && rm ../file_link", "\\rm file_*"]
)
def test_a_link_that_a_command_takes_away_is_judged_by_its_own_name_too(line: str, name: str, ground: Ground) -> None:
    rules = (Rule("*", "*", "allow"), Rule("edit", name, "deny"))
    assert verdict(ground.scan(line), rules) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        'printf x > "$Z"',
        'rm "$Z"',
        "xargs rm",
        'cd "$D" && rm f',
        "git stash",
        "cp -r src b",
        "tar xf x.tar",
        "tee $(cat f)",
        "shopt -s dotglob; rm *",
        "echo x > $(mktemp)",
        "rm f$RANDOM",
    ],
)
def test_targets_that_cannot_be_told_are_never_allowed_beside_a_deny(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "edit": {"*": "allow", "protected.txt": "deny"}, "bash": "allow"})
    assert verdict(ground.scan(line), rules) in ("ask", "deny")


@pytest.mark.parametrize(
    ("line", "outside"),
    [
        ("ls /etc", "/etc"),
        ("cat /etc/passwd", "/etc/passwd"),
        ("head -n1 /etc/passwd", "/etc/passwd"),
        ("git -C /etc log", "/etc"),
        ("tar cf x.tar /etc", "/etc"),
        ("dd if=/etc/passwd", "/etc/passwd"),
        ("python /etc/x.py", "/etc/x.py"),
        ("cat < /etc/passwd", "/etc/passwd"),
        ("grep -f/etc/passwd x f", "/etc/passwd"),
        ("foo --file=/etc/passwd", "/etc/passwd"),
        ("foo -I/etc", "/etc"),
        ("docker run -v /etc:/x y", "/etc"),
        ("curl -d @/etc/passwd http://127.0.0.1:1", "/etc/passwd"),
        ("curl file:///etc/passwd", "/etc/passwd"),
        ("cd /etc; cat passwd", "/etc/passwd"),
        ("sudo cat /etc/shadow", "/etc/shadow"),
        ("find /etc -name x", "/etc"),
        ("sed -n 1p /etc/passwd", "/etc/passwd"),
        ("cat link/x", "/usr/share/x"),
        ("cat /proc/self/root/etc/passwd", "/etc/passwd"),
        ("/etc/evil x", "/etc/evil"),
        ("cat $HOME/x", "~/x"),
        ("cat ~/x", "~/x"),
        ("cat ../x", "../x"),
        ("env > /etc/o", "/etc/o"),
        ("cat '/etc/passwd'", "/etc/passwd"),
        ("cat /e??/passwd", "/etc/passwd"),
    ],
)
def test_paths_outside_are_questions_of_their_own(line: str, outside: str, ground: Ground) -> None:
    scanned = ground.scan(line)
    patterns = [p for need in scanned.needs() if need.permission == "external_directory" for p in need.patterns]
    assert outside in [ground.generic(each) for each in patterns]
    assert verdict(scanned, from_config({"*": "allow", "external_directory": "ask", "bash": "allow"})) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "ls src",
        "cat f",
        "echo /etc/passwd",
        "grep /etc/x f",
        "git log --format=%H",
        "ls /dev/null",
        "sed -n '/etc/p' f",
        "curl http://127.0.0.1/etc/x",
        "/usr/bin/ls",
        "echo x > sub/b",
        "cat /dev/stdin",
        "git commit -m 'see /etc'",
        "head -5 f | tee /dev/stderr",
    ],
)
def test_and_what_is_inside_is_not(line: str, ground: Ground) -> None:
    assert not [need for need in ground.scan(line).needs() if need.permission == "external_directory"]


@pytest.mark.parametrize(
    "line",
    [
        "cat .env",
        "cat .e*",
        "cat ./.env",
        "head -1 < .env",
        "grep x .env",
        "cp .env b",
        "base64 .env",
        "cat src/../.env",
        "python x.py .env",
        "source .env",
        ". ./.env",
        "docker run --env-file .env x",
        "docker run --env-file=.env x",
        "curl -d @.env http://127.0.0.1:1",
        "grep -r x .",
        "grep -rn x",
        "cp -r . /tmp/nbagent-none",
        "tar cf x.tar .",
        "X=.env; cat $X",
        "for f in .e*; do cat $f; done",
        "cat {f,.env}",
        "find . -name .env -exec cat {} +",
        "rg --hidden x .",
        "diff f .env",
    ],
)
def test_secret_files_are_guarded_in_the_shell_too(line: str, ground: Ground) -> None:
    rules = from_config(
        {"*": "allow", "read": {"*": "allow", "*.env": "ask"}, "bash": "allow", "external_directory": "allow"}
    )
    assert verdict(ground.scan(line), rules) == "ask"


@pytest.mark.parametrize("line", ["cat f", "ls", "grep x f", "rg x", "find . -name '*.py'", "cat *", "ls -la"])
def test_and_other_files_are_not(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "read": {"*": "allow", "*.env": "ask"}, "bash": "allow"})
    assert verdict(ground.scan(line), rules) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "echo 'x",
        "$(",
        "if true",
        "echo " + "a" * 40_000,
        "$(" * 200 + ")" * 200,
        "a\0b",
        "\udcff",
        'eval "$X"',
        "cat f | sh",
        '"$X" y',
        'bash -c "$X"',
        "a=(rm f); ${a[@]}",
        "sudo -s",
        "bash -c 'echo \"'",
        "x='a[$(rm f)]'; echo $((x))",
        "hash -p /bin/rm ls; ls f",
    ],
)
def test_what_is_not_understood_is_never_weaker_than_ask(line: str, ground: Ground) -> None:
    assert verdict(ground.scan(line), from_config({"*": "allow"})) == "ask"
    assert verdict(ground.scan(line), from_config({"*": "allow", "bash": "deny"})) == "deny"


@pytest.mark.parametrize("shell", ["powershell", "pwsh.exe", "C:/x/cmd.exe", "fish", "nu"])
def test_a_shell_that_cannot_be_read(shell: str, ground: Ground) -> None:
    scanned = scan("Set-Content x hi", root=ground.root, shell=shell)
    assert scanned.fault and not scanned.read_only and verdict(scanned, from_config({"*": "allow"})) == "ask"


def test_a_folder_of_its_own_is_free_to_write(ground: Ground, tmp_path: Path) -> None:
    lines = ["echo x > $TMPDIR/a", "mkdir -p $TMPDIR/b && cd $TMPDIR/b && touch c", f"cp f {tmp_path}/a"]
    for line in lines:
        scanned = scan(line, root=ground.root, environment={"TMPDIR": str(tmp_path)}, temp=tmp_path)
        assert scanned.writes == ()
    assert scan(f"echo x > {tmp_path}/../a", root=ground.root, temp=tmp_path).writes


@pytest.mark.parametrize(
    ("line", "always", "suggest"),
    [
        ("git status", ["git status"], "git status *"),
        ("npm run dev --x", ["npm run dev --x"], "npm run dev *"),
        ("make", ["=make"], "make *"),
        ("ls *.py", ["=ls *.py"], "ls *"),
        ("git status && rm -rf ./tmp", ["git status", "rm -rf ./tmp"], ""),
        ("rm -rf ./tmp", ["rm -rf ./tmp"], ""),
        ('rm "a b"', [""], ""),
        ("git push", ["git push"], ""),
        ("mv a b", ["mv a b"], ""),
        ("echo x > f", ["echo x > f"], ""),
        ("sudo npm test", ["npm test", "sudo npm test"], ""),
        ("timeout 5 npm test", ["npm test"], "npm test *"),
        ("python -c 'x y'", [""], ""),
        ("python x.py", ["python x.py"], ""),
        ("echo $X", ["echo $X"], "echo *"),
    ],
)
def test_always_is_as_narrow_as_shown(line: str, always: list[str], suggest: str, ground: Ground) -> None:
    needs = [need for need in ground.scan(line).needs() if need.permission == "bash" and need.least == "allow"]
    assert [each for need in needs for each in need.always] == always
    assert {need.suggest for need in needs} == {suggest}


async def test_approve_always_on_a_compound_command(ground: Ground) -> None:
    asked: list[Ask] = []

    async def person(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply("always")

    gate = Gate(from_config({"*": "allow", "bash": {"*": "ask", "git status": "allow"}}), person, CountingClock(), "s")
    await gate.decide(call(ground.scan("npm test && git status && rm -rf ./tmp")))
    assert [each.pattern for each in gate.approvals.list()] == ["npm test", "rm -rf ./tmp"]
    await gate.decide(call(ground.scan("rm   -rf './tmp'; npm test")))
    assert len(asked) == 1
    for line in ("rm -rf /", "npm test -s", "npm test > f", "rm -rf ./tmp x", "rm -rf './tmp x'"):
        await gate.decide(call(ground.scan(line)))
    assert len(asked) == 6


async def test_a_bare_word_remembered_is_that_word_alone(ground: Ground) -> None:
    asked: list[Ask] = []

    async def person(ask: Ask) -> Reply:
        asked.append(ask)
        return Reply("always")

    gate = Gate(from_config({"*": "allow", "bash": "ask"}), person, CountingClock(), "s")
    for line in ("make", "make", "make install", "ls *", "ls x"):
        await gate.decide(call(ground.scan(line)))
    assert [each.call.title for each in asked] == ["make", "make install", "ls *", "ls x"]


async def test_a_floor_says_no_up_front_to_what_is_known_to_write(ground: Ground) -> None:
    rules = (Rule("*", "*", "allow"), Rule("edit", "*", "deny", "floor"))
    gate = Gate(rules, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    for line in ("git stash", "echo x > f", "pip install x", "rm f", "git checkout .", "git fetch"):
        with pytest.raises(Denied):
            await gate.decide(call(ground.scan(line), confined=True))
    for line in (
        "pytest --collect-only",
        "python -c 'import sys'",
        "git log",
        "for f in src/*; do wc -l $f; done",
        "cat $X",
    ):
        await gate.decide(call(ground.scan(line), confined=True))


@pytest.mark.parametrize(
    "line", ["echo > a.ipynb", "sed -i s/a/b/ a.ipynb", "cp f a.ipynb", 'python -c \'open("a.ipynb", "w")\'']
)
def test_notebooks_written_by_the_shell_are_always_asked_with_a_warning(line: str, ground: Ground) -> None:
    scanned = ground.scan(line)
    assert "bypasses the notebook editor" in " ".join(scanned.notes)
    assert verdict(scanned, from_config({"*": "allow"})) == "ask"


def test_effects_name_the_line_and_what_it_touches(ground: Ground) -> None:
    assert ground.scan("cat f  >  b").effects == ("command:cat f > b", "write:b", "read:f")


def test_a_rule_for_the_whole_line_that_denies_counts(ground: Ground) -> None:
    rules = from_config({"*": "allow", "bash": {"*": "allow", "*|*grep*": "deny", "sudo": "deny", "/bin/rm *": "deny"}})
    for line in ("ls | grep x", "sudo ls", "/bin/rm f"):
        assert verdict(ground.scan(line), rules) == "deny"
    assert verdict(ground.scan("ls; rm f"), rules) == "allow"


def test_a_program_of_the_same_name_elsewhere_is_not_the_one_allowed(ground: Ground) -> None:
    rules = from_config({"*": "allow", "bash": {"*": "ask", "git status": "allow"}})
    assert verdict(ground.scan("git status"), rules) == "allow"
    for line in (
        "./git status",
        "src/git status",
        "PATH=. git status",
        "git -c core.fsmonitor=x status",
        "GIT_DIR=x git status",
    ):
        assert verdict(ground.scan(line), rules) == "ask"


def test_long_lines_are_read_quickly(ground: Ground) -> None:
    for line in (
        "a;" * 3000,
        "{a,b}" * 100,
        "$(" * 70 + "x" + ")" * 70,
        "x" * 20_000,
        "f() { f; f; }; f",
        "rm " + "* " * 300,
    ):
        ground.scan(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cat f", ""),
        ("echo '", "could not be parsed"),
        ("echo x > f; rm b", "it writes f, b"),
        ("git stash", "changes the work tree"),
        ("make", "make is not on the list"),
        ('eval "$X"', "what eval is given to run"),
        ("X=1 ls", "sets a variable"),
        ("ls # comment", "more than plain words"),
    ],
)
def test_why_a_line_is_not_proven(line: str, reason: str, ground: Ground) -> None:
    assert reason in ground.scan(line).unproven and bool(reason) == bool(ground.scan(line).unproven)


def test_git_goes_from_folder_to_folder(ground: Ground) -> None:
    (ground.root.path / "src" / "inner").mkdir(parents=True, exist_ok=True)
    (written,) = ground.scan("git -C src -C inner checkout -- x.py").writes
    assert written.place is not None and written.place.pattern == "src/inner/x.py"


async def test_lines_may_be_read_on_several_threads(ground: Ground) -> None:
    line = "cd src && for f in *.py; do cat $f | grep x > out; done"
    found = await asyncio.gather(*(asyncio.to_thread(ground.scan, line) for _ in range(50)))
    assert len({scanned.writes for scanned in found}) == 1


@pytest.mark.parametrize("line", ["rm /proc/self/cwd/protected.txt", "cd src; rm //proc/self/cwd/../protected.txt"])
def test_the_folder_of_the_process_is_that_of_the_command(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "edit": {"*": "allow", "protected.txt": "deny"}, "bash": "allow"})
    assert verdict(ground.scan(line), rules) == "deny"


@pytest.mark.parametrize(
    "line", ["cat <<E\n`rm protected.txt`\nE", "rm /proc/1/cwd/x", "rm /proc/self/fd/../x", "cat <<E && cat <<F\nE\nF"]
)
def test_what_the_grammar_or_the_process_hides_is_asked(line: str, ground: Ground) -> None:
    rules = from_config({"*": "allow", "edit": {"*": "allow", "protected.txt": "deny"}, "bash": "allow"})
    assert verdict(ground.scan(line), rules) == "ask"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("cat <<E\na\nE\ntouch n", True),
        ("cat <<-E\n\ta\n\tE\ntouch n", True),
        ("cat <<E && true\na\nE", True),
        ("cat <<E\na\nE & wait; cat <<'E'\n$(touch n)\nE", False),
        ("cat <<E\nE ; cat <<'E'\n$(touch n)\nE", False),
        ("cat <<E\n E\ncat <<'E'\n$(touch n)\nE", False),
        ("cat <<E\na\nE \n$(touch n)\nE", False),
        ("cat <<E # b\na\nE\ntouch n", True),
        ("cat <<E | sort # b\na\nE\ntouch n", True),
        ("cat <<E &&\na\nE\ntouch n", False),
        ("cat <<E | # b\na\nE\ntouch n", False),
        ("cat <<E && # b\ncat <<E\na\nE\ntouch n", False),
        ("cat <<E | while read a; do\na\nE\ntouch n; done", False),
    ],
)
def test_a_here_document_ends_where_the_shell_ends_it(line: str, told: bool, ground: Ground) -> None:
    scanned = scan(line, root=ground.root, home=ground.home, environment={})
    assert bool(scanned.opaque or scanned.fault) is not told
    assert verdict(scanned, from_config({"*": "allow"})) == ("allow" if told else "ask")


@pytest.mark.parametrize(
    "line",
    [
        "echo a\n\\rm f",
        "echo `echo a`\n\\rm f",
        "X=1\n\\rm f",
        "true > /dev/null\n\\rm f",
        "export X\n\\rm f",
        "echo a # b\n\\rm f",
        "(true\n\\rm f)",
        "echo a |\ncat\n\\rm f",
        "cat <<E\n\\a\nE\n\\rm f",
    ],
)
def test_a_line_that_begins_with_a_backslash_is_a_command_of_its_own(line: str, ground: Ground) -> None:
    scanned = scan(line, root=ground.root, home=ground.home, environment={})
    assert not scanned.fault and "rm f" in texts(scanned)
    assert [each.place.pattern for each in scanned.writes if each.place] == ["f"]


@pytest.mark.parametrize("line", ["echo a\n\\$(touch n)", "echo a\n\\\\rm f", "echo a\n\\'rm' f", "echo a\n\\{ rm f"])
def test_what_else_begins_with_a_backslash_is_not_read(line: str, ground: Ground) -> None:
    assert scan(line, root=ground.root, home=ground.home, environment={}).fault


def test_lines_of_a_text_may_begin_with_a_backslash(ground: Ground) -> None:
    line = "cat > a.tex <<'E'\n\\documentclass{a}\n\\begin{document}\nE"
    scanned = scan(line, root=ground.root, home=ground.home, environment={})
    assert not scanned.fault and not scanned.opaque
    assert [each.place.pattern for each in scanned.writes if each.place] == ["a.tex"]


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("cat <<E && cd src\nE\nrm a", {"a", "src/a"}),
        ("cat <<E || cd src\nE\nrm a", {"a", "src/a"}),
        ("cat <<E && cd src && rm a\nE", {"a", "src/a"}),
        ("cat <<E | cd src && rm a\nE", {"a"}),
        ("cat <<E | { cd src; } && rm a\nE\nrm f", {"a", "f"}),
        ("cat <<E | cat | cd src && rm a\nE", {"a"}),
        ("cat <<E | sort && touch n\nE", {"n"}),
    ],
)
def test_what_follows_a_here_document_in_its_line_is_read_as_the_shell_reads_it(
    line: str, written: set[str], ground: Ground
) -> None:
    scanned = scan(line, root=ground.root, home=ground.home, environment={})
    assert {each.place.pattern for each in scanned.writes if each.place} == written


def test_a_variable_set_after_a_here_document_is_not_what_it_was(ground: Ground) -> None:
    scanned = scan("cat <<E && X=n\nE\nrm $X", root=ground.root, home=ground.home, environment={"X": "f"})
    assert [each.place for each in scanned.writes] == [None]


@pytest.mark.parametrize(
    "line",
    [
        "env - rm f",
        "env - A=1 rm f",
        "env - -u B rm f",
        "flock a -c 'rm f'",
        "flock -n a --command 'rm f'",
        "trap -- 'rm f' 0",
        "runuser -u nobody -- rm f",
        "runuser -u nobody rm f",
        "setarch x86_64 -R rm f",
        "setarch -R rm f",
        "linux64 rm f",
        "nsenter -t 1 -m rm f",
        "setpriv --reuid 1 --no-new-privs rm f",
        "prlimit --nproc=1 rm f",
        "pkexec --user root rm f",
        "toybox rm f",
        "numactl -N 0 rm f",
        "dbus-run-session -- rm f",
        "xvfb-run -a rm f",
        "ssh-agent -a s rm f",
        "torsocks rm f",
        "proxychains4 -f c rm f",
        "cgexec -g cpu:a rm f",
        "daemonize -o out rm f",
    ],
)
def test_a_wrapper_hides_no_command(ground: Ground, line: str) -> None:
    assert verdict(ground.scan(line), from_config({"*": "allow", "bash": {"*": "allow", "rm *": "deny"}})) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        'echo "${a:-`rm f`}"',
        'echo "${a:=`rm f`}"',
        'echo "${a:-x`rm f`}"',
        "echo \"${a:-'`rm f`'}\"",
        "echo \"${a:-'$(rm f)'}\"",
        'x="${a+`rm f`}"',
        "cat <<E\n${a:-`rm f`}\nE",
        "echo ${a/x/`rm f`}",
        'echo "${a/x/`rm f`}"',
        'echo "${a#`rm f`}"',
        'echo "${a:-${b:-`rm f`}}"',
        "cat <<E\n  $(rm f)\nE",
        "cat <<E\n\t$(rm f)\nE",
        "cat <<-E\n\t$(rm f)\n\tE",
        "cat <<E\n  `rm f`\nE",
        "cat <<E\n  ${a:-$(rm f)}\nE",
        "cat <<E\n\n \n  $(rm f) $(echo x)\nE",
    ],
)
def test_backquotes_that_the_grammar_takes_for_text_are_no_text(ground: Ground, line: str) -> None:
    found = ground.scan(line)
    assert verdict(found, from_config({"*": "allow", "bash": {"*": "allow", "rm *": "deny"}})) in ("ask", "deny")
    assert not found.read_only


@pytest.mark.parametrize("line", ["patch protected.txt < d", "patch protected.txt d", "fallocate -l 1 protected.txt"])
def test_a_file_that_is_named_to_be_written_is_a_target(ground: Ground, line: str) -> None:
    rules = from_config({"*": "allow", "bash": "allow", "edit": {"*": "allow", "protected.txt": "deny"}})
    assert verdict(ground.scan(line), rules) == "deny"
