"""The layers of a diff, in the order of the pipeline: one table.

Lives here: their names and what each compares.  Not here: how (one module for each).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torchreel.analysis.diff.layers import facts
from torchreel.analysis.diff.layers.code import code
from torchreel.analysis.diff.layers.events import events
from torchreel.analysis.diff.layers.graphs import compare_graphs, graph_of
from torchreel.analysis.diff.layers.guards import guards
from torchreel.analysis.diff.layers.symbols import symbols
from torchreel.analysis.diff.report import ABSENT, DiffSide, LayerDiff, LayerDifference
from torchreel.errors import UsageError
from torchreel.replay.compare.rules import SCOPES
from torchreel.store import queries
from torchreel.store.records import Graph

Key = tuple[str, str, int]


def graphs(left: DiffSide, right: DiffSide) -> LayerDiff:
    """Return the graphs of two compiles, by stage and partition, in order."""
    pairs = paired_graphs(left, right)
    found = tuple(_graph_differences((left, right), pairs))
    ours, theirs = (sum(pair[side] is not None for pair in pairs.values()) for side in (0, 1))
    return LayerDiff("graphs", ours, theirs, found)


GraphPairs = dict[str, tuple[Graph | None, Graph | None]]
"""The graphs of two compiles that belong together, by the name of their stage."""


def paired_graphs(left: DiffSide, right: DiffSide) -> GraphPairs:
    """Pair the graphs of two compiles by stage and partition, in order."""
    stages = replayed_stages(left, right)
    ours, theirs = _graphs(left, stages), _graphs(right, stages)
    return {_name(key): (ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])}


def _graph_differences(
    sides: tuple[DiffSide, DiffSide], pairs: GraphPairs
) -> Iterator[LayerDifference]:
    for name, (one, other) in pairs.items():
        if one is None or other is None:
            yield LayerDifference(name, _size(one), _size(other))
        elif one.digest != other.digest:
            documents = (
                graph_of(side.store.read_blob(graph.digest))
                for side, graph in zip(sides, (one, other), strict=True)
            )
            for found in compare_graphs(*documents):
                yield LayerDifference(f"{name}: {found.what}", found.left, found.right)


def replayed_stages(left: DiffSide, right: DiffSide) -> tuple[str, ...] | None:
    """Return the stages whose graphs a replay makes anew; None when neither side is one."""
    entries = (left.replayed_from, right.replayed_from)
    scopes = [SCOPES[entry].graphs for entry in entries if entry is not None and entry in SCOPES]
    return scopes[0] if scopes else None


def _graphs(side: DiffSide, stages: tuple[str, ...] | None) -> dict[Key, Graph]:
    found: dict[Key, Graph] = {}
    for graph in queries.graphs(side.store, side.compile):
        if stages is not None and graph.stage not in stages:
            continue
        number = sum(key[:2] == (graph.stage, graph.partition) for key in found)
        found[graph.stage, graph.partition, number] = graph
    return found


def _name(key: Key) -> str:
    stage, partition, number = key
    return " ".join(filter(None, (stage, partition, str(number) if number else "")))


def _size(graph: Graph | None) -> str:
    return ABSENT if graph is None else f"a graph of {graph.call_nodes} call nodes"


Layer = Callable[[DiffSide, DiffSide], LayerDiff]

LAYERS: dict[str, Layer] = {
    "machine": facts.machine,
    "config": facts.config,
    "frame": facts.frame,
    "symbols": symbols,
    "graphs": graphs,
    "guards": guards,
    "code": code,
    "failure": facts.failure,
    "events": events,
}
ENVIRONMENT = "environment"
"""The layer of a whole recording."""


REPLAYED = ("graphs", "code", "failure", "events")
"""Layers that a replay computes anew; the others come from its checkpoint, or are missing."""


def chosen(only: Sequence[str]) -> list[str]:
    """Return the layers to compare: those asked for, or all.

    Raises UsageError for another name.
    """
    known = [ENVIRONMENT, *LAYERS]
    for name in only:
        if name not in known:
            raise UsageError(f"There is no layer {name!r}: the layers are {', '.join(known)}.")
    return [name for name in known if not only or name in only]
