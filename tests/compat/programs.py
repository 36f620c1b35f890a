"""Small programs, one or two for each of the nineteen systems of the pipeline.

Each is run twice: as it is, and with a backend that fails on its `x.sin().cos()`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

PLANTED = "tests.compat.planted"
ROOT = Path(__file__).parents[2]
STORES = "TORCHREEL_COMPAT_STORES"
"""The variable that names a folder for the stores of several releases."""


@dataclass(frozen=True)
class Program:
    """A program, the rows of the table of systems that it stands for, and what shows them.

    `source` defines `program(backend)`.  `kinds` are the kinds of events that have to be in its
    recording.  `backend` is the one that it is replayed with, `failing` the one that it fails with;
    '' where the system has no failure that is reduced.  `refused` says why it is not replayed.
    """

    systems: tuple[int, ...]
    source: str
    kinds: tuple[str, ...]
    backend: str = "aot_eager"
    failing: str = "planted_dynamo"
    config: str = "{}"
    entry: str = "graph"
    refused: str = ""
    minimum: tuple[str, ...] = ("sin", "cos")


PROGRAMS = {
    "export": Program(
        (19,),
        """
class Model(torch.nn.Module):
    def forward(self, x):
        torch._check(x.shape[0] > 2)
        return x.sin().cos()

def program(backend):
    shapes = {"x": {0: torch.export.Dim("n", min=3)}}
    for strict in (True, False):
        torch.export.export(Model(), (torch.ones(4),), dynamic_shapes=shapes, strict=strict)
""",
        ("export.start", "export.end"),
        failing="",
        refused="no graph checkpoint",
    ),
    "frames": Program(
        (1,),
        """
def step(x, scale):
    y = x.sin().cos()
    torch._dynamo.graph_break()
    return y * scale

def left(x):
    torch._dynamo.skip_frame()
    return x

def program(backend):
    compiled = torch.compile(step, backend=backend)
    for size, scale in ((3, 2), (3, 4), (5, 4)):
        compiled(torch.ones(size), scale)
    torch.compile(left, backend=backend)(torch.ones(3))
""",
        ("frame.start", "frame.graph_break", "frame.restart", "frame.cache_miss", "frame.skip"),
    ),
    "frame": Program(
        (1, 2),
        """
def program(backend):
    torch.compile(step, backend=backend)(torch.ones(3), 2)

def step(x, scale):
    return x.sin().cos() * scale
""",
        ("frame.start", "output_graph.bytecode"),
        entry="frame",
        failing="",
    ),
    "output_graph": Program(
        (2,),
        """
import random
seen = []

class Counter:
    calls = 0

def program(backend):
    counter = Counter()

    def step(x, unused):
        seen.append(len(seen))
        counter.calls += 1
        return x.sin().cos() * random.random()

    torch.compile(step, backend=backend)(torch.ones(3), torch.ones(4))
""",
        ("output_graph.input", "output_graph.side_effect", "output_graph.compile",
         "output_graph.bytecode", "output_graph.global"),
    ),
    "subgraphs": Program(
        (3, 11),
        """
def program(backend):
    def step(x, y):
        return torch.cond(x.sum() > 0, lambda v: (v + y).sin().cos(), lambda v: v - y, (x,))

    torch.compile(step, backend=backend)(torch.ones(3), torch.ones(3))
""",
        ("subgraph.enter", "subgraph.lift", "subgraph.leave", "hop.body", "hop.call", "hop.check"),
    ),
    "guards": Program(
        (4,),
        """
SETTINGS = {"scale": 2, "names": ["a", "b"]}

def program(backend):
    layer = torch.nn.Linear(3, 3)

    def step(x):
        return layer(x).sin().cos() * SETTINGS["scale"] * len(SETTINGS["names"])

    torch.compile(step, backend=backend)(torch.ones(2, 3))
""",
        ("guards.guard", "guards.manager", "guards.sources"),
    ),
    "shape_env": Program(
        (5,),
        """
