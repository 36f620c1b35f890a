"""The facts that a recorded compile read of its machine, to be imposed on the child of a replay.

Lives here: reading the facts from an event log, as data that travels with the request, and what of
them the child's environment has to say.  Not here: imposing them on torch (`torch_machine`), config
and ambient state (`restore`).  Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchreel.events.fake_tensors import FakeDispatch
from torchreel.events.nondeterminism import (
    Accelerator,
    Autotuning,
    FusedTime,
    Machine,
    TritonBuild,
    VectorISA,
)
from torchreel.events.proxies import ProxyTrace
from torchreel.events.reading import read_as
from torchreel.recorder.redaction import MODES
from torchreel.recorder.settings import Settings
from torchreel.replay.imposed.attention import PREFIX, SCALED
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile

BUILD = "triton_build"
ATTENTION, AUTOTUNED, FUSED, PADDED = "attention", "autotuned", "fused", "padded"
IN_ORDER = (ATTENTION, AUTOTUNED, FUSED, PADDED)
"""Rows that tell how each attention was computed (`attention`); the choices that Inductor
measured, as [operator, their (name, milliseconds)]; the milliseconds that it measured to tell
whether to fuse kernels; the products of matrices that were faster with padding, as [replacement,
arguments]."""
PADDING = ("mm_replace", "addmm_replace", "bmm_replace")
"""The replacements of `torch._inductor.fx_passes.pad_mm`."""

_IN_CODE = re.compile(rb"'backend_hash': '([0-9A-F]{64})'")


@dataclass(frozen=True)
class Facts:
    """The facts; None where the event log does not say."""

    cpus: int | None = None
    """CPUs in the machine: decides whether a kernel names its number of threads."""
    usable_cpus: int | None = None
    """CPUs that the process may use, by which torch chooses its number of threads."""
    vector_isa: str | None = None
    """Inductor's name of the vector instructions it generated: 'avx512'."""
    vector_flags: str = ""
    hash_seed: str | None = None
    seed: int | None = None
    capability: str | None = None
    """The vector instructions of torch's own kernels: 'AVX2'."""
    accelerator: Mapping[str, Json] | None = None
    """The properties of the GPUs from torch and Triton (`nondeterminism.accelerator`); the digest
    of the build of Triton under `BUILD`; and, in order, what the device decided (`IN_ORDER`)."""
    redact: str | None = None
    """The level of redaction of the recording, which its replay gets as well."""


def recorder_settings(facts: Facts, *, trust: bool) -> Settings:
    """Return the settings for recording a replay, with the recorded level of redaction.

    Redaction patterns of the user are in no event log. Without `trust`, a store cannot turn
    redaction off.
    """
    if facts.redact not in MODES or (facts.redact == "none" and not trust):
        return Settings()
    return Settings(redact=facts.redact)


def device_notes(facts: Facts) -> list[str]:
    """Return the notes of a verdict on imposed GPUs and the steps left out; [] without a GPU."""
    found = facts.accelerator
    devices = found.get("devices") if found is not None else None
    if found is None or not isinstance(devices, list):
        return []
    names = [
        f"{d.get('name')} (compute capability {d.get('major')}.{d.get('minor')}, "
        f"{d.get('multi_processor_count')} multiprocessors)"
        for d in devices
        if isinstance(d, Mapping)
    ]
    return [
        f"imposed: {', '.join(dict.fromkeys(names))}, {len(names)} of it, CUDA "
        f"{found.get('toolkit')}, triton {found.get('triton')}",
        "what Inductor measured on the device, and which kernel computes an attention, is from the "
        "recording; the device itself would be needed to load kernels and to run them",
    ]


