"""The order is total, and says what its documentation says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from tests.minifier.generated import cases
from tests.minifier.hand_made import call, case_of, chain, ref, tensor
from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.case import Case
from torchreel.minifier.cases.order import sort_key
from torchreel.store.documents.jsontypes import canonical_json


@settings(deadline=None)
@given(cases(), cases())
def test_the_order_is_total(one: Case, other: Case) -> None:
    """Any two cases compare, and only equal ones are equally simple."""
    a, b = sort_key(one), sort_key(other)
    assert (a < b) + (b < a) + (a == b) == 1
    assert (a == b) == (one.digest == other.digest)


@settings(deadline=None)
@given(cases(), cases(), cases())
def test_the_order_is_transitive(one: Case, two: Case, three: Case) -> None:
    """Sorting is well defined."""
    keys = sorted(map(sort_key, (one, two, three)))
    assert keys[0] <= keys[1] <= keys[2]
    assert keys[0] <= keys[2]


def test_call_nodes_come_first() -> None:
    """A shorter graph is simpler, however large its input."""
    small = chain(["sin"])
    large_input = case_of([call("c", "sin", ref("x"))], ["c"], x=tensor(1000, 1000))
    assert sort_key(small) < sort_key(chain(["sin", "cos"]))
    assert sort_key(large_input) < sort_key(chain(["sin", "cos"]))


def test_simpler_inputs_are_simpler() -> None:
    """Elements, then what is odd about an input, then its dtype."""

    def with_input(**changes: object) -> Case:
        return case_of([call("c", "sin", ref("x"))], ["c"], x=tensor(4, 4, **changes))  # type: ignore[arg-type]

    plain = sort_key(with_input())
    assert plain < sort_key(with_input(requires_grad=True))
    assert plain < sort_key(with_input(stride=[1, 4]))
    assert plain < sort_key(with_input(storage=0))
    assert plain < sort_key(with_input(dtype="float16"))


def test_a_constant_counts_as_an_input_does() -> None:
    """And as an odd one: an input in its place is simpler, whatever its size."""
    calls = [NodeDoc("k", "get_attr", "k"), call("c", "add", ref("x"), ref("k"))]
    case = case_of(calls, ["c"], x=tensor(4, 8))
    case = case.with_graph(replace(case.graph, attributes={"k": tensor(4, 8)}))
    given = case_of([call("c", "add", ref("x"), ref("k"))], ["c"], x=tensor(4, 8), k=tensor(4, 8))
    assert sort_key(given) < sort_key(case)


def test_settings_count() -> None:
    """A config entry more is less simple."""
    case = chain(["sin"])
    entry = {"module": "inductor", "key": "max_fusion_size", "value": 1, "portable": True}
    configured = replace(case, checkpoint=replace(case.checkpoint, config=(entry,)))
    assert sort_key(case) < sort_key(configured)


def test_names_do_not_count() -> None:
    """Two cases that differ in the names of their nodes are one case."""
    one = case_of([call("a", "sin", ref("x"))], ["a"], x=tensor(2))
    other = case_of([call("b", "sin", ref("y"))], ["b"], y=tensor(2))
    assert one.digest == other.digest
    assert sort_key(one) == sort_key(other)


def test_derived_descriptions_do_not_count() -> None:
    """What a call node computes follows from the rest."""
    one = case_of([call("a", "sin", ref("x"))], ["a"], x=tensor(2))
    other = case_of([call("a", "sin", ref("x"), value=tensor(7))], ["a"], x=tensor(2))
    assert one.digest == other.digest


@settings(deadline=None)
@given(cases())
def test_a_case_survives_the_store(case: Case) -> None:
    """Its document gives it back."""
    again = Case.from_bytes(case.to_bytes())
    assert again.digest == case.digest
    assert again.to_bytes() == case.to_bytes() == canonical_json(case.to_json())
