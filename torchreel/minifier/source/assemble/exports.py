"""A recorded call of torch.export as the last line of a program.

Lives here: that line, with dimensions and their bounds.  Not here: the module and the values that
it is given (`objects`), the rest of the program (`program`, which calls this).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._sympy.numbers import int_oo

from torchreel.minifier.cases.last_call import EXPORT
from torchreel.minifier.source.assemble.objects import Objects
from torchreel.replay.child.frames.bundles import LoadedFrame

# What `torch.export.export` passes on where its caller did not say otherwise.
_DEFAULTS: Mapping[str, object] = {
    "strict": False,
    "preserve_module_call_signature": (),
    "prefer_deferred_runtime_asserts_over_guards": False,
}


def call_module(frame: LoadedFrame) -> object:
    """Call the module of a recorded export in eager mode."""
    module, arguments, keywords = _given(frame)[:3]
    return module(*arguments, **(keywords or {}))


def written(frame: LoadedFrame, objects: Objects) -> str:
    """Return the call of `torch.export.export`; what it needs is kept in `objects`."""
    module, arguments, keywords, shapes, options = _given(frame)
    given = [objects.expression(module, "model"), objects.expression(tuple(arguments), "x")]
    given += [objects.expression(dict(keywords))] if keywords else []
    if shapes is not None:
        given.append(f"dynamic_shapes={_Shapes(objects).expression(shapes)}")
    for name, default in _DEFAULTS.items():
        value = options.get(name, default)
        given += [f"{name}={objects.expression(value)}"] if value != default else []
    return f"{EXPORT}({', '.join(given)})"


def _given(frame: LoadedFrame) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Return the module, its arguments, its keywords, the dynamic shapes and the options of an
    export.
    """
    mod, args, kwargs, dynamic_shapes, options = frame.args
    return mod, args, kwargs, dynamic_shapes, options


class _Shapes:
    """Writes dynamic shapes: the collections that hold them, dimensions, and hints."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._names: dict[str, str] = {}
        """Of each dimension, the variable that it is in."""

    def expression(self, shapes: Any) -> str:
        """Return an expression for dynamic shapes; a named dimension is assigned once."""
        if isinstance(shapes, dict):
            pairs = (f"{key!r}: {self.expression(value)}" for key, value in shapes.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(shapes, (list, tuple)):
            items = ", ".join(self.expression(item) for item in shapes)
            if isinstance(shapes, list):
                return f"[{items}]"
            return f"({items},)" if len(shapes) == 1 else f"({items})"
        if isinstance(shapes, torch.export.Dim):
            return self._dimension(shapes)
        kind = getattr(getattr(shapes, "type", None), "name", None)
        if kind is None:
            return self._objects.expression(shapes)
        bounds = _bounds(shapes, None, None)
        return f"torch.export.Dim.{kind}" + (f"({', '.join(bounds)})" if bounds else "")

    def _dimension(self, dimension: Any) -> str:
        """Return the variable of a dimension, or what it is derived as from that of another."""
        root = getattr(dimension, "root", None)
        if root is not None:  # its name is the very expression: '2*batch + 1'
            name = self._dimension(root)
            return re.sub(rf"\b{re.escape(root.__name__)}\b", name, dimension.__name__)
        name = dimension.__name__
        if name not in self._names:
            words = ", ".join([repr(name), *_bounds(dimension, 0, int_oo)])
            text = f"torch.export.Dim({words})"
            self._names[name] = self._objects.assigned(name, text)
        return self._names[name]


def _bounds(dimension: Any, least: object, most: object) -> list[str]:
    """Return the bounds of a dimension as keyword arguments, but for those that it has anyway."""
    found = {"min": (dimension.min, least), "max": (dimension.max, most)}
    return [f"{key}={int(value)}" for key, (value, usual) in found.items() if value != usual]
