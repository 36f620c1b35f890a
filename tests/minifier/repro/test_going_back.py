"""A case whose script does not show the failure gives way to one that it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.minifier.hand_made import chain
from tests.minifier.recorded import record
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.minify import minify
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.results.verdicts import OracleReport
from torchreel.minifier.storage.best_cases import larger_cases
from torchreel.minifier.storage.journal import StoreJournal
from torchreel.store import Store, queries


def _fails(x: torch.Tensor) -> torch.Tensor:
    y = F.adaptive_max_pool1d(x.sin().cos(), (0,))
    return torch.scatter(y, -1, y, y).relu()


@pytest.mark.slow
def test_a_script_is_that_of_a_case_that_shows_the_failure(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", _fails, torch.rand(4, 8))
    said: list[str] = []
    with Store.open(path, write=True) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        failure = queries.failure_of(store, compile)
        assert failure is not None
        found = minify(store, compile, options=MinifyOptions(explain=False, limits=Budget(runs=4)))
        assert isinstance(found.case, Case)
        wrong = chain(["relu"])
        assert sort_key(wrong) < sort_key(found.case)
        environment = WorkerOracle(failure.signature).environment
        journal = StoreJournal(store, failure.signature, environment, failure.id)
        journal.keep(wrong, OracleReport("same"))
        journal.begin(wrong)
        journal.progress(wrong, status="fixpoint", runs=1, hits=0, seconds=0.0)
        nearest = larger_cases(store, failure, wrong)[0]
        assert nearest.digest == found.case.digest
        options = ExportOptions(tmp_path / "out", formats=("repro",), say=said.append)
        exported = export(store, compile, options)
    assert exported.check.exact
    assert sum("going back to a case" in text for text in said) == 1
    assert f"to {found.case.call_nodes} call nodes" in exported.script.text
