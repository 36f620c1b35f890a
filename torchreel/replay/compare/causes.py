"""Names the likely cause of a divergence, from the environments of both recordings.

Lives here: versions, devices, config and packages, compared.  Not here: the events (`events`).  A
cause is a guess: it says what is different besides, not that nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import canonical_json, parse_json
from torchreel.store.documents.kinds import as_object, list_only
from torchreel.store.records import Compile

VERSIONS = ("torch", "python", "gxx", "triton", "cuda")
DEVICES = ("machine", "cpu", "cpu_count", "num_threads")

CACHES = frozenset(
    {
        ("inductor", "fx_graph_cache"),
        ("inductor", "fx_graph_remote_cache"),
        ("inductor", "compile_threads"),
        ("functorch", "enable_autograd_cache"),
        ("functorch", "enable_remote_autograd_cache"),
        ("functorch", "bundled_autograd_cache"),
    }
)
"""Config entries that do nothing in a replay, which sets them (`configs.caches_off`)."""

IMPOSED = CACHES | {
    ("functorch", "force_non_lazy_backward_lowering"),
    ("functorch", "unlift_effect_tokens"),
}
"""All those that a replay sets for itself (`backward_now`), and the one that Inductor sets
meanwhile."""

_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")


def likely(
    recorded: tuple[Store, Compile], replayed: tuple[Store, Compile | None], first: str
) -> str:
    """Return the likely causes of a divergence, or ''; `first` is the diverging event's kind."""
    return "; ".join(_causes(recorded, replayed, first))


def _causes(
    recorded: tuple[Store, Compile], replayed: tuple[Store, Compile | None], first: str
) -> Iterator[str]:
    store, compile = recorded
    other, again = replayed
    yield from _killed(store, compile)
    if again is None:
        return
    failure = queries.failure_of(other, again)
    if failure is not None and queries.failure_of(store, compile) is None:
        said = " ".join(failure.message.split())
        yield f"the replay failed, which the recorded compile did not: {said:.200}"
    ours = queries.environment(store, compile.recording_id)
    theirs = queries.environment(other, again.recording_id)
    yield from _rows("version", VERSIONS, ours, theirs)
    yield from _rows("device", DEVICES, ours, theirs)
    yield from _config(recorded, (other, again))
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
        yield f"the recorded process was ended from outside ({signal}), and its event log with it"


def _config(recorded: tuple[Store, Compile], replayed: tuple[Store, Compile]) -> Iterator[str]:
    """Yield entries that the compile had at its checkpoints, and the replay has not."""
    here = {
        (entry.module, entry.key): canonical_json(entry.value)
        for entry in queries.config(replayed[0], replayed[1].config_id)
    }
    checkpoints = _at_checkpoints(*recorded)
    for name in dict.fromkeys(name for entries in checkpoints for name in entries):
        # The options of the `torch.compile` call come between the two entries.
        values = [entries.get(name, _DEFAULT) for entries in checkpoints]
        found = here.get(name, _DEFAULT)
        if here and name not in IMPOSED and found not in values:
            where = ".".join(name)
            yield f"config: {where} {_short(values[0])} recorded, {_short(found)} in the replay"


def _at_checkpoints(store: Store, compile: Compile) -> list[dict[tuple[str, str], bytes]]:
    """Return the config in each of a compile's checkpoints, which a replay restores."""
    found = []
    for row in queries.checkpoints(store, compile):
        try:
            document = parse_json(store.read_blob(row.digest))
        except ValueError:
            continue  # what is wrong with it, a replay from it says
        entries = as_object(document).get("config")
        found.append({
            (str(entry.get("module")), str(entry.get("key"))): canonical_json(entry.get("value"))
            for entry in list_only(entries)
            if isinstance(entry, Mapping)
        })  # fmt: skip
    return found


_DEFAULT = b"default"


def _short(value: bytes) -> str:
    return value.decode("utf-8", "replace")[:120]
