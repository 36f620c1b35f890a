"""Arguments, elements, parameters, bases and decorators: one less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.last_call import EXPORT
from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.passes.statements import Remove
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    code_of,
    final_place,
    instances,
    names_in,
    parsed,
    walk,
)

_BY_PARAMETER = ("args", "kwargs", "dynamic_shapes")
"""The arguments of torch.export that have something for each parameter of the module."""
_LISTS = ("args", "elements", "bases", "keywords", "decorators", "handlers")


class Arguments(SourcePass):
    """Leave out an argument of a call, an element of a list, a base class, a decorator."""

    name = "arguments"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose one edit for each, the last first; what is compiled or exported stays."""
        module = parsed(case.text)
        final = final_place(case)
        call = (*final, ("body", 0), ("value", -1))
        compiled = (*call, *([] if case.exports else [("func", -1)]), ("args", 0))
        found = [
            Remove(place)
            for place, node in walk(module)
            if place and place[-1][0] in _LISTS and place != compiled and not _is_static(node)
        ]
        defaults = [
            NoDefault(place)
            for place, node in walk(module)
            if isinstance(node, cst.Param) and node.default is not None
        ]
        return [*found[::-1], *defaults]


def _is_static(node: cst.CSTNode) -> bool:
    """Return True for a decorator that a method without `self` has to have, as torch documents it
    of `autograd.Function`.
    """
    return isinstance(node, cst.Decorator) and code_of(node.decorator) == "staticmethod"


@dataclass(frozen=True)
class NoDefault(SourceEdit):
    """A parameter has no default."""

    place: Place

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the node without it."""
        return node.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)


@dataclass(frozen=True)
class DropParameter(SourceEdit):
    """A function, or the method of a class, has one parameter less, and every call one argument."""

    function: str
    position: int
    owner: str = ""
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module without both."""
        module = cst.ensure_type(node, cst.Module)
        found = module.visit(_Dropping(self, module))
        if found is module or not isinstance(found, cst.Module):
            raise Skip
        return found


class _Dropping(cst.CSTTransformer):
    """Carries it out; in the call that ends the program the function is given to torch.compile.

    torch.export is given an object, whose `forward` it calls.
    """

    def __init__(self, edit: DropParameter, module: cst.Module) -> None:
        super().__init__()
        self._edit = edit
        self._instances = dict(instances(module))
        self._classes: list[str] = [""]
        self._name = ""
        self._is_keyword = False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self._classes.append(node.name.value)
        return True

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        self._classes.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        if self._is_it(node):
            self._name = _parameters(node)[self._edit.position].name.value
            self._is_keyword = self._edit.position >= len(node.params.params)
        self._classes.append("")
        return True

    def _is_it(self, node: cst.FunctionDef) -> bool:
        return (self._classes[-1], node.name.value) == (self._edit.owner, self._edit.function)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        self._classes.pop()
        if not self._is_it(original_node):
            return updated_node
        found = updated_node.params
        kept = [p for p in found.params if p.name.value != self._name]
        words = [p for p in found.kwonly_params if p.name.value != self._name]
        is_last = not words and isinstance(found.star_arg, cst.ParamStar)
        params = found.with_changes(
            params=[p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in kept],
            kwonly_params=[p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in words],
            star_arg=cst.MaybeSentinel.DEFAULT if is_last else found.star_arg,
        )
        return updated_node.with_changes(params=params)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if code_of(updated_node.func) == EXPORT:
            return self._exported(updated_node)
        position = self._position(updated_node.func)
        if position is None:
            return updated_node
        args = list(updated_node.args)
        named = [i for i, a in enumerate(args) if a.keyword and a.keyword.value == self._name]
        plain = not self._is_keyword and position < len(args) and args[position].keyword is None
        gone = named[0] if named else position if plain else None
        if gone is not None and not args[gone].star:
            del args[gone]
        args = [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in args]
        return updated_node.with_changes(args=args)

    def _exported(self, call: cst.Call) -> cst.Call:
        """Return the call of torch.export without the argument, and without its dynamic shapes."""
        if not call.args or self._edit.function != "forward":
            return call
        module = call.args[0].value
        made = code_of(module.func) if isinstance(module, cst.Call) else ""
        if self._edit.owner not in (made, self._instances.get(code_of(module))):
            return call
        args = [
            arg.with_changes(value=self._without(arg.value))
            if number and (arg.keyword is None or arg.keyword.value in _BY_PARAMETER)
            else arg
            for number, arg in enumerate(call.args)
        ]
        return call.with_changes(args=args)

    def _without(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """Return a collection without what belongs to the parameter, by its position or
        its name.
        """
        found: list[cst.BaseElement] | list[cst.BaseDictElement]
        if isinstance(value, (cst.Tuple, cst.List)):
            found = list(value.elements)
            if not self._is_keyword:
                del found[self._edit.position - 1 : self._edit.position]
        elif isinstance(value, cst.Dict):
            found = [e for e in value.elements if not self._is_named(e)]
        else:
            return value
        kept = [e.with_changes(comma=cst.MaybeSentinel.DEFAULT) for e in found]
        return value.with_changes(elements=kept)

    def _is_named(self, element: cst.BaseDictElement) -> bool:
        key = element.key if isinstance(element, cst.DictElement) else None
        return isinstance(key, cst.SimpleString) and key.evaluated_value == self._name

    def _position(self, func: cst.BaseExpression) -> int | None:
        """Return the argument of a call that goes; None where another function is called."""
        if isinstance(func, cst.Call) and func.args:  # torch.compile(function, ...)
            func = func.args[0].value
        edit, given = self._edit, self._edit.position
        called = func.value if isinstance(func, cst.Name) else None
        if not edit.owner:
            return given if called == edit.function else None
        bound = isinstance(func, cst.Attribute) and func.attr.value == edit.function
        # `Model.forward(model, x)` names the class, and is given the object.
        if bound and cst.ensure_type(func, cst.Attribute).value.deep_equals(cst.Name(edit.owner)):
            return given
        made = edit.function == "__init__" and called == edit.owner
        return given - 1 if bound or made else None


class Parameters(SourcePass):
    """Leave out a parameter that its function does not use, together with its arguments."""

    name = "parameters"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose those of all functions, the last first."""
        found = []
        for owner, node in _functions(parsed(case.text)):
            used = set(names_in(node.body))
            found += [
                DropParameter(node.name.value, position, owner)
                for position, param in enumerate(_parameters(node))
                if param.name.value not in used and (position or not owner)
            ]
        return found[::-1]


def _parameters(node: cst.FunctionDef) -> tuple[cst.Param, ...]:
    """Return those that a function has names for, the ones that are given by keyword alone at the
    end.
    """
    return (*node.params.params, *node.params.kwonly_params)


def _functions(node: cst.CSTNode, owner: str = "") -> Iterator[tuple[str, cst.FunctionDef]]:
    """Yield all functions, each with the name of its class."""
    for child in node.children:
        if isinstance(child, cst.FunctionDef):
            yield owner, child
        inner = child.name.value if isinstance(child, cst.ClassDef) else ""
        passed = owner if isinstance(child, (cst.IndentedBlock, cst.SimpleStatementLine)) else ""
        yield from _functions(child, inner or passed)
