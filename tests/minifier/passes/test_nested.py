"""Bodies of higher-order operators and their calls change together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.minifier.hand_made import BUG, Predicate, functions_of
from tests.minifier.nested import NESTED
from torchreel.formats.graphs.document import GraphDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.minifier.cases.subgraphs import call_of, calls_in
from torchreel.minifier.passes import Pass, all_passes
from torchreel.minifier.passes.inline import InlineBody
from torchreel.minifier.passes.lift import Lift, LiftValues
from torchreel.minifier.passes.operands import DropOperand, DropResult, Freeze, SameBranch
from torchreel.minifier.search.search import Search


def assert_sound(graph: GraphDoc) -> None:
    """Uses after definitions, and bodies with the inputs and outputs that their calls have."""
    known: set[str] = set()
    for node in graph.nodes:
        assert set(node.inputs()) <= known, (node.name, node.args)
        assert node.name not in known
        known.add(node.name)
        if node.target.startswith("hop:"):
            assert call_of(graph, node) is not None, node
        if node.op == "get_attr":
            assert node.target in graph.modules or node.target in graph.attributes
    assert graph.nodes[-1].op == "output"
    for inner in graph.modules.values():
        assert_sound(inner)


@pytest.mark.parametrize("item", all_passes(), ids=lambda item: item.name)
@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(sorted(NESTED)), data=st.data())
def test_contract(item: Pass, name: str, data: st.DataObject) -> None:
    """Whatever is done, bodies and calls fit."""
    case = NESTED[name]
    for _ in range(3):
        edits = list(item.edits(case))
        assert edits == list(item.edits(case))
        some = data.draw(st.lists(st.sampled_from(edits), max_size=3)) if edits else []
        candidate = item.apply(case, some)
        if candidate is None:
            return
        assert candidate.digest != case.digest
        assert_sound(candidate.graph)
        assert len(candidate.graph.placeholders) == len(candidate.checkpoint.inputs)
        item.apply(candidate, some)
        case = candidate


def only_call(case: Case) -> GraphDoc:
    """The (first) body that makes the results of the only call."""
    (call,) = calls_in(case.graph)
    return call.bodies[call.layout.givers[0]]


def test_an_operand_leaves_both_branches() -> None:
    """And the call."""
    less = DropOperand((), "hop", 3, 1).on(NESTED["cond"])
    assert less is not None
    assert [len(body.placeholders) for body in less.graph.modules.values()] == [1, 1]
    assert less.graph.by_name["hop"].args[3] == {"t": [{"n": "s"}]}  # type: ignore[call-overload,index]
    assert DropOperand((), "hop", 3, 0).on(NESTED["cond"]) is None  # it is used


def test_a_used_result_stays() -> None:
    """One that nobody uses goes, and the others are numbered anew."""
    case = NESTED["region"]
    assert DropResult((), "hop", 0).on(case) is None


def test_a_frozen_carry_is_an_operand() -> None:
    """Its last value is its first."""
    less = Freeze((), "hop", 1).on(NESTED["while_loop"])
    assert less is not None
    assert less.graph.by_name["hop"].args[2:] == [
        {"t": [{"n": "s"}]},
        {"t": [{"n": "w"}, {"n": "y"}]},
    ]  # type: ignore[index]
    assert less.graph.by_name["c1"].args == [{"n": "y"}]
    assert [node.name for node in only_call(less).placeholders] == ["a", "c", "b"]


def test_one_branch_for_two() -> None:
    """The other is gone."""
    less = SameBranch((), "hop", 1).on(NESTED["cond"])
    assert less is not None
    assert [call.names for call in calls_in(less.graph)] == [("no", "no")]


def test_a_loop_is_its_body_once() -> None:
    """With what it carries in and out."""
    flat = InlineBody((), "hop", 1).on(NESTED["while_loop"])
    assert flat is not None
    assert functions_of(flat) == ["sin", "relu", "add", "cos", "cos"]
    assert sort_key(flat) < sort_key(NESTED["while_loop"])


def test_slices_and_stacks_become_inputs() -> None:
    """What a scan's body gets slice by slice has no name outside."""
    flat = InlineBody((), "hop", 0).on(NESTED["scan"])
    assert flat is not None
    assert functions_of(flat) == ["sin", "add", "exp", "cos", "cos"]
    sizes = [value["size"] for value in flat.checkpoint.inputs]  # type: ignore[call-overload,index]
    assert sizes == [[4, 8], [4, 8], [8], [], [8], [4, 8]]


def test_a_value_of_a_body_comes_from_outside() -> None:
    """Through the call."""
    case = Lift("hop", 0, "p").on(NESTED["cond"])
    assert case is not None
    assert_sound(case.graph)
    assert len(case.checkpoint.inputs) == 5
    assert [node.target for node in only_call(case).nodes if node.is_call] == ["fn:torch.exp"]


@pytest.mark.parametrize("name", sorted(set(NESTED) - {"while_loop"}))
def test_a_body_is_reduced_to_what_matters(name: str) -> None:
    """The call with one operator in a body, and what picks a result, when that is what fails."""

    def has(graph: GraphDoc) -> bool:
        inner = [body for call in calls_in(graph) for body in call.bodies]
        return any("fn:torch.exp" in {n.target for n in g.nodes} or has(g) for g in inner)

    found = Search(Predicate(lambda case: has(case.graph)), BUG).run(NESTED[name])
    (call,) = calls_in(found.case.graph)
    assert found.case.graph.total_call_nodes == 3, found.case.graph
    assert [len(call.items(group)) for group in call.layout.groups if group.kind != "pair"] == {
        "cond": [1],
        "scan": [1, 1, 0],
        "associative_scan": [0],
        "region": [1],
        "cond_in_scan": [1, 1, 0],
        "checkpointed": [1],
    }[name]


def test_a_loop_is_not_made_endless() -> None:
    """What its condition looks at is neither frozen nor lifted out."""
    loop = NESTED["while_loop"]
    assert Freeze((), "hop", 0).on(loop) is None
    lifted = [edit for edit in LiftValues().edits(loop) if isinstance(edit, Lift)]
    assert {edit.body for edit in lifted} == {1}
