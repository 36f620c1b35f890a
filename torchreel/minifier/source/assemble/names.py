"""Names in the program: for what can be imported, and for what the program makes itself."""

from __future__ import annotations

import builtins
import importlib
import keyword
import re
import sys
from collections.abc import Iterable
from types import ModuleType

# What may be imported by the program besides torch: a repro needs nothing else.
_ALLOWED = frozenset({"torch", "numpy", "builtins", *sys.stdlib_module_names}) - {"__main__"}
# Where a person would look for a name first.
_PUBLIC = (
    "builtins", "torch", "torch.nn", "torch.nn.functional", "torch.utils.checkpoint", "math",
    "operator", "functools", "itertools", "collections",
)  # fmt: skip

_OF_TORCH = ("torch", "torch.autograd")
"""Modules that `import torch` brings."""


class Names:
    """The names of a program, and its import lines."""

    def __init__(self, imports: Iterable[str] = ()) -> None:
        self._allowed = _ALLOWED | {name.partition(".")[0] for name in imports}
        self._taken = {*keyword.kwlist, *dir(builtins), "torch"}
        self.lines: dict[str, str] = {"torch": "import torch"}
        """Import lines, by the name that they bind."""

    def is_allowed(self, module: object) -> bool:
        """Return True if the program may import from a module of that name."""
        return isinstance(module, str) and module.partition(".")[0] in self._allowed

    def fresh(self, hint: str) -> str:
        """Return a name that nothing has yet, like the hint."""
        base = re.sub(r"\W", "_", hint).strip("_") or "value"
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"v_{base}"
        name, number = base, 1
        while name in self._taken or name in self.lines:
            number += 1
            name = f"{base}{number}"
        self._taken.add(name)
        return name

    def place_of(self, obj: object) -> tuple[str, str] | None:
        """Return (module, qualified name) under which an object can be imported, the public one
        first.
        """
        name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
        home = getattr(obj, "__module__", None) or "builtins"
        if not isinstance(name, str) or "<" in name:
            return None
        places = [*_PUBLIC, *_packages(home), home] if self.is_allowed(home) else []
        return next(((place, name) for place in places if _found(place, name) is obj), None)

    def bound(self, hint: str, obj: object) -> str | None:
        """Return the name of something that can be imported, under a name as close as can be."""
        if isinstance(obj, ModuleType):
            return self._module(hint, obj.__name__) if self.is_allowed(obj.__name__) else None
        place = self.place_of(obj)
        if place is None:
            return None
        module, name = place
        if module == "builtins" and "." not in name and hint == name:
            return name
        if module == "builtins" or "." in name:
            return None
        line = f"from {module} import {name}"
        return self._import(hint, line if hint == name else f"{line} as {hint}", line + " as ")

    def expression(self, obj: object) -> str | None:
        """Return an expression for something that can be imported: 'torch.nn.Linear'."""
        if isinstance(obj, ModuleType):
            return self._module(obj.__name__.replace(".", "_"), obj.__name__)
        place = self.place_of(obj)
        if place is None:
            return None
        module, name = place
        if module == "builtins":
            return name
        if module not in _OF_TORCH and not module.startswith("torch.nn"):
            self.lines.setdefault(module, f"import {module}")
        return f"{module}.{name}"

    def _module(self, hint: str, name: str) -> str:
        parent, _, leaf = name.rpartition(".")
        if hint == name:
            line = f"import {name}"
        elif parent and leaf == hint:
            line = f"from {parent} import {leaf}"
        else:
            line = f"import {name} as {hint}"
        return self._import(hint, line, f"import {name} as ")

    def _import(self, hint: str, line: str, otherwise: str) -> str:
        if self.lines.get(hint) == line:
            return hint
        name = self.fresh(hint)
        self.lines[name] = line if name == hint else otherwise + name
        return name


def _packages(module: str) -> list[str]:
    """Return the packages that a module lies in, the outermost first: what is public is there."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _found(module: str, name: str) -> object:
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return _found
    return found
