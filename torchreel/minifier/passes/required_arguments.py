"""Arguments that a call cannot do without, as the schema or signature of its target says.

What is not known here may be left out: the oracle finds out.  Called by the pass over arguments,
which has no need to try what would never run.
"""

from __future__ import annotations

import inspect
from functools import cache

import torch

from torchreel.formats.graphs.document import NodeDoc
from torchreel.minifier.cases.side_effects import base_name

_FUNCTIONAL = "fn:torch.nn.functional."

Signature = tuple[tuple[str, bool], ...]
"""The name of each argument, and whether it has to be given."""


def is_required(node: NodeDoc, key: str | int) -> bool:
    """Return True if a call has to be given an argument, however it is called."""
    known = _signatures(node.target, base_name(node))
    return bool(known) and all(_requires(signature, key) for signature in known)


def _requires(signature: Signature, key: str | int) -> bool:
    if isinstance(key, int):
        return key < len(signature) and signature[key][1]
    return dict(signature).get(key, False)


@cache
def _signatures(target: str, name: str) -> tuple[Signature, ...]:
    """Return those of a function of torch's, or of the operators of that name; none for others."""
    if target.startswith(_FUNCTIONAL):
        return _of_function(getattr(torch.nn.functional, name, None))
    if not target.startswith(("op:aten.", "fn:torch.")) and ":" in target:
        return ()
    packet = getattr(torch.ops.aten, name, None)
    schemas = (
        [getattr(packet, overload)._schema for overload in packet.overloads()] if packet else []
    )
    return tuple(
        tuple((item.name, not item.has_default_value()) for item in schema.arguments)
        for schema in schemas
    )


def _of_function(function: object) -> tuple[Signature, ...]:
    try:
        found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ()
    fixed = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(item.kind not in fixed for item in found):
        return ()
    return (tuple((item.name, item.default is inspect.Parameter.empty) for item in found),)
