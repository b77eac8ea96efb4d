"""An executed notebook held against the one that is stored: cell by cell, file by file, as text to read. Pure."""

from __future__ import annotations

import difflib
import json
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbagent.notebook.record import MIME, stable
from nbagent.provider.places import Places

FOLDER = "/home/you/notebooks"
"""What a stored notebook says for the folder that it ran in."""
DATA = "/home/you/.local/share/nbagent"
"""What a stored notebook says for the folder with nbagent's own data."""
TEMPORARY = "/home/you/.cache/nbagent"
"""What a stored notebook says for the temporary folder of a run."""
_RUN_FOLDER = re.compile(re.escape(tempfile.gettempdir()) + r"/nbagent-(?!replay-|demo-)[\w-]+")
_DIFF_LINES = 40
_PICTURES = ("image/", "application/pdf")


def settle(notebook: Any, folder: Path, home: Path) -> None:
    """Take the place that it ran in out of a notebook's outputs, and what a kernel leaves that changes from run to run."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [_placed(output, folder, home) for output in merged(cell.outputs)]
            cell.metadata.pop("execution", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.get("language_info", {}).pop("version", None)


def _placed(output: Any, folder: Path, home: Path) -> Any:
    import nbformat

    text = json.dumps(output, ensure_ascii=False)
    text = text.replace(str(home), DATA).replace(str(folder), FOLDER)
    return nbformat.from_dict(json.loads(_RUN_FOLDER.sub(TEMPORARY, text)))


def merged(outputs: Iterable[Any]) -> list[Any]:
    """Pieces of one stream put together: how a kernel cuts them is chance."""
    kept: list[Any] = []
    for output in outputs:
        last = kept[-1] if kept else None
        if output["output_type"] == "stream" and last and last.get("name") == output["name"]:
            last["text"] = _joined(last["text"]) + _joined(output["text"])
        else:
            kept.append(output)
    return kept


def differences(stored: Any, now: Any) -> list[str]:
    """What the outputs of two notebooks differ in (``now`` settled), as lines to read; empty when they say the same."""
    old, new = (list(_code_cells(notebook)) for notebook in (stored, now))
    if [source for _, source, _ in old] != [source for _, source, _ in new]:
        return ["the cells themselves differ"]
    lines: list[str] = []
    for (number, _, before), (_, _, after) in zip(old, new, strict=True):
        if found := _cell_difference(before, after):
            lines += [f"cell {number}:", *(f"  {line}" for line in found)]
    return lines


def file_differences(stored: dict[str, str], now: dict[str, str], final: dict[str, str]) -> list[str]:
    """What the files differ in that two runs changed; ``final``: every file that is there now. A file that was as it should be
    beforehand is no difference."""
    lines = [
        f"file {name} is changed now, and was not when the notebook was stored" for name in now.keys() - stored.keys()
    ]
    for name, digest in stored.items():
        if final.get(name, "") == digest:
            continue
        how = "has another content than" if now.get(name) else "is missing, and was there"
        lines.append(f"file {name} {how} when the notebook was stored")
    return sorted(lines)


def _code_cells(notebook: Any) -> Iterable[tuple[int, str, list[Any]]]:
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            yield number, cell.source, merged(cell.outputs)


def _cell_difference(before: list[Any], after: list[Any]) -> list[str]:
    lines: list[str] = []
    for index in range(max(len(before), len(after))):
        if index >= len(after):
            lines += ["an output is gone:", *_head(before[index])]
        elif index >= len(before):
            lines += ["there is a new output:", *_head(after[index])]
        else:
            lines += _output_difference(before[index], after[index])
    return lines


def _output_difference(before: Any, after: Any) -> list[str]:
    old, new = _forms(before), _forms(after)
    if old.keys() != new.keys():
        return [f"an output has the forms {', '.join(sorted(new))}, and had {', '.join(sorted(old))}"]
    for name in sorted(old, key=lambda name: (name != "text/plain", name)):
        if old[name] != new[name]:
            return _diff(old[name], new[name], name)
    return []


def _forms(output: Any) -> dict[str, str]:
    """Every form of an output as comparable text; a picture only says that it is one."""
    if output["output_type"] == "stream":
        return {f"stream {output['name']}": _plain(_joined(output["text"]))}
    if output["output_type"] == "error":
        return {"error": _plain(f"{output['ename']}: {output['evalue']}")}
    return {name: _form(name, value) for name, value in output["data"].items()}


def _form(name: str, value: Any) -> str:
    if name.startswith(_PICTURES) and name != "image/svg+xml":
        return "a picture"
    if name == MIME:
        return _plain(json.dumps(stable(value), indent=1, sort_keys=True, ensure_ascii=False))
    if isinstance(value, str | list):
        return _plain(_joined(value))
    return _plain(json.dumps(value, indent=1, sort_keys=True))


_PLACES = Places(FOLDER, "/home/you")


_MEMORY = re.compile(r"\b\d[\d,.]* (?:bytes|KB|MB|GB|characters)(?=[,;)\s])")
"""How much memory a value takes is its libraries' affair, and how long a prompt is depends on the folder that it names."""


_PICTURE = re.compile(r"(?<=;base64,)[\w+/=]{40,}|(?<=\"data\": \")[\w+/=]{40,}(?=\")")
"""The bytes of a picture in a record or a page. As on their own, they are the drawing library's affair."""


def _plain(text: str) -> str:
    return _MEMORY.sub("⟨size⟩", _PLACES.plain(_PICTURE.sub("⟨picture⟩", text)))


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(str(piece) for piece in text)


def _head(output: Any) -> list[str]:
    forms = _forms(output)
    text = forms.get("text/plain") or next(iter(forms.values()), "")
    return [f"  {line[:200]}" for line in text.splitlines()[:6]]


def _diff(before: str, after: str, name: str) -> list[str]:
    found = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"stored ({name})", f"now ({name})", lineterm="", n=1
        )
    )
    shown = [line[:300] for line in found[:_DIFF_LINES]]
    return [*shown, f"… {len(found) - _DIFF_LINES} more lines"] if len(found) > _DIFF_LINES else shown
