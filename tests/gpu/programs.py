"""Programs that compile for a GPU, one for each way in which torch does that.

`python -m tests.gpu.programs NAME` runs one.  It prints numbers of its results, rounded to what
two runs of a kernel with atomic additions have in common.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS: dict[str, Callable[[], object]] = {}
"""By name, without those that fail."""
FAILURES: dict[str, Callable[[], object]] = {}
"""By name: those that torch does not compile, or that end wrongly on the device."""


def _program(function: Callable[[], object]) -> Callable[[], object]:
    PROGRAMS[function.__name__] = function
    return function


def _failure(function: Callable[[], object]) -> Callable[[], object]:
    FAILURES[function.__name__] = function
    return function


def _say(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        print(tuple(tensor.shape), f"{tensor.detach().double().abs().mean().item():.2g}")


def _random(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", **options)


def _train(model: nn.Module, batches: Iterable[torch.Tensor], **options: Any) -> None:
    """Take a step with each batch."""
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiled = torch.compile(model, **options)
    for batch in batches:
        optimizer.zero_grad()
        loss = compiled(batch).square().mean()
        loss.backward()
        optimizer.step()
        _say(loss)


@_program
def mlp() -> None:
    """Train linear layers; the batch grows, so its size becomes a symbol."""
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8))
    _train(model, (_random(n, 64) for n in (16, 24, 32)))


@_program
def convolutions() -> None:
    """Train convolutions with batch norm, in channels-last."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    batches = [_random(8, 3, 32, 32).to(memory_format=torch.channels_last) for _ in range(2)]
    _train(model.to(memory_format=torch.channels_last), batches)  # type: ignore[call-overload]


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(x)


@_program
def attention() -> None:
    """Train a transformer's block in bfloat16: flash attention, dropout."""
    with torch.autocast("cuda", torch.bfloat16):
        _train(_Block(128, 4), [_random(4, 64, 128) for _ in range(2)])


@_program
def reductions() -> None:
    """Reduce along large and small dimensions, scan, sort."""

    @torch.compile
    def reduce(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.softmax(x, -1)
        return y.sum(), x.var(0), x.cumsum(1), x.sort(-1).values, x.argmax(0), x.logsumexp(-1)

    _say(*reduce(_random(512, 5000)))


@_program
def triton_kernel() -> None:
    """Call a Triton kernel of the program's own, with configurations to choose from."""
    from tests.gpu import kernels

    @torch.compile
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return kernels.add(x.sin(), y, 2.0).relu()

    _say(scaled(_random(10_000), _random(10_000)))


@_program
def flex() -> None:
    """Attend with a score of the program's own and a mask by blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b: Any, h: Any, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return q >= kv

    def biased(
        score: torch.Tensor, b: Any, h: Any, q: torch.Tensor, kv: torch.Tensor
    ) -> torch.Tensor:
        return score + (q - kv) * 0.01

    mask = create_block_mask(causal, None, None, 256, 256, device="cuda")
    q, k, v = (_random(2, 4, 256, 64, requires_grad=True) for _ in range(3))
    out: Any = torch.compile(flex_attention)(q, k, v, score_mod=biased, block_mask=mask)
    out.sum().backward()
    _say(out, *(x.grad for x in (q, k, v) if x.grad is not None))


@_program
def cuda_graphs() -> None:
    """Replay a CUDA graph."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    x = _random(16, 64)
    with torch.no_grad():
        for _ in range(4):
            _say(compiled(x))


@_program
def max_autotune() -> None:
    """Choose among the templates of matrix products by measuring them."""

    @torch.compile(mode="max-autotune-no-cudagraphs")
    def products(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.addmm(b, x, w).relu(), torch.bmm(x.view(4, 64, 256), w.view(4, 256, 64))

    half = {"dtype": torch.float16}
    _say(*products(_random(256, 256, **half), _random(256, 256, **half), _random(256, **half)))


@_program
def dynamic() -> None:
    """Compile once for every size."""
    compiled = torch.compile(lambda x: (x.T @ x).softmax(-1).mean(0), dynamic=True)
    for n in (7, 33):
        _say(compiled(_random(n, n + 3)))


@_program
def two_devices() -> None:
    """Compute on the CPU and on the GPU in one graph."""

    @torch.compile
    def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = x.sin() + 1
        return a.cuda() * y, (y.cos() * 2).cpu() + a

    _say(*mixed(torch.randn(100), _random(100)))


@_program
def optimizer_step() -> None:
    """Compile the step of an optimizer."""
    parameters = [nn.Parameter(_random(32, 32)) for _ in range(4)]
    optimizer = torch.optim.AdamW(parameters, lr=torch.tensor(0.01))
    for p in parameters:
        p.grad = torch.ones_like(p)
    step = torch.compile(optimizer.step)
    for _ in range(2):
        step()
    _say(*parameters)


@_program
def scaler() -> None:
    """Train in float16 with scaled gradients."""
    model = nn.Linear(32, 32).cuda()
    optimizer, scale = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")
    compiled = torch.compile(model)
    for _ in range(2):
        with torch.autocast("cuda", torch.float16):
            loss = compiled(_random(8, 32)).square().mean()
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        _say(loss)


@_program
def float8() -> None:
    """Multiply in float8."""

    @torch.compile
    def product(x: torch.Tensor, y: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
        a, b = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn)
        return torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16).relu()  # type: ignore[operator]

    _say(product(_random(64, 128), _random(32, 128), torch.ones((), device="cuda")))


@_program
def conditions() -> None:
    """Branch on a value on the device."""

    @torch.compile(fullgraph=True)
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))

    _say(branch(_random(50)), branch(-_random(50).abs()))


