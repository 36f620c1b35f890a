"""Classes: functions and globals in their place; one instance in place of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from torchreel.minifier.cases.source_case import SourceCase
from torchreel.minifier.source.syntax import (
    Place,
    Skip,
    SourceEdit,
    SourcePass,
    code_of,
    instances,
    names_in,
    parsed,
)

# Calling an object calls this method of it.
_CALLED = ("forward", "__call__")


class MergeInstances(SourcePass):
    """Let one object stand for another of its class."""

    name = "merge instances"
    together = True

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose to replace each by the first of its class, then by the last one before it."""
        module = parsed(case.text)
        own = _classes(module)
        return _merges([found for found in instances(module) if found[1] in own])


class MergeValues(SourcePass):
    """Let the result of one call stand for that of another of the same function.

    Large programs have many (`torch.ones(3)`), most of which go with their statements.
    """

    name = "merge values"
    together = True

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose, for each, what `MergeInstances` does."""
        module = parsed(case.text)
        own = _classes(module)
        return _merges([found for found in instances(module) if found[1] not in own])


def _classes(module: cst.Module) -> set[str]:
    return {node.name.value for node in module.body if isinstance(node, cst.ClassDef)}


def _merges(found: Sequence[tuple[str, str]]) -> list[SourceEdit]:
    """Return the edits that replace each name by the first of its kind, then by the last before."""
    firsts: list[SourceEdit] = []
    lasts: list[SourceEdit] = []
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for name, kind in found:
        if kind in first:
            firsts.append(One(name, first[kind]))
            lasts += [One(name, last[kind])] if last[kind] != first[kind] else []
        first.setdefault(kind, name)
        last[kind] = name
    return [*firsts, *lasts]


@dataclass(frozen=True)
class One(SourceEdit):
    """`old` is replaced by `new`, and the assignments to `old` are gone."""

    old: str
    new: str
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module with one object less."""
        module = cst.ensure_type(node, cst.Module)
        kept = [item for item in module.body if not _assigns_to(item, self.old)]
        found = module.with_changes(body=kept).visit(_Renamed({self.old: self.new}))
        if not isinstance(found, cst.Module):
            raise Skip
        return found


def _target(node: cst.CSTNode) -> cst.BaseExpression | None:
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        return small.targets[0].target
    return None


def _assigns_to(node: cst.CSTNode, name: str) -> bool:
    """Return True if this is `name = ...` or `name.attribute = ...`."""
    target = _target(node)
    if isinstance(target, cst.Attribute):
        target = target.value
    return isinstance(target, cst.Name) and target.value == name


class Flatten(SourcePass):
    """Make the methods of a class functions, and the attributes of its only object globals."""

    name = "flatten classes"

    def edits(self, case: SourceCase) -> Sequence[SourceEdit]:
        """Propose one edit for each class with one object."""
        module = parsed(case.text)
        found = instances(module)
        kinds = [kind for _, kind in found]
        return [
            FlattenClass(node.name.value, name)
            for node in module.body
            if isinstance(node, cst.ClassDef)
            for name, kind in found
            if kind == node.name.value and kinds.count(kind) == 1
        ]


@dataclass(frozen=True)
class FlattenClass(SourceEdit):
    """One class of the program, and its only object, are gone."""

    kind: str
    instance: str
    place: Place = ()

    def change(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the module without both: names that are left undefined make it no program."""
        module = cst.ensure_type(node, cst.Module)
        body: list[cst.CSTNode] = []
        defined = next(n for n in module.body if isinstance(n, cst.ClassDef) and self._is_it(n))
        own = Counter(map(_member, defined.body.body))  # in the class, where they take no name
        taken = set(Counter(names_in(module)) - own)
        names = self._names(defined, module, taken)
        for item in module.body:
            if item is defined:
                body += self._functions(defined, names)
            elif code_of(_target(item) or cst.Name("_")) != self.instance:
                body.append(item)
        found = module.with_changes(body=body).visit(_Flattened(self.kind, self.instance, names))
        if not isinstance(found, cst.Module):
            raise Skip
        return found

    def _is_it(self, node: cst.ClassDef) -> bool:
        return node.name.value == self.kind

    def _names(self, defined: cst.ClassDef, module: cst.Module, taken: set[str]) -> dict[str, str]:
        """Return the name of each attribute and method as a global."""
        attributes = [_member(item) for item in defined.body.body]
        for item in module.body:
            target = _target(item)
            if isinstance(target, cst.Attribute) and code_of(target.value) == self.instance:
                attributes.append(target.attr.value)
        found: dict[str, str] = {}
        for name in dict.fromkeys(filter(None, attributes)):
            fresh = name if name not in taken else f"{self.instance}_{name}"
            found[name] = self.instance if name in _CALLED else fresh
        return found

    def _functions(self, defined: cst.ClassDef, names: Mapping[str, str]) -> list[cst.CSTNode]:
        """Return the members of the class as statements for the top of the module."""
        found: list[cst.CSTNode] = []
        for item in defined.body.body:
            if isinstance(item, cst.FunctionDef):
                found.append(_as_function(item, names[item.name.value], self.instance))
            elif code_of(item).strip() != "pass":
                found.append(item)
        return found


def _member(node: cst.CSTNode) -> str:
    if isinstance(node, cst.FunctionDef):
        return node.name.value
    target = _target(node)
    return target.value if isinstance(target, cst.Name) else ""


def _as_function(method: cst.FunctionDef, name: str, instance: str) -> cst.CSTNode:
    """Return a method as a function whose first parameter is replaced by the only object."""
    static = any(code_of(d.decorator) == "staticmethod" for d in method.decorators)
    params = list(method.params.params)
    if not static and not params:
        raise Skip
    owner, kept = ("", params) if static else (params[0].name.value, params[1:])
    body = method.body.visit(_Renamed({owner: instance}))
    kept = [p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in kept]
    return method.with_changes(
        name=cst.Name(name),
        params=method.params.with_changes(params=kept),
        body=body,
        decorators=[],
    )


class _Renamed(cst.CSTTransformer):
    """Other names for variables."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self._names = names

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = self._names.get(original_node.value)
        return updated_node if new is None else cst.Name(new)


class _Flattened(cst.CSTTransformer):
    """`object.attribute` and `Class.method` are globals; a method's call has no object."""

    def __init__(self, kind: str, instance: str, names: Mapping[str, str]) -> None:
        super().__init__()
        self._owners = {kind, instance}
        self._kind, self._instance, self._names = kind, instance, names

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        owner = original_node.value
        if isinstance(owner, cst.Name) and owner.value in self._owners:
            new = self._names.get(original_node.attr.value)
            if new is not None:
                return cst.Name(new)
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = original_node.func
        if isinstance(func, cst.Call) and func.args:  # torch.compile(Class.method, ...)
            func = func.args[0].value
        unbound = isinstance(func, cst.Attribute) and code_of(func.value) == self._kind
        if not unbound or not updated_node.args:
            return updated_node
        if code_of(updated_node.args[0].value) != self._instance:
            return updated_node
        return updated_node.with_changes(args=updated_node.args[1:])
