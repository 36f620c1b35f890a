"""Triton kernels of a program's own: one that is right, and two that do not compile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.autotune(  # type: ignore[untyped-decorator]
    configs=[triton.Config({"BLOCK": n}, num_warps=w) for n, w in ((128, 4), (256, 4), (1024, 8))],
    key=["n"],
)
@triton.jit
def _add(x, y, out, scale, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    sum = tl.load(x + at, mask=inside) + scale * tl.load(y + at, mask=inside)
    tl.store(out + at, sum, mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """Return x + scale * y."""
    out, n = torch.empty_like(x), x.numel()
    _add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, scale, n)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _crooked(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)  # a range has a power of two
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def crooked(x: torch.Tensor) -> torch.Tensor:
    """Raise CompilationError."""
    out = torch.empty_like(x)
    _crooked[(1,)](x, out, x.numel(), BLOCK=1000)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _greedy(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    block = tl.load(x + at)
    tl.store(out + at, tl.dot(block, block))


def greedy(x: torch.Tensor) -> torch.Tensor:
    """Raise OutOfResources: the product of two blocks does not fit into shared memory."""
    out = torch.empty_like(x)
    _greedy[(1,)](x, out, N=x.shape[0])
    return out
