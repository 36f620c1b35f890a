"""Arguments, elements, parameters, bases and decorators: one less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.source.case import SourceCase
from torchreel.minifier.source.passes.statements import Remove
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    final_place,
    names_in,
    parsed,
    walk,
)

_LISTS = ("args", "elements", "bases", "keywords", "decorators", "handlers")


class Arguments(SourcePass):
    """Leave out an argument of a call, an element of a list, a base class, a decorator."""

    name = "arguments"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Each, the last first; what is compiled stays."""
        module = parsed(case.text)
        final = final_place(module)
        compiled = (*final, ("body", 0), ("value", -1), ("func", -1), ("args", 0))
        found = [
            Remove(place)
            for place, _ in walk(module)
            if place and place[-1][0] in _LISTS and place != compiled
        ]
        defaults = [
            NoDefault(place)
            for place, node in walk(module)
            if isinstance(node, cst.Param) and node.default is not None
        ]
        return [*found[::-1], *defaults]


@dataclass(frozen=True)
class NoDefault(SourceEdit):
    """A parameter has no default."""

    place: Place

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Without it."""
        return node.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)


@dataclass(frozen=True)
class DropParameter(SourceEdit):
    """A function has one parameter less, and every call of its name one argument."""

    function: str
    position: int
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """The module without both."""
        module = cst.ensure_type(node, cst.Module)
        found = module.visit(_Dropping(self.function, self.position))
        if found is module or not isinstance(found, cst.Module):
            raise Skip
        return found


class _Dropping(cst.CSTTransformer):
    """Carries it out; in the call that ends the program the function is given to torch.compile."""

    def __init__(self, function: str, position: int) -> None:
        super().__init__()
        self._function, self._position = function, position
        self._name = ""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        if node.name.value == self._function:
            self._name = node.params.params[self._position].name.value
        return True

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        if original_node.name.value != self._function:
            return updated_node
        params = list(updated_node.params.params)
        del params[self._position]
        params = [p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in params]
        return updated_node.with_changes(params=updated_node.params.with_changes(params=params))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self._is_of_function(updated_node.func):
            return updated_node
        args = list(updated_node.args)
        named = [i for i, a in enumerate(args) if a.keyword and a.keyword.value == self._name]
        plain = self._position < len(args) and args[self._position].keyword is None
        gone = named[0] if named else self._position if plain else None
        if gone is not None and not args[gone].star:
            del args[gone]
        args = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in args]
        return updated_node.with_changes(args=args)

    def _is_of_function(self, func: cst.BaseExpression) -> bool:
        if isinstance(func, cst.Call) and func.args:  # torch.compile(function, ...)
            func = func.args[0].value
        return isinstance(func, cst.Name) and func.value == self._function


class Parameters(SourcePass):
    """Leave out a parameter that its function does not use, together with its arguments."""

    name = "parameters"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Those of functions at the top, the last first."""
        found = []
        for node in parsed(case.text).body:
            if isinstance(node, cst.FunctionDef):
                used = set(names_in(node.body))
                found += [
                    DropParameter(node.name.value, position)
                    for position, param in enumerate(node.params.params)
                    if param.name.value not in used
                ]
        return found[::-1]
