"""What a plain command writes and reads, and whether it is proven to change nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nbagent.permission.known import STANDARD, base_name, is_text, listed, tables
from nbagent.permission.options import Options, is_option, options
from nbagent.permission.word import Field


@dataclass(slots=True)
class Touch:
    """What one command touches. ``writes``/``reads``: operands, each with whether what is below a folder is touched too.
    ``unknown``: it writes something that the line does not tell (why). ``opaque``: what it runs cannot be seen."""

    writes: list[tuple[Field, bool]] = field(default_factory=list)
    reads: list[tuple[Field, bool]] = field(default_factory=list)
    unknown: str = ""
    opaque: str = ""


def touched(words: Sequence[Field]) -> Touch:
    """What a plain command (no wrapper) writes and reads, as far as its name and arguments tell."""
    name, arguments = base_name(words[0].text), words[1:]
    special = _python if re.fullmatch(r"(python|pypy)[\d.]*", name) else _SPECIAL.get(name)
    touch = Touch()
    if special is not None:
        special(arguments, touch)
    elif name in tables()["writes"]:
        _by_table(tables()["writes"][name], arguments, touch)
    if not is_text(name):
        _read_operands(name, arguments, touch)
    return touch


def _by_table(known: dict[str, Any], arguments: Sequence[Field], touch: Touch) -> None:
    def names(key: str) -> frozenset[str]:
        return frozenset(str(known.get(key, "")).split())

    given = options(arguments, names("values"))
    touch.writes += [(each, False) for each in given.values(names("options"))]
    unknown = known.get("unknown", "")
    if given.has(names("unless")) or " ".join(each.text for each in given.operands[:2]) in known.get("but", ()):
        return
    if unknown is True or any(each.text in names("unknown") for each in (*given.operands[:1], *arguments[:1])):
        touch.unknown = "writes files that the command line does not name"
    if isinstance(unknown, str) and given.has(frozenset(each for each in names("unknown") if each.startswith("-"))):
        touch.unknown = "writes files that the command line does not name"
    if "when" in known and not given.has(names("when")):
        return
    skip = 0 if given.has(names("scripts")) else int(known.get("skip", 0))
    operands = given.operands[skip:]
    tree = known.get("tree") == "always" or given.has(names("tree"))
    how = "all" if given.has(names("all")) else known["write"]
    last = how == "last"
    for each in _written(how, operands, bool(given.values(names("options")))):
        # What a copied folder overwrites is not told by what is in its target.
        touch.writes.append((each, tree and not last and (how != "move" or each is not operands[-1])))
    if last and tree:
        touch.unknown = "copies a folder with files that the command line does not name"
    if how in ("last", "move") and operands:
        _into_folders(operands, given.values(names("options")), touch)


def _written(how: str, operands: tuple[Field, ...], elsewhere: bool) -> tuple[Field, ...]:
    if how in ("all", "move"):
        return operands
    if how == "first":
        return operands[:1]
    if how == "second":
        return operands[1:2]
    return operands[-1:] if how == "last" and not elsewhere else ()


def _into_folders(operands: tuple[Field, ...], folders: tuple[Field, ...], touch: Touch) -> None:
    """``cp a b dir`` writes ``dir/a``; when ``dir`` is no folder these names do no harm."""
    targets = folders or operands[-1:]
    sources = operands if folders else operands[:-1]
    if len(operands) == 1 and not folders:
        targets, sources = (Field("."),), operands
    for target in targets:
        for source in sources:
            leaf = base_name(source.text.rstrip("/"))
            known = source.known and target.known and not source.pattern and not target.pattern
            if source.pattern:
                known = False
            joined = f"{target.text.rstrip('/') or '/'}/{leaf}"
            touch.writes.append((Field(joined, known, "", joined), False))


def _read_operands(name: str, arguments: Sequence[Field], touch: Touch) -> None:
    skips = tables()["reads"]["skip"]
    instead = listed("reads", "instead")
    recursive = tables()["reads"].get(name, "") if name != "skip" else ""
    given = options(arguments, frozenset(str(tables()["writes"].get(name, {}).get("values", "")).split()))
    skip = skips.get(name, 0) if not given.has(instead) else 0
    tree = recursive == "always" or (bool(recursive) and given.has(frozenset(recursive.split())))
    for at, word in enumerate(given.operands):
        if at >= skip:
            touch.reads.append((word, tree))
    if tree and len(given.operands) <= skip:
        touch.reads.append((Field("."), True))
    for _, value in given.named:
        if value is not None:
            touch.reads.append((value, False))
    for word in arguments:  # -I../x, -f/etc/x
        if re.match(r"-[A-Za-z@][./~@]", word.text):
            touch.reads.append((Field(word.text[2:].lstrip("@"), word.known), False))


def _dd(arguments: Sequence[Field], touch: Touch) -> None:
    for word in arguments:
        key, _, value = word.text.partition("=")
        if key == "of":
            touch.writes.append((Field(value, word.known), False))
        elif key == "if":
            touch.reads.append((Field(value, word.known), False))


_TAR_VALUES = "fCTXIbKLNVgHF"
_TAR_RUNS = frozenset(["-I", "-F", "--to-command", "--use-compress-program", "--info-script", "--checkpoint-action"])


def _tar_words(arguments: Sequence[Field]) -> list[Field]:
    """One option a word. In a bundle, the letter that takes a value takes what is left of it, or the next word; in ``tar cfC`` all
    values come after."""
    rest = list(arguments)
    found: list[Field] = []
    old = bool(rest) and not rest[0].text.startswith("-")
    while rest:
        word = rest.pop(0)
        if not old and (not re.match(r"-[A-Za-z]", word.text) or not word.known):
            found.append(word)
            continue
        letters = word.text.lstrip("-")
        for at, letter in enumerate(letters):
            found.append(Field(f"-{letter}", word.known))
            if letter in _TAR_VALUES:
                value = "" if old else letters[at + 1 :]
                found += [Field(value, True, "", value)] if value else [rest.pop(0)] if rest else []
                if value or not old:
                    break
        old = False
    return found


def _tar(arguments: Sequence[Field], touch: Touch) -> None:
    values = frozenset([*(f"-{letter}" for letter in _TAR_VALUES), "--file", "--directory", "--exclude"])
    given = options(_tar_words(arguments), values)
    archive = given.values(frozenset(["-f", "--file"]))
    if given.has(frozenset(["-x", "--extract", "--get"])) or given.has(_TAR_RUNS):
        folders = given.values(frozenset(["-C", "--directory"]))
        touch.writes += [(each, False) for each in folders or (Field("."),)]
        touch.unknown = "unpacks files that the command line does not name"
    elif not given.has(frozenset(["-t", "--list"])):
        touch.writes += [(each, False) for each in archive]
        touch.reads += [(each, True) for each in given.operands]


def _find(arguments: Sequence[Field], touch: Touch) -> None:
    starts = []
    for word in arguments:
        if word.text.startswith("-") or word.text in ("(", "!"):
            break
        starts.append(word)
    starts = starts or [Field(".")]
    texts = [word.text for word in arguments]
    if "-delete" in texts:
        touch.writes += [(each, True) for each in starts]
    for at, text in enumerate(texts):
        if text in ("-fprint", "-fprint0", "-fls", "-fprintf") and at + 1 < len(texts):
            touch.writes.append((arguments[at + 1], False))


def _awk(arguments: Sequence[Field], touch: Touch) -> None:
    given = options(
        arguments,
        frozenset(
            ["-f", "-F", "-v", "--file", "--field-separator", "--assign", "-i", "--include", "-l", "--load", "-E"]
        ),
    )
    if any("inplace" in value.text for value in given.values(frozenset(["-i", "--include"]))):
        touch.writes += [(each, False) for each in given.operands[1:]]
    if given.has(frozenset(["-f", "--file", "-E", "--exec", "-l", "--load"])):
        touch.unknown = "an awk program that cannot be seen"
    elif given.operands and not given.operands[0].known:
        touch.opaque = "an awk program with a part that cannot be told"
    elif given.operands and is_busy_awk(given.operands[0].text):
        touch.unknown = "an awk program that writes or runs something"


_AWK_PIECE = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<comment>\#[^\n]*)|(?P<regex>(?:(?<=[(,~!&|{};\n=])|(?<=\bprint)|(?<=\breturn)|^)\s*/(?:[^/\\\n]|\\.)+/)""",
    re.DOTALL | re.VERBOSE,
)
_AWK_STATEMENT = re.compile(r"\bprintf?\b((?:[^;}\n]|(?<=,)\s*\n)*)")
_AWK_RUNS = re.compile(r"(?<!\|)\|(?!\|)|\bsystem\s*\(|@(?:load|include)|\"")


