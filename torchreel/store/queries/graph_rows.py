"""Queries about graphs, checkpoints, frame bundles and generated code."""

from collections.abc import Sequence

from sqlalchemy import select

from torchreel.events.frames import FrameSkip, FrameStart
from torchreel.store import schema
from torchreel.store.database import Store
from torchreel.store.queries.event_rows import event_counts
from torchreel.store.queries.reading import fetch, fetch_many, in_chunks, rows_of
from torchreel.store.queries.recording_rows import lost
from torchreel.store.records import (
    Checkpoint,
    Compile,
    FrameBundle,
    Graph,
    GraphTarget,
    OutputCode,
)


def graphs(store: Store, compile: Compile) -> list[Graph]:
    """Return the graphs of a compile, in the order in which they were recorded."""
    return fetch(store, rows_of(schema.graphs.c.compile_id, compile.id), Graph)


def first_graphs(store: Store, recording_id: int) -> dict[int, Graph]:
    """Return the first graph of each compile of a recording that has any, by the compile's row
    id.
    """
    graphs, compiles = schema.graphs, schema.compiles
    query = select(graphs).join(compiles, graphs.c.compile_id == compiles.c.id)
    query = query.where(compiles.c.recording_id == recording_id).order_by(graphs.c.id.desc())
    return {row.compile_id: row for row in fetch(store, query, Graph)}


def first_graphs_of(store: Store, compiles: Sequence[Compile]) -> dict[int, Graph]:
    """Return the first graph of each of some compiles that has any, by the compile's row id."""
    table = schema.graphs
    query = select(table).order_by(table.c.id.desc())
    ids = [row.id for row in compiles]
    return {row.compile_id: row for row in fetch_many(store, query, Graph, table.c.compile_id, ids)}


def graphs_by_compile(
    store: Store, compiles: Sequence[Compile], stage: str
) -> dict[int, list[Graph]]:
    """Return the graphs of a stage of some compiles, by the compile's row id."""
    table = schema.graphs
    query = select(table).where(table.c.compile_id.in_([row.id for row in compiles]))
    found: dict[int, list[Graph]] = {}
    for row in fetch(store, query.where(table.c.stage == stage).order_by(table.c.id), Graph):
        found.setdefault(row.compile_id, []).append(row)
    return found


def checkpoints_by_compile(
    store: Store, compiles: Sequence[Compile], entry: str
) -> dict[int, list[Checkpoint]]:
    """Return the checkpoints of an entry of some compiles, by the compile's row id."""
    table = schema.checkpoints
    query = select(table).where(table.c.compile_id.in_([row.id for row in compiles]))
    query = query.where(table.c.entry == entry).order_by(table.c.id)
    found: dict[int, list[Checkpoint]] = {}
    for row in fetch(store, query, Checkpoint):
        found.setdefault(row.compile_id, []).append(row)
    return found


def graph_targets(store: Store, graph: Graph) -> list[GraphTarget]:
    """Return the call targets of a graph: the outer graph's first, then by name."""
    table = schema.graph_targets
    query = select(table).where(table.c.graph_id == graph.id)
    found = fetch(store, query, GraphTarget)
    return sorted(found, key=lambda row: (row.depth, row.target))


def is_without_graph(store: Store, compile: Compile) -> bool:
    """Return True if Dynamo looked at a frame, and made no graph of it.

    It left the frame to Python (it could not trace it, or had compiled it too often), or there was
    nothing in it to compile. False where that may as well have been lost, or not been kept.
    """
    return (
        compile.status in ("ok", "skipped")
        and not graphs(store, compile)
        and not {FrameStart.kind, FrameSkip.kind}.isdisjoint(event_counts(store, compile))
        and not lost(store, compile.recording_id)
    )


def checkpoints(store: Store, compile: Compile) -> list[Checkpoint]:
    """Return the checkpoints of a compile: the places where a replay can start."""
    return fetch(store, rows_of(schema.checkpoints.c.compile_id, compile.id), Checkpoint)


def frame_bundle(store: Store, compile: Compile) -> FrameBundle | None:
    """Return the Python frame of a compile, if it was kept (the last, should there be several)."""
    found = fetch(store, rows_of(schema.frame_bundles.c.compile_id, compile.id), FrameBundle)
    return found[-1] if found else None


def has_frame(store: Store, compile: Compile) -> bool:
    """Return True if the Python frame of a compile, or the call of an export, was kept."""
    row = frame_bundle(store, compile)
    return row is not None and row.digest is not None


def with_frame_alone(store: Store, compiles: Sequence[Compile]) -> frozenset[int]:
    """Return the row ids of those compiles that have no checkpoint, and whose frame was kept."""
    ids = [row.id for row in compiles]
    of = schema.checkpoints.c.compile_id
    without = sorted({*ids} - {row.compile_id for row in in_chunks(store, select(of), of, ids)})
    table = schema.frame_bundles
    query = select(table).order_by(table.c.id)
    last = {
        row.compile_id: row
        for row in fetch_many(store, query, FrameBundle, table.c.compile_id, without)
    }
    return frozenset(number for number, row in last.items() if row.digest is not None)


def output_codes(store: Store, compile: Compile) -> list[OutputCode]:
    """Return the source that the backend generated for a compile."""
    return fetch(store, rows_of(schema.output_codes.c.compile_id, compile.id), OutputCode)
