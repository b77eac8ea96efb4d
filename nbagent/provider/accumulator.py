"""One streamed answer put together from raw chunks of the Chat Completions form. Pure: chunks in, deltas out.

Servers differ in every detail: ids missing, empty or repeated, no index or always 0, arguments in one piece or as an
object, ``null`` wherever an object should be. What is stated here is what each of them means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nbagent.errors import ProviderError, StreamDropped
from nbagent.message import Tokens
from nbagent.provider.callbook import CallBook, OpenCall, called, fresh_id, unused_id
from nbagent.provider.errors import in_stream
from nbagent.provider.provider import Called, Delta, Ended, Said, Say, Think, Unsaid, Used, Writing
from nbagent.provider.think import Piece, ThinkFilter
from nbagent.provider.usage import read_usage
from nbagent.whole import whole_text

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
OPAQUE_FIELDS = ("reasoning_details", "thinking_blocks")
JOINED_KEYS = ("text", "summary", "data", "thinking")
LENGTH_WORDS = {"length", "max_tokens", "max_output_tokens", "model_length", "max_length"}
FILTER_WORDS = {
    "content_filter",
    "content-filter",
    "safety",
    "recitation",
    "prohibited_content",
    "sensitive",
    "refusal",
}
USUAL_WORDS = {"", "stop", "end_turn", "eos", "tool_calls", "completed"}
BROKEN_WORDS = {"error", "network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "canceled"}


class Accumulator:
    """Chunks of one answer in, deltas out.

    ``needs``: tool name → whether it has required arguments. ``taken``: ids of earlier calls, not to be used again.
    ``failure``: makes the error for an ``error`` object inside the stream.
    """

    def __init__(
        self,
        needs: Mapping[str, bool] | None = None,
        taken: Iterable[str] = (),
        failure: Callable[[Any], Exception] = in_stream,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        self._needs = needs or {}
        self._taken = set(taken)
        self._failure = failure
        self._new_id = new_id
        self._think = ThinkFilter()
        self._book = CallBook()
        self._runs: list[tuple[str, str, list[str]]] = []
        self._writing: dict[int, OpenCall] = {}
        self._finish: str | None = None
        self._done = False
        self._tokens: Tokens | None = None
        self._details: dict[str, list[dict[str, Any]]] = {}
        self._field = ""
        self._half: dict[str, str] = {}
        self._said = False
        self._thought = False
        self._refused = False
        self._odd: dict[str, Any] | None = None  # an object that is no chunk of an answer, while nothing else has come
        self._chunks = 0

    # What has come so far

    @property
    def finished(self) -> bool:
        """Whether the answer is complete: nothing that matters can follow but usage."""
        return self._finish is not None or self._done

    @property
    def started(self) -> bool:
        """Whether anything of the answer has come."""
        return self._said or self._thought or bool(self._book.calls)

    def done(self) -> None:
        """The stream said ``[DONE]``."""
        self._done = True

    def feed(self, chunk: Any) -> None:
        """Take one chunk. Raises the matching error for an ``error`` object."""
        if not isinstance(chunk, dict):
            if isinstance(chunk, list) and chunk and isinstance(chunk[0], dict) and chunk[0].get("error"):
                raise self._failure(chunk)
            return
        if chunk.get("error") or chunk.get("object") == "error":
            raise self._failure(chunk)
        routed = chunk.get("x_groq")
        for usage in (chunk.get("usage"), routed.get("usage") if isinstance(routed, dict) else None):
            if isinstance(usage, dict):
                self._usage(usage)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self._odd = self._odd or (chunk if "choices" not in chunk and not chunk.get("usage") else None)
            return
        self._chunks += 1
        for choice in choices:
            if isinstance(choice, dict) and _is_first(choice.get("index")):
                self._choice(choice)

    def take(self) -> list[Delta]:
        """The deltas since the last look, neighbours of one kind joined."""
        out: list[Delta] = []
        for kind, field, pieces in self._runs:
            match kind:
                case "say":
                    out.append(Say("".join(pieces)))
                case "think":
                    out.append(Think("".join(pieces), field))
                case _:
                    out.append(Unsaid())
        self._runs = []
        if self._writing:
            out += [Writing(call.slot, call.name, call.size) for call in self._writing.values()]
            self._writing = {}
        return out

    def end(self) -> list[Delta]:
        """The body is over: the last deltas. Raises ``StreamDropped`` when the answer is not complete, and
        ``ProviderError`` for an empty one."""
        self._pieces(self._think.end())
        if not self.finished and self._odd is not None and not self._chunks:
            raise self._failure(self._odd)  # a body that is JSON, but no answer
        if not self.finished:
            raise StreamDropped("The connection to the model server ended in the middle of the answer.")
        word = (self._finish or "").lower()
        if word in BROKEN_WORDS:
            raise StreamDropped(f"The model server broke the answer off ({self._finish}).")
        cut = "length" if word in LENGTH_WORDS else "content-filter" if word in FILTER_WORDS else ""
        if not self.started and not self._details:
            raise empty_answer(cut, self._finish or "")
        out = self.take()
        if self._details:
            out.append(Think("", self._field or "reasoning", dict(self._details)))
        calls = [self._called(call, cut) for call in self._book.calls]
        out += calls
        if self._tokens is not None:
            out.append(Used(self._tokens))
        if self._refused:
            out.append(Said("The model declined to answer this."))
        out.append(Ended(cut or ("tool-calls" if calls else "stop")))
        return out

    def rest(self) -> list[Delta]:
        """The stream broke: what was held back of the text."""
        self._pieces(self._think.end())
        return self.take()

    # One chunk

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict) or not delta:
            delta = choice.get("message") if not self.started else None
            if isinstance(delta, dict):
                self._done = True  # a whole answer in one body
        if isinstance(delta, dict):
            self._delta(delta)
        elif isinstance(choice.get("text"), str):
            self._text(choice["text"])
        word = choice.get("finish_reason")
        if isinstance(word, str) and word:
            self._finish = word
        if choice.get("error"):
            raise self._failure(choice)
        if isinstance(choice.get("usage"), dict):
            self._usage(choice["usage"])

    def _delta(self, delta: dict[str, Any]) -> None:
        for field in REASONING_FIELDS:
            thought = delta.get(field)
            if isinstance(thought, str) and thought:
                self._think.no_lone_tags()
                self._thinks(thought, field)
                break
        content = delta.get("content")
        if content:
            if isinstance(content, str):
                self._text(content)
            elif isinstance(content, (list, dict)):
                self._parts(content if isinstance(content, list) else [content])
        if delta.get("refusal") and isinstance(delta["refusal"], str):
            self._refused = True
            self._text(delta["refusal"])
        calls = delta.get("tool_calls")
        if calls:
            self._calls(calls)
        if isinstance(delta.get("function_call"), dict):
            self._calls([{"index": 0, "function": delta["function_call"]}])
        for field in OPAQUE_FIELDS:
            if isinstance(delta.get(field), list):
                self._detail(self._details.setdefault(field, []), delta[field])

    def _parts(self, parts: list[Any]) -> None:
        """Content as a list of typed parts, where thinking is a part among others."""
        for part in parts:
            if not isinstance(part, dict):
                continue
            if part.get("type") in ("thinking", "reasoning"):
                inner = part.get("thinking") or part.get("text") or ""
                listed = inner if isinstance(inner, list) else [{"text": inner}]
                texts = [each.get("text") for each in listed if isinstance(each, dict)]
                self._think.no_lone_tags()
                self._thinks("".join(text for text in texts if isinstance(text, str)), "")
            elif isinstance(part.get("text"), str):
                self._text(part["text"])

    def _text(self, text: str) -> None:
        text = self._mended("text", text)
        if text:
            self._pieces(self._think.feed(text))

    def _pieces(self, pieces: list[Piece]) -> None:
        for kind, text in pieces:
            if kind == "say":
                self._said = self._said or bool(text.strip())
                self._run("say", "", text)
            elif kind == "think":
                self._thinks(text, "")
            else:
                self._said = False
                self._runs.append(("unsay", "", []))

    def _thinks(self, text: str, field: str) -> None:
        text = self._mended("think", text)
        if text:
            self._thought = True
            self._field = field
            self._run("think", field, text)

    def _run(self, kind: str, field: str, text: str) -> None:
        if self._runs and self._runs[-1][0] == kind and self._runs[-1][1] == field:
            self._runs[-1][2].append(text)
        else:
            self._runs.append((kind, field, [text]))

    def _calls(self, elements: Any) -> None:
        if isinstance(elements, dict):
            elements = [elements]
        if not isinstance(elements, list):
            return
        for element in elements:
            if isinstance(element, dict):
                call = self._book.add(element)
                if call is not None:
                    self._writing[call.slot] = call

    def _detail(self, kept: list[dict[str, Any]], details: list[Any]) -> None:
        """Opaque reasoning items, sent back as they came; the pieces of one item are joined."""
        for detail in details:
            if not isinstance(detail, dict):
                continue
            last = kept[-1] if kept else {}
            if (
                not last
                or not all(last.get(key) == detail.get(key) for key in ("type", "index"))
                or last.get("signature")
            ):
                kept.append(dict(detail))
                continue
            for key, value in detail.items():
                old = last.get(key)
                if key in JOINED_KEYS and isinstance(old, str) and isinstance(value, str):
                    last[key] = old + value
                elif value is not None:
                    last[key] = value

    def _mended(self, key: str, text: str) -> str:
        """``text`` with surrogate halves that came in two pieces joined, and lone ones replaced."""
        if key not in self._half and text.isascii():
            return text
        text = self._half.pop(key, "") + text
        if "\ud800" <= text[-1:] <= "\udbff":
            self._half[key] = text[-1]
            text = text[:-1]
        return whole_text(text)

    def _usage(self, usage: dict[str, Any]) -> None:
        tokens = read_usage(usage)
        if tokens is not None:
            self._tokens = tokens

    # The end

    def _called(self, call: OpenCall, cut: str) -> Called:
        call_id = unused_id(call.id, self._taken, self._new_id)
        return called(call, call_id, cut, proper=self._finish is not None, needed=self._needs.get(call.name, False))


def _is_first(index: Any) -> bool:
    """Whether a choice is the one that was asked for, however its place is written."""
    return str(index) in ("0", "-1", "None", "0.0", "")


def empty_answer(cut: str, word: str = "") -> ProviderError:
    if cut == "length":
        return ProviderError(
            "The answer was cut before the model said anything: its output limit is too small. "
            "Raise `output` for this model in nbagent.toml, or lower its reasoning effort."
        )
    if cut:
        return ProviderError("The server's content filter stopped the answer. Word the request differently.")
    why = "" if word.lower() in USUAL_WORDS else f' (the server calls it "{word[:80]}")'
    return ProviderError(f"The model sent an empty answer{why}. Run the cell again, or choose another model.")
