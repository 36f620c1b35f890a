"""Tensors and symbolic scalars by description: everything but their values.

Lives here: description of a live (real or fake) value, the fake value of a description, and a
synthetic real value of one.  Not here: where a description stands (`graphs`, `checkpoints`).

Values are never read, with one exception: constants that a graph itself holds (`torch.tensor(3)`
in a traced function), of at most `MAX_LITERAL` elements, because Inductor writes them into the
code.  Weights are such constants only where freezing makes them so, and their values stand in the
output code then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import sympy
import torch
from torch.fx.immutable_collections import immutable_list

from torchreel.errors import UnsupportedError
from torchreel.formats import sparse, subclasses, symbols, values, view_bases
from torchreel.store.documents.jsontypes import Json
from torchreel.torch_compat import fake_tensors, inductor, shapes
from torchreel.torch_compat.fake_tensors import FakeTensor, FakeTensorMode
from torchreel.torch_compat.shapes import ShapeEnv, SymNode

MAX_LITERAL = 8  # elements; Inductor inlines 1-d constants of up to eight


INFERENCE = "inference"
"""The flag of a tensor that was made in inference mode."""
POSITIVE, COUNTING_NUMBERS = "positive", "counting"
"""The restrictions on inputs of a case: floats, and integers from 1 on."""
COUNTING = (1, 101)
"""The smallest of those integers, and the one after the largest: all fit into every dtype."""


_SEQUENCES: dict[type, str] = {
    list: "list", tuple: "tuple", torch.Size: "size", immutable_list: "immutable_list",
}  # fmt: skip
_BUILDERS: dict[str, Callable[[list[Any]], object]] = {
    name: cls for cls, name in _SEQUENCES.items()
}


class Encoder:
    """Describes values; storages are numbered in the order in which they are met.

    With `unreplaced`, sizes are also given as they were made, where a replacement changed them
    since: what a stage is fed with has to be spelled as it was.  `objects` numbers the tensors that
    wrappers hold, for several encoders in one.
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
        if type(value) in _SEQUENCES:
            items = [self.describe(item) for item in value]  # type: ignore[attr-defined]
            return {"k": _SEQUENCES[type(value)], "items": items}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"k": type(value).__name__, "v": values.encode_value(value)}
        if isinstance(value, torch.Generator):
            return {"k": "generator", "device": str(value.device)}
        return {"k": "opaque", **values.opaque(value, "no description for this type")["opaque"]}  # type: ignore[dict-item]

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
        if is_constant and inductor.may_be_written_into_code(tensor):
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
            "context": values.encode_value(context),
        }


