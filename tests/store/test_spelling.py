"""Recorded data as Python text: readable, and harmless whatever the data says."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchreel.errors import UnsupportedError
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json

X: Json = {"n": "x"}


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (("call_function", "fn:torch.relu", [X]), "torch.relu(x)"),
        (("call_function", "fn:_operator.add", [X, {"f": "0x1.8p+0"}]), "x + 1.5"),
        (("call_function", "fn:_operator.mul", [X, -1]), "x * (-1)"),
        (("call_function", "fn:_operator.neg", [X]), "-x"),
        (("call_function", "fn:_operator.iadd", [X, 1]), "operator.iadd(x, 1)"),
        (("call_function", "fn:_operator.getitem", [X, 0]), "x[0]"),
        (
            ("call_function", "fn:_operator.getitem", [X, {"t": [{"slice": [None, 2, None]}, 1]}]),
            "x[:2, 1]",
        ),
        (("call_function", "fn:builtins.getattr", [X, "T"]), "x.T"),
        (("call_function", "op:aten.add.Tensor", [X, X]), "torch.ops.aten.add.Tensor(x, x)"),
        (("call_function", "hop:cond", [X]), "torch.ops.higher_order.cond(x)"),
        (("call_method", "view", [X, 2, -1]), "x.view(2, -1)"),
        (("call_method", "to", [X, {"dtype": "float16"}]), "x.to(torch.float16)"),
        (("get_attr", "weight", []), "self.weight"),
    ],
)
def test_nodes_read_like_python(node: tuple[str, str, Json], text: str) -> None:
    assert spelling.call(*node, {}, str) == text


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"t": [1]}, "(1,)"),
        ({"d": [["a", [True, None]]]}, '{"a": [True, None]}'),
        ({"f": "nan"}, 'float("nan")'),
        ({"device": "cuda:1"}, 'torch.device("cuda:1")'),
        ({"size": [2, {"n": "n"}]}, "torch.Size([2, n])"),
        ({"ellipsis": True}, "..."),
        ({"sym": {"type": "int", "expr": "Add(s0, Mul(2, u0))"}}, "s0 + (2*u0)"),
    ],
)
def test_arguments(tree: Json, text: str) -> None:
    assert spelling.argument(tree, str) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (3, "3"),
        ("s77", "s77"),
        ("Mul(-1, FloorDiv(Add(s0, -1), 2))", "(-1)*((s0 + (-1))//2)"),
        ("Max(1, s0)", "max(1, s0)"),
        (
            "And(StrictLessThan(s0, 3), Not(Equality(Mod(s1, 2), 0)))",
            "(s0 < 3) and (not ((s1 % 2) == 0))",
        ),
        ("Or($true, LessThan(u0, 7))", "True or (u0 <= 7)"),
        ('Add(zf0, Float("0x5p-1", 53))', "zf0 + (2.5)"),
        ('Float("-0x7p0", 53)', "-7.0"),
    ],
)
def test_sizes(expression: Json, text: str) -> None:
    assert spelling.expression(expression, str) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f(",
        "Add(1",
        "1 2",
        "Add(1)) + evil(",
        "__import__('os')",
        "a.b",
        "$oo",
        "$evil",
        'Float("0x1p99999", 53)',
        'Float("0x1p9999", 53)',
        'Float("1", 53)',
        "Not(1, 2)",
    ],
)
def test_an_expression_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        spelling.expression(text, str)
    assert spelling.size(text) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["n", "t", "d", "f", "c", "slice", "dtype", "size", "fn", "sym", "x", "device"]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


_ACTIVE = (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.NamedExpr, ast.Await, ast.JoinedStr)


@given(st.text(), st.sampled_from(["call_function", "call_method", "get_attr"]), _JSON, _JSON)
def test_whatever_the_data_says_the_text_is_one_expression_without_free_text(
    target: str, op: str, args: Json, kwargs: Json
) -> None:
    try:
        text = spelling.call(op, target, args, kwargs, lambda name: "node")
    except UnsupportedError:
        return
    tree = ast.parse(text, mode="eval")
    assert not [found for found in ast.walk(tree) if isinstance(found, _ACTIVE)]


def test_values_in_a_few_words() -> None:
    tensor: dict[str, Json] = {
        "k": "tensor", "dtype": "float16", "device": "cuda:0", "layout": "strided",
        "size": [2, 3], "stride": [1, 2], "flags": ["conj"], "requires_grad": True,
    }  # fmt: skip
    assert spelling.value(tensor) == "float16[2, 3] cuda:0 conj strides [1, 2] requires_grad"
    assert spelling.value({"k": "symint", "expr": "s0"}) == "int s0"
    assert spelling.value({"k": "tuple", "items": [{"k": "int", "v": 3}]}) == "(3)"
