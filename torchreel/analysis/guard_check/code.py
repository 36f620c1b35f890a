"""Guard code, judged without running it: a walk over its syntax tree.

Lives here: which Python a guard's code may be made of, and what each piece means for described
inputs.  Not here: which guards there are (`check`).  The code is data from a stranger: it is
parsed, never evaluated; what is not in the closed tables below can't be judged, and raises
`UnsupportedError` with the reason.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from torchreel.analysis.guard_check.inputs import Described, Inputs
from torchreel.errors import UnsupportedError

_MAX_LENGTH = 100_000  # characters of a check; a guard of a large sum was seen at 40,000
_MAX_DEPTH = 200
_MAX_BITS = 100_000
"""Numbers that may come of a power or a product: a hostile `9**9**9` costs nothing."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": max, "min": min, "abs": abs, "int": int, "float": float, "round": round, "len": len,
    "torch.sym_float": float, "torch.sym_max": max, "torch.sym_min": min,
    "torch._sym_sqrt": math.sqrt, "cast_symbool_to_symint_guardless": int,
    **{
        f"math.{name}": getattr(math, name)
        for name in (
            "ceil", "floor", "trunc", "sqrt", "isnan", "log2", "sin", "cos", "tan", "asin", "acos",
            "atan", "sinh", "cosh", "tanh", "log", "exp",
        )
    },
}  # fmt: skip
_CONSTANTS = {"math.inf": math.inf, "math.nan": math.nan, "math.pi": math.pi}
_MARKS = "_dynamo_"
"""Prefix of the attributes that mark tensors (as dynamic, static, ...)."""


def parse(code: str) -> ast.expr:
    """Return the syntax tree of a check.  Raises `UnsupportedError` if it is no expression."""
    if len(code) > _MAX_LENGTH:
        raise UnsupportedError(f"a check of {len(code)} characters is refused")
    try:
        return ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnsupportedError("not an expression of the input") from None


def value_of(node: ast.expr, inputs: Inputs, depth: int = 0) -> Any:
    """Return the value of an expression.  Raises `UnsupportedError` if it is unknown."""
    if depth > _MAX_DEPTH:
        raise UnsupportedError(f"nested deeper than {_MAX_DEPTH}")
    given = _given(node, inputs)
    if given is not _NOTHING:
        return given
    evaluate = _NODES.get(type(node))
    if evaluate is None:
        raise UnsupportedError(f"{type(node).__name__} is not in the language of guards")
    try:
        return evaluate(node, inputs, depth + 1)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise UnsupportedError(f"{_text(node):.60}: {error}") from None


_NOTHING: Any = object()


def _given(node: ast.expr, inputs: Inputs) -> Any:
    """Return the described value of an expression; only names, items and attributes have one."""
    if not isinstance(node, (ast.Subscript, ast.Attribute, ast.Name, ast.Call)):
        return _NOTHING
    return inputs.get(_text(node), _NOTHING)


def _text(node: ast.AST) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:
        raise UnsupportedError("nested too deeply") from None


def _name(node: ast.Name, inputs: Inputs, depth: int) -> Any:
    if node.id in ("L", "G"):
        raise UnsupportedError(f"{node.id} is not described")
    raise UnsupportedError(f"{node.id} is the process's, not an input's")


def _item(node: ast.Subscript, inputs: Inputs, depth: int) -> Any:
    if isinstance(node.value, ast.Name):
        raise UnsupportedError(f"{_text(node)} is not described")
    found = value_of(node.value, inputs, depth)
    if isinstance(found, Described):
        raise UnsupportedError(f"{_text(node)} depends on values")
    return found[value_of(node.slice, inputs, depth)]


def _attribute(node: ast.Attribute, inputs: Inputs, depth: int) -> Any:
    name = _text(node)
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    raise UnsupportedError(f"{name} is not described")


