"""Compares what a compile made: graphs by their canonical bytes, output code normalised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchreel.errors import DamagedStore
from torchreel.replay.compare.compiles.differences import difference_of
from torchreel.replay.compare.compiles.sides import Key, Side
from torchreel.replay.compare.lanes import (
    WHOLE,
    cache_hits,
)
from torchreel.replay.compare.normalise import (
    canonical_cached_code,
    canonical_code,
    canonical_files,
)
from torchreel.replay.compare.rules import SCOPES
from torchreel.replay.compare.selection import Point
from torchreel.replay.compare.verdict import Comparison
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.documents import graph_documents
from torchreel.store.documents.jsontypes import Json, canonical_json, parse_json
from torchreel.store.documents.kinds import as_object

_STAGES = ("joint", "forward", "backward", "post_grad")


@dataclass(frozen=True)
class Item:
    """One thing to compare: its blob, in which store."""

    store: Store
    digest: str
    cached: bool = False
    """True if it, or its counterpart, came from a cache."""
    is_checkpoint: bool = False
    """True for the graph of a checkpoint."""

    def canonical(self, kind: str) -> bytes:
        """Return the bytes that have to be equal.

        Raises DamagedStore when the blob is no such thing.
        """
        data = self.store.read_blob(self.digest)
        try:
            if kind == "output code":
                canonical = canonical_cached_code if self.cached else canonical_code
                return canonical(data.decode("utf-8", "surrogatepass")).encode()
            # Folded, which not all stores are; whole, it may be a thousand times more.
            document = parse_json(data)
            if self.is_checkpoint and isinstance(document, Mapping):
                document = document["graph"]
            document = _without_operators(graph_documents.folded(document))
            whole = canonical_json(document)
            text = canonical_files(whole.decode("utf-8", "surrogatepass"))
            return text.encode("utf-8", "surrogatepass")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedStore(
                f"What {self.store.target} has as {kind} ({self.digest[:12]}) is none: {error}."
            ) from error


def _without_operators(document: Json) -> Json:
    """Return a graph without the descriptions of its operators.

    The place where an operator is defined may differ; its results are described with the nodes.
    """
    extra = document.get("extra") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(extra, Mapping):
        return document
    inner = as_object(document.get("modules")).items()
    return {
        **document,
        "extra": {key: value for key, value in extra.items() if key != "operators"},
        "modules": {name: _without_operators(one) for name, one in inner},
    }


def hits_of(side: Side) -> frozenset[str]:
    return frozenset() if side.compile is None else cache_hits(side.store, side.compile)


def came_from_cache(row: Comparison, recorded: Mapping[Key, object], hits: frozenset[str]) -> bool:
    """Return True for things that the recorded compile never made, as a cache gave it the code."""
    if WHOLE in hits and row.recorded == 0:
        return True
    has_code = any(
        kind == "output code" and row.partition in ("", partition)
        for kind, _, partition in recorded
    )
    return bool(hits) and row.kind == "graph" and row.recorded == 0 and has_code


def order(key: Key) -> tuple[int, str, str]:
    kind, stage, partition = key
    place = [*_STAGES, ""].index(stage) if stage in (*_STAGES, "") else 9
    return (place if kind == "graph" else 8, partition, kind)


Items = Mapping[Key, Sequence[Item]]
"""The things to compare of one side, in their order."""


def items_of(side: Side, point: Point, *, cached: bool) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = defaultdict(list)
    store, compile, scope = side.store, side.compile, SCOPES[point.entry]
    if compile is None:
        return found
    for graph in queries.graphs(store, compile):
        if graph.stage in scope.graphs and point.partition in ("", graph.partition):
            found["graph", graph.stage, graph.partition].append(Item(store, graph.digest))
    codes = () if "codegen" in scope.without else queries.output_codes(store, compile)
    for code in codes:
        if point.partition in ("", code.partition):
            found["output code", "codegen", code.partition].append(Item(store, code.digest, cached))
    return found


def checkpoint_items(side: Side, point: Point) -> dict[Key, list[Item]]:
    """Return the graphs of a compile's checkpoints after `point`, which flight mode keeps."""
    found: dict[Key, list[Item]] = defaultdict(list)
    if side.compile is None or "forward" not in SCOPES[point.entry].graphs:
        return found
    for row in queries.checkpoints(side.store, side.compile):
        if row.entry == "aot":
            item = Item(side.store, row.digest, is_checkpoint=True)
            found["graph", "aot", row.partition].append(item)
    return found


def compare_items(
    key: Key, left: Sequence[Item], right: Sequence[Item], stopped: bool
) -> tuple[Comparison, str]:
    """Compare the items of one key; return the counts, and the first difference as text.

    A replay that was stopped has not made all of them.
    """
    kind, stage, partition = key
    if stopped:
        left = left[: len(right)]
    equal, shown = 0, ""
    for ours, theirs in zip(left, right, strict=False):
        if ours.digest == theirs.digest or ours.canonical(kind) == theirs.canonical(kind):
            equal += 1
        elif not shown:
            shown = difference_of(kind, ours.canonical(kind), theirs.canonical(kind))
    return Comparison(stage, partition, kind, len(left), len(right), equal), shown


def first_difference(row: Comparison) -> str:
    where = f"{row.kind} of stage {row.stage}" + (f" ({row.partition})" if row.partition else "")
    if row.recorded != row.replayed:
        return f"the {where}: {row.recorded} recorded, {row.replayed} replayed"
    return f"the {where} differs in {row.recorded - row.identical} of {row.recorded}"
