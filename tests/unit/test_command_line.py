"""Wrong usage in a terminal: one sentence that says what was probably meant, and status 2."""

from __future__ import annotations

import pytest

from nbagent.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["repaly"], "nbagent: there is no command repaly. Did you mean replay?"),
        (["xyzzy"], "nbagent: there is no command xyzzy. There are: run, sessions,"),
        (["run", "--agnt", "plan", "go"], "nbagent run: there is no option --agnt. Did you mean --agent?"),
        (["run", "--agnt=plan", "go"], "nbagent run: there is no option --agnt. Did you mean --agent?"),
        (["run", "--zzz"], "nbagent run: there is no option --zzz. (`nbagent run --help`)"),
        (["run", "--format", "jsno", "go"], "nbagent run: --format cannot be jsno. Did you mean json?"),
        (["run", "fix", "the", "bug"], "nbagent run: nothing is known to do with 'the bug'. Put words"),
        (["sessions", "prun"], "nbagent sessions: there is no action prun. Did you mean prune?"),
        (
            ["run", "--max-steps", "-1", "go"],
            "nbagent run: argument --max-steps: '-1' is not a whole number from 1 on.",
        ),
        (["run", "--max-steps", "0", "go"], "nbagent run: argument --max-steps: '0' is not a whole number from 1 on."),
        (
            ["run", "--max-tokens", "x", "go"],
            "nbagent run: argument --max-tokens: 'x' is not a whole number from 1 on.",
        ),
        (
            ["run", "--max-seconds", "nan", "go"],
            "nbagent run: argument --max-seconds: 'nan' is not a number of seconds",
        ),
        (["approve"], "nbagent approve: the following arguments are required: plan (`nbagent approve --help`)"),
    ],
)
def test_what_was_meant_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.count("\n") == 1


def test_without_a_command_it_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().err
    assert "nbagent demo" in told
    assert "nbagent doctor" in told
