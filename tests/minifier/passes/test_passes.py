"""Every pass keeps the contract that `passes.base` states."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.minifier.generated import cases
from tests.minifier.hand_made import call, case_of, chain, functions_of, ref, tensor
from torchreel.formats.graphs.document import GraphDoc, NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.descriptions import sizes
from torchreel.minifier.cases.graph_edits import output_items
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.passes import Edit, Pass, all_passes
from torchreel.minifier.passes.all_plain import AllPlain
from torchreel.minifier.passes.bypass import Bypass, BypassByEqual
from torchreel.minifier.passes.config import Ambient, DropConfigEntries
from torchreel.minifier.passes.cut import Chunks, Cut, Prefix, depth_first
from torchreel.minifier.passes.gradients import Gradients, NoGradients
from torchreel.minifier.passes.named_in_message import Around
from torchreel.minifier.passes.outputs import Outputs, Suffix
from torchreel.minifier.passes.reshape import Reshape, ReshapeInputs
from torchreel.minifier.passes.sizes import Resize, SmallerSizes
from torchreel.minifier.passes.unused import DeadCode, UnusedInputs
from torchreel.store.documents.jsontypes import Json

PASSES = [*all_passes(), Around("target: aten.relu.default, sin or add of cond")]


@pytest.mark.parametrize("item", PASSES, ids=lambda item: item.name)
@settings(max_examples=30, deadline=None)
@given(case=cases(), data=st.data())
def test_contract(item: Pass, case: Case, data: st.DataObject) -> None:
    """Deterministic, proposes only, never the same case, well-formed graphs."""
    edits = list(item.edits(case))
    some = data.draw(st.lists(st.sampled_from(edits), max_size=4)) if edits else []
    assert_contract(item, case, some)


def assert_contract(item: Pass, case: Case, some: list[Edit]) -> Case | None:
    """The candidate with some edits, made as the contract has it."""
    before = case.to_bytes()
    assert list(item.edits(case)) == list(item.edits(case))
    candidate = item.apply(case, some)
    assert case.to_bytes() == before
    if candidate is not None:
        assert candidate.digest != case.digest
        assert_well_formed(candidate)
        candidate.checkpoint.check()  # it may be stored, and read again
        again = item.apply(case, some)
        assert again is not None
        assert again.to_bytes() == candidate.to_bytes()
        item.apply(candidate, some)  # stale edits are skipped, not an error
    return candidate


@functools.cache
def generated() -> list[Case]:
    """A few hundred cases, the same ones every time."""
    found: list[Case] = []

    @settings(
        max_examples=300, deadline=None, phases=[Phase.generate], derandomize=True, database=None
    )
    @given(case=cases())
    def keep(case: Case) -> None:
        found.append(case)

    keep()
    return found


@pytest.mark.parametrize("item", all_passes(), ids=lambda item: item.name)
def test_contract_where_there_are_edits(item: Pass) -> None:
    """On ten cases, edits one by one and all at once.

    One makes a case that the order calls simpler: others are skipped, and nobody hears of it.
    """
    fitting = [case for case in generated() if item.edits(case)]
    for case in fitting[:10]:
        edits = list(item.edits(case))
        for some in (*([edit] for edit in edits[:3]), edits):
            assert_contract(item, case, some)
    assert any(has_a_simpler(item, case) for case in fitting), "see tests/minifier/generated.py"


def has_a_simpler(item: Pass, case: Case) -> bool:
    """True if an edit makes a case that the search would ask the oracle about."""
    candidates = [item.apply(case, [edit]) for edit in item.edits(case)]
    return any(sort_key(made) < sort_key(case) for made in candidates if made is not None)


def test_names_are_unique() -> None:
    """The counts at the end of a reduction are by name."""
    names = [item.name for item in PASSES]
    assert len(set(names)) == len(names)


def assert_well_formed(case: Case) -> None:
    """Uses after definitions, one description per input, an output at the end."""
    known: set[str] = set()
    for node in case.graph.nodes:
        assert set(node.inputs()) <= known
        assert node.name not in known
        known.add(node.name)
    assert len(case.graph.placeholders) == len(case.checkpoint.inputs)
    assert case.graph.nodes[-1].op == "output"


def applied(item: Pass, case: Case, count: int | None = None) -> Case:
    """The case with the first so many edits of a pass."""
    edits = list(item.edits(case))
    result = item.apply(case, edits[:count])
    assert result is not None
    return result


def test_what_a_message_names_is_kept() -> None:
    """With inputs for its operands; then what is around the first of it."""
    case = chain([*["relu"] * 9, "tan", *["relu"] * 9, "tan", "relu"])
    around = Around("RuntimeError: no such thing\n  target: aten.tan.default")
    edits = around.edits(case)
    assert len(edits) == 5  # four steps in both directions are more than a third of it
    found = [around.apply(case, [edit]) for edit in edits]
    assert [functions_of(one) for one in found[:3] if one] == [["tan"], ["tan"], ["tan", "tan"]]
    wider = found[-1]
    assert wider is not None
    assert functions_of(wider) == ["relu", "relu", "tan", "relu", "relu"]
    assert output_items(wider.graph) == [{"n": "relu_11"}]
    assert not Around("nothing that is called").edits(case)
    forms = Around("convolution_backward, addmm")
    assert functions_of(applied(forms, chain([*["add"] * 9, "conv2d"]), 1)) == ["conv2d"]
    assert not around.edits(chain(["tan", "relu"]))


def test_what_lies_between_what_a_message_names_is_kept() -> None:
    case = chain([*["relu"] * 9, "tan", "relu", "relu", "sin", *["relu"] * 9, "tan", "relu"])

    def kept(message: str) -> list[list[str]]:
        around = Around(message)
        found = [around.apply(case, [edit]) for edit in around.edits(case)]
        return [functions_of(one) for one in found if one is not None]

    together = ["tan", "relu", "relu", "sin"]
    joined = [["tan", "sin"], ["sin", "tan"]]
    assert kept("can't fuse aten.tan with aten.sin")[:3] == [*joined, together]
    # In the order of the message, though that is the longer way.
    assert kept("can't fuse aten.sin with aten.tan")[:3] == [*joined[::-1], together]
    # More often than there are any: once will do.
    assert kept("tan, tan, tan and sin")[:3] == [*joined, together]
    case = chain([*["relu"] * 20, "tan", "relu", "sin", "relu", "tan", *["relu"] * 9, "tan"])
    found = kept("tan > sin > tan")
    assert (found[0], ["tan", "relu", "sin", "relu", "tan"] in found) == (
        ["tan", "sin", "tan"],
        True,
    )


def test_what_a_message_names_is_joined_whatever_lay_between() -> None:
    """By the names that calls have when they are lowered, with inputs of the shape that is due."""
    calls = [
        *(call(f"before_{n}", "relu", ref(f"before_{n - 1}" if n else "x")) for n in range(9)),
        call("tan", "tan", ref("before_8")),
        call("flat", "reshape", ref("tan"), [32], value=tensor(32)),
        call("long", "matmul", ref("flat"), ref("w"), value=tensor(16)),
        call("norm", "norm", ref("long"), value=tensor(16)),
    ]
    case = case_of(calls, ["norm"], x=tensor(4, 8), w=tensor(32, 16))
    origin: Json = [{"name": "norm_1", "from_node": [{"name": "norm", "from_node": []}]}]
    root = NodeDoc("r", "call_function", "op:aten.rsqrt.default", [], {}, {"from_node": origin})
    around = Around("tan > rsqrt", GraphDoc((root,)))
    made = around.apply(case, around.edits(case)[:1])
    assert made is not None
    assert functions_of(made) == ["tan", "norm"]
    assert made.graph.by_name["norm"].args == [ref("tan")]
    assert [sizes(value) for value in made.checkpoint.inputs] == [[16]]
    assert "norm" not in functions_of(applied(Around("tan > rsqrt"), case, 1))


def test_everything_plain_at_once() -> None:
    """Sizes, dimensions, config and ambient state."""
    case = chain(["sin"])
    config = (("inductor.max_fusion_size", 1),)
    doc = replace(case.checkpoint, config=config, ambient={"grad_mode": False})
    flat = applied(AllPlain(), replace(case, checkpoint=doc), 1).checkpoint
    assert sizes(flat.inputs[0]) == []
    assert (flat.config, flat.ambient) == ((), {})
    config_kept = AllPlain().apply(replace(case, checkpoint=doc), AllPlain().edits(case)[1:2])
    assert isinstance(config_kept, Case)
    assert (sizes(config_kept.checkpoint.inputs[0]), config_kept.checkpoint.config) == ([], config)
    less = AllPlain().apply(case, AllPlain().edits(case)[2:])
    assert less is not None
    assert sizes(less.checkpoint.inputs[0]) == [1, 1]


def test_suffix_keeps_values_alive_as_outputs() -> None:
    """What the dropped nodes used is returned instead."""
    case = chain(["sin", "cos", "neg"])
    shorter = applied(Suffix(), case, 2)
    assert functions_of(shorter) == ["sin"]
    assert output_items(shorter.graph) == [{"n": "sin_0"}]


def test_prefix_makes_inputs_of_what_is_still_used() -> None:
    """And of nothing else."""
    case = chain(["sin", "cos", "neg"])
    shorter = applied(Prefix(), case, 2)
    assert functions_of(shorter) == ["neg"]
    assert [n.name for n in shorter.graph.placeholders] == ["x", "cos_1"]


def test_bypass_shortens_a_path() -> None:
    """Several nodes at once, through each other."""
    case = chain(["sin", "relu", "relu", "cos"])
    edits = [Bypass((), "relu_1", "sin_0"), Bypass((), "relu_2", "relu_1")]
    shorter = BypassByEqual().apply(case, edits)
    assert shorter is not None
    assert functions_of(shorter) == ["sin", "cos"]


def test_bypass_crosses_a_ladder() -> None:
    """The nearest value of the same description may be several nodes up."""
    calls = [
        call("v", "reshape", ref("x"), [32], value=tensor(32)),
        call("s", "sin", ref("v"), value=tensor(32)),
        call("w", "reshape", ref("s"), [4, 8]),
        call("c", "cos", ref("w")),
    ]
    case = case_of(calls, ["c"], x=tensor(4, 8))
    candidates = [e for e in BypassByEqual().edits(case) if isinstance(e, Bypass)]
    assert Bypass((), "w", "x") in candidates


def test_inputs_get_the_shape_that_a_view_makes() -> None:
    """Those that had the shape which the view was given; then there is nothing to view."""
    calls = [
        call("a", "tanh", ref("x")),
        call("b", "reshape", ref("a"), [32], value=tensor(32)),
        call("c", "layer_norm", ref("b"), [32], ref("y"), value=tensor(32)),
    ]
    case = case_of(calls, ["c"], x=tensor(4, 8), y=tensor(32))
    assert ReshapeInputs().edits(case) == [Reshape("b", "a")]
    flat = applied(ReshapeInputs(), case)
    assert functions_of(flat) == ["tanh", "layer_norm"]
    assert flat.checkpoint.inputs == (tensor(32), tensor(32))
    assert flat.graph.by_name["x"].value == tensor(32)


def test_writes_are_not_dropped_silently() -> None:
    """A node that became unused stays when it does something."""
    calls = [
        call("a", "sin", ref("x")),
        call("w", "relu_", ref("a")),
        call("b", "cos", ref("a")),
    ]
    case = case_of(calls, ["b"], x=tensor(4, 8))
    cut = Cut()
    shorter = cut.apply(case, [e for e in cut.edits(case) if "b" in repr(e)])
    assert shorter is not None
    assert functions_of(shorter) == ["sin", "relu_"]
    assert functions_of(applied(DeadCode(), shorter, 1)) == []


def test_unused_inputs_go() -> None:
    """With their descriptions."""
    case = case_of([call("a", "sin", ref("y"))], ["a"], x=tensor(2), y=tensor(4, 8))
    assert applied(UnusedInputs(), case).checkpoint.inputs == (tensor(4, 8),)


def test_outputs_go_one_by_one() -> None:
    """And what only they needed goes with them."""
    calls = [call("a", "sin", ref("x")), call("b", "cos", ref("x"))]
    case = case_of(calls, ["a", "b"], x=tensor(4, 8))
    assert functions_of(applied(Outputs(), case, 1)) == ["sin"]


def test_chunks_follow_the_dependencies() -> None:
    """Two interleaved branches come out one after the other."""
    calls = []
    for i in range(4):
        calls.append(call(f"a{i}", "sin", ref(f"a{i - 1}" if i else "x")))
        calls.append(call(f"b{i}", "cos", ref(f"b{i - 1}" if i else "x")))
    calls.append(call("sum", "add", ref("a3"), ref("b3")))
    case = case_of(calls, ["sum"], x=tensor(4, 8))
    order = depth_first(case.graph)
    assert order == ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "sum"]
    assert Chunks().edits(case)


def test_sizes_change_consistently() -> None:
    """In every input, and in the numbers that speak of them."""
    calls = [call("v", "reshape", ref("x"), [32], value=tensor(32))]
    case = case_of(calls, ["v"], x=tensor(4, 8), y=tensor(8, 3))
    pass_ = SmallerSizes(1)
    smaller = pass_.apply(case, [Resize(8, 1, "multiples")])
    assert smaller is not None
    assert [d["size"] for d in smaller.checkpoint.inputs] == [[4, 1], [1, 3]]  # type: ignore[index,call-overload]
    assert smaller.graph.by_name["v"].args == [ref("x"), [4]]


def test_settings_go_together() -> None:
    """All settings are dropped by one edit list."""
    case = chain(["sin"])
    assert not DropConfigEntries().edits(case)
    assert not Ambient().edits(case)


def test_gradients_go() -> None:
    """Parameters become plain inputs."""
    case = case_of(
        [call("a", "sin", ref("x"))], ["a"], x=tensor(2, requires_grad=True, parameter=True)
    )
    assert applied(Gradients(), case).checkpoint.inputs == (tensor(2),)
    assert applied(NoGradients(), case).checkpoint.inputs == (tensor(2),)
    assert not NoGradients().edits(applied(NoGradients(), case))
