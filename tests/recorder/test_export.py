"""Row 19: exports, strict and not, their constraints and the fixes that torch suggests; make_fx."""

from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

from tests.recorder.conftest import Record, RecordedLog
from torchreel.recorder.probes.export import fixes
from torchreel.store import queries
from torchreel.store.records import Event


class Scaled(torch.nn.Module):
    """A parameter, a buffer that is mutated, and a size that must be even."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x.sin() * self.weight * scale


def export(dimension: Any, **options: Any) -> Any:
    return torch.export.export(
        Scaled(),
        (torch.ones(4, 3),),
        {"scale": torch.ones(1)},
        dynamic_shapes={"x": {0: dimension}, "scale": None},
        **options,
    )


def seen(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind=f"export.{kind}")


def only(log: RecordedLog, kind: str) -> Any:
    (event,) = seen(log, kind)
    return event.data


def test_an_export_that_never_passes_dynamo(record: Record) -> None:
    log = record(lambda: export(Dim("batch", min=2, max=64), strict=False))
    compile = log.compile
    assert (compile.compile_id, compile.status, compile.backend) == ("-", "ok", "export")
    assert (compile.frame_name, compile.frame_file) == ("Scaled", __file__)
    assert log.stages() == [("joint", "", "ok")]
    assert log.graphs() == [("joint", "")]
    assert only(log, "start") == {
        "strict": False,
        "pre_dispatch": True,
        "arguments": [["float32", [4, 3], [3, 1], "cpu"]],
        "keywords": {"scale": ["float32", [1], [1], "cpu"]},
        "dynamic_shapes": {"x": {"0": ["batch", 2, 64]}, "scale": None},
        "deferred": False,
    }
    end = only(log, "end")
    ((symbol, bounds),) = end["ranges"]
    assert (symbol[0], bounds) == ("s", [2, 64])
    assert end["inputs"] == [
        ["parameter", "p_weight", "weight"],
        ["buffer", "b_calls", "calls"],
        ["user_input", "x", None],
        ["user_input", "scale", None],
    ]
    assert ["user_output", "mul_1", None] in end["outputs"]
    (graph,) = queries.graphs(log.store, compile)
    assert graph.nodes == end["nodes"]
    assert log.lost() == []


def test_what_an_export_does_is_a_part_of_it(record: Record) -> None:
    log = record(lambda: export(Dim.AUTO, strict=False))
    (start,) = seen(log, "start")
    traces = queries.events(log.store, log.compile, kind="proxies.trace")
    assert traces
    assert {event.cause for event in traces} == {start.seq}
    assert only(log, "start")["dynamic_shapes"]["x"] == {"0": "AUTO"}


def test_what_a_program_is_decomposed_into_is_a_compile_with_its_graph(record: Record) -> None:
    program = torch.export.export(Scaled(), (torch.ones(4, 3),), {"scale": torch.ones(1)})
    log = record(lambda: program.run_decompositions())
    compile = log.compile
    assert (compile.compile_id, compile.backend, compile.status) == (
        "-",
        "run_decompositions",
        "ok",
    )
    assert log.graphs() == [("pre_grad", ""), ("joint", "")]
    (_, graph) = queries.graphs(log.store, log.compile)
    targets = {row.target: row.count for row in queries.graph_targets(log.store, graph)}
    assert targets == {
        "op:aten.add.Tensor": 1, "op:aten.sin.default": 1, "op:aten.mul.Tensor": 2,
    }  # fmt: skip
    assert log.lost() == []


def test_a_strict_export_has_a_compile_of_dynamos_besides(record: Record) -> None:
    log = record(lambda: export(Dim("batch"), strict=True))
    exported, traced = log.compiles
    assert (exported.compile_id, exported.status) == ("-", "ok")
    assert traced.compile_id != "-"
    assert ("dynamo", "", "ok") in log.stages(traced)
    assert log.graphs(exported) == [("joint", "")]
    assert only(log, "start")["strict"] is True
    assert only(log, "end")["ranges"]
    assert seen(log, "failure") == []


class Fixed(torch.nn.Module):
    """A size that can only be four."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4)


@pytest.mark.parametrize("strict", [False, True])
def test_constraints_that_do_not_hold_with_the_fixes(record: Record, strict: bool) -> None:
    log = record(
        lambda: torch.export.export(
            Fixed(), (torch.ones(4),), dynamic_shapes={"x": {0: Dim("batch")}}, strict=strict
        )
    )
    data = only(log, "failure")
    assert data["exception"] == "UserError"
    assert "batch" in data["message"]
    assert data["fixes"] == ["batch = 4"]
    assert log.compiles[0].status == "failed"
    (failure,) = queries.failures(log.store)
    assert failure.exception_type == "torch._dynamo.exc.UserError"
    assert seen(log, "end") == []


def test_make_fx_on_its_own_is_a_compile(record: Record) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    log = record(lambda: make_fx(double)(torch.ones(2)))
    compile = log.compile
    assert (compile.compile_id, compile.backend, compile.status) == ("-", "make_fx", "ok")
    assert (compile.frame_name, compile.frame_file) == ("double", __file__)
    assert log.graphs() == [("joint", "")]
    assert [stage[0] for stage in log.stages()] == ["joint"]


def test_make_fx_that_fails(record: Record) -> None:
    def refuse(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not this one")

    log = record(lambda: make_fx(refuse)(torch.ones(2)))
    (failure,) = queries.failures(log.store)
    assert (failure.compile_id, failure.stage) == (log.compile.id, "joint")
    assert (failure.exception_type, failure.message) == ("ValueError", "not this one")


def test_fixes_are_read_off_the_message() -> None:
    message = "Constraints violated (a, b)!\nSuggested fixes:\n  a = 4\n  b = 2*c\n\nMore."
    assert fixes(message) == ["a = 4", "b = 2*c"]
    assert fixes("nothing to suggest") == []
