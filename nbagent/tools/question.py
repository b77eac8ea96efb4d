"""``question``: ask the person."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from nbagent.errors import ArgumentError
from nbagent.frontend import Form, Question
from nbagent.permission.ask import Need
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult

MAX_QUESTIONS = 5
MAX_OPTIONS = 8
MAX_HEADER = 30


class Option(msgspec.Struct, frozen=True, kw_only=True):
    label: Annotated[str, Meta(min_length=1, max_length=100)]
    description: Annotated[str, Meta(max_length=500)] = ""


class OneQuestion(msgspec.Struct, frozen=True, kw_only=True):
    header: Annotated[str, Meta(min_length=1, max_length=MAX_HEADER, description="very short label")]
    question: Annotated[str, Meta(min_length=1, max_length=2000)]
    options: tuple[Option, ...] = ()
    multiple: Annotated[bool, Meta(description="several options may be chosen")] = False
    custom: Annotated[bool, Meta(description="a typed answer is welcome too")] = True


class QuestionArguments(Arguments, frozen=True, kw_only=True):
    questions: tuple[OneQuestion, ...]


class AskQuestion(Tool[QuestionArguments]):
    name = "question"
    permission = "question"
    effect = "asks"
    hint = "ask the person one or more questions in one form"
    arguments = QuestionArguments

    def declare(self, arguments: QuestionArguments, context: ToolContext) -> Declaration:
        _refuse_wrong(arguments.questions)
        title = f"ask: {', '.join(item.header for item in arguments.questions)}"
        return Declaration(title, (Need(self.permission, ("*",)),))

    async def act(self, arguments: QuestionArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        form = Form(
            id=context.clock.new_id("form"),
            session_id=context.session_id,
            questions=tuple(_field(item) for item in arguments.questions),
        )
        answers = await context.host.question(form)
        headers = [item.header for item in arguments.questions]
        if answers is None:
            told = "The person closed the form without an answer. Go on with what you know, or ask something else."
            return ToolResult(declaration.title, told, {"answers": None, "headers": headers})
        padded = [*answers, *((),) * (len(arguments.questions) - len(answers))]
        pairs = zip(arguments.questions, padded, strict=False)
        output = "\n".join(f"{item.question}\n→ {', '.join(given) or '(no answer)'}" for item, given in pairs)
        return ToolResult(declaration.title, output, {"answers": [list(given) for given in padded], "headers": headers})


def _field(item: OneQuestion) -> Question:
    options = tuple((option.label, option.description) for option in item.options)
    return Question(item.header, item.question, options, item.multiple, item.custom or not options)


def _refuse_wrong(questions: tuple[OneQuestion, ...]) -> None:
    if not questions:
        raise ArgumentError("questions is empty. Send at least one question.")
    if len(questions) > MAX_QUESTIONS:
        raise ArgumentError(f"{len(questions)} questions are too many for one form; send at most {MAX_QUESTIONS}.")
    headers = [item.header.strip() for item in questions]
    if len(set(headers)) < len(headers):
        raise ArgumentError(
            "Two questions have the same header. Give each its own, so that the answers can be told apart."
        )
    for item in questions:
        labels = [option.label.strip() for option in item.options]
        if len(labels) > MAX_OPTIONS:
            raise ArgumentError(f"{item.header!r} has {len(labels)} options; send at most {MAX_OPTIONS}.")
        if len(set(labels)) < len(labels):
            raise ArgumentError(f"{item.header!r} has two options with the same label. Give each its own.")