def _wrapper(tensor: torch.Tensor) -> Json:
    """Return what a tensor of a level of vmap or grad looks like: the level is left by then.

    More can't be asked of it, and more than torch prints of it nobody will.
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
    """Return whether autograd has no function for a tensor.

    Of a view whose base was written to, torch makes that function anew, which may fail where its
    modes are off: there is one, in any case.
    """
    try:
        return tensor.is_leaf
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
        "hint": values.encode_value(hint) if isinstance(hint, (bool, int, float)) else None,
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


def _inference_of(description: Mapping[str, Json]) -> AbstractContextManager[object]:
    """Enter or leave inference mode, so that what is made is an inference tensor as recorded.

    Whether a compile runs in inference mode does not say which of its inputs are such tensors.
    """
    wanted = INFERENCE in _list(description.get("flags") or [])
    if wanted is torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(wanted)


def _literal(tensor: torch.Tensor) -> dict[str, Json]:
    if tensor.numel() > MAX_LITERAL or tensor.device.type != "cpu":
        return {}
    return {"data": values.encode_value(tensor.detach().tolist())}


class Decoder:
    """Builds fake values from descriptions, over one ShapeEnv and one FakeTensorMode."""

    def __init__(
        self, mode: FakeTensorMode, table: Mapping[str, sympy.Symbol], hints: Mapping[str, Json]
    ) -> None:
        self.mode, self.table, self.hints = mode, table, hints
        self._bases: dict[int, torch.Tensor] = {}
        self._objects: dict[int, object] = {}

    @property
    def env(self) -> ShapeEnv:
        """The ShapeEnv that symbolic sizes refer to."""
        assert self.mode.shape_env is not None, "a decoder is made with a ShapeEnv"
        return self.mode.shape_env

    def size(self, size: Json) -> int | torch.SymInt:
        """Return a size: an integer, or a SymInt over the document's symbols."""
        if isinstance(size, int):
            return size
        value = self.symbolic("int", size)
        return value  # type: ignore[return-value]

    def symbolic(self, pytype: str, text: Json, *, keep: bool = False) -> object:
        """Return a SymInt, SymFloat or SymBool of an expression; `keep` it even where it is a
        constant.

        A symbol that was specialised stays a SymInt, and counts as one in what is traced later.
        """
        expr = symbols.decode_expr(text, self.table)
        cls, python = _SYMBOLIC[pytype]
        if pytype == "int" and isinstance(expr, sympy.Integer) and not keep:
            return int(expr)
        hint: object = evaluate_hint(expr, python, self.hints)
        if hint is None:
            hint = shapes.nested_hint(self.env, expr) or shapes.no_hint()
        return cls(SymNode(expr, self.env, python, hint))

    def fake(self, description: Json) -> object:
        """Return the fake value of a description.

        Raises `UnsupportedError` where there is none.
        """
        if not isinstance(description, Mapping):
            raise UnsupportedError(f"malformed value description {description!r:.80}")
        return self._object(description)

    def _fake(self, description: Mapping[str, Json]) -> object:
        kind = str(description.get("k"))
        if kind == "tensor":
            return self._tensor(description)
        if kind == "subclass":
            return self._subclass(description)
        if kind in ("symint", "symfloat", "symbool"):
            text = description.get("unreplaced", description.get("expr"))
            return self.symbolic(kind[3:], text, keep=True)
        if kind in _BUILDERS:
            return _BUILDERS[kind]([self.fake(item) for item in _list(description.get("items"))])
        if kind in ("int", "bool", "float", "str", "NoneType"):
            return values.decode_value(description.get("v"), _no_leaf)
        if kind == "generator":
            return torch.Generator(str(description.get("device", "cpu")))
        raise UnsupportedError(
            f"an input of type {description.get('type', kind)} has no portable form: "
            f"{description.get('reason', 'unknown kind')}"
        )

    def _tensor(self, description: Mapping[str, Json]) -> torch.Tensor:
        with _inference_of(description):
            try:
                with self.mode, shapes.suppress_guards(self.env), torch.no_grad():
                    plain = self._plain(description)
            except (OverflowError, RuntimeError, TypeError) as error:  # of torch: a size of -1, ...
                raise UnsupportedError(
                    f"no tensor is like the recorded one: {str(error).partition(chr(10))[0]:.200}"
                ) from error
            return self._autograd(plain, description)

    def _subclass(self, description: Mapping[str, Json]) -> torch.Tensor:
        inner = _each(_inner(description), self.fake, self._objects)
        size, stride, _ = self._numbers(description)
        context = values.decode_value(description.get("context"), _no_leaf)
        with self.mode, shapes.suppress_guards(self.env), torch.no_grad():
            whole = subclasses.unflatten(str(description["type"]), inner, context, size, stride)
        return self._autograd(whole, description)

    def _autograd(self, plain: torch.Tensor, description: Mapping[str, Json]) -> torch.Tensor:
        """Give a fake tensor the leaf state, and the kind, of the recorded tensor."""
        if description.get("parameter"):
            return torch.nn.Parameter(plain, requires_grad=bool(description.get("requires_grad")))
        if description.get("requires_grad") and not plain.requires_grad:
            plain.requires_grad_(True)
            if not description.get("leaf", True):
                with torch.enable_grad(), self.mode, shapes.suppress_guards(self.env):
                    return fake_tensors.with_history(plain)
        return plain

    def _plain(self, description: Mapping[str, Json]) -> torch.Tensor:
        size, stride, offset = self._numbers(description)
        flags = _list(description.get("flags") or [])
        options = _options(description)
        if description.get("layout") != "strided":
            raise UnsupportedError(
                f"a tensor of layout {description.get('layout')} cannot be rebuilt yet"
            )
        # A ZeroTensor's fake is an ordinary tensor: that is how the kernel comes to read nothing.
        tensor = self._strided(description, size, stride, offset, options)
        with torch.set_grad_enabled(tensor.grad_fn is not None):
            tensor = torch._conj(tensor) if "conj" in flags else tensor
            tensor = torch._neg_view(tensor) if "neg" in flags else tensor
        if "item" in description:
            fake_tensors.set_item_memo(tensor, self.fake(description["item"]))
        return tensor

    def _strided(
        self,
        description: Mapping[str, Json],
        size: list[int | torch.SymInt],
        stride: list[int | torch.SymInt],
        offset: int | torch.SymInt,
        options: dict[str, object],
    ) -> torch.Tensor:
        number = description.get("storage")
        viewed = self._view_base(description)
        if viewed is not None:
            return self._view(viewed, description, size, stride, offset, options)
        base = self._bases.get(number) if isinstance(number, int) else None
        if base is None and self._is_tight(description):
            if shapes.is_specialised([*size, *stride]):
                base = fake_tensors.fake_of_meta(self.mode, size, stride, options)
            else:
                base = torch.empty_strided(size, stride, **options)  # type: ignore[arg-type]
            if isinstance(number, int):
                self._bases[number] = base
            return base
        if base is None:
            base = self._storage(description, options)
            if isinstance(number, int):
                self._bases[number] = base
        tensor = torch.empty_strided(size, stride, **options)  # type: ignore[arg-type]
        fake_tensors.set_storage(self.mode, tensor, base, offset, size, stride)
        return tensor

    def _view_base(self, description: Mapping[str, Json]) -> torch.Tensor | None:
        """Return the tensor that another is a view of; None for one that is no view.

        A case that was reduced may have lost the storage of a view, or the symbols of its base.
        """
        view = description.get("view")
        base = view.get("base") if isinstance(view, Mapping) else None
        if not isinstance(base, Mapping) or "storage" not in description:
            return None
        try:
            found = self._object(base)
        except UnsupportedError:
            return None
        return found if isinstance(found, torch.Tensor) else None

    def _object(self, description: Mapping[str, Json]) -> object:
        """Return a value that may stand in several places of a document: one for all of them."""
        number = description.get("object")
        if not isinstance(number, int):
            return self._fake(description)
        if number not in self._objects:
            self._objects[number] = self._fake(description)
        return self._objects[number]

    def _view(
        self,
        base: torch.Tensor,
        description: Mapping[str, Json],
        size: list[int | torch.SymInt],
        stride: list[int | torch.SymInt],
        offset: int | torch.SymInt,
        options: dict[str, object],
    ) -> torch.Tensor:
        """Return a view of another tensor, as autograd knows it and a converter makes it."""
        followed = bool(description.get("requires_grad")) and not description.get("leaf", True)
        view = description["view"]
        if followed and not base.requires_grad:
            base = base.view(base.shape).requires_grad_()
        with torch.set_grad_enabled(followed):
            if base.dtype is not options["dtype"]:
                base = base.view(options["dtype"])  # type: ignore[call-overload]
            found = base.as_strided(size, stride, offset)
        creation = view.get("creation") if isinstance(view, Mapping) else None
        fake_tensors.set_creation_of_view(found, str(creation))
        return found

    def _numbers(
        self, description: Mapping[str, Json]
    ) -> tuple[list[int | torch.SymInt], list[int | torch.SymInt], int | torch.SymInt]:
        """Return sizes, strides and offset."""
        size, stride = _list(description.get("size")), _list(description.get("stride") or [])
        numbers = [*size, *stride, description.get("offset", 0)]
        before = description.get("unreplaced")
        if not isinstance(before, list) or len(before) != len(numbers):
            before = numbers
        found = [self._number(*both) for both in zip(numbers, before, strict=True)]
        return found[: len(size)], found[len(size) : -1], found[-1]

    def _number(self, size: Json, before: Json) -> int | torch.SymInt:
        """Return a size, spelled as it was `before` replacements: if it still says the same.

        A case that was reduced may have other sizes by now, or lack the symbol.
        """
        number = self.size(size)
        if before == size:
            return number
        try:
            spelled = self.size(before)
        except UnsupportedError:
            return number
        if not isinstance(spelled, torch.SymInt):
            return number
        now = number.node.expr if isinstance(number, torch.SymInt) else number
        return spelled if spelled.node.expr == now else number

    def _is_tight(self, description: Mapping[str, Json]) -> bool:
        """Return whether a tensor fills its storage, as far as the hints tell."""
        table, hints = self.table, self.hints

        def hint(size: Json) -> int:
            return int(evaluate_hint(symbols.decode_expr(size, table), int, hints) or 0)

        recorded = description.get("storage_size")
        size = [hint(item) for item in _list(description.get("size"))]
        stride = [hint(item) for item in _list(description.get("stride"))]
        if 0 in size or not isinstance(recorded, int):
            return hint(description.get("offset", 0)) == 0
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
        return recorded == reach * _itemsize(description)

    def _storage(self, description: Mapping[str, Json], options: dict[str, object]) -> torch.Tensor:
        dtype = options["dtype"]
        assert isinstance(dtype, torch.dtype)
        reach = self.size(description.get("offset", 0)) + 1
        for size, stride in zip(
            _list(description.get("size")), _list(description.get("stride")), strict=True
        ):
            reach = reach + (self.size(size) - 1) * self.size(stride)
        recorded = description.get("storage_size")
        count = recorded // dtype.itemsize if isinstance(recorded, int) else reach
        return torch.empty(count, **options)  # type: ignore[call-overload,no-any-return]


