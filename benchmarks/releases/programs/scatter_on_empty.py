"""A scatter into a tensor without elements: the lowering asserts what kind of index it has."""

import torch
from torch import Tensor


def fn(x: Tensor) -> Tensor:
    empty = torch.relu(x)[:, :0]
    return torch.scatter(empty, 1, empty, empty) + 1


x = torch.randn(2, 3)
fn(x)
print("eager: no error", flush=True)
torch.compile(fn)(x)
