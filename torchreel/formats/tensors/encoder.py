"""Tensors and symbolic scalars by description: everything but their values.

Lives here: the description of a live (real or fake) value.  Not here: a value made of one (`fakes`,
`synthetic`), where a description stands (`graphs`, `checkpoints`).

Values are never read, with one exception: constants that a graph itself holds (`torch.tensor(3)`
in a traced function), of at most `MAX_LITERAL` elements, because Inductor writes them into the
code.  Weights are such constants only where freezing makes them so, and their values stand in the
output code then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from torchreel.formats import node_arguments, symbols
from torchreel.formats.tensors import meshes, sparse
from torchreel.formats.tensors.fields import INFERENCE, SEQUENCES
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import distributed, shapes
from torchreel.torch_compat.inductor import code_generation
from torchreel.torch_compat.tensors import fake_tensors
from torchreel.torch_compat.tensors.fake_tensors import FakeTensor

MAX_LITERAL = 8  # elements; Inductor inlines 1-d constants of up to eight


class Encoder:
    """Describes values; storages are numbered in the order of their appearance.

    With `unreplaced`, sizes are also given as they were made, if a replacement changed them since:
    the input of a stage has to be spelled as it was.  `objects` numbers the inner tensors of
    wrappers, for several encoders in one.
    """

    def __init__(self, *, unreplaced: bool = False, objects: dict[int, int] | None = None) -> None:
        self._unreplaced = unreplaced
        self._objects = {} if objects is None else objects
        self._storages: dict[int, int] = {}
        self._held: list[object] = []  # keeps ids unique while this document is being made

    def describe(self, value: object, *, literal: bool = False) -> Json:
        """Return the description of a value of a graph (see the module)."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, literal)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return _symbolic(value)
        if type(value) in SEQUENCES:
            items = [self.describe(item) for item in value]  # type: ignore[attr-defined]
            return {"k": SEQUENCES[type(value)], "items": items}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"k": type(value).__name__, "v": node_arguments.encode_value(value)}
        if isinstance(value, torch.Generator):
            return {"k": "generator", "device": str(value.device)}
        if (mesh := distributed.mesh_of(value)) is not None:
            return {**meshes.describe(mesh), **({"fake": True} if mesh is not value else {})}
        why = node_arguments.opaque(value, "no description for this type")["opaque"]
        return {"k": "opaque", **why}  # type: ignore[dict-item]

    def _tensor(self, tensor: torch.Tensor, literal: bool) -> Json:
        if fake_tensors.is_functorch_wrapper(tensor):
            return _wrapper(tensor)
        if fake_tensors.is_wrapper_subclass(tensor):
            return self._subclass(tensor)
        if tensor.layout is not torch.strided:
            described = {**_common(tensor), "size": _sizes(tensor.shape), "flags": _flags(tensor)}
            return {**described, **sparse.describe(tensor)}
        description: dict[str, Json] = {
            **_common(tensor),
            "size": _sizes(tensor.shape),
            "stride": _sizes(tensor.stride()),
            "offset": _size(tensor.storage_offset()),
            "flags": _flags(tensor),
            **self._storage(tensor),
            **(_unreplaced(tensor) if self._unreplaced else {}),
        }
        memo = fake_tensors.item_memo(tensor)
        if memo is not None:
            description["item"] = _symbolic(memo)
        is_constant = literal and not isinstance(tensor, FakeTensor)
        if is_constant and code_generation.may_be_written_into_code(tensor):
            description.update(_literal(tensor))
        return description

    def _storage(self, tensor: torch.Tensor) -> dict[str, Json]:
        storage = fake_tensors.storage_of(tensor)
        if storage is None:
            return {}
        key, size = storage
        if key not in self._storages:
            self._held.append(tensor)
        number = self._storages.setdefault(key, len(self._storages))
        # A symbolic size of a storage is no property of the tensor: how it is spelled depends on
        # which caches of the fake mode were warm.  It follows from sizes and strides.
        return {"storage": number} if isinstance(size, torch.SymInt) else {
            "storage": number, "storage_size": int(size),  # type: ignore[call-overload]
        }  # fmt: skip

    def _subclass(self, tensor: torch.Tensor) -> Json:
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        held = {name: getattr(tensor, name) for name in names}
        self._held += held.values()
        inner: dict[str, Json] = {}
        for name, value in held.items():
            described = self.describe(value)
            # One tensor that several hold is traced as one.
            number = self._objects.setdefault(id(value), len(self._objects))
            inner[name] = {**described, "object": number}  # type: ignore[dict-item]
        return {
            **_common(tensor),
            "k": "subclass",
            "size": _sizes(tensor.shape),
            "stride": _sizes(tensor.stride()),
            "type": f"{type(tensor).__module__}.{type(tensor).__qualname__}",
            "inner": inner,
            "context": node_arguments.encode_value(context),
        }


