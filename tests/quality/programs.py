"""Programs with a planted bug, and the simplest case of each, known beforehand.

Each bug is a condition on the graph that Dynamo hands to the backend (`plants`); the simplest
graph that meets it is what a reduction has to end at, to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import map as map_op
from torch._higher_order_ops import scan
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from tests.quality.plants import (
    Backend,
    Rule,
    acting,
    body_has,
    fail_at_run,
    flows,
    flows_anywhere,
    graphs,
    named,
    one_more,
    plant,
    raising,
    running,
    segfault,
    value,
)
from torchreel.minifier.cases.case import Harness


@dataclass(frozen=True)
class Program:
    """A program, its bug and its simplest case."""

    label: str
    fn: Callable[..., Any]
    inputs: Sequence[Any]
    expected: str
    harness: Harness = "compile"
    options: dict[str, Any] = field(default_factory=dict)
    backend: str = ""
    slow: bool = False
    why: str = ""
    """Why the expected result is smaller, or larger, than what the condition suggests."""


PROGRAMS: list[Program] = []


def program(
    rule: Rule,
    expected: str,
    *inputs: Any,
    harness: Harness = "compile",
    why: str = "",
    error: type[Exception] = RuntimeError,
    how: Backend | None = None,
    backend: str = "",
    slow: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a program under the name of its function."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        label = fn.__name__
        if not backend:
            plant(label, how or raising(label, rule, error))
        name = backend or f"plant_{label}"
        PROGRAMS.append(Program(label, fn, inputs, expected, harness, options, name, slow, why))
        return fn

    return register


def in_torch(expected: str, *inputs: Any, **kwargs: Any) -> Any:
    """A program that meets one of the bugs in Inductor itself (`broken_inductor`)."""
    return program(lambda gm: False, expected, *inputs, backend="inductor", **kwargs)


def t(*size: int, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Tensor:
    """An input."""
    return torch.ones(*size, dtype=dtype, **kwargs)


def any_call(wanted: str, holds: Callable[[torch.fx.Node], bool] = lambda node: True) -> Rule:
    """Some call of that name for which something holds."""
    return lambda gm: any(holds(node) for node in named(gm, wanted))


def _first(node: torch.fx.Node) -> Any:
    return value(node.all_input_nodes[0])


# Paths, far apart.


@program(lambda gm: flows(gm, "sin", "cos"), "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8))
def path_of_two(x: Tensor) -> Tensor:
    y = F.gelu(x.sin() + 1)
    for _ in range(6):
        y = torch.relu(y) * x
    return (y.exp().cos() + x).sum(-1)


@program(
    lambda gm: flows(gm, "sin", "cos", "tan"),
    "x0: f32[]; sin(x0); cos(a); tan(b) -> c",
    t(4, 8),
    t(8, 8),
)
def path_of_three(x: Tensor, w: Tensor) -> Tensor:
    y = x.sin() @ w
    y = F.layer_norm(y, (8,)).cos()
    y = F.softmax(y @ w, -1)
    return (y + y.tan()).relu()


@program(
    lambda gm: bool(named(gm, "sin") and named(gm, "cos")),
    "x0: f32[]; sin(x0); cos(x0) -> a, b",
    t(4, 8),
)
def two_branches(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x, x
    for _ in range(4):
        a, b = a.relu() + 1, b.sigmoid() * 2
    return a.sin().exp(), b.cos() - a


@program(
    lambda gm: flows(gm, "softmax", "matmul"),
    "x0: f32[1]; softmax(x0, 0); matmul(a, x0) -> b",
    t(2, 4, 8, 8),
)
def through_views(x: Tensor) -> Tensor:
    p = torch.softmax(x, -1).reshape(8, 8, 8)
    y = p.transpose(1, 2).contiguous().view(64, 8)
    z = torch.matmul(y, x.new_ones(8, 4)).view(2, 4, 8, 4)
    return z.permute(0, 2, 1, 3).flatten(2)


# Operators of all kinds, with conditions on what they get.


@program(
    any_call("matmul", lambda n: _first(n).dtype == torch.float16),
    "x0: f16[1]; matmul(x0, x0) -> a",
    t(4, 8),
    t(8, 8),
)
def dtype_half(x: Tensor, w: Tensor) -> Tensor:
    y = torch.relu(x).half() @ w.half().t()
    return torch.softmax(y.float(), -1) + x


@program(
    any_call("sum", lambda n: _first(n).dtype == torch.int64),
    "x0: i64[]; sum(x0) -> a",
    t(4, 8, dtype=torch.int32),
)
def dtype_int(x: Tensor) -> Tensor:
    y = (x * 2).to(torch.int64).sum(0)
    return y.float() / 3 + x


@program(
    any_call("angle", lambda n: _first(n).is_complex()),
    "x0: c64[]; angle(x0) -> a",
    t(4, 8, dtype=torch.complex128),
)
def dtype_complex(x: Tensor) -> Tensor:
    return torch.angle(x * 2 + x.conj()).abs()


@program(
    any_call("relu", lambda n: _first(n).numel() >= 100),
    "x0: f32[10,10]; relu(x0) -> a",
    t(16, 32),
    t(32, 32),
)
def size_threshold(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w).sigmoid() + x


@program(
    any_call("matmul", lambda n: _first(n).shape[-1] >= 17),
    "x0: f32[17]; matmul(x0, x0) -> a",
    t(16, 32),
    t(32, 64),
)
def inner_size_threshold(x: Tensor, w: Tensor) -> Tensor:
    return (torch.relu(x) @ w).sigmoid()


@program(
    any_call("mean", lambda n: _first(n).dim() >= 3), "x0: f32[1,1,1]; mean(x0) -> a", t(2, 3, 4, 5)
)
def rank_threshold(x: Tensor) -> Tensor:
    return torch.tanh(x).mean((0, 1)).exp()


@program(
    any_call("relu", lambda n: not _first(n).is_contiguous()),
    "x0: f32[2] strides[2]; relu(x0) -> a",
    t(4, 8),
)
def strides(x: Tensor) -> Tensor:
    return torch.relu(x.sin().t()) @ x


@program(any_call("cumsum", lambda n: n.args[1] == 1), "x0: f32[1,1]; cumsum(x0, 1) -> a", t(4, 8))
def literal_dim(x: Tensor) -> Tensor:
    return torch.cumsum(x.sigmoid(), 1).exp() * 3


@program(
    any_call("leaky_relu", lambda n: 0.1 < n.args[1] < 0.3),
    "x0: f32[]; leaky_relu(x0, 0.2) -> a",
    t(4, 8),
)
def literal_float(x: Tensor) -> Tensor:
    return F.leaky_relu(x * 2, 0.2).exp()


@program(
    any_call("sum", lambda n: n.kwargs.get("keepdim") is True),
    "x0: f32[]; sum(x0, dim=0, keepdim=True) -> a",
    t(4, 8),
    why="keepdim needs a dimension to keep",
)
def keyword(x: Tensor) -> Tensor:
    return x / x.exp().sum(dim=1, keepdim=True)


@program(
    any_call("cat", lambda n: len(n.args[0]) >= 2),
    "x0: f32[1]; cat([x0, x0]) -> a",
    t(4, 8),
    t(4, 2),
)
def list_of_tensors(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x.sin(), y.cos(), x * 2, y], dim=1).relu()


@program(any_call("topk"), "x0: f32[]; topk(x0, 0); getitem(a, 0) -> b", t(4, 8))
def several_results(x: Tensor) -> Tensor:
    values, indices = torch.topk(x.sigmoid(), 3, dim=-1)
    return values * 2 + indices


@program(
    any_call("embedding"),
    "x0: f32[2,1]; x1: i64[]; embedding(x1, x0) -> a",
    t(4, 8, dtype=torch.int64),
    t(10, 6),
    why="an index is drawn from 0 and 1, so there have to be two rows",
)
def indices(x: Tensor, w: Tensor) -> Tensor:
    y = F.embedding(x % 4, w)
    return F.layer_norm(y, (6,)).relu().sum(1)


@program(
    any_call("conv2d"),
    "x0: f32[1,1,1,1]; conv2d(x0, x0) -> a",
    t(2, 3, 8, 8),
    t(4, 3, 3, 3),
    t(4),
)
def convolution(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = F.conv2d(x, w, b, stride=2, padding=1)
    return F.max_pool2d(F.relu(y), 2).flatten(1)


@program(
    any_call("scaled_dot_product_attention"),
    "x0: f32[1,1]; scaled_dot_product_attention(x0, x0, x0) -> a",
    t(2, 8, 32),
)
def attention(x: Tensor) -> Tensor:
    q, k, v = x.chunk(3, -1) if x.shape[-1] % 3 == 0 else (x, x * 2, x.sin())
    y = F.scaled_dot_product_attention(*(u.view(2, 8, 4, 8).transpose(1, 2) for u in (q, k, v)))
    return y.transpose(1, 2).reshape(2, 8, 32) + x


@program(any_call("layer_norm"), "x0: f32[1]; layer_norm(x0, (1)) -> a", t(2, 8, 16), t(16), t(16))
def normalisation(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = F.layer_norm(x + 1, (16,), w, b, 1e-6)
    return F.gelu(y) @ w


@program(
    any_call("einsum"),
    "x0: f32[1,1,1]; einsum('bij,bjk->bik', x0, x0) -> a",
    t(4, 8, 3),
    t(4, 3, 5),
)
def equation(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("bij,bjk->bik", x.relu(), y).sum()


@program(
    any_call("where", lambda n: value(n).dtype == torch.float64),
    "x0: bool[]; x1: f64[]; where(x0, x1, x1) -> a",
    t(4, 8),
)
def where_double(x: Tensor) -> Tensor:
    return torch.where(x > 0, x.double(), x.double() * 2).float()


@program(any_call("dropout"), "x0: f32[]; dropout(x0) -> a", t(4, 8))
def random_numbers(x: Tensor) -> Tensor:
    return F.dropout(x.relu(), 0.3, True).sum()


@program(
    any_call("cross_entropy"),
    "x0: i64[]; x1: f32[1]; cross_entropy(x1, x0) -> a",
    t(4, 8),
    torch.zeros(4, dtype=torch.int64),
)
def loss(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x.tanh() * 3, y, label_smoothing=0.1) + 1


@program(
    any_call("interpolate"), "x0: f32[1,1,1]; interpolate(x0, scale_factor=1) -> a", t(1, 2, 4, 4)
)
def interpolation(x: Tensor) -> Tensor:
    return F.interpolate(x.relu(), scale_factor=2, mode="bilinear", align_corners=False).sum()


# Writes, regions, constants, gradients.


@program(
    any_call("mul_"),
    "x0: f32[]; mul_(x0, x0) -> ",
    t(4, 8),
    why="the write is the last thing that happens: nothing has to be returned",
)
def write_that_matters(x: Tensor) -> Tensor:
    y = x.clone().relu()
    y[0].mul_(y[1].sigmoid())
    return y.sum(1)


@program(lambda gm: flows(gm, "sin", "cos"), "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8))
def writes_that_do_not(x: Tensor) -> Tensor:
    y = x.sin()
    y += 1
    y.relu_()
    y[0] = 2
    return y.cos().add_(3)


@program(
    any_call("setitem"),
    "x0: f32[1]; x1: f32[]; setitem(x0, slice(0, 0, None), x1) -> ",
    t(4, 8),
    t(8),
)
def write_of_an_item(x: Tensor, y: Tensor) -> Tensor:
    z = x.relu()
    z[1:3] = y.sigmoid()
    return z * 2


@program(
    lambda gm: flows(gm, "sin", "cos"),
    "x0: f32[]; sin(x0); cos(a) -> b",
    t(4, 8, requires_grad=True),
)
def regions_that_do_not_matter(x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        y = x.sin() @ x.t()
        with torch.no_grad():
            y = y.relu()
    return y.cos()


@program(
    any_call("linear", lambda n: value(n).dtype == torch.bfloat16),
    "x0: f32[1]; _enter_autocast('cpu', None, True, None); linear(x0, x0); _exit_autocast(a) -> b",
    t(4, 8),
    t(3, 8),
)
def autocast_that_matters(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        y = F.linear(x.relu(), w)
    return y.float().exp()


@program(
    any_call("sigmoid", lambda n: _first(n).requires_grad),
    "x0: f32[] grad; sigmoid(x0) -> a",
    t(4, 8, requires_grad=True),
    t(8),
)
def gradient_that_matters(x: Tensor, w: Tensor) -> Tensor:
    return (torch.sigmoid(x * w) + w).relu()


@program(
    any_call("tan", lambda n: not torch.is_grad_enabled() or not value(n).requires_grad),
    "x0: f32[]; tan(x0) -> a",
    t(4, 8, requires_grad=True),
    why="a tangent of what needs no gradient needs no region for it",
)
def no_grad_region(x: Tensor) -> Tensor:
    y = x.exp()
    with torch.no_grad():
        z = (y * 2).tan()
    return y * z


_TABLE = torch.arange(8.0)


@program(lambda gm: flows(gm, "add", "tan"), "x0: f32[]; add(x0, x0); tan(a) -> b", t(4, 8))
def constant(x: Tensor) -> Tensor:
    y = torch.add(x.relu(), torch.tensor([1.0, 2.0] * 4))
    return y.exp().tan()


# Two bugs in one program: the one that shows is kept, not the other.


@program(
    lambda gm: flows(gm, "sin", "cos"),
    "x0: f32[]; sin(x0); cos(a) -> b",
    t(4, 8),
)
def first_of_two(x: Tensor) -> Tensor:
    return (x.sin() + 1).cos() + x.tan()


def _two(gm: torch.fx.GraphModule) -> bool:
    if flows(gm, "exp", "log"):
        return True
    if named(gm, "log"):
        raise ValueError("another bug: a logarithm")
    return False


@program(_two, "x0: f32[]; exp(x0); log(a) -> b", t(4, 8))
def one_hides_another(x: Tensor) -> Tensor:
    return (x.exp() * 2 + x).relu().log() - x


# Dynamic sizes.


def _symbolic(node: torch.fx.Node) -> bool:
    return any(isinstance(size, torch.SymInt) for size in _first(node).shape)


@program(
    any_call("sin", _symbolic), "x0: f32[s0]; sin(x0) -> a (s0=2)", t(4, 8), t(8, 8), dynamic=True
)
def dynamic(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).sin() + x.shape[0]).reshape(-1)


@program(
    any_call("sin", lambda n: len({str(s) for s in _first(n).shape}) == 2 and _symbolic(n)),
    "x0: f32[1,s0]; sin(x0) -> a (s0=2)",
    t(4, 8),
    dynamic=True,
)
def dynamic_two(x: Tensor) -> Tensor:
    return (x.relu().t().sin() * x.shape[1]).reshape(-1)


@program(
    lambda gm: flows(gm, "sin", "cos"), "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8), dynamic=True
)
def dynamic_that_does_not_matter(x: Tensor) -> Tensor:
    return x.sin().view(-1, 2).relu().cos() + x.shape[0]


def _unbacked(node: torch.fx.Node) -> bool:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(_first(node)))


@program(
    any_call("tanh", _unbacked), "x0: f32[1]; x1: bool[1]; getitem(x0, x1); tanh(a) -> b", t(4, 8)
)
def unbacked(x: Tensor) -> Tensor:
    y = x[x.relu() > 0]
    return (y * 2).tanh().sum()


@program(any_call("tanh"), "x0: f32[]; tanh(x0) -> a", t(4, 8))
def unbacked_that_does_not_matter(x: Tensor) -> Tensor:
    y = torch.nonzero(x.relu() > 0).float()
    return (y * 2).tanh().sum()


@program(
    any_call("full", lambda n: not isinstance(n.args[0][0], int)),
    "x0: i64[]; item(x0); full((a), 0.0) -> b",
    torch.tensor([3, 5]),
)
def item(x: Tensor) -> Tensor:
    n = (x * 2).sum().item()
    torch._check(n >= 0)
    torch._check(n < 100)
    return torch.full((n,), 1.5) + 1


@program(
    any_call(
        "sin",
        lambda n: (
            isinstance(_first(n).shape[0], torch.SymInt) and _first(n).shape[0].node.hint >= 20
        ),
    ),
    "x0: f32[s0]; sin(x0) -> a (s0=20)",
    t(64, 8),
    dynamic=True,
)
def dynamic_threshold(x: Tensor) -> Tensor:
    return x.relu().sin().sum(1)


# Bodies of higher-order operators.


@program(
    lambda gm: flows_anywhere(gm, "sin", "cos"), "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8), t(4, 8)
)
def cond_that_does_not_matter(x: Tensor, y: Tensor) -> Tensor:
    def yes(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a.sin() * b).relu().cos(), a + 1

    def no(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * b, b - 1

    u, v = torch.cond(x.sum() > 0, yes, no, (x, y))
    return u.exp() + v


@program(
    lambda gm: body_has(gm, "cond", "sin"),
    "x0: bool[]; x1: f32[]; "
    "cond(x0, {x0; sin(x0) -> a}, {x0; sin(x0) -> a}, (x1)); getitem(a, 0) -> b",
    t(4, 8),
    t(4, 8),
    t(8),
)
def cond_body(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    def yes(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a.exp() * b).relu().sin() + w, a + 1

    def no(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * b + w, b - 1

    u, v = torch.cond(x.sum() > 0, yes, no, (x * 2, y))
    return u.exp() + v


@program(
    lambda gm: body_has(gm, "cond", "sin") and body_has(gm, "cond", "cos"),
    "x0: bool[]; x1: f32[]; "
    "cond(x0, {x0; sin(x0) -> a}, {x0; cos(x0) -> a}, (x1)); getitem(a, 0) -> b",
    t(4, 8),
)
def cond_both_branches(x: Tensor) -> Tensor:
    return torch.cond(
        x.sum() > 0, lambda a: (a.exp() * 2).sin(), lambda a: (a.relu() + 3).cos(), (x + 1,)
    )


@program(
    lambda gm: body_has(gm, "while_loop", "sin"),
    "x0: i64[]; x1: f32[]; "
    "while_loop({x0; x1; lt(x0, 0) -> a}, {x0; x1; sin(x1) -> x0}, (x0), (x1)) -> ",
    t(4, 8),
    t(4, 8),
    why="the sine is in the body; that nothing uses it does not matter to the bug",
)
def while_body(x: Tensor, y: Tensor) -> Tensor:
    def more(i: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return i < 7

    def body(i: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return i + 1, (a * y).sin() + b, b.relu()

    zero = torch.zeros((), dtype=torch.int64)
    _, a, b = torch._higher_order_ops.while_loop(more, body, (zero, x * 2, y + 1))
    return a.exp() + b


@program(
    lambda gm: bool(named(gm, "while_loop")) and any(n.args[1] >= 5 for n in named(gm, "lt")),
    "x0: i64[]; while_loop({x0; lt(x0, 5) -> a}, {x0; add(x0, 1) -> a}, (x0), ()) -> ",
    t(4, 8),
)
def while_trips(x: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=torch.int64)
    _, a = torch._higher_order_ops.while_loop(
        lambda i, a: i < 37, lambda i, a: (i + 1, a.sin() * 2), (zero, x)
    )
    return a


@program(lambda gm: flows_anywhere(gm, "sin", "cos"), "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8))
def while_that_does_not_matter(x: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=torch.int64)
    _, a = torch._higher_order_ops.while_loop(
        lambda i, a: i < 7, lambda i, a: (i + 1, (a.sin() * 2).cos()), (zero, x)
    )
    return a


@program(
    lambda gm: body_has(gm, "scan", "sin"),
    "x0: f32[1]; x1: f32[]; scan({x0; x1; sin(x0) -> a}, [x1], [x0], []); getitem(a, 0) -> b",
    t(6, 4),
    t(6, 4),
)
def scan_body(x: Tensor, y: Tensor) -> Tensor:
    def step(carry: tuple[Tensor, Tensor], at: tuple[Tensor, Tensor]) -> Any:
        a, b = carry
        u, v = at
        return (a + u.sin() * y[0], b * v), (a.exp(), b.relu())

    (a, b), (c, d) = scan(step, (x[0], y[0]), (x, y.relu()), dim=0)
    return a + b + c.sum(0) + d.sum(0)


@program(
    lambda gm: body_has(gm, "map_impl", "sin"),
    "x0: f32[1]; map_impl({x0; sin(x0) -> a}, [x0], []); getitem(a, 0) -> b",
    t(6, 4),
    t(6, 4),
)
def map_body(x: Tensor, y: Tensor) -> Tensor:
    return map_op(lambda a, b: (a.exp().sin() + b).relu(), x * 2, y[0]).sum(0)


@torch.compiler.nested_compile_region
def region(a: Tensor, b: Tensor) -> Tensor:
    """Compiled once, called twice."""
    return (a.exp().sin() + b).relu()


@program(
    lambda gm: body_has(gm, "invoke_subgraph", "sin"),
    "x0: f32[]; invoke_subgraph({x0; sin(x0) -> a}, 'subgraph_0', x0); getitem(a, 0); "
    "invoke_subgraph({x0; sin(x0) -> a}, 'subgraph_0', x0); getitem(c, 0) -> b, d",
    t(4, 8),
    t(4, 8),
    why="Dynamo inlines a region that is called once, before any backend sees it",
)
def shared_region(x: Tensor, y: Tensor) -> Tensor:
    return region(x * 2, y) + region(y, x)


@program(
    lambda gm: body_has(gm, "invoke_subgraph", "sin") and len(named(gm, "invoke_subgraph")) == 2,
    "x0: f32[]; invoke_subgraph({x0; sin(x0) -> a}, 'subgraph_0', x0); getitem(a, 0); "
    "invoke_subgraph({x0; sin(x0) -> a}, 'subgraph_0', b); getitem(c, 0) -> d",
    t(4, 8),
    t(4, 8),
)
def shared_region_twice(x: Tensor, y: Tensor) -> Tensor:
    return region(region(x * 2, y), x)


@program(
    lambda gm: body_has(gm, "tag_activation_checkpoint", "sin"),
    "x0: f32[]; tag_activation_checkpoint({x0; sin(x0) -> a}, x0); getitem(a, 0) -> b",
    t(4, 8, requires_grad=True),
    t(8, 8),
)
def checkpoint_body(x: Tensor, w: Tensor) -> Tensor:
    return checkpoint(lambda a: (a @ w).exp().sin() + a, x * 2, use_reentrant=False).sum()


@program(
    lambda gm: body_has(gm, "flex_attention", "sin"),
    "x0: f32[1,1,1,1]; x1: i32[]; x2: bool[]; "
    "flex_attention(x0, x0, x0, {x0; x1; x2; x3; x4; sin(x0) -> a}, ...); getitem(a, 0) -> b",
    t(1, 2, 8, 16),
    t(8),
    why="x2 is what the mask computed: which of its values does not matter",
    slow=True,
)
def flex_score(x: Tensor, bias: Tensor) -> Tensor:
    def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (s * 2).sin() + bias[j % 8] - i

    return flex_attention(x, x * 2, x + 1, score_mod=score).relu()


@program(
    lambda gm: any(body_has(inner, "cond", "sin") for inner in list(graphs(gm))[1:]),
    "x0: f32[]; x1: bool[]; "
    "cond(x1, "
    "{x0; x1; cond(x1, {x0; sin(x0) -> a}, {x0; sin(x0) -> a}, (x0)); getitem(a, 0) -> b}, "
    "{x0; x1; cond(x1, {x0; sin(x0) -> a}, {x0; sin(x0) -> a}, (x0)); getitem(a, 0) -> b}, "
    "(x0, x1)); "
    "getitem(a, 0) -> b",
    t(4, 8),
)
def cond_in_cond(x: Tensor) -> Tensor:
    def inner(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 1, lambda b: b.exp().sin(), lambda b: b + 1, (a * 2,))

    return torch.cond(x.sum() > 0, lambda a: inner(a).relu(), lambda a: a - 1, (x,))


class Doubled(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Twice."""
        ctx.save_for_backward(x)
        return x.sin() * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Its gradient."""
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 2


@program(
    any_call("autograd_function_apply"),
    "x0: f32[]; autograd_function_apply({x0 -> (x0), (x0)}, {x0; x1 -> x0}, x0, "
    "non_differentiable_idx=[], saved_for_backward_idx=[0]); getitem(a, 0) -> b",
    t(4, 8, requires_grad=True),
)
def own_function(x: Tensor) -> Tensor:
    return Doubled.apply(x * 3).relu().sum()


@program(
    any_call("addmm"), "x0: f32[1,1]; x1: f32[]; addmm(x1, x0, x0) -> a", t(4, 8), t(8, 8), t(8)
)
def vmapped(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = torch.vmap(lambda a: torch.sin(a) * 2)(x)
    return torch.addmm(b, y.relu(), w)


# Other ends than an exception in the backend.

_SIN_COS: Rule = lambda gm: flows(gm, "sin", "cos")  # noqa: E731


@program(_SIN_COS, "x0: f32[]; sin(x0); cos(a) -> b", t(4, 8), how=acting(_SIN_COS, segfault))
def crash(x: Tensor) -> Tensor:
    return (x.sin().relu() * 2).cos() + x


@program(
    _SIN_COS,
    "x0: f32[]; sin(x0); cos(a) -> b",
    t(4, 8),
    how=running(_SIN_COS, fail_at_run),
    harness="run",
)
def error_at_run(x: Tensor) -> Tensor:
    return (x.sin().relu() * 2).cos() + x


@program(
    _SIN_COS,
    "x0: f32[]; sin(x0); cos(a) -> b",
    t(4, 8),
    how=running(_SIN_COS, one_more),
    harness="accuracy",
)
def wrong_result(x: Tensor) -> Tensor:
    return (x.sin().relu() * 2).cos() + x


_GRAD = any_call("sin", lambda n: value(n).requires_grad)


@program(
    _GRAD,
    "x0: f32[] grad; sin(x0) -> a",
    t(4, 8, requires_grad=True),
    how=running(_GRAD, lambda gm, args: tuple(v * 2 - v.detach() for v in gm(*args))),
    harness="accuracy",
)
def wrong_gradient(x: Tensor) -> Tensor:
    return (x * 3).sin().relu()


# In Inductor.


@in_torch("x0: f64[]; cos(x0) -> a", t(4, 8))
def lowering_of_a_dtype(x: Tensor) -> Tensor:
    return (x.double() * 2).cos().float() + x.cos()


@in_torch("x0: f32[8,8]; erf(x0) -> a", t(16, 16))
def lowering_of_a_size(x: Tensor) -> Tensor:
    return (x @ x).erf().relu()


@in_torch("x0: f32[]; hardswish(x0) -> a", t(4, 8))
def decomposition(x: Tensor) -> Tensor:
    return F.hardswish(x * 2).relu() + 1


@in_torch(
    "x0: f32[2,2]; mm(x0, x0); tanh(a) -> b",
    t(4, 8),
    why="a product of 1 x 1 is decomposed before the pass sees it",
)
def post_grad_pass(x: Tensor) -> Tensor:
    return torch.mm(x.relu(), x.t()).tanh() * 3


@in_torch("x0: f32[] grad; sinh(x0) -> a", t(4, 8, requires_grad=True), harness="train", slow=True)
def lowering_of_a_gradient(x: Tensor) -> Tensor:
    return (x * 2).sinh().relu()


@in_torch("x0: f32[]; atan(x0) -> a", t(4, 8), slow=True)
def crash_in_a_lowering(x: Tensor) -> Tensor:
    return (x * 2).atan().relu()


@in_torch("x0: f32[]; acosh(x0) -> a", t(4, 8), slow=True)
def error_of_the_cpp_compiler(x: Tensor) -> Tensor:
    return (x + 2).acosh().relu()
