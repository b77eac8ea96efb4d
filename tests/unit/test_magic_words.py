"""What a person types: options, one-line forms, mentions, completion, answers to prompts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from nbagent.errors import ConfigError
from nbagent.frontend import Form, Question, Review
from nbagent.notebook import typed
from nbagent.notebook.attach import Attacher
from nbagent.notebook.awaiting import install
from nbagent.notebook.commands import COMMANDS, find_command
from nbagent.notebook.completion import complete
from nbagent.notebook.magics import AgentMagics
from nbagent.notebook.options import BUILD, PLAN, parse, usage
from nbagent.notebook.work import expand
from nbagent.permission.ask import Ask, Call, Need, Preview
from nbagent.permission.ruleset import Rule
from nbagent.root import Root


class Shell:
    """A shell's transformers and nothing else."""

    def __init__(self) -> None:
        self.input_transformer_manager = TransformerManager()
        self.input_transformers_cleanup = self.input_transformer_manager.cleanup_transforms

    def transform(self, text: str) -> str:
        return str(self.input_transformer_manager.transform_cell(text))


@pytest.fixture
def shell() -> Shell:
    shell = Shell()
    install(shell, {"plan", "build"}, {"plan", "build", "agent"})
    return shell


@pytest.mark.parametrize(
    ("cell", "becomes"),
    [
        ("%%plan --quick\nfix {x}\n", "await get_ipython().run_cell_magic('plan', '--quick', 'fix {x}\\n')\n"),
        ("\n# why\n\n%%build\nx\n", "await get_ipython().run_cell_magic('build', '', 'x\\n')\n"),
        ("%%plan don't\nb\n", "await get_ipython().run_cell_magic('plan', \"don't\", 'b\\n')\n"),
        ("%%build\n\n", "await get_ipython().run_line_magic('build', '')\n"),
        ("%%build --plan p.md", "await get_ipython().run_line_magic('build', '--plan p.md')\n"),
        ("%plan why?", "await get_ipython().run_line_magic('plan', 'why?')\n"),
        ("x = 1\n%agent status\n", "x = 1\nawait get_ipython().run_line_magic('agent', 'status')\n"),
        ("if x:\n    %build go on\n", "if x:\n    await get_ipython().run_line_magic('build', 'go on')\n"),
        ("r = %plan a", "r = await get_ipython().run_line_magic('plan', 'a')\n"),
        ("s = '''\n%plan a\n'''\n", "s = '''\n%plan a\n'''\n"),
        ("%plans a", "get_ipython().run_line_magic('plans', 'a')\n"),
        ("%%planned\nx\n", "get_ipython().run_cell_magic('planned', '', 'x\\n')\n"),
        (
            "%time x\n%plan y\n",
            "get_ipython().run_line_magic('time', 'x')\nawait get_ipython().run_line_magic('plan', 'y')\n",
        ),
        ("%plan?", "get_ipython().run_line_magic('pinfo', '%plan')\n"),
        ("%%plan?", "get_ipython().run_line_magic('pinfo', '%%plan')\n"),
        ("# only %%plan in words\nx\n", "# only %%plan in words\nx\n"),
        ("a %plan b", "a %plan b\n"),
    ],
)
def test_cells_await_their_run(shell: Shell, cell: str, becomes: str) -> None:
    assert shell.transform(cell) == becomes


def test_a_terminal_still_waits_for_the_end_of_a_cell_magic(shell: Shell) -> None:
    assert shell.input_transformer_manager.check_complete("%%plan\nfix it")[0] == "incomplete"


def test_taking_the_transformers_out_leaves_nothing() -> None:
    shell = Shell()
    before = (list(shell.input_transformers_cleanup), list(shell.input_transformer_manager.token_transformers))
    install(shell, {"plan"}, {"plan"})()
    assert (shell.input_transformers_cleanup, shell.input_transformer_manager.token_transformers) == before