def is_busy_awk(program: str) -> bool:
    """Whether an awk program may write or run something: a redirected ``print``, a pipe, ``system``. Comparisons are none of that."""
    program = program.replace("\\\n", " ")
    plain = _AWK_PIECE.sub(lambda found: " T " if found["text"] else " ", program)
    if "/" in plain and re.search(r"[>|]|system", program):
        # A division or the end of a pattern: what is text and what is not cannot be told so simply.
        plain = re.sub(r"[\"/]", " ", program) if '"' in program else plain
    if _AWK_RUNS.search(plain):
        return True
    for _ in range(50):
        plain, found = re.subn(r"\([^()]*\)", " ", plain)
        if not found:
            break
    return any(">" in found[1] for found in _AWK_STATEMENT.finditer(plain))


def _sed(arguments: Sequence[Field], touch: Touch) -> None:
    if arguments and arguments[0].text in ("-i", "--in-place") and len(arguments) > 1 and not arguments[1].text:
        arguments = [arguments[0], *arguments[2:]]  # -i '' keeps no copy, on macOS
    _by_table(tables()["writes"]["sed"], arguments, touch)
    given = options(arguments, frozenset(["-e", "--expression", "-f", "--file", "-l", "--line-length"]))
    _kept_copies(arguments, touch)
    if given.has(frozenset(["-f", "--file"])) or not all(map(is_plain_sed, _sed_scripts(given))):
        touch.unknown = touch.unknown or "a sed script that may write or run something"


