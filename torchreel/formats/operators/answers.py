"""Computes the results of a stand-in: tensors of the recorded sizes, strides and dtypes.

Lives here: from a recorded call and live arguments to results. Not here: the registration
(`stand_ins`). A size is that of an argument where the recording says so (by symbol, or by its
place), else the recorded number; a size that no argument has is one that depends on data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import sympy
import torch
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, symbols
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_object, list_only

_DYNAMIC = 1
"""A size that depends on data, where there are real tensors: a size that every bound admits."""

NewSize = Callable[[], Any]
"""Makes a size that depends on data."""


def real_size() -> int:
    """Return a size that depends on data, for real tensors."""
    return _DYNAMIC


@dataclass(frozen=True)
class Tensor:
    """A tensor of a recorded call."""

    size: tuple[Json, ...]
    stride: tuple[Json, ...]
    offset: Json
    dtype: str
    device: str
    storage: int | None = None
    """The number that its storage has in the call; equal numbers are one storage."""
    object: int | None = None
    """The number that the tensor has in the call; equal numbers are one tensor."""
    storage_size: Json = None
    """Of the storage, in bytes."""

    @classmethod
    def of(cls, data: Json) -> Tensor | None:
        """Return the tensor of a description; None for anything else."""
        if not isinstance(data, Mapping) or data.get("k") != "tensor":
            return None
        size, stride = data.get("size"), data.get("stride")
        if not isinstance(size, list) or not isinstance(stride, list):
            return None
        dtype, device = str(data.get("dtype")), str(data.get("device"))
        numbers = (_number(data.get("storage")), _number(data.get("object")))
        held = data.get("storage_size")
        return cls(tuple(size), tuple(stride), data.get("offset", 0), dtype, device, *numbers, held)


def _number(data: Json) -> int | None:
    return data if type(data) is int and data >= 0 else None


@dataclass(frozen=True)
class OperatorCall:
    """A recorded call: its arguments, flattened, and its result."""

    given: tuple[Json, ...]
    result: Json

    @classmethod
    def of(cls, data: Json) -> OperatorCall:
        """Return the call of a description.  Raises `UnsupportedError` when it is malformed."""
        if not isinstance(data, Mapping) or not isinstance(data.get("args"), list):
            raise UnsupportedError(f"malformed call of an operator {data!r:.80}")
        kwargs = data.get("kwargs")
        named = [kwargs[key] for key in sorted(kwargs)] if isinstance(kwargs, Mapping) else []
        return cls((*_flat(data["args"]), *_flat(named)), data.get("result"))

    def likeness(self, live: Sequence[object]) -> int:
        """Return the likeness of live arguments: 2 for each equal one; -1 for another number."""
        if len(live) != len(self.given):
            return -1
        return sum(map(_likeness, self.given, live))


def flattened(args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
    """Return live arguments in a row, in the order that the recorded ones have in `Call.given`."""
    return [*_leaves(args), *_leaves([kwargs[key] for key in sorted(kwargs)])]


def _leaves(items: Sequence[object]) -> list[object]:
    found: list[object] = []
    for item in items:
        found += _leaves(item) if isinstance(item, (list, tuple)) else [item]
    return found


def _flat(items: Json) -> list[Json]:
    found: list[Json] = []
    for item in list_only(items):
        if isinstance(item, Mapping) and "list" in item:
            found += _flat(item["list"])
            continue
        data = item.get("value", item.get("literal")) if isinstance(item, Mapping) else item
        inner = as_object(data).get("items")
        found += _flat([{"value": one} for one in inner]) if isinstance(inner, list) else [item]
    return found


def _likeness(given: Json, live: object) -> int:
    if not isinstance(given, Mapping):
        return 0
    recorded = Tensor.of(given.get("value"))
    if recorded is not None and isinstance(live, torch.Tensor):
        if len(recorded.size) != live.dim():
            return 0
        return 1 + (_spelled(live.shape) == tuple(map(str, recorded.size)))
    return 2 * ("literal" in given and node_arguments.encode_value(live) == given["literal"])


def _spelled(sizes: Sequence[object]) -> tuple[str, ...]:
    return tuple(
        str(size if isinstance(size, int) else symbols.encode_expr(size.node.expr))  # type: ignore[attr-defined]
        for size in sizes
    )


@dataclass
class OperatorAnswer:
    """The results of one call, made of the recorded one that is most like it."""

    call: OperatorCall
    live: Sequence[object]
    new_size: NewSize
    fill: bool = False
    """True if the results are real tensors, filled with zeros."""
    device: str | None = None
    """The device of the results; the recorded one, or that of the arguments, where it is None."""
    aliases: bool = True
    """Return True if results share storages with arguments and each other as the recorded did."""
    _sizes: dict[str, Any] = field(default_factory=dict)
    _tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    """The live tensors, by the number that the recorded call has for each."""
    _storages: dict[int, tuple[Tensor, torch.Tensor]] = field(default_factory=dict)
    """A tensor of each storage, as recorded and live, by the storage's number."""

    def __post_init__(self) -> None:
        for given, live in zip(self.call.given, self.live, strict=False):
            data = as_object(given).get("value")
            recorded = Tensor.of(data)
            if recorded is not None and isinstance(live, torch.Tensor):
                for size, now in zip(recorded.size, live.shape, strict=False):
                    self._sizes.setdefault(str(size), now)
                self._keep(recorded, live)
            elif isinstance(data, Mapping) and "expr" in data:
                self._sizes.setdefault(str(data["expr"]), live)

    def result(self) -> Any:
        """Return the result of the operator, made like the recorded one."""
        return self._made(self.call.result)

    def _made(self, data: Json) -> Any:
        if not isinstance(data, Mapping):
            raise UnsupportedError(f"malformed result of an operator {data!r:.80}")
        recorded = Tensor.of(data)
        if recorded is not None:
            return self._tensor(recorded)
        kind, items = data.get("k"), data.get("items")
        if kind in ("list", "tuple") and isinstance(items, list):
            made = [self._made(item) for item in items]
            return made if kind == "list" else tuple(made)
        if kind == "symint":
            return self.number(data.get("expr"))
        if kind in ("int", "bool", "float", "NoneType"):
            return node_arguments.decode_value(data.get("v"), _no_leaf)
        raise UnsupportedError(f"no stand-in of an operator answers with {kind!r:.40}")

    def _keep(self, recorded: Tensor, live: torch.Tensor) -> None:
        if recorded.object is not None:
            self._tensors.setdefault(recorded.object, live)
        if recorded.storage is not None:
            self._storages.setdefault(recorded.storage, (recorded, live))

    def _tensor(self, recorded: Tensor) -> torch.Tensor:
        if not self.aliases:
            return self._new(recorded)
        if recorded.object in self._tensors:
            return self._tensors[recorded.object]
        if recorded.storage not in self._storages and self._needs_storage(recorded):
            assert recorded.storage is not None
            self._storages[recorded.storage] = (
                replace(recorded, stride=(1,)),
                self._storage(recorded),
            )
        base = self._storages.get(-1 if recorded.storage is None else recorded.storage)
        made = self._new(recorded) if base is None else self._view(recorded, *base)
        self._keep(recorded, made)
        return made

    def _needs_storage(self, recorded: Tensor) -> bool:
        """Return True if the storage of a new tensor is more than the tensor."""
        if recorded.storage is None or recorded.storage_size is None:
            return False
        shown = _extent(recorded, _sample) * _itemsize(recorded)
        return recorded.offset != 0 or shown != _sample(recorded.storage_size)

    def _storage(self, recorded: Tensor) -> torch.Tensor:
        """Return a tensor that shows all of a new storage."""
        count = self.number(recorded.storage_size) // _itemsize(recorded)
        if isinstance(count, int):  # where the arguments are larger than the recorded ones
            others = [
                one for one in _tensors_in(self.call.result) if one.storage == recorded.storage
            ]
            count = max(count, *map(self._known_extent, others))
        like = self._like(recorded, "device")
        device = self.device or (like.device if like is not None else recorded.device)
        return torch.empty((count,), dtype=_dtype(recorded), device=device)

    def _known_extent(self, recorded: Tensor) -> int:
        found = _extent(recorded, self.number)
        return found if isinstance(found, int) else 0

    def _view(self, recorded: Tensor, known: Tensor, base: torch.Tensor) -> torch.Tensor:
        """Return a tensor of a storage that there is.

        A stride that the base has is the base's own: make_fx tells numbers by their objects.
        """
        dtype = _dtype(recorded)
        size = [self.size(number, dim, recorded) for dim, number in enumerate(recorded.size)]
        strides = dict(zip(map(str, known.stride), base.stride(), strict=False))
        stride = [
            strides[str(number)] if str(number) in strides else self.number(number)
            for number in recorded.stride
        ]
        viewed = base if base.dtype == dtype else base.view(dtype)
        return torch.as_strided(viewed, size, stride, self.number(recorded.offset))

    def _new(self, recorded: Tensor) -> torch.Tensor:
        """Return a tensor with a storage of its own."""
        like, same = self._like(recorded, "device"), self._like(recorded, "dtype")
        size = [self.size(number, dim, recorded) for dim, number in enumerate(recorded.size)]
        dtype = _dtype(recorded) if same is None else same.dtype
        device = self.device or (like.device if like is not None else recorded.device)
        order = _order(recorded)
        if order is None:
            stride = [self.number(number) for number in recorded.stride]
            made = torch.empty_strided(size, stride, dtype=dtype, device=device)
        else:
            made = torch.empty_permuted(size, order, dtype=dtype, device=device)
        return made.zero_() if self.fill else made

    def _like(self, recorded: Tensor, what: str) -> torch.Tensor | None:
        """Return the first argument that was on the device, or of the dtype, of a result."""
        for given, live in zip(self.call.given, self.live, strict=False):
            found = Tensor.of(given.get("value")) if isinstance(given, Mapping) else None
            if found is None or not isinstance(live, torch.Tensor):
                continue
            if getattr(found, what) == getattr(recorded, what):
                return live
        return None

    def size(self, number: Json, dim: int, recorded: Tensor) -> Any:
        """Return a size of a result: of the argument that has it in that place, or in another."""
        for given, live in zip(self.call.given, self.live, strict=False):
            found = Tensor.of(given.get("value")) if isinstance(given, Mapping) else None
            if found is None or not isinstance(live, torch.Tensor):
                continue
            if found.size[dim : dim + 1] == (number,) and live.dim() == len(found.size):
                return live.shape[dim]
        return self.number(number)

    def number(self, spelled: Json) -> Any:
        """Return a number that the recording spells over the sizes of the arguments."""
        if isinstance(spelled, int):
            return self._sizes.get(str(spelled), spelled)
        names = _Names()
        expr = symbols.decode_expr(spelled, names)
        known: dict[sympy.Basic, Any] = {}
        if str(spelled) in self._sizes:
            return self._sizes[str(spelled)]
        for name in names:
            if name not in self._sizes:
                self._sizes[name] = self.new_size()
            known[names[name]] = self._sizes[name]
        return sympy_interp(PythonReferenceAnalysis, known, expr)


