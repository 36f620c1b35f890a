"""The modules that a frame bundle refers to, in the process that loads it.

Lives here: globals under the name of their module, and what of a module is not the same here as
where the frame was recorded.  Not here: the loading (`bundles`), which calls this.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torchreel.store.jsontypes import Json

_scopes: dict[tuple[str, int], dict[str, Any]] = {}
"""Globals that are no module's here, by name and token: shared by the bundles of a process."""


def scope(kind: str, name: str, token: int) -> dict[str, Any]:
    """The globals of a function: those of a module, where they were, even of one that is not here.

    The program's own `__main__`, and a module that can't be imported, become new ones: Dynamo looks
    modules up by their name.
    """
    if kind != "module":
        return _scopes.setdefault((name, token), {"__name__": name} if name else {})
    if (name, 0) in _scopes:
        return _scopes[name, 0]
    if name != "__main__" and _can_import(name):
        return vars(importlib.import_module(name))
    module = ModuleType(name)
    sys.modules[name] = module
    _scopes[name, 0] = vars(module)
    return vars(module)


def fill(name: str, member: str, content: object) -> None:
    """Let a container of a module hold what it held, in its order; what is equal stays the same.

    One that is not there, or is of another kind, is left alone: the guards will tell.
    """
    if not _can_import(name):
        return
    found = vars(importlib.import_module(name)).get(member)
    # With the methods of plain containers: those of the module's own class may do more.
    if isinstance(found, dict) and isinstance(content, dict):
        before = dict(dict.items(found))
        dict.clear(found)
        for key, value in content.items():
            old = before.get(key)
            same = type(old) is type(value) and old == value
            dict.__setitem__(found, key, old if same else value)
    elif isinstance(found, list) and isinstance(content, list) and found != content:
        list.__setitem__(found, slice(None), content)
    elif isinstance(found, set) and isinstance(content, set) and found != content:
        set.clear(found)
        set.update(found, content)


def differences(found: Json) -> list[str]:
    """Of the recorded modules, those that are missing here, or of another version or source.

    Where the file of one is where it was, its folder is added to the path: the program had it.
    """
    notes = []
    for name, recorded in found.items() if isinstance(found, Mapping) else ():
        if isinstance(recorded, Mapping):
            _add_to_path(name, recorded.get("file"))
            notes.append(_difference(name, recorded))
    return list(dict.fromkeys(filter(None, notes)))


def _difference(name: str, recorded: Mapping[str, Json]) -> str:
    if not _can_import(name):
        return f"Module {name} is not here."
    top = name.partition(".")[0]
    version = getattr(importlib.import_module(top), "__version__", None)
    if version != recorded.get("version"):
        return f"{top} is {version} here, and was {recorded.get('version')}."
    source = recorded.get("source")
    if source is not None and source != _source(name):
        return f"Module {name} has another source here."
    return ""


def _source(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    try:
        return hashlib.sha256(Path(str(spec and spec.origin)).read_bytes()).hexdigest()
    except OSError:
        return None


def _can_import(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _add_to_path(name: str, file: Json) -> None:
    if not isinstance(file, str) or not Path(file).exists() or _can_import(name):
        return
    path = Path(file)
    depth = name.count(".") + (path.name == "__init__.py")
    sys.path.append(str(path.parents[depth]))
    importlib.invalidate_caches()
