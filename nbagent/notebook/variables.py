"""Describes the user's variables without changing or importing anything: type, shape, dtypes, gaps, memory, first rows.

The only user code that runs is ``repr`` (and what a library's own summary calls), under a time limit that the caller sets;
what takes longer, or raises, is said in its place. Libraries are looked up in ``sys.modules``, never imported.
"""

from __future__ import annotations

import difflib
import inspect
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nbagent.tools.textfile import counted

LINE = 160
DETAIL = 4_000
ROWS = 5
COLUMNS = 60
CELLS = 20_000_000
_SECRET = re.compile(r"(?i)(passw|secret|token|api_?key|credential|private_?key|_key$)")

Guard = Callable[[str, Callable[[], str]], str]


def visible(space: Mapping[str, Any], hidden: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that a person made: no shell names, nothing private, no modules."""
    return {
        name: value
        for name, value in space.items()
        if not name.startswith("_") and name not in hidden and not inspect.ismodule(value)
    }


def describe(
    space: Mapping[str, Any], hidden: Mapping[str, Any], names: tuple[str, ...], detail: bool, guard: Guard
) -> str:
    """One line a variable, or everything about ``names``. ``guard`` runs the description
    of one name and gives words when it fails."""
    shown = visible(space, hidden)
    if not names:
        if not shown:
            return "No variables yet."
        describe_one = _detail if detail else _line
        return "\n".join(guard(name, partial(describe_one, name, value)) for name, value in sorted(shown.items()))
    return "\n\n".join(_named(name, space, shown, guard) for name in names)


def _named(name: str, space: Mapping[str, Any], shown: Mapping[str, Any], guard: Guard) -> str:
    if name in space:
        return guard(name, lambda: _detail(name, space[name]))
    near = difflib.get_close_matches(name, shown, 3)
    hint = f"; near names: {', '.join(near)}" if near else ""
    if not name.isidentifier():
        hint = "; give plain names of variables (the python tool evaluates expressions)"
    return f"{name}: no such variable{hint}"


def _line(name: str, value: Any) -> str:
    return f"{name}: {_cut(summary(name, value), LINE)}"


def _detail(name: str, value: Any) -> str:
    for library, kind, describe_one in _DETAILS:
        if _is(value, library, kind):
            return _cut(f"{name}: {describe_one(value)}", DETAIL)
    return _cut(f"{name}: {summary(name, value, 1_500)}", DETAIL)


def summary(name: str, value: Any, width: int = 80) -> str:
    """A value in one line: type, size, and its beginning."""
    for library, kind, summarise in _SUMMARIES:
        if _is(value, library, kind):
            return summarise(value)
    kind = type(value).__name__
    if isinstance(value, (str, bytes)):
        if _SECRET.search(name):
            return f"{kind}, {len(value):,} long (not shown: its name says that it is a secret)"
        return f"{kind}, {len(value):,} long: {_short(value, width)}"
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return f"{kind}, {len(value):,} entries: {_short(value, width)}"
    if inspect.isclass(value):
        return f"class {value.__module__}.{value.__qualname__}"
    if callable(value) and hasattr(value, "__name__"):
        return _function(value)
    return f"{_type_name(value)}: {_short(value, width)}"


def _short(value: Any, width: int) -> str:
    short = reprlib.Repr()
    short.maxlevel = 3
    short.maxstring = short.maxother = max(30, width)
    short.maxlist = short.maxtuple = short.maxset = short.maxdict = max(4, width // 12)
    return _cut(" ".join(short.repr(value).split()), width * 2)


def _function(value: Any) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(…)"
    doc = (inspect.getdoc(value) or "").strip().split("\n")[0]
    return f"function {value.__name__}{signature}{' – ' + doc if doc else ''}"


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _is(value: Any, library: str, kind: str) -> bool:
    module = sys.modules.get(library)
    found: Any = module
    for part in kind.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(value, found)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"


# pandas


def _frame_line(frame: Any) -> str:
    columns = ", ".join(str(column) for column in list(frame.columns)[:8])
    more = ", …" if len(frame.columns) > 8 else ""
    rows, count = frame.shape
    return f"pandas DataFrame, {counted(rows, 'row')} × {counted(count, 'column')} ({columns}{more})"


def _frame(frame: Any) -> str:
    rows, count = frame.shape
    sample = frame if rows * count <= CELLS else frame.iloc[: max(1, CELLS // max(1, count))]
    of = "" if sample is frame else f" in the first {len(sample):,} rows"
    nulls = sample.isna().sum()
    memory = _bytes(float(frame.memory_usage(index=True, deep=False).sum()))
    lines = [
        f"pandas DataFrame, {counted(rows, 'row')} × {counted(count, 'column')}, {memory}; index: {_index(frame.index)}"
    ]
    for position in range(min(count, COLUMNS)):
        missing = int(nulls.iloc[position])
        gap = f", {missing:,} null{of}" if missing else ""
        lines.append(f"  {frame.columns[position]}: {frame.dtypes.iloc[position]}{gap}")
    if count > COLUMNS:
        lines.append(f"  … {counted(count - COLUMNS, 'more column')}")
    lines.append(_head_text(frame.head(ROWS)))
    return "\n".join(lines)


def _head_text(head: Any) -> str:
    return str(head.to_string(max_cols=12, max_colwidth=30, line_width=200))


def _index(index: Any) -> str:
    kind = type(index).__name__
    return f"{kind} {index[0]!r} … {index[-1]!r}" if len(index) else f"{kind}, empty"


def _series_line(series: Any) -> str:
    return f"pandas Series, {len(series):,} × {series.dtype}, name {series.name!r}"


def _series(series: Any) -> str:
    sample = series.iloc[:CELLS]
    lines = [f"{_series_line(series)}, {int(sample.isna().sum()):,} null; index: {_index(series.index)}"]
    if getattr(sample.dtype, "kind", "") in "iuf" and len(sample):
        lines.append(f"  min {sample.min()}, mean {sample.mean():.6g}, max {sample.max()}")
    lines.append(str(series.head(ROWS).to_string()))
    return "\n".join(lines)


# polars


def _polars_line(frame: Any) -> str:
    rows, count = frame.shape
    columns = ", ".join(frame.columns[:8])
    more = ", …" if count > 8 else ""
    return f"polars DataFrame, {counted(rows, 'row')} × {counted(count, 'column')} ({columns}{more})"


def _polars(frame: Any) -> str:
    rows, count = frame.shape
    nulls = frame.null_count().row(0) if count and rows * count <= CELLS * 5 else (0,) * count
    lines = [
        f"polars DataFrame, {counted(rows, 'row')} × {counted(count, 'column')}, {_bytes(float(frame.estimated_size()))}"
    ]
    for column, dtype, missing in list(zip(frame.columns, frame.dtypes, nulls, strict=True))[:COLUMNS]:
        lines.append(f"  {column}: {dtype}{f', {missing:,} null' if missing else ''}")
    if count > COLUMNS:
        lines.append(f"  … {counted(count - COLUMNS, 'more column')}")
    return "\n".join([*lines, str(frame.head(ROWS))])


def _lazy(frame: Any) -> str:
    return "polars LazyFrame (not collected; its plan was not run)"


# numpy, torch, models


def _array_line(array: Any) -> str:
    return f"numpy array, shape {tuple(array.shape)}, {array.dtype}, {_bytes(float(array.nbytes))}"


def _array(array: Any) -> str:
    np = sys.modules["numpy"]
    lines = [_array_line(array)]
    if array.dtype.kind in "iuf" and 0 < array.size <= CELLS:
        nans = int(np.isnan(array).sum()) if array.dtype.kind == "f" else 0
        if nans < array.size:
            low, mean, high = np.nanmin(array), np.nanmean(array), np.nanmax(array)
            lines.append(f"  min {low}, mean {mean:.6g}, max {high}{f', {nans:,} nan' if nans else ''}")
    with np.printoptions(threshold=40, edgeitems=3, linewidth=120):
        lines.append(_cut(repr(array), 1_500))
    return "\n".join(lines)


def _tensor(tensor: Any) -> str:
    grad = ", requires grad" if tensor.requires_grad else ""
    size = _bytes(float(tensor.numel() * tensor.element_size()))
    return f"torch Tensor, shape {tuple(tensor.shape)}, {tensor.dtype}, {tensor.device}, {size}{grad}"


def _module_line(module: Any) -> str:
    count = sum(parameter.numel() for parameter in module.parameters())
    return f"torch module {type(module).__name__}, {count:,} parameters"


def _module(module: Any) -> str:
    return f"{_module_line(module)}\n{_cut(repr(module), 2_000)}"


def _learned(model: Any) -> list[str]:
    return sorted(name for name in vars(model) if name.endswith("_") and not name.startswith("_"))


def _estimator_line(model: Any) -> str:
    return f"scikit-learn {_cut(' '.join(repr(model).split()), 100)}, {'fitted' if _learned(model) else 'not fitted'}"


def _estimator(model: Any) -> str:
    parameters = _short(model.get_params(deep=False), 600)
    learned = ", ".join(_learned(model)) or "nothing yet"
    return f"{_estimator_line(model)}\n  learned: {learned}\n  parameters: {parameters}"


_SUMMARIES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("pandas", "DataFrame", _frame_line),
    ("pandas", "Series", _series_line),
    ("polars", "DataFrame", _polars_line),
    ("polars", "LazyFrame", _lazy),
    ("numpy", "ndarray", _array_line),
    ("torch", "Tensor", _tensor),
    ("torch", "nn.Module", _module_line),
    ("sklearn.base", "BaseEstimator", _estimator_line),
)
_DETAILS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("pandas", "DataFrame", _frame),
    ("pandas", "Series", _series),
    ("polars", "DataFrame", _polars),
    ("polars", "LazyFrame", _lazy),
    ("numpy", "ndarray", _array),
    ("torch", "Tensor", _tensor),
    ("torch", "nn.Module", _module),
    ("sklearn.base", "BaseEstimator", _estimator),
)
