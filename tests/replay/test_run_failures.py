"""The failure of compiled code, in its forward and in its backward, comes again in a replay."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest
import torch

import torchreel
from torchreel.errors import UnsupportedError
from torchreel.minifier.initial_cases.failures import starting_cases
from torchreel.recorder.settings import Settings
from torchreel.replay import replay
from torchreel.store import queries
from torchreel.store.database import Store


class _OutOfRange(torch.autograd.Function):
    """Indexes out of range in its backward, for values that the compiler does not see."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.ones(3)[(gradients[0].abs() + 7).long()]


def _in_the_backward(x: torch.Tensor) -> torch.Tensor:
    return _OutOfRange.apply(x.sin())


def _in_the_forward(x: torch.Tensor) -> torch.Tensor:
    return x.sin()[(x.abs() + 7).long()]


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [_in_the_forward, _in_the_backward])
def test_a_failure_of_compiled_code_comes_again(
    tmp_path: Path, function: object, backend: str
) -> None:
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            compiled = torch.compile(function, backend=backend)  # type: ignore[call-overload]
            compiled(torch.ones(3, requires_grad=True)).sum().backward()

    with pytest.raises((IndexError, RuntimeError), match="out of"):
        program()
    with Store.open(tmp_path / "run.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        (failure,) = queries.failures(store)
        verdict = replay(store, compile)
    partition = "backward" if function is _in_the_backward else ""
    assert (failure.stage, failure.partition.removeprefix("forward")) == ("run", partition)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    (row,) = [row for row in verdict.compared if row.kind == "failure"]
    assert (row.recorded, row.replayed, row.identical) == (1, 1, 1)


def test_a_failure_that_says_another_number_is_another(tmp_path: Path) -> None:
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            torch.compile(_in_the_forward, backend="aot_eager")(torch.ones(3))

    with pytest.raises(IndexError, match="index 8 is out of bounds"):
        program()
    with closing(connect(tmp_path / "run.db")) as raw, raw:
        raw.execute("UPDATE failures SET message = replace(message, 'index 8 ', 'index 7 ')")
    with Store.open(tmp_path / "run.db", write=True) as store:
        verdict = replay(store, queries.compiles(store, 1)[0])
    assert verdict.verdict == "diverged"
    assert '"index 7 is out of' in verdict.detail, verdict
    assert 'then "index 8 is out of' in verdict.detail, verdict


@pytest.mark.sampled
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_double_backward_is_refused_again(tmp_path: Path, backend: str) -> None:
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            x = torch.ones(3, requires_grad=True)
            y = torch.compile(lambda x: (x.sin() * x).sum(), backend=backend)(x)
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
            gradient.sum().backward()  # type: ignore[no-untyped-call]

    with pytest.raises(RuntimeError, match="double backward"):
        program()
    with Store.open(tmp_path / "run.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        verdict = replay(store, compile)
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert [row.replayed for row in verdict.compared if row.kind == "failure"] == [1]


@pytest.mark.sampled
@pytest.mark.parametrize("entry", ["graph", "frame"])
def test_a_backward_that_is_to_keep_its_graph_is_refused_again(tmp_path: Path, entry: str) -> None:
    """Once it was compiled with donated buffers; the frame's inputs are no leaves."""
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db"), settings=Settings(frames="all")):
            x = torch.ones(3, 2, requires_grad=True) * 1
            w = torch.ones(2, 2, requires_grad=True)
            compiled = torch.compile(lambda x: (x.tanh() @ w).tanh().sum(), backend="aot_eager")
            compiled(x).backward()
            compiled(x.detach().requires_grad_() * 1).backward(retain_graph=True)

    with pytest.raises(RuntimeError, match="donated buffers"):
        program()
    with Store.open(tmp_path / "run.db", write=True) as store:
        (compile,) = queries.compiles(store, 1)
        (failure,) = queries.failures(store)
        verdict = replay(store, compile, entry, trust=True)  # type: ignore[arg-type]
        with pytest.raises(UnsupportedError, match="donated_buffer"):
            starting_cases(store, compile, failure)
    assert failure.partition == "repeated backward"
    assert (verdict.verdict, verdict.detail, verdict.difference) == ("identical", "", "")
    assert [row.replayed for row in verdict.compared if row.kind == "failure"] == [1]
