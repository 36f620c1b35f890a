"""Row 10: what make_fx turns into nodes, tensors and symbolic scalars alike."""

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


def seen(log: RecordedLog) -> list[Event]:
    events = queries.events(log.store, log.recording)
    return [event for event in events if event.kind.startswith("proxies.")]


def data(event: Event) -> Any:
    return event.data


def padded(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(x.shape[0] * 2 + x.shape[1])


def test_nodes_and_the_arithmetic_they_need_in_order(record: Record) -> None:
    log = record(lambda: make_fx(padded, tracing_mode="symbolic")(torch.ones(3, 4)))
    trace, *nodes, traced = seen(log)
    assert (trace.kind, trace.name, trace.cause) == ("proxies.trace", "padded", None)
    assert data(trace)["arguments"] == [["float32", [3, 4], [4, 1], "cpu"]]
    assert (data(trace)["tracing_mode"], data(trace)["subgraph"]) == ("symbolic", False)
    assert {event.cause for event in [*nodes, traced]} == {trace.seq}
    made = [(e.kind, e.name, data(e).get("inputs", data(e).get("arguments"))) for e in nodes]
    assert made == [
        ("proxies.node", "x_1", []),
        ("proxies.node", "sym_size_int", ["x_1"]),
        ("proxies.symbolic", "mul", ["sym_size_int", 2]),
        ("proxies.node", "sym_size_int_1", ["x_1"]),
        ("proxies.symbolic", "add", ["mul", "sym_size_int_1"]),
        ("proxies.node", "new_zeros", ["x_1", "add"]),
        ("proxies.node", "output", ["new_zeros"]),
    ]
    by_name = {event.name: data(event) for event in nodes}
    assert by_name["sym_size_int"]["target"] == "aten.sym_size.int"
    assert by_name["new_zeros"]["op"] == "call_function"
    assert by_name["mul"]["result"] == "Mul(2, s75)"
    assert (by_name["add"]["function"], by_name["add"]["result"]) == (
        "add",
        "Add(s96, Mul(2, s75))",
    )
    assert traced.data == {"outcome": "ok", "nodes": 7}
    assert log.lost() == []


def test_a_body_of_a_higher_order_operator_is_a_part_of_the_tracing_around_it(
    record: Record,
) -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    log = record(lambda: make_fx(f, tracing_mode="fake")(torch.ones(3)))
    traces = {event.seq: event for event in seen(log) if event.kind == "proxies.trace"}
    bodies = [event for event in traces.values() if data(event)["subgraph"]]
    (outer,) = (event for event in traces.values() if event.name == "f")
    targets = [
        data(event)["target"]
        for body in bodies
        for event in seen(log)
        if event.cause == body.seq and event.kind == "proxies.node"
    ]
    assert [target for target in targets if target.startswith("aten")][:2] == [
        "aten.sin.default",
        "aten.cos.default",
    ]
    assert {body.cause for body in bodies} <= {outer.seq, *(body.seq for body in bodies)}


def test_a_tracing_that_fails_says_so(record: Record) -> None:
    def f(x: torch.Tensor) -> object:
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(RuntimeError):
        make_fx(f, tracing_mode="fake")(torch.ones(3))
    log = record(lambda: make_fx(f, tracing_mode="fake")(torch.ones(3)))
    last = seen(log)[-1]
    assert (last.kind, last.data) == (
        "proxies.traced",
        {"outcome": "GuardOnDataDependentSymNode", "nodes": None},
    )


def test_tracing_under_dynamo_belongs_to_its_compile_and_stage(record: Record) -> None:
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
    log = record(lambda: compiled(x).backward())
    nodes = [event for event in seen(log) if event.kind == "proxies.node"]
    assert {(event.compile_id, event.stage) for event in nodes} == {(log.compile.id, "joint")}
    targets = [data(event)["target"] for event in nodes]
    assert [target for target in targets if target.startswith("aten")] == [
        "aten.sin.default",
        "aten.sum.default",
        "aten.expand.default",
        "aten.cos.default",
        "aten.mul.Tensor",
    ]