def facts_of(store: Store, compile: Compile, *, frame: bool = False) -> Facts:
    """Return the facts of the recorded machine in a compile's event log.

    `frame`: for a replay that begins with the frame, which Dynamo traces.
    """
    machine = _machine(store, compile)
    isas = queries.events(store, compile, VectorISA.kind)
    flags = [isa.fields.flags for isa in isas[:1] if isinstance(isa.fields, VectorISA)]
    cpus = machine.cpus
    present, usable = cpus if isinstance(cpus, list) and len(cpus) == 2 else (None, None)
    return Facts(
        cpus=_number(present),
        usable_cpus=_number(usable),
        vector_isa=isas[0].name if isas else None,
        vector_flags=next(iter(flags), None) or "",
        hash_seed=machine.hash_seed,
        seed=machine.seed,
        capability=machine.capability or None,
        accelerator=_accelerator(store, compile, frame=frame),
        redact=queries.environment(store, compile.recording_id).get("redact"),
    )


def variables(facts: Facts) -> dict[str, str]:
    """Return the environment variables that a process has to begin with for some of the facts."""
    found: dict[str, str] = {}
    if facts.hash_seed is not None and facts.hash_seed.isdecimal():
        found["PYTHONHASHSEED"] = facts.hash_seed
    # The variable only lowers: a machine with less than what was recorded keeps what it has.
    if facts.capability in ("DEFAULT", "AVX2"):
        found["ATEN_CPU_CAPABILITY"] = facts.capability.lower()
    return found


def _machine(store: Store, compile: Compile) -> Machine:
    found = [event.fields for event in queries.events(store, compile, Machine.kind)]
    return found[-1] if found and isinstance(found[-1], Machine) else read_as(Machine, {})


def _accelerator(store: Store, compile: Compile, *, frame: bool) -> Mapping[str, Json] | None:
    found = queries.events(store, compile, Accelerator.kind)
    data = found[-1].data if found else None
    if not data or not isinstance(data, Mapping):
        return None
    return {
        **data,
        BUILD: _build_of_triton(store, compile),
        ATTENTION: _attentions(store, compile, frame=frame),
        AUTOTUNED: _autotuned(store, compile),
        FUSED: _fused(store, compile),
        PADDED: _padded(store, compile),
    }


def _attentions(store: Store, compile: Compile, *, frame: bool) -> list[Json]:
    """Return the operators that tell which attention was computed how, with their results.

    Those that Dynamo traced come first, in a replay that begins with the frame.
    """
    found = [
        event
        for event in queries.events(store, compile, FakeDispatch.kind)
        if event.name.startswith((PREFIX, SCALED)) and (frame or event.stage != "dynamo")
    ]
    if not any(event.name.startswith(PREFIX) for event in found):
        return []
    return [[e.name, e.fields.result] for e in found if isinstance(e.fields, FakeDispatch)]


def _autotuned(store: Store, compile: Compile) -> list[Json]:
    return [
        [event.name, event.fields.milliseconds]
        for event in queries.events(store, compile, Autotuning.kind)
        if isinstance(event.fields, Autotuning)
    ]


def _fused(store: Store, compile: Compile) -> list[Json]:
    return [
        event.fields.milliseconds
        for event in queries.events(store, compile, FusedTime.kind)
        if isinstance(event.fields, FusedTime)
    ]


def _padded(store: Store, compile: Compile) -> list[Json]:
    """Return the products that Inductor padded: it measures which way is faster (`pad_mm`)."""
    return [
        [event.name, event.fields.arguments]
        for event in queries.events(store, compile, ProxyTrace.kind)
        if event.name in PADDING and isinstance(event.fields, ProxyTrace)
    ]


def _build_of_triton(store: Store, compile: Compile) -> str | None:
    """Return the digest that is in each Triton kernel; None where no kernel was written.

    A store from before the event `nondeterminism.triton_build` has it in its output code alone.
    """
    for event in queries.events(store, compile, TritonBuild.kind):
        if isinstance(event.fields, TritonBuild):
            return event.fields.digest
    for code in queries.output_codes(store, compile):
        found = _IN_CODE.search(store.read_blob(code.digest))
        if found is not None:
            return found[1].decode()
    return None


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
