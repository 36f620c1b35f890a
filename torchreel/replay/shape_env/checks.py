"""The entry `shapes`: rebuilds ShapeEnvs from the event log and compares them with the snapshots.

Lives here: one walk along the event log with a look at each checkpoint.  Not here: what each event
does (`rebuild`).  No compiler runs and no child is needed: the events are data, and nothing is
evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch.fx.experimental.recording import NotEqualError

from torchreel.errors import UnsupportedError
from torchreel.events.shape_env import ShapeEnvCheckpoint, ShapeEnvCreate
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.shape_env import snapshots
from torchreel.replay.compare.lanes import named
from torchreel.replay.compare.selection import MARK
from torchreel.replay.compare.time_travel import BEFORE
from torchreel.replay.compare.verdict import DIVERGED, IDENTICAL, Comparison, Reached, Verdict
from torchreel.replay.shape_env import rebuild
from torchreel.store import queries
from torchreel.store.addressing import Address
from torchreel.store.database import Store
from torchreel.store.records import Compile, Event
from torchreel.torch_compat.shapes import ShapeEnv

ENTRY = "shapes"


def replay_shapes(store: Store, compile: Compile, until: int | None = None) -> Verdict:
    """Rebuild the ShapeEnvs that a compile's checkpoints hold; compare them there.

    `until` is the position of the last event to replay.  Raises UnsupportedError when the event log
    has no ShapeEnv at a checkpoint of this compile up to there, and what `shapes.rebuild` raises
    for an event log that has a hole or says what can't be.
    """
    marks = queries.events(store, compile, MARK)
    if until is not None and marks:
        marks = _up_to(store, compile, marks, until)
    if not marks:
        raise UnsupportedError(
            f"compile {compile.place} has no checkpoint with a ShapeEnv: there is nothing to hold "
            "the rebuilt one to."
        )
    events = _events(store, compile, marks, until)
    rows, first = [], ""
    for mark in marks:
        found = _difference(store, compile, mark, events)
        first = first or found
        rows.append(_row(mark, same=not found))
    notes = tuple(_notes(events, marks, until))
    if not first:
        place = None if until is None else _reached(store, compile, events, marks, until)
        return Verdict(IDENTICAL, ENTRY, tuple(rows), notes=notes, reached=place)
    at = next(mark for mark, row in zip(marks, rows, strict=True) if not row.agrees)
    detail = (
        f"at event {at.seq}: the ShapeEnv rebuilt from the event log is not the one in the snapshot"
    )
    return Verdict(DIVERGED, ENTRY, tuple(rows), detail, first, notes=notes)


def _events(store: Store, compile: Compile, marks: list[Event], until: int | None) -> list[Event]:
    """Return the events of these checkpoints' ShapeEnvs, of all compiles of the recording.

    One ShapeEnv may serve several compiles; it has no event before the one that creates it.
    """
    recording = queries.recording(store, compile.recording_id)
    kinds = [k for k in queries.event_counts(store, recording) if k.startswith(rebuild.MAY_CHANGE)]
    numbers = {mark.env for mark in marks}
    last = max(mark.seq for mark in marks) if until is None else until
    if None in numbers:  # then `rebuild` looks how many there are
        return queries.events(store, recording, kinds, None if until is None else (0, last))
    created = queries.events(store, recording, ShapeEnvCreate.kind)
    first = min((event.seq for event in created if event.env in numbers), default=0)
    return queries.events(store, recording, kinds, (first, last))


def _difference(store: Store, compile: Compile, mark: Event, events: list[Event]) -> str:
    """Return the differences between the rebuilt ShapeEnv and the checkpoint's; '' if equal."""
    snapshot = _snapshot(store, compile, mark)
    rebuilt = rebuild.rebuild(events, mark.seq, mark.env)
    try:
        snapshot.check_equal(rebuilt)
    except NotEqualError as error:
        return str(error)
    return ""


def _snapshot(store: Store, compile: Compile, mark: Event) -> ShapeEnv:
    assert isinstance(mark.fields, ShapeEnvCheckpoint)
    marked = (mark.name, mark.fields.partition, mark.fields.ordinal)
    for row in queries.checkpoints(store, compile):
        if marked == (row.entry, row.partition, row.ordinal):
            doc = CheckpointDoc.from_bytes(store.read_blob(row.digest))
            env = snapshots.new_shape_env(doc.shape_env)
            snapshots.restore(env, doc.shape_env, snapshots.decode_symbols(doc.shape_env))
            return env
    raise UnsupportedError(
        f"event {mark.seq} marks a checkpoint that the store does not have: it was not written."
    )


def _row(mark: Event, *, same: bool) -> Comparison:
    assert isinstance(mark.fields, ShapeEnvCheckpoint)
    return Comparison(
        mark.stage or "", mark.fields.partition, f"ShapeEnv at {mark.name}", 1, 1, int(same)
    )


def _up_to(store: Store, compile: Compile, marks: list[Event], until: int) -> list[Event]:
    """Return the checkpoints before an event."""
    queries.event_at(store, Address(store.target, compile.recording_id, event=until))
    found = [mark for mark in marks if mark.seq <= until]
    if not found:
        raise UnsupportedError(
            f"compile {compile.place} has its first checkpoint at event {marks[0].seq}: up to "
            f"event {until} there is nothing to hold the rebuilt ShapeEnv to. 'torchreel shapes "
            f"{store.target}#{compile.place} --at {until}' shows it."
        )
    return found


def _reached(
    store: Store, compile: Compile, events: list[Event], marks: list[Event], until: int
) -> Reached:
    """Return the event `until` and those of the ShapeEnvs before it; raises if a rebuild fails."""
    numbers = {mark.env for mark in marks}
    for number in numbers:
        rebuild.rebuild(events, until, number)
    last = queries.event_at(store, Address(store.target, compile.recording_id, event=until))
    before = [event for event in events if event.seq < until and _concerns(event, numbers)]
    earlier = tuple((event.seq, named(event)) for event in before[-BEFORE:])
    return Reached(f"event {until}", until, named(last), (), earlier)


def _concerns(event: Event, numbers: set[int | None]) -> bool:
    return rebuild.is_change(event) and event.env in numbers


def _notes(events: list[Event], marks: list[Event], until: int | None) -> Iterator[str]:
    numbers = {mark.env for mark in marks}
    last = until if until is not None else max(mark.seq for mark in marks)
    counts = Counter(
        event.kind for event in events if event.seq <= last and _concerns(event, numbers)
    )
    yield f"{counts.total()} events replayed: " + ", ".join(
        f"{count} {kind}" for kind, count in sorted(counts.items())
    )
    yield from rebuild.left_out(
        event for event in events if event.seq <= last and event.env in numbers
    )
