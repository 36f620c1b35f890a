"""No tensor outlives its owner: each dies in the very moment in which it dies without the recorder.

A program looks, with the collector of cycles switched off, which of its tensors are gone: after it
let go of them, after the caches of Dynamo were reset, after a collection.  It does so twice.
"""

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import torchreel
from torchreel.recorder.frames import secrets
from torchreel.store import Store, queries

Watch = Callable[[str, torch.Tensor], torch.Tensor]


class Layer(nn.Module):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.weight = nn.Parameter(watch("parameter's data", torch.randn(4, 4)))
        self.register_buffer("table", watch("buffer", torch.ones(4)))
        watch("parameter", self.weight)
        self.watch = watch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.watch("intermediate of eager code", _broken(x @ self.weight))
        return (y * self.table).sin()


@torch._dynamo.disable
def _broken(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def trains(watch: Watch) -> None:
    """Breaks, backward, a dynamic recompile; the graph's own fake tensors are watched as well."""
    numbers = iter(range(10_000))

    def look(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        for node in gm.graph.nodes:
            if isinstance(node.meta.get("val"), torch.Tensor):
                watch(f"fake {next(numbers)} of {node.name}", node.meta["val"])
        return make_boxed_func(gm.forward)

    model = Layer(watch)
    step = torch.compile(model, backend=aot_autograd(fw_compiler=look))
    for size in (2, 3):
        x = watch(f"input {size}", torch.ones(size, 4, requires_grad=True))
        out = watch(f"output {size}", step(x))
        out.sum().backward()
        assert x.grad is not None
        watch(f"gradient {size}", x.grad)


def branches(watch: Watch) -> None:
    """Bodies of an operator that lift a tensor, a subclass, and a backward that is captured."""
    scale = watch("lifted", torch.full((3,), 2.0))

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * scale, lambda x: x - scale, (x,))

    watch("one branch", torch.compile(f, backend="aot_eager")(watch("input", torch.ones(3))))
    leaf = watch("leaf", torch.ones(3, requires_grad=True))
    first, second = (watch(f"inner {n}", torch.ones(3)) for n in range(2))
    whole = watch("subclass", TwoTensor(first, second))
    watch("output of it", torch.compile(torch.sin, backend="aot_eager")(whole))
    with (
        torch._dynamo.config.patch(compiled_autograd=True),
        torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")),
    ):
        out = watch("output", torch.compile(lambda x: x * scale, backend="aot_eager")(leaf))
        out.sum().backward()
    assert leaf.grad is not None
    watch("gradient", leaf.grad)


def exports(watch: Watch) -> None:
    """What does not pass through Dynamo; the export that fails holds its inputs."""
    module = Layer(lambda name, tensor: tensor)
    for name, parameter in module.named_parameters():
        watch(name, parameter)
    x = watch("example", torch.ones(2, 4))
    program = torch.export.export(torch.nn.Linear(4, 2), (x,))
    watch("parameter of the program", program.state_dict["weight"])
    program.run_decompositions()
    traced = make_fx(lambda x: x.sin() + watch("constant", torch.ones(4)), tracing_mode="fake")(x)
    del traced
    with contextlib.suppress(torch._dynamo.exc.UserError):
        torch.export.export(
            torch.nn.Linear(4, 2), (x,), dynamic_shapes=({1: torch.export.Dim("columns")},)
        )


def fails_in_the_backend(watch: Watch) -> None:
    """What the frames of an exception hold goes with it."""

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        held = watch("local of the backend", torch.ones(9))
        watch("fake one", inputs[0])
        raise ValueError(f"no {held.shape}")

    _attempt(watch, lambda x: x.sin(), backend)


def fails_in_dynamo(watch: Watch) -> None:
    held = watch("closure", torch.ones(3))

    def f(x: torch.Tensor) -> torch.Tensor:
        return undefined(x + held)  # type: ignore[name-defined,no-any-return] # noqa: F821

    _attempt(watch, f, "eager")


def fails_in_the_kernel(watch: Watch) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        def run(*args: torch.Tensor) -> object:
            held = watch("local of compiled code", args[0] + 1)
            raise ValueError(f"at {held.shape}")

        return run

    _attempt(watch, lambda x: x.sin(), backend)


def _attempt(watch: Watch, function: Callable[[torch.Tensor], object], backend: object) -> None:
    x = watch("argument", torch.ones(3))
    try:
        torch.compile(function, backend=backend, fullgraph=True)(x)  # type: ignore[call-overload]
    except Exception as error:  # noqa: BLE001  (whatever it is)
        watch("held by the exception", _local(error, x))
    else:
        raise AssertionError("it went well")


def _local(error: Exception, x: torch.Tensor) -> torch.Tensor:
    error.held = x * 2  # type: ignore[attr-defined]
    return error.held  # type: ignore[attr-defined,no-any-return]


def moments(program: Callable[[Watch], None]) -> Iterator[dict[str, bool]]:
    """Which tensors are alive: when the program is done, after a reset, after a collection."""
    watched: dict[str, weakref.ref[torch.Tensor]] = {}

    def watch(name: str, tensor: torch.Tensor) -> torch.Tensor:
        watched[name] = weakref.ref(tensor)
        return tensor

    torch._dynamo.reset()
    gc.collect()
    gc.disable()
    try:
        program(torch._dynamo.disable(watch))
        yield {name: found() is not None for name, found in watched.items()}
        torch._dynamo.reset()
        yield {name: found() is not None for name, found in watched.items()}
    finally:
        gc.enable()
    gc.collect()
    yield {name: found() is not None for name, found in watched.items()}


# How many tensors are watched at least, and how many failures are recorded: one of compiled code
# that the program handles is its own.
PROGRAMS = {
    "trains": (trains, 25, 0),
    "branches": (branches, 9, 0),
    "exports": (exports, 3, 1),
    "fails in the backend": (fails_in_the_backend, 4, 1),
    "fails in Dynamo": (fails_in_dynamo, 3, 1),
    "fails in the kernel": (fails_in_the_kernel, 3, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "flight"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tensor_dies_when_it_dies_without_the_recorder(path: Path, name: str, mode: str) -> None:
    program, at_least, failures = PROGRAMS[name]
    list(moments(program))  # what torch imports, and caches for good, at first
    plain = list(moments(program))
    with torchreel.record(path, mode):
        recorded = list(moments(program))
    assert recorded == plain
    done, _, collected = plain
    assert len(done) >= at_least
    # (What a traceback holds is part of a cycle.)
    assert name != "trains" or not all(done.values()), "nothing dies by itself: this shows nothing"
    # torch itself keeps some fake tensors, with the metadata of its graphs.
    assert [n for n, alive in collected.items() if alive and not n.startswith("fake")] == []
    with Store.open(path) as store:
        assert queries.compiles(store, 1)
        assert len(queries.failures(store)) == failures


def test_a_frame_that_still_runs_keeps_nothing() -> None:
    """Its locals are not asked for: Python 3.11 and 3.12 would keep them in a dict of the frame."""

    def compiles() -> None:
        with pytest.raises(KeyError) as raised:
            raise KeyError("of torch's")
        assert list(secrets.of_error(raised.value))

    def program(tokens: list[str]) -> object:
        held = torch.ones(3)
        seen = weakref.ref(held)
        try:
            raise ValueError(tokens)
        except ValueError:
            compiles()
        del held
        return seen()

    assert program(["no secret"]) is None
