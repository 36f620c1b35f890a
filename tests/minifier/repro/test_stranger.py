"""A repro is run before it is handed out: nothing that a stranger's case says may become code.

Each value, and each key, of the documents of some cases is replaced by text that would be code and
by what refers to it; whatever script is made of that names it in strings and comments only.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.minifier.scripts.test_script import CASES, FORMS, SIGNATURE
from torchreel.errors import UnsupportedError
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.minifier.cases.protocol import case_from_bytes
from torchreel.minifier.scripts.inputs import InputLines
from torchreel.store import canonical_json

MARK = "owned"
CALL = f"__import__('os').{MARK}()"
HOSTILE: tuple[Any, ...] = (
    CALL, f"x\n{CALL}\n#", f'"){CALL}#', f"{MARK}.run", [CALL], {"n": CALL}, {"fn": f"{MARK}.run"},
    {"sym": {"k": "symint", "expr": MARK, "hint": 1}}, {"dtype": CALL}, {"device": CALL},
    {"t": [{"n": CALL}]}, {CALL: CALL}, {"d": [[{"n": CALL}, {"n": CALL}]]},
)  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    yield path
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*path, key))


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with something else at that place."""
    tree = copy.deepcopy(tree)
    owner = tree
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return tree


def called(text: str) -> list[str]:
    """Where a program calls, imports or reads what bears the mark.

    An attribute of torch that is only handed on, as a dtype that does not exist, does nothing.
    """
    found = []
    for node in ast.walk(ast.parse(text)):
        names = (
            [node.func.attr] if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            else [node.id] if isinstance(node, ast.Name)
            else [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [str(node.module)] if isinstance(node, ast.ImportFrom)
            else []
        )  # fmt: skip
        found += [ast.unparse(node) for name in names if MARK in name]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one dynamic size"])
def test_nothing_of_a_case_becomes_code(kind: str) -> None:
    document = CASES[kind]().to_json()
    scripts = 0
    for path in list(places(document))[1:]:
        if path[-1] in ("stack_trace", "source_fn_stack") or "shape_env" in path[:2]:
            continue  # neither is looked at
        for value in HOSTILE:
            hostile = canonical_json(changed(document, path, value))
            for form in FORMS.values():
                text = ""
                # What it refuses, and how, is the business of other tests.
                with suppress(Exception):
                    text = form(case_from_bytes(hostile), SIGNATURE, []).text  # type: ignore[arg-type]
                scripts += bool(text)
                assert called(text) == [], f"{path} = {value}\n{text}"
    assert scripts > 200, "next to nothing was written"


def test_a_store_does_not_say_what_is_imported() -> None:
    document = {**CASES["branch"]().to_json(), "imports": ["antigravity", f"os\n{CALL}"]}
    case = case_from_bytes(canonical_json(document))
    assert case.imports == ()
    text = FORMS["compile"](case, SIGNATURE, []).text  # type: ignore[arg-type]
    assert "antigravity" not in text
    assert MARK not in text


@pytest.mark.parametrize("kind", ["int", "float", "str"])
def test_a_number_is_no_reference(kind: str) -> None:
    doc = CheckpointDoc.from_json(CASES["branch"]().to_json()["checkpoint"])
    with pytest.raises(UnsupportedError, match="refers to"):
        list(InputLines(doc, [{"k": kind, "v": {"n": CALL}}]).lines(["x"]))
