"""Secrets of a program by its syntax: texts that its source gives a telling name, by whatever way.

Lives here: `texts`, which reads Python as a tree: what is assigned, passed, compared,
returned or matched under a name that says that it is secret, or given to a function of such a name.
Not here: which names say so (`name_strength`), the same in a text that is no program (`names`),
values of variables (`frames.secrets`).  Called by `redactor`, once for each file of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from torchreel import python_source
from torchreel.patterns import lazy_text
from torchreel.recorder.redaction.known import name_strength
from torchreel.recorder.redaction.known.name_strength import MAYBE, NOT, Strength
from torchreel.recorder.redaction.literals import literals, unescaped

_SAME_TEXT = frozenset(
    {
        "str", "bytes", "bytearray", "list", "tuple", "set", "frozenset", "dict", "encode",
        "decode", "strip", "join", "format", "lower", "upper", "removeprefix", "removesuffix",
        "field", "Field", "fromhex", "b64decode",
    }
)  # fmt: skip
"""Functions whose result is the text that they are given."""
_READERS = frozenset({"open", "Path", "getenv", "get", "pop", "read", "isinstance"})
"""Functions that are given where the text is to be found."""
_VALUES = frozenset({"default", "value", "const"})
"""Arguments that hold the value where the argument before holds the name."""
_COMPARES = lazy_text(r"(?i)compare|equal|check|verify|validate|matches")
_SEEN = "torchreel_strength"
"""The attribute of a node that has the strength with which its texts were found."""
_LONGEST = 1 << 19
"""Characters of a source that is read: half a second's work."""


class _Found(NamedTuple):
    node: ast.Constant
    strength: Strength


class Texts(NamedTuple):
    """The texts of a program: those that are secret by its syntax, and all others."""

    secret: set[str]
    others: set[str]


def texts(source: str) -> Texts:
    """Return the texts of a program; none if it is no program."""
    found = Texts(set(), set())
    tree = _parsed(source)
    if tree is None:
        return found
    lines = source.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    nodes = list(ast.walk(tree))
    parameters = _parameters(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            found.others.add(_text(node))
        rule = _RULES.get(type(node))
        with suppress(RecursionError):  # of a sum of a thousand terms, which are no secret's
            for one in (*(rule(node) if rule is not None else ()), *_given(node, parameters)):
                spelled = _spelled(one.node, lines)
                secret = (text for text in spelled if name_strength.is_value(text, one.strength))
                found.secret.update(secret)
    return found


def _text(node: ast.Constant) -> str:
    value: Any = node.value
    return str(value.decode("latin-1") if isinstance(value, bytes) else value)


def _parsed(source: str) -> ast.Module | None:
    """Return the tree of a source; None if it is too long or invalid."""
    if len(source) > _LONGEST:
        return None
    try:
        return python_source.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _spelled(node: ast.Constant, lines: Sequence[bytes]) -> Iterator[str]:
    """Yield a text, and the literals that stand for it where there are several."""
    yield _text(node).strip()
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    segment = b"".join(lines[first : last + 1])
    end = len(segment) - len(lines[last]) + (node.end_col_offset or 0)
    parts = [part for part in literals(segment, node.col_offset, end) if not part.is_number]
    if len(parts) > 1:
        yield from (unescaped(segment[part.inner : part.inner_end]) for part in parts)


# -- what stands under a name -------------------------------------------------------------------


def _bound(target: ast.AST | None, value: ast.AST | None) -> Iterator[_Found]:
    """Yield the texts that an assignment gives to names of secrets, one by one if it unpacks."""
    many = (ast.Tuple, ast.List)
    if not (isinstance(target, many) and isinstance(value, many)):
        yield from _values(value, _strength(target))
    elif len(target.elts) == len(value.elts):
        for one, item in zip(target.elts, value.elts, strict=True):
            yield from _bound(one, item)


def _strength(node: ast.AST | None) -> Strength:
    """Return the highest grade of the names in an expression: of `cfg.token.value`, say."""
    if isinstance(node, ast.Name):
        return name_strength.strength(node.id)
    if isinstance(node, ast.Attribute):
        return max(name_strength.strength(node.attr), _strength(node.value))
    if isinstance(node, ast.Subscript):
        return max(_named(node.slice), _strength(node.value))
    if isinstance(node, (ast.Tuple, ast.List)):
        return max(map(_strength, node.elts), default=NOT)
    return _strength(node.value) if isinstance(node, ast.Starred) else NOT


def _named(node: ast.AST | None) -> Strength:
    """Return the grade of a text that is used as a name: a key, an option, a format."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return name_strength.strength_of_text(node.value)
    return NOT


def _values(node: ast.AST | None, strength: Strength) -> Iterator[_Found]:
    """Yield the texts that an expression may come to, each once."""
    if strength is NOT or node is None or getattr(node, _SEEN, NOT) >= strength:
        return
    setattr(node, _SEEN, strength)  # else nested calls would each walk through all below them
    if isinstance(node, ast.Constant):
        if isinstance(node.value, (str, bytes)):
            yield _Found(node, strength)
    elif isinstance(node, ast.Call):
        yield from _through(node, strength)
    elif isinstance(node, ast.Subscript):
        yield from _values(node.value, MAYBE)
    elif isinstance(node, ast.Compare):
        return
    else:
        for child in _parts(node):
            yield from _values(child, strength)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that a value is made of; the keys of a dictionary are none."""
    if isinstance(node, ast.Dict):
        yield from node.values
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Lambda):
        yield node.body
    elif not isinstance(node, ast.Attribute):
        yield from ast.iter_child_nodes(node)


