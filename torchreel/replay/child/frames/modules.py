"""The modules that a frame bundle refers to, in the process that loads it.

Lives here: globals under the name of their module, and what of a module is not the same here as
where the frame was recorded.  Not here: the loading (`bundles`), which calls this.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from torchreel.errors import ReplayError
from torchreel.formats.frames.parts import built_in
from torchreel.recorder.attach import spec_after
from torchreel.recorder.frames.patches import state_of
from torchreel.replay.compare.normalise import installed
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

_scopes: dict[tuple[str, int], dict[str, Any]] = {}
"""Globals that are no module's here, by name and token: shared by the bundles of a process."""


def scope(kind: str, name: str, token: int) -> dict[str, Any]:
    """Return the globals of a function: those of a module, where they were, even of one that is not
    here.

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


def scope_tokens() -> dict[int, int]:
    """Return, by the ids of globals that are no module's, those that they had when recorded."""
    return {id(scope): token for (_, token), scope in _scopes.items() if token}


def at(module: str, path: str) -> Any:
    """Return what a module has under a path of names; the module itself for ''.

    Raises ReplayError where there is nothing.
    """
    if not _can_import(module):
        raise ReplayError(f"module {module} is not here")
    found: Any = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        held = state_of(found)
        if name not in held:
            raise ReplayError(f"{module} has no {path} here")
        found = held[name]
    return found


def fill(found: object, content: object) -> Callable[[], None]:
    """Let a container hold what it held, in its order; what is equal stays the same.

    One of another kind is left alone: the guards will tell. Returns what has it as it was before.
    """
    if isinstance(found, dict) and isinstance(content, dict):
        items: dict[Any, Any] = dict(
            cast("Any", built_in(found, "items")(found))
        )  # an OrderedDict has an order of its own
        _fill(found, content)
        return lambda: _fill(found, items)
    if isinstance(found, list) and isinstance(content, list):
        members = list(list.__iter__(found))
        _fill(found, content)
        return lambda: _fill(found, members)
    if isinstance(found, set) and isinstance(content, set):
        elements = set(set.__iter__(found))
        _fill(found, content)
        return lambda: _fill(found, elements)
    return lambda: None


def _fill(found: Any, content: Any) -> None:
    # With the methods of plain containers: those of the module's own class may do more.
    if isinstance(found, dict):
        before = dict(dict.items(found))
        built_in(found, "clear")(found)
        for key, value in content.items():
            old = before.get(key)
            same = type(old) is type(value) and _is_equal(old, value)
            built_in(found, "__setitem__")(found, key, old if same else value)
    elif _is_equal(found, content):
        return
    elif isinstance(found, list):
        list.__setitem__(found, slice(None), content)
    else:
        set.clear(found)
        set.update(found, content)


def _is_equal(one: object, other: object) -> bool:
    """Return True if two are equal; of collections with tensors or arrays nobody can tell."""
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):
        return False


def differences(found: Json) -> list[str]:
    """Name those of the recorded modules that are missing here, or of another version or source.

    Where the file of one is where it was, its folder is added to the path: the program had it.
    From now on those that are elsewhere have the names of their files from there.
    """
    rows = as_object(found).items()
    known = {name: row for name, row in rows if isinstance(row, Mapping)}
    for name, recorded in known.items():
        file = str(recorded.get("file"))
        root = _root(name, file)
        if root is not None:
            _add_to_path(name, root, file)
        if root is not None and file == installed(file):
            _MOVED.roots[name.partition(".")[0]] = root
    if _MOVED not in sys.meta_path:
        sys.meta_path.insert(0, _MOVED)
    notes = [_difference(name, recorded) for name, recorded in known.items()]
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
    # One that was made here, or by a program, has no spec, which `find_spec` refuses.
    made = name in sys.modules and getattr(sys.modules[name], "__spec__", None) is None
    spec = None if made else importlib.util.find_spec(name)
    try:
        return hashlib.sha256(Path(str(spec and spec.origin)).read_bytes()).hexdigest()
    except OSError:
        return None


def _can_import(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def _root(name: str, file: str | None) -> Path | None:
    """Return the folder that a module was imported from; None for one that has no such file."""
    if file is None or not file.endswith(".py"):
        return None
    path, names = Path(file), tuple(name.split("."))
    parts = path.parts[:-1] if path.name == "__init__.py" else path.with_suffix("").parts
    return Path(*parts[: -len(names)]) if parts[-len(names) :] == names else None


def _add_to_path(name: str, root: Path, file: str) -> None:
    if Path(file).exists() and not _can_import(name):
        sys.path.append(str(root))
        importlib.invalidate_caches()


# -- modules that lie elsewhere here ---------------------------------------------------------------


class _Moved(MetaPathFinder):
    """Finds the program's modules where they are here, and lets their code be from where it was.

    Dynamo's stacks name the files, and it goes by them in what it skips.
    """

    def __init__(self) -> None:
        self.roots: dict[str, Path] = {}
        """The folders that modules were imported from, by the first part of their names."""
        self._moved: dict[Path, Path] = {}
        """The folders that these modules are in here: also of those that they import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module as the other finders find it."""
        spec = spec_after(self, name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return spec
        here = _root(name, spec.origin)
        if here is None:
            return spec
        root = self.roots.get(name.partition(".")[0])
        root = self._moved.get(here, here) if root is None else root
        if root != here:
            if spec.origin == installed(str(spec.origin)):  # else it is among libraries
                self._moved[here] = root
            was = root / Path(str(spec.origin)).relative_to(here)
            spec.loader = _NamedAsItWas(name, spec.loader.path, str(was))
        return spec


class _NamedAsItWas(SourceFileLoader):
    """Compiles a file under another file's name (the cached bytecode has its own)."""

    def __init__(self, name: str, path: str, was: str) -> None:
        super().__init__(name, path)
        self._was = was

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module."""
        data = self.get_data(self.path)
        lines = importlib.util.decode_source(data).splitlines(keepends=True)
        linecache.cache[self._was] = (len(data), None, lines, self._was)
        return self.source_to_code(data, self._was)


_MOVED = _Moved()
