"""Programs that fail on torch 2.13.0, after public issues, and what may stand around them.

Lives here: the bugs and their variants as text.  Not here: how they are recorded (`recordings`).
Nothing here is copied from an issue: each program was written from what the issue says of the
cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.triage.bugs import Bug
from benchmarks.triage.compiler_bugs import COMPILER_BUGS
from benchmarks.triage.heldout_bugs import HELDOUT_BUGS
from benchmarks.triage.tracing_bugs import TRACING_BUGS
from benchmarks.triage.trap_bugs import TRAP_BUGS

BUGS = {**COMPILER_BUGS, **TRACING_BUGS, **HELDOUT_BUGS, **TRAP_BUGS}
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
VARIANTS = 20
_NAMES = ("x", "value", "hidden", "data", "given")
"""What `x` is called."""

_PROGRAM = """
import torch
import torch.nn.functional as F

SIZE, DTYPE = {size}, torch.{dtype}
torch.manual_seed({seed})
{bug}
{surrounding}

def parts_of(result):
    return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

inputs = make_inputs()
result = torch.compile(model{arguments})(torch.randn({batch}, 3, 16), *inputs)
if {backward}:
    sum(t.float().sum() for t in parts_of(result) if t.requires_grad).backward()
if "after" in globals():
    after(result, inputs)
"""

_FN, _X = re.compile(r"\bfn\("), re.compile(r"\bx\b")
_OF_A_CASE = 2

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
        for number in range(bug.variants):
            yield _variant(name, bug, number)
    for path in sorted(cases.glob("*.py")) if cases is not None else ():
        for number in range(_OF_A_CASE):
            yield _case_variant(path, number)


def _variant(name: str, bug: Bug, number: int) -> Variant:
    text = bug.text
    for before, after in bug.spellings if number % 2 else ():
        assert before in text, name
        text = text.replace(before, after)
    # Functions and files have other names in each program, as in other people's code.
    text = _FN.sub(f"work_{number}(", text)
    text = _X.sub(_NAMES[number % len(_NAMES)], text)
    surrounding = SURROUNDINGS[number % len(SURROUNDINGS)].replace("fn(", f"work_{number}(")
    program = _PROGRAM.format(
        size=bug.sizes[number % len(bug.sizes)],
        dtype=bug.dtypes[number // 2 % len(bug.dtypes)],
        seed=number,
        batch=2 + number % 3,
        bug=text,
        surrounding=surrounding,
        arguments=f", {bug.arguments}" if bug.arguments else "",
        backward=bug.backward,
    )
    return Variant(
        f"{name}-{number}",
        bug.issue or name,
        number,
        program,
        bug.expected,
        bug.is_wrong,
        number % 4,
    )  # fmt: skip


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
        surrounding=SURROUNDINGS[number % len(SURROUNDINGS)],
        batch=2 + number % 3,
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
