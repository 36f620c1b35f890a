"""Graphs made by hand: names do not count, everything else does."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.stores import TENSOR, graph, node
from torchreel.analysis.diff.layers.expressions import parse
from torchreel.analysis.diff.layers.graphs import compare_graphs, graph_of
from torchreel.errors import DamagedStore
from torchreel.store import Json


def tensor(*size: Json, storage: int = 0) -> Json:
    return {**TENSOR, "size": list(size), "stride": [8, 1], "storage": storage}


def made(*, x: str = "x", s: str = "s0", op: str = "relu", scale: Json = 2, keep: int = 0) -> bytes:
    """A size, an input, an operator and a product."""
    results = [tensor(s, 8, storage=number) for number in (1, 2)]
    return graph(
        node(s, "placeholder", s, val={"k": "symint", "expr": s, "hint": 5}),
        node(x, "placeholder", x, val=tensor(s, 8)),
        node(f"{x}_1", "call_function", f"op:aten.{op}.default", {"n": x}, val=results[0]),
        node(f"{x}_2", "call_method", "mul", {"n": [x, f"{x}_1"][keep]}, scale, val=results[1]),
        node("output", "output", "output", {"t": [{"n": f"{x}_2"}]}),
    )  # fmt: skip


def differences(left: bytes, right: bytes) -> list[tuple[str, str, str]]:
    found = compare_graphs(graph_of(left), graph_of(right))
    return [(d.what, d.left, d.right) for d in found]


def test_names_do_not_count() -> None:
    assert differences(made(), made(x="arg0", s="s77")) == []


@pytest.mark.parametrize(
    ("change", "left", "right"),
    [
        ({"op": "tanh"}, "torch.ops.aten.relu.default(x)", "torch.ops.aten.tanh.default(x)"),
        ({"scale": 3}, "x.mul(2)", "x.mul(3)"),
        ({"keep": 1}, "x.mul(2)", "x_1.mul(2)"),
    ],
    ids=["operator", "literal", "operand"],
)
def test_everything_else_does(change: Mapping[str, Json], left: str, right: str) -> None:
    ((_, one, other),) = differences(made(), made(**change))  # type: ignore[arg-type]
    assert (left in one, right in other) == (True, True)


def edited(change: tuple[str, str]) -> bytes:
    before = made().decode()
    assert change[0] in before, "the test changes nothing"
    return before.replace(*change, 1).encode()


@pytest.mark.parametrize(
    "change",
    [
        ('"size":["s0",8]', '"size":["s0",9]'),
        ('"size":["s0",8]', '"size":["s1",8]'),
        ('"dtype":"float32"', '"dtype":"float64"'),
        ('"storage":2', '"storage":1'),
        ('"op":"call_method"', '"op":"call_function"'),
        ('"kwargs":{}', '"kwargs":{"out":1}'),
        ('"meta":{"val"', '"meta":{"recompute":1,"val"'),
    ],
    ids=["size", "symbol", "dtype", "aliasing", "op", "keyword", "metadata"],
)
def test_any_edit_of_a_node_is_found(change: tuple[str, str]) -> None:
    assert differences(made(), edited(change))


def test_hints_and_places_do_not_count() -> None:
    assert differences(made(), edited(('"hint":5', '"hint":6'))) == []
    assert (
        differences(made(), edited(('"meta":{"val"', '"meta":{"stack_trace":"m.py","val"'))) == []
    )


def test_an_added_and_a_removed_node() -> None:
    document = json.loads(made())
    extra = node("extra", "call_method", "sin", {"n": "x"}, val=tensor("s0", 8, storage=3))
    document["nodes"].insert(3, extra)
    more = json.dumps(document).encode()
    assert differences(made(), more) == [
        ("node extra", "", "extra: float32[s0, 8] requires_grad = x.sin()")
    ]
    assert [(what, right) for what, _, right in differences(more, made())] == [("node extra", "")]


def nested(op: str) -> bytes:
    body = json.loads(made(op=op))
    return graph(
        node("body", "get_attr", "body_0"),
        node("output", "output", "output", {"t": [{"n": "body"}]}),
        body_0=body,
    )


def test_the_body_of_an_operator_is_compared() -> None:
    assert differences(nested("relu"), nested("relu")) == []
    ((what, left, right),) = differences(nested("relu"), nested("tanh"))
    assert what == "body_0: node x_1"
    assert ("relu" in left, "tanh" in right) == (True, True)


def sized(first: str, second: str, expression: str) -> bytes:
    return graph(
        *(node(s, "placeholder", s, val={"k": "symint", "expr": s}) for s in (first, second)),
        node("n", "call_function", "fn:f", val={"k": "symint", "expr": expression}),
    )


def test_a_sum_has_no_order_but_a_difference_of_operands_counts() -> None:
    left = sized("s0", "s9", "Add(s0, Mul(2, s9))")
    assert differences(left, sized("s9", "s0", "Add(Mul(2, s0), s9)")) == []
    assert differences(left, sized("s9", "s0", "Add(Mul(2, s9), s0)"))
    assert differences(left, sized("s9", "s0", "Mul(s9, Add(2, s0))"))
    power = sized("s0", "s9", "Pow(s0, s9)")
    assert differences(power, sized("s0", "s9", "Pow(s9, s0)"))


@given(st.text())
def test_any_text_is_some_expression(text: str) -> None:
    assert parse(text).renamed({}).text
    assert parse(text) == parse(text)


@pytest.mark.parametrize(
    "document",
    [b"[[[", b"null", b'{"nodes":[{"args":' + b"[" * 900 + b"]" * 900 + b"}]}"],
    ids=["cut off", "null", "deep"],
)
def test_a_blob_that_is_no_graph_is_refused_or_compared(document: bytes) -> None:
    try:
        found = differences(made(), document)
    except DamagedStore:
        return
    assert found
