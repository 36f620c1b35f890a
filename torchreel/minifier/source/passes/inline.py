"""Inline: what a name stands for in place of the name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.passes.statements import statements
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    in_parentheses,
    names_in,
    parsed,
    statement,
    walk,
)


class InlineVariables(SourcePass):
    """Put the value of a variable that is assigned once where it is used, if that is once.

    Another name for a variable may be used more often.
    """

    name = "inline variables"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the edits, the last first."""
        module = parsed(case.text)
        uses = Counter(names_in(module))
        found: list[SourceEdit] = []
        for _, node in statements(case):
            known = _assigned(node)
            if known is not None and (uses[known[0]] == 2 or isinstance(known[1], cst.Name)):
                found.append(InlineVariable(known[0]))
        return found[::-1]


def _assigned(node: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """Return the name and the value of an assignment to one name."""
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
        if isinstance(target, cst.Name):
            return target.value, small.value
    return None


@dataclass(frozen=True)
class InlineVariable(SourceEdit):
    """One variable of the program is gone."""

    name: str
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module without it."""
        values = [known for _, n in walk(node) if (known := _assigned(n)) and known[0] == self.name]
        if len(values) != 1:
            raise Skip
        found = node.visit(_Substituted({self.name: values[0][1]}, drop=True))
        if not isinstance(found, cst.Module):
            raise Skip
        return found


class _Substituted(cst.CSTTransformer):
    """Expressions in place of names that are read; `drop` also drops their assignments."""

    def __init__(self, values: Mapping[str, cst.BaseExpression], *, drop: bool = False) -> None:
        super().__init__()
        self._values, self._drop = values, drop

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        self._values, self._kept = {}, self._values

    def leave_Attribute_attr(self, node: cst.Attribute) -> None:
        self._values = self._kept

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        self._values, self._kept = {}, self._values

    def leave_Arg_keyword(self, node: cst.Arg) -> None:
        self._values = self._kept

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self._values.get(original_node.value)
        return updated_node if value is None else in_parentheses(value)

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return not self._is_dropped(node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        return cst.RemoveFromParent() if self._is_dropped(original_node) else updated_node

    def _is_dropped(self, node: cst.CSTNode) -> bool:
        known = _assigned(node)
        return self._drop and known is not None and known[0] in self._values


class InlineFunctions(SourcePass):
    """Put the body of a function where it is called, everywhere."""

    name = "inline functions"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose the functions at the top that end with their only `return`."""
        module = parsed(case.text)
        uses = Counter(names_in(module))
        return [
            InlineFunction(node.name.value)
            for node in module.body
            if isinstance(node, cst.FunctionDef)
            and uses[node.name.value] > 1
            and _parts(node) is not None
        ]


def _parts(node: cst.FunctionDef) -> tuple[list[cst.CSTNode], cst.BaseExpression] | None:
    """Return the statements and the value of a function that can be inlined."""
    params = node.params
    odd = params.star_arg, params.star_kwarg, params.kwonly_params, params.posonly_params
    if any(part for part in odd if part is not cst.MaybeSentinel.DEFAULT) or node.decorators:
        return None
    body: list[cst.CSTNode] = list(node.body.body)
    last = body[-1] if body else None
    small = last.body[0] if isinstance(last, cst.SimpleStatementLine) else None
    value: cst.BaseExpression = cst.Name("None")
    if isinstance(small, cst.Return):
        body, value = body[:-1], small.value or value
    inner = [found for item in body for _, found in walk(item)]
    inner += [found for _, found in walk(value)]
    kinds = (cst.Return, cst.Yield, cst.FunctionDef, cst.Global, cst.Nonlocal)
    if any(isinstance(found, kinds) for found in inner) or _is_hidden(params, inner):
        return None
    return body, value


def _is_hidden(params: cst.Parameters, inner: Sequence[cst.CSTNode]) -> bool:
    """Return True if a lambda has a parameter of the same name, for which nothing may be put."""
    names = {param.name.value for param in params.params}
    lambdas = [found for found in inner if isinstance(found, cst.Lambda)]
    return any(param.name.value in names for item in lambdas for param in item.params.params)


@dataclass(frozen=True)
class InlineFunction(SourceEdit):
    """One function of the program is gone."""

    function: str
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module without it.  Raises `Skip` where a use of it is no call."""
        module = cst.ensure_type(node, cst.Module)
        defined = [
            found
            for found in module.body
            if isinstance(found, cst.FunctionDef) and found.name.value == self.function
        ]
        parts = _parts(defined[0]) if len(defined) == 1 else None
        if parts is None:
            raise Skip
        rest = module.with_changes(body=[n for n in module.body if n is not defined[0]])
        found = rest.visit(_Inlining(defined[0], *parts))
        if not isinstance(found, cst.Module) or self.function in names_in(found):
            raise Skip
        return found


class _Inlining(cst.CSTTransformer):
    """Replaces calls, with the statements of the body before the statement that calls."""

    def __init__(
        self, function: cst.FunctionDef, body: list[cst.CSTNode], value: cst.BaseExpression
    ) -> None:
        super().__init__()
        self._function, self._body, self._value = function, body, value
        self._waiting: list[list[cst.CSTNode]] = []
        self._number = 0

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._waiting.append([])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        before = self._waiting.pop()
        return cst.FlattenSentinel([*before, updated_node]) if before else updated_node  # type: ignore[list-item]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        func = updated_node.func
        if not isinstance(func, cst.Name) or func.value != self._function.name.value:
            return updated_node
        values = _arguments(self._function, updated_node)
        if values is None or (self._body and not self._waiting):
            return updated_node
        self._number += 1
        body, value, given = self._fitted(values)
        if self._waiting:
            self._waiting[-1] += [*given, *body]
        return in_parentheses(value)

    def _fitted(
        self, values: Mapping[str, cst.BaseExpression]
    ) -> tuple[list[cst.CSTNode], cst.BaseExpression, list[cst.CSTNode]]:
        """Return body and value with the arguments in place of the parameters."""
        whole = [*self._body, self._value]
        uses = Counter(name for item in whole for name in names_in(item))
        written = _written(self._body)
        direct: dict[str, cst.BaseExpression] = {}
        given: list[cst.CSTNode] = []
        for name, value in values.items():
            simple = isinstance(value, (cst.Name, cst.Integer, cst.Float, cst.SimpleString))
            if name not in written and (simple or uses[name] <= 1):
                direct[name] = value
            elif not (isinstance(value, cst.Name) and value.value == name):
                given.append(_assignment(name, value))
        put = _Substituted(direct)
        body = [found for item in self._body if isinstance(found := item.visit(put), cst.CSTNode)]
        result = self._value.visit(put)
        assert isinstance(result, cst.BaseExpression), "names become expressions"
        return body, result, given


def _written(body: Sequence[cst.CSTNode]) -> set[str]:
    """Return the names that statements bind."""
    return {
        node.value
        for item in body
        for place, node in walk(item)
        if isinstance(node, cst.Name) and any(f in ("target", "targets") for f, _ in place)
    }


def _assignment(name: str, value: cst.BaseExpression) -> cst.BaseStatement:
    line = statement(f"{name} = None")
    assert isinstance(line, cst.SimpleStatementLine), "it is one"
    assign = cst.ensure_type(line.body[0], cst.Assign)
    return line.with_changes(body=[assign.with_changes(value=value)])


def _arguments(function: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression] | None:
    """Return the values of the parameters in a call; None where they don't fit."""
    params = function.params.params
    found = {p.name.value: p.default for p in params}
    if any(arg.star for arg in call.args) or len(call.args) > len(params):
        return None
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else params[position].name.value
        if name not in found:
            return None
        found[name] = arg.value
    given = {name: value for name, value in found.items() if value is not None}
    return given if len(given) == len(found) else None
