"""What Dynamo leaves behind other than eager mode does: found, and reduced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import torchreel
from torchreel.errors import NotReproduced, UnsupportedError
from torchreel.minifier.accuracy.wrong_results import _with_frames, find_in_frames
from torchreel.minifier.cases.source_case import ANYTHING, SourceCase
from torchreel.minifier.minify import minify
from torchreel.minifier.options import MinifyOptions
from torchreel.minifier.oracle.child.program_runner import run
from torchreel.minifier.oracle.child.program_state import ProgramRun, departure
from torchreel.minifier.oracle.protocol import ChildReport, Task
from torchreel.minifier.oracle.worker_oracle import WorkerOracle
from torchreel.minifier.repro import ExportOptions, export
from torchreel.minifier.results.reductions import ProgressEvent
from torchreel.recorder.settings import Settings
from torchreel.replay import replay
from torchreel.store import Store, queries
from torchreel.store.documents.jsontypes import parse_json
from torchreel.store.failures.signature import wrong_result_signature

# pytorch/pytorch#197896: what a method closes over is not changed under Dynamo.
DROPPED = """\
import torch
def make(log):
    class Timer:
        def touch(self):
            log.append(1)
    def fn(x):
        Timer().touch()
        return x + 1
    return fn
log = []
fn = make(log)
torch.compile(fn, backend="eager")(torch.ones(2))
"""
KEPT = """\
import torch
def fn(x, given):
    given.append(x.shape[0])
    return x + 1
torch.compile(fn, backend="eager")(torch.ones(2), [])
"""
# A program registers its backend each time that it runs, and torch takes a name once.
OWN_BACKEND = """\
import torch
from torch._dynamo import register_backend
@register_backend
def sloppy(gm, inputs):
    return lambda *given: tuple(value + 1 for value in gm(*given))
def fn(x):
    return x.sin()
