"""The shell scanner on made-up lines, for as long as ``NBAGENT_FUZZ_SECONDS`` says (shared by the checks in this file).

Lines are spliced from known ones and from a small grammar. Where bubblewrap is there, they are also run by a real bash in a
scratch folder: whatever changed must be among what the scan said is written, unless it said that it cannot tell.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nbagent.clock import CountingClock
from nbagent.permission.ask import Call
from nbagent.permission.gate import Gate
from nbagent.permission.ruleset import Ruleset, from_config
from nbagent.permission.shell import Scan, scan
from tests.unit.shell_ground import Ground

pytestmark = pytest.mark.fuzz

SECONDS = float(os.environ.get("NBAGENT_FUZZ_SECONDS", "600"))
SEED = int(os.environ.get("NBAGENT_FUZZ_SEED", "0")) or random.randrange(1 << 30)
DATA = Path(__file__).parent.parent / "data" / "permission" / "shell_lines.jsonl"
LINES = [json.loads(line)["line"] for line in DATA.read_text().splitlines()]

_PIECES = """> >> >| &> &>> 2> 2>&1 < <> <<< << | || && ; & ! ( ) { } $( ) ` " ' \\ $ ${ } $(( )) [[ ]] # ~ * ? [ {a,b} $' $" =
\n EOF if then else fi for in do done while case esac function time eval exec env xargs sudo bash -c cd pushd /etc/passwd ../x -o
f a b src src/a.py "a file.txt" protected.txt .env $HOME $PWD $X "$X" X=1 rm cat echo tee cp mv touch sed -i git"""
PIECES = _PIECES.split()
ALLOW = from_config({"*": "allow"})
DENY = from_config({"*": "allow", "bash": "deny"})


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("fuzz") / "w")


def strictest(scanned: Scan, rules: Ruleset) -> str:
    gate = Gate(rules, lambda ask: asyncio.sleep(0), CountingClock(), "s")  # type: ignore[arg-type,return-value]
    found = {each.action for each in gate.findings(Call("c", "bash", "x", "command", scanned.needs()))}
    return "deny" if "deny" in found else "ask" if "ask" in found else "allow"


def mutated(pick: random.Random) -> str:
    line = pick.choice(LINES)
    for _ in range(pick.randint(0, 5)):
        at = pick.randint(0, len(line))
        kind = pick.random()
        if kind < 0.35:
            line = line[:at] + pick.choice(["", " "]) + pick.choice(PIECES) + pick.choice(["", " "]) + line[at:]
        elif kind < 0.5:
            line = line[:at] + line[at + pick.randint(1, 4) :]
        elif kind < 0.7:
            other = pick.choice(LINES)
            line = line[:at] + pick.choice([" ", ";", "|", "&&", "\n"]) + other[: pick.randint(1, len(other))]
        elif kind < 0.85:
            line = (
                line[:at]
                + chr(pick.choice([0, 9, 10, 13, 27, 34, 39, 92, 96, 127, 160, 0x2028, 0x1F600, 0xDC80]))
                + line[at:]
            )
        else:
            line = pick.choice(
                [
                    "bash -c '{}'",
                    'eval "{}"',
                    "( {} )",
                    "{{ {}; }} > f",
                    "if {}; then {}; fi",
                    "$({})",
                    "f() {{ {}; }}; f",
                ]
            ).replace("{}", line)
    return line[:5000]


def test_no_line_breaks_the_scanner(ground: Ground) -> None:
    pick, until, count = random.Random(SEED), time.monotonic() + SECONDS * 0.4, 0
    while time.monotonic() < until:
        line = mutated(pick)
        started = time.monotonic()
        scanned = scan(line, root=ground.root, home=ground.home, environment={"X": "f"})
        assert time.monotonic() - started < 10, (SEED, line)
        if scanned.fault or scanned.opaque:
            assert strictest(scanned, ALLOW) == "ask", (SEED, line)
            assert not scanned.read_only
        assert strictest(scanned, DENY) == "deny" or not line.strip(), (SEED, line)
        count += 1
    assert count


_COMMANDS = """echo x|printf x|cat f|cat a b|touch n|touch a|rm a|rm -f b f|cp a b|cp a src|mv a b|mv f src|tee n|tee -a a|ls|
true|false|cd src|cd ..|cd nothere|pwd|sed -i s/o/x/ f|mkdir d|rm -r src|ln -s a l|truncate -s 0 f|: |test -f a|sort -o f a|
dd if=a of=n status=none|unlink a|rm *.txt|rm src/*|touch {n,m}|rm src/{a,b}.py|chmod 600 f|head -1 a|wc -l f|X=n|X=a|touch $X|
rm "$X"|touch "$X.z"|rm $PWD/f|touch ~/h|export X=b|find src -delete|find . -name a -exec rm {} ;|
find src -type f -exec touch {} +|xargs rm|gzip f|cp -r src d|rmdir src/empty|install a n|read X|set -- a b|touch $1|touch "$@"|
unset X|pushd src|popd|uniq a n|split a"""
COMMANDS = _COMMANDS.replace("\n", "").split("|")
FILES = [
    "n",
    "a",
    "f",
    "src/n",
    "../n",
    '"a b"',
    "'n'",
    "a\\ b",
    "$X",
    '"$X"',
    "$PWD/n",
    "/dev/null",
    "{n,m}",
    "~/n",
    "n#",
    "$'n\\x41'",
    "src/$X",
    "*.gone",
]
OPERATORS = [">", ">>", ">|", "&>", "2>", "1>", "> ", ">>  ", "<", "<>", "2>>", "3>", ">&", "&>>"]


def quoted(pick: random.Random, word: str) -> str:
    """Another way of writing the same word."""
    way = pick.random()
    if way < 0.7 or not word.isalnum():
        return word
    return pick.choice(
        [
            f"'{word}'",
            f'"{word}"',
            f"\\{word}",
            f"{word[0]}'{word[1:]}'",
            f"$'{word}'",
            f'{word[:1]}""{word[1:]}',
            f"{word[:1]}\\\n{word[1:]}",
        ]
    )


def simple(pick: random.Random) -> str:
    words = [quoted(pick, word) for word in pick.choice(COMMANDS).split(" ")]
    for _ in range(pick.choice([0, 0, 0, 1, 1, 2])):
        words.insert(pick.randint(0, len(words)), pick.choice(OPERATORS) + pick.choice(FILES))
    prefix = pick.choice(
        [""] * 12
        + ["X=f ", "env ", "time ", "nice ", "command ", "! ", "timeout 5 ", "env X=b ", "exec ", "builtin ", "nohup "]
    )
    return prefix + " ".join(words).replace(" ;", " \\;")


def line_of(pick: random.Random, depth: int = 0) -> str:
    if depth > 3 or pick.random() < 0.35:
        return simple(pick)
    one, two = line_of(pick, depth + 1), line_of(pick, depth + 1)
    target = pick.choice(FILES)
    forms = [
        f"{one}; {two}",
        f"{one} && {two}",
        f"{one} || {two}",
        f"{one} | {two}",
        f"{one}\n{two}",
        f"( {one} )",
        f"{{ {one}; }}",
        f"{{ {one}; }} > {target}",
        f"( {one} ) >> {target}",
        f"echo $({one})",
        f"echo `echo {target}`",
        f"if {one}; then {two}; fi",
        f"if {one}; then {two}; else {one}; fi > {target}",
        f"for X in a n; do {one}; done",
        f"for X in *; do {one}; done > {target}",
        f"case a in a) {one};; *) {two};; esac",
        f"g() {{ {one}; }}; g",
        f"g() {{ {one}; }}; {two}; g a n",
        f"while {one}; do {two}; break; done",
        f"cat <<E > {target}\n$({one})\nE",
        f"cat <<'E' > {target}\n$({one})\nE",
        f"cat > {target} <<E\nx\nE\n{two}",
        f"cat <({one})",
        f"{one} & wait; {two}",
        f"{one} # {two}",
        f"# {one}\n{two}",
        f"{one} && {two} > {target}",
        f"{one} | {two} > {target}",
        f"[ -f a ] && {one}",
        f"[[ -f a ]] || {one}",
        f"! {one}",
        f"echo {one} > {target} {target}",
        f"cat <<E | {one}\na\nE",
        f"cat <<E && {one}\na\nE",
        f"X=$({one}); {two}",
    ]
    text = pick.choice(forms)
    if pick.random() < 0.1 and "'" not in text:
        text = pick.choice([f"bash -c '{text}'", f"eval '{text}'", f"sh -c '{text}'"])
    return text


def run_real(line: str, ground: Ground) -> None:
    """By a real bash, in a sandbox in which only the ground can be written."""
    top = str(ground.root.path.parent)
    sandbox = [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--bind",
        top,
        top,
        "--unshare-all",
        "--die-with-parent",
        "--chdir",
        str(ground.root.path),
    ]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(ground.home)}
    try:
        subprocess.run(
            [*sandbox, "bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, env=environment
        )
    except subprocess.TimeoutExpired:
        pass


def listing(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            found[path] = (status.st_ino, status.st_mode) + (() if is_folder else (status.st_mtime_ns, status.st_size))
    return found


def told(scanned: Scan) -> bool:
    return not (scanned.fault or scanned.opaque or scanned.hidden) and all(each.place for each in scanned.writes)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is what makes running made-up lines harmless")
def test_whatever_changes_was_told(tmp_path: Path) -> None:
    pick, until, checked, at = random.Random(SEED + 1), time.monotonic() + SECONDS * 0.5, 0, 0
    while time.monotonic() < until:
        at += 1
        ground = Ground(tmp_path / str(at) / "w")
        line = line_of(pick)
        scanned = scan(line, root=ground.root, home=ground.home, environment={})
        if told(scanned):
            before = listing(tmp_path / str(at))
            run_real(line, ground)
            after = listing(tmp_path / str(at))
            changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            named = {str(each.place.real) for each in scanned.writes if each.place}
            named |= {str(ground.root.path / each) for target in scanned.writes for each in target.below}
            lost = {
                path for path in changed - named if not any(path.startswith(f"{each}/") for each in named & changed)
            }
            assert not lost, (SEED, line, sorted(lost), sorted(named))
            assert not (scanned.read_only and changed), (SEED, line)
            checked += 1
        shutil.rmtree(tmp_path / str(at), ignore_errors=True)  # what a line left in the background may still be dying
    assert checked


def test_what_is_proven_changes_nothing(tmp_path: Path) -> None:
    pick, until = random.Random(SEED + 2), time.monotonic() + SECONDS * 0.1
    ground = Ground(tmp_path / "w")
    before = ground.digest()
    proven = [line for line in LINES if ground.scan(line).read_only]
    while time.monotonic() < until:
        words = pick.choice(proven).split(" ")
        words.insert(
            pick.randint(1, len(words)),
            pick.choice(
                ["-o", "-i", "n", "--output=n", "-w", "-on", "-in", "-d", "--in-place", "-C", "-s", "| tee n", "-exec"]
            ),
        )
        line = " ".join(words)
        if ground.scan(line).read_only:
            try:
                ground.run(line)
            except subprocess.TimeoutExpired:
                continue
            assert ground.digest() == before, (SEED, line)
