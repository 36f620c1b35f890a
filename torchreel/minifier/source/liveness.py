"""Liveness: the functions, classes, objects and attributes that the last call reaches.

An edit that takes a use away leaves behind what was there for that use alone, often most of a
program. What had a use before and has none now goes in the same step; what had none from the start
stays, until a pass of its own tries it. Called by `syntax.finished` and `passes.statements`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

# Methods that are called without being named.
_IMPLICIT = ("forward",)
# Programs are short: the best one is asked for again and again.
_KEPT = 8


def without_newly_dead(tree: ast.Module, before: str) -> ast.Module:
    """Return a program without the code that the text `before` reached and the program does not."""
    return _without(tree, frozenset(_dead(tree)) - _dead_in(before))


def without_dead(text: str) -> str:
    """Return a program without the code that its last call does not reach."""
    return ast.unparse(_without(ast.parse(text), _dead_in(text)))


def _without(tree: ast.Module, dead: frozenset[str]) -> ast.Module:
    if not dead:
        return tree
    body = [item for item in tree.body if not _is_among(_keys(item), dead)]
    for item in body:
        if isinstance(item, ast.ClassDef):
            kept = [m for m in item.body if _method(item, m) not in dead]
            item.body = kept or [ast.Pass()]
    return ast.Module(body, tree.type_ignores)


def _is_among(keys: list[str], dead: frozenset[str]) -> bool:
    return bool(keys) and dead.issuperset(keys)


@lru_cache(maxsize=_KEPT)
def _dead_in(text: str) -> frozenset[str]:
    return frozenset(_dead(ast.parse(text)))


def _dead(tree: ast.Module) -> set[str]:
    """Return the keys of unreachable top-level definitions and methods."""
    own = {name for item in tree.body for name in _bound(item)}
    waiting = [(key, node) for item in tree.body for key, node in _pieces(item, own)]
    names: set[str] = set()
    attributes: set[str] = set(_IMPLICIT)
    grows = True
    while grows:
        reached = [node for key, node in waiting if _is_reached(key, names, attributes)]
        waiting = [found for found in waiting if not _is_reached(found[0], names, attributes)]
        for node in reached:
            _use(node, names, attributes)
        grows = bool(reached)
    return {key for key, _ in waiting if key}


def _pieces(item: ast.stmt, own: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the parts of a top-level statement, each with the key of the use that it needs.

    The key is '' for a part that is always needed, 'n' for a use of the name, 'n.a' for one of the
    name and the attribute.  The methods of a class are parts of their own.
    """
    keys = [key for key in _keys(item) if key.partition(".")[0] in own]
    if isinstance(item, ast.ClassDef):
        methods = [member for member in item.body if isinstance(member, ast.FunctionDef)]
        rest = [member for member in item.body if member not in methods]
        words = [word.value for word in item.keywords]  # metaclass=...
        yield item.name, ast.Tuple([*item.bases, *words, *item.decorator_list], ast.Load())
        yield from ((item.name, member) for member in rest)
        yield from ((_method(item, member), member) for member in methods)
    elif len(keys) == 1:
        yield keys[0], item
    else:
        yield "", item


def _is_reached(key: str, names: set[str], attributes: set[str]) -> bool:
    name, _, attribute = key.partition(".")
    implicit = attribute.startswith("__")
    return not key or (name in names and (not attribute or implicit or attribute in attributes))


def _use(node: ast.AST, names: set[str], attributes: set[str]) -> None:
    for found in ast.walk(node):
        if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Load):
            names.add(found.id)
        elif isinstance(found, ast.Attribute) and isinstance(found.ctx, ast.Load):
            attributes.add(found.attr)
        elif isinstance(found, ast.Constant) and isinstance(found.value, str):
            attributes.add(found.value)  # getattr(x, "name")


def _bound(item: ast.stmt) -> list[str]:
    return [key for key in _keys(item) if "." not in key]


def _keys(item: ast.stmt) -> list[str]:
    """Return the names that a statement defines, if it does only that: 'name' or 'name.attr'."""
    match item:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attribute)]):
            return [f"{name}.{attribute}"]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=args)):
            # object.register_buffer("attribute", ...)
            first = args[0].value if args and isinstance(args[0], ast.Constant) else None
            return [f"{name}.{first}"] if isinstance(first, str) else [name]
    return []


def _method(owner: ast.ClassDef, member: ast.stmt) -> str:
    """Return the key of a method; '' for anything else in a class."""
    return f"{owner.name}.{member.name}" if isinstance(member, ast.FunctionDef) else ""
