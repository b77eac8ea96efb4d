"""A session's name: the prompt's first words at once, a model's better one later where a small model is set."""

from __future__ import annotations

import contextlib

from nbagent.agent import prompt_text
from nbagent.errors import NbagentError, StoreError
from nbagent.event import TitleEvent
from nbagent.provider.provider import Request, Say, Text, Used, UserTurn
from nbagent.session.run import Run

LIMIT = 60


def from_prompt(text: str) -> str:
    """The first line of a prompt, at most 60 characters, cut between words."""
    line = " ".join((text.strip().splitlines() or [""])[0].split())
    if len(line) <= LIMIT:
        return line
    return line[: LIMIT - 1].rsplit(" ", 1)[0] + "…"


def begin(run: Run) -> None:
    """Ask the small model for a name, beside the run and beyond its end; only for a session's first prompt, and only when one is set."""
    if not run.resources.config.small_model or run.parent is not None or run.resources.in_order:
        return  # a played cell is the same whatever the settings of the one who plays it
    prompts = [message for message in run.history.messages if message.role == "user" and message.text()]
    if len(prompts) == 1:
        run.resources.beside(_name(run, prompts[0].text()))


async def _name(run: Run, prompt: str) -> None:
    agent = run.resources.config.agent("title")
    request = Request(
        model=agent.model or run.resources.config.small_model,
        system=prompt_text(agent.prompt),
        turns=(UserTurn((Text(prompt[:4000]),)),),
        agent=agent.name,
        session_id=run.session_id,
    )
    pieces: list[str] = []
    with contextlib.suppress(NbagentError):
        async with contextlib.aclosing(run.resources.provider.stream(request)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                if isinstance(delta, Say):
                    pieces.append(delta.text)
                elif isinstance(delta, Used) and not run.over:
                    run.spend(delta.tokens, None)
    name = from_prompt(run.resources.masker.mask("".join(pieces)).strip(' "\n'))
    if not name:
        return
    with contextlib.suppress(StoreError):  # closed meanwhile: the prompt's first words stay the name
        run.resources.store.update_session(run.session_id, title=name)
        if not run.over:
            run.emit(TitleEvent(title=name))
