"""The graphs of two compiles, stage by stage.

Lives here: which graphs both can have, and which of one belongs to which of the other.  Not here:
where two graphs part (`graphs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torchreel.analysis.diff.layers.graphs import compare_graphs, graph_of
from torchreel.analysis.diff.report import (
    ABSENT,
    DiffSide,
    LayerDiff,
    LayerDifference,
    modes_differ,
)
from torchreel.errors import DamagedStore
from torchreel.replay.compare.rules import SCOPES
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.records import Checkpoint, Graph

Key = tuple[str, str, int]
"""A stage, a partition, and a number among those of both."""
Rows = Iterator[tuple[str, Graph | Checkpoint]]
"""Graphs with the names of their stages."""
Stages = tuple[str, ...] | None
"""The stages to look at; None for all."""


@dataclass(frozen=True)
class StageGraph:
    """A graph of a compile: the one of a stage, or the one that a checkpoint holds."""

    store: Store
    row: Graph | Checkpoint

    @property
    def digest(self) -> str:
        """Return the digest of the blob that holds it."""
        return self.row.digest

    @property
    def size(self) -> str:
        """Return a few words on how large it is."""
        if isinstance(self.row, Checkpoint):
            return "the graph of a checkpoint"
        return f"a graph of {self.row.call_nodes} call nodes"

    def read(self) -> Mapping[str, Json]:
        """Return the recorded graph.  Raises DamagedStore when the blob holds none."""
        document = graph_of(self.store.read_blob(self.digest))
        if isinstance(self.row, Graph):
            return document
        graph = document.get("graph")
        if not isinstance(graph, Mapping):
            raise DamagedStore("A stored checkpoint has no graph.")
        return graph


def graphs(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return the graphs of two compiles, by stage and partition, in order."""
    pairs = paired_graphs(left, right)
    found = tuple(_differences(pairs))
    ours, theirs = (sum(pair[side] is not None for pair in pairs.values()) for side in (0, 1))
    note = "flight mode keeps Dynamo's and those of checkpoints"
    return LayerDiff("graphs", ours, theirs, found, note if modes_differ(left, right) else "")


Pairs = dict[str, tuple[StageGraph | None, StageGraph | None]]
"""The graphs of two compiles that belong together, by the name of their stage."""


def paired_graphs(left: DiffSide, right: DiffSide) -> Pairs:
    """Pair the graphs of two compiles that both can have, by stage and partition, in order."""
    read = _kept_in_flight if modes_differ(left, right) else _of_stages
    stages = _replayed_stages(left, right)
    ours, theirs = (_numbered(read(side, stages), side.store) for side in (left, right))
    return {_name(key): (ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])}


def _differences(pairs: Pairs) -> Iterator[LayerDifference]:
    for name, (one, other) in pairs.items():
        if one is None or other is None:
            yield LayerDifference(name, _size(one), _size(other))
        elif one.digest != other.digest:
            for found in compare_graphs(one.read(), other.read()):
                yield LayerDifference(f"{name}: {found.what}", found.left, found.right)


def _replayed_stages(left: DiffSide, right: DiffSide) -> Stages:
    """Return the stages whose graphs a replay makes anew; None when neither side is one."""
    entries = (left.replayed_from, right.replayed_from)
    scopes = [SCOPES[entry].graphs for entry in entries if entry is not None and entry in SCOPES]
    return scopes[0] if scopes else None


def _of_stages(side: DiffSide, stages: Stages) -> Rows:
    for graph in queries.graphs(side.store, side.compile):
        if stages is None or graph.stage in stages:
            yield graph.stage, graph


def _kept_in_flight(side: DiffSide, stages: Stages) -> Rows:
    """Yield the graphs that flight mode keeps as the full mode does."""
    for graph in queries.graphs(side.store, side.compile):
        if graph.stage == "dynamo" and (stages is None or "dynamo" in stages):
            yield graph.stage, graph
    for checkpoint in queries.checkpoints(side.store, side.compile):
        if checkpoint.entry == "aot" and (stages is None or "forward" in stages):
            yield "aot checkpoint", checkpoint


def _numbered(rows: Rows, store: Store) -> dict[Key, StageGraph]:
    found: dict[Key, StageGraph] = {}
    for stage, row in rows:
        number = sum(key[:2] == (stage, row.partition) for key in found)
        found[stage, row.partition, number] = StageGraph(store, row)
    return found


def _name(key: Key) -> str:
    stage, partition, number = key
    return " ".join(filter(None, (stage, partition, str(number) if number else "")))


def _size(graph: StageGraph | None) -> str:
    return ABSENT if graph is None else graph.size
