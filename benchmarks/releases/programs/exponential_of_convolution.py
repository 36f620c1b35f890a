"""A matrix exponential of a convolution, whose layout the compiled code does not expect."""

import torch
import torch.nn.functional as F
from torch import Tensor


def fn(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matrix_exp(F.conv2d(torch.sinh(x), weight))


x, weight = torch.rand(3, 4, 8, 8), torch.randn(6, 4, 1, 1)
with torch.no_grad():
    fn(x, weight)
    print("eager: no error", flush=True)
    torch.compile(fn)(x, weight)
