"""The facts that a recorded compile read of its machine, to be imposed on the child of a replay.

Lives here: reading the facts from an event log, as data that travels with the request, and what of
them the child's environment has to say.  Not here: imposing them on torch (`torch_machine`), config
and ambient state (`restore`).  Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchreel.events.nondeterminism import Accelerator, Machine, VectorISA
from torchreel.events.reading import read_as
from torchreel.recorder.redaction import MODES
from torchreel.recorder.settings import Settings
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile


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
    """The properties of the GPUs from torch and Triton (`nondeterminism.accelerator`)."""
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


def told(facts: Facts) -> list[str]:
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
        "the device itself would be needed to measure kernels (autotuning), to compile Triton to "
        "binaries and load them, and to run: none of that was done",
    ]


def facts_of(store: Store, compile: Compile) -> Facts:
    """Return the facts of the recorded machine in a compile's event log."""
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
        accelerator=_accelerator(store, compile),
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


def _accelerator(store: Store, compile: Compile) -> Mapping[str, Json] | None:
    found = queries.events(store, compile, Accelerator.kind)
    data = found[-1].data if found else None
    return data if data and isinstance(data, Mapping) else None


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
