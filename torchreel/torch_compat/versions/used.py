"""Every name of torch that this package's source uses, found by reading it, and where.

Lives here: finding the names, and comparing them with the torch that is installed. Not here: names
that not all known releases have, which are declared (`bounded`, and beside the recorder's probes).
A name that is only looked up under a condition counts as well: the declaration says when it is
there. Called by `torchreel doctor` and by the tests of each release.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torchreel.torch_compat.versions.bounded import BOUNDED
from torchreel.torch_compat.versions.releases import Installed, installed

_PACKAGE = Path(__file__).parents[2]
_ROOT = "torch"


@cache
def names_used() -> Mapping[str, tuple[str, ...]]:
    """Return the names, dotted, with the files that use each."""
    found: dict[str, set[str]] = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        for name in names_in(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(path.relative_to(_PACKAGE).as_posix())
    return {name: tuple(sorted(files)) for name, files in sorted(found.items())}


def names_in(source: str) -> set[str]:
    """Return the names of torch that one file imports, or reaches through its imports."""
    tree = ast.parse(source)
    imported = dict(_imported(tree))
    reached = {
        _dotted(node, imported) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    names = {*_modules(tree), *imported.values(), *reached} - {"", _ROOT}
    return {name for name in names if not name.rpartition(".")[2].startswith("__")}


def missing_names(torch: Installed | None = None) -> list[str]:
    """Return the names that the installed torch should have, or may have, and does not."""
    torch = torch or installed()
    elsewhere = {str(name) for name in BOUNDED if name.is_in(torch) is False}
    return [name for name in names_used() if name not in elsewhere and not is_in_torch(name)]


def is_in_torch(name: str) -> bool:
    """Return True if the installed torch has a name; imports the modules on the way.

    A name may be declared without a value. What an object has that is neither a module nor a class
    is not looked at: it may be None until it is used.
    """
    found = _longest_module(name)
    if found is None:
        return False
    owner, rest = found
    for part in rest:
        if not (inspect.ismodule(owner) or inspect.isclass(owner)):
            return True
        if not hasattr(owner, part):
            return part in inspect.get_annotations(owner)
        owner = getattr(owner, part)
    return True


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local name of each import from torch, and the name in torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_torch(alias.name):
                    yield (alias.asname, alias.name) if alias.asname else (_ROOT, _ROOT)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and _is_torch(node.module or ""):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_torch(alias.name))


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == _ROOT


def _dotted(node: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the torch name of a dotted expression; '' for any other."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, imported)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def _longest_module(name: str) -> tuple[Any, list[str]] | None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            return importlib.import_module(".".join(parts[:length])), parts[length:]
        except ImportError:
            continue
    return None
