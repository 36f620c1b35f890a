"""A tensor without memory, as the gradient of the sign is: the compiled kernel reads it."""

import torch
from torch import Tensor


def fn(t: Tensor) -> Tensor:
    return t[-1] + 10


x = torch.randn(3, requires_grad=True)
(zero,) = torch.autograd.grad(torch.sgn(x).sum(), x)
fn(zero)
print("eager: no error", flush=True)
torch.compile(fn)(zero)
