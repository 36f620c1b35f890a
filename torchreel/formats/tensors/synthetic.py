"""Real values of descriptions, with the recorded layout and invented contents.

Lives here: tensors made from a seed, those that shared a storage sharing one again.  Not here: fake
values (`fakes`), lines of a script that make the same (`minifier.scripts.inputs`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import sympy
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, symbols
from torchreel.formats.tensors import meshes, sparse, subclasses, view_bases
from torchreel.formats.tensors.fields import (
    SYMBOLIC,
    each_of,
    evaluate_hint,
    inference_mode_of,
    inner_of,
    itemsize_of,
    list_of,
    no_leaf,
    options_of,
)
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat.tensors import fake_tensors

POSITIVE, COUNTING_NUMBERS = "positive", "counting"
"""The restrictions on inputs of a case: floats, and integers from 1 on."""
COUNTING = (1, 101)
"""The smallest of those integers, and the one after the largest: all fit into every dtype."""
_LARGE = 1 << 25
"""Bytes of a storage from which on the C library asks the system for fresh memory."""


def synthesise(
    description: Json, *, seed: int, hints: Mapping[str, Json], table: Mapping[str, sympy.Symbol]
) -> object:
    """Return a real value with the recorded layout and invented contents (seeded).

    Floats are standard normal (their absolute value where `contents` is "positive"), integers 0 or
    1, which are valid indices wherever there are two (1 to 100 where it is "counting"), booleans
    fair coins.  Symbols take their hints.
    Aliasing between inputs: `synthesise_all`.
    """
    return synthesise_all([description], seed=seed, hints=hints, table=table)[0]


def synthesise_all(
    descriptions: Sequence[Json],
    *,
    seed: int,
    hints: Mapping[str, Json],
    table: Mapping[str, sympy.Symbol],
    with_bases: bool = True,
    lazily: bool = False,
) -> list[object]:
    """Return real values for a list of inputs; those that shared a storage share one again.

    `with_bases` is False where the descriptions do not say which tensors are views, as in bundles:
    those that share a storage are then views of it. `lazily` leaves large storages as the system
    gives them: zeros, which take no memory before they are written to.
    """
    return _Synthesis(seed, hints, table, with_bases, lazily).all(descriptions)


class _Synthesis:
    def __init__(
        self,
        seed: int,
        hints: Mapping[str, Json],
        table: Mapping[str, sympy.Symbol],
        with_bases: bool,
        lazily: bool,
    ) -> None:
        self.with_bases, self.lazily = with_bases, lazily
        self.generator = torch.Generator().manual_seed(seed)
        self.hints, self.table = hints, table
        self.storages: dict[int, torch.Tensor] = {}
        self.extents: dict[int, int] = {}
        self._objects: dict[int, object] = {}
        self._bases: dict[int, torch.Tensor] = {}
        self._roots: Counter[int] = Counter()

    def all(self, descriptions: Sequence[Json]) -> list[object]:
        for description in descriptions:
            self._measure(description)
        if self.with_bases:
            self._roots = view_bases.roots(descriptions)
        return [self.value(description) for description in descriptions]

    def _int(self, size: Json) -> int:
        value = evaluate_hint(symbols.decode_expr(size, self.table), int, self.hints)
        if value is None:
            raise UnsupportedError(f"the size {size!r} has no hint, so no real input can be made")
        return int(value)

    def _measure(self, description: Json) -> None:
        """Compute how many bytes each shared storage must hold."""
        if isinstance(description, Mapping) and description.get("k") == "subclass":
            for held in inner_of(description).values():
                self._measure(held)
            return
        if isinstance(description, Mapping) and isinstance(description.get("storage"), int):
            self._measure(self._base_of(description))
            number = int(str(description["storage"]))
            extent = self._extent(description) * itemsize_of(description)
            recorded = self._recorded_extent(description)
            self.extents[number] = max(self.extents.get(number, 0), extent, recorded)

    def _base_of(self, description: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """Return the description of the base of a view; None where its sizes are not known."""
        return view_bases.base_of_extent(description, self._extent)

    def _recorded_extent(self, description: Mapping[str, Json]) -> int:
        size = description.get("storage_size")
        if self._extent(description) == 0 or size is None:
            return 0
        return self._int(size)

    def _extent(self, description: Mapping[str, Json]) -> int:
        size = [self._int(item) for item in list_of(description.get("size"))]
        stride = [self._int(item) for item in list_of(description.get("stride"))]
        if 0 in size:
            return 0
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        return self._int(description.get("offset", 0)) + reach + 1

    def value(self, description: Json) -> object:
        if not isinstance(description, Mapping):
            raise UnsupportedError(f"malformed value description {description!r:.80}")
        kind = description.get("k")
        if kind == "tensor":
            with inference_mode_of(description):
                return self._tensor(description)
        if kind == "subclass":
            return self._subclass(description)
        if kind in ("symint", "symfloat", "symbool"):
            python = SYMBOLIC[str(kind)[3:]][1]
            expr = symbols.decode_expr(description.get("expr"), self.table)
            return evaluate_hint(expr, python, self.hints)
        if kind in ("int", "bool", "float", "str", "NoneType"):
            return node_arguments.decode_value(description.get("v"), no_leaf)
        if kind == "generator":
            return torch.Generator(str(description.get("device", "cpu"))).manual_seed(0)
        if kind == meshes.KIND:
            return meshes.make(description)
        if kind == "fake":
            raise UnsupportedError(
                "the frame has a fake tensor: the program compiled in a FakeTensorMode of its own, "
                "which is not kept"
            )
        raise UnsupportedError(f"no real value can be made for an input of kind {kind!r}")

    def _tensor(self, description: Mapping[str, Json]) -> torch.Tensor:
        if description.get("layout") != "strided":
            return self._sparse(description)
        options = options_of(description)
        if "data" in description:
            data = node_arguments.decode_value(description["data"], no_leaf)
            return torch.tensor(data, **options)  # type: ignore[arg-type]
        size = [self._int(item) for item in list_of(description.get("size"))]
        flags = list_of(description.get("flags") or [])
        if "zero" in flags:
            return fake_tensors.zero_tensor(size, **options)
        number = view_bases.object_of(description)
        if number is not None and number in self._bases:
            return self._bases[number]
        base = self._base_of(description)
        if base is not None:
            tensor = self._view(self._tensor(base), description, size, options)
        else:
            tensor = self._strided(description, size, options)
        tensor = torch._conj(tensor) if "conj" in flags else tensor
        tensor = torch._neg_view(tensor) if "neg" in flags else tensor
        made = self._with_autograd(tensor, description)
        if number is not None:
            self._bases[number] = made
        return made

    def _with_autograd(self, tensor: torch.Tensor, description: Mapping[str, Json]) -> torch.Tensor:
        """Return a tensor as it was recorded: what others are views of is no view itself."""
        if _is_whole(tensor) and view_bases.is_computed_base(description, self._roots):
            with torch.enable_grad():
                return tensor.requires_grad_().clone()
        return with_autograd(tensor, description)

    def _view(
        self,
        base: torch.Tensor,
        description: Mapping[str, Json],
        size: list[int],
        options: dict[str, object],
    ) -> torch.Tensor:
        """Return a view of a tensor, as autograd knows it."""
        stride = [self._int(item) for item in list_of(description.get("stride"))]
        offset = self._int(description.get("offset", 0))
        followed = bool(description.get("requires_grad")) and not description.get("leaf", True)
        if followed and not base.requires_grad:
            base = base.view_as(base).requires_grad_()
        with torch.set_grad_enabled(followed):
            if base.dtype is not options["dtype"]:
                base = base.view(options["dtype"])  # type: ignore[call-overload]
            return base.as_strided(size, stride, offset)

    def _sparse(self, description: Mapping[str, Json]) -> torch.Tensor:
        if description.get("layout") == "_mkldnn":
            raise UnsupportedError(_PACKED)
        size = [self._int(item) for item in list_of(description.get("size"))]
        sparse.options_of(description, size)
        options = options_of(description)
        dtype = options["dtype"]
        assert isinstance(dtype, torch.dtype)
        dense = _random(math.prod(size), dtype, self.generator).reshape(size)
        made = sparse.make(description, _on_device(dense, str(options["device"])))
        return with_autograd(made, description)

    def _subclass(self, description: Mapping[str, Json]) -> torch.Tensor:
        inner = each_of(inner_of(description), self.value, self._objects)
        size = [self._int(item) for item in list_of(description.get("size"))]
        stride = [self._int(item) for item in list_of(description.get("stride"))]
        context = node_arguments.decode_value(description.get("context"), self._number_of_context)
        with torch.no_grad():
            whole = subclasses.unflatten(str(description["type"]), inner, context, size, stride)
        return with_autograd(whole, description)

    def _number_of_context(self, kind: str, data: Json) -> object:
        if kind == "sym" and isinstance(data, Mapping):
            return self._int(data.get("expr"))
        return no_leaf(kind, data)

    def _strided(
        self, description: Mapping[str, Json], size: list[int], options: dict[str, object]
    ) -> torch.Tensor:
        stride = [self._int(item) for item in list_of(description.get("stride"))]
        offset = self._int(description.get("offset", 0))
        dtype = options["dtype"]
        assert isinstance(dtype, torch.dtype)
        storage = self._storage(description, dtype, str(options["device"]))
        if storage.dtype is not dtype:
            storage = storage.view(dtype)
        made = storage.as_strided(size, stride, offset)
        number = description.get("storage")
        shared = isinstance(number, int) and self._roots[number] > 0
        # A view of something it is all the same where it is a part, as in a program.
        return made.detach() if shared or _is_whole(made) else made

    def _storage(
        self, description: Mapping[str, Json], dtype: torch.dtype, device: str
    ) -> torch.Tensor:
        number = description.get("storage")
        if isinstance(number, int) and number in self.storages:
            return self.storages[number]
        extent = self.extents.get(number, 0) if isinstance(number, int) else 0
        count = max(self._extent(description), math.ceil(extent / dtype.itemsize))
        if self.lazily and count * dtype.itemsize >= _LARGE:
            made = torch.empty(count, dtype=dtype)
        else:
            made = _random(count, dtype, self.generator, str(description.get("contents", "")))
        made = _on_device(made, device)
        if isinstance(number, int):
            self.storages[number] = made
        return made


def _on_device(tensor: torch.Tensor, device: str) -> torch.Tensor:
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError) as error:  # no such device, or a torch without it
        raise UnsupportedError(
            f"no tensor on {device} can be made on this machine: replay it from --entry graph, "
            "which needs none, or where there is such a device"
        ) from error


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is contiguous and all of its storage."""
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


