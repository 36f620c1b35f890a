"""Names in an exported script: short variables, and the public spelling of functions.

Every name that comes from a store is checked here before it gets into a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType

import torch
import torch.fft
import torch.linalg
import torch.nn.functional
import torch.special

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import is_identifier
from torchreel.formats import namespaces, targets
from torchreel.formats.graphs.document import GraphDoc
from torchreel.torch_compat import distributed
from torchreel.torch_compat.graph_calls.local_functions import MARK

_LONGEST = 41  # characters
# Dynamo's names of inputs: l_x_, l_args_0_, l_self_modules_fc_parameters_weight_.
_INPUT = re.compile(
    r"[lL]_(?:\w*_(?:parameters|buffers)_)?(?:(?:args|kwargs|self|stack\d+)_)?(\w*?)_*"
)
# AOTAutograd's names of inputs say nothing: arg0_1, primals_3, tangents_1.
_NUMBERED = re.compile(r"(?:arg|primals_|tangents_|fwd_rng_state_|bwd_rng_state_)\d+(?:_\d+)?")
_LETTERS = ("x", "y", "z", "w", "v", "u")
# What tells nodes apart, and an overload that everybody has: view_3, clone_default, cond_fn_0.
_SUFFIX = re.compile(r"(?:_(?:default|tensor|scalar))?(?:_\d+)+$", re.IGNORECASE)
# Names that the scripts themselves use.
_USED = """
    torch F operator math faulthandler fn inputs compiled expected actual args mode fakes
    fake gm g root graph dynamic result outputs print list dict tuple slice range complex
    float int bool sum isinstance zip enumerate while_loop checkpoint self
    getattr abs len min max pow round divmod time os cProfile logging warnings re resource metrics
    DeviceMesh DTensor FakeStore Partial Replicate Shard
    counters GraphLowering ShapeEnv contexts CheckpointPolicy create_selective_checkpoint_contexts
"""
RESERVED = frozenset(_USED.split()) | frozenset(
    f"{stem}{number}" for stem in ("storage", "base", "contexts") for number in range(100)
)


def variables(graph: GraphDoc, taken: Iterable[str] = ()) -> dict[str, str]:
    """Return a variable for each node, by the node's name."""
    used = {*RESERVED, *taken}
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and _NUMBERED.fullmatch(node.name):
            wished = next((letter for letter in _LETTERS if letter not in used), "x")
        else:
            wished = _wished(node.name, node.op == "placeholder")
        found[node.name] = _free("out" if wished in RESERVED else wished, used)
        used.add(found[node.name])
    return found


def _wished(name: str, is_input: bool) -> str:
    match = _INPUT.fullmatch(name) if is_input else None
    wished = match[1] if match and match[1] else name
    wished = f"x{wished}" if wished.isdecimal() else wished
    wished = _SUFFIX.sub("", wished) or wished
    fits = is_identifier(wished) and len(wished) <= _LONGEST and not wished.startswith("__")
    return wished if fits else ("x" if is_input else "y")


def _free(wished: str, used: set[str]) -> str:
    if wished not in used:
        return wished
    stem = wished.rstrip("0123456789_") or wished
    return next(name for number in range(1, 10**9) if (name := f"{stem}{number}") not in used)


@cache
def public_functions() -> dict[str, Callable[..., object]]:
    """Return functions by the names under which people find them."""
    places: list[tuple[str, ModuleType]] = [
        ("torch", torch),
        ("F", torch.nn.functional),
        ("torch.special", torch.special),
        ("torch.linalg", torch.linalg),
        ("torch.fft", torch.fft),
    ]
    return {
        f"{place}.{name}": value
        for place, module in places
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    }


@cache
def _public() -> dict[int, str]:
    """Return the name of a function by its identity; the first module wins."""
    found: dict[int, str] = {}
    for name, function in public_functions().items():
        found.setdefault(id(function), name)
    return found


def public_target(target: str, imports: tuple[str, ...] = ()) -> str:
    """Return a target by its public name.

    Raises `UnsupportedError` or `UntrustedError` for one that a graph may not call: a repro is run
    by whoever gets it.
    """
    if imports and namespaces.is_custom(target):
        return target  # defined by a module that the user named
    function = targets.decode_target(target)
    if targets.is_of_capture(target):
        raise UnsupportedError(
            f"the graph calls {target:.80}, which compiled autograd makes while it captures a "
            "backward: a script that begins with a graph has none"
        )
    if MARK in target:
        raise UnsupportedError(f"the graph calls {target:.120}, which has no name")
    if target == f"fn:{distributed.FROM_LOCAL}":
        return "fn:DTensor.from_local"
    name = _public().get(id(function)) if target.startswith("fn:torch.") else None
    return f"fn:{name}" if name else target