@pytest.mark.parametrize(
    ("line", "given_", "rest"),
    [
        ("", {}, ""),
        ("fix it, don't wait --quick", {}, "fix it, don't wait --quick"),
        ("--quick --model gpt-x fix 'it'", {"quick": True, "model": "gpt-x"}, "fix 'it'"),
        ("--model=a/b:c  why?", {"model": "a/b:c"}, "why?"),
        ("-o result go", {"output": "result"}, "go"),
        ('--plan "my plan.md" x', {"plan": "my plan.md"}, "x"),
        ("--plan='my plan.md' x", {"plan": "my plan.md"}, "x"),
        ("-- --quick is a word", {}, "--quick is a word"),
        ("- a list item", {}, "- a list item"),
        ("--cassette-answers --cassette f.cassette", {"cassette_answers": True, "cassette": "f.cassette"}, ""),
    ],
)
def test_options_stand_before_the_prompt(line: str, given_: dict[str, Any], rest: str) -> None:
    parsed = parse(line, PLAN, "%%plan")
    assert (parsed.given, parsed.rest) == (given_, rest)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--quik x", "Did you mean --quick?"),
        ("--nonsense x", "Options: --quick"),
        ("--auto x", "no option --auto"),
        ("--model", "--model M"),
        ("--quick=yes x", "takes no value"),
        ("--api-key sk-1 x", "never given"),
        ("--api_key=sk-1 x", "never given"),
        ("--plan 'open x", "quote is not closed"),
    ],
)
def test_a_wrong_option_is_one_line(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(line, PLAN, "%%plan")
    assert "\n" not in str(caught.value) and "sk-1" not in str(caught.value)


@given(st.text(alphabet="abc -='\"\n\té$`\\{}@", max_size=30))
def test_any_line_is_parsed_or_refused_in_one_line(line: str) -> None:
    try:
        parsed = parse(line, BUILD, "%%build")
    except ConfigError as error:
        assert "\n" not in str(error)
    else:
        assert line.strip().endswith(parsed.rest)


def test_help_lists_every_option() -> None:
    text = usage("%%build", "about", BUILD)
    assert all(option.name in text for option in BUILD)


def test_variables_in_a_prompt() -> None:
    assert expand("{a} {{a}} {1} $a {", {"a": [1]}) == "[1] {a} {1} $a {"
    with pytest.raises(ConfigError, match="no variable b"):
        expand("{b}", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print(1)\n")
    (root / ".env").write_text("KEY=1")
    (root / "big.txt").write_text("x" * 200_000)
    (root / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 100)
    (root / "data.bin").write_bytes(b"\0\1\2")
    (root / "my file.txt").write_text("spaced")
    (tmp_path / "outside.txt").write_text("out")
    return root


def attacher(root: Path, variables: dict[str, Any] | None = None) -> Attacher:
    def allowed(permission: str, pattern: str) -> bool:
        return permission == "read" and not pattern.endswith(".env")

    cells = [{"id": "c1", "source": ["x = 1\n", "y"]}]
    return Attacher(Root(root), allowed, variables or {}, lambda name: f"described {name}", lambda: cells)


def test_mentions_become_parts(folder: Path) -> None:
    found = attacher(folder, {"df": 1}).parts(
        'See @src/a.py, @src/ and @df; @cell:c1 @pic.png @"my file.txt" (@src/a.py). Mail me@x.org, @property, `@df`.'
    )
    named = {(part.source, part.filename): part for part in found}
    assert set(named) == {
        ("file", "src/a.py"),
        ("folder", "src/"),
        ("variable", "df"),
        ("cell", "cell:c1"),
        ("file", "pic.png"),
        ("file", "my file.txt"),
    }
    assert named["file", "src/a.py"].text == "print(1)\n" and named["cell", "cell:c1"].text == "x = 1\ny"
    assert named["file", "pic.png"].mime == "image/png" and named["file", "pic.png"].data
    assert named["variable", "df"].text == "described df" and named["folder", "src/"].text == "a.py"


def test_what_may_not_be_read_is_not_attached_and_that_is_said(folder: Path) -> None:
    one = attacher(folder)
    assert one.parts("@.env @../outside.txt @cell:zzz @nothing @no/such.py") == ()
    text = "\n".join(one.notes)
    assert "@.env was not attached: the rules" in text and "outside of the project" in text and "no such cell" in text
    assert "nothing" not in text


def test_large_and_binary_files(folder: Path) -> None:
    big, binary = attacher(folder).parts("@big.txt @data.bin")
    assert len(big.text) < 51_000 and "cut after" in big.text and "binary" in binary.text


def completions(text: str, root: Path, variables: dict[str, Any] | None = None) -> list[str] | None:
    values = {
        "models": lambda piece: ["gpt-x", "qwen"],
        "plans": lambda piece: [".nbagent/plans/p.md"],
        "sessions": lambda piece: ["ses_1"],
    }
    found = complete(text, len(text), variables or {}, root, values)
    return None if found is None else found[1]


def test_completion(folder: Path) -> None:
    assert completions("%%plan --qu", folder) == ["--quick"]
    assert completions("%%build --model ", folder) == ["gpt-x", "qwen"]
    assert completions("# x\n%%build --model q", folder) == ["qwen"]
    assert ".nbagent/plans/p.md" in (completions("%%build --plan .nb", folder) or [])
    assert completions("%%plan\nlook at @sr", folder) == ["@src/"]
    assert completions("%%plan\nlook at @src/", folder) == ["@src/a.py"]
    assert completions("%%plan\nlook at @d", folder, {"df": 1, "_d": 2}) == ["@df", "@data.bin"]
    assert completions("%%plan\njust words", folder) == []
    assert completions("%agent st", folder) == ["status"]
    assert completions("x = 1\n%agent resume s", folder) == ["ses_1"]
    assert completions("%agent export --", folder) == ["--to"]
    assert completions("%agent tools p", folder) == ["plan"]
    assert completions("plan.st", folder) is None and completions("x = '%%plan'", folder) is None
    assert completions("%%plan\n@../", folder) == []


def ask() -> Ask:
    preview = Preview("diff", "\n".join(f"+line {n}" for n in range(100)) + "\x1b[31m")
    call = Call("c1", "edit", "edit a.py", "writes", (Need("edit", ("a.py",)),), preview)
    return Ask("a1", "s", call, Rule("edit", "*", "ask", "defaults"), (("edit", "a.py"),), (("edit", "a.py"),))


def reader(*lines: str) -> tuple[Any, list[str]]:
    prompts: list[str] = []
    left = list(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return left.pop(0)

    return read, prompts


@pytest.mark.parametrize(
    ("line", "answer", "feedback"),
    [
        ("y", "once", ""),
        (" YES ", "once", ""),
        ("a", "always", ""),
        ("n", "reject", ""),
        ("no, because it is late", "reject", "it is late"),
        ("n because: use edit", "reject", "use edit"),
        ("n,why", "reject", "why"),
    ],
)
def test_typed_replies(line: str, answer: str, feedback: str) -> None:
    read, prompts = reader("", "what?", line)
    reply = typed.ask(ask(), read)
    assert reply is not None and (reply.answer, reply.feedback) == (answer, feedback)
    assert "edit a.py" in prompts[0] and "rule: edit *: ask (defaults)" in prompts[0] and "\x1b" not in prompts[0]
    assert "40 more lines" in prompts[0] and len(prompts) == 3


def test_a_typed_ask_is_not_asked_for_ever() -> None:
    assert typed.ask(ask(), lambda prompt: "") is None


@pytest.mark.parametrize(
    ("line", "action", "comment"),
    [
        ("b", "build", ""),
        ("l", "later", ""),
        ("k, also x", "revise", "also x"),
        ("r", "reject", ""),
        ("build, go", "build", "go"),
    ],
)
def test_typed_verdicts(line: str, action: str, comment: str) -> None:
    read, prompts = reader("", "yes", line)
    review = Review("r1", "s", "p.md", "# Plan", "h", warnings=("no verification",), stale=True)
    verdict = typed.review(review, read)
    assert verdict is not None and (verdict.action, verdict.comment, verdict.hash) == (action, comment, "h")
    assert "# Plan" in prompts[0] and "no verification" in prompts[0] and "changed" in prompts[0]


def test_typed_answers() -> None:
    form = Form(
        "f1",
        "s",
        (
            Question("Unit", "Which unit?", (("m", "metres"), ("ft", ""))),
            Question("Parts", "Which parts?", (("a", ""), ("b", ""), ("c", "")), multiple=True),
            Question("Strict", "Strict?", (("yes", ""), ("no", "")), custom=False),
            Question("Name", "Which name?"),
        ),
    )
    read, _ = reader("2", "1, 3", "maybe", "YES", "", "my own")
    assert typed.form(form, read) == (("ft",), ("a", "c"), ("yes",), ("my own",))
    assert typed.form(form, lambda prompt: "-") is None


def test_what_agent_says_of_itself_names_every_command() -> None:
    """``%agent?`` shows it; it is written out there, since the commands are loaded when one is used."""
    said = AgentMagics.agent.__doc__ or ""
    assert [name for name in COMMANDS if name not in re.findall(r"\w+", said)] == []


def test_words_behind_a_command_that_takes_none_are_an_error() -> None:
    """``%agent undo a.py`` would put back more than that file."""
    with pytest.raises(ConfigError, match=r"undo: it takes nothing behind it, and 'a\.py' is there\. Nothing was done"):
        find_command("undo", ["a.py"])
    assert find_command("undo", []).name == "undo"
    assert find_command("help", ["why"]).name == "help"
    assert find_command("why", ["edit", "a.py"]).name == "why"
