"""The names that a Triton kernel uses are data, and mean the same when they come back."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")
import torch
import triton
import triton.language as tl

from torchreel.errors import UnsupportedError
from torchreel.formats.graphs import KERNELS
from torchreel.formats.graphs.document import GraphDoc
from torchreel.formats.triton_names import names_of, value_form
from torchreel.replay.child import restore
from torchreel.replay.child.triton_kernels import _kernel, _value, define

SIZE = tl.constexpr(16)
HALF = 0.5


@triton.jit  # type: ignore[untyped-decorator]
def _inner(x):  # type: ignore[no-untyped-def]
    return x * HALF


@triton.jit  # type: ignore[untyped-decorator]
def _outer(x, y):  # type: ignore[no-untyped-def]
    at = tl.arange(0, SIZE)
    tl.store(y + at, _inner(tl.load(x + at)).to(tl.float16))


def test_names_of_a_kernel() -> None:
    found = names_of(_outer)
    assert found["tl"] == ["module", "triton.language"]
    assert found["SIZE"] == ["constexpr", 16]
    assert found["_inner"][0] == "kernel"  # type: ignore[index]
    assert found["_inner"][2] == {"HALF": ["value", 0.5]}  # type: ignore[index]


def test_a_kernel_comes_back_with_its_place() -> None:
    made: Any = _kernel("_outer", _outer.src, names_of(_outer), "/a/file.py", 30)
    assert made.src == _outer.src
    assert made.fn.__code__.co_filename == "/a/file.py"
    assert made.fn.__code__.co_firstlineno == 30
    assert made.fn.__globals__["_inner"].src == _inner.src
    assert made.fn.__globals__["SIZE"].value == 16


@pytest.mark.parametrize("value", [None, 1, 2.5, "text", True, tl.float16, SIZE])
def test_arguments_come_back(value: object) -> None:
    back = _value(value_form(value))
    assert getattr(back, "value", back) == getattr(value, "value", value)


@pytest.mark.parametrize("form", [["module", "os"], ["attribute", "subprocess", "run"], ["x"], 1])
def test_another_meaning_is_refused(form: object) -> None:
    with pytest.raises(UnsupportedError, match="does not say what it is"):
        _kernel("_inner", _inner.src, {"HALF": form})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "row",
    [
        1,
        {},
        {"number": 0, "name": "f", "source": "def f(:", "function": "", "names": {}},
        {"number": 0, "name": "f", "source": "def g(): pass", "function": "", "names": {}},
        {"number": [], "name": "f", "source": "def f(): pass", "function": "f (x:1)", "names": 3},
    ],
)
def test_a_crooked_row_is_a_sentence(row: object) -> None:
    with pytest.raises(UnsupportedError, match="can't be made of its source"):
        define([row])  # type: ignore[list-item]


def test_a_kernel_of_a_store_runs_only_on_trust(tmp_path: Path) -> None:
    """Its source is Python: a default argument runs where the function is defined."""
    from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation

    canary = tmp_path / "canary"
    source = f"def f(x=open({str(canary)!r}, 'w').close()): pass"
    row: Any = {
        "number": 0, "constants_number": 0, "name": "f", "function": "f (x.py:1)", "names": {},
        "source": source, "configurations": [], "key": [], "constants": {},
    }  # fmt: skip
    graph = torch.fx.Graph()
    graph.call_function(triton_kernel_wrapper_mutation, kwargs={"kernel_idx": 0})
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    doc: Any = SimpleNamespace(extra={KERNELS: [row]}, graph=GraphDoc(()))
    with pytest.raises(UnsupportedError, match="add --trust"):
        restore._define_kernels(doc, module, trust=False)
    assert not canary.exists()
    restore._define_kernels(doc, module, trust=True)
    assert canary.exists()


def test_a_module_that_is_no_part_of_triton_has_no_meaning_here() -> None:
    assert value_form(math) == ["module", "math"]
