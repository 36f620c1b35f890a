"""Recordings as a directory that `TORCH_TRACE` could have filled: tlparse reads it.

Lives here: which events are records of torch's trace, and where their files go.  Not here: the
format (`trace_records`).  Nothing of the store is executed, and no name in it decides where a file
is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchreel.errors import DamagedStore, RefusedError, UsageError
from torchreel.events.trace import TraceStrings
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.documents.kinds import list_only
from torchreel.store.records import Compile, Event, Recording
from torchreel.store.trace.metadata import STRING
from torchreel.store.trace.trace_records import FILE_PREFIX, Record, write

STRINGS = TraceStrings.kind
"""The event of the recorder that holds what torch had explained before the recording began."""


@dataclass(frozen=True)
class ExportedTrace:
    """One log file: its records, and how many payloads were no longer in the store."""

    file: Path
    records: int
    missing: int


def export_trace(
    store: Store, where: Address, directory: Path, *, force: bool = False
) -> list[ExportedTrace]:
    """Write the trace of what an address covers: a compile, a recording, or all that ran programs.

    One file a recording, `dedicated_log_torch_trace_[rank_N_]recording_M.log`.  Raises UsageError
    where a file is in the way (unless `force`) or when there is no record of torch's trace in any
    of them, RefusedError where nothing can be written.
    """
    exported = [
        _write_file(store, recording, events, directory, force)
        for recording, events in _covered(store, where)
    ]
    if not exported:
        raise UsageError(f"{where} has no record of torch's trace: nothing was compiled there.")
    return exported


def is_trace_event(event: Event) -> bool:
    """Return True if an event is a record of torch's trace: its metadata has the kind as a key."""
    return isinstance(event.data, Mapping) and (event.kind in event.data or event.kind == "unknown")


def _covered(store: Store, where: Address) -> Iterator[tuple[Recording, list[Event]]]:
    compile_ = queries.compile_at(store, where) if where.compile is not None else None
    for recording in queries.covered(store, where):
        events = queries.events(store, recording)
        chosen = [event for event in events if _is_wanted(event, compile_)]
        if any(is_trace_event(event) for event in chosen):
            yield recording, chosen


def _is_wanted(event: Event, compile_: Compile | None) -> bool:
    """Return True for the compile's trace records (all, if None), and for those of file names."""
    if event.kind in (STRING, STRINGS) or compile_ is None:
        return is_trace_event(event) or event.kind == STRINGS
    return event.compile_id == compile_.id and is_trace_event(event)


def _write_file(
    store: Store, recording: Recording, events: Sequence[Event], directory: Path, force: bool
) -> ExportedTrace:
    rank = f"rank_{int(recording.rank)}_" if recording.rank is not None else ""
    file = directory / f"{FILE_PREFIX}{rank}recording_{recording.id}.log"
    records = missing = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with file.open("wb" if force else "xb") as stream:
            for event in events:
                for record, found in _records(store, recording, event):
                    write(stream, record)
                    records += 1
                    missing += not found
        # A record does not say its year: a reader takes it from the file's time.
        _set_time(file, events[-1].time_ns)
    except FileExistsError as error:
        raise UsageError(
            f"{error.filename or file} exists already: use --force to overwrite it, or -o to write "
            "elsewhere."
        ) from error
    except OSError as error:
        raise RefusedError(f"{file} can't be written: {error.strerror or error}.") from error
    return ExportedTrace(file, records, missing)


def _set_time(file: Path, time_ns: int) -> None:
    if 0 < time_ns < 2**62:
        os.utime(file, ns=(time_ns, time_ns))


def _records(store: Store, recording: Recording, event: Event) -> Iterator[tuple[Record, bool]]:
    """Yield the records that an event stands for, and whether their payload was there."""
    if not isinstance(event.data, Mapping):
        return
    if event.kind == STRINGS:
        for pair in list_only(event.data.get("names")):
            yield _record(recording, event, {STRING: pair}, None), True
        return
    payload, found = _payload(store, event)
    yield _record(recording, event, event.data, payload), found


def _record(
    recording: Recording, event: Event, data: Mapping[str, object], payload: bytes | None
) -> Record:
    place, line = data.get("pathname"), data.get("lineno")
    metadata = {key: value for key, value in data.items() if key not in ("pathname", "lineno")}
    return Record(
        event.time_ns,
        recording.pid,
        place if isinstance(place, str) else "torch/_logging/structured.py",
        line if isinstance(line, int) else 0,
        metadata,  # type: ignore[arg-type]
        payload,
    )


def _payload(store: Store, event: Event) -> tuple[bytes | None, bool]:
    if event.payload is None:
        return None, True
    try:
        return store.read_blob(event.payload), True
    except DamagedStore:
        return None, False
