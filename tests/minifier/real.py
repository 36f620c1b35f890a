"""Real cases for the tests of the oracle: graphs that Dynamo made, and their signatures."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.formats.compiles import compile_and_see
from torchreel.minifier.cases.case import Case, Harness
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.store.failures.signature import Signature

NOTHING = Signature("exception", "lowering", message="nothing fails like this")
PLANTED = "tests.minifier.planted"


@functools.cache
def shared_worker() -> WorkerOracle:
    """One warm worker for all tests: starting one takes ten seconds, a case a fork."""
    here, threads = Path.cwd(), os.environ.get("OMP_NUM_THREADS")
    os.chdir(Path(__file__).parents[2])  # where the planted backends can be imported from
    os.environ["OMP_NUM_THREADS"] = "2"  # on one core as well: threads do not survive a fork
    try:
        oracle = WorkerOracle(NOTHING, imports=(PLANTED,))
    finally:
        os.chdir(here)
        del os.environ["OMP_NUM_THREADS"]
        os.environ.update({} if threads is None else {"OMP_NUM_THREADS": threads})
    atexit.register(oracle.close)
    return oracle


def case_from(
    fn: Callable[..., Any],
    *inputs: object,
    backend: str = "inductor",
    harness: Harness = "compile",
    **kwargs: Any,
) -> Case:
    """The case of a function that Dynamo traces as one graph."""
    (doc,) = compile_and_see(fn, *inputs, **kwargs).checkpoints
    doc = replace(doc, extra={**doc.extra, "backend": backend})
    return Case.from_checkpoint(doc, harness, imports=(PLANTED,))


def planted(message: str, kind: str = "RuntimeError") -> Signature:
    """The signature of what a planted backend raises: outside of every stage but the backend's."""
    return Signature("exception", "pre_grad", exception_types=(kind,), message=message)


def chain_of(functions: list[str]) -> Callable[[torch.Tensor], torch.Tensor]:
    """x -> f -> g -> ..."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        for name in functions:
            x = getattr(torch, name)(x)
        return x

    return fn
