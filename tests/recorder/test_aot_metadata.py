"""Row 12: views and mutations, duplicates, the partition, backwards that are compiled late."""

from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition, nop
from torch._functorch.aot_autograd import aot_function
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from tests.recorder.conftest import Record, RecordedLog
from torchreel.store import queries
from torchreel.store.records import Event


def seen(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.recording, kind=f"aot.{kind}")


def only(log: RecordedLog, kind: str) -> Any:
    (event,) = seen(log, kind)
    return event.data


def test_mutations_and_views_of_a_training_step(record: Record) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.mul_(2)
        z = y.exp()
        return x.view(-1), z, y[1:], z.t()

    x, y = torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)
    log = record(lambda: torch.compile(f, backend="aot_eager", dynamic=True)(x, y))
    (event,) = seen(log, "metadata")
    assert (event.name, event.stage, event.compile_id) == ("training", "joint", log.compile.id)
    data = only(log, "metadata")
    matrix = ["float32", ["s77", "s27"], ["s27", 1], "cpu"]
    assert data["inputs"] == [
        ["PlainAOTInput(idx=0)", "s77", "not_mutated", []],
        ["PlainAOTInput(idx=1)", "s27", "not_mutated", []],
        ["PlainAOTInput(idx=2)", matrix, "mutated_in_graph", ["is_leaf", "mutates_data"]],
        [
            "PlainAOTInput(idx=3)",
            matrix,
            "not_mutated",
            ["is_leaf", "requires_grad", "mutations_hidden_from_autograd"],
        ],
    ]
    outputs = [(row["type"], row["base"], row["dynamic_dims"]) for row in data["outputs"]]
    assert outputs == [
        ("alias_of_input", 2, [0]),
        ("non_alias", None, [0, 1]),
        ("alias_of_input", 3, [0, 1]),
        ("alias_of_intermediate_base_is_user_output", 1, [0, 1]),
    ]
    assert data["tangents"] == [["TangentAOTInput(output=PlainAOTOutput(idx=1))", matrix]]
    assert (data["needs_autograd"], data["subclasses"], data["tokens"]) == (True, {}, [])
    assert data["config"]["keep_inference_input_mutations"] is True
    assert log.lost() == []


def test_subclasses_are_taken_apart(record: Record) -> None:
    def program() -> None:
        x = TwoTensor(torch.ones(2), torch.zeros(2))
        torch.compile(lambda x: x + 1, backend="aot_eager")(x)

    data = only(record(program), "metadata")
    assert data["inputs"][0][1] == ["TwoTensor"]
    expected = {
        "type": "torch.testing._internal.two_tensor.TwoTensor",
        "start": 0,
        "count": 2,
        "attributes": {"a": 1, "b": 2},
        "sizes": [2],
        "strides": [1],
    }
    found = {name: items["0"] for name, items in data["subclasses"].items()}
    assert found["inputs"] == expected
    assert found["outputs"]["type"] == expected["type"]


def test_inputs_that_are_one_tensor(record: Record) -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return a.mul_(2) + b + c

    x, y = torch.ones(3), torch.ones(3)
    log = record(lambda: aot_function(f, nop)(x, y, x))
    assert only(log, "dedupe") == {"kept": [True, True, False], "positions": [0, 1, 0]}
    (event,) = seen(log, "dedupe")
    assert event.compile_id == log.compile.id


def test_inputs_that_share_memory(record: Record) -> None:
    def f(a: torch.Tensor, k: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return k + a.mul_(2) + b

    base = torch.arange(12.0)
    log = record(lambda: torch.compile(f, backend="aot_eager")(base[:6], torch.ones(6), base[2:8]))
    data = only(log, "synthetic_bases")
    assert data == {"bases": [[0, [0, 2]]], "others": [1], "metadata_mutations": []}
    assert seen(log, "dedupe") == []


def test_what_is_saved_and_what_is_computed_again(record: Record) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp()

    def f(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x.cos() * x.shape[0], use_reentrant=False).sum()  # type: ignore[no-any-return]

    x = torch.ones(3, 2, requires_grad=True)
    log = record(lambda: torch.compile(f, backend="aot_eager", dynamic=True)(x))
    (event,) = seen(log, "partition")
    assert event.name == "torch._functorch.partitioners.min_cut_rematerialization_partition"
    data = only(log, "partition")
    vector = ["float32", ["s77", "s27"], ["s27", 1], "cpu"]
    assert data["saved"] == [["primals_3", vector]]
    assert sorted(data["symbols"]) == [["primals_1", "s77"], ["primals_2", "s27"]]
    assert set(data["recomputed"]) >= {"sin", "exp"}
    assert data["others"] == []
    forward, backward = data["nodes"]
    assert forward > 5
    assert backward > 5


def test_a_backward_that_is_compiled_when_it_is_called(record: Record) -> None:
    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        out = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")(x)
        out.backward(retain_graph=True)
        out.backward()

    log = record(program)
    (event,) = seen(log, "late_backward")
    assert (event.compile_id, event.data) == (log.compile.id, {"used_once": False})
    backwards = [stage for stage in log.stages() if stage[0] == "backward"]
    # Made ready after the forward, compiled when it is called.
    assert backwards == [("backward", "backward", "ok")] * 2
    assert log.stages()[-1] == ("backward", "backward", "ok")
    assert log.compile.status == "ok"


def test_without_dynamo_a_late_backward_still_belongs_to_its_forward(record: Record) -> None:
    def program() -> None:
        f, g = (aot_function(h, nop) for h in (torch.sin, torch.cos))
        x = torch.ones(3, requires_grad=True)
        first, second = f(x).sum(), g(x).sum()
        second.backward()
        first.backward()

    log = record(program)
    sine, cosine = log.compiles
    late = [event.compile_id for event in seen(log, "late_backward")]
    assert late == [cosine.id, sine.id]
    assert [compile.status for compile in log.compiles] == ["ok", "ok"]
    for compile in log.compiles:
        assert log.graphs(compile) == [
            ("joint", ""),
            ("forward", "forward"),
            ("backward", "backward"),
        ]


def test_a_backward_compiler_that_fails_late(record: Record) -> None:
    def refuse(gm: torch.fx.GraphModule, inputs: object) -> Any:
        raise ValueError("no backward today")

    def program() -> None:
        compiled = aot_function(lambda x: x.sin(), nop, refuse, min_cut_rematerialization_partition)
        compiled(torch.ones(3, requires_grad=True)).sum().backward()

    log = record(program)
    assert log.stages()[-1] == ("backward", "backward", "failed")
    (failure,) = queries.failures(log.store)
    assert (failure.stage, failure.exception_type) == ("backward", "ValueError")
    assert (failure.compile_id, log.compile.status) == (log.compile.id, "failed")
