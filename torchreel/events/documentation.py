"""The documentation of types of events: what the docstrings in their source say."""

from __future__ import annotations

import ast
import inspect
import textwrap

from torchreel.events.event import EventType


def meaning(event_type: type[EventType]) -> str:
    """Return what an event of a type says: the docstring of the class, as one line."""
    return " ".join(inspect.cleandoc(event_type.__doc__ or "").split())


def meanings_of_fields(event_type: type[EventType]) -> dict[str, str]:
    """Return what each field means, by its name in a store, in order."""
    source = textwrap.dedent(inspect.getsource(event_type))
    [definition] = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = _docstring(following)
    names = event_type.__struct_encode_fields__
    return {
        name: found.get(attribute, "")
        for attribute, name in zip(event_type.__struct_fields__, names, strict=True)
    }


def _docstring(statement: ast.stmt) -> str:
    value = statement.value if isinstance(statement, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else ""
    return " ".join(str(text).split())
