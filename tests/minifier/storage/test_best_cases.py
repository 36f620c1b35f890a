"""Which case of a failure is its simplest one."""

from __future__ import annotations

from pathlib import Path

from tests.minifier.hand_made import BUG, chain
from tests.store.rows import add_compile, add_failure, add_recording
from torchreel.minifier.cases.case import Case
from torchreel.minifier.storage.best_cases import best_case
from torchreel.store import Store, queries
from torchreel.store.writer import Writer


def add_reduction(w: Writer, failure: int, case: Case, status: str) -> None:
    """One run of the minifier that began with its best case."""
    document = w.blob(case.to_bytes())
    w.put("cases", digest=case.digest, failure_id=failure, call_nodes=3, document=document)
    w.add(
        "reductions", failure_id=failure, start_case=case.digest, best_case=case.digest,
        status=status, oracle_runs=1, cache_hits=0, seconds=1.0, started_ns=1,
    )  # fmt: skip


def test_what_was_run_again_at_the_end_comes_before_what_is_simpler(tmp_path: Path) -> None:
    """An interrupted reduction may have accepted its best case by luck."""
    lucky, finished = chain(["sin"]), chain(["sin", "cos"])
    with Store.open(tmp_path / "run.db", create=True) as store:
        with store.writer() as w:
            number = add_recording(w)
            failure = add_failure(w, number, add_compile(w, number, status="failed"), BUG)
            add_reduction(w, failure, lucky, "interrupted")
        (row,) = queries.failures(store)
        found = best_case(store, row, ())
        assert found is not None
        assert found.case.digest == lucky.digest
        with store.writer() as w:
            add_reduction(w, failure, finished, "fixpoint")
            add_reduction(w, failure, lucky, "budget")
        found = best_case(store, row, ())
    assert found is not None
    assert found.case.digest == finished.digest
    assert found.reduction.oracle_runs == 3