def with_autograd(tensor: torch.Tensor, description: Mapping[str, Json]) -> torch.Tensor:
    """Return a real tensor as a parameter, a leaf or none, as it was recorded."""
    tensor = torch.nn.Parameter(tensor, False) if description.get("parameter") else tensor
    if description.get("requires_grad"):
        tensor.requires_grad_(True)
        if not description.get("leaf", True) and tensor.is_leaf:
            with torch.enable_grad():
                # With its strides: a view would have others where a size is one.
                tensor = torch.ops.aten.alias.default(tensor)
    return tensor


def _random(
    count: int, dtype: torch.dtype, generator: torch.Generator, contents: str = ""
) -> torch.Tensor:
    """Return numbers of one dtype; `contents` says which, where not any."""
    if dtype.is_complex:
        real = torch.randn(count, 2, generator=generator)
        return torch.view_as_complex(real).to(dtype)
    if dtype.is_floating_point:
        made = torch.randn(count, generator=generator).to(dtype)
        return made.abs() if contents == POSITIVE else made
    low, high = COUNTING if contents == COUNTING_NUMBERS and dtype is not torch.bool else (0, 2)
    return torch.randint(low, high, (count,), generator=generator).to(dtype)


_PACKED = (
    "the graph holds a weight that oneDNN has packed, as Inductor does when it freezes a graph, in "
    "a layout that oneDNN alone knows: replay it from before that, with --entry graph"
)
