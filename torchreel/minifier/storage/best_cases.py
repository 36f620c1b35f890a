"""The simplest case that the store knows of a failure: what its reductions came to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import select

from torchreel.errors import DamagedStore
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.storage.stored_cases import read_case
from torchreel.store import Store, queries, schema
from torchreel.store.records import Failure, Reduction


@dataclass(frozen=True)
class BestCase:
    """The simplest case of a failure, and the reduction that found it."""

    case: AnyCase
    before: int
    """Call nodes of the case that the reduction started with."""
    reduction: Reduction
    """With the runs and seconds of all reductions of the failure."""


def best_case(store: Store, failure: Failure, imports: tuple[str, ...]) -> BestCase | None:
    """Return the simplest case known of a failure; None if it was never reduced."""
    reductions = queries.reductions(store, failure)
    if not reductions:
        return None
    # The case of one that was stopped may have failed by luck: nobody ran it again.
    rows = [row for row in reductions if row.is_finished] or reductions
    cases = {row.id: _case(store, row.best_case) for row in rows}
    best = min(rows, key=lambda row: (cases[row.id].call_nodes, -row.id))
    # A later reduction that was stopped has as many calls as the case that it began with.
    like = [row for row in rows if _is_like(cases[row.id], cases[best.id])]
    best = min(like, key=lambda row: (sort_key(cases[row.id]), -row.id))
    before = _case(store, best.start_case).call_nodes
    case = cases[best.id].with_imports(imports)
    return BestCase(case, before, _altogether(best, reductions))


def larger_cases(store: Store, failure: Failure, than: AnyCase) -> list[AnyCase]:
    """Return cases that reductions of a failure saw fail on the way to a smaller one.

    They are less and less like `than`: the nearest first, then each twice as far.
    """
    at, verdicts = schema.cases.c, schema.verdicts.c
    failed = select(verdicts.case_digest).where(verdicts.verdict == "same")
    query = select(at.digest).where(at.failure_id == failure.id, at.digest.in_(failed))
    rows = store.rows(query.order_by(at.call_nodes, at.digest).limit(_MOST_LARGER))
    found = [_case(store, row.digest) for row in rows]
    key = sort_key(than)
    found = sorted((c for c in found if type(c) is type(than) and sort_key(c) > key), key=sort_key)
    places = {2**power - 1 for power in range(_MOST_TRIED)}
    return [case for place, case in enumerate(found) if place in places]


_MOST_LARGER = 300
_MOST_TRIED = 5
"""Cases, each of which costs a run for every form of its script."""


def _is_like(case: AnyCase, other: AnyCase) -> bool:
    return type(case) is type(other) and case.call_nodes == other.call_nodes


def _altogether(best: Reduction, reductions: list[Reduction]) -> Reduction:
    """Return the best reduction with the effort of all: each goes on where the last one stopped."""
    runs = sum(row.oracle_runs for row in reductions)
    return replace(best, oracle_runs=runs, seconds=sum(row.seconds for row in reductions))


def _case(store: Store, digest: str) -> AnyCase:
    case = read_case(store, digest)
    if case is None:
        raise DamagedStore(f"{store.target} refers to a case ({digest[:12]}) that it lacks.")
    return case
