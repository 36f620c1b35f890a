"""One small trace in the worker itself: what Dynamo imports on its first frame takes most of a run.

Called by `worker` before it forks. The function runs on one element, which starts no thread.
"""

from __future__ import annotations

import torch
from torch.utils.checkpoint import checkpoint


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


def trace_once() -> None:
    """Let Dynamo trace a module, a loop and a checkpoint, with a dynamic size."""
    layer = _Layer()

    def program(x: torch.Tensor) -> object:
        for _ in range(2):
            x = layer(x)
        return checkpoint(torch.relu, x, use_reentrant=False)

    with torch.no_grad():
        torch.compile(program, backend="eager", dynamic=True)(torch.ones(1, 1))
    torch.compiler.reset()
