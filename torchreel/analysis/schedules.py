"""Reads what Inductor writes of each graph that it schedules: collectives, and estimated run times.

Lives here: from the records of torch's own trace to a `ScheduledGraph` each, for a compile and for
all ranks of a job.  Torch writes the order of collectives where there are any, and estimates where
`torch._inductor.config.log_tlparse` is set.  A graph that came from a cache has neither.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select

from torchreel.analysis.diff.ranks import Rank
from torchreel.store import queries, schema
from torchreel.store.blobs.pages import TICK
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json, parse_json
from torchreel.store.documents.kinds import as_object
from torchreel.store.records import Compile, Event, Stage

ARTIFACT = "artifact"
COLLECTIVES = "inductor_collective_schedule"
ESTIMATES = "inductor_runtime_and_tensor_meta"
_SWITCH = "log_tlparse"
_TARGET = "c10d_functional"
_WAIT = "wait_tensor"
_CALL = re.compile(r"(torch\.ops\._?c10d_functional\.\w+\.\w+)\(", re.ASCII)
_LONGEST_LINE = 2_000
_MOST = 5_000
_LONGEST = 200
_MOST_COMPILES = 100
"""Compiles of a rank whose schedules are compared: each costs the records of a compile."""


@dataclass(frozen=True)
class Estimate:
    """The run time of a kernel, as Inductor estimates it."""

    name: str
    kind: str
    """compute or collective."""
    ns: float


@dataclass(frozen=True)
class ScheduledGraph:
    """A graph that Inductor scheduled: its collectives in order, and its estimates."""

    partition: str
    seq: int
    """The position of the first record of it."""
    collectives: tuple[str, ...] | None = None
    estimates: tuple[Estimate, ...] | None = None

    @property
    def ns(self) -> float | None:
        """The sum of its estimates; None where there are none."""
        return None if self.estimates is None else sum(each.ns for each in self.estimates)


def schedules(
    store: Store, stages: Sequence[Stage], events: Iterable[Event]
) -> list[ScheduledGraph]:
    """Return the scheduled graphs of a compile, from its stages and its events."""
    found: list[ScheduledGraph] = []
    for event in events:
        if event.kind != ARTIFACT or event.payload is None:
            continue
        known = ScheduledGraph(_partition(stages, event), event.seq)
        if event.name == COLLECTIVES:
            known = replace(known, collectives=_collectives(_json(store, event.payload)))
        elif event.name == ESTIMATES:
            known = replace(known, estimates=_estimates(_json(store, event.payload)))
        else:
            continue
        if found and _are_one(found[-1], known):
            found[-1] = replace(found[-1], collectives=known.collectives)
        else:
            found.append(known)
    return found


def _are_one(before: ScheduledGraph, known: ScheduledGraph) -> bool:
    """Return True if two records are of one graph: torch writes the estimates of a graph first."""
    same = before.partition == known.partition
    return same and before.collectives is None and known.collectives is not None


def _json(store: Store, digest: str) -> Json:
    data = queries.readable(store, lambda: store.read_blob(digest), b"")
    try:
        return parse_json(data)
    except (ValueError, RecursionError):
        return None


def _partition(stages: Sequence[Stage], event: Event) -> str:
    """Return the partition that was compiled at an event: the one whose stage began last."""
    begun = [row for row in stages if row.partition and row.started_ns <= event.time_ns + TICK]
    return max(begun, key=lambda row: row.started_ns).partition if begun else ""


def _collectives(data: Json) -> tuple[str, ...]:
    rows = data[:_MOST] if isinstance(data, list) else []
    return tuple(str(row)[:_LONGEST] for row in rows)


def _estimates(data: Json) -> tuple[Estimate, ...]:
    rows = as_object(data).get("ops")
    return tuple(_each_estimate(rows[:_MOST] if isinstance(rows, list) else []))


def _each_estimate(rows: Sequence[Json]) -> Iterator[Estimate]:
    for row in rows:
        if isinstance(row, Mapping) and isinstance(
            ns := row.get("estimated_runtime_ns"), int | float
        ):
            name, kind = str(row.get("name"))[:_LONGEST], str(row.get("type") or "")[:_LONGEST]
            # A stranger's number may be no JSON of a browser's.
            yield Estimate(name, kind, float(ns) if 0 <= ns < 1e18 else 0.0)


def disagreements(collectives: Sequence[str], code: str) -> list[str]:
    """Return the differences between the collectives of generated code and of its schedule.

    Collectives without a wait are among them.
    """
    lines = [line for line in code.split("\n") if not line.lstrip().startswith("#")]
    calls = Counter(name for line in lines for name in _CALL.findall(line[:_LONGEST_LINE]))
    called = {name: calls[name] for name in (*collectives, *calls)}
    found = [
        f"{name} is {collectives.count(name)} times in the schedule, {times} times in the code"
        for name, times in called.items()
        if times != collectives.count(name)
    ]
    waits = sum(times for name, times in called.items() if _WAIT in name)
    without = sum(called.values()) - 2 * waits
    return [*found, f"{without} more collectives than waits"] if without > 0 else found


# -- the ranks of a job ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RankedGraph:
    """A graph on all ranks that scheduled it."""

    compile: str
    """The address of the compile, without store and recording."""
    frame: str
    partition: str
    by_rank: Mapping[int, tuple[str, ScheduledGraph]]
    """The address of the first record, and the schedule."""

    @property
    def parts_at(self) -> int | None:
        """The place of the first collective that is not the same on all ranks; None for none."""
        known = {row.collectives for _, row in self.by_rank.values() if row.collectives is not None}
        if len(known) < 2:
            return None
        return next(
            place
            for place in range(max(map(len, known)))
            if len({each[place : place + 1] for each in known}) > 1
        )


def ranked_graphs(ranks: Sequence[Rank]) -> list[RankedGraph]:
    """Return the graphs with collectives or estimates, in the order of the first rank that has
    each.
    """
    found: dict[tuple[str, str, int], dict[int, tuple[str, ScheduledGraph]]] = {}
    frames: dict[str, str] = {}
    for rank in ranks:
        for compile, rows in _of_rank(rank):
            place = compile.place.partition("/")[2]
            frames.setdefault(place, compile.frame_name)
            for number, row in enumerate(rows):
                key = place, row.partition, number
                at = f"#{compile.place}@{row.seq}"
                found.setdefault(key, {})[rank.rank] = at, row
    return [
        RankedGraph(place, frames[place], partition, by_rank)
        for (place, partition, _), by_rank in found.items()
    ]


def _of_rank(rank: Rank) -> Iterator[tuple[Compile, list[ScheduledGraph]]]:
    wanted = _with_schedules(rank.store, rank.recording.id)
    compiles = [row for row in rank.compiles if row.id in wanted][:_MOST_COMPILES]
    stages = queries.stages_by_compile(rank.store, compiles)
    for compile in compiles:
        events = queries.events(rank.store, compile, ARTIFACT)
        yield compile, schedules(rank.store, stages.get(compile.id, []), events)


def _with_schedules(store: Store, recording_id: int) -> set[int]:
    """Return the compiles of a recording, by row id, whose graphs may have schedules."""
    graphs, targets, entries = schema.graphs, schema.graph_targets, schema.config_entries
    compiles = schema.compiles
    of_collectives = (
        select(graphs.c.compile_id)
        .join(targets, targets.c.graph_id == graphs.c.id)
        .join(compiles, compiles.c.id == graphs.c.compile_id)
        .where(compiles.c.recording_id == recording_id, targets.c.target.contains(_TARGET))
    )
    of_switch = (
        select(compiles.c.id)
        .join(entries, entries.c.config_id == compiles.c.config_id)
        .where(compiles.c.recording_id == recording_id, entries.c.key == _SWITCH)
    )
    return {row[0] for query in (of_collectives, of_switch) for row in store.rows(query)}
