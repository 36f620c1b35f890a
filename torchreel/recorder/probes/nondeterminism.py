"""Nondeterminism: caches, autotuning, device and CPU properties, seeds, workers.

Lives here: what two runs of one compile may find
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

from torchreel.events.nondeterminism import (
    Accelerator,
    Autotuning,
    CacheOutcome,
    DeviceProperties,
    FusedTime,
    Machine,
    TritonBuild,
    TritonConfig,
    VectorISA,
)
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Tap, Visit

if TYPE_CHECKING:
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
FUSED_NODES = AttachPoint(
    "torch._inductor.scheduler", "Scheduler.benchmark_fused_nodes", "times of kernels to fuse"
)
FUSED_CODE = AttachPoint(
    "torch._inductor.scheduler", "Scheduler.benchmark_codegened_module", "times of fused kernels"
)
TRITON = AttachPoint(
    "torch._inductor.runtime.triton_heuristics",
    "CachingAutotuner.benchmark_all_configs",
    "times of a Triton kernel's configurations",
)
BUILD = AttachPoint("torch.utils._triton", "triton_hash_with_backend", "the build of Triton")
VECTOR = AttachPoint("torch._inductor.cpu_vec_isa", "pick_vec_isa", "the vector instructions")
DEVICE = AttachPoint(
    "torch._inductor.runtime.hints", "DeviceProperties.create", "a device's properties"
)
BACKEND = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "the moment before a backend begins",
)
ATTACH_POINTS = (
    FX_LOOKUP, FX_KEY, AOT_LOOKUP, AOT_KEY, CHOOSE, FUSED_NODES, FUSED_CODE, TRITON, BUILD, VECTOR,
    DEVICE,
)  # fmt: skip

EVENTS: Events = {
    CacheOutcome: (FX_LOOKUP, FX_KEY, AOT_LOOKUP, AOT_KEY),
    Autotuning: (CHOOSE,),
    FusedTime: (FUSED_NODES, FUSED_CODE),
    TritonConfig: (TRITON,),
    Machine: (BACKEND,),
    DeviceProperties: (DEVICE,),
    Accelerator: (BACKEND, DEVICE),
    TritonBuild: (BUILD,),
    VectorISA: (VECTOR,),
}

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
_outside: set[str] = set()
"""Facts of the machine that were noted outside of any compile."""


def note_machine(recorder: Recorder, inputs: Sequence[object]) -> None:
    """Note the machine when a backend is about to begin on a graph with these inputs."""
    import torch

    config = sys.modules.get("torch._inductor.config")
    affinity = getattr(os, "sched_getaffinity", None)
    recorder.note(
        Machine(
            cpus=(os.cpu_count(), len(affinity(0)) if affinity is not None else None),
            threads=(torch.get_num_threads(), torch.get_num_interop_threads()),
            capability=torch.backends.cpu.get_cpu_capability(),
            compile_workers=getattr(config, "compile_threads", None),
            hash_seed=os.environ.get("PYTHONHASHSEED"),
            seed=torch.default_generator.initial_seed(),
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
    )
    on_gpu = any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in inputs)
    if on_gpu and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        _note_accelerator(recorder)


def _note_accelerator(recorder: Recorder) -> None:
    """Note the state of initialised devices: to ask for them then changes and waits for nothing."""
    import torch

    if not _is_new(recorder, "accelerator"):
        return
    recorder.note(
        Accelerator(
            devices=[_properties(index) for index in range(torch.cuda.device_count())],
            current=torch.cuda.current_device(),
            toolkit=torch.version.cuda,
            hip=torch.version.hip,
            architectures=torch.cuda.get_arch_list(),
            triton=_version_of_triton(),
        ),
        "cuda",
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
        recorder.note(
            CacheOutcome(outcome=state, key=call.argument(0, "key"), reason=None), "FxGraphCache"
        )


def _fx_key(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None and outcome.result[0] is None:
        reason = outcome.result[1].get("cache_bypass_reason")
        recorder.note(CacheOutcome(outcome="bypass", key=None, reason=reason), "FxGraphCache")


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
    recorder.note(
        CacheOutcome(outcome=state, key=_here.key, reason=_here.bypass), "AOTAutogradCache"
    )


def _chosen(recorder: Recorder, call: Call) -> Visit:
    from torchreel.recorder.event_log import describe

    outcome = yield
    if outcome.error is not None or not outcome.result:
        return
    times = [(choice.name, time) for choice, time in outcome.result.items()]
    nodes, choices = call.argument(2, "input_nodes"), call.argument(6, "choices")
    recorder.note(
        Autotuning(
            choices=len(choices),
            inputs=[describe.sizes(node.get_size()) for node in nodes],
            milliseconds=times,
            chosen=min(times, key=lambda row: row[1])[0],
        ),
        str(call.argument(1, "name")),
    )


def _fused(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is None:
        recorder.note(FusedTime(float(outcome.result[0])))


def _triton(recorder: Recorder, call: Call) -> Visit:
    outcome = yield
    if outcome.error is not None or not outcome.result:
        return
    times = [(str(launcher.config), time) for launcher, time in outcome.result.items()]
    name = str((call.args[0].inductor_meta or {}).get("kernel_name", ""))
    recorder.note(TritonConfig(times, min(times, key=lambda row: row[1])[0]), name)


def _is_new(recorder: Recorder, what: str) -> bool:
    """Return True if this was not yet noted for the compile at hand: torch asks again and again.

    Each compile counts for itself: a late backward may follow the compile of another frame, and
    what was noted with the forward holds for it.
    """
    top = recorder.spans.top
    if top is not None:
        return top.entry.ordinal("fact", what) == 0
    is_new = what not in _outside
    _outside.add(what)
    return is_new


def _vector(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None and _is_new(recorder, f"vector {result}"):
        recorder.note(VectorISA(result.bit_width(), result.build_arch_flags()), str(result))


def _build(
    recorder: Recorder,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token: Any,
    result: Any,
    error: BaseException | None,
) -> None:
    if error is None and _is_new(recorder, "build of Triton"):
        recorder.note(TritonBuild(result))


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
        recorder.note(DeviceProperties(dict(result._asdict())), f"{result.type}:{result.index}")
    if result.type in ("cuda", "hip"):
        _note_accelerator(recorder)


PROBES = (
    Probe(FX_LOOKUP, _fx_lookup),
    Probe(FX_KEY, _fx_key),
    Probe(AOT_LOOKUP, _aot_lookup),
    Probe(AOT_KEY, _aot_key),
    Probe(CHOOSE, _chosen),
    Probe(FUSED_NODES, _fused),
    Probe(FUSED_CODE, _fused),
    Probe(TRITON, _triton),
    Tap(BUILD, _build),
    Tap(VECTOR, _vector),
    Tap(DEVICE, _device),
)
