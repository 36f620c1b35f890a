"""A sum of halves that is taken as a truth value: the generated C++ does not compile."""

import torch
from torch import Tensor


def fn(x: Tensor) -> Tensor:
    return torch.sum(x.relu().half(), dim=-1, dtype=torch.bool)


x = torch.randn(4, 16)
fn(x)
print("eager: no error", flush=True)
torch.compile(fn)(x)
