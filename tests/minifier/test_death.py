"""Crashes and hangs, from a program that dies of them to the simplest case."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tests.minifier.hand_made import functions_of
from tests.minifier.real import PLANTED, shared_worker
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.recorder.launch import run_recorded
from torchreel.store import queries
from torchreel.store.database import Store

ROOT = Path(__file__).parents[2]
PROGRAM = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    import os, threading, torch
    import {PLANTED}

    def fn(x):
        return torch.relu(torch.FUNCTION(torch.neg(x)))

    threading.Timer(20, os._exit, [1]).start()
    torch.compile(fn, backend="planted_ends")(torch.ones(4, 8))
"""
OPTIONS = MinifyOptions(imports=(PLANTED,))


def recorded(path: Path, function: str, **kwargs: float) -> int:
    """Run the program with that function in it; its exit status."""
    text = textwrap.dedent(PROGRAM).replace("FUNCTION", function)
    return run_recorded([sys.executable, "-c", text], path, **kwargs)


def test_a_crash(tmp_path: Path) -> None:
    """The process dies of a signal; its graph is in the store."""
    path = tmp_path / "run.db"
    assert recorded(path, "sin") == 128 + 11
    with Store.open(path, write=True) as store:
        (failure,) = queries.failures(store)
        found = minify(store, options=OPTIONS, oracle=shared_worker())
    assert failure.failure_class == "crash"
    assert found.signature.signal == "SIGSEGV"
    assert functions_of(found.case) == ["sin"]


@pytest.mark.slow
def test_a_hang(tmp_path: Path) -> None:
    """Recognised after as long as the recording took to recognise it."""
    path = tmp_path / "run.db"
    recorded(path, "cos", compile_timeout=2.0)
    with Store.open(path, write=True) as store:
        (failure,) = queries.failures(store)
        found = minify(store, options=OPTIONS, oracle=shared_worker())
    assert failure.failure_class == "hang"
    assert functions_of(found.case) == ["cos"]
