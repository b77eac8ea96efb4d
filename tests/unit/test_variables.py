"""Variables described: what a person needs to know of them, without importing a library and without running away."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from nbagent.notebook.variables import describe


def told(detail: bool = True, **space: Any) -> str:
    """What is said of ``space``."""
    return describe(space, {}, tuple(space) if detail else (), detail, lambda name, one: one())


def test_frames_of_pandas() -> None:
    frame = pd.DataFrame({"a": [1.5, None, 3.0], "b": list("xyz")})
    assert told(detail=False, df=frame) == "df: pandas DataFrame, 3 rows × 2 columns (a, b)"
    assert told(detail=False, df=frame[:1][["a"]]) == "df: pandas DataFrame, 1 row × 1 column (a)"
    text = told(df=frame)
    assert "a: float64, 1 null" in text
    assert "index: " in text
    assert "x" in text.splitlines()[-3]
    assert "name" in told(column=pd.Series([1, 2], name="name"))


def test_frames_of_polars() -> None:
    frame = pl.DataFrame({"a": [1, None, 3], "b": list("xyz")})
    assert told(detail=False, df=frame) == "df: polars DataFrame, 3 rows × 2 columns (a, b)"
    text = told(df=frame)
    assert "a: Int64, 1 null" in text
    assert "x" in text
    assert told(lazy=frame.lazy()) == "lazy: polars LazyFrame (not collected; its plan was not run)"


def test_a_wide_and_long_frame_stays_short() -> None:
    wide = pd.DataFrame(np.zeros((3, 500)), columns=[f"column_{n}" for n in range(500)])
    assert len(told(df=wide)) <= 4010
    assert len(told(detail=False, df=wide)) <= 170
    assert len(told(df=pl.from_pandas(wide))) <= 4010


def test_arrays() -> None:
    array = np.array([[1.0, np.nan], [3.0, 5.0]])
    assert told(detail=False, a=array) == "a: numpy array, shape (2, 2), float64, 32 B"
    assert "min 1.0, mean 3, max 5.0, 1 nan" in told(a=array)
    assert len(told(a=np.arange(10**6))) < 2_000
    for odd in (np.array([]), np.array(["x", "y"]), np.array([None, {}], dtype=object), np.array(3)):
        assert told(a=odd).startswith("a: numpy array")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library with torch's names; the real one is larger than all of this project."""
    module = types.ModuleType("torch")

    class Tensor:
        shape, dtype, device, requires_grad = (2, 3), "torch.float32", "cpu", True

        def numel(self) -> int:
            return 6

        def element_size(self) -> int:
            return 4

        def __repr__(self) -> str:
            raise AssertionError("a tensor may be large and on another device")

    class Module:
        def parameters(self) -> list[Tensor]:
            return [Tensor(), Tensor()]

        def __repr__(self) -> str:
            return "Net(\n  (fc): Linear()\n)"

    module.Tensor, module.nn = Tensor, types.SimpleNamespace(Module=Module)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_tensors_and_modules(torch: Any) -> None:
    assert told(t=torch.Tensor()) == "t: torch Tensor, shape (2, 3), torch.float32, cpu, 24 B, requires grad"
    assert told(detail=False, net=torch.nn.Module()) == "net: torch module Module, 12 parameters"
    assert "(fc): Linear()" in told(net=torch.nn.Module())


class Loud:
    def __repr__(self) -> str:
        return "loud " * 10_000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (list(range(100_000)), "list, 100,000 entries: [0, 1, 2"),
        ({"a": {"b": {"c": {"d": {}}}}}, "dict, 1 entries"),
        ("x" * 10**6, "str, 1,000,000 long"),
        (b"\x00" * 10, "bytes, 10 long"),
        (Loud(), "Loud: loud"),
        (Loud, "class "),
        (len, "function len(obj, /)"),
        (lambda a, b=2: a, "function <lambda>(a, b=2)"),
    ],
)
def test_plain_values(value: Any, words: str) -> None:
    text = told(detail=False, v=value)
    assert words in text
    assert len(text) <= 170
    assert "\n" not in text
    assert len(told(v=value)) <= 4010


@pytest.mark.parametrize("name", ["password", "API_KEY", "aws_secret", "access_token", "my_key", "credentials"])
def test_what_its_name_calls_a_secret_is_not_shown(name: str) -> None:
    for detail in (False, True):
        assert "hunter2" not in told(detail=detail, **{name: "hunter2"})


def test_private_names_and_modules_are_not_variables() -> None:
    assert told(detail=False, _x=1, sys=sys, y=2) == "y: int: 2"
    assert describe({}, {}, (), False, lambda name, one: one()) == "No variables yet."


def test_a_name_that_is_not_there() -> None:
    guard: Callable[[str, Callable[[], str]], str] = lambda name, one: one()  # noqa: E731
    assert describe({"frame": 1}, {}, ("frme",), True, guard) == "frme: no such variable; near names: frame"
    assert "plain names" in describe({}, {}, ("a.b",), True, guard)


def test_no_library_is_imported() -> None:
    code = (
        "import sys; from nbagent.notebook.variables import describe\n"
        "class A: pass\n"
        "describe({'a': 1, 'b': 'x', 'c': [1], 'd': A(), 'e': len}, {}, ('a', 'b', 'c', 'd', 'e'), True, lambda n, one: one())\n"
        "print(sorted({'pandas', 'polars', 'numpy', 'torch', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
