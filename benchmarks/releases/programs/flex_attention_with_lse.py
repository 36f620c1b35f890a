"""Flex attention that returns the logarithm of the sum of exponentials, on a CPU."""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention


def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out, lse = flex_attention(q, k, v, return_lse=True)
    return out * lse.unsqueeze(-1)


q, k, v = (torch.randn(1, 2, 16, 16) for _ in range(3))
with torch.no_grad():
    fn(q, k, v)
    print("eager: no error", flush=True)
    torch.compile(fn)(q, k, v)
