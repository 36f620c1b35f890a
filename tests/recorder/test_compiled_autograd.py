"""Row 13: backwards of the autograd engine as graphs, what they lift, the order of their nodes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch._dynamo.compiled_autograd import AutogradCompilerInstance

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    """Captures are counted per process; torch starts over like this between its own tests."""
    compiled_autograd.reset()
    yield
    compiled_autograd.reset()


def backward() -> None:
    """A hooked leaf, a graph made by AOTAutograd, and two engine nodes around it."""
    w = torch.ones(2, 2, requires_grad=True)
    w.register_hook(lambda grad: grad * 2)
    w.register_post_accumulate_grad_hook(lambda leaf: None)
    f = torch.compile(lambda x: (x @ w).sin(), backend="aot_eager")
    with (
        torch._dynamo.config.patch(compiled_autograd=True),
        compiled_autograd._enable(torch.compile(backend="aot_eager")),
    ):
        (f(torch.ones(3, 2)) * 3).sum().backward()


def seen(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind=f"compiled_autograd.{kind}")


def test_a_capture_is_a_compile_with_its_graph(record: Record) -> None:
    log = record(backward)
    forward, capture, of_graph = log.compiles
    assert capture.compile_id.startswith("!")
    assert (capture.frame_name, capture.status) == ("backward", "ok")
    assert log.stages(capture) == [("backward", "", "ok")]
    assert log.graphs(capture) == [("backward", "")]
    assert of_graph.compile_id.startswith(f"{capture.compile_id}/")
    assert (forward.compile_id, forward.status, of_graph.status) == ("0/0", "ok", "ok")
    (graph,) = seen(log, "graph")
    assert (graph.compile_id, graph.stage) == (capture.id, "backward")
    assert isinstance(graph.data, dict)
    (stored,) = queries.graphs(log.store, capture)
    assert graph.data["nodes"] == stored.nodes
    assert log.lost() == []


def test_what_a_capture_lifts(record: Record) -> None:
    (event,) = seen(record(backward), "capture")
    data: Any = event.data
    assert (data["accumulate_grad"], data["check_nans"]) == (True, False)
    described = [value for _, _, value in data["inputs"]]
    assert ["float32", [2, 2], [2, 1], "cpu"] in described
    assert ["float32", [3, 2], [2, 1], "cpu"] in described
    assert {value for _, _, value in data["sizes"]} <= {2, 3}
    assert len(data["sizes"]) > 3


def test_the_engines_nodes_in_order_and_the_hooks(record: Record) -> None:
    log = record(backward)
    nodes: list[Any] = [(event.name, event.data) for event in seen(log, "node")]
    assert [(name, data["index"]) for name, data in nodes] == [
        ("torch::autograd::GraphRoot", 0),
        ("SumBackward0", 1),
        ("MulBackward0", 2),
        ("CompiledFunctionBackward", 3),
        ("torch::autograd::AccumulateGrad", 4),
    ]
    assert nodes[3][1]["backward_of"].startswith("CompiledFunction")
    assert [data["backward_of"] for name, data in nodes if name != nodes[3][0]] == [None] * 4
    assert [event.name for event in seen(log, "hook")] == [
        "tensor_pre_hook",
        "post_acc_grad_hook",
    ]


def test_a_capture_that_fails_leaves_nothing_open(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ValueError("no gradients today")

    monkeypatch.setattr(AutogradCompilerInstance, "accumulate_grad", refuse)

    def program() -> None:
        try:
            backward()
        except ValueError:
            torch.compile(torch.sin, backend="eager")(torch.ones(2))

    log = record(program)
    _, capture, later = log.compiles
    assert capture.status == "failed"
    assert log.stages(later)[0] == ("dynamo", "", "ok")
    assert {event.compile_id for event in seen(log, "node")} == {capture.id}
    assert log.lost() == []
