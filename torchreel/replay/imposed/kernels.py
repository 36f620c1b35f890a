"""Joins the Triton kernels of a program to a checkpoint that calls them.

Its nodes have numbers, which are valid in one process only; the source is in the event log.  Not
here: making kernels of it (`replay.child.triton_kernels`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torchreel.events.subgraphs import HopKernel
from torchreel.formats.graphs import KERNELS
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile, Event

if TYPE_CHECKING:
    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.formats.graphs.document import GraphDoc

_TARGET = "hop:triton_kernel_wrapper_"


def with_kernels(store: Store, compile: Compile, doc: CheckpointDoc) -> CheckpointDoc:
    """Return the checkpoint with the kernels of its compile.

    A kernel is noted with a node of Dynamo's graph, which says by what number that calls it; the
    nodes of later graphs have other names, and the same numbers.
    """
    called = {name: kwargs for graph in _graphs(store, compile) for name, kwargs in _calls(graph)}
    rows: list[Json] = [
        _row(store, event, fields, called[fields.node])
        for event in queries.events(store, compile, HopKernel.kind)
        if isinstance(fields := event.fields, HopKernel) and fields.node in called
    ]
    return replace(doc, extra={**doc.extra, KERNELS: rows}) if rows else doc


def _graphs(store: Store, compile: Compile) -> Iterator[GraphDoc]:
    from torchreel.formats.graphs.document import GraphDoc

    for row in queries.graphs(store, compile):
        if row.stage == "dynamo":
            yield GraphDoc.from_bytes(store.read_blob(row.digest))


def _calls(graph: GraphDoc) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield name and keyword arguments of each node that calls a kernel."""
    for node in graph.nodes:
        if str(node.target).startswith(_TARGET) and isinstance(node.kwargs, Mapping):
            yield node.name, node.kwargs


def _row(store: Store, event: Event, fields: HopKernel, given: Mapping[str, Json]) -> Json:
    return {
        "number": given.get("kernel_idx"),
        "constants_number": given.get("constant_args_idx"),
        "name": event.name,
        "function": fields.function,
        "source": store.read_blob(event.payload).decode("utf-8", "replace")
        if event.payload
        else "",
        "constants": dict(fields.constants),
        "configurations": list(fields.configurations),
        "key": list(fields.key),
        "names": dict(fields.names),
    }
