"""Asks the oracle about the neighbours of a smallest case, within a bounded number of runs.

Three questions: which change of the config cures it, which smallest edit makes it pass, and what
could be otherwise without a difference. Many neighbours are known already: the reduction ended
because the oracle refused them. Called by `minify`, after a fixpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchreel.errors import BudgetSpent, StoreError
from torchreel.minifier.bisect.workaround import Workaround, find_workaround
from torchreel.minifier.cases.case import Case
from torchreel.minifier.explain.difference import Edit, deciding_edit
from torchreel.minifier.explain.variations import factors
from torchreel.minifier.options import Budget
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.passes import all_passes
from torchreel.minifier.results.explanations import Explanation
from torchreel.minifier.search.cached_oracle import CachedOracle
from torchreel.minifier.storage.findings import keep_finding, latest_finding
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature

MOST_RUNS = 40
"""Oracle runs that an explanation may take."""
_MOST = Budget(runs=MOST_RUNS)
_NOTHING_ELSE = "torch.compile(..., dynamic=False)"


def explain(
    store: Store,
    oracle: WorkerOracle,
    case: Case,
    signature: Signature,
    limits: Budget = _MOST,
) -> Explanation:
    """Explain a smallest case; take it from the store, if that has been found out before."""
    known = latest_finding(store, "explanation", case, oracle.environment)
    if known is not None:
        return Explanation.from_json(known)
    oracle.look_for(signature)  # what cures may be seen later than where the failure was
    journal = StoreJournal(store, signature, oracle.environment, None)
    found = _Explaining(CachedOracle(oracle, journal, limits), oracle, case).all()
    # A full disk must not cost what was found: the reduction itself goes on in memory as well.
    with contextlib.suppress(StoreError):
        if found.complete or limits.seconds is None:  # else more time finds more
            keep_finding(store, "explanation", case, signature, oracle.environment, found.to_json())
    return found


class _Explaining:
    """One explanation in the making."""

    def __init__(self, judge: CachedOracle, oracle: WorkerOracle, case: Case) -> None:
        self._judge, self._oracle, self._case = judge, oracle, case
        self._passing: list[Edit] = []
        self._same: list[str] = []
        self._cure: Workaround | None = None

    def all(self) -> Explanation:
        """Return the explanation, as complete as the limits allow."""
        complete = True
        try:
            self._cure = find_workaround(self._judge, self._oracle, self._case)
            self._vary()
        except BudgetSpent:
            complete = False
        self._passing += self._refused()
        neighbour = min(self._passing, default=(0, ""))[1]
        return Explanation(
            self._cure.lines if self._cure is not None else self._static(),
            self._cure is not None and self._cure.checked,
            neighbour,
            tuple(self._same),
            self._judge.runs,
            complete,
        )

    def _static(self) -> tuple[str, ...]:
        """Return the dynamic sizes that were tried static, and passed."""
        static = any("with static sizes" in text for _, text in self._passing)
        return (_NOTHING_ELSE,) if static else ()

    def _vary(self) -> None:
        for factor in factors(self._case):
            fails: list[int | str] = []
            passes: list[int | str] = []
            for change in factor.changes:
                verdict = self._judge.verdict(change.case).verdict
                if verdict == "same":
                    fails.append(change.value)
                elif verdict == "none":
                    passes.append(change.value)
                    edit = deciding_edit(self._case, change.case)
                    self._passing += [edit] if edit is not None else []
            sentence = factor.sentence(fails, passes)
            self._same += [sentence] if sentence else []

    def _refused(self) -> Iterator[Edit]:
        """Yield neighbours that passed in the reduction: they cost no run here."""
        for item in all_passes():
            for edit in item.edits(self._case):
                candidate = item.apply(self._case, [edit])
                known = self._judge.journal.verdict(candidate) if candidate is not None else None
                if candidate is None or known is None or known.verdict != "none":
                    continue
                found = deciding_edit(self._case, candidate)
                if found is not None:
                    yield found
