"""From a recorded failure to the simplest case of it, with the real recorder and worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tests.minifier.planted  # registers the backends here, as it does in the worker
from tests.minifier.hand_made import functions_of
from tests.minifier.real import PLANTED, chain_of, shared_worker
from tests.minifier.recorded import record
from torchreel.errors import (
    BudgetSpent,
    NotReproduced,
    UnsupportedError,
    UntrustedError,
    UsageError,
)
from torchreel.minifier.bisect import bisect
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import Budget, MinifyOptions
from torchreel.minifier.repro import ExportOptions, export, export_other_failure
from torchreel.minifier.search.similar import is_alike
from torchreel.store import canonical_json, queries
from torchreel.store.database import Store
from torchreel.store.failures.signature import Signature, crash_signature

assert tests.minifier.planted, "imported for its side effect"

OPTIONS = MinifyOptions(imports=(PLANTED,))


def test_two_bugs_in_one_program(tmp_path: Path) -> None:
    """The recorded one is kept, the other is listed; a second run costs nothing."""
    functions = ["relu", "tan", "relu", "sin", "relu", "relu", "cos", "neg"]
    path = record(tmp_path / "run.db", chain_of(functions), torch.ones(4, 8), backend="planted_two")
    with Store.open(path, write=True) as store:
        first = minify(store, options=OPTIONS, oracle=shared_worker())
        second = minify(store, options=OPTIONS, oracle=shared_worker())
        rows = queries.reductions(store)
        caught = queries.by_catch(store, rows[0])
    assert functions_of(first.case) == ["sin", "cos"]
    assert first.status == "fixpoint"
    assert [found.signature.exception_types for found in first.other_failures] == [("KeyError",)]
    assert [row.signature.exception_types for row in caught] == [("KeyError",)]
    assert (second.oracle_runs, second.case.digest) == (0, first.case.digest)
    assert [row.best_case for row in rows] == [first.case.digest] * 2


@pytest.mark.slow
def test_by_catch_is_a_case_of_its_own(tmp_path: Path) -> None:
    """It has a number, by which it is exported, and reduced as any other failure."""
    functions = ["relu", "tan", "relu", "sin", "cos"]
    path = record(tmp_path / "run.db", chain_of(functions), torch.ones(4, 8), backend="planted_two")
    with Store.open(path, write=True) as store:
        minify(store, options=OPTIONS, oracle=shared_worker())
        (row,) = queries.by_catch(store, queries.reductions(store)[0])
        wanted = ExportOptions(tmp_path / "repro", imports=(PLANTED,))
        exported = export_other_failure(store, row.id, wanted)
        options = replace(OPTIONS, other_failure=row.id)
        found = minify(store, options=options, oracle=shared_worker())
        failures = queries.failures(store)
        with pytest.raises(UsageError, match=f"number 99: it has {row.id}"):
            minify(store, options=replace(OPTIONS, other_failure=99), oracle=shared_worker())
    assert exported.check.holds
    assert exported.story.signature.exception_types == ("KeyError",)
    assert functions_of(found.case) == ["tan"]
    assert [failure.signature.exception_types for failure in failures] == [
        ("RuntimeError",),
        ("KeyError",),
    ]


def test_a_wrong_result(tmp_path: Path) -> None:
    """Nothing fails; the graph that differs is found, written down as a failure, and reduced."""
    path = record(tmp_path / "run.db", chain_of(["relu"]), torch.ones(2), backend="planted_wrong")
    with Store.open(path, write=True) as store, pytest.raises(NotReproduced, match="same results"):
        minify(store, accuracy=True, options=OPTIONS, oracle=shared_worker())
    functions = ["relu", "sin", "exp", "cos", "neg"]

    def fn(x: torch.Tensor) -> torch.Tensor:
        return chain_of(functions)(torch.log(x).sum())  # NaN, unless all inputs are positive

    record(path, fn, torch.ones(64), backend="planted_wrong")
    with Store.open(path, write=True) as store:
        assert not queries.failures(store)
        found = minify(store, accuracy=True, options=OPTIONS, oracle=shared_worker())
        (failure,) = queries.failures(store)
        again = minify(store, options=OPTIONS, oracle=shared_worker())
    assert functions_of(found.case) == ["sin", "cos"]
    assert (again.oracle_runs, again.case.digest) == (0, found.case.digest)
    assert found.case.harness == "accuracy"
    assert failure.failure_class == "wrong_result"


def test_nothing_failed(tmp_path: Path) -> None:
    """Is an error of usage, found before any worker is started."""
    path = record(tmp_path / "run.db", chain_of(["relu"]), torch.ones(2), backend="eager")
    with Store.open(path, write=True) as store:
        with pytest.raises(UsageError, match="no failing compile"):
            minify(store)
        (compile,) = queries.compiles(store, 1)
        with pytest.raises(UsageError, match="--accuracy"):
            minify(store, compile)


def test_a_limit_before_the_failure_was_seen_says_so(tmp_path: Path) -> None:
    path = record(tmp_path / "run.db", chain_of(["tan"]), torch.ones(2), backend="planted_two")
    options = replace(OPTIONS, limits=Budget(runs=1))
    with (
        Store.open(path, write=True) as store,
        pytest.raises(BudgetSpent, match=r"was not seen twice .*\(oracle runs: 1\), so nothing"),
    ):
        minify(store, options=options, oracle=shared_worker())


def test_a_failure_without_a_graph_needs_trust(tmp_path: Path) -> None:
    """Dynamo's own failures need the frame, which is code."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    path = record(tmp_path / "run.db", fn, torch.ones(2), fullgraph=True, backend="eager")
    with (
        Store.open(path, write=True) as store,
        pytest.raises(UntrustedError, match="--trust"),
    ):
        minify(store)
    with Store.open(path, write=True) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        with pytest.raises(UnsupportedError, match=r"minify \S+run.db#1/0/0 --trust"):
            bisect(store, compile)


