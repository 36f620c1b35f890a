"""Events of what a compile reads from its machine, its caches and its clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchreel.events.event import EventType, Nest


class CacheOutcome(EventType, frozen=True):
    """A cache of compiled graphs was asked."""

    kind = "nondeterminism.cache"
    paged = False

    outcome: str
    """'hit', 'miss' or 'bypass'."""
    key: str | None
    """The key that was looked up."""
    reason: str | None
    """The reason why it was bypassed."""


class Autotuning(EventType, frozen=True):
    """Inductor measured the ways to compute an operator, or read earlier measurements."""

    kind = "nondeterminism.autotune"
    paged = False

    choices: int
    """Number of ways there were."""
    inputs: Nest
    """The sizes of the inputs."""
    milliseconds: Nest
    """Of each way that was measured: (name, time)."""
    chosen: str | None
    """The fastest."""


class FusedTime(EventType, frozen=True):
    """Inductor measured kernels, to tell whether to fuse them is faster."""

    kind = "nondeterminism.fused_time"
    paged = False

    milliseconds: float
    """The time that they take."""


class TritonConfig(EventType, frozen=True):
    """The configurations of a Triton kernel were measured."""

    kind = "nondeterminism.triton_config"
    paged = False

    milliseconds: Nest
    """Of each: (configuration, time)."""
    chosen: str
    """The fastest."""


class Machine(EventType, frozen=True):
    """Facts of the machine that a backend may ask for, as they were when it began."""

    kind = "nondeterminism.machine"
    paged = False

    cpus: Nest
    """In the machine, and those that this process may use."""
    threads: Nest
    """Within an operator and between operators."""
    capability: str
    """The vector instructions of torch's own kernels."""
    compile_workers: int | None
    """Processes that compile kernels; null without Inductor."""
    hash_seed: str | None
    """PYTHONHASHSEED."""
    seed: int | None
    """Seed of torch's generator."""
    deterministic: bool | None
    """True if deterministic algorithms were asked for."""


class DeviceProperties(EventType, frozen=True):
    """Inductor read the properties of a device; once per compile and device."""

    kind = "nondeterminism.device"
    paged = False

    properties: Mapping[str, Nest]
    """All that it read."""


class Accelerator(EventType, frozen=True):
    """Facts of the machine's GPUs, as torch told them when a backend began on a graph with inputs
    there, or asked for one; once per compile."""

    kind = "nondeterminism.accelerator"
    paged = False

    devices: Sequence[Nest]
    """The properties of each."""
    current: int | None
    """The index of the current one."""
    toolkit: str | None
    """The version of CUDA that torch was built for."""
    hip: str | None
    """The version of HIP that torch was built for."""
    architectures: Sequence[str]
    """Those that torch's own kernels were compiled for."""
    triton: str | None
    """The version of Triton; null without it."""


class TritonBuild(EventType, frozen=True):
    """Inductor wrote into a kernel which build of Triton will compile it; once per compile."""

    kind = "nondeterminism.triton_build"
    paged = False

    digest: str
    """Of Triton's own files, the assembler's version and the GPU's architecture."""


class VectorISA(EventType, frozen=True):
    """Inductor chose the vector instructions to generate; once per compile and choice."""

    kind = "nondeterminism.vector_isa"
    paged = False

    bits: int
    """The width of a register."""
    flags: str
    """The flags for the C++ compiler."""
