"""The passes that make what is left plainer: literals, dtypes, ranks, inputs, writes, regions."""

from __future__ import annotations

import pytest

from tests.minifier.hand_made import (
    BUG,
    Predicate,
    call,
    case_of,
    functions_of,
    ref,
    tensor,
)
from tests.minifier.passes.test_passes import applied, assert_well_formed
from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import as_input
from torchreel.minifier.cases.graph_edits import output_items
from torchreel.minifier.cases.literals import simpler_literals, smaller_numbers, weight
from torchreel.minifier.passes.dtypes import PlainerDtypes, Retype
from torchreel.minifier.passes.literals import (
    DropArgument,
    DropItem,
    FewerArguments,
    FewerItems,
    Literals,
)
from torchreel.minifier.passes.merge import ConstantsToInputs, MergeInputs
from torchreel.minifier.passes.outputs import KeepAlive
from torchreel.minifier.passes.ranks import DropDimension, LowerRanks
from torchreel.minifier.passes.regions import Regions
from torchreel.minifier.passes.sizes import SmallerSizes
from torchreel.minifier.passes.writes import NoWrites
from torchreel.minifier.search.search import Search
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object


def sizes_of(case: Case) -> list[Json]:
    """The sizes of all inputs."""
    return [as_object(value)["size"] for value in case.checkpoint.inputs]


@pytest.mark.parametrize(
    "leaf", [7, -3, True, 1, {"f": (0.3).hex()}, {"f": (4.0).hex()}, {"dtype": "float16"}]
)
def test_what_is_tried_weighs_less(leaf: Json) -> None:
    """And something is tried for everything that is not the plainest."""
    choices = simpler_literals(leaf)
    assert choices
    assert all(weight(choice) < weight(leaf) for choice in choices)


@pytest.mark.parametrize("least", [1, 2, 5, 17, 99, 100])
def test_the_least_size_is_found(least: int) -> None:
    """By bisection, if all above it will do."""

    def fails(case: Case) -> bool:
        size: int = as_object(case.checkpoint.inputs[0])["size"][0]  # type: ignore[index,assignment]
        return bool(case.call_nodes) and size >= least

    assert smaller_numbers(100) == [50, 75, 88, 94, 97, 99]
    start = case_of([call("a", "sin", ref("x"))], ["a"], x=tensor(100))
    passes = ((SmallerSizes(1), SmallerSizes(None)),)
    found = Search(Predicate(fails), BUG, phases_of=lambda case: (passes,)).run(start)
    assert sizes_of(found.case) == [[least]]
    assert found.oracle_runs < 30


def test_a_dtype_changes_everywhere() -> None:
    """In inputs and in arguments."""
    calls = [call("a", "zeros_like", ref("x"), dtype={"dtype": "float16"})]
    case = case_of(calls, ["a"], x=tensor(4, dtype="float16"), y=tensor(4, dtype="int32"))
    assert PlainerDtypes().edits(case)[0] == Retype("float16", "float32")
    plain = applied(PlainerDtypes(), case, 1)
    assert [as_object(v)["dtype"] for v in plain.checkpoint.inputs] == ["float32", "int32"]
    assert plain.graph.by_name["a"].kwargs == {"dtype": {"dtype": "float32"}}


def test_a_dimension_goes_with_its_literals() -> None:
    """A list of sizes loses an entry, a later dimension is numbered anew."""
    calls = [
        call("a", "reshape", ref("x"), [1, 4, 8]),
        call("b", "softmax", ref("a"), 2),
    ]
    case = case_of(calls, ["b"], x=tensor(1, 4, 8))
    less = LowerRanks().apply(case, [DropDimension(3, 0, follow=True)])
    assert less is not None
    assert sizes_of(less) == [[4, 8]]
    assert less.graph.by_name["a"].args == [ref("x"), [4, 8]]
    assert less.graph.by_name["b"].args == [ref("a"), 1]


def test_arguments_go() -> None:
    """Keywords, last arguments, items of lists; not a call's only operand."""
    calls = [
        call("a", "sum", ref("x"), 1, True, dtype={"dtype": "float64"}),
        call("b", "cat", [ref("a"), ref("x")]),
    ]
    case = case_of(calls, ["b"], x=tensor(4, 8))
    plain = applied(FewerArguments(), case)
    assert plain.graph.by_name["a"].args == [ref("x")]
    assert plain.graph.by_name["a"].kwargs == {}
    assert FewerItems().edits(case)[0] == DropItem((), "b", (0, 0), repr(ref("x")))
    assert applied(FewerItems(), case).graph.by_name["b"].args == [[ref("a")]]


