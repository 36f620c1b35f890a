"""The programs of the corpus: models by their configs, and operators and modules put together.

    python benchmarks/corpus_programs.py BACKEND NAME ...

Each program is made from lists, by a seed, so that a name always means the same one; each is a
closure of its own code, compiled and called once or a few times.  What a program raises is printed,
and the next one runs: a failure is recorded, as everything else.
"""

import random
import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

Compile = Callable[..., Callable[..., torch.Tensor]]
Program = Callable[[Compile], object]

UNARY = (
    "sin", "cos", "tanh", "exp", "sigmoid", "relu", "abs", "neg", "sqrt", "rsqrt", "log1p", "erf",
    "floor", "ceil", "round", "sign", "square", "reciprocal", "expm1", "atan", "asinh", "sinh",
    "frac", "trunc", "isnan", "isfinite", "logical_not", "signbit", "positive", "deg2rad",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "fmod", "hypot", "eq")
REDUCTIONS = (
    "sum", "mean", "amax", "amin", "prod", "var", "std", "logsumexp", "any", "cumsum", "argmax",
)  # fmt: skip
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Softsign(), nn.Linear(6, 2)), (3, 6)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 9)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 2, stride=2), (1, 3, 4, 4)),
    "batch_norm": (lambda: nn.BatchNorm2d(3), (2, 3, 5, 5)),
    "layer_norm": (lambda: nn.LayerNorm(6), (4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 5)),
    "instance_norm": (lambda: nn.InstanceNorm1d(4, affine=True), (2, 4, 6)),
    "rms_norm": (lambda: nn.RMSNorm(6), (4, 6)),
    "pool": (lambda: nn.MaxPool2d(2), (1, 3, 8, 8)),
    "adaptive": (lambda: nn.AdaptiveAvgPool2d((2, 2)), (1, 3, 6, 6)),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 6)), (4, 6)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "gru_cell": (lambda: nn.GRUCell(6, 6), (4, 6)),
    "lstm_cell": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Mish()), (4, 6)),
    "softmax": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(-1)), (4, 6)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="nearest"), (1, 2, 4, 4)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (1, 8, 3, 3)),
    "prelu": (lambda: nn.Sequential(nn.PReLU(), nn.Softplus(), nn.Hardtanh()), (4, 6)),
}


