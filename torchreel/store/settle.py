"""Writes down what a process could not say any more: that it died, and in which stage.

Called through `Store.settle` by whoever opens a store after the fact: `torchreel record`
when its child ends, and the commands that replay or reduce. Running it twice changes nothing.
"""

import time
from dataclasses import dataclass

from sqlalchemy import select

from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile, Recording
from torchreel.store.schema import recordings
from torchreel.store.signature import crash_signature
from torchreel.store.writer import Writer

# What the compiled code's own execution dies of. SIGKILL or SIGTERM outside of a compile may be
# anybody's doing, and is no failure of the compiler.
_FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})

# A compile begins with Dynamo, before any stage is entered.
_FIRST_STAGE = "dynamo"

_RUNNING = select(recordings.c.id).where(recordings.c.status == "running")


@dataclass(frozen=True)
class _Crash:
    """Where a process died: in which compile and stage, and the checkpoint to replay it from."""

    compile: Compile
    stage: str
    partition: str
    checkpoint_id: int | None


def settle(store: Store) -> int:
    """Mark the recordings whose process died without a word; return how many there were.

    Their running compiles become 'crashed', each with a failure of class 'crash' in the stage that
    was open. A process that a fault ended while nothing was compiled gets one in stage 'run', for
    the compile that began last.
    """
    with store.connect() as connection:
        running = set(connection.execute(_RUNNING).scalars())
    dead = [row for row in queries.recordings(store) if row.id in running and row.status == "died"]
    return sum(_settle_one(store, row) for row in dead)


def _settle_one(store: Store, recording: Recording) -> bool:
    crashes = _crashes(store, recording)
    with store.writer() as writer:
        # Asked again under the write lock: another process may have settled it meanwhile.
        still = _RUNNING.where(recordings.c.id == recording.id)
        if writer.connection.execute(still).first() is None:
            return False
        writer.update("recordings", recording.id, status="died")
        for crash in crashes:
            _write(writer, recording, crash)
    return True


def _crashes(store: Store, recording: Recording) -> list[_Crash]:
    compiles = queries.compiles(store, recording.id)
    crashed = [row for row in compiles if row.status == "crashed"]
    if crashed:
        return [_crash_in(store, row) for row in crashed if queries.failure_of(store, row) is None]
    if compiles and recording.exit_signal in _FAULTS:
        return [_Crash(compiles[-1], "run", "", _checkpoint(store, compiles[-1]))]
    return []


def _crash_in(store: Store, compile: Compile) -> _Crash:
    stage = queries.open_stage(store, compile)
    place = (stage.stage, stage.partition) if stage else (_FIRST_STAGE, "")
    return _Crash(compile, *place, _checkpoint(store, compile))


def _checkpoint(store: Store, compile: Compile) -> int | None:
    """The last checkpoint of a compile: the one nearest to where it died."""
    found = queries.checkpoints(store, compile)
    return found[-1].id if found else None


def _write(writer: Writer, recording: Recording, crash: _Crash) -> None:
    signature = crash_signature(crash.stage, crash.partition, recording.exit_signal)
    if crash.stage != "run":
        writer.update("compiles", crash.compile.id, status="crashed")
    writer.add(
        "failures",
        recording_id=recording.id,
        compile_id=crash.compile.id,
        stage=crash.stage,
        partition=crash.partition,
        failure_class="crash",
        exception_type="",
        message=f"The process ended here, with {recording.exit_signal or 'no word why'}.",
        chain=[],
        signature=signature.to_json(),
        signature_digest=signature.digest,
        checkpoint_id=crash.checkpoint_id,
        # the last moment that is known of that process
        time_ns=recording.ended_ns or time.time_ns(),
    )
