"""Each program ends at exactly its simplest case."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo
from _pytest.mark import ParameterSet

from tests.formats.compiles import compile_and_see
from tests.minifier.real import NOTHING
from tests.quality.programs import PROGRAMS, Program
from tests.quality.shown import shown
from torchreel.minifier.cases.case import Case
from torchreel.minifier.options import RunLimits
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.results.reductions import MinifyResult
from torchreel.minifier.search.search import Search
from torchreel.store.failures.signature import Signature

pytestmark = pytest.mark.quality
_SAMPLE = 8
PLANTS = ("tests.quality.programs", "tests.quality.broken_inductor")


@functools.cache
def worker() -> WorkerOracle:
    """One warm worker for all programs."""
    here = Path.cwd()
    os.chdir(Path(__file__).parents[2])
    try:
        oracle = WorkerOracle(NOTHING, imports=PLANTS)
    finally:
        os.chdir(here)
    atexit.register(oracle.close)
    return oracle


def reduce(program: Program) -> MinifyResult:
    """The reduction of the failure that the program shows when it is run once."""
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        (doc,) = compile_and_see(program.fn, *program.inputs, **program.options).checkpoints
    doc.extra["backend"] = program.backend  # type: ignore[index]
    case = Case.from_checkpoint(doc, program.harness, imports=PLANTS)
    oracle = worker()
    wanted = _wanted(case)
    oracle.look_for(wanted)
    return Search(oracle, wanted).run(case)


def _wanted(case: Case) -> Signature:
    """The signature of the program's failure, as one run of it shows it."""
    oracle = worker()
    oracle.look_for(NOTHING, RunLimits())
    report = oracle.judge(case)
    assert report.observed is not None, report.detail
    return report.observed


def _parameters() -> Iterator[ParameterSet]:
    """All programs; those that are not slow, and of them each eighth, are run by `make test`."""
    quick = itertools.count()
    for one in PROGRAMS:
        sampled = not one.slow and next(quick) % _SAMPLE == 0
        marks = [] if sampled else [pytest.mark.exhaustive]
        yield pytest.param(one, id=one.label, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("program", _parameters())
def test_simplest_case(program: Program) -> None:
    """To the letter."""
    found = reduce(program)
    assert shown(found.case) == program.expected
