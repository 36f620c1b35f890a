"""Blocks under activation checkpointing, called with and without a context, in dynamic sizes."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8, eps=1e-5)
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        x = x + self.mix(self.norm(x))
        return x if context is None else x * context.mean(1, keepdim=True)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        alone = given = x
        for block in self.blocks:
            alone = checkpoint(block, alone, None, use_reentrant=False)
        for block in self.blocks:
            given = checkpoint(block, given, context, use_reentrant=False)
        return alone.sum() + given.sum()


model, inputs = Model(), (torch.randn(3, 7, 8), torch.randn(3, 5, 8))
model(*inputs)
print("eager: no error", flush=True)
torch.compile(model, dynamic=True, backend="aot_eager")(*inputs)