def program(backend):
    def step(x):
        if x.shape[0] > 3:
            return x.reshape(-1, 2).sin().cos()
        return x

    torch.compile(step, backend=backend, dynamic=True)(torch.ones(6))
""",
        ("shape_env.create", "shape_env.symbol", "shape_env.guard", "shape_env.guards",
         "shape_env.range"),
    ),
    "unbacked": Program(
        (6, 7),
        """
def program(backend):
    def step(x):
        found = torch.nonzero(x)
        size = x.max().item()
        torch._check(size >= 2)
        torch._check(size < 100)
        return torch.ones(size).sin().cos(), found.sum()

    torch.compile(step, backend=backend, fullgraph=True)(torch.tensor([3, 0, 7]))
""",
        ("unbacked.create", "unbacked.bindings", "runtime_assert.defer", "runtime_assert.insert"),
        config="{'capture_scalar_outputs': True, 'capture_dynamic_output_shape_ops': True}",
    ),
    "scalars": Program(
        (8,),
        """
def program(backend):
    def step(x, scale, count):
        return x.sin().cos()[: count.item()] * scale

    compiled = torch.compile(step, backend=backend)
    for scale in (1.5, 2.5):
        compiled(torch.ones(5), scale, torch.tensor(3))
""",
        ("scalar.item", "scalar.symbolic", "scalar.tensorify"),
        config="{'capture_scalar_outputs': True, 'specialize_float': False}",
    ),
    "fake_tensors": Program(
        (9,),
        """
def program(backend):
    base = torch.ones(20)

    def step(x, y):
        return x.sin().cos() + y.view(2, 5).sum(0, keepdim=True).view(5).repeat(2)

    torch.compile(step, backend=backend)(base[:10], base[5:15])
""",
        ("fake_tensors.convert", "fake_tensors.memo", "fake_tensors.dispatch"),
    ),
    "proxies": Program(
        (10,),
        """
