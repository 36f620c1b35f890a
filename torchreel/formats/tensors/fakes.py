"""The fake values of descriptions: what a compile gets as inputs.

Lives here: fake tensors and symbolic scalars over one ShapeEnv.  Not here: real values
(`synthetic`), the descriptions (`encoder`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import sympy
import torch

from torchreel.errors import UnsupportedError
from torchreel.formats import node_arguments, symbols
from torchreel.formats.tensors import meshes, subclasses
from torchreel.formats.tensors.fields import (
    SEQUENCES,
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
from torchreel.store.documents.kinds import as_object
from torchreel.torch_compat import distributed, shapes
from torchreel.torch_compat.shapes import ShapeEnv, SymNode
from torchreel.torch_compat.tensors import fake_tensors
from torchreel.torch_compat.tensors.fake_tensors import FakeTensorMode

_BUILDERS: dict[str, Callable[[list[Any]], object]] = {name: cls for cls, name in SEQUENCES.items()}


class _Layout(NamedTuple):
    """The place of a tensor's elements in its storage."""

    size: list[int | torch.SymInt]
    stride: list[int | torch.SymInt]
    offset: int | torch.SymInt


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
        cls, python = SYMBOLIC[pytype]
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
            return _BUILDERS[kind]([self.fake(item) for item in list_of(description.get("items"))])
        if kind in ("int", "bool", "float", "str", "NoneType"):
            return node_arguments.decode_value(description.get("v"), no_leaf)
        if kind == "generator":
            return torch.Generator(str(description.get("device", "cpu")))
        if kind == meshes.KIND:
            mesh = meshes.make(description)
            return distributed.stand_in(mesh, self.mode) if description.get("fake") else mesh
        raise UnsupportedError(
            f"an input of type {description.get('type', kind)} has no portable form: "
            f"{description.get('reason', 'unknown kind')}"
        )

    def _tensor(self, description: Mapping[str, Json]) -> torch.Tensor:
        with inference_mode_of(description):
            try:
                with self.mode, shapes.suppress_guards(self.env), torch.no_grad():
                    plain = self._plain(description)
            except (OverflowError, RuntimeError, TypeError) as error:  # of torch: a size of -1, ...
                raise UnsupportedError(
                    f"no tensor is like the recorded one: {str(error).partition(chr(10))[0]:.200}"
                ) from error
            return self._autograd(plain, description)

    def _subclass(self, description: Mapping[str, Json]) -> torch.Tensor:
        inner = each_of(inner_of(description), self.fake, self._objects)
        size, stride, _ = self._layout(description)
        context = node_arguments.decode_value(description.get("context"), self._number_of_context)
        with self.mode, shapes.suppress_guards(self.env), torch.no_grad():
            whole = subclasses.unflatten(str(description["type"]), inner, context, size, stride)
        made = self._autograd(whole, {**description, "parameter": False})
        # torch says so of the very tensor: `Parameter` would make another one of it.
        made._is_param = bool(description.get("parameter"))
        return made

    def _number_of_context(self, kind: str, data: Json) -> object:
        if kind == "sym" and isinstance(data, Mapping):
            return self.symbolic(str(data.get("type")), data.get("expr"))
        return no_leaf(kind, data)

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
        layout = self._layout(description)
        flags = list_of(description.get("flags") or [])
        options = options_of(description)
        if description.get("layout") != "strided":
            raise UnsupportedError(
                f"a tensor of layout {description.get('layout')} cannot be rebuilt yet"
            )
        # A ZeroTensor's fake is an ordinary tensor: that is how the kernel comes to read nothing.
        tensor = self._strided(description, layout, options)
        with torch.set_grad_enabled(tensor.grad_fn is not None):
            tensor = torch._conj(tensor) if "conj" in flags else tensor
            tensor = torch._neg_view(tensor) if "neg" in flags else tensor
        if "item" in description:
            fake_tensors.set_item_memo(tensor, self.fake(description["item"]))
        return tensor

    def _strided(
        self, description: Mapping[str, Json], layout: _Layout, options: dict[str, object]
    ) -> torch.Tensor:
        size, stride, offset = layout
        number = description.get("storage")
        viewed = self._view_base(description)
        if viewed is not None:
            return self._view(viewed, description, layout, options)
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
        base = as_object(description.get("view")).get("base")
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
        layout: _Layout,
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
            found = base.as_strided(*layout)
        creation = as_object(view).get("creation")
        fake_tensors.set_creation_of_view(found, str(creation))
        return found

    def _layout(self, description: Mapping[str, Json]) -> _Layout:
        """Return sizes, strides and offset, as they were made."""
        size, stride = list_of(description.get("size")), list_of(description.get("stride") or [])
        numbers = [*size, *stride, description.get("offset", 0)]
        before = description.get("unreplaced")
        if not isinstance(before, list) or len(before) != len(numbers):
            before = numbers
        found = [self._number(*both) for both in zip(numbers, before, strict=True)]
        return _Layout(found[: len(size)], found[len(size) : -1], found[-1])

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
        """Return True if a tensor fills its storage, as far as the hints tell."""
        table, hints = self.table, self.hints

        def hint(size: Json) -> int:
            return int(evaluate_hint(symbols.decode_expr(size, table), int, hints) or 0)

        recorded = description.get("storage_size")
        size = [hint(item) for item in list_of(description.get("size"))]
        stride = [hint(item) for item in list_of(description.get("stride"))]
        if 0 in size or not isinstance(recorded, int):
            return hint(description.get("offset", 0)) == 0
        reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1
        return recorded == reach * itemsize_of(description)

    def _storage(self, description: Mapping[str, Json], options: dict[str, object]) -> torch.Tensor:
        dtype = options["dtype"]
        assert isinstance(dtype, torch.dtype)
        reach = self.size(description.get("offset", 0)) + 1
        for size, stride in zip(
            list_of(description.get("size")), list_of(description.get("stride")), strict=True
        ):
            reach = reach + (self.size(size) - 1) * self.size(stride)
        recorded = description.get("storage_size")
        count = recorded // dtype.itemsize if isinstance(recorded, int) else reach
        return torch.empty(count, **options)  # type: ignore[call-overload,no-any-return]