class _Names(dict[str, sympy.Symbol]):
    """Any symbol that an expression names: a positive integer."""

    def __missing__(self, name: str) -> sympy.Symbol:
        if not name.isidentifier():
            raise UnsupportedError(f"no symbol is named {name!a:.40}")
        found = self[name] = sympy.Symbol(name, positive=True, integer=True)
        return found

    def __contains__(self, name: object) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> sympy.Symbol:
        """Return the symbol of that name."""
        return self[name]


def _dtype(recorded: Tensor) -> torch.dtype:
    return cast(torch.dtype, node_arguments.torch_constant("dtype", recorded.dtype))


def _itemsize(recorded: Tensor) -> int:
    return _dtype(recorded).itemsize


def _tensors_in(result: Json) -> list[Tensor]:
    """Return the tensors of a recorded result."""
    found = Tensor.of(result)
    if found is not None:
        return [found]
    items = as_object(result).get("items")
    return [one for item in items for one in _tensors_in(item)] if isinstance(items, list) else []


def _extent(recorded: Tensor, number: Callable[[Json], Any]) -> Any:
    """Return the number of elements that a storage has up to the last one of a tensor."""
    if 0 in recorded.size:
        return 0
    steps = [
        (number(size) - 1) * number(stride)
        for size, stride in zip(recorded.size, recorded.stride, strict=True)
    ]
    return sum(steps, number(recorded.offset) + 1)


def _order(recorded: Tensor) -> tuple[int, ...] | None:
    """Return the dimensions from the outermost to the innermost in memory; None where there are
    gaps.
    """
    sizes = [_sample(number) for number in recorded.size]
    strides = [_sample(number) for number in recorded.stride]
    order = sorted(range(len(sizes)), key=lambda dim: (-strides[dim], -sizes[dim], dim))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return None
        expected *= sizes[dim]
    return tuple(order)


def _sample(spelled: Json) -> int:
    """Return the value of an expression where each symbol is a number of its own."""
    if isinstance(spelled, int):
        return spelled
    names = _Names()
    expr = symbols.decode_expr(spelled, names)
    known = {names[name]: 2 + sum(name.encode()) for name in names}
    found = sympy_interp(PythonReferenceAnalysis, known, expr)
    return int(found)


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"a result of an operator is no {kind!r}: {data!r:.60}")