def program(backend):
    def step(x):
        return x.sin().cos().view(-1, x.shape[1] // 2) * x.shape[0]

    torch.compile(step, backend=backend, dynamic=True)(torch.ones(3, 4))
""",
        ("proxies.trace", "proxies.node", "proxies.symbolic", "proxies.traced"),
        failing="planted_aten",
    ),
    "loops": Program(
        (11,),
        """
from torch._higher_order_ops import associative_scan, while_loop
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan

def program(backend):
    def step(n, x):
        n, y = while_loop(lambda n, x: n > 0, lambda n, x: (n - 1, x.sin().cos()), (n, x))
        carry, rows = scan(lambda c, v: (c + v, c * v), torch.zeros_like(y[0]), y)
        summed = associative_scan(lambda a, b: a + b, y, 0, combine_mode="generic")
        return n, carry, rows, summed, map_(lambda row, c: row + c, y, carry)

    torch.compile(step, backend=backend, fullgraph=True)(torch.tensor(2), torch.ones(4, 3))
""",
        ("hop.body", "hop.call"),
    ),
    "regions": Program(
        (11,),
        """
from torch.utils.checkpoint import checkpoint

@torch.compiler.nested_compile_region
def region(x):
    return x.sin().cos()

def program(backend):
    def step(x, w):
        y = checkpoint(lambda a, b: torch.tanh(a @ b), x, w, use_reentrant=False)
        return region(region(y))

    x, w = (torch.ones(3, 3, requires_grad=True) for _ in range(2))
    torch.compile(step, backend=backend, fullgraph=True)(x, w).sum().backward()
""",
        ("hop.body", "hop.call"),
    ),
    "aot": Program(
        (12,),
        """
def program(backend):
    layer = torch.nn.Linear(4, 4)
    base = torch.ones(12)

    def step(x, y, z):
        x.add_(1)
        return layer(x.sin().cos().view(2, 4)).sum() + y.sum(), z + 1, z

    loss, *_ = torch.compile(step, backend=backend)(base[:8], base[4:12], torch.ones(2))
    loss.backward()
""",
        ("aot.metadata", "aot.synthetic_bases", "aot.partition", "aot.late_backward"),
        failing="planted_aten",
    ),
    "compiled_autograd": Program(
        (13,),
        """
from torch._dynamo import compiled_autograd

def program(backend):
    compiled_autograd.reset()
    w = torch.ones(2, 2, requires_grad=True)
    w.register_hook(lambda grad: grad * 2)
    with compiled_autograd._enable(torch.compile(backend=backend)):
        (torch.ones(3, 2) @ w).sin().sum().backward()
""",
        ("compiled_autograd.capture", "compiled_autograd.node", "compiled_autograd.hook",
         "compiled_autograd.graph"),
        failing="",
        refused="no graph checkpoint",
    ),
    "inductor": Program(
        (14, 15),
        """
def program(backend):
    layer = torch.nn.Linear(8, 8)

    def step(x):
        y = torch.nn.functional.dropout(layer(x).sin(), 0.1)
        return torch.cumsum(y.cos().softmax(-1), 0)

    with torch.no_grad():
        torch.compile(step, backend=backend)(torch.ones(4, 8))
""",
        ("inductor.pass", "inductor.passes", "inductor.lowering", "inductor.fuse",
         "inductor.schedule", "inductor.kernel", "inductor.extern",
         "nondeterminism.machine", "nondeterminism.vector_isa"),
        backend="inductor",
        failing="planted_inductor",
        minimum=("cos",),
    ),
    "custom": Program(
        (17,),
        """
from torch.testing._internal.two_tensor import TwoTensor

def program(backend):
    def step(x, y):
        return torch.ops.torchreel_compat.shift(x.sin().cos(), 2.0), y * 2

    pair = TwoTensor(torch.ones(3), torch.zeros(3))
    torch.compile(step, backend=backend)(torch.ones(3), pair)
""",
        ("custom.operator", "custom.subclass"),
    ),
    "backends": Program(
        (18,),
        """
def program(backend):
    torch.compile(lambda x: x.sin().cos() + 1, backend=backend)(torch.ones(3))
""",
        ("backend.call", "backend.return", "backend.verify"),
        config="{'verify_correctness': True}",
    ),
}  # fmt: skip

_MAIN = """
import contextlib, importlib, json, random, sys
import torch
import tests.compat.planted

random.seed(0)
for name, backend in json.loads(sys.argv[2]):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = importlib.import_module(name)
    tolerant = contextlib.suppress(Exception) if sys.argv[3] else contextlib.nullcontext()
    with torch._dynamo.config.patch(module.CONFIG), tolerant:
        module.program(backend)
"""
_LAUNCHER = """
import sys
from torchreel.recorder.launch import run_recorded
from torchreel.recorder.settings import Settings
command = [sys.executable, *sys.argv[1:]]
sys.exit(run_recorded(command, sys.argv[2], settings=Settings.from_environment()))
"""


def record(folder: Path, *, failing: bool) -> Path:
    """Record all programs in one process; each is a module of its own, known by its file.

    Raises AssertionError with the program's stderr if one that should not fail does.
    """
    runs = []
    for name, program in PROGRAMS.items():
        backend = program.failing if failing else program.backend
        if backend:
            runs.append([name, backend])
            head = f"import torch\nBACKEND = {program.backend!r}\nCONFIG = {program.config}\n"
            (folder / f"{name}.py").write_text(head + program.source)
    (folder / "main_program.py").write_text(_MAIN)
    path = folder / "run.db"
    words = [folder / "main_program.py", path, json.dumps(runs), "failing" if failing else ""]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TORCHREEL_FRAMES": "all",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCHER, *map(str, words)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if os.environ.get(STORES):
        kept = Path(os.environ[STORES]) / torch.__version__.partition("+")[0]
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept / ("failed.db" if failing else "recorded.db"))
    return path
