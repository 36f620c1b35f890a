"""The inputs of a case as lines of source: the values, layouts and sharing that the oracle had.

`formats.tensors.synthetic` is the model; the lines draw from the default generator what
that draws from one of its own, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from torchreel.errors import UnsupportedError
from torchreel.escaping.python import literal
from torchreel.formats import node_arguments, symbols
from torchreel.formats.checkpoints.document import CheckpointDoc
from torchreel.formats.shape_env import snapshots
from torchreel.formats.tensors import meshes, sparse, view_bases
from torchreel.formats.tensors.fields import evaluate_hint
from torchreel.formats.tensors.synthetic import COUNTING, COUNTING_NUMBERS, POSITIVE
from torchreel.minifier.cases.descriptions import contiguous
from torchreel.minifier.scripts import distributed
from torchreel.store.documents import spelling
from torchreel.store.documents.jsontypes import Json
from torchreel.store.documents.kinds import as_list, as_object

_SHORT = {
    "float64": ".double()", "float16": ".half()", "bfloat16": ".bfloat16()", "bool": ".bool()",
    "int32": ".int()",
}  # fmt: skip


class InputLines:
    """Writes values of descriptions that belong to one document."""

    def __init__(self, doc: CheckpointDoc, descriptions: Sequence[Json]) -> None:
        self._table = snapshots.decode_symbols(doc.shape_env)
        self._hints = doc.hints
        self._descriptions = [as_object(value) for value in descriptions]
        held = [*self._descriptions, *distributed.parts(self._descriptions)]
        self._users = view_bases.with_bases(held)
        self._roots = view_bases.roots(held)
        self._storages: dict[int, tuple[Json, int]] = {}
        """The dtype and the number of elements of each storage that has a line."""
        self._bases: dict[int, str] = {}
        self._meshes: dict[str, str] = {}
        """The names of meshes that have a line, by their expressions."""

    def lines(self, names: Sequence[str]) -> Iterator[str]:
        """Yield one line per value, or two where it needs a storage or a view."""
        for name, description in zip(names, self._descriptions, strict=True):
            yield from self._lines(name, description)

    def _lines(self, name: str, description: Mapping[str, Json]) -> Iterator[str]:
        kind = description.get("k")
        if kind == "tensor":
            yield from self._tensor(name, description)
        elif kind in ("symint", "symfloat", "symbool"):
            yield f"{name} = {self._scalar(description)}"
        elif kind in ("int", "bool", "float", "str", "NoneType"):
            yield f"{name} = {spelling.constant(description.get('v'))}"
        elif kind == "generator":
            yield f"{name} = torch.Generator()"
        elif kind == meshes.KIND:
            yield f"{name} = {self._mesh(description)}"
            self._meshes.setdefault(distributed.mesh(description), name)
        elif kind == "subclass":
            yield from self._distributed(name, description)
        else:
            raise UnsupportedError(f"no line of source makes an input of kind {kind!r}")

    def _mesh(self, description: Mapping[str, Json]) -> str:
        """Return a mesh, by the name of the input that is the same."""
        text = distributed.mesh(description)
        return self._meshes.get(text, text)

    def _distributed(self, name: str, description: Mapping[str, Json]) -> Iterator[str]:
        """Write a distributed tensor, and before it the part that this process has."""
        inner = as_object(description.get("inner"))
        local, mesh = as_object(inner.get("_local_tensor")), as_object(inner.get("device_mesh"))
        sizes = [
            [self._int(item) for item in as_list(value.get("size"))]
            for value in (description, local)
        ]
        whole = distributed.tensor(name, self._mesh(mesh), description, *sizes)
        yield from self._tensor(name, local)
        yield f"{name} = {self._finished(whole, description, [])}"

    def _scalar(self, description: Mapping[str, Json]) -> str:
        python = {"symint": int, "symfloat": float, "symbool": bool}[str(description["k"])]
        expr = symbols.decode_expr(description.get("expr"), self._table)
        value = evaluate_hint(expr, python, self._hints)
        if value is None:
            raise UnsupportedError(f"the input {description.get('expr')!r} has no known value")
        return repr(value)

    def _int(self, size: Json) -> int:
        value = evaluate_hint(symbols.decode_expr(size, self._table), int, self._hints)
        if value is None:
            raise UnsupportedError(f"the size {size!r} has no known value")
        return int(value)

    def _tensor(self, name: str, description: Mapping[str, Json]) -> Iterator[str]:
        flags = as_list(description.get("flags"))
        number = view_bases.object_of(description)
        base = self._base_of(description)
        if number in self._bases:
            yield f"{name} = {self._bases[number]}"
            return
        if base is not None:
            yield from self._view(name, base, description, flags)
        else:
            yield from self._root(name, description, flags)
        if number is not None:
            self._bases[number] = name

    def _base_of(self, description: Mapping[str, Json]) -> Mapping[str, Json] | None:
        return view_bases.base_of_extent(description, self._extent)

    def _view(
        self,
        name: str,
        base: Mapping[str, Json],
        description: Mapping[str, Json],
        flags: list[Json],
    ) -> Iterator[str]:
        """Write a view of another tensor, and that one before if it is no input that is there."""
        number = view_bases.object_of(base)
        assert number is not None, "base_of wants one"
        if number not in self._bases:
            yield from self._tensor(f"base{number}", base)
        text = self._bases[number]
        followed = bool(description.get("requires_grad")) and not description.get("leaf", True)
        if followed and not base.get("requires_grad"):
            text += f".view_as({text}).requires_grad_()"
        if base.get("dtype") != description.get("dtype"):
            text += f".view({_dtype(description)})"
        size = tuple(self._int(item) for item in as_list(description.get("size")))
        text += self._as_strided(description, size)
        line = f"{name} = {self._finished(text, description, flags, given=followed)}"
        if base.get("requires_grad") and not followed:
            yield from ("with torch.no_grad():", f"    {line}")
        else:
            yield line

    def _root(self, name: str, description: Mapping[str, Json], flags: list[Json]) -> Iterator[str]:
        """Write a tensor that is no view, and the storage before that it shares with others."""
        found = description.get("storage")
        number = found if isinstance(found, int) else -1
        size = tuple(self._int(item) for item in as_list(description.get("size")))
        whole = description.get("layout") == "strided" and self._is_plain(description, size)
        shared = self._roots[number] > 0 and "zero" not in flags
        only = shared and whole and self._roots[number] == 1
        if shared and not only:
            yield from self._storage(number, description)
            text = self._of_storage(number, description, size)
        else:
            text = self._base(description, flags)
        yield f"{name} = {self._finished(text, description, flags)}"
        if only and view_bases.is_computed_base(description, self._roots):
            yield f"{name} = {name}.clone()"
        elif description.get("requires_grad") and not description.get("leaf", True):
            yield f"{name} = {name}.view_as({name})"

    def _storage(self, number: int, description: Mapping[str, Json]) -> Iterator[str]:
        """Write the memory that several tensors share, where it is not there yet."""
        if number not in self._storages:
            count = self._count(description)
            self._storages[number] = description.get("dtype"), count
            yield f"storage{number} = {self._random((count,), description)}"

    def _of_storage(
        self, number: int, description: Mapping[str, Json], size: tuple[int, ...]
    ) -> str:
        """Return a tensor of shared memory, of which autograd knows nothing."""
        dtype, count = self._storages[number]
        text = f"storage{number}"
        if dtype != description.get("dtype"):
            text += f".view({_dtype(description)})"
        elif size == (count,) and self._is_plain(description, size):
            return f"{text}.detach()"
        return f"{text}{self._as_strided(description, size)}.detach()"

    def _base(self, description: Mapping[str, Json], flags: list[Json]) -> str:
        """Return the strided tensor, before it becomes a parameter or gets a gradient."""
        if description.get("layout") != "strided":
            return self._sparse(description)
        if "data" in description:
            data = spelling.constant(description["data"])
            return f"torch.tensor({data}, dtype={_dtype(description)})"
        size = tuple(self._int(item) for item in as_list(description.get("size")))
        if "zero" in flags:
            return f"torch._efficientzerotensor({size!r}, dtype={_dtype(description)})"
        if self._is_plain(description, size):
            return self._random(size, description)
        flat = self._random((self._count(description),), description)
        return f"{flat}{self._as_strided(description, size)}"

    def _sparse(self, description: Mapping[str, Json]) -> str:
        size = tuple(self._int(item) for item in as_list(description.get("size")))
        options = sparse.options_of(description, size)
        given = ", ".join(f"{name}={value}" for name, value in options.items())
        return f"{self._random(size, description)}.to_sparse({given})"

    def _as_strided(self, description: Mapping[str, Json], size: tuple[int, ...]) -> str:
        stride = tuple(self._int(item) for item in as_list(description.get("stride")))
        offset = self._int(description.get("offset", 0))
        return f".as_strided({size!r}, {stride!r}{f', {offset}' if offset else ''})"

    def _is_plain(self, description: Mapping[str, Json], size: tuple[int, ...]) -> bool:
        """Return True if a fresh tensor of that size has just that layout."""
        stride = [self._int(item) for item in as_list(description.get("stride"))]
        return stride == contiguous(list(size)) and self._count(description) == math.prod(size)

    def _count(self, description: Mapping[str, Json]) -> int:
        """Count the elements of the storage of a tensor, its other users included."""
        number = description.get("storage")
        users = [d for d in self._users if d is description or (
            number is not None and d.get("storage") == number
        )]  # fmt: skip
        needed = max(self._bytes(user) for user in users)
        return max(self._extent(description), math.ceil(needed / _itemsize(description)))

    def _bytes(self, description: Mapping[str, Json]) -> int:
        extent = self._extent(description)
        recorded = description.get("storage_size")
        known = isinstance(description.get("storage"), int) and extent and recorded is not None
        return max(extent * _itemsize(description), self._int(recorded) if known else 0)

    def _extent(self, description: Mapping[str, Json]) -> int:
        size = [self._int(item) for item in as_list(description.get("size"))]
        stride = [self._int(item) for item in as_list(description.get("stride"))]
        if 0 in size:
            return 0
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        return self._int(description.get("offset", 0)) + reach + 1

    def _random(self, size: tuple[int, ...], description: Mapping[str, Json]) -> str:
        dtype, name = _torch_dtype(description), str(description.get("dtype"))
        shape = ", ".join(map(str, size)) if size else "()"
        if dtype.is_complex:
            pairs = ", ".join(map(str, (*size, 2)))
            text, made = f"torch.view_as_complex(torch.randn({pairs}))", "complex64"
        elif dtype.is_floating_point:
            text, made = f"torch.randn({shape})", "float32"
            text += ".abs()" if description.get("contents") == POSITIVE else ""
        else:
            counting = description.get("contents") == COUNTING_NUMBERS and name != "bool"
            low, high = COUNTING if counting else (0, 2)
            text, made = f"torch.randint({low}, {high}, {size!r})", "int64"
        return text if name == made else text + _SHORT.get(name, f".to(torch.{name})")

    def _finished(
        self, text: str, description: Mapping[str, Json], flags: list[Json], *, given: bool = False
    ) -> str:
        """Add the device, the conjugation and the gradient that a tensor needs, unless it is
        `given`.
        """
        device = str(description.get("device", "cpu"))
        text = text if device == "cpu" else f"{text}.to({literal(device)})"
        text = f"torch._conj({text})" if "conj" in flags else text
        text = f"torch._neg_view({text})" if "neg" in flags else text
        needs_grad = bool(description.get("requires_grad")) and not given
        if description.get("parameter"):
            without = "" if needs_grad else ", requires_grad=False"
            return f"torch.nn.Parameter({text}{without})"
        if needs_grad and text.startswith("torch.randn(") and text.count("(") == 1:
            return f"{text[:-1]}, requires_grad=True)"
        return f"{text}.requires_grad_()" if needs_grad else text


def _torch_dtype(description: Mapping[str, Json]) -> torch.dtype:
    dtype = node_arguments.torch_constant("dtype", description.get("dtype"))
    assert isinstance(dtype, torch.dtype), "torch_constant found it"
    return dtype


def _dtype(description: Mapping[str, Json]) -> str:
    return str(_torch_dtype(description))


def _itemsize(description: Mapping[str, Json]) -> int:
    return _torch_dtype(description).itemsize
