"""Small programs that the replay tests record: all in one process, or one alone."""

import os
import sys
from pathlib import Path
from unittest import mock

from tests import forks
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings

PRELUDE = """
import torch, torch.nn.functional as F
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.norm = torch.nn.LayerNorm(8)
    def forward(self, x):
        return self.norm(x + F.dropout(self.b(F.gelu(self.a(x))), 0.1, self.training))
"""

PROGRAMS = {
    "inference": "m = torch.compile(Block().eval())\nwith torch.no_grad(): m(torch.randn(4, 8))",
    "frozen": (  # a bias of 8 elements stands in the code
        "import torch._inductor.config\ntorch._inductor.config.freezing = True\n"
        "m = torch.compile(Block().eval())\nwith torch.no_grad(): m(torch.randn(4, 8))\n"
        "torch._inductor.config.freezing = False"
    ),
    "training": "m = torch.compile(Block())\nm(torch.randn(4, 8)).sum().backward()",
    "dynamic_training": (
        # The last dimension is a symbol that becomes 8, and the first stride speaks of it.
        "m = torch.compile(Block(), dynamic=True)\nm(torch.randn(3, 4, 8)).sum().backward()"
    ),
    "unbacked": (
        "import torch._dynamo\n"
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True\n"
        "torch._dynamo.config.capture_scalar_outputs = True\n"
        "def fn(x):\n"
        "    n = x.max().item(); torch._check(n >= 2); torch._check(n < 100)\n"
        "    return torch.ones(n).cumsum(0) + torch.nonzero(x).sum()\n"
        "torch.compile(fn, fullgraph=True)(torch.tensor([3, 0, 7]))"
    ),
    "branches": (  # Inductor traces the scan anew, as a loop
        "import torch._dynamo\n"
        "from torch._higher_order_ops.scan import scan\n"
        "torch._dynamo.config.capture_scalar_outputs = True\n"
        "def fn(x):\n"
        "    y = torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x,))\n"
        "    return scan(lambda c, v: (c + v, c * v), torch.zeros_like(y[0]), y)[1]\n"
        "torch.compile(fn, fullgraph=True, dynamic=True)(torch.randn(4, 6))"
    ),
    "mutation_and_aliasing": (
        "def fn(a, b):\n    a.add_(1)\n    return a[1:], b * 2, a.sum() + b.sum()\n"
        "base = torch.randn(20)\n"
        "torch.compile(fn)(base[:10], base[5:15])"
    ),
    "autocast": (
        "m = torch.compile(Block())\n"
        "with torch.autocast('cpu', torch.bfloat16): m(torch.randn(4, 8)).float().sum().backward()"
    ),
    "options": (
        "m = torch.compile(lambda x: (x.sin().cos() + x.exp()).sum(0),\n"
        "    options={'max_fusion_size': 1, 'epilogue_fusion': False})\nm(torch.randn(4, 8))"
    ),
    "lowering_failure": (
        "def fn(x):\n"
        "    e = F.adaptive_max_pool1d(x, (0,))\n    return torch.scatter(e, -1, e, e).relu()\n"
        "torch.compile(fn)(torch.rand(4, 8))"
    ),
    "boolean_mask": (
        "import torch._dynamo\n"
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True\n"
        "f = torch.compile(lambda x: (x[x > 0] * 2).sum(), fullgraph=True, dynamic=True)\n"
        "f(torch.randn(8))"
    ),
    "checkpointed": (
        "from torch.utils.checkpoint import checkpoint\n"
        "def fn(x, w):\n"
        "    return checkpoint(lambda a, b: torch.tanh(a @ b).sin(), x, w, use_reentrant=False)\n"
        "x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))\n"
        "torch.compile(fn)(x, w).sum().backward()"
    ),
    "wrapper_and_scalar": (
        # Two wrappers that share what they hold; the value of a 0-d input bounds a slice.
        "import torch._dynamo\n"
        "from torch.testing._internal.two_tensor import TwoTensor\n"
        "torch._dynamo.config.capture_scalar_outputs = True\n"
        "f = torch.compile(lambda w, v, x, n: (w * 2 + v, x[: n.item()]))\n"
        "a, b = torch.randn(5), torch.randn(5)\n"
        "f(TwoTensor(a, b), TwoTensor(b, b), torch.randn(7), torch.tensor(3))\n"
        "c, d, e = torch.randn(5), torch.randn(4), torch.randn(4)\n"
        "g = torch.compile(lambda u, v, w: (u + v, w.sin()))\n"
        "g(TwoTensor(a, b), TwoTensor(b, c), TwoTensor(d, e))"
    ),
    "tiny": "torch.compile(lambda x: x.sin() + 1)(torch.randn(5))",
    "later_call_recompiles": (
        "f = torch.compile(lambda x: x.relu() * x.shape[0])\n"
        "f(torch.randn(3)); f(torch.randn(5)); f(torch.randn(7))"
    ),
}

# No cache: a compile that comes from one has no graphs to be compared.
UNCACHED = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


MAIN = """
import importlib, sys
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, "failed:", type(error).__name__, file=sys.stderr)
        sys.exit(1) if len(sys.argv) == 3 else None
"""


def record(path: Path, *names: str, source: str = "", **variables: str) -> int:
    """Record programs by name (or `source`) into the store at `path`; the exit status.

    Each is a module of its own, so that a compile's `frame_file` tells where it comes from.
    """
    for name in names:
        (path.parent / f"{name}.py").write_text(PRELUDE + (source or PROGRAMS[name]))
    (path.parent / "main_program.py").write_text(MAIN)
    program = str(path.parent / "main_program.py")
    command = [sys.executable, program, str(path), *names]
    with mock.patch.dict(os.environ, variables):
        given = Settings.from_environment()
        return run_recorded(command, path, settings=given, start=forks.start)
