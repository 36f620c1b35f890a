"""Puts the modules that lie beside a program into its text, so that it is one file.

Lives here: which imports are replaced by what they import. An import stays as it is where that
would change what a name means. Not here: reading the files (`recorded_program`).
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Callable, Iterator, Mapping, Sequence

Read = Callable[[str], ast.Module | None]
"""Returns the parsed module of that name beside the program; None where there is none."""

_FUTURE = "__future__"
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def with_own_modules(program: ast.Module, read: Read) -> ast.Module:
    """Return the program with the statements of its modules in place of their imports."""
    program = _with_names(program, read)
    names = {**_imported(program), **dict.fromkeys(_bound(program.body), "")}
    body = list(_Inlined(read, names, _builtins_read(program)).statements(program.body))
    futures = [node for node in body if _is_future(node)]
    first = dict.fromkeys(map(ast.unparse, futures))
    rest = [node for node in body if not _is_future(node)]
    return ast.Module([*(ast.parse(text).body[0] for text in first), *rest], [])


class _Inlined:
    """The modules that are in the text already, and the meaning of every name at its top level.

    A builtin has one as well, as soon as one of these modules reads it.
    """

    def __init__(self, read: Read, names: Mapping[str, str], builtins_read: set[str]) -> None:
        self._read, self._names = read, dict(names)
        self._builtins = set(builtins_read)
        self._there: set[str] = set()

    def statements(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield statements, with imports of own modules replaced by those modules' statements."""
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from self._imported(node.module, node)
            else:
                yield node

    def _imported(self, name: str, node: ast.ImportFrom) -> Iterator[ast.stmt]:
        """Yield the statements that replace `from NAME import ...`, or the import if it has to
        stay.
        """
        module = None if name == _FUTURE else self._read(name)
        module = None if module is None else _Absolute(name).visit(module)
        if module is None or not self._takes(name, module, node):
            yield node
            return
        if name not in self._there:
            self._there.add(name)
            yield from self.statements(_definitions(module))
        for alias in node.names:
            if alias.asname not in (None, alias.name):
                yield ast.parse(f"{alias.asname} = {alias.name}").body[0]

    def _takes(self, name: str, module: ast.Module, node: ast.ImportFrom) -> bool:
        """Add a module's names to those of the text; False if one means something else there."""
        if name in self._there:
            return True
        imports = _imported(module)
        body = _definitions(module)
        bound = {**imports, **dict.fromkeys(_bound(body), f"{name}.")}
        asked = {alias.name for alias in node.names}
        reads = _builtins_read(ast.Module(body, []))
        if not asked <= bound.keys() or _is_relative(module):
            return False
        if reads & self._names.keys() or self._builtins & bound.keys():
            return False
        here = f"from {name} import "
        for one, text in bound.items():
            known = self._names.get(one, text)
            if known not in (text, f"{here}{one}"):
                return False
        self._names |= bound
        self._builtins |= reads
        return True


class _Absolute(ast.NodeTransformer):
    """Puts the names of modules in the place of the dots in a module's imports."""

    def __init__(self, name: str) -> None:
        self._parts = name.split(".")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """Return the import without dots; as it is where they lead out of all packages."""
        parts = self._parts[: -node.level] if node.level else []
        if not parts:
            return node
        return ast.ImportFrom(".".join([*parts, *filter(None, [node.module])]), node.names, 0)


def _is_relative(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _builtins_read(tree: ast.Module) -> set[str]:
    """Return the builtins that a program or a module reads, by names that it does not bind."""
    try:
        waiting = [symtable.symtable(ast.unparse(tree), "module", "exec")]
    except SyntaxError:  # it can be parsed, but not be run
        return set(vars(builtins))
    found: set[str] = set()
    is_top = True
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        names = (s for s in table.get_symbols() if s.is_referenced() and (is_top or s.is_global()))
        found |= {symbol.get_name() for symbol in names}
        is_top = False
    return (found & vars(builtins).keys()) - _bound(tree.body) - _imported(tree).keys()


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the names that imports bind at the top level, each with a text that identifies it."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                # `import a.b` and `import a.c` both bind `a`, and are one.
                found[name] = f"import {alias.name if alias.asname else name}"
        elif isinstance(node, ast.ImportFrom):
            start = f"from {'.' * node.level}{node.module or ''} import "
            found |= {alias.asname or alias.name: f"{start}{alias.name}" for alias in node.names}
    return found


def _bound(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that other statements bind at the top level."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found


def _definitions(module: ast.Module) -> list[ast.stmt]:
    """Return the statements that run when a module is imported, without its docstring."""
    return [node for node in module.body if not (_is_main(node) or _is_text(node))]


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == _FUTURE


def _with_names(program: ast.Module, read: Read) -> ast.Module:
    """Return the program with `from m import f` and `f` instead of `import m` and `m.f`."""
    names = {node.id for node in ast.walk(program) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(program) if isinstance(node, ast.arg)}
    names |= _imported(program).keys() | _bound(program.body)
    for place, node in enumerate(program.body):
        if not isinstance(node, ast.Import) or len(node.names) != 1:
            continue
        (alias,) = node.names
        used = _attributes_of(program, alias.asname or alias.name)
        if not used or used & names or read(alias.name) is None:
            continue
        wanted = [ast.alias(attribute) for attribute in sorted(used)]
        changed = _Shortened(alias.asname or alias.name).visit(program)
        changed.body[place] = ast.ImportFrom(alias.name, wanted, 0)
        return _with_names(ast.parse(ast.unparse(changed)), read)
    return program


def _attributes_of(program: ast.Module, name: str) -> set[str]:
    """Return the attributes that a name is only used for; none where it is used otherwise."""
    found, uses = set(), 0
    for node in ast.walk(program):
        if isinstance(node, ast.Name) and node.id == name:
            uses += 1
        elif isinstance(node, ast.Attribute) and _is_of(node, name):
            found.add(node.attr)
            uses -= 1
    return found if uses == 0 else set()


def _is_of(node: ast.Attribute, name: str) -> bool:
    """Return True for an attribute of that name's that is only read."""
    is_named = isinstance(node.value, ast.Name) and node.value.id == name
    return is_named and isinstance(node.ctx, ast.Load)


class _Shortened(ast.NodeTransformer):
    """Drops the name of a module before its attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Return the attribute as a name."""
        self.generic_visit(node)
        return ast.Name(node.attr, node.ctx) if _is_of(node, self._name) else node
