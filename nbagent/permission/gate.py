"""Where one call is decided: denied, allowed, or put to a person whose answer is remembered as far as they said."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from nbagent.clock import Clock
from nbagent.errors import Denied, Rejected, Stopped
from nbagent.event import AskEvent, Event, NoticeEvent
from nbagent.permission.ask import Ask, Call, Need, Preview, Reply
from nbagent.permission.explanation import Explanation, explain
from nbagent.permission.known import never_widens
from nbagent.permission.ruleset import PATHS, Action, Rule, Ruleset, evaluate, matches
from nbagent.permission.wildcard import match

STREAK = 3
"""So many rejects or failures in a row switch automatic approval off."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An "always" reply that is remembered. ``id`` is what ``revoke`` takes."""

    id: int
    permission: str
    pattern: str
    created: float = 0.0

    @property
    def rule(self) -> Rule:
        return Rule(self.permission, self.pattern, "allow", "session")


class Approvals(Protocol):
    """Where "always" replies are kept; implemented on the store, already scoped to a session (and agent)."""

    def list(self) -> Sequence[Approval]: ...

    def add(self, permission: str, pattern: str, save: bool = False) -> None:
        """Remember one; ``save``: the person wants it in the project's settings too."""
        ...

    def revoke(self, number: int) -> bool:
        """Forget one; False when there is none with that id."""
        ...


class InMemory:
    """Approvals that last as long as this object."""

    def __init__(self) -> None:
        self._kept: dict[int, Approval] = {}
        self._next = 1

    def list(self) -> Sequence[Approval]:
        return tuple(self._kept.values())

    def add(self, permission: str, pattern: str, save: bool = False) -> None:
        self._kept[self._next] = Approval(self._next, permission, pattern)
        self._next += 1

    def revoke(self, number: int) -> bool:
        return self._kept.pop(number, None) is not None


@dataclass(frozen=True, slots=True)
class Finding:
    """What the rules say of one resource of a call."""

    permission: str
    pattern: str
    action: Action
    rule: Rule
    always: str = ""
    suggest: str = ""
    unresolved: bool = False

    @property
    def pair(self) -> tuple[str, str]:
        return self.permission, self.pattern


@dataclass(slots=True)
class _Open:
    ask: Ask
    step: str
    answer: asyncio.Future[Reply]


@dataclass(frozen=True, slots=True)
class _Refusal:
    tool: str
    preview: Preview | None
    feedback: str


