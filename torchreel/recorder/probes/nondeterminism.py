"""Nondeterminism: caches, autotuning, device and CPU properties, seeds, workers.

Row 15 of the design's table of systems.  Lives here: what two runs of one compile may find
different.  Nothing here draws, changes or initialises anything: a seed is read where one is set, a
device's properties when the compiler asks for them.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchreel.recorder.attach import AttachPoint, Call, Probe, Tap, Visit
from torchreel.recorder.kinds import Kind

if TYPE_CHECKING:
    from torchreel.recorder.event_log.spans import CompileEntry
    from torchreel.recorder.recorder import Recorder

_AOT_CACHE = "torch._functorch._aot_autograd.autograd_cache"
FX_LOOKUP = AttachPoint(
    "torch._inductor.codecache", "FxGraphCache.load_with_key", "a look into Inductor's cache"
)
FX_KEY = AttachPoint(
    "torch._inductor.codecache", "FxGraphCache.prepare_key", "why Inductor's cache is bypassed"
)
AOT_LOOKUP = AttachPoint(_AOT_CACHE, "AOTAutogradCache.try_load", "a look into AOTAutograd's cache")
AOT_KEY = AttachPoint(_AOT_CACHE, "autograd_cache_key", "its key, or why it is bypassed")
CHOOSE = AttachPoint(
    "torch._inductor.select_algorithm", "AlgorithmSelectorCache.do_autotuning", "choices and times"
)
TRITON = AttachPoint(
    "torch._inductor.runtime.triton_heuristics",
    "CachingAutotuner.benchmark_all_configs",
    "times of a Triton kernel's configurations",
)
VECTOR = AttachPoint("torch._inductor.cpu_vec_isa", "pick_vec_isa", "the vector instructions")
DEVICE = AttachPoint(
    "torch._inductor.runtime.hints", "DeviceProperties.create", "a device's properties"
)
BACKEND = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "the moment before a backend begins",
)
ATTACH_POINTS = (FX_LOOKUP, FX_KEY, AOT_LOOKUP, AOT_KEY, CHOOSE, TRITON, VECTOR, DEVICE)

CACHE = Kind(
    name="nondeterminism.cache",
    system=15,
    meaning="A cache of compiled graphs was asked.",
    fields={
        "outcome": "hit, miss or bypass",
        "key": "what it was asked for",
        "reason": "why it was bypassed",
    },
    points=(FX_LOOKUP, FX_KEY, AOT_LOOKUP, AOT_KEY),
    pages=False,
    probe="nondeterminism",
)
AUTOTUNED = Kind(
    name="nondeterminism.autotune",
    system=15,
    meaning="Inductor measured the ways to compute an operator, or read earlier measurements.",
    fields={
        "choices": "how many ways there were",
        "inputs": "the sizes of the inputs",
        "milliseconds": "of each way that was measured: (name, time)",
        "chosen": "the fastest",
    },
    points=(CHOOSE,),
    pages=False,
    probe="nondeterminism",
)
TRITON_TUNED = Kind(
    name="nondeterminism.triton_config",
    system=15,
    meaning="The configurations of a Triton kernel were measured.",
    fields={"milliseconds": "of each: (configuration, time)", "chosen": "the fastest"},
    points=(TRITON,),
    pages=False,
    probe="nondeterminism",
)
MACHINE = Kind(
    name="nondeterminism.machine",
    system=15,
    meaning="What a backend may ask of the machine, as it was when it began.",
    fields={
        "cpus": "in the machine, and those that this process may use",
        "threads": "within an operator and between operators",
        "capability": "the vector instructions of torch's own kernels",
        "compile_workers": "processes that compile kernels; null without Inductor",
        "hash_seed": "PYTHONHASHSEED",
        "seed": "what torch's generator was seeded with",
        "deterministic": "whether deterministic algorithms were asked for",
    },
    points=(BACKEND,),
    pages=False,
    probe="nondeterminism",
)
PROPERTIES = Kind(
    name="nondeterminism.device",
    system=15,
    meaning="Inductor read the properties of a device; once per compile and device.",
    fields={"properties": "all that it read"},
    points=(DEVICE,),
    pages=False,
    probe="nondeterminism",
)
ACCELERATOR = Kind(
    name="nondeterminism.accelerator",
    system=15,
    meaning="What torch told of the machine's GPUs when a backend began on a graph with inputs "
    "there, or asked for one; once per compile.",
    fields={
        "devices": "the properties of each",
        "current": "the index of the current one",
        "toolkit": "the version of CUDA that torch was built for",
        "hip": "the version of HIP that torch was built for",
        "architectures": "those that torch's own kernels were compiled for",
        "triton": "the version of Triton; null without it",
    },
    points=(BACKEND, DEVICE),
    pages=False,
    probe="nondeterminism",
)
VECTORS = Kind(
    name="nondeterminism.vector_isa",
    system=15,
    meaning="Inductor chose the vector instructions to generate; once per compile and choice.",
    fields={"bits": "the width of a register", "flags": "what the C++ compiler is told"},
    points=(VECTOR,),
    pages=False,
    probe="nondeterminism",
)
KINDS = (CACHE, AUTOTUNED, TRITON_TUNED, MACHINE, PROPERTIES, ACCELERATOR, VECTORS)

# What a kernel's code may depend on; not what names this one device (uuid, bus).
_PROPERTIES = (
    "name", "major", "minor", "multi_processor_count", "warp_size", "total_memory",
    "regs_per_multiprocessor", "max_threads_per_multi_processor", "max_threads_per_block",
    "shared_memory_per_block", "shared_memory_per_block_optin", "shared_memory_per_multiprocessor",
    "L2_cache_size", "clock_rate", "memory_clock_rate", "memory_bus_width", "is_integrated",
    "is_multi_gpu_board", "gcnArchName",
)  # fmt: skip


class _Thread(threading.local):
    key: str | None = None
    bypass: str | None = None


_here = _Thread()
_noted: dict[str, CompileEntry | None] = {}
"""The compile for which each fact of the machine was noted: torch reads them again and again."""


def note_machine(recorder: Recorder, inputs: Sequence[object]) -> None:
    """Note the machine when a backend is about to begin on a graph with these inputs."""
    import torch

    config = sys.modules.get("torch._inductor.config")
    affinity = getattr(os, "sched_getaffinity", None)
    recorder.note(
        MACHINE,
        "",
        (os.cpu_count(), len(affinity(0)) if affinity is not None else None),
        (torch.get_num_threads(), torch.get_num_interop_threads()),
        torch.backends.cpu.get_cpu_capability(),
        getattr(config, "compile_threads", None),
        os.environ.get("PYTHONHASHSEED"),
        torch.default_generator.initial_seed(),
        torch.are_deterministic_algorithms_enabled(),
    )
    on_gpu = any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in inputs)
    if on_gpu and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        _note_accelerator(recorder)


def _note_accelerator(recorder: Recorder) -> None:
    """Of initialised devices: to ask for them then changes and waits for nothing."""
    import torch

    if not _is_new(recorder, "accelerator"):
        return
    recorder.note(
        ACCELERATOR,
        "cuda",
        [_properties(index) for index in range(torch.cuda.device_count())],
        torch.cuda.current_device(),
        torch.version.cuda,
        torch.version.hip,
        torch.cuda.get_arch_list(),
        _version_of_triton(),
    )


def _properties(index: int) -> dict[str, object]:
    import torch

    found = torch.cuda.get_device_properties(index)
    return {name: getattr(found, name) for name in _PROPERTIES if hasattr(found, name)}


@functools.cache
def _version_of_triton() -> str | None:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def _fx_lookup(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None:
        state = outcome.result[1].get("cache_state")
        recorder.note(CACHE, "FxGraphCache", state, call.argument(0, "key"), None)


def _fx_key(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None and outcome.result[0] is None:
        reason = outcome.result[1].get("cache_bypass_reason")
        recorder.note(CACHE, "FxGraphCache", "bypass", None, reason)


def _aot_key(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    error = outcome.error
    _here.key = None if error is not None else outcome.result[0]
    _here.bypass = None if error is None else f"{type(error).__name__}: {error}"


def _aot_lookup(recorder: Recorder, call: Call) -> Visit:
    _here.key = _here.bypass = None
    outcome = yield
    if outcome.error is not None:
        return
    result = outcome.result
    loaded = result[0] if isinstance(result, tuple) else result  # torch 2.12 has it alone
    found = "hit" if loaded is not None else "miss"
    state = "bypass" if _here.key is None else found
    recorder.note(CACHE, "AOTAutogradCache", state, _here.key, _here.bypass)


def _chosen(recorder: Recorder, call: Call) -> Visit:
    from torchreel.recorder.event_log import describe

    outcome = yield
    if outcome.error is not None or not outcome.result:
        return
    times = [(choice.name, time) for choice, time in outcome.result.items()]
    nodes, choices = call.argument(2, "input_nodes"), call.argument(6, "choices")
    recorder.note(
        AUTOTUNED,
        str(call.argument(1, "name")),
        len(choices),
        [describe.sizes(node.get_size()) for node in nodes],
        times,
        min(times, key=lambda row: row[1])[0],
    )


def _triton(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is not None or not outcome.result:
        return
    times = [(str(launcher.config), time) for launcher, time in outcome.result.items()]
    name = str((call.args[0].inductor_meta or {}).get("kernel_name", ""))
    recorder.note(TRITON_TUNED, name, times, min(times, key=lambda row: row[1])[0])


def _is_new(recorder: Recorder, what: str) -> bool:
    """Return whether this was not yet noted for the compile at hand."""
    top = recorder.spans.top
    entry = top.entry if top is not None else None
    if what in _noted and _noted[what] is entry:
        return False
    _noted[what] = entry
    return True


def _vector(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None and _is_new(recorder, f"vector {result}"):
        recorder.note(VECTORS, str(result), result.bit_width(), result.build_arch_flags())


def _device(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is not None:
        return
    if _is_new(recorder, f"device {result.type}:{result.index}"):
        recorder.note(PROPERTIES, f"{result.type}:{result.index}", dict(result._asdict()))
    if result.type in ("cuda", "hip"):
        _note_accelerator(recorder)


PROBES = (
    Probe(FX_LOOKUP, _fx_lookup),
    Probe(FX_KEY, _fx_key),
    Probe(AOT_LOOKUP, _aot_lookup),
    Probe(AOT_KEY, _aot_key),
    Probe(CHOOSE, _chosen),
    Probe(TRITON, _triton),
    Tap(VECTOR, _vector),
    Tap(DEVICE, _device),
)