def test_arguments_stay_without_which_no_call_is_one() -> None:
    """As a function's signature or an operator's schema has it; what is not known may go."""
    calls = [
        NodeDoc("a", "call_function", "fn:torch.nn.functional.layer_norm",
                [ref("x"), {"t": [8]}, None, None, {"f": (0.5).hex()}]),
        NodeDoc("b", "call_function", "op:aten.sum.dim_IntList", [ref("a"), [1], True]),
        NodeDoc("c", "call_function", "op:aten.permute.default", [ref("b")], {"dims": [0, 1]}),
        NodeDoc("d", "call_function", "fn:mine.scaled", [ref("c"), 2]),
    ]  # fmt: skip
    case = case_of(calls, ["d"], x=tensor(4, 8))
    assert FewerArguments().edits(case) == [
        *(DropArgument((), "a", key) for key in (4, 3, 2)),
        *(DropArgument((), "b", key) for key in (2, 1)),
        DropArgument((), "d", 1),
    ]


def test_literals_are_plain() -> None:
    """All at once, the plainest first."""
    case = case_of([call("a", "clamp", ref("x"), 3, {"f": (7.5).hex()})], ["a"], x=tensor(4))
    plain = Literals().apply(case, Literals().edits(case)[:2])
    assert plain is not None
    assert plain.graph.by_name["a"].args == [ref("x"), 0, {"f": (1.0).hex()}]


def test_equal_inputs_become_one() -> None:
    """Not those that differ."""
    calls = [call("a", "add", ref("x"), ref("y")), call("b", "add", ref("a"), ref("z"))]
    case = case_of(calls, ["b"], x=tensor(4), y=tensor(4), z=tensor(1))
    assert sizes_of(applied(MergeInputs(), case)) == [[4], [1]]


def test_a_constant_becomes_an_input() -> None:
    """With its description."""
    calls = [NodeDoc("k", "get_attr", "k"), call("a", "add", ref("x"), ref("k"))]
    case = case_of(calls, ["a"], x=tensor(4))
    graph = case.graph
    case = case.with_graph(type(graph)(graph.nodes, {}, {"k": tensor(4)}))
    plain = applied(ConstantsToInputs(), case)
    assert sizes_of(plain) == [[4], [4]]
    assert not plain.graph.attributes
    assert_well_formed(plain)


def test_a_value_is_kept_alive_as_an_output() -> None:
    """While the node between becomes an input."""
    calls = [call("a", "sin", ref("x")), call("b", "exp", ref("a")), call("c", "cos", ref("b"))]
    case = case_of(calls, ["c"], x=tensor(4, 8))
    plain = applied(KeepAlive(), case)
    assert functions_of(plain) == ["sin", "cos"]
    assert output_items(plain.graph) == [ref("c"), ref("a")]


def test_writes_become_values() -> None:
    """What came after the write uses the new value."""
    calls = [
        call("a", "sin", ref("x")),
        NodeDoc("w", "call_method", "mul_", [ref("a"), 2], {}, {"example_value": tensor(4, 8)}),
        call("b", "cos", ref("a")),
    ]
    plain = applied(NoWrites(), case_of(calls, ["b"], x=tensor(4, 8)), 1)
    assert plain.graph.by_name["w"].target == "mul"
    assert plain.graph.by_name["b"].args == [ref("w")]


def test_regions_go_as_a_whole() -> None:
    """Autocast, and a level of vmap with what it wraps."""
    p = "fn:torch._functorch.predispatch."
    nodes = [
        NodeDoc("e", "call_function", "fn:torch.amp.autocast_mode._enter_autocast", ["cpu"]),
        NodeDoc("l", "call_function", f"{p}lazy_load_decompositions", []),
        NodeDoc("i", "call_function", f"{p}_vmap_increment_nesting", [4, "error"]),
        NodeDoc("b", "call_function", f"{p}_add_batch_dim", [ref("x"), 0, 1]),
        call("s", "sin", ref("b")),
        NodeDoc("r", "call_function", f"{p}_remove_batch_dim", [ref("s"), 1, 4, 0]),
        NodeDoc("d", "call_function", f"{p}_vmap_decrement_nesting", []),
        NodeDoc("q", "call_function", "fn:torch.amp.autocast_mode._exit_autocast", [ref("e")]),
    ]
    plain = applied(Regions(), case_of(nodes, ["r"], x=tensor(4, 8)))
    assert functions_of(plain) == ["sin"]
    assert plain.graph.by_name["s"].args == [ref("x")]
    assert output_items(plain.graph) == [ref("s")]


def test_a_size_that_only_a_run_tells_becomes_a_number() -> None:
    """In a fresh input; where more than a symbol is unknown there is none."""
    known = as_input(tensor("u0", 3, storage_size="4*u0"))
    assert as_object(known)["size"] == [2, 3]
    assert as_object(known)["stride"] == [3, 1]
    assert as_input(tensor("2*u0")) is None
