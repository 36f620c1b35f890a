"""Joins what a store holds of a compile's custom operators into its checkpoint.

Lives here: the union over the compile's graphs (the backward calls operators that the graph of a
checkpoint does not) and the backward of each call. Not here: what is made of it
(`formats.operators`). Called by `documents`, for compiles that have some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.graphs import OPERATORS
from torchreel.formats.graphs.codec import GraphDoc
from torchreel.formats.graphs.operators import operators_of
from torchreel.formats.operators.formulas import formulas_of
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile


def with_operators(store: Store, compile: Compile, doc: CheckpointDoc) -> CheckpointDoc:
    """Return the checkpoint with all that is known of the operators that torch does not define."""
    if not operators_of([doc.graph]):
        return doc
    graphs = {
        row.id: GraphDoc.from_bytes(store.read_blob(row.digest))
        for row in queries.graphs(store, compile)
    }
    table = operators_of([doc.graph, *graphs.values()])
    joint = next((row.id for row in queries.graphs(store, compile) if row.stage == "joint"), None)
    formulas = formulas_of(graphs[joint]) if joint is not None and doc.entry == "graph" else {}
    found: dict[str, Json] = {
        name: {**one, "formulas": formulas.get(name, [])}
        for name, one in table.items()
        if isinstance(one, Mapping)
    }
    return replace(doc, extra={**doc.extra, OPERATORS: found})
