"""The ranks of a job, the first decision in which they part, and the order of their collectives.

Not here: which recordings are ranks of one job, and what a decision is (`torchreel.analysis.diff`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchreel.analysis.diff import diff_ranks
from torchreel.analysis.diff.ranks import View
from torchreel.analysis.schedules import RankedGraph, ranked_graphs
from torchreel.errors import DamagedStore, UsageError
from torchreel.report.document import RankGraph, RankSchedule, RanksRow, RankView
from torchreel.store import Store, queries
from torchreel.store.addressing import Address

_LONGEST = 4_000
"""Characters of what a rank has."""


def ranks_of(store: Store, address: Address) -> RanksRow | None:
    """Return the ranks of the last job in a store; None where there are fewer than two."""
    try:
        found = diff_ranks([(store, address)])
    except UsageError:
        return None
    except DamagedStore as error:
        store.skip(error)
        return None
    recordings = [rank.recording.id for rank in found.ranks]
    numbers = [rank.rank for rank in found.ranks]
    graphs = queries.readable(store, lambda: ranked_graphs(found.ranks), [])
    rows = [_graph(row, numbers) for row in graphs]
    parting = found.parting
    if parting is None:
        return RanksRow(recordings, found.compiles, found.decisions, numbers=numbers, graphs=rows)
    return RanksRow(
        recordings, found.compiles, found.decisions, parting.what,
        list(_together(parting.views)), parting.before[:_LONGEST], numbers, rows,
    )  # fmt: skip


def _graph(row: RankedGraph, numbers: Sequence[int]) -> RankGraph:
    same: dict[tuple[str, ...], list[int]] = {}
    for rank, (_, schedule) in sorted(row.by_rank.items()):
        if schedule.collectives is not None:
            same.setdefault(schedule.collectives, []).append(rank)
    known = [
        RankSchedule(ranks, list(collectives), row.by_rank[ranks[0]][0])
        for collectives, ranks in sorted(same.items(), key=lambda item: -len(item[1]))
    ]
    times = [row.by_rank[rank][1].ns if rank in row.by_rank else None for rank in numbers]
    estimated = any(time is not None for time in times)
    return RankGraph(
        row.compile, row.frame, row.partition, known, row.parts_at, times if estimated else []
    )


def _together(views: Sequence[View]) -> Iterator[RankView]:
    """Yield the views of ranks, grouped by text, the largest group first."""
    same: dict[str, list[View]] = {}
    for view in views:
        same.setdefault(view.text, []).append(view)
    for text, known in sorted(same.items(), key=lambda item: -len(item[1])):
        event = known[0].address
        ranks = [view.rank for view in known]
        yield RankView(ranks, text[:_LONGEST], f"#{event.rpartition('#')[2]}" if event else "")
