"""Whether a refusal means that the request is larger than the model's window."""

from __future__ import annotations

import re

CODES = ("context_length_exceeded", "exceed_context_size_error")

# Lower case, digits ignored.
PHRASES = (
    "maximum context length",
    "exceeds the context window",
    "exceeds the available context size",
    "greater than the context length",
    "does not fit in context",
    "reduce the length of the messages",
    "maximum prompt length is",
    "too large for model with",
    "exceeded model token limit",
    "context window exceeds limit",
    "exceeds the maximum allowed input length",
    "prompt is too long",
    "input is too long for requested model",
    "longer than the model's context length",
    "exceed the context window",
    "context size has been exceeded",
    "context_window_exceeded",
    "contextwindowexceedederror",
    "exceeds the model's maximum context",
    "exceeds the model's context window",
    "exceeds model's maximum context length",
    "range of input length should be",
    "input length exceeds the context length",
    "is longer than the maximum model length of",
    "load the model with a larger context length",
)
PAIRS = (("input token count", "exceeds the maximum"), ("prompt token count", "exceeds the limit"))

RATES = (
    "rate limit",
    "rate_limit",
    "ratelimit",
    "too many requests",
    "too many tokens, please wait",
    "please wait",
    "slow down",
    "throttl",
    "tokens per min",
    "requests per min",
    "tokens per day",
    "requests per day",
    "resource_exhausted",
    "resource exhausted",
    "too_many_requests",
)
NEARLY_FULL = 0.8
WINDOW_SAID = re.compile(r"(?:context|maximum|limit)\D{0,60}(\d[\d,]{2,})")


def window_said(text: str) -> int:
    """The window in tokens that a refusal names; 0 when it names none."""
    found = WINDOW_SAID.search(text.lower())
    return int(found[1].replace(",", "")) if found else 0


def is_rate(text: str) -> bool:
    """Whether a text is about rates, which is never an overflow."""
    lower = text.lower()
    return any(phrase in lower for phrase in RATES)


def is_overflow(status: int | None, text: str, code: str = "", estimate: int = 0, window: int = 0) -> bool:
    """By code, then by phrase; an empty 400 or 413 only when our own estimate is over 80 % of the window."""
    if status == 429:
        return False
    if any(known in code.lower() for known in CODES):
        return True
    if is_rate(text) or is_rate(code):
        return False
    if not text.strip():
        return status in (400, 413) and window > 0 and estimate > NEARLY_FULL * window
    plain = " ".join(re.sub(r"[\d,]+", " ", text.lower()).replace("’", "'").split())
    plain_kept = " ".join(text.lower().split())
    return any(p in plain or p in plain_kept for p in (*PHRASES, *CODES)) or any(
        all(half in plain for half in pair) for pair in PAIRS
    )
