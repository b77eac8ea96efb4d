"""The record as static HTML: ``<details>``, inline style with fallbacks, no script, no class, no handler.

It is read with ``--jp-*`` colours and without, in light and in dark, and where every style is stripped. Words of the
model, of tools and of file names are escaped; names stand in ``<code>`` so that no viewer sets them as mathematics.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from nbagent.notebook import words
from nbagent.notebook.markdown import to_html as markdown
from nbagent.notebook.receipt import receipt_line

Item = dict[str, Any]


def escape(text: str) -> str:
    """``text`` as it is to be read: no markup, no control or direction marks."""
    return html.escape(words.clean(text))


_FAINT = "color:var(--jp-ui-font-color2,inherit);opacity:.85"
_RED = "color:var(--jp-error-color1,#d32f2f)"
_BOX = "border:1px solid rgba(127,127,127,.3);border-radius:6px;padding:4px 10px;margin:4px 0"
_PRE = (
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:28em;overflow:auto;margin:4px 0;padding:6px 8px;"
    "border-radius:4px;background:rgba(127,127,127,.1);color:inherit"
)
_ADDED = "background:rgba(46,160,67,.2)"
_REMOVED = "background:rgba(248,81,73,.2)"
_TINTS = {"PLAN": "rgba(56,132,255,.18)", "BUILD": "rgba(255,152,0,.2)"}


def to_html(record: dict[str, Any], *, times: bool = True) -> str:
    """The record as one ``<div>``; its last line is the receipt."""
    parts = [_head(record), *_drawn(record["items"], "", times), *_receipt(record, times)]
    body = "\n".join(part for part in parts if part)
    return f'<div style="line-height:1.5;overflow-wrap:anywhere">\n{body}\n</div>'


def _head(record: dict[str, Any]) -> str:
    head = record["head"]
    badge = head["badge"] or "nbagent"
    tint = _TINTS.get(badge, "rgba(127,127,127,.18)")
    shown = [
        f'<strong style="background:{tint};border-radius:4px;padding:1px 7px">{escape(words.badges(record))}</strong>'
    ]
    if head["writes"]:
        shown.append(f"<code>{escape(head['writes'])}</code>")
    shown += [f"<code>{escape(head[key])}</code>" for key in ("model", "root") if head[key]]
    return f'<div style="{_FAINT}">{" · ".join(shown)}</div>'


def _drawn(items: list[Item], parent: str, times: bool) -> list[str]:
    mine = [item for item in items if item["parent"] == parent]
    out = []
    for entry in words.grouped(mine):
        if isinstance(entry, list):
            inner = "\n".join(_tool(item, items, times) for item in entry)
            out.append(_details(f"<code>{escape(words.group_title(entry))}</code> ✓", inner))
        elif entry["kind"] == "tool":
            out.append(_tool(entry, items, times))
        else:
            out.append(_DRAW[entry["kind"]](entry, times))
    return [part for part in out if part]


def _details(summary: str, body: str, *, is_open: bool = False, style: str = "") -> str:
    if not body:
        return f'<div style="margin:2px 0;{style}">{summary}</div>'
    flag = " open" if is_open else ""
    return f'<details{flag} style="margin:2px 0;{style}"><summary>{summary}</summary>\n{body}\n</details>'


def _pre(text: str) -> str:
    return f'<pre style="{_PRE}"><code>{escape(text)}</code></pre>' if text.strip() else ""


def _diff(text: str) -> str:
    lines = []
    for line in text.splitlines():
        tint = ""
        if line.startswith("+") and not line.startswith("+++"):
            tint = _ADDED
        elif line.startswith("-") and not line.startswith("---"):
            tint = _REMOVED
        lines.append(f'<span style="{tint}">{escape(line)}</span>' if tint else escape(line))
    body = "\n".join(lines)
    return f'<pre style="{_PRE}"><code>{body}</code></pre>' if body.strip() else ""


def _tool(item: Item, items: list[Item], times: bool) -> str:
    failed = item["state"] == "error"
    state = escape(words.tool_state(item, times))
    summary = f"<code>{escape(words.tool_title(item))}</code> " + (
        f'<span style="{_RED}">{state}</span>' if failed else state
    )
    nested = _drawn(items, item["id"], times)
    body = "\n".join(part for part in [*_tool_body(item), *nested] if part)
    pictures = "".join(_image(image) for image in item["images"])
    return _details(summary, body) + (f"\n<div>{pictures}</div>" if pictures else "")


def _tool_body(item: Item) -> list[str]:
    diff = item["metadata"].get("diff")
    return [
        _arguments(item["input"]),
        _diff(diff) if isinstance(diff, str) else "",
        "" if isinstance(diff, str) and diff else _pre(item["output"]),
        f'<div style="{_RED}">{_pre(item["error"])}</div>' if item["error"] else "",
    ]


def _arguments(arguments: dict[str, Any]) -> str:
    shown = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else _json(value)
        if "\n" in text or len(text) > 200:
            shown.append(f"<div>{escape(str(name))}:</div>{_pre(text)}")
        else:
            shown.append(f"<div>{escape(str(name))}: <code>{escape(text)}</code></div>")
    return "".join(shown)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=None)


def _image(image: dict[str, str]) -> str:
    if image["mime"] not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        return ""
    return f'<img src="data:{image["mime"]};base64,{escape(image["data"])}" style="max-width:100%" alt="figure">'


def _text(item: Item, times: bool) -> str:
    return f'<div dir="auto">{markdown(item["text"])}</div>' if item["text"].strip() else ""


def _reasoning(item: Item, times: bool) -> str:
    return _details("<em>thinking</em>", _pre(item["text"]), style=_FAINT) if item["text"].strip() else ""


def _ask(item: Item, times: bool) -> str:
    preview = item["preview"]
    body = ""
    if preview:
        body = _diff(preview["text"]) if preview["kind"] == "diff" else _pre(preview["text"])
    return _details(f"asked: <code>{escape(words.ask_title(item))}</code> → {escape(words.ask_answer(item))}", body)


def _question(item: Item, times: bool) -> str:
    rows = "".join(
        f"<li>{escape(question)} <strong>{escape(answer)}</strong></li>"
        for question, answer in words.answers_words(item)
    )
    return f"<div>{escape(item['title'] or 'question')}<ul>{rows}</ul></div>"


def _review(item: Item, times: bool) -> str:
    warnings = "".join(f'<div style="{_RED}">{escape(text)}</div>' for text in item["warnings"])
    summary = f"plan <code>{escape(item['path'])}</code>: <strong>{escape(words.review_words(item))}</strong>"
    return _details(summary, f'{warnings}<div dir="auto">{markdown(item["text"])}</div>', is_open=True, style=_BOX)


def _notice(item: Item, times: bool) -> str:
    mark = "⚠ " if item["level"] == "warning" else ""
    return f'<div style="{_FAINT};white-space:pre-wrap">{mark}{escape(item["text"])}</div>'


def _retry(item: Item, times: bool) -> str:
    return f'<div style="{_FAINT}">{escape(words.retry_words(item, times))}</div>'


def _compaction(item: Item, times: bool) -> str:
    return _details(escape(words.compaction_words(item)), _pre(item["summary"]), style=_FAINT)


def _agent(item: Item, times: bool) -> str:
    writes = f", <code>{escape(item['writes'])}</code>" if item["writes"] else ""
    return f"<div>{'now' if item['previous'] else 'as'} <strong>{escape(item['badge'])}</strong>{writes}</div>"


def _todo(item: Item, times: bool) -> str:
    rows = "<br>".join(escape(words.todo_words(todo)) for todo in item["todos"])
    return f"<div>{rows}</div>"


def _error(item: Item, times: bool) -> str:
    return f'<div style="{_RED};white-space:pre-wrap"><strong>{escape(item["message"])}</strong></div>'


_DRAW: dict[str, Callable[[Item, bool], str]] = {
    "text": _text,
    "reasoning": _reasoning,
    "ask": _ask,
    "question": _question,
    "review": _review,
    "notice": _notice,
    "retry": _retry,
    "compaction": _compaction,
    "agent": _agent,
    "todo": _todo,
    "error": _error,
}


def _receipt(record: dict[str, Any], times: bool) -> list[str]:
    receipt = record["receipt"]
    if receipt is None:
        return []
    parts = [
        _details(f"<code>{escape(entry['path'])}</code> {escape(entry['status'])}", _diff(entry.get("diff", "")))
        for entry in receipt["files"]
    ]
    parts += [f'<div style="{_FAINT}">{escape(note)}</div>' for note in receipt["notes"]]
    line = escape(receipt_line(receipt, times))
    style = "border-top:1px solid rgba(127,127,127,.3);margin-top:6px;padding-top:4px"
    return [*parts, f'<div style="{style}"><code>{line}</code></div>']
