"""Expressions survive the way through text; hostile text builds nothing."""

import re

import pytest
import sympy
import torch.utils._sympy.functions as extension
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._sympy.numbers import int_oo

from torchreel.errors import UnsupportedError
from torchreel.formats import symbols
from torchreel.formats.tensors.fields import evaluate_hint

TABLE = {
    "s0": sympy.Symbol("s0", integer=True, positive=True),
    "s77": sympy.Symbol("s77", integer=True, nonnegative=True),
    "u0": sympy.Symbol("u0", integer=True),
    "zf1": sympy.Symbol("zf1", real=True),
    "odd name": sympy.Symbol("odd name", integer=True),
}

leaves = st.one_of(
    st.sampled_from(list(TABLE.values())),
    st.integers(-(2**70), 2**70).map(sympy.Integer),
    st.fractions().map(lambda f: sympy.Rational(f.numerator, f.denominator)),
)


def _combine(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    pair = st.tuples(inner, inner)
    symbol = st.sampled_from([TABLE["s0"], TABLE["s77"], TABLE["u0"]])
    positive = st.integers(1, 50).map(sympy.Integer)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] * p[1]),
        st.tuples(inner, symbol).map(lambda p: extension.FloorDiv(p[0], p[1])),
        st.tuples(symbol, symbol).map(lambda p: extension.Max(p[0], p[1] + 3)),
        st.tuples(inner, positive).map(lambda p: extension.FloorDiv(p[0], p[1])),
        st.tuples(inner, positive, positive).map(lambda p: extension.ModularIndexing(*p)),
        st.tuples(inner, positive).map(lambda p: extension.PythonMod(p[0], p[1])),
        inner.map(extension.ToFloat),
        inner.map(extension.CeilToInt),
    )


expressions = st.recursive(leaves, _combine, max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(expressions)
def test_an_expression_is_structurally_equal_after_the_round_trip(expr: sympy.Expr) -> None:
    text = symbols.encode_expr(expr)
    again = symbols.decode_expr(text, TABLE)
    assert again == expr
    assert _spelled(again) == _spelled(expr)
    assert symbols.encode_expr(again) == text


def _spelled(expr: sympy.Expr) -> str:
    """Its structure; the order of a symbol's assumptions is that of whoever made it first."""
    return re.sub(
        r"Symbol\(([^()]*)\)",
        lambda found: ", ".join(sorted(found[1].split(", "))),
        sympy.srepr(expr),
    )


@settings(max_examples=100, deadline=None)
@given(expressions, expressions, st.sampled_from([sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le]))
def test_guards_and_logic_survive(left: sympy.Expr, right: sympy.Expr, relation: type) -> None:
    guard = relation(left, right)
    for expr in (guard, sympy.Not(guard), sympy.And(guard, sympy.Eq(TABLE["s0"], 3))):
        assert symbols.decode_expr(symbols.encode_expr(expr), TABLE) == expr


@given(st.floats(allow_nan=False))
def test_floats_keep_every_bit(value: float) -> None:
    again = symbols.decode_expr(symbols.encode_expr(value), TABLE)
    assert float(again) == value


def test_floats_wider_than_a_machines_keep_every_bit() -> None:
    value = extension.ToFloat(sympy.Integer(2**53 + 2**12 + 1)).evalf(40) + sympy.Float(1) / 3
    for expr in (sympy.Float("9007199257447695.0", precision=56), sympy.Float(value, 40)):
        assert symbols.decode_expr(symbols.encode_expr(expr), TABLE) == expr
    with pytest.raises(UnsupportedError):
        symbols.decode_expr('Float("0x1p9999999", 53)', TABLE)


@pytest.mark.parametrize("value", [sympy.oo, -sympy.oo, int_oo, -int_oo, sympy.true, sympy.pi])
def test_constants_survive(value: sympy.Basic) -> None:
    assert symbols.decode_expr(symbols.encode_expr(value), TABLE) is value


@pytest.mark.parametrize(
    "text",
    [
        "__import__(os)", "Symbol(s0)", "Lambda(s0, s0)", "sympify(s0)", "s0 + u0", "os", "Add(",
        "Add(s0, u0))", "Add(s0 u0)", "$open", "Float(\"__import__('os')\", 53)", "'a'", "s0.func",
        "FloorDiv()", "FloorDiv(s0)", "_is_wide_add(s0)", "OpaqueUnaryFn_exec(s0)", "",
    ],
)  # fmt: skip
def test_hostile_or_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        symbols.decode_expr(text, TABLE)


def test_cases_survive() -> None:
    u0 = sympy.Symbol("u0", integer=True)
    expr = sympy.Piecewise((1, sympy.Eq(u0, 1)), (0, sympy.true))
    assert symbols.decode_expr(symbols.encode_expr(expr), {"u0": u0}) == expr
    with pytest.raises(UnsupportedError, match="a case is an expression and a condition"):
        symbols.decode_expr("Piecewise(ExprCondPair(1, 2))", {})


def test_hostile_sizes_cost_nothing() -> None:
    tower = symbols.decode_expr("Pow(9, Pow(9, Pow(9, 99)))", TABLE)
    assert isinstance(tower, sympy.Pow)
    with pytest.raises(UnsupportedError, match="nested deeper"):
        symbols.decode_expr("Abs(" * 5000 + "s0" + ")" * 5000, TABLE)
    with pytest.raises(UnsupportedError, match="characters"):
        symbols.decode_expr("Add(" + "s0, " * 400_000 + "s0)", TABLE)


@pytest.mark.parametrize(
    "text",
    [
        "floor(Pow(Rational(3, 2), 10000000000))",
        "Pow(Rational(1, 7), -10000000000)",
        "Pow(9, 99999)",
    ],
)
def test_hostile_hints_cost_nothing(text: str) -> None:
    with pytest.raises(UnsupportedError, match="is not computed"):
        evaluate_hint(symbols.decode_expr(text, TABLE), int, {})


def test_the_size_of_a_ragged_dimension_has_no_value() -> None:
    ragged = symbols.decode_expr("SingletonInt(1, 1)", TABLE)
    assert evaluate_hint(ragged, int, {}) is None


def test_symbols_keep_their_assumptions() -> None:
    for name, symbol in TABLE.items():
        if name.isidentifier():
            assert symbols.decode_symbol(name, symbols.encode_symbol(symbol)) == symbol
    with pytest.raises(UnsupportedError, match="'odd name'"):  # Inductor writes it into programs
        symbols.decode_symbol("odd name", [])
    with pytest.raises(UnsupportedError, match="assumption"):
        symbols.decode_symbol("s0", ["__class__"])


def test_every_function_of_torch_is_in_the_closed_table() -> None:
    known = symbols._functions()
    names = "FloorDiv ModularIndexing CeilToInt PythonMod Where Max Min IntTrueDiv"
    for name in [*names.split(" "), "IsNonOverlappingAndDenseIndicator", "OpaqueUnaryFn_sqrt"]:
        assert known[name].__module__ == extension.__name__


def test_a_vocabulary_reads_once_and_forgets_with_the_symbol() -> None:
    vocabulary = symbols.Vocabulary()
    vocabulary.describe("s0", sympy.Symbol("s0", integer=True))
    before = symbols.decode_expr("Add(s0, 1)", vocabulary)
    assert symbols.decode_expr("Add(s0, 1)", vocabulary) is before
    vocabulary.describe("s0", sympy.Symbol("s0", positive=True))
    after = symbols.decode_expr("Add(s0, 1)", vocabulary)
    assert after != before
    assert after.free_symbols == {vocabulary["s0"]}