def _apply(name: str, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = getattr(torch, name)(x)
    return found


# -- operators ------------------------------------------------------------------------------------


def _chain(seed: int) -> Program:
    """Operators one after the other, with a view and a reduction."""
    chosen = random.Random(seed)
    first, second = chosen.sample(UNARY[:20], 2)
    binary, last = chosen.choice(BINARY[:6]), chosen.choice(REDUCTIONS[:5])
    view, size = seed % 3, chosen.randint(2, 6)

    def run(compile: Compile) -> object:
        def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            a = getattr(torch, first)(x)
            b = getattr(torch, binary)(a, y)
            if view == 0:
                b = b.t().reshape(-1)
            elif view == 1:
                b = b[:, 1:].unsqueeze(0)
            c = getattr(torch, second)(b)
            return getattr(c, last)(-1)

        return compile(chain)(torch.rand(size, 4), torch.rand(size, 4))

    return run


def _template(kind: str, op: str) -> Program:
    return lambda compile: TEMPLATES[kind](compile, op)


def _dynamic(compile: Compile, op: str) -> object:
    def dynamic(x: torch.Tensor) -> torch.Tensor:
        return _apply(op, x).reshape(-1) * x.shape[0]

    compiled = compile(dynamic, dynamic=True)
    return compiled(torch.rand(3, 2)), compiled(torch.rand(5, 4))


def _recompiles(compile: Compile, op: str) -> object:
    def recompiles(x: torch.Tensor, n: int) -> torch.Tensor:
        return _apply(op, x) * n if x.shape[0] > 3 else _apply(op, x) + n

    compiled = compile(recompiles)
    return [compiled(torch.rand(size, 2), n) for size, n in ((2, 1), (5, 1), (7, 2))]


def _mutates(compile: Compile, op: str) -> object:
    def mutates(x: torch.Tensor, items: list[torch.Tensor]) -> torch.Tensor:
        x[1:].add_(_apply(op, x[:-1]).to(x.dtype))
        items.append(x * 2)
        return x.view(-1)[::2]

    return compile(mutates)(torch.rand(4, 4), [])


def _breaks(compile: Compile, op: str) -> object:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        y = _apply(op, x)
        torch._dynamo.graph_break()
        return y * 3 + x

    return compile(breaks)(torch.rand(4))


def _branches(compile: Compile, op: str) -> object:
    def branches(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(
            x.sum() > 0, lambda v: _apply(op, v).to(v.dtype) + 1, lambda v: v.cos(), (x,)
        )
        return found

    return compile(branches)(torch.rand(4))


def _transforms(compile: Compile, op: str) -> object:
    def transforms(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda v: _apply(op, v).sum())(x)

    return compile(transforms)(torch.rand(3, 4))


def _checkpoints(compile: Compile, op: str) -> object:
    from torch.utils.checkpoint import checkpoint

    def inner(x: torch.Tensor) -> torch.Tensor:
        return _apply(op, x).to(x.dtype) * x

    def checkpoints(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(inner, x, use_reentrant=False)
        return found.sin()

    return compile(checkpoints)(torch.rand(4, requires_grad=True)).sum().backward()


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)  # type: ignore[attr-defined]
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad * 2 * x.cos()


def _trains(compile: Compile, op: str) -> object:
    def trains(x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = _Scaled.apply(x)  # type: ignore[no-untyped-call]
        return _apply(op, scaled).to(x.dtype) * x

    return compile(trains)(torch.rand(4, requires_grad=True)).sum().backward()


def _contexts(compile: Compile, op: str) -> object:
    def contexts(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = _apply(op, x)
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ x.t()).sum() + y

    return compile(contexts)(torch.rand(4, 4))


class _Exported(nn.Module):
    def __init__(self, op: str) -> None:
        super().__init__()
        self.linear, self.op = nn.Linear(6, 5), op

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _apply(self.op, self.linear(x)).sum(0)


def _exports(compile: Compile, op: str) -> object:
    """An exported program, with a dynamic batch, compiled."""
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(_Exported(op), (torch.rand(4, 6),), dynamic_shapes=shapes)
    return compile(program.module())(torch.rand(3, 6))


def _wrapper(compile: Compile, op: str) -> object:
    """A tensor made of two, which AOTAutograd takes apart."""
    from torch.testing._internal.two_tensor import TwoTensor

    def wrapper(x: torch.Tensor) -> torch.Tensor:
        return _apply(op, x) * 3

    return compile(wrapper)(TwoTensor(torch.rand(3, 4), torch.rand(3, 4)))  # type: ignore[no-untyped-call]


TEMPLATES: dict[str, Callable[[Compile, str], object]] = {
    "dynamic": _dynamic,
    "recompiles": _recompiles,
    "mutates": _mutates,
    "breaks": _breaks,
    "branches": _branches,
    "transforms": _transforms,
    "checkpoints": _checkpoints,
    "trains": _trains,
    "contexts": _contexts,
    "exports": _exports,
    "wrapper": _wrapper,
}


# -- modules and models ---------------------------------------------------------------------------


def _module(name: str, mode: str) -> Program:
    def run(compile: Compile) -> object:
        make, size = MODULES[name]
        module, x = make().train(mode == "train"), torch.rand(size)
        x.requires_grad_(mode == "train" and not list(module.parameters()))
        compiled = compile(module, dynamic=True if mode == "dynamic" else None)
        if mode == "train":
            return compiled(x).float().sum().backward()
        with torch.no_grad():
            return compiled(x)

    return run


class Net(nn.Module):
    """A small CNN, with a residual connection."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(x + self.second(x), 2).mean((2, 3))
        found: torch.Tensor = self.head(x)
        return found


def _cnn(width: int, norm: bool, mode: str) -> Program:
    def run(compile: Compile) -> object:
        net, x = Net(width, norm).train(mode == "train"), torch.rand(2, 3, 8, 8)
        if mode == "train":
            return compile(net)(x).sum().backward()
        with torch.no_grad():
            return compile(net, dynamic=True if mode == "dynamic" else None)(x)

    return run


def _transformer(name: str, layers: int, heads: int, mode: str) -> Program:
    def run(compile: Compile) -> object:
        model = _model(name, layers, heads).train(mode == "train")
        tokens = torch.randint(0, 50, (2, 9))
        if mode == "dynamic":
            torch._dynamo.mark_dynamic(tokens, 1)
        given = {"input_ids": tokens} | ({"decoder_input_ids": tokens} if name == "t5" else {})
        if mode == "train":
            return compile(model)(**given)[0].sum().backward()
        with torch.no_grad():
            return compile(model)(**given)

    return run


def _model(name: str, layers: int, heads: int) -> nn.Module:
    import transformers as t

    made: dict[str, Callable[[], nn.Module]] = {
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(
                n_layer=layers, n_embd=16, n_head=heads, vocab_size=50, n_positions=32,
                bos_token_id=0, eos_token_id=0, use_cache=False,
            )
        ),
        "bert": lambda: t.BertModel(
            t.BertConfig(
                num_hidden_layers=layers, hidden_size=16, num_attention_heads=heads,
                intermediate_size=32, vocab_size=50,
            )
        ),
        "llama": lambda: t.LlamaForCausalLM(
            t.LlamaConfig(
                num_hidden_layers=layers, hidden_size=16, num_attention_heads=heads,
                num_key_value_heads=heads, intermediate_size=32, vocab_size=50, use_cache=False,
            )
        ),
        "t5": lambda: t.T5Model(
            t.T5Config(
                num_layers=layers, d_model=16, d_kv=8, d_ff=32, num_heads=heads, vocab_size=50,
                use_cache=False,
            )
        ),
    }  # fmt: skip
    return made[name]()


def _programs() -> Iterator[tuple[str, Program]]:
    for name in ("gpt2", "bert", "llama", "t5"):
        for layers, heads in ((1, 2), (2, 4)):
            for mode in ("eval", "train", "dynamic"):
                yield f"{name}-{layers}-{mode}", _transformer(name, layers, heads, mode)
    for width, norm in ((4, True), (6, False)):
        for mode in ("eval", "train", "dynamic"):
            yield f"cnn-{width}-{mode}", _cnn(width, norm, mode)
    for name in MODULES:
        for mode in ("eval", "train", "dynamic"):
            yield f"{name}-{mode}", _module(name, mode)
    for place, kind in enumerate(TEMPLATES):
        for op in random.Random(place).sample(UNARY[:20], 7):
            yield f"{kind}-{op}", _template(kind, op)
    for seed in range(60):
        yield f"chain-{seed}", _chain(seed)


PROGRAMS: dict[str, Program] = dict(_programs())


def main(backend: str, names: list[str]) -> None:
    """Compile and call programs, one after the other."""

    def compile(function: Callable[..., torch.Tensor], **options: object) -> Callable[..., object]:
        found: Callable[..., object] = torch.compile(function, backend=backend, **options)  # type: ignore[call-overload]
        return found

    for name in names:
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            PROGRAMS[name](compile)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]:.150}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
