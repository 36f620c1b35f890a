"""Modules of `torch.nn` as the calls that make them, and what a module's own attributes are.

The arguments of such a call are read off the module, as its `__init__` named them; the result is
made and compared, so that a guess is never wrong. Not here: modules of the user's (`objects`).
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

import torch

Write = Callable[[Any, str], str]
_CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential)
_EMPTY = vars(torch.nn.Module())


def expression(
    module: torch.nn.Module, write: Write, known: Callable[[object], str | None]
) -> str | None:
    """Return the call that makes a module of torch's own.

    None where no call was found that does.
    """
    kind = type(module)
    name = known(kind)
    if name is None:
        return None
    if kind in _CONTAINERS:
        children = ", ".join(write(child, key) for key, child in module._modules.items())
        return f"{name}([{children}])" if kind is torch.nn.ModuleList else f"{name}({children})"
    if kind is torch.nn.ModuleDict:
        pairs = (f"{key!r}: {write(child, key)}" for key, child in module._modules.items())
        return f"{name}({{{', '.join(pairs)}}})"
    arguments = _arguments(module)
    if arguments is None or any(t._is_view() for t in module.parameters()):
        return None
    written = [
        f"{key}={write(value, key)}" if named else write(value, key)
        for key, (value, named) in arguments.items()
    ]
    return f"{name}({', '.join(written)}){_suffix(module)}"


def _arguments(module: torch.nn.Module) -> dict[str, tuple[Any, bool]] | None:
    """Return the arguments by name, each with whether it is given by keyword; no defaults."""
    found: dict[str, tuple[Any, bool]] = {}
    try:
        parameters = _parameters(type(module))
    except (TypeError, ValueError):
        return None
    skipped = False
    for parameter in parameters:
        value = _value(module, parameter)
        required = parameter.default is parameter.empty
        if value is inspect.Parameter.empty:
            if required and parameter.kind is not parameter.VAR_KEYWORD:
                return None
            skipped = True
            continue
        if not required and _equal(value, parameter.default):
            skipped = True
            continue
        found[parameter.name] = value, skipped or parameter.kind is parameter.KEYWORD_ONLY
    given = [value for value, named in found.values() if not named]
    keywords = {key: value for key, (value, named) in found.items() if named}
    made: torch.nn.Module | None = None
    with contextlib.suppress(TypeError, ValueError, RuntimeError, AssertionError):
        made = type(module)(*given, **keywords)
    return found if made is not None and _alike(made, module) else None


def _parameters(kind: type) -> list[inspect.Parameter]:
    """Return the parameters of a constructor; of its first overload, if it passes its arguments on.

    Recurrent layers have such constructors.
    """
    found = list(inspect.signature(kind).parameters.values())
    passing = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    overloads = typing.get_overloads(vars(kind).get("__init__", kind))
    if overloads and all(parameter.kind in passing for parameter in found):
        return list(inspect.signature(overloads[0]).parameters.values())[1:]
    return found


def _value(module: torch.nn.Module, parameter: inspect.Parameter) -> Any:
    name = parameter.name
    if name in ("device", "dtype") or not hasattr(module, name):
        return parameter.empty
    value = getattr(module, name)
    if name == "bias" or (isinstance(parameter.default, bool) and not isinstance(value, bool)):
        return value is not None and value is not False
    plain = isinstance(value, (bool, int, float, str, tuple, list, type(None)))
    return value if plain else parameter.empty


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _alike(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    """Return True if two modules differ at most in dtype, mode and the values of their tensors."""
    if vars(one).keys() != vars(other).keys() or _children(one) != _children(other):
        return False
    return _tensors(one) == _tensors(other) and _plain(one) == _plain(other)


def _children(module: torch.nn.Module) -> list[tuple[str, type]]:
    return [(name, type(child)) for name, child in module.named_modules()]


def _tensors(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: tuple(value.shape) for name, value in named}


def _plain(module: torch.nn.Module) -> dict[str, Any]:
    kept = (bool, int, float, str, tuple)
    return {k: v for k, v in vars(module).items() if isinstance(v, kept) and k != "training"}


def _suffix(module: torch.nn.Module) -> str:
    """Return the method calls to append to the module's constructor call, such as `.eval()`."""
    text = ""
    dtypes = {p.dtype for p in module.parameters()} - {torch.get_default_dtype()}
    if len(dtypes) == 1:
        text += f".to({dtypes.pop()})"
    if not module.training:
        text += ".eval()"
    wants = {p.requires_grad for p in module.parameters()}
    return text + (".requires_grad_(False)" if wants == {False} else "")


def needs_arguments(kind: type, is_allowed: Callable[[object], bool]) -> bool:
    """Return True if a class can't be called without arguments, because its base in torch can't."""
    base = next((k for k in kind.__mro__ if is_allowed(k.__module__)), torch.nn.Module)
    return base not in (torch.nn.Module, *_CONTAINERS, torch.nn.ModuleDict)


def attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Return the attributes, parameters, buffers and children of a module, by name."""
    own = {key: value for key, value in vars(module).items() if key not in _EMPTY}
    own |= {**module._parameters, **module._buffers, **module._modules}
    if not module.training:
        own["training"] = False
    return own