torch.compile(fn, backend="sloppy")(torch.zeros(()))
"""


class Box:
    """An object of a program."""

    def __init__(self, **values: object) -> None:
        vars(self).update(values)

    def get(self) -> object:
        """For a bound method."""
        return self


Box.__module__ = "__main__"


def closure(value: object) -> Callable[[], object]:
    """A function that holds a value."""
    return lambda: value


def ring(value: object) -> list[object]:
    """A list that holds itself."""
    found = [value]
    found.append(found)
    return found


def nested(depth: int) -> object:
    """A tuple of twice the same tuple, and so on."""
    found: object = ()
    for _ in range(depth):
        found = found, found
    return found


def alike() -> list[object]:
    """One of everything, made anew."""
    torch.manual_seed(0)
    one = torch.ones(2, requires_grad=True)
    one.sum().backward()
    shared = [1]
    return [
        (1, 2.5, "a", b"b", None, float("nan"), torch.float32, torch.Size([2])),
        {"a": [one, one], "b": (shared, shared)}, {1, 2}, frozenset("ab"),
        Box(x=3, inner=Box(y=shared)), closure(shared), Box(z=1).get, ring(4),
        torch.nn.Linear(2, 2, bias=False).requires_grad_(False).zero_grad, Box, iter([1]),
        {torch.device("cpu"): 1}, torch.nn.UninitializedParameter(), np.ones(2), nested(30),
    ]  # fmt: skip


def runs(eager: object, compiled: object) -> list[ProgramRun]:
    return [
        ProgramRun({"result": value, "arguments": (), "keywords": {}})
        for value in (eager, compiled)
    ]


def test_what_is_alike_does_not_differ() -> None:
    found = departure(*runs(alike(), alike()))
    assert found is None  # by itself: pytest would spell the tuples


SAME = [1]
GRAD = torch.ones(2, requires_grad=True)
DIFFERENT: list[tuple[object, object, str, str]] = [
    (1, 2, "result", "values"),
    (1, True, "type(result).__qualname__", "values"),
    ("a", "b", "result", "values"),
    ([1, [2, 3]], [1, [2, 4]], "result[1][1]", "values"),
    ([1], [1, 2], "result", "count"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "list(result)[0]", "values"),
    ({"a": 1}, {"a": 2}, "result['a']", "values"),
    ({1, 2}, {1, 3}, "sorted(map(repr, result))[1]", "values"),
    (Box(x=[1]), Box(x=[2]), "result.x[0]", "values"),
    (Box(x=1), Box(), "sorted(vars(result))", "count"),
    (closure(1), closure(2), "result.__closure__[0].cell_contents", "values"),
    (Box(x=1).get, Box(x=2).get, "result.__self__.x", "values"),
    ([SAME, SAME], [[1], [1]], "result[0] is result[1]", "values"),
    ([[1], [1]], [SAME, SAME], "result[0] is result[1]", "values"),
    (torch.ones(2), torch.zeros(2), "result", "values"),
    (torch.ones(2), torch.ones(3), "result", "shape"),
    (torch.ones(2), torch.ones(2, dtype=torch.float64), "result", "dtype"),
    (torch.ones(2), torch.nn.Parameter(torch.ones(2)), "type(result).__qualname__", "values"),
    (torch.ones(2), torch.ones(2, requires_grad=True), "result.requires_grad", "values"),
    (ring(4), ring(5), "result[0]", "values"),
    ({torch.float32: 1}, {torch.float32: 2}, "list(result.values())[0]", "values"),
    (Box(**{"a b": 1}), Box(**{"a b": 2}), "vars(result)['a b']", "values"),
    (np.ones(2), np.zeros(2), "result.tolist()[0]", "values"),
]  # fmt: skip


@pytest.mark.parametrize(("eager", "compiled", "place", "kind"), DIFFERENT)
def test_what_differs_is_named(eager: object, compiled: object, place: str, kind: str) -> None:
    found = departure(*runs(eager, compiled))
    assert found is not None
    assert (found.place, found.kind) == (place, kind)
    assert departure(*runs(eager, compiled), place) is not None
    assert departure(*runs(eager, eager), place) is None


def test_what_dynamo_makes_of_generators_and_numbers_of_numpy_is_meant() -> None:
    assert departure(*runs((n for n in range(2)), iter((0, 1)))) is None
    assert departure(*runs(np.float32(2), np.array(2, np.float32))) is None


def test_a_gradient_and_a_global_count() -> None:
    one, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    one.sum().backward()
    found = departure(*runs(one, other))
    assert found is not None
    assert found.place == "result.grad is None"
    eager, compiled = runs(1, 1)
    eager.names["state"] = [3]
    found = departure(eager, compiled)
    assert found is not None
    assert (found.place, found.kind) == ("state", "missing")
    compiled.names["state"] = [4]
    assert str(departure(eager, compiled)) == "state[0]: 3 in eager mode, 4 compiled"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ChildReport]:
    """What came of a program in this process, which keeps its own `__main__`."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def judge(text: str, observes: str) -> ChildReport:
        torch._dynamo.reset()
        case = SourceCase(text, observes=observes)
        assert SourceCase.from_json(parse_json(case.to_bytes())) == case
        return run(Task(case, wrong_result_signature("count", stage="dynamo"), 0.0, 0), _ignore)

    return judge


def _ignore(position: object) -> None:
    """Nobody follows."""


def test_other_random_numbers_are_no_wrong_result(
    judged: Callable[[str, str], ChildReport],
) -> None:
    """Inductor draws them in a way of its own; a difference beside them still counts."""
    text = """\
import torch
drop = torch.nn.Dropout(0.5)
def fn(x):
    return drop(x)
torch.compile(fn)(torch.ones(64))
"""
    report = judged(text, "result")
    assert report.verdict == "none"
    assert "random numbers" in report.detail
    wrong = text.replace("return drop(x)", "return drop(x), torch.compiler.is_compiling()")
    assert judged(wrong, "result").verdict in ("same", "other")


