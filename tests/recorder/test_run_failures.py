"""An exception of compiled code, under any backend and in the backward, is a failure of its run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchreel
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Failure


class _Refuses(torch.autograd.Function):
    """Has a backward that fails when it runs."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        # Out of range only for values that the compiler does not see.
        return torch.ones(3)[(gradients[0] * 0 + 7).long()]


def _index(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return x.sin()[at] + 1


def failures(path: Path, backend: str, *, backward: bool = False) -> list[Failure]:
    """Record a call that raises where its compiled code runs."""
    torch._dynamo.reset()
    function = _Refuses.apply if backward else _index
    given = (torch.ones(3, requires_grad=True),) if backward else (torch.ones(3), torch.tensor([7]))

    def program() -> None:
        with torchreel.record(str(path)):
            torch.compile(function, backend=backend)(*given).sum().backward()

    with pytest.raises(IndexError):
        program()
    with Store.open(path) as store:
        return queries.failures(store)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_of_a_forward(tmp_path: Path, backend: str) -> None:
    (failure,) = failures(tmp_path / "run.db", backend)
    assert (failure.stage, failure.partition) == ("run", "")
    assert failure.exception_type.endswith("IndexError")


def test_of_a_compiled_backward(tmp_path: Path) -> None:
    (failure,) = failures(tmp_path / "run.db", "aot_eager", backward=True)
    assert (failure.stage, failure.partition) == ("run", "backward")


def _differentiated_twice(x: torch.Tensor, y: torch.Tensor) -> None:
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    gradient.sum().backward()  # type: ignore[no-untyped-call]


def _under_vmap(x: torch.Tensor, y: torch.Tensor) -> None:
    torch.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True)[0])(torch.eye(3))


@pytest.mark.parametrize(
    ("use", "partition"),
    [(_differentiated_twice, "double backward"), (_under_vmap, "backward")],
)
def test_where_aotautograd_refuses_to_call_a_backward(
    tmp_path: Path, use: Callable[[torch.Tensor, torch.Tensor], None], partition: str
) -> None:
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            x = torch.ones(3, requires_grad=True)
            use(x, torch.compile(lambda x: x.sin() * x, backend="aot_eager")(x))

    with pytest.raises(RuntimeError, match=r"double backward|within vmap"):
        program()
    with Store.open(tmp_path / "run.db") as store:
        (failure,) = queries.failures(store)
    assert (failure.stage, failure.partition) == ("run", partition)


def test_an_exception_of_the_program_itself_is_none(tmp_path: Path) -> None:
    """Though it is raised between calls of compiled code."""
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
            raise ValueError("the program's own")

    with pytest.raises(ValueError, match="own"):
        program()
    with Store.open(tmp_path / "run.db") as store:
        assert queries.failures(store) == []


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.sum()


def test_of_an_instruction_that_dynamo_wrote(tmp_path: Path) -> None:
    """Dynamo may ask for a global that it has not installed (after pytorch#193933)."""
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            compiled = torch.compile(_sum, backend="eager")
            compiled(torch.ones(3))
            for name in [name for name in globals() if name.startswith("__compiled_fn")]:
                del globals()[name]
            compiled(torch.ones(3))

    with pytest.raises(NameError):
        program()
    with Store.open(tmp_path / "run.db") as store:
        (failure,) = queries.failures(store)
        (compile,) = queries.compiles(store, 1)
    assert (failure.stage, failure.exception_type) == ("run", "NameError")
    assert (failure.compile_id, compile.status) == (compile.id, "failed")
    assert failure.signature.message == "name 'NAME' is not defined"


def _has_no_name(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + not_defined  # type: ignore[name-defined,no-any-return]  # noqa: F821


def _raises(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    raise ValueError(len(y))


def _has_no_key(x: torch.Tensor) -> torch.Tensor:
    y, known = x.sin(), dict[str, int]()
    print("a graph break")
    return y + known["it"]


@pytest.mark.parametrize("function", [_has_no_name, _raises, _has_no_key])
def test_of_an_instruction_of_the_program_in_generated_code(
    tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Eager mode raises as well."""
    torch._dynamo.reset()

    def program() -> None:
        with torchreel.record(str(tmp_path / "run.db")):
            torch.compile(function, backend="eager")(torch.ones(3))

    with pytest.raises((NameError, ValueError, KeyError)):
        program()
    with Store.open(tmp_path / "run.db") as store:
        assert queries.compiles(store, 1)
        assert queries.failures(store) == []
