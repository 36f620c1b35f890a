"""Side effects of calls, as far as their names show them.

Called by `graph_edits`, which removes only nodes that lost their last user and are free of effects.
A mistake costs no more than a run: a pass proposes the removal of all others, and the oracle
decides every time.
"""

from __future__ import annotations

import re

from torchreel.formats.graphs.document import NodeDoc
from torchreel.store.documents.kinds import as_object

_ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift", "concat"),
)
_IN_PLACE_OPERATORS = frozenset(
    ["setitem", "delitem", "__setitem__"]
    + [f"i{name}" for name in _ARITHMETIC]
    + [f"__i{name}__" for name in _ARITHMETIC]
)
# Regions (grad mode, autocast, vmap levels, hooks), checks, and what acts on the world.
_EFFECTS = re.compile(
    r"^(_set_|set_|_enter_|_exit_|_assert|_check|sym_constrain|manual_seed|seed|_print|record_"
    r"|wait_|copy_|.*_nesting$|_saved_tensors_hooks|_unsafe_set)|(^|_)with_effects|_out$"
)
_ENDS = ("_exit_autocast", "_vmap_decrement_nesting")


def is_effectful(node: NodeDoc) -> bool:
    """Return True if removing a node nobody uses may change what the graph does."""
    if not node.is_call:
        return node.op != "get_attr"
    name = base_name(node)
    in_place = name.endswith("_") and not name.endswith("__")
    kwargs = as_object(node.kwargs)
    return bool(
        name in _IN_PLACE_OPERATORS
        or in_place
        or _EFFECTS.search(name)
        or kwargs.get("inplace")
        or kwargs.get("out")
    )


def written_operand(node: NodeDoc) -> str | None:
    """Return the first operand of a call that is in place by its name; None for other calls."""
    name = base_name(node)
    in_place = name in _IN_PLACE_OPERATORS or (name.endswith("_") and not name.endswith("__"))
    if not in_place or _EFFECTS.search(name.replace("copy_", "")):
        return None
    return next(iter(node.inputs()), None)


def is_end(node: NodeDoc) -> bool:
    """Return True if a node closes what another opened: it goes with that one, never alone."""
    return node.is_call and node.target.endswith(_ENDS)


def base_name(node: NodeDoc) -> str:
    """Return 'add_' for 'op:aten.add_.Tensor' and for the method, 'relu' for a function."""
    kind, colon, rest = node.target.partition(":")
    if not colon:
        return node.target
    parts = rest.split(".")
    return parts[1] if kind == "op" and len(parts) > 1 else parts[-1]