def _kept_copies(arguments: Sequence[Field], touch: Touch) -> None:
    """``-i.bak`` keeps what was there under another name."""
    for word in arguments:
        suffix = re.fullmatch(r"(?:-[A-Za-z]*i|--in-place=)([^A-Za-z/*][^/*]*)", word.text)
        if suffix:
            copies = [replace(each, text=each.text + suffix[1], pattern="") for each, _ in touch.writes]
            touch.writes += [(each, False) for each in copies]


def _perl(arguments: Sequence[Field], touch: Touch) -> None:
    _by_table(tables()["writes"]["perl"], arguments, touch)
    _kept_copies(arguments, touch)


def _sed_scripts(given: Options) -> list[Field]:
    scripts = given.values(frozenset(["-e", "--expression"]))
    return list(scripts or given.operands[:1])


_SED_ADDRESS = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?)"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|\+\d+))?\s*)?!?\s*(?:[pdqQ=lnNDPgGhHx]|s([/|#,:@!%])(?:(?!\1)[^\\\n]|\\.)*"
    r"\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI0-9]*|y/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/)?\s*"
)


def is_plain_sed(script: Field) -> bool:
    """Whether a sed script is made of nothing but addresses, printing, deleting and substitutions without ``w`` or ``e``."""
    if not script.known:
        return False
    at = 0
    while at < len(script.text):
        found = _SED_COMMAND.match(script.text, at)
        if found is None or (found.end() < len(script.text) and script.text[found.end()] not in ";\n"):
            return False
        at = found.end() + 1
    return True


def split_git(arguments: Sequence[Field]) -> tuple[list[Field], list[Field], list[Field]]:
    """Options of git itself, the rest from the subcommand on, and the folders that ``-C`` names, each seen from the one before."""
    values = listed("git", "values")
    rest, own, folders = list(arguments), list[Field](), list[Field]()
    while rest and rest[0].text.startswith("-"):
        word = rest.pop(0)
        own.append(word)
        if word.text in values and rest:
            own.append(rest.pop(0))
            if word.text == "-C":
                folders.append(own[-1])
    return own, rest, folders