class Gate:
    """Decides the calls of one session. Use it from one event loop.

    ``rules``: the layered rules in force, floor last, without "always" replies (a ruleset, or a function that gives the present
    one). ``ask``: shows an ask and waits for the reply; it is cancelled when the ask is settled otherwise. ``attended`` False:
    nobody can answer, and what would ask is denied. ``auto``: answer ``once`` for edits inside the project and commands confined
    to it. ``advice``: what a denial by the floor adds, for the model.
    """

    def __init__(
        self,
        rules: Ruleset | Callable[[], Ruleset],
        ask: Callable[[Ask], Awaitable[Reply]],
        clock: Clock,
        session_id: str,
        *,
        approvals: Approvals | None = None,
        emit: Callable[[Event], None] = lambda event: None,
        attended: bool = True,
        auto: bool = False,
        advice: str = "",
        settings: str = "nbagent.toml",
    ) -> None:
        self._rules = rules
        self._ask_person = ask
        self._clock = clock
        self._session_id = session_id
        self.approvals: Approvals = InMemory() if approvals is None else approvals
        self._emit = emit
        self.attended = attended
        self._auto = auto
        self.advice = advice
        self._settings = settings
        self._open: dict[str, _Open] = {}
        self._refused: dict[str, _Refusal] = {}
        self._rejected_steps: dict[str, Rejected] = {}
        self._denied: Counter[tuple[str, str, str]] = Counter()
        self._streak = 0
        self._stopped = False

    @property
    def rules(self) -> Ruleset:
        """The rules in force now, without "always" replies."""
        return self._rules() if callable(self._rules) else self._rules

    @property
    def auto(self) -> bool:
        """Whether automatic approval is on; once its breaker has tripped it stays off."""
        return self._auto

    @property
    def denials(self) -> int:
        """How often the most frequent of this cell's identical denials happened."""
        return max(self._denied.values(), default=0)

    def pending(self) -> tuple[Ask, ...]:
        """Asks that wait for an answer, oldest first."""
        return tuple(each.ask for each in self._open.values())

    def new_cell(self) -> None:
        """A new prompt: what was refused or stopped before no longer counts."""
        self._withdraw(self._open.values(), Stopped("A new cell has begun."))
        self._refused.clear()
        self._rejected_steps.clear()
        self._denied.clear()
        self._stopped = False

    def stop(self) -> None:
        """Withdraw every open ask; nothing is decided until the next ``new_cell``. A late answer does nothing."""
        self._stopped = True
        self._withdraw(self._open.values(), Stopped("Stopped while waiting for an answer."))

    def findings(self, call: Call) -> tuple[Finding, ...]:
        """What the rules and the remembered replies say of each resource of a call."""
        rules = self.rules
        return tuple(found for need in call.needs for found in self._about(need, rules))

    def _about(self, need: Need, rules: Ruleset) -> Iterable[Finding]:
        said = set()
        for at, pattern in enumerate(need.patterns):
            found = self._finding(rules, need, pattern, _nth(need.always, at))
            said.add(found.rule)
            yield found
        for pattern in need.aliases:
            rule = evaluate(need.permission, pattern, rules)
            if rule.action == "deny":
                yield Finding(need.permission, pattern, "deny", rule)
        for pattern in need.below:
            rule = evaluate(need.permission, pattern, rules)
            if rule.action != "allow" and rule not in said:
                said.add(rule)
                yield self._finding(rules, Need(need.permission, (pattern,)), pattern, "")

    def _finding(self, rules: Ruleset, need: Need, pattern: str, always: str) -> Finding:
        rule = evaluate(need.permission, pattern, rules)
        action = rule.action
        fixed = need.unresolved or need.least == "ask"
        guard = _guard(rules, need.permission) if need.unresolved and action == "allow" else None
        if guard is not None:
            rule, action = guard, "ask"
        elif need.least == "ask" and action == "allow":
            action = "ask"
        elif action == "ask" and not (fixed or need.once or rule.layer == "floor"):
            remembered = self._remembered(need.permission, pattern)
            if remembered is not None:
                rule, action = remembered, "allow"
        return Finding(need.permission, pattern, action, rule, "" if fixed else always, need.suggest, fixed)

    def _remembered(self, permission: str, pattern: str) -> Rule | None:
        kept = (each.rule for each in self.approvals.list())
        return next((rule for rule in kept if matches(rule, permission, pattern)), None)

    def explain(self, permission: str, pattern: str) -> Explanation:
        """Why a resource is decided as it is; remembered replies stand after the rules that they answer."""
        told = explain(permission, pattern, self.rules)
        kept = [each.rule for each in self.approvals.list()]
        answers = told.action == "ask" and (told.rule is None or told.rule.layer != "floor")
        rows = told.rows + tuple((rule, answers and matches(rule, permission, pattern)) for rule in kept)
        won = next((rule for rule, hit in reversed(rows) if hit), None)
        return Explanation(permission, pattern, won.action if won else "ask", won, rows)

    async def decide(self, call: Call, step: str = "") -> Reply:
        """Let the call happen (the reply says who let it) or raise.

        ``step``: calls of one step share it; after a reject nothing more of that step is run. Raises ``Denied`` (a rule, a
        refusal in this cell, or nobody to ask), ``Rejected`` (a person) or ``Stopped``.
        """
        self._refuse_late(step)
        self._refuse_again(call)
        found = self.findings(call)
        for each in found:
            if each.action == "deny":
                raise self._deny(call, each, f"Denied by the rule “{each.rule}”: {each.permission} {each.pattern}.")
        asking = [each for each in found if each.action == "ask"]
        if any(each.permission == "doom_loop" for each in found):
            self._trip("the same calls were repeated")
        if not asking:
            return Reply("once", by="rule")
        if self._auto and _may_be_automatic(call, asking):
            reply = Reply("once", by="auto")
            ask = self._make_ask(call, asking)
            self._report(ask)
            self._report(ask, reply.answer, by="auto")
            return reply
        if not self.attended:
            raise self._deny(call, asking[0], self._nobody(asking))
        return await self._put(call, asking, step)

    async def confirm(self, call: Call, step: str = "") -> Reply:
        """Put a call to the person although the rules allow it. Raises as ``decide`` does."""
        self._refuse_late(step)
        return await self._put(call, self.findings(call), step)

    def answer(self, ask_id: str, reply: Reply) -> bool:
        """Answer an open ask from elsewhere; False (and no effect) when it is not open any more."""
        waiting = self._open.get(ask_id)
        if waiting is None or waiting.answer.done():
            return False
        waiting.answer.set_result(reply)
        return True

    def note(self, worked: bool) -> None:
        """How a call ended, for the breaker of automatic approval."""
        self._streak = 0 if worked else self._streak + 1
        if self._streak >= STREAK:
            self._trip(f"{STREAK} calls in a row were refused or failed")

    def switch_off(self) -> None:
        """End automatic approval without a word: whoever calls says why."""
        self._auto = False

    async def _put(self, call: Call, asking: Sequence[Finding], step: str) -> Reply:
        ask = self._make_ask(call, asking)
        waiting = _Open(ask, step, asyncio.get_running_loop().create_future())
        self._open[ask.id] = waiting
        self._report(ask)
        shown = asyncio.ensure_future(self._ask_person(ask))
        shown.add_done_callback(lambda done: _hand_over(done, waiting.answer))
        try:
            reply = await waiting.answer
            self._refuse_late(step)
        except BaseException:
            self._report(ask, "expired")
            raise
        finally:
            self._open.pop(ask.id, None)
            shown.cancel()
        return self._settle(ask, reply, step)

    def _settle(self, ask: Ask, reply: Reply, step: str) -> Reply:
        if reply.answer not in ("once", "always", "reject"):
            reply = replace(reply, answer="reject")  # whatever else it says, it allows nothing
        if reply.answer == "reject" and reply.by == "nobody":
            self._report(ask, "reject", reply.feedback, "nobody")
            found = [each for each in self.findings(ask.call) if each.action == "ask"]
            raise self._deny(ask.call, found[0], self._nobody(found))
        self._report(ask, reply.answer, reply.feedback, reply.by)
        if reply.answer == "reject":
            raise self._reject(ask, reply, step)
        self.note(True)
        if reply.answer == "once":
            return reply
        for permission, pattern in self._to_remember(ask, reply):
            self.approvals.add(permission, pattern, reply.save)
        return replace(reply, lines=(*reply.lines, *self._settle_siblings(ask)))

    def _to_remember(self, ask: Ask, reply: Reply) -> list[tuple[str, str]]:
        """The pairs to keep: what was shown, or what the person made of it within what may be widened."""
        if reply.remember is None:
            return list(dict.fromkeys(ask.remember))
        asked = {permission for permission, _ in ask.pending}
        kept = [pair for pair in reply.remember if pair[0] in asked and pair[1]]
        narrow = [pair for pair in kept if not _widens_too_far(*pair)]
        if len(narrow) < len(kept):
            narrow += [pair for pair in ask.remember if pair[0] == "bash"]
            self._emit(
                NoticeEvent(
                    session=self._session_id,
                    text="This command is never remembered with a wildcard; only what was shown is remembered.",
                    level="warning",
                )
            )
        return list(dict.fromkeys(narrow))

    def _settle_siblings(self, ask: Ask) -> Iterable[str]:
        told = []
        for other in list(self._open.values()):
            if other.ask.id == ask.id or other.answer.done():
                continue
            if all(each.action == "allow" for each in self.findings(other.ask.call)):
                other.answer.set_result(Reply("once", by="always"))
                told.append(f"also allowed: {other.ask.call.title}")
        return told

    def _reject(self, ask: Ask, reply: Reply, step: str) -> Rejected:
        feedback = reply.feedback.strip()
        reads = {"read:" + pattern for permission, pattern in ask.pending if permission != "bash"}
        for key in ask.call.effects:
            if key.startswith("read:") and key not in reads:
                continue  # what was rejected was not the reading of it
            self._refused[key] = _Refusal(ask.call.tool, ask.call.preview, feedback)
        self.note(False)
        said = f"The person said: {feedback}" if feedback else "They gave no reason; stop and wait for them."
        if step:
            self._rejected_steps[step] = Rejected(
                "Not run: an earlier call of the same step was rejected by the person.", feedback
            )
            same = [each for each in self._open.values() if each.step == step and each.ask.id != ask.id]
            self._withdraw(same, self._rejected_steps[step])
        return Rejected(f"The person rejected this call. {said}", feedback)

    def _refuse_late(self, step: str) -> None:
        if self._stopped:
            raise Stopped("Stopped.")
        rejected = self._rejected_steps.get(step) if step else None
        if rejected is not None:
            raise Rejected(str(rejected), rejected.feedback)

    def _refuse_again(self, call: Call) -> None:
        """The same effect stays refused; a new proposal by the same tool, made on the person's feedback, is a new question."""
        for key in call.effects:
            refusal = self._refused.get(key)
            if refusal is None:
                continue
            if refusal.feedback and refusal.tool == call.tool and refusal.preview != call.preview:
                continue
            self.note(False)
            self._denied["", call.tool, key] += 1
            raise Denied(
                f"The person refused this in this cell ({key}); it stays refused, through any tool. "
                "Go on without it, or say what you would need.",
                permission=call.needs[0].permission if call.needs else call.tool,
                pattern=key,
            )

    def _deny(self, call: Call, finding: Finding, message: str) -> Denied:
        self._denied[call.tool, finding.permission, finding.pattern] += 1
        self.note(False)
        text = f"{message} {self._allowed(finding.permission)}".strip()
        if self.advice and finding.action == "deny" and finding.rule.layer == "floor":
            text = f"{text} {self.advice}"
        rule = finding.rule if finding.rule.layer or finding.rule in self.rules else None
        return Denied(text, rule, finding.permission, finding.pattern)

    def _allowed(self, permission: str) -> str:
        """What the rules allow of the same permission, so that a denial says what can be done next; nothing that a later denial
        takes a part out of."""
        last: list[str] = []
        denied = False
        for rule in reversed(self.rules):
            if not match(permission, rule.permission):
                continue
            if rule.pattern == "*":
                break
            denied = denied or rule.action == "deny"
            if rule.action != "allow" or rule.pattern in last:
                continue
            if not (denied and set("*?") & set(rule.pattern)):
                last.append(rule.pattern)
        return f"Allowed for {permission}: {', '.join(reversed(last[:5]))}." if last else ""

    def _nobody(self, asking: Sequence[Finding]) -> str:
        lines = "\n".join(
            f'[permission.{each.permission}]\n{json.dumps(each.always or each.pattern)} = "allow"'
            for each in asking
            if not each.unresolved
        )
        rule = asking[0].rule
        how = f" To allow it beforehand, write in {self._settings}:\n\n{lines}" if lines else ""
        told = f"{asking[0].permission} {asking[0].pattern}"
        return f"{told} needs a person's answer (rule “{rule}”), and nobody is there to give it.{how}"

    def _trip(self, reason: str) -> None:
        if self._auto:
            self._auto = False
            text = f"Automatic approval is off for the rest of this session: {reason}."
            self._emit(NoticeEvent(session=self._session_id, text=text, level="warning"))

    def _make_ask(self, call: Call, asking: Sequence[Finding]) -> Ask:
        remember = dict.fromkeys((each.permission, each.always) for each in asking if each.always)
        suggest = dict.fromkeys((each.permission, each.suggest) for each in asking if each.suggest)
        return Ask(
            id=self._clock.new_id("ask"),
            session_id=self._session_id,
            call=call,
            rule=asking[0].rule,
            pending=tuple(dict.fromkeys(each.pair for each in asking)),
            remember=tuple(remember),
            suggest=tuple(suggest),
            opened=self._clock.now(),
        )

    def _withdraw(self, waiting: Iterable[_Open], error: Exception) -> None:
        for each in list(waiting):
            if not each.answer.done():
                each.answer.set_exception(error)

    def _report(self, ask: Ask, reply: str = "", feedback: str = "", by: str = "") -> None:
        self._emit(
            AskEvent(
                session=self._session_id,
                id=ask.id,
                permission=ask.pending[0][0],
                patterns=tuple(pattern for _, pattern in ask.pending),
                call_id=ask.call.id,
                title=ask.call.title,
                rule=ask.rule.to_json(),
                reply=reply,
                feedback=feedback,
                by=by,
            )
        )


def _nth(values: Sequence[str], at: int) -> str:
    return values[at] if at < len(values) else ""


def _guard(rules: Ruleset, permission: str) -> Rule | None:
    """The last rule that denies some path: what only reads is not held up by rules about writing."""
    about = PATHS - {"edit"} if permission == "read" else PATHS
    denies = (rule for rule in reversed(rules) if rule.action == "deny")
    return next((rule for rule in denies if any(match(name, rule.permission) for name in about)), None)


def _may_be_automatic(call: Call, asking: Sequence[Finding]) -> bool:
    """Edits inside the project and shell commands confined to it; never code, secrets, other folders or unknown targets."""
    return call.effect in ("writes", "command") and all(
        each.permission in ("edit", "bash") and not each.unresolved for each in asking
    )


def _widens_too_far(permission: str, pattern: str) -> bool:
    if permission != "bash" or pattern.startswith("=") or not set("*?") & set(pattern):
        return False
    words = pattern.split()
    return bool(set("*?") & set(words[0])) or never_widens(words)


def _hand_over(done: asyncio.Future[Reply], answer: asyncio.Future[Reply]) -> None:
    if done.cancelled():
        if not answer.done():
            answer.cancel()
        return
    error = done.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
