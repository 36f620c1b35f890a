"""An operator that lifts a constant into a trace, called by the program itself."""

import torch
from torch import Tensor


def fn(x: Tensor) -> Tensor:
    return torch.ops.aten.lift(x) + 1


x = torch.randn(3)
fn(x)
print("eager: no error", flush=True)
torch.compile(fn, backend="aot_eager")(x)