def test_a_program_in_the_place_of_a_graph_is_not_run(tmp_path: Path) -> None:
    """A store that calls a stranger's program the best case of a failure of a graph."""
    canary = tmp_path / "ran"
    program = SourceCase(f"import pathlib\npathlib.Path({str(canary)!r}).touch()\n")
    path = record(tmp_path / "run.db", chain_of(["tan"]), torch.ones(2), backend="planted_two")
    with Store.open(path, write=True) as store:
        compile = queries.latest_failing(store)
        assert compile is not None
        failure = queries.failure_of(store, compile)
        assert failure is not None
        with store.writer() as w:
            document = w.blob(canonical_json(program.to_json()))
            owner = {"failure_id": failure.id, "call_nodes": 1, "document": document}
            w.add("cases", digest=program.digest, **owner)
            cases = {"start_case": program.digest, "best_case": program.digest}
            counts = {"oracle_runs": 1, "cache_hits": 0, "seconds": 1.0, "started_ns": 1}
            row = w.add("reductions", failure_id=failure.id, status="minimal", **cases, **counts)
            other = failure.signature
            columns = {"signature": other.to_json(), "signature_digest": other.digest}
            number = w.add("by_catch", reduction_id=row, case_digest=program.digest, **columns)
        with pytest.raises(UnsupportedError, match="only a graph can be run"):
            bisect(store, compile, options=OPTIONS)
        with pytest.raises(UntrustedError, match="--trust"):
            export(store, compile, ExportOptions(tmp_path / "repro"))
        with pytest.raises(UntrustedError, match="--trust"):
            export_other_failure(store, number, ExportOptions(tmp_path / "repro"))
        with pytest.raises(UntrustedError, match="--trust"):
            minify(store, options=replace(OPTIONS, other_failure=number))
        assert not canary.exists()
        trusting = ExportOptions(tmp_path / "repro", formats=("repro",), trust=True)
        assert not export_other_failure(store, number, trusting).check.holds
    assert canary.exists()


def test_what_a_recording_may_not_know() -> None:
    """A signal that nobody waited for; the stage, where the exception is the same."""
    seen = crash_signature("run", "inference", "SIGSEGV")
    assert is_alike(seen, crash_signature("run", "inference", None))
    assert not is_alike(seen, crash_signature("run", "inference", "SIGABRT"))
    one = Signature("exception", "joint", exception_types=("TypeError",), message="m")
    other = Signature("exception", "pre_grad", exception_types=("TypeError",), message="m")
    assert is_alike(one, other)
    assert not is_alike(one, Signature("exception", "joint", exception_types=("KeyError",)))
    passed_on = replace(one, frames=("torch:_TorchCompileInductorWrapper.__call__",))
    assert is_alike(passed_on, other)
    assert not is_alike(replace(one, frames=("torch._inductor.graph:GraphLowering.run",)), other)
