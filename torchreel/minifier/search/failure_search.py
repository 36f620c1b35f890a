"""The reduction of a failure in a store: a search for its signature, or for one like it.

Lives here: with which signature and which passes the search runs, and the partitions that it may
go on with. Not here: the search (`search`), when two signatures are alike (`similar`). Called by
`minify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from torchreel.errors import NotReproduced, StoreError, UnsupportedError
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.protocol import AnyCase
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.hangs.oracle import HangOracle
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.command_oracle import CommandOracle
from torchreel.minifier.oracle.interface import Oracle
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.passes import PHASES, Phases
from torchreel.minifier.results.reductions import Listener, MinifyResult
from torchreel.minifier.search.cached_oracle import CachedOracle, Spending
from torchreel.minifier.search.partitions import is_worth, part_of
from torchreel.minifier.search.search import Search
from torchreel.minifier.search.similar import below_dynamo, is_alike
from torchreel.minifier.storage.findings import keep_finding, latest_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store.database import Store
from torchreel.store.documents.jsontypes import Json
from torchreel.store.failures.signature import Signature
from torchreel.store.records import Failure


def reduce_failure(
    store: Store,
    oracle: WorkerOracle | CommandOracle,
    starts: Sequence[AnyCase],
    failure: Failure,
    spending: Spending | None = None,
    listener: Listener | None = None,
    *,
    insist: bool = True,
) -> MinifyResult:
    """Search from the first of the cases that fails with the signature, or with one like it.

    All of that is within one budget. `insist` is that of `Search.run`, which raises what this does.
    """

    limits = spending or Spending(Budget())

    def search(wanted: Signature) -> Search:
        oracle.look_for(wanted)
        journal = StoreJournal(store, wanted, oracle.environment, failure.id)
        return Search(
            _for_hangs(oracle, wanted),
            wanted,
            journal=journal,
            limits=limits,
            listener=listener,
            phases_of=phases_of,
        )

    recorded = failure.signature if starts[0].is_code else below_dynamo(failure.signature)
    run = partial(
        Search.run,
        parts=_Partitions(store, oracle, starts),
        lowered=_recorded_lowering(starts),
        insist=insist,
    )
    first = search(recorded)
    try:
        # What an earlier reduction found out about the starts needs no run to be seen.
        if _alike(first, starts, recorded) is None:
            return run(first, *starts, is_alike=lambda seen: is_alike(seen, recorded))
    except NotReproduced:
        if any(seen.matches(recorded) for seen in first.judge.observed(starts)):
            return run(first, *starts)  # an earlier reduction saw it, further on
        if _alike(first, starts, recorded) is None:
            raise
    return run(search(_alike(first, starts, recorded) or recorded), *starts)


class _Partitions:
    """Gives the partitions with which a search may go on, once a whole graph is reduced."""

    def __init__(
        self, store: Store, oracle: WorkerOracle | CommandOracle, starts: Sequence[AnyCase]
    ) -> None:
        self._store, self._oracle = store, oracle
        self._recorded = [c for c in starts if isinstance(c, Case) and c.is_part and not c.is_exact]

    def __call__(self, best: AnyCase, judge: CachedOracle) -> Sequence[AnyCase]:
        """Return that of the case that is left, which is small, then those that were recorded."""
        oracle = self._oracle
        if not self._recorded or not isinstance(best, Case) or not isinstance(oracle, WorkerOracle):
            return self._recorded
        part = lowered_part(self._store, oracle, best, judge)
        if part is None:
            return self._recorded
        return [part, *self._recorded] if is_worth(part, best) else []


def lowered_part(
    store: Store, oracle: WorkerOracle, case: Case, judge: CachedOracle
) -> Case | None:
    """Return the case of the ATen graph that Inductor gets of a case, from the store if known.

    Raises `BudgetSpent`.
    """
    found = latest_finding(store, "part", case, oracle.environment)
    if isinstance(found, Mapping) and "document" in found:
        with suppress(UnsupportedError):  # of a stranger's finding
            return part_of(case, found["document"])
    judge.count()
    document = oracle.part_of(case)
    with suppress(StoreError):  # of a full disk there is a note already
        kept: Json = {"document": document}
        keep_finding(store, "part", case, oracle.signature, oracle.environment, kept)
    return part_of(case, document)


def _recorded_lowering(starts: Sequence[AnyCase]) -> GraphDoc | None:
    """Return the recorded ATen graph, which says what became of the calls of the whole one."""
    exact = (c for c in starts if isinstance(c, Case) and c.is_part and c.is_exact)
    return next((case.graph for case in exact), None)


def _for_hangs(oracle: WorkerOracle | CommandOracle, wanted: Signature) -> Oracle:
    """Return the oracle to search with: one that presumes hangs where a hang is looked for."""
    if wanted.failure_class != "hang" or not isinstance(oracle, WorkerOracle):
        return oracle
    return HangOracle(oracle, oracle.seconds)


def _alike(search: Search, starts: Sequence[AnyCase], recorded: Signature) -> Signature | None:
    """Return the signature of a start that failed in the recorded way but for details."""
    observed = search.judge.observed(starts)
    if any(seen.matches(recorded) for seen in observed):
        return None
    return next((seen for seen in observed if is_alike(seen, recorded)), None)


def phases_of(case: AnyCase) -> Phases:
    """Return the phases of passes for a case of that kind."""
    if isinstance(case, SourceCase):
        # Its passes need libcst, which takes half a second to import.
        from torchreel.minifier.source import passes

        return passes.PHASES
    return PHASES
