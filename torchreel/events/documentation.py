"""The documentation of classes whose fields have docstrings: types of events, rows of views."""

from __future__ import annotations

import ast
import inspect
import textwrap


def meaning(described: type) -> str:
    """Return what an instance of a class says: the docstring of the class, as one line."""
    return " ".join(inspect.cleandoc(described.__doc__ or "").split())


def meanings_of_fields(described: type) -> dict[str, str]:
    """Return what each field means, by its name in a store, in order."""
    found: dict[str, str] = {}
    for declaring in reversed(described.__mro__):
        if declaring.__module__.startswith("torchreel."):
            found |= _declared(declaring)
    # An attribute may be called otherwise in a store: class_ is class there.
    names = getattr(described, "__struct_encode_fields__", tuple(found))
    attributes = getattr(described, "__struct_fields__", tuple(found))
    return {
        name: found.get(attribute, "") for attribute, name in zip(attributes, names, strict=True)
    }


def _declared(described: type) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(described))
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = _docstring(following)
    return found


def _docstring(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else ""
    return " ".join(str(text).split())
