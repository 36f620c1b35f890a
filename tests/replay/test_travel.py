"""A replay goes as far as a stage or an event, says what it compared up to there, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replay.programs import UNCACHED, record
from torchreel.errors import UnsupportedError, UsageError
from torchreel.replay import Verdict, replay, until
from torchreel.store import Store, queries
from torchreel.store.records import Compile, Event

PROGRAM = "torch.compile(lambda x: (x.sin() + 1).sum(0), dynamic=True)(torch.randn(5, 8))"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("travel") / "run.db"
    assert record(path, "small", source=PROGRAM, **UNCACHED) == 0
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, write=True) as store:
        yield store


def the_compile(store: Store) -> Compile:
    return queries.compiles(store, 1)[0]


def go(store: Store, entry: str = "graph", **wanted: object) -> Verdict:
    return replay(store, the_compile(store), entry, until=until(**wanted))  # type: ignore[arg-type]


def the_event(store: Store, kind: str, number: int = 0) -> Event:
    return queries.events(store, the_compile(store), kind)[number]


@pytest.mark.slow
def test_a_replay_stops_where_a_stage_begins(store: Store) -> None:
    verdict = go(store, to="lowering")
    assert str(verdict) == "identical up to stage lowering (inference)"
    assert verdict.reached is not None
    assert len(verdict.reached.before) == 10
    kinds = {(row.stage, row.kind) for row in verdict.compared}
    assert ("post_grad", "graph") in kinds
    assert not {"lowering", "codegen"} & {stage for stage, _ in kinds}
    assert sum(row.identical for row in verdict.compared) > 40
    assert verdict.recording_id is not None
    (again,) = queries.compiles(store, verdict.recording_id)
    assert (again.status, queries.failure_of(store, again)) == ("stopped", None)
    assert "lowering" not in [stage.stage for stage in queries.stages(store, again)]


@pytest.mark.slow
def test_a_replay_stops_right_after_an_event(store: Store) -> None:
    event = the_event(store, "inductor.lowering", 1)
    verdict = go(store, "aot", at=event.seq)
    assert str(verdict) == f"identical up to event {event.seq}"
    assert verdict.reached is not None
    assert verdict.reached.what == f"{event.kind} {event.name}"
    first = the_event(store, "inductor.lowering")
    assert verdict.reached.before[-1][0] == first.seq
    counts = {row.kind: row.replayed for row in verdict.compared}
    assert counts["inductor.lowering"] == 2
    assert "output code" not in counts


COMMANDS = """
print('inputs', len(inputs), type(shape_env).__name__)
step(2)
events(3)
next_stage('lowering')
print('lowering', type(lowering).__name__, 'of', len(fx.graph.nodes), 'nodes')
at({at})
event
help
"""


@pytest.mark.slow
def test_a_prompt_has_the_live_objects_and_goes_on(path: Path, store: Store) -> None:
    event = the_event(store, "inductor.lowering", 1)
    command = [sys.executable, "-m", "torchreel.cli", "replay", f"{path}#1/0/0", "--interactive"]
    done = subprocess.run(
        command, input=COMMANDS.format(at=event.seq), capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    out = done.stdout
    assert done.returncode == 0, out + done.stderr
    assert "inputs 3 ShapeEnv" in out
    assert "lowering GraphLowering of" in out
    assert f"@{event.seq} {event.kind} {event.name}\n  target: " in out
    assert "step(n=1)          go on for n events" in out
    shown = out[out.index("inputs 3") : out.index("lowering GraphLowering")]
    assert shown.count("@") == 3
    assert f"identical up to event {event.seq}" in out
    assert "stopped at the beginning of stage lowering inference, after @" in done.stderr


def test_shapes_stop_at_an_event(store: Store) -> None:
    marks = queries.events(store, the_compile(store), "shape_env.checkpoint")
    last = marks[-1].seq
    verdict = go(store, "shapes", at=last)
    assert str(verdict) == f"identical up to event {last}"
    assert sum(row.identical for row in verdict.compared) == len(marks)
    with pytest.raises(UnsupportedError, match="nothing to hold the rebuilt ShapeEnv to"):
        go(store, "shapes", at=marks[0].seq - 1)


def test_what_cannot_be_reached_is_said(store: Store) -> None:
    with pytest.raises(UsageError, match=r"no part of what a replay from 'graph' does"):
        go(store, at=the_event(store, "frame.start").seq)
    with pytest.raises(UsageError, match="is not in the event log"):
        go(store, at=10**9)
    with pytest.raises(UsageError, match=r"has no stage backward: it went through dynamo"):
        go(store, to="backward")
    with pytest.raises(UsageError, match="does not come to the beginning of stage 'joint'"):
        go(store, "aot", to="joint")
    with pytest.raises(UsageError, match="use --entry frame, graph or aot"):
        go(store, "shapes", to="lowering")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"to": "fusion"}, "there is no 'fusion', only pre_grad, joint, forward"),
        ({"to": "lowering:sideways"}, "A partition is forward"),
        ({"to": "lowering", "at": 3}, "not at both"),
    ],
)
def test_what_makes_no_sense_is_said(wanted: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        until(**wanted)  # type: ignore[arg-type]
