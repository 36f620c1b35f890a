"""Programs in the manner of torch's tutorials, compiled with the options of a combination.

    python -m benchmarks.combination_programs [--options JSON] [--threads N] BACKEND NAME ...

Runs programs by name, these and those of `corpus_programs`: one after the other, or in N threads.
What a program raises is printed, and the next one runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks import corpus_programs
from benchmarks.corpus_programs import Compile, Program

SAMPLE = (
    "gpt2-1-train", "bert-1-dynamic", "llama-1-eval", "cnn-4-train", "attention-train",
    "dropout-train", "batch_norm-train", "dynamic-sin", "recompiles-sin", "mutates-sin",
    "breaks-sin", "branches-sin", "transforms-sin", "checkpoints-sin", "trains-sin",
    "contexts-sin", "exports-sin", "wrapper-sin", "chain-3",
)  # fmt: skip
"""Of the corpus: the operator of a template is the first that it has there."""


class Mlp(nn.Module):
    """Two layers, as in most tutorials."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same size again."""
        found: torch.Tensor = self.second(F.relu(self.first(x)))
        return found


def _optimizer(compile: Compile) -> object:
    """torch.compile of an optimizer's step."""
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    model(torch.rand(4, 8)).sum().backward()

    def step() -> None:
        optimizer.step()

    compiled = compile(step)
    return [compiled() for _ in range(2)]


def _training_loop(compile: Compile) -> object:
    """A model trained for three steps, the last with a smaller batch."""
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = compile(model)
    for size in (8, 8, 5):
        optimizer.zero_grad()
        loss = F.mse_loss(compiled(torch.rand(size, 8)), torch.rand(size, 8))
        loss.backward()
        optimizer.step()
    return loss