_SYMBOLIC: dict[str, tuple[type, type]] = {
    "int": (torch.SymInt, int),
    "float": (torch.SymFloat, float),
    "bool": (torch.SymBool, bool),
}


def _no_leaf(kind: str, data: Json) -> object:
    raise UnsupportedError(f"a plain value holds no {kind!r}, found {data!r:.80}")


def _list(data: Json) -> list[Json]:
    if not isinstance(data, list):
        raise UnsupportedError(f"expected a list, found {data!r:.80}")
    return data


def _options(description: Mapping[str, Json]) -> dict[str, object]:
    return {
        "dtype": values.torch_constant("dtype", description.get("dtype")),
        "device": values._device(description.get("device")),
    }


def evaluate_hint(
    expr: sympy.Basic, python: type, hints: Mapping[str, Json]
) -> int | float | bool | None:
    """Return the value of an expression under the recorded hints; None where a symbol has none."""
    known: dict[sympy.Basic, object] = {}
    for symbol in expr.free_symbols:
        hint = hints.get(str(symbol))
        if not isinstance(hint, (int, float)):
            return None
        known[symbol] = sympy.Integer(hint) if type(hint) is int else sympy.Float(hint)
    value = expr.xreplace(known)
    if known:
        value = _reevaluate(value)
    try:
        return python(value)  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        return None