def test_a_program_defines_its_operators_in_every_run(
    judged: Callable[[str, str], ChildReport],
) -> None:
    """torch takes a namespace and an operator once; the program runs three times in a process."""
    text = """\
import torch
from torch.library import Library
library = Library("observed_ns", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.define("observed_too::thrice", "(Tensor x) -> Tensor")
torch.library.impl("observed_too::thrice", "cpu", lambda x: x * 3)
torch.library.register_fake("observed_ns::twice", lambda x: torch.empty_like(x))
torch.library.register_fake("observed_too::thrice", lambda x: torch.empty_like(x))
def fn(x):
    return torch.ops.observed_too.thrice(torch.ops.observed_ns.twice(x))
torch.compile(fn, backend="eager")(torch.ones(2))
"""
    report = judged(text, "result")
    assert report.verdict == "none", report.detail
    assert judged(text, "result").verdict == "none"


def test_a_program_has_a_file_and_an_empty_command_line(
    judged: Callable[[str, str], ChildReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the script that is made of it has."""
    monkeypatch.setattr(sys, "argv", ["worker", "--trust"])
    text = """\
import sys, torch
from pathlib import Path
given = [Path(__file__).name, *sys.argv[1:]]
def fn(x):
    return x + len(given)
torch.compile(fn, backend="eager")(torch.ones(2))
"""
    assert judged(text, "result").verdict == "none"
    assert judged(text.replace("len(given)", "int(given[1])"), "result").verdict == "invalid"


def test_a_program_registers_its_backend_in_every_run(
    judged: Callable[[str, str], ChildReport],
) -> None:
    found = judged(OWN_BACKEND, "result")
    assert found.verdict == "other", found.detail
    assert "tensor(0.) in eager mode, tensor(1.) compiled" in found.detail


def test_a_side_effect_that_dynamo_drops_is_found(
    judged: Callable[[str, str], ChildReport],
) -> None:
    found = judged(DROPPED, ANYTHING)
    assert (found.verdict, found.stage, dict(found.values)) == (
        "same",
        "dynamo",
        {"observes": "log"},
    )
    assert "[1] in eager mode, [] compiled" in found.detail
    assert judged(DROPPED, "log").verdict == "same"
    assert judged(DROPPED, "result").verdict == "none"
    assert judged(DROPPED, "len(log)").verdict == "other"
    assert judged(DROPPED, "no_such_name").verdict == "invalid"


def test_what_dynamo_keeps_is_no_difference(judged: Callable[[str, str], ChildReport]) -> None:
    assert judged(KEPT, ANYTHING).verdict == "none"


def test_what_eager_mode_itself_does_anew_is_left_out(
    judged: Callable[[str, str], ChildReport],
) -> None:
    unsteady = "import time\nstart, objects = time.time_ns(), {object()}\n"
    found = judged(unsteady + DROPPED, ANYTHING)
    assert (found.verdict, dict(found.values)) == ("same", {"observes": "log"})
    found = judged(unsteady + DROPPED, "start")
    assert (found.verdict, found.stage) == ("invalid", "eager")
    assert "eager mode twice" in found.detail


def test_where_values_vary_the_layout_is_compared() -> None:
    """Sizes, strides and dtypes of a tensor whose values nobody can compare."""
    for other, place in (
        (torch.zeros(2, 3), "result.shape"),
        (torch.zeros(3, 2, dtype=torch.int64), "result.dtype"),
        (torch.zeros(2, 3).t(), "result.stride()"),
    ):
        both = runs(torch.ones(3, 2), other)
        found = departure(*both, but={"result"})
        assert found is not None
        assert found.place == place
        assert departure(*both, place) is not None
    assert departure(*runs(torch.ones(3, 2), torch.zeros(3, 2)), but={"result"}) is None
    one = torch.ones(1, 2)
    assert departure(*runs(one, one.as_strided((1, 2), (7, 1)))) is None  # nobody sees it


def test_what_varies_is_told(judged: Callable[[str, str], ChildReport]) -> None:
    """A verdict without it would be one on all values."""
    found = judged("import time\nstart = time.time_ns()\n" + KEPT, ANYTHING)
    assert (found.verdict, "start" in found.detail) == ("none", True)


def timed() -> tuple[list[int], Callable[..., Any]]:
    """A function, and what it is to leave behind."""
    log: list[int] = []

    class Timer:
        def touch(self, x: torch.Tensor) -> None:
            log.append(x.shape[0])

    def doubled(x: torch.Tensor) -> torch.Tensor:
        timer = Timer()
        x = x * 2
        timer.touch(x)
        return x.sum()

    return log, doubled


class Seen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[ProgressEvent] = []

    def on_step(self, event: ProgressEvent) -> None:
        """See `Listener`."""
        self.events.append(event)


@pytest.mark.slow
def test_a_recorded_frame_is_reduced(tmp_path: Path) -> None:
    """No graph is wrong; the frame is, and a program of a few lines shows it with torch alone."""
    log, doubled = timed()
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db", settings=Settings(frames="all")):
        torch.compile(doubled, backend="eager", fullgraph=True)(torch.ones(3))
    assert log == []  # the bug: once Dynamo mends it, another one has to stand here
    wanted = wrong_result_signature("count", stage="dynamo")
    with (
        Store.open(tmp_path / "run.db", write=True) as store,
        WorkerOracle(wanted, trust=True) as one,
    ):
        with pytest.raises(NotReproduced, match="add --trust"):
            minify(store, accuracy=True, oracle=one)
        seen = Seen()
        reduction = minify(
            store, accuracy=True, options=MinifyOptions(trust=True), listener=seen, oracle=one
        )
        looking = [event.message for event in seen.events if event.kind == "looking"]
        assert any("comparing eager and compiled: graph 1 of " in text for text in looking)
        assert any("frame 1 of " in text for text in looking)
        kinds = [event.kind for event in seen.events[: len(looking) + 1]]
        assert kinds == ["begin", *["looking"] * len(looking)]
        assert reduction.status == "fixpoint"
        case = reduction.case
        assert isinstance(case, SourceCase)
        assert (case.observes, "sum" in case.text) == ("log", False)
        assert minify(store, options=MinifyOptions(trust=True), oracle=one).oracle_runs == 0
        compile = queries.latest_failing(store)
        assert compile is not None
        # No compile shows it by itself.
        assert replay(store, compile, "frame", trust=True).verdict == "identical"
        options = ExportOptions(tmp_path / "repro", trust=True, checks=1)
        exported = export(store, compile, options)
    assert exported.check.exact
    assert "return log" in exported.script.text


def test_without_a_frame_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db", settings=Settings(frames="none")):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    nobody = cast(WorkerOracle, None)
    with (
        Store.open(tmp_path / "run.db") as store,
        pytest.raises(UnsupportedError, match="record with --frames all"),
    ):
        find_in_frames(store, None, MinifyOptions(trust=True), nobody)


def _breaks(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("a graph break")
    return y * 2


def test_a_frame_with_a_graph_break_is_looked_at(tmp_path: Path) -> None:
    """Its frame is kept with the attempt before the break, which is none to be compared."""
    torch._dynamo.reset()
    with torchreel.record(tmp_path / "run.db", settings=Settings(frames="all")):
        torch.compile(_breaks, backend="eager")(torch.ones(2))
    with Store.open(tmp_path / "run.db") as store:
        found = {owner.place: holder.place for owner, holder in _with_frames(store, None)}
        last = next(row for row in queries.compiles(store, 1) if row.place == "1/0/0_1")
        assert [(one.place, kept.place) for one, kept in _with_frames(store, last)] == [
            ("1/0/0_1", "1/0/0")
        ]
    assert found == {"1/0/0_1": "1/0/0", "1/1/0": "1/1/0"}