def _wrapper(tensor: torch.Tensor) -> Json:
    """Return the description of a tensor wrapped by vmap or grad: that level is left by then.

    Nothing else can be read of it, and torch prints nothing else.
    """
    return {
        "k": "tensor",
        "dtype": _name(tensor.dtype),
        "device": _name(tensor.device),
        "layout": "strided",
        "size": _sizes(tensor.shape),
        "stride": _sizes(tensor.stride()),
        "wrapper": "functorch",
    }


def _common(tensor: torch.Tensor) -> dict[str, Json]:
    return {
        "k": "tensor",
        "dtype": _name(tensor.dtype),
        "device": _name(tensor.device),
        "layout": _name(tensor.layout),
        "requires_grad": tensor.requires_grad,
        "leaf": _is_leaf(tensor),
        "parameter": isinstance(tensor, torch.nn.Parameter),
    }


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Return True if autograd has no function for a tensor.

    If the base of a view was written to, torch makes the view's function anew. That may fail where
    torch's modes are off, but the view has a function in any case.
    """
    try:
        return bool(vars(torch._C.TensorBase)["is_leaf"].__get__(tensor))  # past a property's
    except RuntimeError:
        return False


@cache
def _name(value: torch.dtype | torch.device | torch.layout) -> str:
    return str(value).removeprefix("torch.")


def _size(size: object) -> Json:
    if type(size) is int:
        return size
    if isinstance(size, torch.SymInt):
        return symbols.encode_expr(shapes.expression(size.node))
    return int(size)  # type: ignore[call-overload,no-any-return]


def _sizes(sizes: Sequence[object]) -> list[Json]:
    return [_size(size) for size in sizes]


def _unreplaced(tensor: torch.Tensor) -> dict[str, Json]:
    """Return sizes, strides and offset as they were made, if one of them is spelled otherwise
    now.
    """
    numbers = [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
    before = [_before(number) for number in numbers]
    return {} if before == _sizes(numbers) else {"unreplaced": before}


def _before(size: object) -> Json:
    if isinstance(size, torch.SymInt):
        return symbols.encode_expr(shapes.unreplaced(size.node))
    return _size(size)


def _symbolic(value: torch.SymInt | torch.SymFloat | torch.SymBool) -> Json:
    node = value.node
    kind = type(value).__name__.lower()
    hint, expr = shapes.hint_of(node), shapes.expression(node)
    description: dict[str, Json] = {
        "k": kind,
        "expr": symbols.encode_expr(expr),
        "hint": node_arguments.encode_value(hint) if isinstance(hint, (bool, int, float)) else None,
    }
    before = shapes.unreplaced(node)
    # A symbol that was specialised: it goes on by its own name in what is traced later.
    return description if before == expr else {
        **description, "unreplaced": symbols.encode_expr(before)
    }  # fmt: skip


def _flags(tensor: torch.Tensor) -> list[str]:
    flags = {
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        INFERENCE: tensor.is_inference(),
        "zero": fake_tensors.has_zero_tensor(tensor),
        "mkldnn": tensor.is_mkldnn,
    }
    return [name for name, holds in flags.items() if holds]


def _literal(tensor: torch.Tensor) -> dict[str, Json]:
    if tensor.numel() > MAX_LITERAL or tensor.device.type != "cpu":
        return {}
    return {"data": node_arguments.encode_value(tensor.detach().tolist())}
