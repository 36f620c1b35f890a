"""Bugs of the compiler of torch 2.13.0, after public issues, as text.

Nothing here is copied from an issue: each program was written from what the issue says of the
cause.
"""

from __future__ import annotations

from benchmarks.triage.bugs import Bug

_FLOATS = ("float32", "float64", "bfloat16")

COMPILER_BUGS = {
    "scatter_on_empty": Bug(
        "pytorch#188213",
        """
def fn(x):
    pooled = F.adaptive_max_pool1d(x, 0)
    return torch.scatter(pooled, -1, pooled, pooled)

def make_inputs():
    return (torch.rand(SIZE, 8, dtype=DTYPE),)
""",
        "target: aten.scatter.src",
        dtypes=("float32", "float64"),
        spellings=(("torch.scatter(pooled, ", "pooled.scatter("),),
    ),
    "pool_of_size_zero": Bug(
        "pytorch#188218",
        """
def fn(x):
    pooled = F.fractional_max_pool2d(x, 0, output_size=(3, 3))
    return F.pad(pooled, (1, 1, 1, 1))

def make_inputs():
    return (torch.randn(1, 2, SIZE + 5, SIZE + 5, dtype=DTYPE),)
""",
        "max not supported for zero-dimension tensors",
        dtypes=("float32", "float64"),
    ),
    "cummin_of_empty": Bug(
        "pytorch#188224",
        """
def fn(x):
    return torch.cummin(x * 2, -SIZE)[0]

def make_inputs():
    return (torch.empty(0, dtype=DTYPE),)
""",
        "aten.cummin",
        dtypes=_FLOATS,
        spellings=(("torch.cummin(x * 2, -SIZE)", "(x * 2).cummin(-SIZE)"),),
    ),
    "exponential_of_convolution": Bug(
        "pytorch#188222",
        """
def fn(x, weight):
    return torch.matrix_exp(F.conv2d(torch.sinh(x), weight))

def make_inputs():
    return torch.rand(3, SIZE, 8, 8), torch.randn(6, SIZE, 1, 1)
""",
        "view size is not compatible",
        spellings=(("torch.matrix_exp", "torch.linalg.matrix_exp"),),
        variants=4,
    ),
    "sum_of_a_constant": Bug(
        "pytorch#193265",
        """
def fn(x):
    return x + torch.tensor(5.0).cumsum(0)

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE),)
""",
        "tuple index out of range",
        dtypes=_FLOATS,
        spellings=(("torch.tensor(5.0).cumsum(0)", "torch.cumsum(torch.tensor(3.0), -1)"),),
    ),
    "softmax_of_a_scalar": Bug(
        "pytorch#190418",
        """
def fn(x):
    best = x.argmax().float()
    return F.log_softmax(best * best, dim=-1)

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE),)
""",
        "list index out of range",
        dtypes=_FLOATS,
        spellings=(("F.log_softmax(best * best, dim=-1)", "torch.log_softmax(best * best, 0)"),),
    ),
    "half_sum_as_truth": Bug(
        "pytorch#197106",
        """
def fn(x):
    return torch.sum(x.relu().half(), dim=-1, dtype=torch.bool)

def make_inputs():
    return (torch.randn(SIZE, 16, dtype=DTYPE),)
""",
        "CppCompileError",
        dtypes=("float32", "float64"),
        spellings=(("torch.sum(x.relu().half(), ", "x.relu().half().sum("),),
        variants=4,
    ),
    "loop_over_captured_input": Bug(
        "pytorch#191582",
        """
from torch._higher_order_ops.while_loop import while_loop

def fn(x):
    captured = x
    return while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v + captured), (torch.tensor(0), x))

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE),)
""",
        "might be aliasing",
        dtypes=_FLOATS,
        spellings=(("v + captured", "captured * 2 + v"),),
    ),
    "zero_tensor": Bug(
        "pytorch#197067",
        """
def fn(t):
    return t[-1] + 10

def make_inputs():
    x = torch.randn(SIZE, requires_grad=True, dtype=DTYPE)
    return (torch.autograd.grad(torch.sgn(x).sum(), x)[0],)
""",
        "crash",
        dtypes=("float32", "float64"),
        spellings=(("t[-1] + 10", "t[-1].add(10)"),),
        variants=4,
    ),
    "unfold_with_gaps": Bug(
        "pytorch#198102",
        """
def fn(x):
    buffer = x.clone()
    buffer.unfold(2, 2, 6).mul_(3)
    return buffer

def make_inputs():
    return (torch.randn(1, 3, SIZE + 12, dtype=DTYPE),)
""",
        "wrong_result",
        dtypes=("float32", "float64"),
        is_wrong=True,
        spellings=((".mul_(3)", ".add_(5)"),),
        variants=4,
    ),
    "flex_attention_with_lse": Bug(
        "transformers#40345",
        """
from torch.nn.attention.flex_attention import flex_attention

def fn(q, k, v):
    out, lse = flex_attention(q, k, v, return_lse=True)
    return out * lse.unsqueeze(-1)

def make_inputs():
    return tuple(torch.randn(1, 2, SIZE * 4, 16) for _ in range(3))
""",
        "return_lse",
    ),
    "checkpointed_blocks": Bug(
        "pytorch#193194",
        """
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(SIZE, eps=1e-5)
        self.mix = nn.Linear(SIZE, SIZE)

    def forward(self, x, context=None):
        x = x + self.mix(self.norm(x))
        return x if context is None else x * context.mean(1, keepdim=True)

blocks = nn.ModuleList([Block(), Block()])

def fn(x, context):
    alone = given = x
    for block in blocks:
        alone = checkpoint(block, alone, None, use_reentrant=False)
    for block in blocks:
        given = checkpoint(block, given, context, use_reentrant=False)
    return alone.sum() + given.sum()

def make_inputs():
    return torch.randn(3, 7, SIZE), torch.randn(3, 5, SIZE)
""",
        "lift_tracked_freevar_to_input",
        arguments="dynamic=True",
    ),
    "product_as_truth": Bug(
        "found here: prod of halves as a truth value",
        """
def fn(x):
    return torch.prod(x.half(), -1, dtype=torch.bool)

def make_inputs():
    return (torch.randn(SIZE, 16, dtype=DTYPE),)
""",
        "AssertionError",
        dtypes=("float32", "float64"),
        spellings=(("torch.prod(x.half(), -1, ", "x.half().prod(1, "),),
        variants=4,
    ),
    "guard_on_data": Bug(
        "no bug: a size that only a run can give, in a condition",
        """
def fn(x):
    found = x.nonzero()
    return torch.ones(3) if found.shape[0] > 2 else torch.ones(2)

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE) > 0,)
""",
        "Could not guard on data-dependent expression",
        dtypes=_FLOATS,
        arguments="fullgraph=True",
    ),
    "printing": Bug(
        "no bug: a print, in a full graph",
        """
def fn(x):
    print(x.sum())
    return x * 2

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE),)
""",
        "print",
        dtypes=_FLOATS,
        arguments="fullgraph=True",
    ),
}
