"""A recording of flight mode replays, and is compared in what that mode records."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests import forks
from tests.replay import mutations
from tests.replay.mutations import Mutation, apply, outcome
from tests.replay.programs import UNCACHED
from torchreel.cli import app
from torchreel.events.fake_tensors import FakeDispatch
from torchreel.recorder.probes import PROBES, fake_tensors, proxies
from torchreel.replay import Verdict, replay
from torchreel.replay.compare.rules import FLIGHT, NOT_IN_FLIGHT, TRACE
from torchreel.replay.compare.time_travel import Until
from torchreel.store import queries
from torchreel.store.database import Store
from torchreel.store.records import Compile

PROGRAM = """
import torch


@torch.compile
def fails(x):
    return x.sin().view(7)


@torch.compile(dynamic=True)
def trains(x, w):
    return torch.tanh(x @ w).sum(0) * x.shape[0]


@torch.compile
def breaks(x):
    y = x.sin()
    print("between")
    return y.cos()


breaks(torch.ones(5))
try:
    fails(torch.ones(3))
except Exception as error:
    print(type(error).__name__)
trains(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).sum().backward()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A failed compile and a slow one, as flight mode keeps them."""
    folder = tmp_path_factory.mktemp("flight")
    program, path = folder / "job.py", folder / "run.db"
    program.write_text(PROGRAM)
    variables = {
        "TORCHREEL": f"flight:{path}", "TORCHREEL_SLOW_COMPILE": "0", "TORCHREEL_FRAMES": "all",
        **UNCACHED,
    }  # fmt: skip
    command = [sys.executable, str(program)]
    done = forks.run(command, env={**os.environ, **variables})
    assert (done.returncode, done.stdout) == (0, "between\nTorchRuntimeError\n"), done.stderr
    return path


def _compile(store: Store, name: str) -> Compile:
    (found,) = (row for row in queries.compiles(store, 1) if row.frame_name == name)
    return found


def _compared(verdict: Verdict) -> set[str]:
    return {row.kind for row in verdict.compared if row.identical}


@pytest.mark.slow
@pytest.mark.parametrize("entry", ["graph", "aot", "frame"])
def test_a_slow_compile_replays(recorded: Path, entry: str) -> None:
    with Store.open(recorded, write=True) as store:
        compile = _compile(store, "trains")
        assert not list(queries.events(store, compile, FakeDispatch.kind))
        found = replay(store, compile, entry, trust=entry == "frame")
    assert (found.verdict, found.detail, found.difference) == ("identical", "", "")
    assert {"inductor.lowering", "inductor.kernel", "inductor.pass"} <= _compared(found)
    assert "graph" in _compared(found) or entry == "aot"
    assert any(note.startswith(f"set aside: {FLIGHT}") for note in found.notes)
    assert any(note.startswith("flight mode keeps no graphs") for note in found.notes)


def test_what_flight_mode_does_not_attach_is_what_is_set_aside() -> None:
    """A probe or tap that flight mode leaves out has all of its events in the table."""
    left_out = {probe.point for probe in PROBES if not probe.flight}
    noted = {
        event.kind
        for module in (fake_tensors, proxies)
        for event, points in module.EVENTS.items()
        if left_out.intersection(points)
    }
    assert left_out == {fake_tensors.DISPATCH, proxies.NODE, proxies.SYMBOLIC}
    assert noted == {excuse.kind for excuse in NOT_IN_FLIGHT} - {TRACE}


@pytest.mark.slow
def test_a_failure_replays(recorded: Path) -> None:
    with Store.open(recorded, write=True) as store:
        found = replay(store, _compile(store, "fails"), "frame", trust=True)
    assert (found.verdict, found.detail, found.difference) == ("identical", "", "")
    assert {"failure", "frame.start"} <= _compared(found)


@pytest.mark.slow
def test_an_attempt_that_is_a_summary_is_not_compared(recorded: Path) -> None:
    """Flight mode lets the first attempt go where a graph break had Dynamo begin anew."""
    with Store.open(recorded, write=True) as store:
        rows = [row for row in queries.compiles(store, 1) if row.frame_name == "breaks"]
        assert [row.status for row in rows] == ["restarted", "ok"]
        assert not list(queries.events(store, rows[0]))
        found = replay(store, rows[1], "frame", trust=True)
    assert (found.verdict, found.detail) == ("identical", "")
    assert "output_graph.input" in _compared(found)
    assert any(note.startswith("flight mode kept a summary of") for note in found.notes)


@pytest.mark.slow
def test_a_changed_recording_is_found(recorded: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    source.write_bytes(recorded.read_bytes())
    with Store.open(source, write=True) as store:
        replay(store, mutations.original(store))
        assert outcome(store).agrees
    kinds = ("aot.metadata", "proxies.traced", "inductor.pass", "inductor.lowering",
             "inductor.schedule", "inductor.kernel")  # fmt: skip
    for mutation in map(Mutation, kinds):
        copy = tmp_path / "copy.db"
        seq = apply(mutation, source, copy)
        with Store.open(copy) as store:
            found = outcome(store)
        assert found.divergence is not None, mutation
        assert found.divergence.seq == seq, mutation


@pytest.mark.slow
def test_a_replay_stops_at_an_event(recorded: Path) -> None:
    with Store.open(recorded, write=True) as store:
        compile = _compile(store, "trains")
        wanted = next(iter(queries.events(store, compile, "inductor.lowering")))
        found = replay(store, compile, "graph", until=Until(event=wanted.seq))
    assert found.reached is not None
    assert found.reached.seq == wanted.seq
    assert (found.verdict, found.detail) == ("identical", "")


@pytest.mark.slow
def test_another_mode_hides_nothing(recorded: Path, tmp_path: Path) -> None:
    """Only a recording that says so itself lacks these events with a reason."""
    copy = tmp_path / "run.db"
    copy.write_bytes(recorded.read_bytes())
    with Store.open(copy, write=True) as store:
        with store.writer() as writer:
            statement = "UPDATE environment SET value = 'full' WHERE key = 'mode'"
            writer.connection.exec_driver_sql(statement)
        compile = _compile(store, "trains")
        assert replay(store, compile, "graph").verdict == "diverged"


DIES = """
import torch

x = torch.randn(3, requires_grad=True)
zero = torch.autograd.grad(torch.sgn(x).sum(), x)[0]
torch.compile(lambda t: t[-1] + 10)(zero)  # pytorch#197067: the kernel reads a null pointer
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "flight"])
def test_a_process_that_nobody_waited_for_is_replayed_to_its_crash(
    tmp_path: Path, mode: str
) -> None:
    program, path = tmp_path / "job.py", tmp_path / "run.db"
    program.write_text(DIES)
    environment = {**os.environ, "TORCHREEL": f"{mode}:{path}", **UNCACHED}
    done = forks.run([sys.executable, str(program)], env=environment)
    assert done.returncode == -signal.SIGSEGV
    result = CliRunner().invoke(app, ["replay", str(path), "--json"])
    assert result.exit_code == 0, result.output
    verdict = json.loads(result.stdout)
    assert verdict["verdict"] == "identical"
    (failure,) = (row for row in verdict["compared"] if row["kind"] == "failure")
    assert (failure["recorded"], failure["replayed"], failure["identical"]) == (1, 1, 1)
    assert any("by SIGSEGV" in note for note in verdict["notes"])
