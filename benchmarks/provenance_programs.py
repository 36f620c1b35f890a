"""Five models with their sources in one file: what `provenance` records.

python benchmarks/provenance_programs.py gpt|resnet|lstm|training|dynamic
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal self-attention, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (each.view(batch, length, self.heads, -1).transpose(1, 2) for each in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A layer of a GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class GPT(nn.Module):
    """A GPT-2 of a few layers."""

    def __init__(self, layers: int = 4, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(100, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Residual(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.skip(x))


class ResNet(nn.Module):
    """A ResNet of four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3)
        widths = (16, 16, 32, 64)
        self.blocks = nn.ModuleList(
            Residual(before, after, 1 + (after > before))
            for before, after in zip((16, *widths), widths, strict=False)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)).log_softmax(-1)


class Recurrent(nn.Module):
    """An LSTM cell in a loop, with attention over what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(96, 256)
        self.query = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        state, cell, states = x.new_zeros(x.shape[0], 64), x.new_zeros(x.shape[0], 64), []
        for step in range(x.shape[1]):
            gates = self.gates(torch.cat([x[:, step], state], 1))
            read, forget, write, new = gates.chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(read) * torch.tanh(new)
            state = torch.sigmoid(write) * torch.tanh(cell)
            states.append(state)
        past = torch.stack(states, 1)
        weights = (past @ self.query(state).unsqueeze(-1)).softmax(1)
        return (past * weights).sum(1)


def gpt() -> None:
    """Infer with a GPT-2."""
    with torch.no_grad():
        torch.compile(GPT().eval())(torch.randint(0, 100, (2, 17)))


def resnet() -> None:
    """Infer with a ResNet."""
    with torch.no_grad():
        torch.compile(ResNet().eval())(torch.randn(2, 3, 64, 64))


def lstm() -> None:
    """Infer with a recurrent model."""
    with torch.no_grad():
        torch.compile(Recurrent().eval())(torch.randn(2, 5, 32))


def training() -> None:
    """Train a GPT-2 for a step: forward, loss, backward, optimizer."""
    model = GPT(layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    def loss_of(tokens: Tensor) -> Tensor:
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    @torch.compile
    def update() -> None:
        optimizer.step()

    torch.compile(loss_of)(torch.randint(0, 100, (2, 17))).backward()
    update()


def dynamic() -> None:
    """Infer with a GPT-2 whose batch and length are symbols, and branch on them."""
    tokens = torch.randint(0, 100, (3, 17))
    torch._dynamo.mark_dynamic(tokens, (0, 1))
    model = GPT(layers=2).eval()

    def pooled(tokens: Tensor) -> Tensor:
        logits = model(tokens)
        if tokens.shape[0] > 2:
            logits = logits - logits.mean(0, keepdim=True)
        return logits.amax(1) * tokens.shape[1]

    with torch.no_grad():
        torch.compile(pooled)(tokens)


PROGRAMS = {each.__name__: each for each in (gpt, resnet, lstm, training, dynamic)}

if __name__ == "__main__":
    torch.manual_seed(0)
    PROGRAMS[sys.argv[1]]()