def has_odd_git_options(own: Sequence[Field]) -> bool:
    """Whether options before the subcommand can change what git runs (``-c``, ``--exec-path``, ``--git-dir`` …)."""
    texts = [word.text for at, word in enumerate(own) if not (at and own[at - 1].text == "-C")]
    return any(text != "-C" and text not in listed("git", "harmless") for text in texts)


def _git(arguments: Sequence[Field], touch: Touch) -> None:
    _, rest, _ = split_git(arguments)
    if not rest:
        return
    sub = rest[0].text
    given = options(
        rest[1:], frozenset(["-o", "--output", "-m", "--message", "-s", "--source", "-b", "-B", "-F", "--file"])
    )
    output = given.values(frozenset(["--output"]))
    if sub in ("archive", "bundle", "format-patch"):
        output += given.values(frozenset(["-o"])) + (given.operands[1:2] if sub == "bundle" else ())
    looks = git_only_looks(rest)
    touch.writes += [(each, False) for each in output if not looks]
    if sub in listed("git", "written_by") and not looks:
        touch.writes += [(each, True) for each in given.operands]
    if not looks and not (output and sub in listed("git", "reads") | {"archive"}):
        touch.unknown = f"git {sub} changes the work tree, the index or the history"


def git_only_looks(rest: Sequence[Field]) -> bool:
    """Whether a git subcommand with its arguments is proven to change nothing."""
    sub, arguments = rest[0].text, [word.text for word in rest[1:]]
    dashed = [re.sub(r"^(-[np])\d+$", r"\1", word.partition("=")[0]) for word in arguments if word.startswith("-")]
    unsafe = listed("git", "unsafe")
    if any(is_option(word, unsafe) for word in dashed):
        return False
    if sub in listed("git", "reads"):
        return True
    known = tables()["git"]["looks"].get(sub)
    if known is None:
        return False
    operands = [word for word in arguments if not word.startswith("-")]

    def given(key: str) -> bool:
        return bool(set(dashed) & set(known.get(key, "").split()))

    if "options" in known and not set(dashed) <= set(known["options"].split()):
        return False
    if "needs" in known and not given("needs"):
        return False
    if "first" in known and (operands or known.get("needs-first")):
        return bool(arguments) and arguments[0] in known["first"].split()
    if "never" in known and operands:
        return operands[0] not in known["never"].split()
    return len(operands) <= known.get("most", 99) or given("lists")


def _after_options(arguments: Sequence[Field]) -> list[Field]:
    """For programs that take everything after the first operand as an operand."""
    start = next((at for at, each in enumerate(arguments) if not each.text.startswith("-")), len(arguments))
    return list(arguments[start:])


def _python(arguments: Sequence[Field], touch: Touch) -> None:
    """``python -m pip`` is pip."""
    rest = list(arguments)
    while rest and re.fullmatch(r"-[bBdEIOqsSuvx]+", rest[0].text):
        rest.pop(0)
    if not rest or not rest[0].text.startswith("-m"):
        return
    module = rest.pop(0)
    name = module.text[2:] or (rest.pop(0).text if rest else "")
    name = tables()["modules"].get(name, name)
    if name in tables()["writes"] or name in _SPECIAL:
        inner = touched([Field(name), *rest])
        touch.writes += inner.writes
        touch.unknown = inner.unknown


def _ruff(arguments: Sequence[Field], touch: Touch) -> None:
    if not arguments or any(each.text in ("--diff", "--check") for each in arguments):
        return
    sub, rest = arguments[0].text, arguments[1:]
    if sub == "format":
        _by_table(tables()["writes"]["ruff format"], rest, touch)
    elif sub == "check":
        _by_table(tables()["writes"]["ruff check"], rest, touch)


def _jupyter(arguments: Sequence[Field], touch: Touch) -> None:
    sub = arguments[0].text if arguments else ""
    if f"jupyter {sub}" in tables()["writes"]:
        _by_table(tables()["writes"][f"jupyter {sub}"], arguments[1:], touch)


def _nbconvert(arguments: Sequence[Field], touch: Touch) -> None:
    _jupyter([Field("nbconvert"), *arguments], touch)


def _xxd(arguments: Sequence[Field], touch: Touch) -> None:
    given = options(arguments, frozenset(tables()["writes"]["xxd"]["values"].split()))
    touch.writes += [(each, False) for each in {*given.operands[1:2], *_after_options(arguments)[1:]}]


