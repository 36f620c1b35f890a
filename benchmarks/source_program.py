"""A model of three hundred lines: three modules, helper functions, a config; Dynamo can't trace it.

`ranked` sorts experts by what their gates computed: in eager mode a sort of small tensors, for
Dynamo one with keys that are not constant. Everything else is traced without complaint.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pooling(Enum):
    """How a sequence becomes a vector."""

    MEAN = "mean"
    LAST = "last"
    LARGEST = "largest"


@dataclass
class Settings:
    """The sizes and switches of a model."""

    width: int = 32
    heads: int = 4
    depth: int = 2
    experts: int = 3
    words: int = 50
    length: int = 16
    dropout: float = 0.0
    eps: float = 1e-5
    pooling: Pooling = Pooling.MEAN
    temperature: float = 0.7
    clip: float | None = 4.0
    activation: str = "gelu"
    names: list[str] = field(default_factory=lambda: ["text", "aux"])

    @property
    def head_width(self) -> int:
        """The width of one head."""
        return self.width // self.heads


class Scored(NamedTuple):
    """An expert's output, with the gate that it got."""

    gate: Tensor
    value: Tensor


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "squared": lambda x: F.relu(x) ** 2,
}

SCALES = (1.0, 0.5, 0.25)


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where a position may not look."""
    rows = torch.arange(length, device=device)[:, None]
    columns = torch.arange(length, device=device)[None, :]
    return columns > rows


def sinusoids(length: int, width: int) -> Tensor:
    """Positions as sines and cosines."""
    step = math.log(10_000) / max(width // 2 - 1, 1)
    frequencies = torch.exp(-step * torch.arange(width // 2))
    angles = torch.arange(length)[:, None] * frequencies[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, width) as (batch, heads, length, width / heads)."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """What `split_heads` split."""
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


def clipped(x: Tensor, limit: float | None) -> Tensor:
    """Within the limit, if there is one."""
    if limit is None:
        return x
    return torch.clamp(x, -limit, limit)


def scaled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A decorator: the result is scaled by `scale`, if that is given."""

    @functools.wraps(function)
    def wrapper(*args: Tensor, scale: float = 1.0, **kwargs: object) -> Tensor:
        result = function(*args, **kwargs)
        if scale != 1.0:
            result = result * scale
        return result

    return wrapper


@scaled
def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention, written out."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return scores.softmax(dim=-1) @ value


def pooled(x: Tensor, how: Pooling) -> Tensor:
    """One vector per sequence."""
    if how is Pooling.MEAN:
        return x.mean(dim=1)
    if how is Pooling.LAST:
        return x[:, -1]
    return x.amax(dim=1)


def entropy(gates: Tensor) -> Tensor:
    """How undecided the gates are."""
    return -(gates * (gates + 1e-9).log()).sum(dim=-1).mean()


def ranked(found: Sequence[Scored]) -> list[Scored]:
    """The experts, those with the largest gates first."""
    return sorted(found, key=lambda scored: scored.gate.sum(), reverse=True)


def blended(found: Sequence[Scored], scales: Sequence[float] = SCALES) -> Tensor:
    """A sum of experts in which the better ones count more."""
    total = torch.zeros_like(found[0].value)
    for scored, scale in zip(ranked(found), scales, strict=False):
        total = total + scored.gate * scored.value * scale
    return total


class Attention(nn.Module):
    """Causal self-attention with a residual."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.norm = nn.LayerNorm(settings.width, eps=settings.eps)
        self.query = nn.Linear(settings.width, settings.width)
        self.key = nn.Linear(settings.width, settings.width, bias=False)
        self.value = nn.Linear(settings.width, settings.width)
        self.out = nn.Linear(settings.width, settings.width)
        self.dropout = nn.Dropout(settings.dropout)
        self.reset()

    def reset(self) -> None:
        """Small weights."""
        for layer in (self.query, self.key, self.value, self.out):
            nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The same shape."""
        normed = self.norm(x)
        heads = self.settings.heads
        query = split_heads(self.query(normed), heads)
        key = split_heads(self.key(normed), heads)
        value = split_heads(self.value(normed), heads)
        mixed = attention(query, key, value, mask=mask, scale=0.9)
        return x + self.dropout(self.out(join_heads(mixed)))


class Expert(nn.Module):
    """One of several feed-forward networks."""

    def __init__(self, settings: Settings, number: int) -> None:
        super().__init__()
        self.number = number
        self.up = nn.Linear(settings.width, 2 * settings.width)
        self.down = nn.Linear(2 * settings.width, settings.width)
        self.activation = settings.activation
        self.clip = settings.clip

    @property
    def label(self) -> str:
        """A name for it."""
        return f"expert {self.number}"

    def extra_repr(self) -> str:
        """For `print`."""
        return self.label

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        hidden = ACTIVATIONS[self.activation](self.up(x))
        return clipped(self.down(hidden), self.clip)


class Block(nn.Module):
    """Attention, then a mixture of experts."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.attention = Attention(settings)
        self.norm = nn.LayerNorm(settings.width, eps=settings.eps)
        self.gate = nn.Linear(settings.width, settings.experts)
        self.experts = nn.ModuleList([Expert(settings, n) for n in range(settings.experts)])
        self.register_buffer("usage", torch.zeros(settings.experts), persistent=False)

    def gates(self, x: Tensor) -> Tensor:
        """What each expert counts, for each position."""
        return F.softmax(self.gate(x) / self.settings.temperature, dim=-1)

    def scored(self, x: Tensor) -> list[Scored]:
        """What each expert says, with its gate."""
        gates = self.gates(x)
        found = []
        for number, expert in enumerate(self.experts):
            gate = gates[..., number : number + 1]
            found.append(Scored(gate, expert(x)))
        return found

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same shape, and how undecided the gates were."""
        x = self.attention(x, mask)
        normed = self.norm(x)
        found = self.scored(normed)
        mixed = blended(found)
        return x + mixed, entropy(self.gates(normed))


class Model(nn.Module):
    """Words in, one vector and a loss out."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.words = nn.Embedding(settings.words, settings.width)
        self.register_buffer("positions", sinusoids(settings.length, settings.width))
        self.blocks = nn.ModuleList([Block(settings) for _ in range(settings.depth)])
        self.final = nn.LayerNorm(settings.width)
        self.heads = nn.ModuleDict({name: nn.Linear(settings.width, 4) for name in settings.names})
        self.calls = 0

    def embedded(self, words: Tensor) -> Tensor:
        """Words with their positions."""
        length = words.shape[1]
        return self.words(words) + self.positions[:length]

    def forward(self, words: Tensor, weights: Tensor | None = None) -> dict[str, Tensor]:
        """By name: what each head says, and the loss."""
        x = self.embedded(words)
        mask = causal_mask(words.shape[1], words.device)
        losses = []
        for block in self.blocks:
            x, loss = block(x, mask)
            losses.append(loss)
        vector = pooled(self.final(x), self.settings.pooling)
        if weights is not None:
            vector = vector * weights
        results = {name: head(vector) for name, head in self.heads.items()}
        results["loss"] = torch.stack(losses).sum()
        return results


def build() -> Model:
    """A small one, the same each time."""
    torch.manual_seed(0)
    return Model(Settings())


def inputs() -> tuple[Tensor, Tensor]:
    """Three sequences of eight words, and weights."""
    torch.manual_seed(1)
    return torch.randint(0, 50, (3, 8)), torch.rand(3, 32)