@_program
def streams() -> None:
    """Compute on a stream of the program's own, and wait for it."""
    side = torch.cuda.Stream()

    @torch.compile
    def overlap(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = y.sin() + x
        torch.cuda.current_stream().wait_stream(side)
        return z + y

    _say(overlap(_random(1000)))


@_program
def recurrent() -> None:
    """Run an LSTM of cuDNN's between compiled layers."""
    model = nn.LSTM(16, 32, batch_first=True).cuda()

    @torch.compile
    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x.relu())[0].sigmoid()

    _say(run(_random(4, 10, 16)))


@_program
def random_numbers() -> None:
    """Draw on the device."""

    @torch.compile
    def draw(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randint_like(x, 9)

    torch.manual_seed(0)
    _say(draw(_random(4096)))


@_program
def indices() -> None:
    """Gather, scatter and index with tensors."""

    @torch.compile
    def index(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        added = torch.zeros_like(x).index_add(0, i, x)
        return x[i].sum(0), added, x.scatter_add(0, i[:, None].expand_as(x), x), F.one_hot(i, 50)

    _say(*index(_random(50, 20), torch.randint(50, (50,), device="cuda")))


@_program
def item() -> None:
    """Read numbers from the device in the middle of a graph."""

    @torch.compile(fullgraph=True)
    def sized(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count >= 2)
        return torch.zeros(count, device="cuda") + x.mean()  # type: ignore[call-overload,no-any-return]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        _say(sized(_random(10), torch.tensor(5, device="cuda")))


@_program
def breaks() -> None:
    """Break graphs, and synchronise between them."""

    @torch.compile
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.exp().sum(-1)
        torch.cuda.synchronize()
        if y.sum() > 0:
            y = y + 1
        return torch.fft.fft(y).real

    _say(broken(_random(32, 64)))


@_program
def wrapper_in_cpp() -> None:
    """Have Inductor write its wrapper in C++."""

    @torch.compile(options={"cpp_wrapper": True})
    def normal(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x @ w, (64,))

    _say(normal(_random(32, 64), _random(64, 64)))


def _transformer(name: str, **sizes: int) -> None:
    import transformers

    config = transformers.AutoConfig.for_model(name, **sizes)
    model = transformers.AutoModel.from_config(config).cuda().eval()
    tokens = torch.randint(100, (2, 20), device="cuda")
    inputs = {"input_ids": tokens}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    with torch.no_grad():
        _say(torch.compile(model)(**inputs).last_hidden_state)


_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}


@_program
def llama() -> None:
    """Run a small Llama of transformers."""
    _transformer("llama", intermediate_size=128, num_key_value_heads=2, **_SMALL)


@_program
def bert() -> None:
    """Run a small BERT of transformers."""
    _transformer("bert", intermediate_size=128, **_SMALL)


@_program
def t5() -> None:
    """Run a small T5 of transformers."""
    _transformer("t5", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100)


@_failure
def lowering_error() -> None:
    """Fail in a lowering (https://github.com/pytorch/pytorch/issues/188213)."""
    pool = nn.AdaptiveMaxPool1d((0,)).eval()  # type: ignore[arg-type]

    @torch.compile
    def fails(x: torch.Tensor) -> torch.Tensor:
        pooled = pool(torch.special.ndtri(x))
        return F.hardswish(torch.scatter(pooled, -1, pooled, pooled))

    _say(fails(torch.rand(4, 8, device="cuda")))


@_failure
def size_assert() -> None:
    """Fail in the wrapper of a backward (https://github.com/pytorch/pytorch/issues/164703)."""

    @torch.compile(dynamic=True)
    def fails(
        a0: torch.Tensor, a1: torch.Tensor, a2: torch.Tensor, a3: torch.Tensor, one: torch.Tensor
    ) -> torch.Tensor:
        found = torch.unique(torch.full((2, 3), 3, dtype=torch.int16, device="cuda"))
        x = torch.unsqueeze(torch.mul(found, a0.contiguous().view([5])), dim=1)
        return (x + (torch.sub(a1, a2) + torch.reshape(a3, [5, 1]))) * one

    i = {"dtype": torch.int16, "device": "cuda"}
    one = torch.tensor(1.0, requires_grad=True, device="cuda")
    out = fails(
        torch.arange(5, **i), torch.arange(5, **i).view(5, 1), torch.ones(5, 1, **i),
        torch.arange(5 * 76, **i)[::76], one,
    )  # fmt: skip
    out.sum().backward()
    _say(out)


@_failure
def triton_error() -> None:
    """Fail when Triton compiles a kernel of the program's own."""
    from tests.gpu import kernels

    @torch.compile
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 1
        return kernels.crooked(y).relu() * 2

    _say(fails(_random(1000)))


@_failure
def shared_memory() -> None:
    """Ask for more shared memory than the device has."""
    from tests.gpu import kernels

    @torch.compile
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x.cos() * 3
        return kernels.greedy(y).relu() + 1

    _say(fails(_random(256, 256)))


@_failure
def device_assert() -> None:
    """Index out of bounds on the device."""

    @torch.compile
    def fails(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x.relu() + 1
        return y[i].sum(-1) * 2

    _say(fails(_random(10, 8), torch.tensor([3, 1000], device="cuda")))


@_failure
def no_memory() -> None:
    """Ask for more memory than the device has, in the compiled code."""

    @torch.compile
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        big = y.expand(1 << 20, 1 << 20) @ y.new_ones(1 << 20, 16)
        return big.sum() + 1

    _say(fails(_random(1 << 20)))


@_failure
def wrong_result() -> None:
    """Write through overlapping windows (https://github.com/pytorch/pytorch/issues/198102)."""

    def window(x: torch.Tensor) -> torch.Tensor:
        buffer = F.relu(x).detach().clone()
        view = buffer.unfold(2, 2, 6)
        view.mul_(torch.sigmoid(view))
        return F.layer_norm(buffer + x, (buffer.shape[-1],)).tanh() * 2

    x = _random(2, 4, 24)
    torch.testing.assert_close(torch.compile(window)(x), window(x))


@_failure
def sum_to_bool() -> None:
    """Sum into a bool (https://github.com/pytorch/pytorch/issues/197106)."""

    @torch.compile
    def gate(x: torch.Tensor) -> torch.Tensor:
        y = F.silu(x)
        active = torch.sum(F.relu(y).to(torch.float16), dim=-1, dtype=torch.bool)
        return torch.where(active.unsqueeze(-1), x + y, x * 0.5)

    _say(gate(_random(8, 24)))


if __name__ == "__main__":
    torch.manual_seed(0)
    {**PROGRAMS, **FAILURES}[sys.argv[1]]()
    torch.cuda.synchronize()
