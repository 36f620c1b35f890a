"""Writes down what a process could not say any more: that it died, and in which stage.

Called by whoever opens a store after the fact: `torchreel record`
when its child ends, and the commands that replay or reduce. Running it twice changes nothing.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from torchreel.store import queries, schema
from torchreel.store.database import Store
from torchreel.store.failures.signature import crash_message, crash_signature
from torchreel.store.files.locks import is_on_network
from torchreel.store.processes import marks
from torchreel.store.processes.liveness import PROCESS, is_alive, is_of_here
from torchreel.store.records import Compile, Recording
from torchreel.store.schema import recordings
from torchreel.store.writer import Writer

_LONG_NS = 3600 * 10**9

_RUNNING = select(recordings.c.id).where(recordings.c.status == "running")


@dataclass(frozen=True)
class _Crash:
    """The place where a process died: compile, stage, and the checkpoint to replay from."""

    compile: Compile
    place: marks.Place
    checkpoint_id: int | None


def may_go_on(store: Store, found: list[Recording]) -> set[int]:
    """Return the recordings that a process may still write, as far as this machine knows.

    On a server or a disk that several machines share, a process of another machine may be alive
    although nothing is heard of it. There, every recording counts whose row says that it is
    running, unless its process ran here, in this boot and namespace.
    """
    return _may_go_on(store, found, _says_running(store))


def _says_running(store: Store) -> set[int]:
    return {row.id for row in store.rows(_RUNNING)}


def _may_go_on(store: Store, found: list[Recording], running: set[int]) -> set[int]:
    if store.is_on_server:
        return running
    ended = {row.id for row in found if row.status != "running"}
    if is_on_network(Path(store.target).parent):
        died = [row.id for row in found if row.id in running and row.status == "died"]
        processes = queries.environment_values(store, PROCESS, died)
        ended -= {number for number in died if not is_of_here(processes.get(number))}
    return running - ended


def settle(store: Store, *, only_certain: bool = False) -> int:
    """Mark the recordings whose process died without a word; return how many there were.

    With `only_certain`, those that another machine may still write are left (`may_go_on`).

    The compiles on which the compiler was at work become 'crashed', each with a failure of class
    'crash' in the stage that was open; one that had returned gets the status it returned with, and
    one of which nobody can say becomes 'unknown' (`marks`). A process that a fault ended while
    nothing was compiled gets a failure in stage 'run', for the compile that began last.
    """
    running = _says_running(store)
    found = queries.recordings(store)
    spared = _may_go_on(store, found, running) if only_certain else set()
    alive = {row.id for row in found if row.status == "running"} | spared
    dead = [row for row in found if row.id in running - alive]
    settled = sum(_settle_one(store, row) for row in dead)
    _remove_marks(store, [row for row in found if row.id in alive], dead)
    return settled


def _settle_one(store: Store, recording: Recording) -> bool:
    compiles = queries.compiles(store, recording.id)
    crashes = _crashes(store, recording, compiles)
    with store.writer() as writer:
        # Asked again under the write lock: another process may have settled it meanwhile.
        still = _RUNNING.where(recordings.c.id == recording.id)
        if writer.connection.execute(still).first() is None:
            return False
        writer.update("recordings", recording.id, status=recording.status)
        ends = {row.id: row.status for row in compiles}
        for row_id in _open_rows(writer, recording):
            _close(writer, row_id, ends.get(row_id, "unknown"))
        for crash in crashes:
            _write(writer, recording, crash)
    return True


def _open_rows(writer: Writer, recording: Recording) -> list[int]:
    """Return the compiles that nobody has written the end of."""
    at = schema.compiles.c
    query = select(at.id).where(at.recording_id == recording.id, at.status == "running")
    return list(writer.connection.execute(query).scalars())


def _close(writer: Writer, compile: int, status: str) -> None:
    """Write down how a compile ended; the stages of one that returned are over as well."""
    writer.update("compiles", compile, status=status)
    if status in ("running", "crashed", "unknown"):
        return
    at = schema.stages.c
    query = select(at.id).where(at.compile_id == compile, at.status == "open")
    for stage in list(writer.connection.execute(query).scalars()):
        writer.update("stages", stage, status=status)


def _remove_marks(store: Store, alive: list[Recording], dead: list[Recording]) -> None:
    """Nobody needs the marks of a process that is gone, now that the store says what they said."""
    gone = {(row.pid, row.started_ns) for row in dead}
    needed = {(row.pid, row.started_ns) for row in alive}
    for mark in {*marks.left_behind(store.target)} - needed:
        # Of a process that died before its recording was in the store, or in one since replaced.
        if not is_alive(mark[0], None) and (
            _is_old(mark[1]) or marks.is_of_this_machine(store.target, *mark)
        ):
            gone.add(mark)
    for pid, started_ns in gone:
        marks.remove(store.target, pid, started_ns)


def _is_old(started_ns: int) -> bool:
    """Return True if a process that began then has had time to write the row of its recording.

    A process of another container or machine may have just begun to write on the same disk. Its id
    means nothing here.
    """
    return time.time_ns() - started_ns > _LONG_NS


def _crashes(store: Store, recording: Recording, compiles: list[Compile]) -> list[_Crash]:
    crashed = [row for row in compiles if row.status == "crashed"]
    if crashed:
        inner = [row for row in crashed if not any(_is_within(other, row) for other in crashed)]
        return [_crash_in(store, row) for row in inner if queries.failure_of(store, row) is None]
    if compiles and recording.exit_signal in queries.FAULTS:
        return [_Crash(compiles[-1], marks.Place("run"), _checkpoint(store, compiles[-1]))]
    return []


def _is_within(compile: Compile, outer: Compile) -> bool:
    """Return True if a compile belongs to a part of another compile's graph.

    If both were under way when the process died, this is one failure.
    """
    same = (compile.attempt, compile.generation) == (outer.attempt, outer.generation)
    return same and compile.compile_id.startswith(f"{outer.compile_id}/")


def _crash_in(store: Store, compile: Compile) -> _Crash:
    return _Crash(compile, queries.last_place(store, compile), _checkpoint(store, compile))


def _checkpoint(store: Store, compile: Compile) -> int | None:
    """Return the last checkpoint of a compile: the one nearest to where it died."""
    found = queries.checkpoints(store, compile)
    return found[-1].id if found else None


def _write(writer: Writer, recording: Recording, crash: _Crash) -> None:
    stage, partition, node = crash.place
    signature = crash_signature(stage, partition, recording.exit_signal)
    writer.add(
        "failures",
        recording_id=recording.id,
        compile_id=crash.compile.id,
        stage=stage,
        partition=partition,
        failure_class="crash",
        exception_type="",
        message=crash_message(recording.exit_signal, node),
        chain=[],
        signature=signature.to_json(),
        signature_digest=signature.digest,
        checkpoint_id=crash.checkpoint_id,
        # the last moment that is known of that process
        time_ns=recording.ended_ns or time.time_ns(),
    )
