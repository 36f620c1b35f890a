"""Expressions: an operand in place of the operation, a constant in place of anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    PutConstant,
    Skip,
    SourceEdit,
    SourcePass,
    final_place,
    in_parentheses,
    parsed,
    walk,
)


@dataclass(frozen=True)
class Hoist(SourceEdit):
    """One of its operands stands in place of an operation."""

    place: Place
    operand: int

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the operand."""
        found = _operands(node)
        if self.operand >= len(found):
            raise Skip
        return in_parentheses(found[self.operand])


class HoistOperands(SourcePass):
    """Replace an operation by one of its operands: a call by an argument, `a + b` by `a`."""

    name = "operand for operation"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose, for each expression, the outer ones first, each operand."""
        return [
            Hoist(place, operand)
            for place, node in _expressions(case)
            for operand in range(len(_operands(node)))
        ]


class OwnCalls(SourcePass):
    """Replace a call of a function or class of the program by an argument: all of that may go."""

    name = "argument for call"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose, for each such call, the outer ones first, each argument."""
        own = made_here(parsed(case.text))
        return [
            Hoist(place, operand)
            for place, node in _expressions(case)
            if isinstance(node, cst.Call) and _called(node) in own
            for operand in range(len(_operands(node)))
        ]


def made_here(module: cst.Module) -> set[str]:
    """Return the names of a program's functions, methods, objects and attributes."""
    found: set[str] = set()
    for _, node in walk(module):
        match node:
            case cst.FunctionDef(name=name) | cst.AssignTarget(target=cst.Name() as name):
                found.add(name.value)
            case cst.AssignTarget(target=cst.Attribute(attr=name)):
                found.add(name.value)
    return found


def _called(call: cst.Call) -> str:
    """Return the last name of the called expression; '' if it has none."""
    match call.func:
        case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)):
            return str(name)
    return ""


class ConstantOperands(SourcePass):
    """Replace an expression that is passed, assigned, returned or tested by a constant."""

    name = "constants"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose `None` and 1 for each value, and True and False for each test."""
        found: list[SourceEdit] = []
        for place, node in _expressions(case):
            if place[-1][0] == "test":
                found += [PutConstant(place, "True"), PutConstant(place, "False")]
            elif place[-1][0] == "value" and not isinstance(node, _CONSTANTS):
                found += [PutConstant(place, "None"), PutConstant(place, "1")]
        return found


_CONSTANTS = (cst.Integer, cst.Float, cst.SimpleString, cst.Name)


def _expressions(case: SourceCase) -> list[tuple[Place, cst.BaseExpression]]:
    """Return the expressions of a program that may be edited."""
    module = parsed(case.text)
    call = (*final_place(case), ("body", 0), ("value", -1))
    func = (*call, ("func", -1))
    kept = {call, func, (*func, ("func", -1)), (*func, ("value", -1))}
    return [
        (place, node)
        for place, node in walk(module)
        if isinstance(node, cst.BaseExpression) and place not in kept and _is_read(place)
    ]


def _is_read(place: Place) -> bool:
    """Return True if an expression there is a value, and no target, name or import."""
    names = [name for name, _ in place]
    return not {"target", "targets", "names", "attr", "keyword", "name", "module"} & set(names)


def _operands(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """Return the operands that may replace an expression."""
    match node:
        case cst.Call():
            owner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
            found = [*owner, *(arg.value for arg in node.args)]
        case cst.Attribute() | cst.Subscript() | cst.StarredElement():
            found = [node.value]
        case cst.BinaryOperation() | cst.BooleanOperation():
            found = [node.left, node.right]
        case cst.UnaryOperation():
            found = [node.expression]
        case cst.Comparison():
            found = [node.left, *(target.comparator for target in node.comparisons)]
        case cst.IfExp():
            found = [node.body, node.orelse]
        case cst.List() | cst.Tuple() | cst.Set():
            found = [element.value for element in node.elements]
        case cst.ListComp() | cst.GeneratorExp():
            found = [node.for_in.iter]
        case _:
            found = []
    return [operand for operand in found if not _is_namespace(operand)]


def _is_namespace(node: cst.BaseExpression) -> bool:
    """Return True if this is a module of torch's, or something in it: no operand."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name) and node.value in ("torch", "nn", "F", "math")
