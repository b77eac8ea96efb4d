"""What a server's error body says, in any of the shapes that servers use: message, code, parameter, waiting time."""

from __future__ import annotations

import email.utils
import html
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nbagent.provider.sse import decode_json


@dataclass(frozen=True, slots=True)
class Failure:
    """What a body says. ``text``: the server's words, ``code`` and ``param`` as it named them, ``status`` from HTTP or the body."""

    status: int | None = None
    text: str = ""
    code: str = ""
    param: str = ""
    retry_after: float | None = None
    page: bool = False

    @property
    def words(self) -> str:
        return f"{self.text} {self.code}".lower()


def read(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> Failure:
    """Find message, code and waiting time in ``body`` (bytes, text or a JSON value) and ``headers``."""
    value, page = _value(body)
    error = _error_object(value)
    code = _first_text(error, "code", "type", "status")
    text = _message(error)
    inner = _nested(text)
    if inner is not None:
        text = inner.text or text
        code = inner.code or code
    number = status if status is not None and status >= 400 else _status_in(error, value)
    wait = _wait(headers or {}, error, text)
    param = _first_text(error, "param")
    return Failure(number, _short(text.strip()), code[:200], param[:200], wait, page)


def _short(text: str) -> str:
    """The beginning and the end of a long text, where servers say what matters."""
    return text if len(text) <= 4000 else f"{text[:3000]} … {text[-1000:]}"


def _value(body: Any) -> tuple[Any, bool]:
    if isinstance(body, str):
        body = body.encode("utf-8", "replace")
    if not isinstance(body, bytes):
        return body, False
    try:
        return decode_json(body), False
    except ValueError:
        text = body[:4000].decode("utf-8", "replace")
        if "<" in text and re.search(r"<(!doctype|html|head|body|title)", text, re.IGNORECASE):
            return _page_text(text), True
        return text, False


def _page_text(text: str) -> str:
    title = re.search(r"<(title|h1)[^>]*>(.*?)</\1>", text, re.IGNORECASE | re.DOTALL)
    text = title[2] if title else re.sub(r"<[^>]*>", " ", text)
    return " ".join(html.unescape(text).split())


def _error_object(value: Any) -> Any:
    """The object (or text) that tells of the trouble, wherever the server put it."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return value
    for key in ("error", "errors", "response"):
        inner = value.get(key)
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict):
            deeper = inner.get("error")
            return deeper if isinstance(deeper, dict) else inner
        if isinstance(inner, str) and inner:
            rest = {k: v for k, v in value.items() if k != key}
            return {"message": inner, **rest} if not isinstance(rest.get("message"), str) else {**rest, "code": inner}
    return value


def _message(error: Any) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    for key in ("message", "msg", "error", "detail", "details", "title", "description"):
        value = error.get(key)
        if isinstance(value, str) and value.strip():
            return _with_raw(value, error)
        if isinstance(value, list) and value and isinstance(value[0], dict) and value[0].get("msg"):
            return "; ".join(_place_and_message(each) for each in value[:3] if isinstance(each, dict))
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            return str(value["message"])
    return ""


def _place_and_message(problem: dict[str, Any]) -> str:
    """One entry of a list of what does not validate."""
    where = problem.get("loc")
    place = ".".join(map(str, where)) if isinstance(where, list) else str(where or "")
    return f"{place}: {problem.get('msg')}".strip(": ")


def _with_raw(message: str, error: dict[str, Any]) -> str:
    """A router's "Provider returned error" says nothing; what the provider said is beside it."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str) or not raw.strip():
        return message
    inner = _nested(raw)
    return f"{message}: {inner.text if inner is not None and inner.text else raw}"


def _nested(text: str) -> Failure | None:
    """A message that holds another server's whole JSON body."""
    start = text.find("{")
    if start < 0 or ('"message"' not in text and "'message'" not in text and '"error"' not in text):
        return None
    try:
        value = decode_json(text[start : text.rindex("}") + 1].encode())
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    error = _error_object(value)
    inner = _message(error)
    lead = text[:start].strip().rstrip(":-").strip()
    return Failure(text=f"{lead}: {inner}" if lead and inner else inner, code=_first_text(error, "code", "type"))


def _first_text(error: Any, *keys: str) -> str:
    if not isinstance(error, dict):
        return ""
    for key in keys:
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _status_in(error: Any, value: Any) -> int | None:
    for source in (error, value):
        for key in ("status", "code", "status_code"):
            number = source.get(key) if isinstance(source, dict) else None
            if isinstance(number, str) and number.isdigit():
                number = int(number)
            if isinstance(number, int) and 400 <= number < 600:
                return number
    return None


# Waiting


def _wait(headers: Mapping[str, str], error: Any, text: str) -> float | None:
    lower = {key.lower(): value for key, value in headers.items()}
    if (ms := _number(lower.get("retry-after-ms"))) is not None:
        return max(0.0, ms / 1000)
    after = lower.get("retry-after")
    if after:
        seconds = _number(after)
        return max(0.0, seconds) if seconds is not None else _until(after)
    for delay in _delays(error):
        if (seconds := duration(delay)) is not None:
            return seconds
    match = re.search(
        r"(?:try again|retry|wait)[^.\d]{0,30}?((?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)\b\s*)+)",
        text,
        re.IGNORECASE,
    )
    return duration(match[1]) if match else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and value == value and abs(value) != float("inf") else None


def _until(date: str) -> float | None:
    try:
        when = email.utils.parsedate_to_datetime(date.strip())
    except (ValueError, TypeError):
        return None
    return max(0.0, when.timestamp() - time.time())


def _delays(error: Any) -> Iterator[str]:
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            yield detail["retryDelay"]


_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float | None:
    """Seconds in ``1m3.5s``, ``350ms``, ``20 seconds``; None for anything else."""
    found = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|milli|s|m|h)", text.lower())
    return sum(float(number) * _UNITS[unit] for number, unit in found) if found else None
