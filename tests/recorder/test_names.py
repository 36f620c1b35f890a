"""Names of compiles: one row is one compile, and its address means that row."""

import torch

from tests.recorder.conftest import Record, RecordedLog
from torchreel.recorder.event_log.spans import CompileEntry
from torchreel.store import queries
from torchreel.store.addressing import parse


def double(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def half(x: torch.Tensor) -> torch.Tensor:
    return x.cos() / 2


class Plus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def _named(log: RecordedLog) -> list[tuple[str, str]]:
    """Places and frames of all compiles; each place is the address of its own row."""
    for row in log.compiles:
        assert queries.compile_at(log.store, parse(f"{log.store.target}#{row.place}")) == row
    return [(row.place, row.frame_name) for row in log.compiles]


def test_names_after_a_reset_are_other_names(record: Record) -> None:
    def program() -> None:
        for function in (double, half):
            torch.compile(function, backend="eager")(torch.ones(3))
            torch._dynamo.reset()
            torch._dynamo.reset()  # with no compile in between, it changes nothing
        torch.compile(half, backend="eager")(torch.ones(3))

    log = record(program)
    assert _named(log) == [("1/0/0", "double"), ("1/g1/0/0", "half"), ("1/g2/0/0", "half")]
    assert [len(queries.checkpoints(log.store, row)) for row in log.compiles] == [1, 1, 1]


def test_names_that_begin_anew_without_a_reset_are_other_names(record: Record) -> None:
    def program() -> None:
        torch.compile(double, backend="eager")(torch.ones(3))
        torch._dynamo.convert_frame.FRAME_COUNTER = 0
        torch._dynamo.convert_frame.FRAME_COMPILE_COUNTER.clear()
        torch.compile(half, backend="eager")(torch.ones(3))

    assert _named(record(program)) == [("1/0/0", "double"), ("1/g1/0/0", "half")]


def test_a_strict_export_is_no_part_of_an_older_compile(record: Record) -> None:
    def program() -> None:
        torch.compile(double, backend="eager")(torch.ones(3))
        torch.export.export(Plus(), (torch.ones(3),), strict=True)

    log = record(program)
    assert _named(log) == [("1/0/0", "double"), ("1/-", "Plus"), ("1/g1/0/0", "forward")]
    assert [len(queries.checkpoints(log.store, row)) for row in log.compiles] == [1, 0, 1]
    assert log.lost() == []


def test_each_unnamed_compile_has_an_address(record: Record) -> None:
    def program() -> None:
        for _ in range(2):
            torch.export.export(Plus(), (torch.ones(3),), strict=False)

    assert [place for place, _ in _named(record(program))] == ["1/-", "1/-_1"]


def test_a_backward_after_a_reset_belongs_to_its_forward(record: Record) -> None:
    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        first = torch.compile(double, backend="aot_eager")(x)
        torch._dynamo.reset()
        second = torch.compile(half, backend="aot_eager")(x)
        first.sum().backward()
        second.sum().backward()

    log = record(program)
    assert _named(log) == [("1/0/0", "double"), ("1/g1/0/0", "half")]
    for row, operator in zip(log.compiles, ("aten.cos.default", "aten.sin.default"), strict=True):
        (graph,) = (g for g in queries.graphs(log.store, row) if g.stage == "backward")
        assert f"op:{operator}" in [t.target for t in queries.graph_targets(log.store, graph)]
        traced = [e for e in queries.events(log.store, row) if e.kind == "aot_backward_graph"]
        assert len(traced) == 1


def test_a_graph_that_is_compiled_once_more_is_a_part_of_its_compile(record: Record) -> None:
    def program() -> None:
        x = torch.randn(5)
        sizes = [lambda size: size == 8, lambda size: size == 16]
        torch._dynamo.mark_dynamic(x, 0, specialize_on=sizes)
        compiled = torch.compile(double, backend="aot_eager")
        for value in (x, torch.randn(8), torch.randn(16), torch.randn(8)):
            compiled(value)

    log = record(program)
    assert _named(log) == [("1/0/0", "double"), ("1/0/0/0", "double"), ("1/0/0/1", "double")]
    assert {row.backend for row in log.compiles} == {"aot_eager"}
    assert [len(queries.checkpoints(log.store, row)) for row in log.compiles] == [1, 1, 1]
    assert log.lost() == []


def test_what_inductor_is_given_next_is_no_part_of_what_a_cache_had_code_for() -> None:
    entry = CompileEntry("-", 0)
    entry.status, entry.entered = "ok", [("pre_grad", "")]
    assert entry.can_go_on("joint", "")
    assert not entry.can_go_on("pre_grad", "")
