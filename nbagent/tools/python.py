"""``python``: code in the user's own namespace."""

from __future__ import annotations

import hashlib
from typing import Annotated

from msgspec import Meta

from nbagent.errors import ArgumentError, ToolError
from nbagent.frontend import CodeOutcome
from nbagent.message import Attachment
from nbagent.permission.ask import Need, Preview
from nbagent.permission.wildcard import exactly
from nbagent.tools.tool import Arguments, Declaration, Tool, ToolContext, ToolResult, titled

MAX_SECONDS = 3600.0
IMAGES = 8


class PythonArguments(Arguments, frozen=True, kw_only=True):
    code: Annotated[
        str, Meta(description="Python; magics and top-level await work; the value of the last line is shown")
    ]
    description: Annotated[str, Meta(description="what it does, in a few words")] = ""
    scratch: Annotated[bool, Meta(description="run in a throw-away copy of the names: new variables do not stay")] = (
        False
    )
    timeout: Annotated[int, Meta(description="milliseconds; at most 3600000")] = 120_000


class Python(Tool[PythonArguments]):
    name = "python"
    permission = "python"
    effect = "code"
    hint = "run Python in the notebook's own variables"
    arguments = PythonArguments
    tail = True

    def declare(self, arguments: PythonArguments, context: ToolContext) -> Declaration:
        if not arguments.code.strip():
            raise ArgumentError("code is empty.")
        code = arguments.code.strip()
        need = Need("python", (code,), (exactly(code),), "*")
        notes = ("it runs in a copy of your names: new variables do not stay",) if arguments.scratch else ()
        effect = f"code:{hashlib.sha256(code.encode('utf-8', 'replace')).hexdigest()[:16]}"
        title = titled(code, arguments.description)
        return Declaration(title, (need,), Preview("code", arguments.code, "python"), (effect,), notes)

    async def act(self, arguments: PythonArguments, declaration: Declaration, context: ToolContext) -> ToolResult:
        space = context.frontend.namespace
        if space is None:
            raise ToolError("There is no kernel here to run Python in. Use bash with a script instead.")
        seconds = min(max(arguments.timeout / 1000, 0.1), MAX_SECONDS)
        outcome = await space.run(arguments.code, timeout=seconds, scratch=arguments.scratch, on_output=context.output)
        attachments = tuple(
            Attachment(mime=mime, data=data, filename="figure") for mime, data in outcome.images[:IMAGES]
        )
        metadata = {"seconds": round(outcome.seconds, 3), "error": bool(outcome.error), "timed_out": outcome.timed_out}
        return ToolResult(declaration.title, told(outcome), metadata, attachments, tail=True)


def told(outcome: CodeOutcome) -> str:
    """What the code printed, showed and raised, for the model."""
    parts = [outcome.text.rstrip("\n"), outcome.error]
    if len(outcome.images) > IMAGES:
        parts.append(f"({len(outcome.images) - IMAGES} more pictures were not kept)")
    return "\n".join(part for part in parts if part) or "(no output)"
