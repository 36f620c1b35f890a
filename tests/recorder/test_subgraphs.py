"""Bodies of higher-order operators: tracers, what they lift, who calls them, their checks."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import map as hop_map
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import torchreel
from tests.recorder.conftest import Record, RecordedLog
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.recorder.probes import subgraphs
from torchreel.store import Store, queries
from torchreel.store.records import Event

X = torch.linspace(0.1, 1.2, 4)


def choose(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


def count(x: torch.Tensor) -> Any:
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


def nest(x: torch.Tensor) -> Any:
    scale = x.sum()

    def body(i: torch.Tensor, y: torch.Tensor) -> Any:
        y = torch.cond(y.sum() > 0, lambda y: y * scale, lambda y: y - 1, (y,))
        return i + 1, y.clone()

    return while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))


def accumulate(x: torch.Tensor) -> Any:
    return scan(lambda carry, y: (carry + y, carry * y), x[0], x)


def combine(x: torch.Tensor) -> Any:
    # What torch.associative_scan calls with combine_mode="pointwise", which is for GPUs only.
    return associative_scan_op(lambda a, b: (a * b,), (x,), ())


def each(x: torch.Tensor) -> Any:
    return hop_map(lambda y, z: y + z, x.reshape(2, 2), torch.ones(2))


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def share(x: torch.Tensor) -> torch.Tensor:
    return region(region(x))


def attend(x: torch.Tensor) -> Any:
    q = x.reshape(1, 1, 2, 2).expand(1, 1, 2, 2)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + i)


def remember(x: torch.Tensor) -> Any:
    return checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False)


def _add_one(x: torch.Tensor) -> None:
    x.add_(1)


@pytest.fixture
def mutating_op() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    with torch.library._scoped_library("torchreel_hop", "FRAGMENT") as library:
        library.define("add_one_(Tensor(a!) x) -> ()")
        library.impl("add_one_", _add_one, "CompositeExplicitAutograd")
        torch.library.register_fake("torchreel_hop::add_one_", lambda x: None, lib=library)

        def call(x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            torch.ops.torchreel_hop.add_one_(y)
            return y * 2

        yield call


def events(log: RecordedLog, kind: str) -> list[Event]:
    return queries.events(log.store, log.compiles[-1], kind)


def data(event: Event) -> Any:
    return event.data


def calls(log: RecordedLog, level: str) -> list[tuple[str, str, int, list[str]]]:
    """Operator, graph, depth and bodies of each call."""
    return [
        (event.name, data(event)["graph"], data(event)["depth"], data(event)["bodies"])
        for event in events(log, "hop.call")
        if data(event)["level"] == level
    ]


def compiled(record: Record, function: Any, backend: str = "aot_eager") -> RecordedLog:
    result = []
    log = record(lambda: result.append(torch.compile(function, backend=backend)(X)))
    assert len(result) == 1
    assert log.lost() == []
    return log


_CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (
        choose,
        [("cond", "", 0, ["cond_true_0", "cond_false_0"])],
        [("cond", "", 0, ["true_graph_0", "false_graph_0"])],
    ),
    (
        count,
        [("while_loop", "", 0, ["cond_fn_0", "body_fn_0"])],
        [("while_loop", "", 0, ["while_loop_cond_graph_0", "while_loop_body_graph_0"])],
    ),
    (
        nest,
        [
            ("while_loop", "", 0, ["cond_fn_0", "body_fn_0"]),
            ("cond", "body_fn_0", 1, ["cond_true_0", "cond_false_0"]),
        ],
        [
            ("while_loop", "", 0, ["while_loop_cond_graph_0", "while_loop_body_graph_0"]),
            ("cond", "while_loop_body_graph_0", 1, ["true_graph_0", "false_graph_0"]),
        ],
    ),
    (
        accumulate,
        [("scan", "", 0, ["scan_combine_fn_0"])],
        [("scan", "", 0, ["scan_combine_graph_0"])],
    ),
    (
        combine,
        [("associative_scan", "", 0, ["associative_scan_combine_fn_0"])],
        [("associative_scan", "", 0, ["associative_scan_combine_graph_0"])],
    ),
    (each, [("map_impl", "", 0, ["map_body_0"])], [("map_impl", "", 0, ["body_graph_0"])]),
    (
        share,
        [("invoke_subgraph", "", 0, ["subgraph_0"])] * 2,
        [("invoke_subgraph", "", 0, ["repeated_subgraph0"])] * 2,
    ),
    (
        attend,
        [("flex_attention", "", 0, ["score_mod_0", "mask_fn_0"])],
        [("flex_attention", "", 0, ["sdpa_score0", "sdpa_mask0"])],
    ),
    (remember, [("tag_activation_checkpoint", "", 0, ["wrap_body_0"])], []),
]


@pytest.mark.parametrize(
    ("function", "dynamo", "aot"), _CASES, ids=[case[0].__name__ for case in _CASES]
)
def test_each_operator_is_seen_with_its_bodies(
    record: Record, function: Any, dynamo: list[Any], aot: list[Any]
) -> None:
    log = compiled(record, function)
    assert calls(log, "dynamo") == dynamo
    assert calls(log, "aot") == aot
    bodies = [body for _, _, _, names in dynamo for body in names]
    assert sorted(event.name for event in events(log, "hop.body")) == sorted(set(bodies))


def test_a_call_says_which_node_it_is_and_what_it_is_given(record: Record) -> None:
    log = compiled(record, nest, "eager")
    found = [(data(e)["node"], data(e)["operands"]) for e in events(log, "hop.call")]
    # The counter, the value and the scale that the inner operator lifts; its predicate besides.
    assert found == [("while_loop", 3), ("cond", 3)]


def test_an_operator_that_changes_its_input_is_functionalised(
    record: Record, mutating_op: Any
) -> None:
    log = compiled(record, mutating_op)
    assert calls(log, "dynamo") == []
    assert calls(log, "aot") == [("auto_functionalized_v2", "", 0, [])]


def test_tracers_have_their_parents(record: Record) -> None:
    log = compiled(record, nest, "eager")
    entered = events(log, "subgraph.enter")
    places = {event.seq: index for index, event in enumerate(entered)}
    assert [
        (
            event.name,
            data(event)["operator"],
            data(event)["depth"],
            places.get(data(event)["parent"]),
        )
        for event in entered
    ] == [
        ("", None, 0, None),
        ("subgraph_wrapper", "subgraph_wrapper", 1, 0),
        ("torch.while_loop", "while_loop", 1, 0),
        ("torch.while_loop", "while_loop", 1, 0),
        ("torch.cond", "cond", 2, 3),
        ("torch.cond", "cond", 2, 3),
    ]
    stack = queries.stack(log.store, entered[-1])
    assert [frame.name for frame in stack if frame.file == __file__] == ["nest", "body"]
    assert queries.stack(log.store, entered[0]) == []


def test_a_body_says_what_it_has_become(record: Record) -> None:
    log = compiled(record, nest, "eager")
    entered = events(log, "subgraph.enter")
    found = [data(event) for event in events(log, "subgraph.leave")]
    # The inner ones end before the outer one.
    assert [row["body"] for row in found] == [entered[n].seq for n in (2, 4, 5, 3)]
    assert [row["error"] for row in found] == [None] * 4
    true, false, body = found[1:]
    assert (true["inputs"], true["lifted"]) == (
        ["child_4", "scale"], [["child_4", "child_4"], ["scale", "scale"]],
    )  # fmt: skip
    assert (false["inputs"], false["nodes"]) == (["child_4"], 3)
    assert body["inputs"] == ["child_3", "child_4", "scale"]
    assert body["lifted"] == [["scale", "scale"]]


def test_a_free_variable_is_lifted_through_every_level(record: Record) -> None:
    log = compiled(record, nest, "eager")
    entered = [event.seq for event in events(log, "subgraph.enter")]
    lifts = [
        (event.name, entered.index(data(event)["body"]), data(event)["input"])
        for event in events(log, "subgraph.lift")
    ]
    assert [lift for lift in lifts if lift[0] == "scale"] == [
        ("scale", 3, "scale"), ("scale", 4, "scale"),
    ]  # fmt: skip
    inputs = [
        (event.name, entered.index(data(event)["body"])) for event in events(log, "subgraph.input")
    ]
    assert [name for name, body in inputs if body == 3] == ["child_3", "child_4", "scale"]


def test_symbols_are_inputs_of_the_bodies(record: Record) -> None:
    def program() -> None:
        x = torch.ones(5)
        torch._dynamo.mark_dynamic(x, 0)
        torch.compile(choose, backend="eager")(x)

    log = record(program)
    symbols = [event for event in events(log, "subgraph.input") if data(event)["expression"]]
    assert [event.name for event in symbols] == ["s77", "s77"]
    assert {data(event)["type"] for event in symbols} == {"torch.SymInt"}
    assert {data(event)["expression"] for event in symbols} == {"s77"}


def test_a_shared_body_is_stored_once(record: Record) -> None:
    log = compiled(record, share, "eager")
    (graph,) = queries.graphs(log.store, log.compile)
    targets = {
        (row.depth, row.target): row.count for row in queries.graph_targets(log.store, graph)
    }
    assert targets[0, "hop:invoke_subgraph"] == 2
    assert targets[1, "sin"] == 1
    (checkpoint_row,) = queries.checkpoints(log.store, log.compile)
    doc = CheckpointDoc.from_bytes(log.store.read_blob(checkpoint_row.digest))
    assert list(doc.graph.modules) == ["subgraph_0"]
    assert len(events(log, "subgraph.leave")) == 1


def test_checks_of_dynamo_are_there_with_what_they_found(record: Record) -> None:
    log = compiled(record, choose, "eager")
    checks = [(event.name, data(event)["found"]) for event in events(log, "hop.check")]
    assert set(checks) == {("has_input_mutation", False), ("has_aliasing", False)}


def test_a_body_that_changes_its_input_is_told(record: Record) -> None:
    def mutates(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y.add_(1).sin(), lambda y: y.cos(), (x,))

    log = record(lambda: torch.compile(mutates, backend="eager")(X.clone()))
    found = [event for event in events(log, "hop.check") if data(event)["found"]]
    assert [event.name for event in found] == ["has_input_mutation"]
    assert data(found[0])["message"].startswith("Input mutation detected at ")
    assert data(found[0])["mutated"] == [0]
    (leave,) = events(log, "subgraph.leave")
    assert data(leave)["body"] == events(log, "subgraph.enter")[-1].seq
    assert "Input mutation detected at " in data(leave)["error"]


def test_a_body_that_returns_its_input_is_told(record: Record) -> None:
    def aliases(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y.view(-1), lambda y: y.cos(), (x,))

    log = record(lambda: torch.compile(aliases, backend="eager")(X))
    found = [event for event in events(log, "hop.check") if data(event)["found"]]
    assert [event.name for event in found] == ["has_aliasing"]
    assert data(found[0])["message"].startswith("Input-to-output aliasing detected at nodes ")


def test_checks_of_the_operators_are_there_with_their_maps(record: Record) -> None:
    log = compiled(record, choose)
    found = [event for event in events(log, "hop.check") if event.stage == "joint"]
    assert {event.name for event in found} >= {"cond"}
    assert data(found[0]) == {
        "found": False, "message": "", "input_input": [], "input_output": [],
        "output_output": [], "mutated": [],
    }  # fmt: skip


def test_a_frame_without_such_operators_has_its_own_tracer_only(record: Record) -> None:
    log = compiled(record, torch.sin)
    for kind in ("subgraph.leave", "subgraph.input", "subgraph.lift", "hop.call", "hop.check"):
        assert events(log, kind) == []
    (enter,) = events(log, "subgraph.enter")
    assert data(enter) == {"operator": None, "depth": 0, "parent": None}


def test_a_kernel_of_another_kind_ends_nothing_but_its_own_note(tmp_path: Path) -> None:
    """One without a source, as some library may make it; the calls after it are still noted."""
    from torch._higher_order_ops.triton_kernel_wrap import (
        kernel_side_table,
        triton_kernel_wrapper_mutation,
    )

    graph = torch.fx.Graph()
    kernel = kernel_side_table.add_kernel(len)  # type: ignore[arg-type]
    constants = kernel_side_table.add_constant_args({})
    arguments = {"kernel_idx": kernel, "constant_args_idx": constants, "grid": [], "kwargs": {}}
    for _ in range(2):
        graph.call_function(triton_kernel_wrapper_mutation, kwargs=arguments)
    graph.output(())
    with torchreel.record(tmp_path / "run.db") as recorder:
        subgraphs._note_calls(recorder, torch.fx.GraphModule({}, graph), "dynamo", "", 0)
    with Store.open(tmp_path / "run.db") as store:
        (recording,) = queries.recordings(store)
        assert len(queries.events(store, recording, "hop.call")) == 2
        (lost,) = queries.lost(store, recording.id)
    assert (lost.place, lost.count) == ("triton kernel", 2)
