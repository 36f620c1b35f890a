"""The options of a replay, whatever its entry, and the store that it is recorded into.

Lives here: `ReplayOptions`, into which store a replay is recorded, where its verdict is kept.
Called by `replay` and `sequence`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from torchreel.errors import LockedStore, UnsupportedError, UsageError
from torchreel.replay.compare.rules import ON_REQUEST
from torchreel.replay.compare.time_travel import Until
from torchreel.replay.compare.verdict import Verdict
from torchreel.replay.processes.launch import DEFAULT_TIMEOUT
from torchreel.replay.what_if import Changes
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.failures.hang_limit import recorded_limit
from torchreel.store.records import Compile, Failure

_PUT_OFF = "eager_compile_backwards_failure"
"""Name of the trace record with which torch puts off the failure of a backward."""


@dataclass(frozen=True)
class ReplayOptions:
    """The options of a replay; see `replay`."""

    trust: bool = False
    imports: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    allow: frozenset[str] = frozenset()
    changes: Changes = field(default_factory=Changes)
    until: Until = field(default_factory=Until)
    memory: int | None = None
    """Bytes that each child may take; None: most of what is free."""


def known_classes(allow: Iterable[str]) -> frozenset[str]:
    """Return the classes of difference that may be set aside; UsageError for any other."""
    found = frozenset(allow)
    if not found <= ON_REQUEST.keys():
        raise UsageError(
            f"There is no class of difference {', '.join(sorted(found - ON_REQUEST.keys()))!r} to "
            f"allow: there are {', '.join(ON_REQUEST)}."
        )
    return found


def hang_limit(failure: Failure | None, timeout: float) -> float | None:
    """Return the seconds after which a recorded hang counts as one again; None for others.

    It is the recorded limit, at most half of the child's `timeout`.
    """
    if failure is None or failure.failure_class != "hang":
        return None
    return min(recorded_limit(failure.message), timeout / 2)


def check_version(store: Store, compile: Compile, options: ReplayOptions) -> None:
    """Refuse what another release of torch compiled: it would differ, and tell nothing."""
    recorded = queries.environment(store, compile.recording_id).get("torch", "")
    here = _installed_torch()
    if "version" in options.allow or options.changes.python or not recorded or not here:
        return
    if _release(recorded) != _release(here):
        raise UnsupportedError(
            f"compile {compile.place} was recorded with torch {recorded}, and this is torch {here}:"
            " another release compiles otherwise. Replay it with that release, or add --allow "
            "version to see what differs."
        )


def _installed_torch() -> str:
    """Return the version of torch here, without importing it; '' when there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def _release(version: str) -> tuple[str, ...]:
    return tuple(version.partition("+")[0].split(".")[:2])


def target_of(store: Store, stack: ExitStack) -> str:
    """Return the store for the new recording: the same one, or a temporary one beside a read-only
    one.
    """
    if store.writable:
        return store.target
    try:
        Store.open(store.target, write=True).close()
    except LockedStore:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="torchreel-store-"))
        target = str(Path(folder) / "replay.db")
        Store.open(target, create=True).close()
        return target
    return store.target


def backward_that_failed(failure: Failure | None) -> str:
    """Return the partition of the backward whose run failed; '' where none did."""
    if failure is None or failure.stage != "run" or "backward" not in failure.partition:
        return ""
    return failure.partition


def had_backward(store: Store, compile: Compile) -> bool:
    """Return True if the backward was compiled and a replay has to ask for that.

    If the backward has symbolic sizes, torch compiles it at once by itself, and puts its failure
    off. A replay that asked for it would fail.
    """
    partitions = [code.partition for code in queries.output_codes(store, compile)]
    partitions += [checkpoint.partition for checkpoint in queries.checkpoints(store, compile)]
    artifacts = queries.events(store, compile, "artifact") if "backward" in partitions else []
    put_off = any(event.name == _PUT_OFF for event in artifacts)
    return "backward" in partitions and not put_off


def note(store: Store, compile: Compile, verdict: Verdict) -> None:
    """Remember the verdict in the store, where that can be written."""
    if not store.writable:
        return
    with store.writer() as writer:
        writer.add(
            "replays",
            compile_id=compile.id,
            recording_id=verdict.recording_id,
            entry=verdict.entry,
            verdict=verdict.verdict,
            compared=[row.to_json() for row in verdict.compared],
            detail=verdict.detail,
        )
