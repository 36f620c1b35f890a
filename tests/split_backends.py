"""Backends that split the graph they are given and compile the parts apart, as vLLM does.

Imported by the tests, and run as a program: `python -m tests.split_backends PIECES ENTRY`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule, Interpreter
from torch.fx.passes.split_module import split_module

SIZE = 4
"""The one size for which each part is compiled once more."""

Entry = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


class Layers(torch.nn.Module):
    """A model of `count` layers; the part that is compiled apart is a layer."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layers in turn."""
        for number, layer in enumerate(self.layers):
            x = layer(x).relu() + number
        return x


def at_linears(gm: GraphModule) -> GraphModule:
    """Split a graph so that each part begins with a linear layer."""
    parts, part = {}, -1
    for node in gm.graph.nodes:
        part += "linear" in str(node.target)
        parts[node] = max(part, 0)
    return split_module(gm, None, parts.__getitem__, tuple_return=True)


def standalone(gm: GraphModule, inputs: Sequence[Any], how: str = "from_graph") -> Any:
    """Compile by `standalone_compile`."""
    return torch._inductor.standalone_compile(gm, inputs, dynamic_shapes=how)


def by_inductor(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by `compile_fx`."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(copy.deepcopy(gm), inputs)


def in_inference_mode(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by `compile_fx` in inference mode, which Dynamo has left."""
    with torch.inference_mode():
        return by_inductor(gm, inputs)


def by_own_inner(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by `compile_fx`, with a function of the program's own in place of Inductor's."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(copy.deepcopy(gm), inputs, inner_compile=_inner)


def _inner(gm: GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
    return _as_it_is(gm, inputs)


def by_aot(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by AOTAutograd, with a compiler of the program's own."""
    from torch._functorch.aot_autograd import aot_module_simplified

    return aot_module_simplified(gm, inputs, fw_compiler=_as_it_is, bw_compiler=_as_it_is)


def by_aot_backend(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by the class that Dynamo's backends are made of."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=_as_it_is)(gm, inputs)


def by_failing(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    """Compile by `compile_fx`, with a lowering that fails."""
    from torch._inductor.lowering import lowerings

    relu = torch.ops.aten.relu.default
    known = lowerings[relu]
    lowerings[relu] = _no_lowering
    try:
        return by_inductor(gm, inputs)
    finally:
        lowerings[relu] = known


def _no_lowering(*args: Any) -> NoReturn:
    raise NotImplementedError("planted: no lowering of relu")


def _as_it_is(gm: GraphModule, inputs: Sequence[Any]) -> Any:
    from functorch.compile import make_boxed_func

    return make_boxed_func(gm.forward)


ENTRIES: dict[str, Entry] = {
    "standalone": standalone,
    "compile_fx": by_inductor,
    "own_inner": by_own_inner,
    "aot": by_aot,
    "aot_backend": by_aot_backend,
}


class _Compiling(Interpreter):
    """Compiles each part with the fake inputs that reach it, for a range and for one size."""

    def __init__(self, gm: GraphModule, entry: str, lazy: bool) -> None:
        super().__init__(gm)
        self.entry, self.lazy = entry, lazy
        self.compiled: dict[str, Callable[..., Any]] = {}

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        part = self.fetch_attr(target)
        by_size: dict[int, Any] = {}

        def sized() -> Any:
            given = [_with_size(value) for value in args]
            return standalone(part, given, "from_example_inputs")

        general = ENTRIES[self.entry](part, args)
        if self.entry == "standalone" and not self.lazy:
            by_size[SIZE] = sized()

        def run(*given: Any) -> Any:
            size = next((value for value in given if isinstance(value, int)), 0)
            if self.lazy and size == SIZE and SIZE not in by_size:
                by_size[SIZE] = sized()
            return by_size.get(size, general)(*given)

        self.compiled[target] = run
        (output,) = part.graph.find_nodes(op="output")
        return torch.fx.map_arg(output.args[0], lambda node: node.meta["example_value"])


def _with_size(value: Any) -> Any:
    if isinstance(value, torch.SymInt):
        return SIZE
    sizes = [SIZE if isinstance(size, torch.SymInt) else size for size in value.shape]
    return torch.empty(sizes)


def splitting(entry: str = "standalone", *, lazy: bool = False) -> Callable[..., Any]:
    """Make a backend that compiles parts by `entry`; `lazy`: one size only when it comes."""

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        whole = at_linears(gm)
        fakes = [node.meta["example_value"] for node in whole.graph.find_nodes(op="placeholder")]
        compiling = _Compiling(whole, entry, lazy)
        # Those of the graph, which are other objects than what reaches the backend.
        with torch._guards.detect_fake_mode(fakes):
            compiling.run(*fakes)
        for name, run in compiling.compiled.items():
            whole.__dict__[name] = run
        return whole.forward

    return backend


def regional(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile by AOTAutograd, which hands the annotated regions to Inductor."""
    from torch._dynamo.backends.common import aot_autograd
    from torch.fx.passes.regional_inductor import regional_inductor

    return aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)(gm, inputs)


def with_region(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two calls in a region that is to be compiled, two around it."""
    before = torch.sin(x)
    with torch.fx.traceback.annotate({"compile_with_inductor": 0}):
        inside = before * y + 1
    return torch.sin(inside)


def run_region() -> None:
    """Compile a region forwards and backwards."""
    x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
    with torch.fx.traceback.preserve_node_meta(enable=True):
        torch.compile(with_region, backend=regional, fullgraph=True)(x, y).sum().backward()


def run_alone() -> None:
    """Hand a graph to Inductor, outside of any compile: with the sizes of a graph, and its own."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(4, 8)
    gm = make_fx(lambda x: [x.sin() + 1])(x)
    for how in ("from_graph", "from_example_inputs"):
        standalone(gm, [x], how)(x)


def run(count: int, entry: str = "standalone", *, lazy: bool = False, grad: bool = False) -> None:
    """Compile a model of `count` parts, and run it with two sizes."""
    model = Layers(count).requires_grad_(grad)
    first, second = torch.randn(6, 4), torch.randn(SIZE, 4)
    torch._dynamo.mark_dynamic(first, 0)
    compiled = torch.compile(model, backend=splitting(entry, lazy=lazy))
    for x in (first, second):
        torch.testing.assert_close(compiled(x), model(x))


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2])
