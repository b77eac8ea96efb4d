"""Folds the events of a run into the record (``docs/reference/record.md``). Pure: no I/O, no Jupyter, one thread.

``add`` takes events in order; ``patch`` gives what changed since the last call, merged; ``record`` is the whole value.
Asks, forms and reviews are opened by the frontend (it has the whole of them) and settled by it or by an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nbagent import event as ev
from nbagent.event import Event
from nbagent.frontend import Form, Review, Verdict
from nbagent.notebook.item import (
    CUT,
    WHOLE,
    Item,
    bounded,
    cut_text,
    file_item,
    new_tool,
    pictures,
    question_item,
    reply_fields,
    review_item,
    rule_of,
)
from nbagent.notebook.ledger import Ledger
from nbagent.notebook.receipt import receipt_line
from nbagent.permission.ask import Ask, Reply

_TERMINAL = ("completed", "error")


class Transcript(Ledger):
    """One run as one value. ``now`` gives seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._root_session = ""
        self._calls: dict[tuple[str, str], str] = {}
        self._tasks: dict[str, str] = {}
        self._writing: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        self._retrying: set[str] = set()
        self._pending: ev.ReceiptEvent | None = None
        self._awaiting: ev.PlanEvent | None = None

    # events

    def add(self, event: Event) -> None:
        """Take one event of the run or of a child of it."""
        handler = _HANDLERS.get(type(event))
        if not self._root_session and event.session and not event.parent:
            self._root_session = event.session
        if not isinstance(event, ev.RetryEvent) and not isinstance(event, ev.NoticeEvent):
            self._close_retries(event)
        if handler is not None:
            handler(self, event)
        self._update_waiting()

    def _on_session(self, event: ev.SessionEvent) -> None:
        if event.parent:
            self._agent_item(event, previous="")
            return
        previous = self._head["agent"]
        self._head.update(
            agent=event.agent,
            badge=event.badge or event.agent.upper(),
            writes=event.writes,
            model=event.model,
            root=event.root,
            plan=event.plan or self._head["plan"],
            title=event.title or self._head["title"],
        )
        if previous and previous != event.agent:
            self._agent_item(event, previous=previous)

    def _agent_item(self, event: ev.SessionEvent, previous: str) -> None:
        self._put(
            event,
            self._name("agent"),
            kind="agent",
            agent=event.agent,
            previous=previous,
            badge=event.badge or event.agent.upper(),
            writes=event.writes,
        )

    def _on_step(self, event: ev.StepEvent) -> None:
        self._drop_writing(event)
        if event.parent:
            return
        self._head.update(step=event.step, seconds=self._elapsed())
        if event.tokens:
            self._head["tokens"] = event.tokens
        if event.context:
            self._head["context"] = event.context
        if event.window:
            self._head["window"] = event.window
        if event.phase:
            self._head["phase"] = event.phase

    def _on_text_delta(self, event: ev.TextDelta) -> None:
        self._grow(
            event, self._scoped(event, event.id), "text", event.text, {"kind": "text", "text": "", "partial": False}
        )

    def _on_text(self, event: ev.TextEvent) -> None:
        key = self._scoped(event, event.id)
        self._put(event, key, kind="text", text=event.text, partial=event.partial)

    def _on_reasoning_delta(self, event: ev.ReasoningDelta) -> None:
        self._grow(event, self._scoped(event, event.id), "text", event.text, {"kind": "reasoning", "text": ""})

    def _on_reasoning(self, event: ev.ReasoningEvent) -> None:
        self._put(event, self._scoped(event, event.id), kind="reasoning", text=event.text)

    def _on_tool_input(self, event: ev.ToolInputDelta) -> None:
        key = self._call_key(event, event.call_id, fresh=True)
        item = self._items.get(key) or new_tool(event.name)
        if key not in self._items:
            self._writing.setdefault(event.session, []).append(key)
        self._put(event, key, **{**item, "name": event.name or item["name"], "size": event.size})

    def _written(self, event: ev.ToolEvent) -> str:
        """The item in which this call was seen being written: the oldest of its name, as calls come in their order."""
        for key in self._writing.get(event.session, []):
            if self._items[key]["name"] == event.name:
                self._writing[event.session].remove(key)
                return key
        return ""

    def _drop_writing(self, event: ev.EventBase) -> None:
        """Calls that were begun and never came: the answer was cut."""
        for key in self._writing.pop(event.session, []):
            self._items[key].update(state="error", error="interrupted: the answer was cut before the call was complete")
            self._touch(key)

    def _on_tool_output(self, event: ev.ToolOutputDelta) -> None:
        key = self._call_key(event, event.call_id, fresh=False)
        if key not in self._items or self._items[key]["state"] in _TERMINAL:
            return
        stream = self._streams.setdefault(key, [])
        stream.append(event.text)
        if len(stream) > 512:
            joined = "".join(stream)[-WHOLE:]
            stream[:] = [joined]
        self._grow(event, key, "output", event.text, {})
        output = self._items[key]["output"]
        if len(output) > CUT:
            self._items[key].update(output="…" + output[-CUT // 2 :], cut=True)
            self._touch(key)

    def _on_tool(self, event: ev.ToolEvent) -> None:
        key = self._call_key(event, event.call_id, fresh=event.state == "pending")
        before = self._items.get(key) or new_tool(event.name)
        terminal = event.state in _TERMINAL
        whole = {
            "input": event.input or before["input"],
            "output": event.output if terminal else before["output"],
            "error": event.error,
            "metadata": event.metadata or before["metadata"],
        }
        fields = {name: bounded(value) for name, value in whole.items()} if terminal or event.input else whole
        was_cut = fields != whole or (not terminal and before.get("cut", False))
        if terminal:
            self._streams.pop(key, None)
        if fields != whole:
            self._keep(key, whole)
        item = {**before, **fields}
        item.pop("cut", None)
        item.update(
            name=event.name or before["name"],
            title=event.title or before["title"],
            state=event.state,
            rule=event.rule,
            seconds=event.seconds,
            effect=event.effect or before["effect"],
            refused=event.rule is not None and event.state == "error",
            images=pictures(event.attachments) or before["images"],
        )
        if was_cut:
            item["cut"] = True
        self._put(event, key, **item)

    def _on_ask(self, event: ev.AskEvent) -> None:
        item = self._items.get(event.id)
        if item is None:
            item = {
                "kind": "ask",
                "call": self._calls.get((event.session, event.call_id), ""),
                "title": event.title,
                "permission": event.permission,
                "patterns": list(event.patterns),
                "rule": event.rule,
                "preview": None,
                "remember": [],
                "suggest": [],
                "notes": [],
                "reply": "",
                "feedback": "",
                "by": "",
            }
        if event.reply and not item["reply"]:
            item = {**item, "reply": event.reply, "feedback": event.feedback, "by": event.by}
        self._put(event, event.id, **item)

    def _on_question(self, event: ev.QuestionEvent) -> None:
        item = self._items.get(event.id) or {
            "kind": "question",
            "questions": [question_item(question) for question in event.questions],
            "answers": None,
            "title": "",
            "status": "open",
        }
        if event.answers is not None and item["status"] == "open":
            item = {**item, "answers": [list(answer) for answer in event.answers], "status": "answered"}
        self._put(event, event.id, **item)

    def _on_plan(self, event: ev.PlanEvent) -> None:
        if event.path and not event.parent:
            self._head["plan"] = event.path
        if event.status == "awaiting":
            self._awaiting = (
                event  # an item only when no review of it is opened here (nobody is there, a played answer)
            )
        elif event.status in ("approved", "rejected", "revised", "expired"):
            self._show_awaiting()
            key = self._last_review(event.path)
            if key:
                item = {**self._items[key], "status": event.status, "edited": event.edited}
                item.update(comment=event.feedback or item["comment"], by=event.by or item["by"])
                if event.status == "approved" and event.text:
                    item["text"] = event.text
                self._put(event, key, **item)

    def _last_review(self, path: str) -> str:
        found = (k for k, i in reversed(self._items.items()) if i["kind"] == "review" and i["path"] == path)
        return next(found, "")

    def _show_awaiting(self) -> None:
        event, self._awaiting = self._awaiting, None
        if event is not None:
            item = review_item(event.path, event.text, event.hash, event.warnings)
            self._put(event, self._name("plan"), **item)

    def _on_phase(self, event: ev.PhaseEvent) -> None:
        if not event.parent:
            self._head["phase"] = event.phase

    def _on_todo(self, event: ev.TodoEvent) -> None:
        self._put(event, self._scoped(event, "todo"), kind="todo", todos=[dict(todo) for todo in event.todos])

    def _on_retry(self, event: ev.RetryEvent) -> None:
        self._drop_writing(event)
        self._close_retries(event)
        fields = {"attempt": event.attempt, "error": event.error, "wait": event.wait, "until": event.until}
        key = self._name("retry")
        self._put(event, key, kind="retry", done=False, **fields)
        self._retrying.add(key)

    def _on_compaction(self, event: ev.CompactionEvent) -> None:
        parent = self._parent(event)
        key = next(
            (
                k
                for k, i in reversed(self._items.items())
                if i["kind"] == "compaction" and i["status"] == "running" and i["parent"] == parent
            ),
            "",
        )
        fields = {"status": event.status, "summary": event.summary, "before": event.before, "after": event.after}
        self._put(event, key or self._name("compaction"), kind="compaction", error=event.error, **fields)

    def _on_notice(self, event: ev.NoticeEvent) -> None:
        self._put(event, self._name("notice"), kind="notice", text=event.text, level=event.level)

    def _on_title(self, event: ev.TitleEvent) -> None:
        if not event.parent:
            self._head["title"] = event.title

    def _on_error(self, event: ev.ErrorEvent) -> None:
        self._put(event, self._name("error"), kind="error", message=event.message)

    def _on_receipt(self, event: ev.ReceiptEvent) -> None:
        if event.parent:
            return
        self._pending = event
        self._settle_receipt(reason="", tokens={}, seconds=self._elapsed(), cost=None)

    def _on_finish(self, event: ev.FinishEvent) -> None:
        if event.parent:
            self._close_open(self._parent(event))
            return
        self._close_open(None)
        self._head.update(tokens=event.tokens.total or self._head["tokens"], seconds=event.seconds or self._elapsed())
        self._head["plan"] = event.plan or self._head["plan"]
        if event.steps:
            self._head["step"] = event.steps
        tokens = msgspec.to_builtins(event.tokens)
        self._settle_receipt(event.reason, tokens, self._head["seconds"], event.cost, event.unanswered)
        self._done = True

    # asks, forms and reviews, as the frontend has them

    def open_ask(self, ask: Ask) -> None:
        """Show an ask that waits for a person."""
        call, preview = ask.call, ask.call.preview
        shown = None
        if preview is not None:
            shown = {"kind": preview.kind, "text": cut_text(preview.text), "language": preview.language}
            if len(preview.text) > CUT:
                self._keep(ask.id, {"preview": {**shown, "text": preview.text}})
        key = self._calls.get((ask.session_id, call.id), "")
        self._put_item(
            ask.id,
            str(self._items[key]["parent"]) if key in self._items else "",
            kind="ask",
            call=key,
            title=call.title or call.tool,
            permission=ask.pending[0][0] if ask.pending else (call.needs[0].permission if call.needs else call.tool),
            patterns=[pattern for _, pattern in ask.pending],
            rule=rule_of(ask),
            preview=shown,
            remember=[list(pair) for pair in ask.remember],
            suggest=[list(pair) for pair in ask.suggest],
            notes=list(call.notes),
            reply="",
            feedback="",
            by="",
            **({"cut": True} if preview is not None and len(preview.text) > CUT else {}),
        )
        self._update_waiting()

    def settle_ask(self, ask_id: str, reply: Reply | None) -> None:
        """The ask was answered; None: it expired."""
        fields = {"reply": "expired"} if reply is None else reply_fields(reply)
        self._settle(ask_id, fields)

    def open_form(self, form: Form) -> None:
        """Show a form that waits for a person."""
        questions = [
            {
                "header": question.header,
                "question": question.question,
                "options": [{"label": label, "description": text} for label, text in question.options],
                "multiple": question.multiple,
                "custom": question.custom,
            }
            for question in form.questions
        ]
        title = form.title or "The agent has a question"
        self._put_item(form.id, "", kind="question", questions=questions, answers=None, title=title, status="open")
        self._update_waiting()

    def settle_form(self, form_id: str, answers: tuple[tuple[str, ...], ...] | None, expired: bool = False) -> None:
        """The form was answered; None: declined, or (``expired``) nobody answered."""
        status = "expired" if expired else "declined" if answers is None else "answered"
        given = None if answers is None else [list(answer) for answer in answers]
        self._settle(form_id, {"answers": given, "status": status})

    def open_review(self, review: Review, diff: str = "") -> None:
        """Show a plan that waits for a person."""
        item = review_item(review.path, review.text, review.hash, review.warnings)
        item.update(diff=cut_text(diff), stale=review.stale)
        self._awaiting = None
        self._head["plan"] = review.path or self._head["plan"]
        self._put_item(review.id, "", **item)
        self._update_waiting()

    def settle_review(self, review_id: str, verdict: Verdict | None) -> None:
        """The review was decided; None: it expired."""
        if verdict is None:
            self._settle(review_id, {"status": "expired"})
            return
        item = self._items.get(review_id)
        status = {"build": "approved", "later": "approved", "revise": "revised", "reject": "rejected"}[verdict.action]
        fields: dict[str, Any] = {
            "status": status,
            "action": verdict.action,
            "comment": verdict.comment,
            "by": verdict.by,
        }
        if item is not None and verdict.text and status == "approved":
            fields.update(edited=verdict.text != item["text"], text=verdict.text)
        self._settle(review_id, fields)

    def notice(self, text: str, level: str = "info") -> None:
        """A line of the view's own."""
        self._put_item(self._name("notice"), "", kind="notice", text=text, level=level)

    def close(self, reason: str, error: str = "") -> None:
        """The run ended without saying so (it failed before its last event): close what is open."""
        if self._done:
            return
        if error and not any(i["kind"] == "error" and i["message"] == error for i in self._items.values()):
            self._put_item(self._name("error"), "", kind="error", message=error)
        self._close_open(None)
        self._head["seconds"] = self._elapsed()
        self._settle_receipt(reason, {}, self._head["seconds"], None)
        self._done = True
        self._update_waiting()

    # pieces

    def _scoped(self, event: ev.EventBase, name: str) -> str:
        child = event.parent and event.session and event.session != self._root_session
        return f"{event.session}/{name}" if child else name

    def _parent(self, event: ev.EventBase) -> str:
        """The item of the ``task`` call that a child's event belongs under; a session keeps the first answer."""
        if not event.parent:
            return ""
        return self._parents.setdefault(event.session, self._tasks.get(event.parent, event.parent))

    def _call_key(self, event: ev.EventBase, call_id: str, *, fresh: bool) -> str:
        """The item of a call. Some servers number calls anew in each answer: ``fresh`` parts them."""
        known = self._calls.get((event.session, call_id))
        if known is not None and not (fresh and known in self._items and self._items[known]["state"] in _TERMINAL):
            return known
        key = self._written(event) if isinstance(event, ev.ToolEvent) else ""
        key = key or self._scoped(event, call_id)
        while key in self._items and self._items[key]["state"] != "writing":
            self._made += 1
            key = f"{self._scoped(event, call_id)}#{self._made}"
        self._parent(event)
        self._calls[event.session, call_id] = key
        self._tasks[call_id] = key
        return key

    def _put(self, event: ev.EventBase, key: str, /, **fields: Any) -> None:
        parent = self._items[key]["parent"] if key in self._items else self._parent(event)
        self._put_item(key, parent, **fields)

    def _grow(self, event: ev.EventBase, key: str, name: str, text: str, fresh: Item) -> None:
        if text and key not in self._items:
            self._put(event, key, **fresh)
        if text:
            self._append_text(key, name, text)

    def _close_retries(self, event: ev.EventBase) -> None:
        if not self._retrying:
            return
        parent = self._parent(event)
        for key in sorted(self._retrying):
            if self._items[key]["parent"] == parent:
                self._items[key]["done"] = True
                self._retrying.discard(key)
                self._touch(key)

    def _close_open(self, parent: str | None) -> None:
        """Close what is still open: everything (None), or what is nested under the tool item ``parent``."""
        if parent is None:
            self._show_awaiting()
        for key, item in self._items.items():
            if parent is not None and item["parent"] != parent:
                continue
            kind = item["kind"]
            if kind == "tool" and item["state"] not in _TERMINAL:
                item.update(state="error", error=item["error"] or "interrupted")
            elif kind == "retry" and not item["done"]:
                item["done"] = True
            elif kind == "compaction" and item["status"] == "running":
                item.update(status="failed", error=item["error"] or "interrupted")
            elif kind == "ask" and not item["reply"]:
                item["reply"] = "expired"
            elif (kind == "question" and item["status"] == "open") or (
                kind == "review" and item["status"] == "awaiting" and self._opened(item)
            ):
                item["status"] = "expired"
            else:
                continue
            self._touch(key)

    def _settle_receipt(
        self, reason: str, tokens: dict[str, int], seconds: float, cost: float | None, unanswered: int = 0
    ) -> None:
        event = self._pending
        files = [file_item(change) for change in event.files] if event is not None else []
        receipt: dict[str, Any] = {
            "files": files,
            "notes": list(event.notes) if event is not None else [],
            "plan": (event.plan if event is not None else "") or self._head["plan"],
            "tokens": tokens,
            "seconds": seconds,
            "cost": cost,
            "reason": reason,
            "confined": event.confined if event is not None else False,
            "counted": event is not None,
        }
        if unanswered:
            receipt["unanswered"] = unanswered
        receipt["line"] = receipt_line(receipt)
        self._receipt = receipt
        self._receipt_dirty = True


_HANDLERS: dict[type, Callable[[Transcript, Any], None]] = {
    ev.SessionEvent: Transcript._on_session,
    ev.StepEvent: Transcript._on_step,
    ev.TextDelta: Transcript._on_text_delta,
    ev.TextEvent: Transcript._on_text,
    ev.ReasoningDelta: Transcript._on_reasoning_delta,
    ev.ReasoningEvent: Transcript._on_reasoning,
    ev.ToolInputDelta: Transcript._on_tool_input,
    ev.ToolOutputDelta: Transcript._on_tool_output,
    ev.ToolEvent: Transcript._on_tool,
    ev.AskEvent: Transcript._on_ask,
    ev.QuestionEvent: Transcript._on_question,
    ev.PlanEvent: Transcript._on_plan,
    ev.PhaseEvent: Transcript._on_phase,
    ev.TodoEvent: Transcript._on_todo,
    ev.RetryEvent: Transcript._on_retry,
    ev.CompactionEvent: Transcript._on_compaction,
    ev.NoticeEvent: Transcript._on_notice,
    ev.TitleEvent: Transcript._on_title,
    ev.ErrorEvent: Transcript._on_error,
    ev.ReceiptEvent: Transcript._on_receipt,
    ev.FinishEvent: Transcript._on_finish,
}
