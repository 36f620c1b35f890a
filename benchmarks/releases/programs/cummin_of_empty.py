"""A running minimum of no elements, along a dimension that eager does not look at."""

import torch
from torch import Tensor


def fn(x: Tensor) -> Tensor:
    return torch.cummin(x * 2, -5)[0]


x = torch.empty(0)
fn(x)
print("eager: no error", flush=True)
torch.compile(fn)(x)
