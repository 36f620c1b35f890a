"""Queries about the stages of compiles."""

from collections.abc import Sequence

from sqlalchemy import select

from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.processes import marks
from torchreel.store.queries.reading import fetch, fetch_many, rows_of
from torchreel.store.queries.recording_rows import recording
from torchreel.store.records import (
    Compile,
    Stage,
)


def stages(store: Store, compile: Compile) -> list[Stage]:
    """Return the stages that a compile entered, in order."""
    return fetch(store, rows_of(schema.stages.c.compile_id, compile.id), Stage)


def open_stage(store: Store, compile: Compile) -> Stage | None:
    """Return the innermost stage that a compile has entered and not left."""
    return open_stages(store, [compile]).get(compile.id)


def last_place(store: Store, compile: Compile) -> marks.Place:
    """Return the place where a compile was when its process died.

    Its marks say so as long as they are there. Rows of stages may be some tenths of a second late.
    """
    row = recording(store, compile.recording_id)
    ends = marks.read(store.target, row.pid, row.started_ns)
    place = ends.places.get(compile.started_ns) if ends is not None else None
    if place is not None and place.stage:
        return place
    still = open_stage(store, compile)
    return marks.Place(still.stage, still.partition) if still else marks.Place(_FIRST_STAGE)


_FIRST_STAGE = "dynamo"
"""The stage of a compile that has entered none."""


def open_stages(store: Store, compiles: Sequence[Compile]) -> dict[int, Stage]:
    """Return the innermost stage that each of some compiles has entered and not left, by the
    compile's row id.
    """
    return {
        number: still[-1]
        for number, stages in stages_by_compile(store, compiles).items()
        if (still := [stage for stage in stages if stage.status == "open"])
    }


def stages_by_compile(store: Store, compiles: Sequence[Compile]) -> dict[int, list[Stage]]:
    """Return the stages that some compiles entered, in order, by the compile's row id."""
    table = schema.stages
    query = select(table).order_by(table.c.id)
    found: dict[int, list[Stage]] = {}
    for row in fetch_many(store, query, Stage, table.c.compile_id, [row.id for row in compiles]):
        found.setdefault(row.compile_id, []).append(row)
    return found