def _per_sample_gradients(compile: Compile) -> object:
    model = Mlp()
    parameters = dict(model.named_parameters())

    def loss(given: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.func.functional_call(model, given, (x.unsqueeze(0),))
        return F.mse_loss(out, y.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return compile(gradients)(parameters, torch.rand(3, 8), torch.rand(3, 8))


def _jacobian(compile: Compile) -> object:
    def hessian(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.hessian(lambda v: v.sin().prod())(x)
        return found

    return compile(hessian)(torch.rand(3))


def _numpy(compile: Compile) -> object:
    import numpy as np

    def distances(x: Any, y: Any) -> Any:
        return np.linalg.norm(x[:, None] - y[None], axis=2).argmin(axis=1)

    return compile(distances)(np.random.rand(6, 2), np.random.rand(3, 2))


def _custom_operator(compile: Compile) -> object:
    @torch.library.custom_op("combinations::scale", mutates_args=())
    def scale(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    scale.register_fake(lambda x, by: torch.empty_like(x))
    scale.register_autograd(lambda ctx, grad: (grad * 2.0, None))
    x = torch.rand(4, requires_grad=True)
    return compile(lambda x: scale(x, 2.0).sin())(x).sum().backward()


def _flex_attention(compile: Compile) -> object:
    from torch.nn.attention.flex_attention import flex_attention

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> object:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j))

    with torch.no_grad():
        return compile(attend)(*(torch.rand(1, 2, 16, 16) for _ in range(3)))


def _data_dependent(compile: Compile) -> object:
    def choose(x: torch.Tensor) -> torch.Tensor:
        count = int(x.sum().item())
        return x.new_ones(count) if count > 2 else x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        return compile(choose)(torch.ones(5))


def _nested(compile: Compile) -> object:
    parts = [torch.rand(size, 4) for size in (2, 3)]
    ragged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    return compile(lambda x: (x * 2).sin())(ragged)


def _hooks(compile: Compile) -> object:
    model, seen = Mlp(), []
    model.first.register_forward_hook(lambda module, given, out: out * 2)
    model.second.register_full_backward_hook(lambda module, given, out: seen.append(len(out)))
    return compile(model)(torch.rand(3, 8)).sum().backward()


def _mixed_precision(compile: Compile) -> object:
    model = Mlp()
    with torch.autocast("cpu", torch.bfloat16):
        loss = compile(model)(torch.rand(4, 8)).float().sum()
    return loss.backward()


def _inference_mode(compile: Compile) -> object:
    compiled = compile(Mlp().eval())
    with torch.inference_mode():
        return compiled(torch.rand(4, 8)), compiled(torch.rand(7, 8))


def _complex(compile: Compile) -> object:
    def spectrum(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.rfft(x).abs().log1p().sum()

    return compile(spectrum)(torch.rand(16))


def _regional(compile: Compile) -> object:
    """Each block compiled by itself, in a model that is not."""
    blocks = nn.ModuleList(Mlp() for _ in range(3))
    compiled = [compile(block) for block in blocks]
    x = torch.rand(4, 8)
    for block in compiled:
        x = block(x)
    return x.sum().backward()


def _lists(compile: Compile) -> object:
    """Containers, and what is not a tensor."""

    def gather(items: dict[str, list[torch.Tensor]], scale: float, name: str | None) -> object:
        total = sum(x.sum() * scale for x in items["a"])
        return {"total": total, "name": name, "rest": [x + 1 for x in items["b"]]}

    given = {"a": [torch.rand(3), torch.rand(2)], "b": [torch.rand(1)]}
    compiled = compile(gather)
    return [compiled(given, scale, name) for scale, name in ((0.5, "x"), (0.25, None))]


def _generator(compile: Compile) -> object:
    """Random numbers and a loop of Python."""

    def noise(x: torch.Tensor, steps: int) -> torch.Tensor:
        for _ in range(steps):
            x = x + torch.randn_like(x) * 0.1
        return F.dropout(x, 0.5)

    return compile(noise)(torch.rand(4, 3), 3)


def _marked(compile: Compile) -> object:
    x = torch.rand(6, 4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
    return compile(lambda x: x.cumsum(0) * x.shape[0])(x)


def _frozen_sizes(compile: Compile) -> object:
    def tile(x: torch.Tensor, n: int) -> torch.Tensor:
        torch._check(n < 20)
        return x.repeat(n, 1)[: n + 1].cumsum(0)

    compiled = compile(tile)
    return [compiled(torch.rand(2, 3), n) for n in (3, 4, 5)]


def _double_backward(compile: Compile) -> object:
    """Gradients within what is compiled."""

    def penalty(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda v: (v**3).sum())(x).square().sum()

    x = torch.rand(4, requires_grad=True)
    return compile(penalty)(x).backward()


def _recurrent(compile: Compile) -> object:
    cell, x = nn.LSTMCell(4, 4), torch.rand(3, 2, 4)

    def unroll(x: torch.Tensor) -> torch.Tensor:
        h, c = torch.zeros(2, 4), torch.zeros(2, 4)
        for part in x:
            h, c = cell(part, (h, c))
        return h

    return compile(unroll)(x).sum().backward()


TUTORIALS: dict[str, Program] = {
    "optimizer": _optimizer, "training_loop": _training_loop, "jacobian": _jacobian,
    "per_sample_gradients": _per_sample_gradients, "numpy": _numpy,
    "custom_operator": _custom_operator, "flex_attention": _flex_attention,
    "data_dependent": _data_dependent, "nested": _nested, "hooks": _hooks,
    "mixed_precision": _mixed_precision, "inference_mode": _inference_mode, "complex": _complex,
    "regional": _regional, "lists": _lists, "generator": _generator, "marked": _marked,
    "frozen_sizes": _frozen_sizes, "double_backward": _double_backward, "recurrent": _recurrent,
}  # fmt: skip


def names() -> list[str]:
    """Every program of the sample: tutorials and corpus in turn."""
    found = [name for name in SAMPLE if _program(name)]
    both = [*TUTORIALS, *found]
    return [name for start in range(3) for name in both[start::3]]


def _program(name: str) -> Program | None:
    """The program of that name; of a template, that of the first operator which it has."""
    if name in TUTORIALS:
        return TUTORIALS[name]
    kind = name.removesuffix("sin")
    alike = [key for key in corpus_programs.PROGRAMS if key.startswith(kind)]
    return corpus_programs.PROGRAMS[alike[0]] if alike else None


def run(chosen: list[str], backend: str, options: dict[str, Any], threads: int) -> None:
    """Run programs in order, or in threads."""

    def compile(function: Callable[..., Any], **more: object) -> Callable[..., Any]:
        given: dict[str, Any] = {"backend": backend, **more, **options}
        return torch.compile(function, **given)

    def one(name: str) -> None:
        if threads == 1:
            torch.manual_seed(0)
            torch._dynamo.reset()
        with contextlib.suppress(KeyboardInterrupt):
            try:
                program = _program(name)
                assert program is not None
                program(compile)
            except Exception as error:  # noqa: BLE001
                said = str(error).splitlines() or [""]
                print(f"{name}: {type(error).__name__}: {said[0]:.150}", flush=True)

    if threads == 1:
        for name in chosen:
            one(name)
        return
    # Threads that import the compiler at the same time fail now and then, without a recorder too.
    importlib.import_module("torch._inductor.compile_fx")
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, chosen))


def main(arguments: list[str]) -> None:
    """Run what the command names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    run(chosen.names, chosen.backend, chosen.options, chosen.threads)


if __name__ == "__main__":
    main(sys.argv[1:])
