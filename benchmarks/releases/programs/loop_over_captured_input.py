"""A while_loop whose body captures the tensor that it starts with."""

import torch
from torch import Tensor
from torch._higher_order_ops.while_loop import while_loop


def fn(x: Tensor) -> object:
    captured = x
    return while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v + captured), (torch.tensor(0), x))


x = torch.randn(3)
fn(x)
print("eager: no error", flush=True)
torch.compile(fn, backend="aot_eager")(x)