def _call(node: ast.Call, inputs: Inputs, depth: int) -> Any:
    name = _text(node.func)
    if node.keywords:
        raise UnsupportedError(f"{name} takes what is not described")
    if name == "hasattr" and len(node.args) == 2:
        return _has(node, inputs, depth)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and not node.args:
        return _method(node.func, inputs, depth)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise UnsupportedError(f"{name} can't be asked without the program")
    found = [value_of(arg, inputs, depth) for arg in node.args]
    if name == "len" and isinstance(found[0], Described):
        return found[0].size[0]
    return _sized(function(*found))


_METHODS: Mapping[str, Callable[[Described], Any]] = {
    "size": lambda tensor: tensor.size,
    "stride": lambda tensor: tensor.stride,
    "dim": lambda tensor: len(tensor.size),
    "storage_offset": lambda tensor: 0,
}


def _method(node: ast.Attribute, inputs: Inputs, depth: int) -> Any:
    found = value_of(node.value, inputs, depth)
    if not isinstance(found, Described):
        raise UnsupportedError(f"{_text(node.value)} is no tensor")
    return _METHODS[node.attr](found)


def _has(node: ast.Call, inputs: Inputs, depth: int) -> bool:
    found, name = (value_of(arg, inputs, depth) for arg in node.args)
    if isinstance(found, Described) and str(name).startswith(_MARKS):
        return False
    raise UnsupportedError(f"{_text(node)} is not described")


def _compare(node: ast.Compare, inputs: Inputs, depth: int) -> bool:
    left = value_of(node.left, inputs, depth)
    for sign, right_node in zip(node.ops, node.comparators, strict=True):
        right = value_of(right_node, inputs, depth)
        compare = _COMPARE.get(type(sign))
        if compare is None:
            raise UnsupportedError(f"{_text(node):.60} is not in the language of guards")
        if not compare(left, right):
            return False
        left = right
    return True


def _both(node: ast.BoolOp, inputs: Inputs, depth: int) -> bool:
    """Evaluate `and` or `or`; one side may decide although others are unknown."""
    decisive = isinstance(node.op, ast.Or)
    unknown: UnsupportedError | None = None
    for part in node.values:
        try:
            if bool(value_of(part, inputs, depth)) is decisive:
                return decisive
        except UnsupportedError as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return not decisive


def _unary(node: ast.UnaryOp, inputs: Inputs, depth: int) -> Any:
    found = value_of(node.operand, inputs, depth)
    match node.op:
        case ast.Not():
            return not found
        case ast.USub():
            return -found
        case ast.UAdd():
            return +found
    raise UnsupportedError(f"{_text(node):.60} is not arithmetic")


def _binary(node: ast.BinOp, inputs: Inputs, depth: int) -> Any:
    left, right = (value_of(side, inputs, depth) for side in (node.left, node.right))
    compute = _BINARY.get(type(node.op))
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if compute is None or not numbers:
        raise UnsupportedError(f"{_text(node):.60} is not arithmetic")
    if isinstance(node.op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        _refuse_large(left.bit_length() * max(right, 1))
    return _sized(compute(left, right))


def _sized(value: Any) -> Any:
    if isinstance(value, int):
        _refuse_large(value.bit_length())
    return value


def _refuse_large(bits: int) -> None:
    if bits > _MAX_BITS:
        raise UnsupportedError(f"a number of {bits} bits is refused")


def _choice(node: ast.IfExp, inputs: Inputs, depth: int) -> Any:
    chosen = node.body if value_of(node.test, inputs, depth) else node.orelse
    return value_of(chosen, inputs, depth)


def _several(node: ast.Tuple | ast.List, inputs: Inputs, depth: int) -> Any:
    found = [value_of(item, inputs, depth) for item in node.elts]
    return found if isinstance(node, ast.List) else tuple(found)


_NODES: dict[type[ast.expr], Callable[[Any, Inputs, int], Any]] = {
    ast.Constant: lambda node, inputs, depth: node.value,
    ast.Name: _name, ast.Subscript: _item, ast.Attribute: _attribute, ast.Call: _call,
    ast.Compare: _compare, ast.BoolOp: _both, ast.UnaryOp: _unary, ast.BinOp: _binary,
    ast.IfExp: _choice, ast.Tuple: _several, ast.List: _several,
}  # fmt: skip
