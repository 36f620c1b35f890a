"""Value descriptions and the expressions in them, as the passes need them.

Lives here: compatibility of two values, the description of a value as a fresh input, the numbers
and symbols in a description. Not here: what a description means to torch (`formats`). Called
by the passes and by the order. Nothing here touches a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from torchreel.errors import UnsupportedError
from torchreel.store.documents.jsontypes import Json, canonical_json
from torchreel.store.documents.kinds import as_list, as_object
from torchreel.torch_compat.distributed import DTENSOR

_SYMBOL = re.compile(r"(?<![\w.$\"])[A-Za-z_]\w*(?!\w*\()")
_UNBACKED = re.compile(r"zuf\d+|u\d+")
_SYMBOLIC = ("symint", "symfloat", "symbool")
# What one value has in common with another that can stand in its place, by its kind.
_DECIDE = {
    "tensor": ("size", "dtype", "device", "layout"),
    "subclass": ("type", "size", "dtype", "device", "context"),
    "device_mesh": ("device", "ranks", "names", "groups"),
}
# What ties a value to others, or to how it was made: a fresh input has none of it.
_TIES = ("storage", "storage_size", "item", "data", "parameter")

Size = int | str
UNBACKED_SIZE = 2
"""The number that replaces a size which only a run can give: neither 0 nor 1."""


def integer(data: Mapping[str, Json], key: str, default: int) -> int:
    """Return a number of a case's document.  Raises UnsupportedError for what is none."""
    found = data.get(key, default)
    if type(found) is not int or not 0 <= found < 1 << 63:
        raise UnsupportedError(f"the {key} of a case is no whole number, but {found!r:.40}")
    return found


def is_tensor(value: Json) -> bool:
    """Return True if a description is that of a tensor."""
    return as_object(value).get("k") == "tensor"


def is_symbolic(value: Json) -> bool:
    """Return True if a description is that of a symbolic scalar."""
    return as_object(value).get("k") in _SYMBOLIC


def compatible(one: Json, other: Json, *, loose: bool = False) -> bool:
    """Return True if one value can stand where the other stood.

    Loosely: any tensor for a tensor.
    """
    a, b = as_object(one), as_object(other)
    if a.get("k") != b.get("k") or not a:
        return False
    kind = str(a["k"])
    if kind not in _DECIDE:
        return kind in (*_SYMBOLIC, "int", "float", "bool")
    keys = ("layout",) if loose and kind == "tensor" else _DECIDE[kind]
    return all(a.get(key) == b.get(key) for key in keys)


def likeness(value: Json) -> str | None:
    """Return a key that two values share if one may replace the other; None for other values.

    It agrees with `compatible`, and serves to compare one value with many.
    """
    if not compatible(value, value):
        return None
    fields = as_object(value)
    keys = ("k", *_DECIDE.get(str(fields["k"]), ()))
    return canonical_json([fields.get(key) for key in keys]).decode("utf-8", "surrogatepass")


def sizes(value: Json) -> list[Size]:
    """Return the sizes of a tensor description (none for anything else)."""
    return [s for s in as_list(as_object(value).get("size")) if isinstance(s, (int, str))]


def as_input(value: Json) -> Json:
    """Return the description of a fresh input with the layout of `value`.

    None where there is none.
    """
    fields = as_object(value)
    if fields.get("k") == "device_mesh":
        return {key: item for key, item in fields.items() if key != "fake"}
    if fields.get("k") == "subclass":
        return _part_as_input(fields)
    if not is_tensor(value) or fields.get("layout") != "strided":
        return None
    kept: Mapping[str, Json] | None = {k: v for k, v in as_object(value).items() if k not in _TIES}
    if any(_UNBACKED.fullmatch(name) for name in symbols_of(kept)):
        kept = _with_numbers(as_object(kept))
    if kept is None:
        return None
    flags: Json = [flag for flag in as_list(kept.get("flags")) if flag != "zero"]
    return {**kept, "offset": 0, "leaf": True, "parameter": False, "flags": flags}


def _part_as_input(fields: Mapping[str, Json]) -> Json:
    """Return the description of a fresh distributed tensor; None for one of another class.

    What those hold may mean something: where the rows of a jagged tensor begin, for one.
    """
    inner = {name: as_input(held) for name, held in as_object(fields.get("inner")).items()}
    if fields.get("type") != DTENSOR or None in inner.values():
        return None
    return {**fields, "inner": inner, "leaf": True, "parameter": False}


def _with_numbers(fields: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return a dense description with numbers for sizes that only a run can tell.

    None for others.
    """
    size = [UNBACKED_SIZE if is_unbacked(s) else s for s in as_list(fields["size"])]
    known = [s for s in size if isinstance(s, int)]
    if len(known) != len(size):
        return None
    numbers: list[Json] = list(known)
    return {**fields, "size": numbers, "stride": contiguous(known), "offset": 0}


def is_unbacked(expression: Json) -> bool:
    """Return True if an expression is nothing but a symbol that only a run can give a value."""
    return isinstance(expression, str) and _UNBACKED.fullmatch(expression) is not None


@lru_cache(maxsize=10_000)
def _symbols_in(text: str) -> frozenset[str]:
    return frozenset(_SYMBOL.findall(text))


def symbols_of(value: Json) -> frozenset[str]:
    """Return the symbols that a description's expressions mention."""
    found: set[str] = set()
    for text in expressions(value):
        if isinstance(text, str):
            found |= _symbols_in(text)
    return frozenset(found)


def expressions(value: Json) -> Iterator[Json]:
    """Yield every size, stride, offset and scalar expression of a description."""
    seen: list[Json] = []
    map_expressions(value, lambda text: seen.append(text) or text)  # type: ignore[func-returns-value]
    yield from seen


def map_expressions(value: Json, change: Callable[[Json], Json]) -> Json:
    """Return a description with every expression `e` replaced by `change(e)`.

    A symbolic scalar whose expression becomes a number becomes that number.
    """
    if not isinstance(value, Mapping):
        return value
    if value.get("k") in _SYMBOLIC:
        return _scalar(value, change(value.get("expr")))
    changed = dict(value)
    for key in ("size", "stride"):
        if key in value:
            changed[key] = [change(item) for item in as_list(value[key])]
    for key in ("offset", "storage_size"):
        if key in value:
            changed[key] = change(value[key])
    if "items" in value:
        changed["items"] = [map_expressions(item, change) for item in as_list(value["items"])]
    if "item" in value:
        changed["item"] = map_expressions(value["item"], change)
    return changed


def _scalar(value: Mapping[str, Json], expr: Json) -> Json:
    if isinstance(expr, bool):
        return {"k": "bool", "v": expr}
    if isinstance(expr, int):
        return {"k": "int", "v": expr}
    return {**value, "expr": expr}


def constant_of(value: Json) -> Json:
    """Return the argument that a scalar description stands for; None where it is none."""
    found = as_object(value)
    return found.get("v") if found.get("k") in ("int", "bool", "float", "str") else None


def contiguous(size: list[int]) -> list[Json]:
    """Return row-major strides.

    A dimension of no element counts as one of one element, as in torch.
    """
    strides: list[Json] = []
    step = 1
    for length in reversed(size):
        strides.insert(0, step)
        step *= max(length, 1)
    return strides
