"""SymPy expressions as text, with a parser that builds nodes from a closed table.

Lives here: symbols (with assumptions), expressions, torch's own functions, value ranges.  Not
here: what an expression means to a ShapeEnv (`shape_env`).  Called by every portable format that
holds a size.

The text is functional prefix form, `Add(s77, Mul(2, u0))`: one way to write an expression, no
operator precedence, nothing to evaluate.  Constants that are no numbers start with `$`.
Expressions are rebuilt unevaluated, argument by argument, so a decoded expression is structurally
equal to the recorded one, and a hostile `Pow(9, Pow(9, 99))` costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import sympy

from torchreel.errors import UnsupportedError
from torchreel.formats import names
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import shapes

MAX_DEPTH = 200  # deeper nesting than any recorded expression had by an order of magnitude
MAX_LENGTH = 1_000_000  # characters; a guard of a large sum was seen at 40,000

_SYMPY_FUNCTIONS: dict[str, type[sympy.Basic]] = {
    cls.__name__: cls
    for cls in (
        sympy.Add, sympy.Mul, sympy.Pow, sympy.Mod, sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le,
        sympy.Gt, sympy.Ge, sympy.And, sympy.Or, sympy.Not, sympy.Xor, sympy.ITE, sympy.Piecewise,
        sympy.floor, sympy.ceiling, sympy.Abs, sympy.sign, sympy.log, sympy.exp, sympy.sin,
        sympy.cos, sympy.tan, sympy.asin, sympy.acos, sympy.atan, sympy.sinh, sympy.cosh,
        sympy.tanh, sympy.Max, sympy.Min, sympy.Tuple,
    )
}  # fmt: skip

_CONSTANTS: dict[str, sympy.Basic] = {
    "$true": sympy.true,
    "$false": sympy.false,
    "$oo": sympy.oo,
    "$-oo": -sympy.oo,
    "$zoo": sympy.zoo,
    "$nan": sympy.nan,
    "$pi": sympy.pi,
    "$E": sympy.E,
    "$I": sympy.I,
    "$int_oo": shapes.int_oo,
    "$-int_oo": -shapes.int_oo,
}
_CONSTANT_NAMES = {value: name for name, value in _CONSTANTS.items()}

_compiled = cache(re.compile)  # at their first use: recording reads no expressions
_TOKEN = (
    r"\s*(?:(?P<number>-?\d{1,4000})(?![\w.])|(?P<name>[A-Za-z_]\w*)|(?P<constant>\$-?\w+)"
    r"|`(?P<quoted>[^`]*)`|\"(?P<text>[^\"]*)\"|(?P<punct>[(),]))"
)
_FLOAT = (
    r'"(?P<sign>-?)0x(?P<mantissa>[0-9a-f]{1,1000})p(?P<exponent>-?\d{1,6})", '
    r"(?P<precision>[1-9]\d{0,3})\)"
)

Symbols = Mapping[str, sympy.Symbol]


class Vocabulary(dict[str, sympy.Symbol]):
    """A symbol table that also keeps the expressions that were parsed with it.

    An event log holds most expressions many times. Expressions and their ranges are immutable.
    """

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[tuple[Json, ...], Any] = {}

    def describe(self, name: str, symbol: sympy.Symbol) -> None:
        """Enter a symbol; expressions that were parsed with another of that name are forgotten."""
        if self.get(name, symbol) != symbol:
            self._read.clear()
        self[name] = symbol

    def once(self, key: tuple[Json, ...], read: Callable[[], Any]) -> Any:
        """Return the result of `read` for `key`, calling it the first time only."""
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = read()
        return found


@cache
def _functions() -> dict[str, type[sympy.Basic]]:
    """Return the closed table: SymPy's classes and torch's own, by class name (torch's win)."""
    return {**_SYMPY_FUNCTIONS, **shapes.sympy_functions()}


def function_names() -> frozenset[str]:
    """Return the names of the functions that an expression may call."""
    return frozenset({*_functions(), "Float", "Rational"})


def constant_names() -> frozenset[str]:
    """Return the names of the constants that an expression may hold."""
    return frozenset(_CONSTANTS)


def encode_expr(expr: object) -> int | str:
    """Return an expression as text; an integer stays an integer.

    Raises `UnsupportedError` for a node that the closed table does not hold.
    """
    if isinstance(expr, (bool, sympy.logic.boolalg.BooleanAtom)):
        return "$true" if expr else "$false"
    if isinstance(expr, (int, sympy.Integer)):
        return int(expr)
    if isinstance(expr, float):
        expr = sympy.Float(expr)
    return _write(expr)


def _write(expr: object) -> str:
    if isinstance(expr, sympy.Symbol):
        return expr.name if re.fullmatch(r"[A-Za-z_]\w*", expr.name) else f"`{expr.name}`"
    if isinstance(expr, sympy.Integer):
        return str(int(expr))
    if isinstance(expr, sympy.Rational):
        return f"Rational({expr.p}, {expr.q})"
    if isinstance(expr, sympy.Float):
        sign, mantissa, exponent, _ = expr._mpf_
        return f'Float("{"-" * sign}0x{int(mantissa):x}p{int(exponent)}", {expr._prec})'
    if isinstance(expr, shapes.SingletonInt):
        return "SingletonInt({}, {})".format(*shapes.singleton_parts(expr))
    if isinstance(expr, sympy.Basic):
        if expr in _CONSTANT_NAMES:
            return _CONSTANT_NAMES[expr]
        name = type(expr).__name__
        if _functions().get(name) is not None or type(expr) is _CASE:
            return f"{name}({', '.join(map(_write, expr.args))})"
    raise UnsupportedError(
        f"the expression node {type(expr).__name__} has no portable form (found in {expr!s:.80})"
    )


def decode_expr(text: int | str | Json, symbols: Symbols) -> sympy.Basic:
    """Return the expression written as `text`, over the given symbols.

    Raises `UnsupportedError` for an unknown function or symbol, and for text that is too long, too
    deep or malformed.
    """
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise UnsupportedError(f"an expression is text or an integer, found {text!r:.80}")
    if isinstance(text, int):
        return sympy.Integer(text)
    if len(text) > MAX_LENGTH:
        raise UnsupportedError(f"an expression of {len(text)} characters exceeds {MAX_LENGTH}")
    parser = _Parser(text, symbols)
    if isinstance(symbols, Vocabulary):
        return symbols.once((text,), parser.parse)
    return parser.parse()


class _Parser:
    """Recursive descent over `name(arg, ...)`."""

    def __init__(self, text: str, symbols: Symbols) -> None:
        self.text, self.symbols, self.position = text, symbols, 0
        self.functions = _functions()

    def parse(self) -> sympy.Basic:
        result = self._expression(0)
        if self.text[self.position :].strip():
            raise self._error("the end")
        return result

    def _error(self, wanted: str) -> UnsupportedError:
        found = self.text[self.position : self.position + 20] or "the end"
        return UnsupportedError(f"malformed expression: wanted {wanted}, found {found!r}")

    def _token(self) -> re.Match[str]:
        match = _compiled(_TOKEN).match(self.text, self.position)
        if match is None:
            raise self._error("a name, number or bracket")
        self.position = match.end()
        return match

    def _expression(self, depth: int) -> sympy.Basic:
        if depth > MAX_DEPTH:
            raise UnsupportedError(f"an expression nested deeper than {MAX_DEPTH} is refused")
        token = self._token()
        if token["number"] is not None:
            return sympy.Integer(int(token["number"]))
        if token["constant"] is not None:
            return self._constant(token["constant"])
        if token["quoted"] is not None:
            return self._symbol(token["quoted"])
        if token["name"] is None:
            raise self._error("an expression")
        if self.text[self.position : self.position + 1] != "(":
            return self._symbol(token["name"])
        return self._call(token["name"], depth)

    def _constant(self, name: str) -> sympy.Basic:
        if name not in _CONSTANTS:
            raise UnsupportedError(f"unknown constant {name!r} in an expression")
        return _CONSTANTS[name]

    def _symbol(self, name: str) -> sympy.Basic:
        if name not in self.symbols:
            raise UnsupportedError(f"the symbol {name!r} is in no symbol table of this document")
        return self.symbols[name]

    def _call(self, name: str, depth: int) -> sympy.Basic:
        self.position += 1
        if name == "Float":
            return self._float()
        args: list[sympy.Basic] = []
        while self.text[self.position : self.position + 1] != ")":
            args.append(self._expression(depth + 1))
            if self._token()["punct"] not in (",", ")"):
                raise self._error("',' or ')'")
            if self.text[self.position - 1] == ")":
                return self._build(name, args)
        self.position += 1
        return self._build(name, args)

    def _float(self) -> sympy.Basic:
        # Mantissa and exponent as integers: SymPy's floats may be wider than a machine's.
        match = _compiled(_FLOAT).match(self.text, self.position)
        if match is None:
            raise self._error("a hexadecimal float and its precision")
        self.position = match.end()
        mantissa, exponent = int(match["mantissa"], 16), int(match["exponent"])
        parts = (int(match["sign"] == "-"), mantissa, exponent, mantissa.bit_length())
        # SymPy makes an Integer of parts that are zero.
        return sympy.Float(parts if mantissa else 0.0, precision=int(match["precision"]))

    def _build(self, name: str, args: list[sympy.Basic]) -> sympy.Basic:
        if name in ("Rational", "SingletonInt"):
            return _of_integers(name, args)
        if name == _CASE.__name__:
            return _case(args)
        function = self.functions.get(name)
        if function is None:
            raise UnsupportedError(f"the function {name!r} is not allowed in an expression")
        return _construct(function, args)


_CASE = sympy.functions.elementary.piecewise.ExprCondPair
"""One case of a `Piecewise`: a value, and when it holds."""


def _case(args: list[sympy.Basic]) -> sympy.Basic:
    if len(args) != 2 or not isinstance(args[1], sympy.logic.boolalg.Boolean):
        raise UnsupportedError(f"a case is an expression and a condition, found {args!s:.80}")
    return _CASE(*args)


def _of_integers(name: str, args: list[sympy.Basic]) -> sympy.Basic:
    """Return a node that holds two numbers, and no expressions."""
    numbers = [int(arg) for arg in args if isinstance(arg, sympy.Integer)]
    if len(numbers) != 2 or len(args) != 2:
        raise UnsupportedError(f"{name} takes two integers, found {args!s:.80}")
    if name == "Rational":
        return sympy.Rational(*numbers)
    return shapes.SingletonInt(numbers[0], coeff=numbers[1])


def _construct(function: Callable[..., sympy.Basic], args: list[sympy.Basic]) -> sympy.Basic:
    """Build a node as recorded: unevaluated where the class can, evaluated otherwise."""
    try:
        return function(*args, evaluate=False)
    except (TypeError, ValueError, AttributeError, AssertionError, IndexError) as error:
        raise UnsupportedError(
            f"{getattr(function, '__name__', function)} does not take {len(args)} such arguments: "
            f"{error}"
        ) from error


def encode_symbol(symbol: sympy.Symbol) -> list[str]:
    """Return the assumptions of a symbol, each as `name` or `!name`, sorted."""
    given: Mapping[str, bool | None] = symbol._assumptions_orig
    return sorted(key if value else f"!{key}" for key, value in given.items() if value is not None)


def encode_name(symbol: sympy.Symbol) -> list[Json]:
    """Return, as data, the name and assumptions of a symbol that is in no size and no table.

    A program gives it any name it likes: `n#0` in a `shapes_spec`, `L['x'].size()[0]`.
    """
    return [symbol.name, encode_symbol(symbol)]


def decode_name(data: Json) -> sympy.Symbol:
    """Return the symbol that `encode_name` wrote; it must not get into expressions of code."""
    if not isinstance(data, list) or len(data) != 2 or not isinstance(data[0], str):
        raise UnsupportedError(f"malformed name of a symbol: {data!r:.80}")
    return sympy.Symbol(data[0], **decode_symbol("s0", data[1])._assumptions_orig)


# fmt: off
_ASSUMPTIONS = frozenset({
    "integer", "positive", "negative", "nonnegative", "nonpositive", "zero", "nonzero", "real",
    "finite", "infinite", "commutative", "even", "odd", "rational", "extended_real", "complex",
    "hermitian",
})
# fmt: on


def decode_symbol(name: str, assumptions: Json) -> sympy.Symbol:
    """Return a symbol with its recorded assumptions.

    Raises `UnsupportedError` for an unknown one.
    """
    if not isinstance(assumptions, list):
        raise UnsupportedError(f"the symbol {name!r} has no list of assumptions")
    given: dict[str, bool] = {}
    for item in assumptions:
        key = str(item).removeprefix("!")
        if key not in _ASSUMPTIONS:
            raise UnsupportedError(f"unknown assumption {item!r} of the symbol {name!r}")
        given[key] = not str(item).startswith("!")
    try:
        return sympy.Symbol(names.check_name(name, "symbol"), **given)
    except ValueError as error:  # SymPy's InconsistentAssumptions
        raise UnsupportedError(
            f"the assumptions {assumptions!r:.80} of the symbol {name!r} exclude one another"
        ) from error
