"""A scoring head that keeps the best K tokens of a sequence. Eager runs it; torch.compile does not.

With K = 0 nothing is kept, and the positions that the scores are scattered to have no element.
Eager does not look at the dtype of an index without elements; Inductor's lowering of `scatter`
does, and raises. (The pattern of https://github.com/pytorch/pytorch/issues/188213.)
"""

import torch
import torch.nn.functional as F
from torch import nn


class KeepBest(nn.Module):
    """Mixes tokens, scores them, and returns their mean and a table of the K best scores."""

    def __init__(self, width: int, kept: int) -> None:
        super().__init__()
        self.kept = kept
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        self.score = nn.Linear(width, 1)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = tokens + self.back(F.silu(self.mix(self.norm(tokens))))
        scores = torch.tanh(self.score(hidden)).squeeze(-1)
        mean = (hidden * torch.softmax(scores, dim=-1).unsqueeze(-1)).sum(dim=1)
        best = scores.sort(dim=-1, descending=True).values[:, : self.kept]
        ranks = torch.floor(best * 10).clamp(min=0)
        table = torch.scatter(best, 1, ranks, best)
        return mean, table * 0.5


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = KeepBest(width=16, kept=0)
    tokens = torch.randn(2, 6, 16)
    mean, table = model(tokens)
    print("eager:", tuple(mean.shape), tuple(table.shape))
    mean, table = torch.compile(model)(tokens)
    print("compiled:", tuple(mean.shape), tuple(table.shape))


if __name__ == "__main__":
    main()
