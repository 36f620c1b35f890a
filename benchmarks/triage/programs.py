"""Programs that fail on torch 2.13.0, after public issues, and what may stand around them.

Lives here: the bugs and their variants as text.  Not here: how they are recorded (`recordings`).
Nothing here is copied from an issue: each program was written from what the issue says of the
cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """A program with a bug of torch: `fn`, and `make_inputs()`, which may use SIZE and DTYPE."""

    issue: str
    text: str
    expected: str
    """What the recorded failure has to say, for a recording to count as one of this bug."""
    sizes: tuple[int, ...] = (4, 7, 16, 33)
    dtypes: tuple[str, ...] = ("float32",)
    spellings: tuple[tuple[str, str], ...] = ()
    """Other words for the same call: what every second variant has instead."""
    arguments: str = ""
    """Of `torch.compile`."""
    backward: bool = False
    is_wrong: bool = False
    """True if nothing is raised: the results differ from those of eager mode."""


_FLOATS = ("float32", "float64", "bfloat16")

BUGS = {
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
    ),
    "branch_on_data": Bug(
        "no bug: a branch on data, in a full graph",
        """
def fn(x):
    return x + 1 if x.sum() > 0 else x - 1

def make_inputs():
    return (torch.randn(SIZE, dtype=DTYPE),)
""",
        "Data-dependent branching",
        dtypes=_FLOATS,
        arguments="fullgraph=True",
        spellings=(("x.sum() > 0", "x.max() < x.numel()"),),
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
        spellings=(("found.shape[0] > 2", "5 < found.size(0)"),),
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
        spellings=(("print(x.sum())", "print(x, 'is the input')"),),
    ),
}
"""By name. Two names with one issue are one bug."""

_LAYERS = """
class Surrounding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential({layers})

    def forward(self, z, *inputs):
        return self.layers(z), fn(*inputs)

model = Surrounding()
"""

SURROUNDINGS = (
    "model = lambda z, *inputs: fn(*inputs)\n",
    _LAYERS.format(
        layers="torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), "
        "torch.nn.Linear(32, 4)"
    ),
    """
def model(z, *inputs):
    total = z.softmax(-1)
    for step in range(6):
        total = (total @ total.transpose(-1, -2)).sigmoid() @ total
    return {"total": total, "found": fn(*inputs)}
""",
    _LAYERS.format(
        layers="torch.nn.Conv1d(3, 8, 3), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), "
        "torch.nn.MaxPool1d(2), torch.nn.Conv1d(8, 4, 3)"
    ),
    """
def model(z, *inputs):
    found = fn(*inputs)
    extra = F.scaled_dot_product_attention(z, z.flip(0), z.roll(1, 0))
    return torch.cat([extra, z], dim=-1).exp().mean(), found
""",
    _LAYERS.format(
        layers="*[torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), "
        "torch.nn.LayerNorm(16)) for _ in range(5)]"
    ),
    """
def model(z, *inputs):
    with torch.no_grad():
        weights = torch.where(z > 0, z.log1p(), -z.cosh())
    found = fn(*inputs)
    return weights.std(dim=1), found, z.flatten().cumsum(0)[::2]
""",
    """
def helper(values, *inputs):
    return [value.square().sum() for value in values], fn(*inputs)

def model(z, *inputs):
    parts = z.unbind(1)
    squares, found = helper(parts, *inputs)
    return torch.stack(squares) / (1 + torch.stack(parts).amax()), found
""",
)
VARIANTS = len(SURROUNDINGS)

_PROGRAM = """
import torch
import torch.nn.functional as F

SIZE, DTYPE = {size}, torch.{dtype}
torch.manual_seed({seed})
{bug}
{surrounding}

def parts_of(result):
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

result = torch.compile(model{arguments})(torch.randn(2, 3, 16), *make_inputs())
if {backward}:
    sum(t.float().sum() for t in parts_of(result) if t.requires_grad).backward()
"""

_CASE = """
from {module} import *
from {module} import _apply_config

_apply_config(globals().get("config_patches", {{}}))
"""


@dataclass(frozen=True)
class Variant:
    """One program: a bug, how it is written, and what stands around it."""

    name: str
    bug: str
    number: int
    text: str
    expected: str
    is_wrong: bool
    rank: int
    case: Path | None = None
    """A file that the program imports, as `case_file`."""


def variants(cases: Path | None) -> Iterator[Variant]:
    """All programs; those of the files in a directory of cases as well, if there is one."""
    for name, bug in BUGS.items():
        for number in range(VARIANTS):
            yield _variant(name, bug, number)
    for path in sorted(cases.glob("*.py")) if cases is not None else ():
        for number in range(VARIANTS):
            yield _case_variant(path, number)


def _variant(name: str, bug: Bug, number: int) -> Variant:
    text = bug.text
    for before, after in bug.spellings if number % 2 else ():
        assert before in text, name
        text = text.replace(before, after)
    # Functions and files have other names in each program, as in other people's code.
    text = text.replace("fn(", f"work_{number}(")
    surrounding = SURROUNDINGS[number].replace("fn(", f"work_{number}(")
    program = _PROGRAM.format(
        size=bug.sizes[number % len(bug.sizes)],
        dtype=bug.dtypes[number // 2 % len(bug.dtypes)],
        seed=number,
        bug=text,
        surrounding=surrounding,
        arguments=f", {bug.arguments}" if bug.arguments else "",
        backward=bug.backward,
    )
    return Variant(
        f"{name}-{number}", bug.issue, number, program, bug.expected, bug.is_wrong, number % 4
    )


def _case_variant(path: Path, number: int) -> Variant:
    """A case of another program: it may name its settings as `compile_kwargs`, and so on."""
    about = dict(
        line.removeprefix("# ").split(": ", 1)
        for line in path.read_text().splitlines()
        if line.startswith("# ") and ": " in line
    )
    kind = about.get("kind")
    wrong = kind == "accuracy"
    said = {"accuracy": "wrong_result", "cpp_compile": "CppCompileError", "crash": "crash"}
    expected = said.get(str(kind), about.get("message contains", "").split(": ")[-1])
    program = _PROGRAM.format(
        size=0, dtype="float32", seed=number,
        bug=_CASE.format(module=f"case_file_{number}"),
        surrounding=SURROUNDINGS[number],
        arguments=', **globals().get("compile_kwargs", {})',
        backward='globals().get("backward", False)',
    )  # fmt: skip
    return Variant(
        f"{path.stem}-{number}", _issue(about.get("issue", path.stem)), number, program,
        expected, wrong, number % 4, path,
    )  # fmt: skip


def _issue(url: str) -> str:
    parts = url.split("/")
    return f"{parts[-3]}#{parts[-1]}" if len(parts) > 2 else url
