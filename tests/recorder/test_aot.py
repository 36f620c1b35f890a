"""Joint, forward and backward graphs, with Dynamo and without."""

import torch
from functorch.compile import nop
from torch._functorch.aot_autograd import aot_function, aot_module

from tests.recorder.conftest import Record
from torchreel.store import queries


def loss(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).sum()


def test_a_training_step_has_a_joint_a_forward_and_a_backward_graph(record: Record) -> None:
    x = torch.ones(3, requires_grad=True)
    log = record(lambda: torch.compile(loss, backend="aot_eager")(x).backward())
    graphs = log.graphs()
    assert graphs == [
        ("dynamo", ""),
        ("joint", ""),
        ("forward", "forward"),
        ("backward", "backward"),
    ]
    assert {status for _, _, status in log.stages()} == {"ok"}
    assert log.lost() == []


def test_inference_has_one_graph(record: Record) -> None:
    log = record(lambda: torch.compile(loss, backend="aot_eager")(torch.ones(3)))
    assert log.graphs() == [("dynamo", ""), ("forward", "inference")]


def test_without_dynamo_the_compile_has_no_id_but_is_one(record: Record) -> None:
    def program() -> None:
        compiled = aot_function(loss, nop)
        compiled(torch.ones(3, requires_grad=True)).backward()
        aot_function(loss, nop)(torch.ones(3))

    log = record(program)
    first, second = log.compiles
    assert (first.compile_id, first.attempt, first.status) == ("-", 0, "ok")
    assert (second.compile_id, second.attempt, second.status) == ("-", 1, "ok")
    assert log.graphs(first) == [("joint", ""), ("forward", "forward"), ("backward", "backward")]
    assert log.graphs(second) == [("forward", "inference")]


def test_a_module_without_dynamo_has_its_parameters_for_inputs(record: Record) -> None:
    def program() -> None:
        compiled = aot_module(torch.nn.Linear(3, 2), nop)
        compiled(torch.ones(4, 3)).sum().backward()

    log = record(program)
    compile = log.compile
    assert (compile.compile_id, compile.status) == ("-", "ok")
    joint, forward, backward = queries.graphs(log.store, compile)
    assert [(g.stage, g.partition) for g in (joint, forward, backward)] == [
        ("joint", ""), ("forward", "forward"), ("backward", "backward"),
    ]  # fmt: skip
    # weight, bias and x; in the joint graph, the tangent as well
    assert (forward.inputs, joint.inputs) == (3, 4)
    targets = {row.target: row.count for row in queries.graph_targets(log.store, forward)}
    assert [count for name, count in targets.items() if "aten.addmm" in name] == [1]
