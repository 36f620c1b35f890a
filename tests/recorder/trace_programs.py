"""Programs whose trace `test_completeness` compares with the store's: run as a script.

    python trace_programs.py BACKEND PROGRAM [PROGRAM ...]

Before each, a record of kind `program` goes into the trace, so that one process can run several.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable

import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.wrap import wrap
from torch._logging import trace_structured
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint


def _gpt2(compile_: Callable[..., object]) -> None:
    _language_model(compile_, "gpt2", dynamic=False)


def _gpt2_dynamic(compile_: Callable[..., object]) -> None:
    _language_model(compile_, "gpt2", dynamic=True)


def _bert(compile_: Callable[..., object]) -> None:
    _language_model(compile_, "bert", dynamic=False)


def _llama(compile_: Callable[..., object]) -> None:
    _language_model(compile_, "llama", dynamic=True)


def _language_model(compile_: Callable[..., object], name: str, *, dynamic: bool) -> None:
    from benchmarks.model_program import MODELS

    model = MODELS[name]().eval()
    tokens = torch.randint(0, 100, (2, 17))
    if dynamic:
        torch._dynamo.mark_dynamic(tokens, 1)
    with torch.no_grad():
        compile_(model)(input_ids=tokens)  # type: ignore[operator]


def _cnn(compile_: Callable[..., object]) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), y)

    loss = compile_(step)(torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))  # type: ignore[operator]
    loss.backward()
    optimizer.step()


def _cond(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    compile_(f)(torch.ones(3))  # type: ignore[operator]


def _while_loop(compile_: Callable[..., object]) -> None:
    def f(n: torch.Tensor, x: torch.Tensor) -> object:
        return while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x * 2), (n, x))

    compile_(f)(torch.tensor(3), torch.ones(3))  # type: ignore[operator]


def _scan(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor) -> object:
        return scan(lambda carry, y: (carry + y, carry * y), torch.zeros(3), x)

    compile_(f)(torch.ones(4, 3))  # type: ignore[operator]


def _associative_scan(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor) -> object:
        return associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")

    compile_(f)(torch.ones(4, 3))  # type: ignore[operator]


def _map(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> object:
        return map_(lambda row, y: row.sin() + y, x, y)

    compile_(f)(torch.ones(4, 3), torch.ones(3))  # type: ignore[operator]


def _invoke_subgraph(compile_: Callable[..., object]) -> None:
    @torch.compiler.nested_compile_region
    def region(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    compile_(lambda x: region(region(x)))(torch.ones(3))  # type: ignore[operator]


def _flex_attention(compile_: Callable[..., object]) -> None:
    def f(q: torch.Tensor) -> object:
        return flex_attention(q, q, q, score_mod=lambda score, b, h, m, n: score + (m - n))

    compile_(f)(torch.randn(1, 2, 16, 16))  # type: ignore[operator]


def _wrap(compile_: Callable[..., object]) -> None:
    compile_(lambda x: wrap(lambda y: y.sin() + x.shape[0], x))(torch.ones(3))  # type: ignore[operator]


def _checkpoint(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False).sum()  # type: ignore[no-any-return]

    compile_(f)(torch.ones(3, requires_grad=True)).backward()  # type: ignore[operator]


@torch.library.custom_op("torchreel_tests::double_", mutates_args={"x"})
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


def _auto_functionalized(compile_: Callable[..., object]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        double_(y)
        return y.cos()

    compile_(f)(torch.ones(3))  # type: ignore[operator]


def _recompile(compile_: Callable[..., object]) -> None:
    """Graph break, recompile, and a failure that the program handles."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    def broken(gm: object, inputs: object) -> object:
        raise RuntimeError("on purpose")

    for size in (3, 4):
        compile_(f)(torch.ones(size))  # type: ignore[operator]
    with contextlib.suppress(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(lambda x: x.tan(), backend=broken)(torch.ones(2))


def _triton_kernel(compile_: Callable[..., object]) -> None:
    from tests.recorder.triton_program import compile_it

    compile_it(compile_)


MODELS_: dict[str, Callable[[Callable[..., object]], None]] = {
    "gpt2": _gpt2, "gpt2-dynamic": _gpt2_dynamic, "bert": _bert, "llama": _llama, "cnn": _cnn,
}  # fmt: skip
OPERATORS: dict[str, Callable[[Callable[..., object]], None]] = {
    "cond": _cond, "while_loop": _while_loop, "scan": _scan, "associative_scan": _associative_scan,
    "map": _map, "invoke_subgraph": _invoke_subgraph, "flex_attention": _flex_attention,
    "checkpoint": _checkpoint, "auto_functionalized": _auto_functionalized,
    "wrap": _wrap, "recompile": _recompile,
}  # fmt: skip
if importlib.util.find_spec("triton") is not None:
    # The first one: whether there is a GPU for Triton is asked once in a process.
    OPERATORS = {"triton_kernel": _triton_kernel, **OPERATORS}
PROGRAMS = {**MODELS_, **OPERATORS}


def main(backend: str, *names: str) -> None:
    """Run programs one after the other."""
    torch.manual_seed(0)
    for name in names:
        torch._dynamo.reset()
        trace_structured("program", lambda name=name: {"name": name}, expect_trace_id=False)
        PROGRAMS[name](lambda f: torch.compile(f, backend=backend))


if __name__ == "__main__":
    main(*sys.argv[1:])
