"""The ranks of a job and the first decision in which they part, as a part of the document.

Not here: which recordings are ranks of one job, and what a decision is (`torchreel.analysis.diff`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchreel.analysis.diff import diff_ranks
from torchreel.analysis.diff.ranks import View
from torchreel.errors import DamagedStore, UsageError
from torchreel.report.document import RanksRow, RankView
from torchreel.store import Store
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
    parting = found.parting
    if parting is None:
        return RanksRow(recordings, found.compiles, found.decisions)
    return RanksRow(
        recordings, found.compiles, found.decisions, parting.what,
        list(_together(parting.views)), parting.before[:_LONGEST],
    )  # fmt: skip


def _together(views: Sequence[View]) -> Iterator[RankView]:
    """Yield what ranks have, those that most of them have first."""
    same: dict[str, list[View]] = {}
    for view in views:
        same.setdefault(view.text, []).append(view)
    for text, known in sorted(same.items(), key=lambda item: -len(item[1])):
        event = known[0].address
        ranks = [view.rank for view in known]
        yield RankView(ranks, text[:_LONGEST], f"#{event.rpartition('#')[2]}" if event else "")
