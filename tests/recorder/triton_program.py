"""A Triton kernel of the program's own, compiled for a GPU that is not there.

The facts of a GPU are imposed, its tensors have no memory, and what is compiled is not run: up to
its output code, a compile asks for no more.  Needs the extra `triton`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from tests.replay import devices
from torchreel.replay import dynamo_names
from torchreel.replay.imposed.facts import Facts
from torchreel.replay.imposed.torch_machine import imposed
from torchreel.torch_compat.inductor import code_generation


@triton.jit  # type: ignore[untyped-decorator]
def double(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def doubled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    double[(1,)](x, y, x.numel(), BLOCK=16)
    return y.sin()


def compile_it(compile_: Callable[..., object]) -> None:
    """Compile a function that calls the kernel."""
    with (
        imposed(Facts(accelerator=devices.H200)) as left,
        code_generation.without_cpp_compiler(),
        dynamo_names.compile_only(doubled.__code__),
        contextlib.suppress(dynamo_names.TracingStopped),
    ):
        assert not left, left
        compile_(doubled)(torch.empty(16, device="cuda"))  # type: ignore[operator]