_SPECIAL = {
    "dd": _dd,
    "tar": _tar,
    "find": _find,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "sed": _sed,
    "git": _git,
    "xxd": _xxd,
    "perl": _perl,
    "ruff": _ruff,
    "jupyter": _jupyter,
    "jupyter-nbconvert": _nbconvert,
}


def only_looks(words: Sequence[Field]) -> bool:
    """Whether a plain command is proven to change nothing: its program and every option are on a list."""
    if not all(word.known and not word.pipe for word in words):
        return False
    name = words[0].text
    if "/" in name:
        if not name.startswith(STANDARD):
            return False
        name = base_name(name)
    arguments = words[1:]
    if (name == "git" or name in tables()["careful"]) and _finds_options(name, arguments):
        return False
    if name == "git":
        own, rest, _ = split_git(arguments)
        return bool(rest) and not has_odd_git_options(own) and git_only_looks(rest)
    careful = tables()["careful"].get(name)
    if careful is not None:
        return _is_careful(name, frozenset(careful.split()), arguments)
    return name in listed("harmless", "words")


_FIND_ENDS = re.compile(r"[^*?\[\]]*$")
_ENDS_OPTIONS = frozenset(["git", "rg", "sed", "sort", "shuf", "file"])


def may_find_options(words: Sequence[str]) -> bool:
    """Whether wildcards are what a command that may only look is not proven for, as far as its words tell."""
    known = words[0] == "git" or words[0] in tables()["careful"]
    return known and any(set(word) & set("*?[") for word in words[1:])


def _finds_options(name: str, arguments: Sequence[Field]) -> bool:
    """Whether a word with wildcards may find a file whose name is an option (``-delete``, ``--output=x``), or one name too many.
    Whoever made the project gave its files their names."""
    for at, word in enumerate(arguments):
        if word.text == "--" and not word.pattern and name in _ENDS_OPTIONS:
            break
        if name == "printf" and at:
            break  # it looks for options before its format only
        if word.pattern and (name in ("uniq", "xxd") or _finds_option(name, word.pattern)):
            return True
    return False


def _finds_option(name: str, pattern: str) -> bool:
    if pattern[0] == "-":  # what "--format=%G?" finds is that option too
        return bool(set(pattern.partition("=")[0]) & set("*?["))
    if pattern[0] not in "*?[":
        return False
    end = _FIND_ENDS.search(pattern)
    if name != "find" or end is None:
        return True
    # What find is told to do is one word that stands alone, so that "*.py" finds none.
    return any(each.endswith(end[0]) for each in tables()["careful"]["find"].split())


def _plain_operands(arguments: Sequence[Field]) -> list[Field]:
    return [each for each in arguments if not each.text.startswith("-") or each.text == "-"]


def _without_values(arguments: Sequence[Field], names: tuple[str, ...]) -> list[Field]:
    return [each for at, each in enumerate(arguments) if not (at and arguments[at - 1].text in names)]


def _is_careful(name: str, unsafe: frozenset[str], arguments: Sequence[Field]) -> bool:
    if name == "date":
        arguments = _without_values(arguments, ("-d", "--date", "-r", "--reference"))
    for word in (each.text for each in arguments):
        if word.startswith("-") and word != "-":
            option = word.partition("=")[0]
            if name == "find" and option in unsafe:
                return False
            if name == "xxd" and any(
                each.startswith(option) or option.startswith(each) for each in unsafe if len(option) > 1
            ):
                return False
            if name not in ("find", "xxd") and is_option(option, unsafe):
                return False
        elif "-" in unsafe and not (name == "date" and word.startswith("+")):
            return False
    operands = _after_options(arguments) if name == "xxd" else _plain_operands(arguments)
    if name == "sed":
        given = options(arguments, frozenset(["-e", "--expression"]))
        return bool(_sed_scripts(given)) and all(map(is_plain_sed, _sed_scripts(given)))
    if name == "command":
        return bool(arguments) and arguments[0].text in ("-v", "-V")
    return name not in ("uniq", "xxd") or len(operands) <= 1
