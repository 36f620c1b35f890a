"""Queries about compiles: those of a recording, that of an address, their true statuses."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select

from torchreel.errors import DamagedStore
from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.processes import marks
from torchreel.store.queries.graph_rows import checkpoints
from torchreel.store.queries.reading import fetch, fetch_many, rows_of
from torchreel.store.queries.recording_rows import environment_values, recording
from torchreel.store.records import (
    Compile,
    Recording,
)

FAILING = ("failed", "crashed", "hung")
"""The statuses of a compile that failed ('restarted' is no failure: it was tried again)."""


PIECES = frozenset({"standalone_compile", "compile_fx", "aot_autograd"})
"""Values of `backend` in the row of a compile that is a piece of a graph."""


FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})
"""Signals of compilers and compiled code. SIGKILL or SIGTERM may be anybody's doing."""


def compiles(store: Store, recording_id: int) -> list[Compile]:
    """Return the compiles of a recording, in the order in which they began."""
    table = schema.compiles
    rows = fetch(store, rows_of(table.c.recording_id, recording_id), Compile)
    return with_true_statuses(store, [recording(store, recording_id)], rows)


def compiles_by_recording(
    store: Store, of: Sequence[Recording], *, failing: bool = False
) -> dict[int, list[Compile]]:
    """Return the compiles of some recordings, by the recording's number; of each, as `compiles`.

    With `failing`, those alone that have a failure, or a status that may mean one.
    """
    table = schema.compiles
    query = select(table).order_by(table.c.id)
    if failing:
        failed = select(schema.failures.c.compile_id)
        is_wanted = table.c.status.in_((*FAILING, "running")) | table.c.id.in_(
            failed.where(schema.failures.c.recording_id == table.c.recording_id)
        )
        query = query.where(is_wanted)
    found: dict[int, list[Compile]] = {row.id: [] for row in of}
    rows = fetch_many(store, query, Compile, table.c.recording_id, list(found))
    for row in with_true_statuses(store, of, list(rows)):
        found[row.recording_id].append(row)
    return found


def pieces_of(store: Store, compile: Compile) -> list[Compile]:
    """Return the compiles of parts of a compile's graph, which its backend compiled apart."""
    return [
        row
        for row in compiles(store, compile.recording_id)
        if row.compile_id.rpartition("/")[0] == compile.compile_id
        and (row.attempt, row.generation) == (compile.attempt, compile.generation)
        and row.backend in PIECES
    ]


def compile_by_id(store: Store, row_id: int) -> Compile:
    """Return the compile with that row id, as other rows refer to it."""
    rows = fetch(store, rows_of(schema.compiles.c.id, row_id), Compile)
    if not rows:
        raise DamagedStore(f"{store.target} refers to a compile (row {row_id}) that it lacks.")
    return with_true_statuses(store, [recording(store, rows[0].recording_id)], rows)[0]


def is_cut(store: Store, compile: Compile) -> bool:
    """Return True if the event log of a compile may be cut: its process died during writing."""
    if compile.status in ("crashed", "hung", "unknown"):
        return True
    return compile.ended_ns is None and recording(store, compile.recording_id).status == "died"


def is_decomposition(store: Store, compile: Compile) -> bool:
    """Return True for the decomposition of an exported program: it has no other checkpoint."""
    return {row.entry for row in checkpoints(store, compile)} == {"export"}


def with_true_statuses(store: Store, of: Sequence[Recording], rows: list[Compile]) -> list[Compile]:
    """Return compiles with true statuses, where a row says 'running' and the process is gone."""
    by_id = {row.id: row for row in of}
    unsure = {row.recording_id for row in rows if row.status == "running"}
    gone = sorted(number for number in unsure if by_id[number].status != "running")
    if not gone:
        return rows
    marked = environment_values(store, marks.KEY, gone)
    ends = {n: marks.read(store.target, by_id[n].pid, by_id[n].started_ns) for n in gone}
    return [
        replace(row, status=_end(row, by_id[n], ends[n], is_marked=n in marked))
        if row.status == "running" and (n := row.recording_id) in ends
        else row
        for row in rows
    ]


def _end(row: Compile, of: Recording, ends: marks.Ends | None, *, is_marked: bool) -> str:
    """Return the status of a compile whose process ended: 'crashed' if the compiler was at work."""
    if of.status == "done" and ends is None:
        return row.status  # a thread compiled on while the process, or its recording, ended
    if not is_marked:
        return "crashed"  # an older version, which left no marks
    found = ends.of(row.started_ns) if ends is not None else "unknown"
    if found == "unknown" and of.exit_signal in FAULTS:
        return "crashed"
    return "crashed" if found == "running" and of.status == "died" else found
