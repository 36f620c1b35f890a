"""Fake tensors, their modes, and tensor subclasses."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch._guards
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from torchreel.torch_compat import distributed

__all__ = ["FakeTensor", "FakeTensorMode"]


def has_zero_tensor(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is a ZeroTensor (no memory behind it; the gradient of `sgn` is
    one).
    """
    return bool(tensor._is_zerotensor())


def zero_tensor(size: list[int], **kwargs: Any) -> torch.Tensor:
    """Return a ZeroTensor."""
    return torch._efficientzerotensor(size, **kwargs)


def creation_of_view(view: torch.Tensor) -> str:
    """Return the name that autograd has for the way in which a view was made."""
    return torch._C._autograd._get_creation_meta(view).name


def set_creation_of_view(view: torch.Tensor, name: str) -> None:
    """Let autograd take a view as one that was made like that; unknown names change nothing."""
    found = getattr(torch._C._autograd.CreationMeta, name, None)
    if isinstance(found, torch._C._autograd.CreationMeta) and view._is_view():
        torch._C._autograd._set_creation_meta(view, found)


def with_history(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that autograd has a function for and that is no view, as a converter does."""
    message = "Internal error: Tried to backward() through example input"
    found: torch.Tensor = torch._C._functions.DelayedError(message, 1)(tensor)
    return found


def set_storage(
    mode: FakeTensorMode,
    tensor: torch.Tensor,
    base: torch.Tensor,
    offset: Any,
    size: Sequence[Any],
    stride: Sequence[Any],
) -> None:
    """Give a fake tensor the storage of another; autograd does not see it.

    A converter makes fakes of tensors that share storage in this way.  The version of the tensor
    stays: fake tensors keep the result of `nonzero` with the version that it was made at.
    """
    with (
        torch.no_grad(),
        torch.autograd._unsafe_preserve_version_counter(tensor),  # type: ignore[attr-defined]
        in_kernel_invocation_manager(mode),
    ):
        tensor.set_(base.untyped_storage(), offset, size, stride)


def is_wrapper_subclass(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is a traceable wrapper subclass (it flattens into inner tensors).

    torch asks the tensor; a program's `__getattr__` may answer anything, so the class comes first.
    """
    cls = type(tensor)
    if not (hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")):
        return False
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def own_subclass(name: str) -> type[torch.Tensor] | None:
    """Return one of torch's own wrapper subclasses that a store may name; None for all others.

    They only hold other tensors, and a DTensor a mesh of devices.
    """
    from torch.nested._internal.nested_tensor import NestedTensor
    from torch.testing._internal.two_tensor import TwoTensor

    found: list[type[torch.Tensor]] = [NestedTensor, TwoTensor]
    if name == distributed.DTENSOR and torch.distributed.is_available():
        from torch.distributed.tensor import DTensor

        found.append(DTensor)
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in found}.get(name)


def is_functorch_wrapper(tensor: torch.Tensor) -> bool:
    """Return True if a tensor is wrapped by a functorch transform (vmap, grad, jvp)."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def storage_of(tensor: torch.Tensor) -> tuple[int, object] | None:
    """Return a storage's identity and its size in bytes; None for tensors that have none."""
    try:
        storage = torch.Tensor.untyped_storage(tensor)  # past a method of its class
    except (NotImplementedError, RuntimeError):
        return None
    return storage._cdata, storage.nbytes()


def is_fake(value: object) -> bool:
    """Return True if a value is a fake tensor, or a size without a number."""
    return isinstance(value, (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_traced_input(value: object) -> bool:
    """Return True for a real tensor of which Dynamo has made a fake, in the compile under way."""
    context = TracingContext.try_get()
    known = getattr(context, "tensor_to_context", None)
    return isinstance(value, torch.Tensor) and known is not None and value in known


def layout_as_converted(tensor: torch.Tensor) -> tuple[list[Any], list[Any]]:
    """Return the sizes and strides that the fake of a real input has at first.

    Numbers and SymPy expressions: Dynamo keeps the symbol of each size that is dynamic.
    """
    context = torch._guards.TracingContext.try_get()
    found: Any = None if context is None else context.tensor_to_context.get(tensor)  # type: ignore[no-untyped-call]
    caches = getattr(found, "shape_env_to_source_to_symbol_cache", {}).values()
    known = {name: symbol for cache in caches for name, symbol in cache.items()}
    source = getattr(getattr(found, "tensor_source", None), "name", "")
    sizes = [known.get(f"{source}.size()[{dim}]", size) for dim, size in enumerate(tensor.shape)]
    strides: list[Any] = list(tensor.stride())
    step, symbolic = 1, 1
    for dim in sorted(range(tensor.dim()), key=lambda dim: (tensor.stride(dim), -dim)):
        if tensor.stride(dim) != step:
            break  # with gaps: no stride is inferred
        strides[dim] = symbolic
        step, symbolic = step * tensor.size(dim), symbolic * sizes[dim]
    return sizes, strides


def converted_tensors(mode: FakeTensorMode) -> int:
    """Return the number of tensors that a fake mode has converted.

    It is in the names of symbols without a source.
    """
    return len(mode.fake_tensor_converter.meta_converter.tensor_memo)


def to_be_converted(values: Iterable[object]) -> int:
    """Return the number of tensors that a fake mode converts for these inputs.

    Inner tensors, bases and gradients are converted with them.
    """
    found: dict[int, torch.Tensor] = {}
    waiting = [value for value in values if isinstance(value, torch.Tensor)]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in found and not is_fake(tensor):
            found[id(tensor)] = tensor
            waiting += _converted_with(tensor)
    return len(found)


def _converted_with(tensor: torch.Tensor) -> list[torch.Tensor]:
    if is_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        held = [getattr(tensor, name) for name in names]
        return [one for one in held if isinstance(one, torch.Tensor)]
    base = tensor._base if tensor._is_view() else None
    return [one for one in (base, _kept_gradient(tensor)) if one is not None]


def _kept_gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient that a tensor keeps; None if it keeps none.

    If the base of a view was written to, torch makes the view's autograd function anew to answer
    this. That may fail where torch's modes are off; such a view keeps no gradient.
    """
    try:
        return tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    except RuntimeError:
        return None


def count_as_converted(mode: FakeTensorMode, count: int) -> None:
    """Have a fake mode go on as if it had converted so many tensors, and no others."""
    forget_converted(mode)
    memo: Any = mode.fake_tensor_converter.meta_converter.tensor_memo
    for number in range(count):
        memo[-1 - number] = mode  # no tensor has such a number, so nobody looks it up


def forget_converted(mode: FakeTensorMode) -> None:
    """Have a fake mode count its tensors from 0."""
    mode.fake_tensor_converter.meta_converter.tensor_memo.clear()


def fake_of_meta(
    mode: FakeTensorMode,
    size: Iterable[int | torch.SymInt],
    stride: Iterable[int | torch.SymInt],
    options: Mapping[str, Any],
) -> FakeTensor:
    """Return a fake made of a meta tensor, as the conversion of a real tensor makes one.

    It has symbolic sizes though all of them are numbers by now; one that a FakeTensorMode makes in
    `torch.empty_strided` has not.
    """
    with no_dispatch():
        meta = torch.empty_strided(tuple(size), tuple(stride), **{**options, "device": "meta"})
        return FakeTensor(mode, meta, torch.device(options["device"]))


def item_memo(tensor: torch.Tensor) -> torch.SymInt | torch.SymFloat | None:
    """Return the symbol that Dynamo gave to the value of a 0-d input, if any (read without a
    check).
    """
    memo = getattr(tensor, "_item_memo", None) if isinstance(tensor, FakeTensor) else None
    return memo if isinstance(memo, (torch.SymInt, torch.SymFloat)) else None


def set_item_memo(tensor: torch.Tensor, value: object) -> None:
    """Restore the symbol of `item_memo`."""
    if isinstance(tensor, FakeTensor) and isinstance(value, (torch.SymInt, torch.SymFloat)):
        tensor.item_memo = value


def no_dispatch() -> Any:
    """Return a context in which no mode of the program sees the operators that an encoder runs."""

    return _disable_current_modes()


def fake_mode_of(
    gm: torch.fx.GraphModule | None, inputs: Iterable[object]
) -> FakeTensorMode | None:
    """Return the fake mode of the compile under way; else that of the inputs or the graph."""
    context = TracingContext.try_get()
    if context is not None and context.fake_mode is not None:
        return context.fake_mode
    from torch._guards import detect_fake_mode

    nodes = () if gm is None else gm.graph.nodes
    metas = [n.meta.get("val", n.meta.get("example_value")) for n in nodes]
    return detect_fake_mode([*inputs, *metas])


def fake_mode_settings(mode: FakeTensorMode | None) -> dict[str, bool]:
    """Return the settings of a fake mode that change the results of operators."""
    names = ("allow_non_fake_inputs", "allow_scalar_outputs", "static_shapes", "allow_meta")
    return {name: bool(getattr(mode, name)) for name in names if hasattr(mode, name)}


def first_row_length(mode: FakeTensorMode | None) -> int | None:
    """Return the number that a fake mode gives to the first length of rows that it makes in a
    trace.
    """
    return None if mode is None else getattr(mode, "nt_tensor_id_initial_count", None)


def set_first_row_length(mode: FakeTensorMode, number: int) -> None:
    """Have a fake mode number the lengths of rows that it makes from here on."""
    mode.nt_tensor_id_initial_count = mode.nt_tensor_id_counter = number


def known_of_fake(fake: object, real: object) -> str:
    """Return the relation of a real tensor to a fake one in its mode: 'tensor', 'storage' or ''.

    'tensor' if the fake is the conversion of the real tensor, 'another' if the mode has another
    conversion, 'storage' if only the storages match.  ' constant' follows if the mode knows the
    value.
    """
    if not isinstance(fake, FakeTensor) or not isinstance(real, torch.Tensor):
        return ""
    converter = fake.fake_mode.fake_tensor_converter
    made = converter._get_memo(real)
    if made is not None:
        what = "tensor" if made is fake else "another"
        return what if made.constant is None else f"{what} constant"
    if real.layout is not torch.strided or is_wrapper_subclass(real):
        return ""
    metas = converter.meta_converter
    number = metas.describer.lookup_storage.get(real.untyped_storage())  # type: ignore[no-untyped-call]
    known = metas.storage_memo.get(number)
    return "storage" if known is not None and known._cdata == fake.untyped_storage()._cdata else ""


def set_known_of_fake(fake: object, real: torch.Tensor, what: str) -> object:
    """Restore, in the mode of a fake tensor, the relation from `known_of_fake`.

    Returns an object that has to live as long as the mode is to keep the relation.
    """
    if not isinstance(fake, FakeTensor):
        return None
    converter = fake.fake_mode.fake_tensor_converter
    what, _, constant = what.partition(" ")
    if what in ("tensor", "another"):
        known = fake if what == "tensor" else _again(fake, real)
        known.constant = real.detach() if constant else None  # type: ignore[attr-defined]
        converter.set_tensor_memo(real, known)  # type: ignore[arg-type]
        return known
    if what == "storage":
        metas = converter.meta_converter
        number = metas.describer.get_storage_id(real.untyped_storage())
        metas.storage_memo[number] = fake.untyped_storage()
    return None


def _again(fake: FakeTensor, real: torch.Tensor) -> torch.Tensor:
    """Return another fake tensor of a real one, with the storage of the first."""
    with fake.fake_mode, torch.no_grad():
        made = fake.detach()
        if isinstance(real, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=real.requires_grad)
        return made.requires_grad_(real.requires_grad)


def fake_mode(env: ShapeEnv, settings: Mapping[str, bool]) -> FakeTensorMode:
    """Return a FakeTensorMode over a ShapeEnv, with recorded settings."""
    mode = FakeTensorMode(
        shape_env=env,
        allow_non_fake_inputs=settings.get("allow_non_fake_inputs", False),
        static_shapes=settings.get("static_shapes", False),
    )
    for name in ("allow_scalar_outputs", "allow_meta"):
        if name in settings:
            setattr(mode, name, settings[name])
    return mode


def run_nodes_on_fakes(graph: GraphModule, mode: FakeTensorMode) -> None:
    """Dispatch each node of a Dynamo graph on the results of earlier nodes, as Dynamo did.

    A node that cannot run so is passed over: it ran otherwise, or not at all, when recorded.  A
    result that is not the example value (it has other symbols, say) is replaced by that, if that
    could be recorded.  Within a transform of torch.func it stays: an example value has no level.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.node import map_arg

    returned: dict[Node, Any] = {}

    def value(node: Node) -> Any:
        if node in returned:
            return returned[node]
        if node.op == "get_attr" and isinstance(body := _attribute(graph, node), GraphModule):
            return body
        return node.meta["example_value"]

    with mode, enable_python_dispatcher():
        for node in graph.graph.nodes:
            if node.op not in ("call_function", "call_method"):
                continue
            with contextlib.suppress(*FAKE_ERRORS):
                args, kwargs = map_arg(node.args, value), map_arg(node.kwargs, value)
                if node.op == "call_function":
                    found = node.target(*args, **kwargs)
                else:
                    found = getattr(args[0], node.target)(*args[1:], **kwargs)
                recorded = node.meta.get("example_value")
                if recorded is None or _is_of_a_transform(found) or _is_same(found, recorded):
                    returned[node] = found


def _is_same(found: object, recorded: object) -> bool:
    """Return True if two values of a node have the same layouts and the same symbols."""
    if isinstance(found, (tuple, list)) and isinstance(recorded, (tuple, list)):
        pairs = zip(found, recorded, strict=False)
        return len(found) == len(recorded) and all(_is_same(*pair) for pair in pairs)
    return _spelled(found) == _spelled(recorded)


def _spelled(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return type(value), str(value)
    layout = (*value.shape, "|", *value.stride()) if value.layout == torch.strided else value.shape
    return type(value), value.dtype, value.device, value.requires_grad, str(layout)


def _is_of_a_transform(value: object) -> bool:
    """Return True if a value has tensors of vmap, grad or jvp in it."""
    from torch.utils._pytree import tree_leaves

    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(isinstance(leaf, torch.Tensor) and wrapped(leaf) for leaf in tree_leaves(value))


def _attribute(graph: GraphModule, node: Node) -> object:
    return operator.attrgetter(str(node.target))(graph)


FAKE_ERRORS = (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError)


def current_fake_mode() -> FakeTensorMode | None:
    """Return the fake mode of the compile that is under way, if there is one by now."""
    context = TracingContext.try_get()
    return None if context is None else context.fake_mode
