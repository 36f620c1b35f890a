"""A compile recorded is the compile unrecorded, by all that torch itself writes of it.

`make fidelity` does the same for whole models and for real failures.
"""

import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.fidelity import Observation, check, differences, normal

PRELUDE = "import sys, torch\nfrom torch import nn\n"

BREAKS_AND_RECOMPILES = """
def inner(x, n):
    torch._dynamo.graph_break()
    return x * n

@torch.compile(backend="aot_eager")
def f(x, n):
    y = inner(x.sin(), n)
    if y.sum() > 1e9:
        y = y + 1
    return y.cos()

for size, n in ((3, 2), (4, 2), (5, 3), (5, 4.5)):
    print(f(torch.ones(size), n).shape)
"""
DYNAMIC_TRAINING = """
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(2))
step = torch.compile(model, backend="aot_eager", dynamic=True)
for batch in (2, 3):
    out = step(torch.randn(batch, 1, 8, 8))
    out.sum().backward()
    print(out.shape, [p.grad.norm().item() for p in model.parameters()])
"""
CONTROL_FLOW = """
from torch._higher_order_ops.while_loop import while_loop

@torch.compile(backend="aot_eager", fullgraph=True)
def f(x, n):
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2), (torch.tensor(0), y))

print(f(torch.ones(3), torch.tensor(4)))
"""
UNBACKED = """
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True

@torch.compile(backend="aot_eager", fullgraph=True)
def f(x, i):
    n = i.item()
    torch._check(n >= 2)
    torch._check(n < 9)
    return x.nonzero().sum() + torch.ones(n).sum() + torch.rand(1) * 0

print(f(torch.tensor([1, 0, 1]), torch.tensor(4)))
"""
INDUCTOR = """
f = torch.compile(lambda x, y: (x @ y).relu().sum(0) + torch.rand(3))
torch.manual_seed(7)
for _ in range(2):
    print(f(torch.ones(2, 3), torch.ones(3, 3)).tolist())
"""
FAILS = """
def backend(gm, inputs):
    raise ValueError("on purpose")

@torch.compile(backend=backend)
def f(x):
    return x.sin()

try:
    f(torch.ones(2))
except Exception as error:
    import traceback
    print(type(error), error)
    print("".join(traceback.format_exception(error)))
sys.exit(5)
"""
# Dynamo looks at each frame of `helper`'s callees; probes run there, and at an import.
EAGER = """
from torch.fx.experimental.proxy_tensor import make_fx

@torch._dynamo.disable(recursive=False)
def helper(x):
    import torch._inductor.compile_fx
    with torch._subclasses.FakeTensorMode() as mode:
        mode.from_tensor(x).sin()
    return make_fx(lambda x: x.cos() + 1)(x)(x)

@torch.compile(backend="aot_eager")
def f(x):
    return helper(x).sin()

print(f(torch.ones(3)))
"""
PROGRAMS = {
    "eager code": (EAGER, {"dynamo_output_graph": 1}),
    "breaks and recompiles": (BREAKS_AND_RECOMPILES, {"dynamo_output_graph": 4}),
    "dynamic training": (DYNAMIC_TRAINING, {"dynamo_output_graph": 1, "create_symbol": 2}),
    "control flow": (CONTROL_FLOW, {"dynamo_output_graph": 1}),
    "unbacked symbols": (UNBACKED, {"create_unbacked_symbol": 2}),
    "inductor": (INDUCTOR, {"inductor_output_code": 1}),
    "a failing backend": (FAILS, {"dynamo_output_graph": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_writes_the_same_with_and_without_the_recorder(name: str, tmp_path: Path) -> None:
    text, at_least = PROGRAMS[name]
    program = tmp_path / "program.py"
    program.write_text(PRELUDE + textwrap.dedent(text))
    plain, found = check([str(program)])
    for kind, count in at_least.items():
        assert plain.counts.get(kind, 0) >= count, (plain.counts, plain.log[-5:])
    assert plain.status == (5 if name == "a failing backend" else 0)
    *own, frames, alive, _ = plain.stdout.splitlines()
    assert own
    assert frames.startswith("frames: {")
    assert alive.startswith("tensors alive:")
    assert ("Parameter" in alive) == (name == "dynamic training")
    assert found == []


def test_a_difference_would_be_seen() -> None:
    plain = Observation(0, "out", ["log"], {"artifact": ["a", "b"], "create_symbol": ["s0"]})
    for other in (
        Observation(1, "out", ["log"], plain.records),
        Observation(0, "other", ["log"], plain.records),
        Observation(0, "out", ["log", "more"], plain.records),
        Observation(0, "out", ["log"], {"artifact": ["a", "c"], "create_symbol": ["s0"]}),
        Observation(0, "out", ["log"], {"artifact": ["a", "b"]}),
    ):
        assert len(differences(plain, other)) == 1
    assert differences(plain, plain) == []


def test_only_ids_times_and_temporary_names_are_taken_out() -> None:
    text = (
        "Eq(s0, 4) at 0x7f00aabbccdd, 140213412341234, took 1.25 ms, s77 < 1234567, "
        "G['_140277079455872_c0'], buf0[3], ___dict_version(f(G['d'])) == 847904  # if n == 5:"
    )
    assert normal(text) == (
        "Eq(s0, 4) at <address>, <id>, took <time> ms, s77 < 1234567, G['_<id>_c0'], buf0[3], "
        "___dict_version(f(G['d'])) == <version>  # if n == 5:"
    )
    assert normal("__compiled_fn_37_ff7d8a74_caa4_43c9_a751_123456789012") == (
        "__compiled_fn_37_<uuid>"
    )
    assert normal(sys.executable) == sys.executable
