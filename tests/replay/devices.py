"""The facts of two GPUs, as `nondeterminism.accelerator` holds them, and programs for them.

A program is recorded without a GPU: it finds the facts imposed, and its tensors have no memory.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any


def _triton() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def _facts(**device: object) -> dict[str, Any]:
    both = {
        "warp_size": 32, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024, "shared_memory_per_block": 49152, "is_integrated": 0,
        "is_multi_gpu_board": 0,
    }  # fmt: skip
    return {
        "devices": [{**both, **device}],
        "current": 0,
        "toolkit": "13.0",
        "hip": None,
        "architectures": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
        "triton": _triton(),
    }


H200 = _facts(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, total_memory=150110666752,
    shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
    L2_cache_size=62914560, clock_rate=1980000, memory_clock_rate=3201000, memory_bus_width=6144,
)  # fmt: skip
A100 = _facts(
    name="NVIDIA A100-SXM4-80GB", major=8, minor=0, multi_processor_count=108,
    total_memory=85094825984, shared_memory_per_block_optin=166912,
    shared_memory_per_multiprocessor=167936, L2_cache_size=41943040, clock_rate=1410000,
    memory_clock_rate=1593000, memory_bus_width=5120,
)  # fmt: skip

# Before the recorder is installed: it is to see what Inductor is told of the machine.  What is
# compiled is not run.
MACHINE = """
import contextlib, json, os, sys, torch, torchreel, torch.nn.functional as F
import torch._functorch.config, torch._inductor.config
from torchreel.replay import dynamo_names
from torchreel.replay.imposed.facts import Facts
from torchreel.replay.imposed.torch_machine import imposed
from torchreel.torch_compat import inductor

torch._functorch.config.force_non_lazy_backward_lowering = True
torch._inductor.config.compile_threads = 1
torch.set_float32_matmul_precision("high")

def compile(function, *inputs):
    with dynamo_names.compile_only(function.__code__):
        try:
            torch.compile(function)(*inputs)
        except dynamo_names.TracingStopped:
            print("compiled")
        except Exception as error:
            print(type(error).__name__)

facts = Facts(accelerator=json.loads(os.environ["ACCELERATOR"]))
with imposed(facts) as left, inductor.without_cpp_compiler():
    assert not left, left
    with torchreel.record(sys.argv[1]):
"""
PROGRAMS = {
    "inference": """
        x = torch.empty(64, 1000, device="cuda")
        compile(lambda x: F.softmax(F.gelu(x), -1).sum(0), x)
""",
    "training": """
        x, w = (torch.empty(64, n, device="cuda", requires_grad=True) for n in (64, 512))
        def trains(x, w):
            return F.layer_norm(F.gelu(x @ w), (512,)).relu().sum()
        compile(trains, x, w)
""",
    "constant": """
        x = torch.empty(3, device="cuda", requires_grad=True)
        def scales(x):
            return (x.sin() * torch.tensor([1.0, 2.0, 3.0], device="cuda")).cos()
        compile(scales, x)
""",
    "lowering": """
        x = torch.empty(4, 8, device="cuda")
        def fails(x):
            a = F.gelu(x).cos() * 2
            e = F.adaptive_max_pool1d(a, (0,))
            return torch.scatter(e, -1, e, e).relu() + 1
        compile(fails, x)
""",
}
