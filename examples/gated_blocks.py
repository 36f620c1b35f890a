"""Blocks that act on rows with an active channel. Eager runs them; torch.compile does not.

Whether a row is active is the sum of half-precision numbers, taken as a truth value; the C++ that
Inductor generates for such a sum does not compile. (The pattern of
https://github.com/pytorch/pytorch/issues/197106.)
"""

import torch
import torch.nn.functional as F
from torch import nn


class GatedBlock(nn.Module):
    """Adds its layer's output to the rows that have an active channel, and dampens the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        mixed = F.silu(self.mix(self.norm(rows)))
        active = torch.sum(F.relu(mixed).to(torch.float16), dim=-1, dtype=torch.bool)
        return torch.where(active.unsqueeze(-1), rows + mixed, rows * 0.5)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(GatedBlock(16), GatedBlock(16))
    rows = torch.randn(4, 16)
    print("eager:", tuple(model(rows).shape))
    print("compiled:", tuple(torch.compile(model)(rows).shape))


if __name__ == "__main__":
    main()