def _through(call: ast.Call, strength: Strength) -> Iterator[_Found]:
    """Yield the texts that go through a call.

    The result of an unknown function counts only as MAYBE: its argument may be a mode.
    """
    name = _callee(call)
    arguments = call.args[1:] if name in _READERS else call.args
    if name not in _READERS and name not in _SAME_TEXT:
        strength = MAYBE
    if isinstance(call.func, (ast.Attribute, ast.Lambda)):
        yield from _values(getattr(call.func, "value", call.func), strength)
    for argument in (*arguments, *(one.value for one in call.keywords)):
        yield from _values(argument, strength)


def _callee(call: ast.Call) -> str:
    """Return the last part of the name of the called function."""
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


# -- what a function of the same source is given -------------------------------------------------


def _parameters(nodes: Sequence[ast.AST]) -> Mapping[str, Sequence[Strength]]:
    """Return the grades of the positional parameters of each function that has a telling one.

    A class has those of its constructor.  A method is called without its first.
    """
    found: dict[str, Sequence[Strength]] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    found[node.name] = _grades(method)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = _grades(node)
    return {name: grades for name, grades in found.items() if any(grades)}


def _grades(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Sequence[Strength]:
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return [name_strength.strength(name) for name in names]


def _given(node: ast.AST, parameters: Mapping[str, Sequence[Strength]]) -> Iterator[_Found]:
    """Yield what a call gives to telling parameters: `fetch("x")` of `def fetch(password)`."""
    if isinstance(node, ast.Call):
        for argument, strength in zip(node.args, parameters.get(_callee(node), ()), strict=False):
            yield from _values(argument, strength)


# -- rules, by the type of a node ---------------------------------------------------------------


def _assign(node: ast.Assign) -> Iterator[_Found]:
    for target in node.targets:
        yield from _bound(target, node.value)


def _call(node: ast.Call) -> Iterator[_Found]:
    """Yield what each rule for calls finds."""
    yield from _given_to_secret(node)
    yield from _after_name(node)
    yield from _beside_secret(node)
    yield from _format_arguments(node)


def _given_to_secret(node: ast.Call) -> Iterator[_Found]:
    """Yield the arguments of a function with a telling name: `Token("x")`."""
    strength = _strength(node.func)
    if name_strength.is_failure(_callee(node)):
        strength = min(strength, MAYBE)
    given = [*node.args, *(one.value for one in node.keywords if one.arg is None)]
    for argument in given[1:] if _callee(node) in _READERS else given:
        yield from _values(argument, strength)
    for keyword in node.keywords:
        yield from _values(keyword.value, min(strength, MAYBE))


def _after_name(node: ast.Call) -> Iterator[_Found]:
    """Yield what follows a telling name: `f("token", "x")`, `f("token", default="x")`."""
    named = max((_named(one) for one in node.args[:2]), default=NOT)
    by_keyword = [one.value for one in node.keywords if one.arg in _VALUES]
    for argument in (*node.args[1:], *by_keyword):
        yield from _values(argument, named)


def _beside_secret(node: ast.Call) -> Iterator[_Found]:
    """Yield constants beside a secret argument: `check(token, "x")`."""
    beside = max((_strength(one) for one in node.args), default=NOT)
    beside = beside if _COMPARES.search(_callee(node)) else min(beside, MAYBE)
    for argument in node.args:
        if isinstance(argument, ast.Constant):
            yield from _values(argument, beside)


def _format_arguments(node: ast.Call) -> Iterator[_Found]:
    """Yield what is put into a text with a telling name: `"token={}".format("x")`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        for argument in node.args:
            yield from _values(argument, _named(node.func.value))


def _dict(node: ast.Dict) -> Iterator[_Found]:
    for key, value in zip(node.keys, node.values, strict=True):
        yield from _values(value, _named(key))


def _pair(node: ast.Tuple | ast.List) -> Iterator[_Found]:
    if len(node.elts) == 2:
        yield from _values(node.elts[1], _named(node.elts[0]))


def _function(node: Any) -> Iterator[_Found]:
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = node.args.defaults
    pairs = [
        *zip(positional[len(positional) - len(defaults) :], defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        yield from _values(default, name_strength.strength(argument.arg))
    strength = name_strength.strength(getattr(node, "name", ""))
    if strength is not NOT:
        for inner in _inside(node):
            if isinstance(inner, (ast.Return, ast.Yield)):
                yield from _values(inner.value, strength)


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in a function, except for inner definitions whose names mark a secret."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if name_strength.strength(getattr(node, "name", None) or "") is NOT:
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _class(node: ast.ClassDef) -> Iterator[_Found]:
    strength = name_strength.strength(node.name)
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            yield from _values(statement.value, strength)


def _compare(node: ast.Compare) -> Iterator[_Found]:
    sides = [node.left, *node.comparators]
    strength = max(map(_strength, sides))
    for side in sides:
        yield from _values(side, strength)


def _match(node: ast.Match) -> Iterator[_Found]:
    for case in node.cases:
        yield from _patterns(case.pattern, _strength(node.subject))


def _patterns(node: ast.AST | None, strength: Strength) -> Iterator[_Found]:
    if isinstance(node, ast.MatchValue):
        yield from _values(node.value, strength)
    elif isinstance(node, ast.MatchMapping):
        for key, pattern in zip(node.keys, node.patterns, strict=True):
            yield from _patterns(pattern, max(strength, _named(key)))
    elif isinstance(node, ast.MatchClass):
        inside = max(strength, _strength(node.cls))
        for pattern in node.patterns:
            yield from _patterns(pattern, inside)
        for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            yield from _patterns(pattern, max(inside, name_strength.strength(name)))
    elif node is not None:
        for child in ast.iter_child_nodes(node):
            yield from _patterns(child, strength)


def _alternative(node: ast.BoolOp) -> Iterator[_Found]:
    """Yield `os.getenv("API_TOKEN") or "x"`."""
    calls = [one for one in node.values if isinstance(one, ast.Call)]
    strength = max((_named(one) for call in calls for one in call.args[:1]), default=NOT)
    for one in node.values:
        if one not in calls:
            yield from _values(one, strength)


def _formatted(node: ast.BinOp) -> Iterator[_Found]:
    if isinstance(node.op, ast.Mod):
        yield from _values(node.right, _named(node.left))


def _targeted(node: Any) -> Iterator[_Found]:
    yield from _bound(node.target, getattr(node, "value", None) or getattr(node, "iter", None))


_RULES: Mapping[type, Callable[[Any], Iterator[_Found]]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _targeted,
    ast.AugAssign: _targeted,
    ast.NamedExpr: _targeted,
    ast.For: _targeted,
    ast.AsyncFor: _targeted,
    ast.comprehension: _targeted,
    ast.withitem: lambda node: _bound(node.optional_vars, node.context_expr),
    ast.keyword: lambda node: _values(node.value, name_strength.strength(node.arg or "")),
    ast.Call: _call,
    ast.Dict: _dict,
    ast.Tuple: _pair,
    ast.List: _pair,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Lambda: _function,
    ast.ClassDef: _class,
    ast.Compare: _compare,
    ast.Match: _match,
    ast.BinOp: _formatted,
    ast.BoolOp: _alternative,
}