def _reevaluate(expr: sympy.Basic) -> sympy.Basic:
    """Rebuild a closed expression bottom up: `xreplace` leaves unevaluated nodes unevaluated."""
    if not expr.args:
        return expr
    return expr.func(*(_reevaluate(arg) for arg in expr.args))


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
) -> list[object]:
    """Return real values for a list of inputs; those that shared a storage share one again.

    `with_bases` is False where the descriptions do not say which tensors are views, as in bundles:
    those that share a storage are then views of it.
    """
    return _Synthesis(seed, hints, table, with_bases).all(descriptions)


class _Synthesis:
    def __init__(
        self,
        seed: int,
        hints: Mapping[str, Json],
        table: Mapping[str, sympy.Symbol],
        with_bases: bool,
    ) -> None:
        self.with_bases = with_bases
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
            for held in _inner(description).values():
                self._measure(held)
            return
        if isinstance(description, Mapping) and isinstance(description.get("storage"), int):
            self._measure(self._base_of(description))
            number = int(str(description["storage"]))
            extent = self._extent(description) * _itemsize(description)
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
        size = [self._int(item) for item in _list(description.get("size"))]
        stride = [self._int(item) for item in _list(description.get("stride"))]
        if 0 in size:
            return 0
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        return self._int(description.get("offset", 0)) + reach + 1

    def value(self, description: Json) -> object:
        if not isinstance(description, Mapping):
            raise UnsupportedError(f"malformed value description {description!r:.80}")
        kind = description.get("k")
        if kind == "tensor":
            return self._tensor(description)
        if kind == "subclass":
            return self._subclass(description)
        if kind in ("symint", "symfloat", "symbool"):
            python = _SYMBOLIC[str(kind)[3:]][1]
            expr = symbols.decode_expr(description.get("expr"), self.table)
            return evaluate_hint(expr, python, self.hints)
        if kind in ("int", "bool", "float", "str", "NoneType"):
            return values.decode_value(description.get("v"), _no_leaf)
        if kind == "generator":
            return torch.Generator(str(description.get("device", "cpu"))).manual_seed(0)
        raise UnsupportedError(f"no real value can be made for an input of kind {kind!r}")

    def _tensor(self, description: Mapping[str, Json]) -> torch.Tensor:
        if description.get("layout") != "strided":
            return self._sparse(description)
        options = _options(description)
        if "data" in description:
            data = values.decode_value(description["data"], _no_leaf)
            return torch.tensor(data, **options)  # type: ignore[arg-type]
        size = [self._int(item) for item in _list(description.get("size"))]
        flags = _list(description.get("flags") or [])
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
        stride = [self._int(item) for item in _list(description.get("stride"))]
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
        size = [self._int(item) for item in _list(description.get("size"))]
        sparse.options_of(description, size)
        options = _options(description)
        dtype = options["dtype"]
        assert isinstance(dtype, torch.dtype)
        dense = _random(math.prod(size), dtype, self.generator).reshape(size)
        made = sparse.make(description, _on_device(dense, str(options["device"])))
        return with_autograd(made, description)

    def _subclass(self, description: Mapping[str, Json]) -> torch.Tensor:
        inner = _each(_inner(description), self.value, self._objects)
        size = [self._int(item) for item in _list(description.get("size"))]
        stride = [self._int(item) for item in _list(description.get("stride"))]
        context = values.decode_value(description.get("context"), _no_leaf)
        with torch.no_grad():
            whole = subclasses.unflatten(str(description["type"]), inner, context, size, stride)
        return with_autograd(whole, description)

    def _strided(
        self, description: Mapping[str, Json], size: list[int], options: dict[str, object]
    ) -> torch.Tensor:
        stride = [self._int(item) for item in _list(description.get("stride"))]
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


def _inner(description: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what a subclass holds, by attribute."""
    found = description.get("inner")
    if not isinstance(found, Mapping) or "stride" not in description:
        raise UnsupportedError(
            f"an input of class {description.get('type')} was recorded by an older torchreel, "
            "which did not note its strides: record it again"
        )
    return found


def _each(
    inner: Mapping[str, Json], make: Callable[[Json], object], known: dict[int, object]
) -> dict[str, object]:
    """Return what a subclass holds, made; a tensor that several hold is one again."""
    found: dict[str, object] = {}
    for name, held in inner.items():
        number = held.get("object") if isinstance(held, Mapping) else None
        again = known.get(number) if isinstance(number, int) else None
        found[name] = make(held) if again is None else again
        if isinstance(number, int):
            known[number] = found[name]
    return found


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
                tensor = tensor.view_as(tensor)
    return tensor


def _itemsize(description: Mapping[str, Json]) -> int:
    dtype = values.torch_constant("dtype", description.get("dtype"))
    assert isinstance(dtype, torch.dtype)
    return dtype.itemsize


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
