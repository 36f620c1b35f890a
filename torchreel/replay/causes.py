"""The likely cause of a divergence, told from what both recordings say of their surroundings.

Lives here: versions, devices, config and packages, compared.  Not here: the events (`events`).  A
cause is a guess: it says what is different besides, not that nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchreel.store import queries
from torchreel.store.configs import ConfigEntry
from torchreel.store.database import Store
from torchreel.store.jsontypes import canonical_json
from torchreel.store.records import Compile

VERSIONS = ("torch", "python", "gxx", "triton", "cuda")
DEVICES = ("machine", "cpu", "cpu_count", "num_threads")

IMPOSED = frozenset(
    {
        ("inductor", "fx_graph_cache"),
        ("inductor", "fx_graph_remote_cache"),
        ("inductor", "compile_threads"),
        ("functorch", "enable_autograd_cache"),
        ("functorch", "enable_remote_autograd_cache"),
        ("functorch", "bundled_autograd_cache"),
        ("functorch", "force_non_lazy_backward_lowering"),
    }
)
"""Config entries that a replay sets for itself (`torch_names.caches_off`, `backward_now`)."""

_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


def likely(
    recorded: tuple[Store, Compile], replayed: tuple[Store, Compile | None], first: str
) -> str:
    """What may have made the difference; `first` is the kind of the first diverging event."""
    return "; ".join(_causes(recorded, replayed, first))


def _causes(
    recorded: tuple[Store, Compile], replayed: tuple[Store, Compile | None], first: str
) -> Iterator[str]:
    store, compile = recorded
    other, again = replayed
    yield from _killed(store, compile)
    if again is None:
        return
    ours = queries.environment(store, compile.recording_id)
    theirs = queries.environment(other, again.recording_id)
    yield from _rows("version", VERSIONS, ours, theirs)
    yield from _rows("device", DEVICES, ours, theirs)
    yield from _config(recorded, (other, again))
    failure = queries.failure_of(other, again)
    if failure is not None and failure.exception_type in ("ModuleNotFoundError", "ImportError"):
        yield f"missing package: {failure.message.splitlines()[0]:.200}"
    if first.startswith("nondeterminism."):
        yield "nondeterminism: the machine gave another answer than when it was recorded"


def _rows(
    name: str, keys: tuple[str, ...], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> Iterator[str]:
    for key in keys:
        if key in ours and key in theirs and ours[key] != theirs[key]:
            yield f"{name}: {key} {ours[key]} recorded, {theirs[key]} here"


def _killed(store: Store, compile: Compile) -> Iterator[str]:
    recording = queries.recording(store, compile.recording_id)
    if compile.status == "crashed" and recording.exit_signal in (*_FROM_OUTSIDE, None):
        signal = recording.exit_signal or "no word why"
        yield f"the recorded process was ended from outside ({signal}), and its tape with it"


def config_of(store: Store, compile: Compile) -> dict[str, ConfigEntry]:
    """The config of a compile, by name, less what a replay sets for itself."""
    return {
        f"{entry.module}.{entry.key}": entry
        for entry in queries.config(store, compile.config_id)
        if (entry.module, entry.key) not in IMPOSED
    }


def _config(recorded: tuple[Store, Compile], replayed: tuple[Store, Compile]) -> Iterator[str]:
    ours, theirs = config_of(*recorded), config_of(*replayed)
    if not theirs and ours:
        return  # it ended before its first checkpoint
    for name in sorted({*ours, *theirs}):
        if _value(ours.get(name)) != _value(theirs.get(name)):
            here = _value(theirs.get(name))
            yield f"config: {name} {_value(ours.get(name))} recorded, {here} here"


def _value(entry: ConfigEntry | None) -> str:
    return "default" if entry is None else canonical_json(entry.value).decode()[:120]
