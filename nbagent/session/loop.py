"""Step after step until the model stops."""

from __future__ import annotations

from nbagent.agent import prompt_text
from nbagent.errors import ContextOverflow, ProviderError
from nbagent.message import Message, TextPart
from nbagent.provider.lookalike import looks_like_call
from nbagent.provider.provider import Request
from nbagent.session import ledger
from nbagent.session.reminders import shown
from nbagent.session.retry import Retries
from nbagent.session.run import Ending, Run
from nbagent.session.step import Answer, Step, announce_step
from nbagent.session.summarise import Summariser

CORRECTIVES = 2
CONTINUATIONS = 3
SILENCES = 2


async def loop(run: Run) -> Ending:
    """Answer the newest prompt of the run's history. Returns why it ended."""
    continuations = silent = 0
    while True:
        limit = reached(run)
        run.steps += 1
        try:
            answer = await _in_time(run, limit)
        except ProviderError as error:
            if limit != "time":
                raise
            return Ending("limit", f"The cell's time limit was reached. {error}")
        if answer is None:
            if run.ending is not None:
                return run.ending
            if limit:
                return Ending("limit", f"The cell's {limit} limit was reached.")
            run.notice("The cell's time limit is reached: what was under way was ended.", "warning")
            continue
        if run.ending is not None:
            return run.ending
        if _ended_above(run):
            return Ending("stopped", "The cell ended while this was at work.")
        if limit:
            return Ending("limit", f"The cell's {limit} limit was reached.")
        if run.next_agent is not None:
            run.switch(run.next_agent, answer.message_id, run.carry_out)
            ledger.begin(run)
            continue
        if answer.calls:
            continue
        if answer.reason == "length" and continuations < CONTINUATIONS:
            continuations += 1
            run.notice("The answer was cut at the model's output limit; it goes on.")
            add_note(run, "continue")
            continue
        if looks_like_call(answer.text, run.resources.tools) and run.state.correctives < CORRECTIVES:
            run.state.correctives += 1
            add_note(run, "corrective")
            continue
        if answer.reason == "stop" and not answer.text.strip() and silent < SILENCES:
            silent += 1
            run.notice("The model thought, but neither answered nor did anything; it is asked to.")
            add_note(run, "silent")
            continue
        return _ending(run, answer)


def _ending(run: Run, answer: Answer) -> Ending:
    if answer.reason == "length":
        run.notice(
            "The answer was cut at the model's output limit again, so the run ends here. Ask it to go on.", "warning"
        )
        return Ending("length", "The answer was cut at the model's output limit.")
    if answer.reason == "content-filter":
        raise ProviderError("The server's content filter stopped the answer. Put the request in other words.")
    if not answer.text.strip():
        raise ProviderError(
            "The model thought, but gave no answer. Run the cell again, raise `output` for this model in nbagent.toml, "
            "or choose another model."
        )
    return Ending("stop")


def reached(run: Run) -> str:
    """Which cap of the cell the next step would be the last for: ``step``, ``token``, ``time`` or ""."""
    steps = run.agent.steps or run.options.limits.steps
    if steps and run.steps + 1 >= steps:
        return "step"
    each: Run | None = run
    while each is not None:  # what a child uses is its parents' too
        limits = each.options.limits
        if limits.tokens and each.tokens.total >= limits.tokens:
            return "token"
        if each.watch.reached():
            return "time"
        each = each.parent
    return ""


async def _in_time(run: Run, limit: str) -> Answer | None:
    """One step; None when the cap on the cell's seconds ended it. Of a child's time the cell's own cap takes care."""
    if run.parent is not None or run.resources.in_order or not run.options.limits.seconds:
        return await step(run, limit)
    return await run.watch.within(step(run, limit), run.resources.last_words if limit else None)


def _ended_above(run: Run) -> bool:
    return run.parent is not None and (run.parent.ending is not None or _ended_above(run.parent))


async def step(run: Run, limit: str) -> Answer:
    """One model call with its results; waits and tries again where that may help, makes room where that is needed."""
    retries = Retries(run)
    summariser = Summariser(run)
    window = (await run.resources.limits(run.model)).window
    await summariser.before_step()
    while True:
        announce_step(run, window)
        hidden = run.hidden()
        request = build_request(run, limit)
        try:
            return await Step(run, request, hidden).answer()
        except ContextOverflow as overflow:
            await summariser.after_overflow(overflow)
        except ProviderError as error:
            if limit == "time":  # there is none left to wait in
                raise
            await retries.wait(error)


def build_request(run: Run, limit: str = "") -> Request:
    """What the model is asked next."""
    agent = run.agent
    summary, view = run.turns.view(run.history.messages)
    notices = shown(run.state.notices, agent.name, run.state.segment, view)
    settings = run.resources.config.models.get(run.model)
    turns = run.turns.of_view(summary, view, notices)
    tools = () if limit else run.specs(run.offered(run.hidden()))
    if limit:
        turns = run.turns.with_note(turns, prompt_text("limit").replace("{what}", limit))
    return Request(
        model=run.model,
        system=run.state.system,
        turns=turns,
        tools=tools,
        temperature=agent.temperature
        if agent.temperature is not None
        else (settings.temperature if settings else None),
        effort=agent.effort or (settings.effort if settings else ""),
        agent=agent.name,
        session_id=run.session_id,
    )


def add_note(run: Run, prompt: str) -> None:
    """A synthetic user message: something the model must be told for the run to go on."""
    run.history.add(
        Message(
            id=run.new_id("msg"),
            session_id=run.session_id,
            role="user",
            agent=run.agent.name,
            time_created=run.resources.clock.now(),
            parts=(TextPart(id=run.new_id("prt"), text=prompt_text(prompt), synthetic=True),),
        )
    )
