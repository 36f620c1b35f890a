"""The simplicity of literals and dtypes in a graph: their weight, and simpler ones to try.

The order adds the weights up, and the passes over literals propose what weighs less: both stand
here, so that they agree. Not here: which of two cases is simpler (`order`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object

DTYPES = {"float32": 0, "int64": 1, "bool": 2, "float64": 3, "complex64": 4}
"""The simplest first; all others come after them."""

Place = tuple[int | str, ...]
"""The place of a subtree of arguments: indices and keys from the outside inwards."""

_MOST = 10**9  # a sentinel such as sys.maxsize is no more complicated than any large number
_CONTAINERS = ("t", "d", "slice", "size", "range")


def dtype_rank(dtype: Json) -> int:
    """Return the rank of a dtype by simplicity: 0 for float32, the highest for unlisted ones."""
    return DTYPES.get(str(dtype), len(DTYPES))


def is_reference(tree: Json) -> bool:
    """Return True if a tree is the use of a node."""
    return isinstance(tree, Mapping) and set(tree) == {"n"}


def leaves(tree: Json, at: Place = ()) -> Iterator[tuple[Place, Json]]:
    """Yield the literals in `[args, kwargs]` of a call with their places.

    Uses of nodes are left out.
    """
    if isinstance(tree, (list, tuple)):
        for index, item in enumerate(tree):
            yield from leaves(item, (*at, index))
    elif isinstance(tree, Mapping):
        if _is_tagged(tree, at):
            if not is_reference(tree):
                yield at, tree
            return
        for key, item in tree.items():
            yield from leaves(item, (*at, key))
    else:
        yield at, tree


def lists(tree: Json, at: Place = ()) -> Iterator[tuple[Place, list[Json]]]:
    """Yield the lists and tuples within `[args, kwargs]` of a call, with their places."""
    if isinstance(tree, (list, tuple)):
        if len(at) > 1:
            yield at, list(tree)
        for index, item in enumerate(tree):
            yield from lists(item, (*at, index))
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from lists(item, (*at, key))


def _is_tagged(tree: Mapping[str, Json], at: Place) -> bool:
    """Return True if an object is one value; keywords, at (1,), are an object of values."""
    return len(at) > 1 and len(tree) == 1 and next(iter(tree)) not in _CONTAINERS


def weight(leaf: Json) -> int:
    """Return the weight of a literal: 0 for the simplest of its kind, more for others."""
    if isinstance(leaf, bool) or leaf is None:
        return int(bool(leaf))
    if isinstance(leaf, int):
        return min(2 * abs(leaf) + (leaf < 0), _MOST)
    fields = as_object(leaf)
    if "dtype" in fields:
        return dtype_rank(fields["dtype"])
    number = float_of(leaf)
    return 1 if number is None else _float_weight(number)


def _float_weight(number: float) -> int:
    if number in (0.0, 1.0):
        return int(number)
    return 2 if number.is_integer() or number in (0.5, -0.5) else 3


def float_of(leaf: Json) -> float | None:
    """Return the number that a literal float is; None for anything else."""
    text = as_object(leaf).get("f")
    try:
        return float.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None


def simpler_literals(leaf: Json) -> list[Json]:
    """Return the literals to try in place of one, the simplest first; each weighs less."""
    choices: list[Json] = []
    if isinstance(leaf, bool):
        choices = [False]
    elif isinstance(leaf, int):
        choices = [0, 1, 2, *(smaller_numbers(leaf) if leaf > 2 else [])]
    elif "dtype" in as_object(leaf):
        choices = [{"dtype": name} for name in DTYPES]
    elif float_of(leaf) is not None:
        choices = [{"f": number.hex()} for number in (1.0, 0.0, 0.5)]
    distinct = [item for i, item in enumerate(choices) if item not in choices[:i]]
    return [item for item in distinct if weight(item) < weight(leaf)]


def smaller_numbers(number: int) -> list[int]:
    """Return smaller numbers, to try in turn: half of it less, a quarter less, ..., one less.

    Where one is taken and the list made anew, the smallest that will do is found by bisection, if
    all above it will do as well.
    """
    steps = [number >> shift for shift in range(1, number.bit_length())]
    return [number - step for step in steps]


def at_place(tree: Json, place: Place) -> Json:
    """Return the subtree at a place; None where there is no such place."""
    for step in place:
        if isinstance(tree, (list, tuple)) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        elif isinstance(tree, Mapping) and step in tree:
            tree = tree[str(step)]
        else:
            return None
    return tree


def with_place(tree: Json, place: Place, new: Json) -> Json:
    """Return the tree with something else at a place that it has."""
    if not place:
        return new
    step, rest = place[0], place[1:]
    if isinstance(tree, (list, tuple)) and isinstance(step, int):
        return [*tree[:step], with_place(tree[step], rest, new), *tree[step + 1 :]]
    fields = as_object(tree)
    return {**fields, str(step): with_place(fields[str(step)], rest, new)}
