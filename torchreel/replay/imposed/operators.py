"""Joins what a store holds of a compile's custom operators.

Lives here: the union over the compile's graphs (the backward calls operators that the graph of a
checkpoint does not) and the backward of each call. Not here: what is made of it
(`formats.operators`). Called by `documents` for a checkpoint, and by `sequence` for a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchreel.events.custom import CustomOperator
from torchreel.formats.graphs import OPERATORS
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Compile

if TYPE_CHECKING:
    from torchreel.formats.checkpoints.document import CheckpointDoc
    from torchreel.formats.graphs.document import GraphDoc


def with_operators(store: Store, compile: Compile, doc: CheckpointDoc) -> CheckpointDoc:
    """Return the checkpoint with all that is known of the operators that torch does not define."""
    found = _table(store, compile, doc.graph, formulas=doc.entry == "graph")
    return replace(doc, extra={**doc.extra, OPERATORS: found}) if found else doc


def operators_called(store: Store, compiles: Sequence[Compile]) -> dict[str, Json]:
    """Return all that is known of the operators that graphs of some compiles call, by name."""
    found: dict[str, Json] = {}
    for compile in compiles:
        if queries.events(store, compile, CustomOperator.kind):
            found |= _table(store, compile, formulas=True)
    return found


def _table(store: Store, compile: Compile, *more: GraphDoc, formulas: bool) -> dict[str, Json]:
    # They import torch, which a process that only compares does not need.
    from torchreel.formats.graphs.document import GraphDoc
    from torchreel.formats.graphs.operators import operators_of
    from torchreel.formats.operators.formulas import formulas_of

    graphs = {
        row.id: GraphDoc.from_bytes(store.read_blob(row.digest))
        for row in queries.graphs(store, compile)
    }
    table = operators_of([*more, *graphs.values()])
    joint = next((row.id for row in queries.graphs(store, compile) if row.stage == "joint"), None)
    known = formulas_of(graphs[joint]) if table and formulas and joint is not None else {}
    return {
        name: {**one, "formulas": known.get(name, [])}
        for name, one in table.items()
        if isinstance(one, Mapping)
    }
