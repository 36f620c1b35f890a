"""The models of `benchmarks.minifier`, from their configs, with random weights.

    python benchmarks/minifier_programs.py MODEL [BUG]

Compiles one and calls it once (a training step for `*-train`); BUG is the value of Inductor's own
`cpp.inject_relu_bug_TESTING_ONLY`.
"""

import sys
from collections.abc import Callable

import torch
import torch._inductor.config
from recording_program import _bert, _cnn, _gpt2
from torch import nn

Made = tuple[nn.Module, torch.Tensor]


def _t5() -> Made:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        num_layers=2, d_model=64, d_kv=16, d_ff=128, num_heads=4, vocab_size=100,
    )  # fmt: skip
    return T5EncoderModel(config).eval(), torch.randint(0, 100, (2, 17))


def _mlp() -> Made:
    """Thirty-five operators, of kinds that alternate."""
    kinds: list[Callable[[], nn.Module]] = [
        lambda: nn.Linear(16, 16), nn.Tanh, nn.ReLU, lambda: nn.LayerNorm(16), nn.Sigmoid,
    ]  # fmt: skip
    return nn.Sequential(*(kinds[i % 5]() for i in range(35))).eval(), torch.randn(8, 16)


class Experts(nn.Module):
    """A layer of experts: each token goes to the best two of four."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(4)
        )
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The tokens, and what their experts made of them."""
        weights, chosen = torch.softmax(self.gate(self.norm(x)), -1).topk(2)
        routed = torch.zeros(*x.shape[:-1], 4).scatter(-1, chosen, weights)
        made = torch.stack([expert(x) for expert in self.experts], -1)
        return x + (made * routed.unsqueeze(-2)).sum(-1)


def _experts() -> Made:
    return nn.Sequential(Experts(), Experts()).eval(), torch.randn(2, 7, 32)


class Branches(nn.Module):
    """Layers around a branch that depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16))
        self.after = nn.Sequential(nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One branch or the other."""

        def positive(x: torch.Tensor) -> torch.Tensor:
            return (x.tanh() * 2).exp().sum(-1, keepdim=True) + x

        def negative(x: torch.Tensor) -> torch.Tensor:
            return (x.cos() - 1).relu() * x

        x = self.before(x)
        return self.after(torch.cond(x.sum() > 0, positive, negative, (x,)))


def _branches() -> Made:
    return Branches().eval(), torch.randn(8, 16)


def _trained(made: Made) -> Made:
    return made[0].train(), made[1]


MODELS: dict[str, Callable[[], Made]] = {
    "gpt2-2": lambda: _gpt2(2),
    "gpt2-12": lambda: _gpt2(12),
    "bert": _bert,
    "t5": _t5,
    "cnn": lambda: (_cnn()[0].eval(), _cnn()[1]),
    "mlp": _mlp,
    "experts": _experts,
    "branches": _branches,
    "gpt2-train": lambda: _trained(_gpt2(2)),
    "cnn-train": _cnn,
}


def main(name: str, bug: str = "") -> None:
    """Compile a model and call it."""
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = bug or None
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    with torch.set_grad_enabled(model.training):
        result = torch.compile(model)(inputs)
        if model.training:
            leaves = torch.utils._pytree.tree_leaves(result)
            next(leaf for leaf in leaves if torch.is_tensor(leaf)).sum().backward()


if __name__ == "__main__":
    main(*sys.argv[1:])
