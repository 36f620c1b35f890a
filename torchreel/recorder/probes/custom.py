"""Custom operators, script objects and tensor subclasses: what a graph holds besides torch's own.

Lives here: what each of them is, seen when Dynamo's graph is handed over, so that a place where it
can't be imported knows enough of it.  Not here: the graph (`dynamo`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchreel.events.custom import CustomOperator, ScriptObject, SubclassInput
from torchreel.recorder.attach import AttachPoint, Call, Events, Probe, Visit
from torchreel.recorder.probes.guards import describe, type_name

if TYPE_CHECKING:
    from torchreel.recorder.recorder import Recorder

GRAPH = AttachPoint(
    "torch._dynamo.output_graph",
    "OutputGraph.call_user_compiler",
    "Dynamo's graph on its way to the backend, with what its inputs really are",
)
_READS = (
    AttachPoint("torch._ops", "OpOverload", "which nodes call an operator"),
    AttachPoint("torch._ops", "OpOverloadPacket", "which nodes call one by its packet"),
    AttachPoint("torch._library.custom_ops", "OPDEFS", "operators that Python defines"),
    AttachPoint("torch._library.simple_registry", "singleton", "fake kernels in Python"),
    AttachPoint("torch._C", "_dispatch_dump", "where an operator is defined"),
    AttachPoint("torch._C", "_dispatch_has_kernel_for_dispatch_key", "which kernels it has"),
    AttachPoint("torch._C", "DisableTorchFunctionSubclass", "subclasses looked at from outside"),
    AttachPoint("torch._library.fake_class_registry", "FakeScriptObject", "fake script objects"),
    AttachPoint(
        "torch.utils._python_dispatch", "is_traceable_wrapper_subclass", "which tensors have inner"
    ),
)
ATTACH_POINTS = (GRAPH, *_READS)

EVENTS: Events = {
    CustomOperator: (GRAPH,),
    ScriptObject: (GRAPH,),
    SubclassInput: (GRAPH,),
}

_TORCHS_OWN = frozenset({"aten", "prim", "prims", "higher_order", "inductor", "_inductor_test"})
"""Namespaces that every torch has: their operators are not described."""
_MOST_DEPTH = 8
"""Bodies within bodies, and tensors within tensors, that are looked into."""


def _graph(recorder: Recorder, call: Call) -> Visit:
    gm = call.argument(1, "gm")
    for operator, calls in _operators(gm).items():
        _note_operator(recorder, operator, calls)
    _note_inputs(recorder, gm)
    yield


def _operators(gm: Any) -> dict[Any, int]:
    """Return the custom operators of a graph and its bodies, with the number of their calls."""
    from torch._ops import OpOverload, OpOverloadPacket

    found: dict[Any, int] = {}
    for node in _nodes(gm, 0):
        target: Any = node.target
        if isinstance(target, OpOverloadPacket):
            namespace = target._qualified_op_name.partition("::")[0]
            if namespace in _TORCHS_OWN:
                continue
            target = getattr(target, _first_overload(target))
        if isinstance(target, OpOverload) and target.namespace not in _TORCHS_OWN:
            found[target] = found.get(target, 0) + 1
    return found


def _first_overload(packet: Any) -> str:
    return str(packet.overloads()[0])


def _nodes(gm: Any, depth: int) -> Iterator[Any]:
    for node in gm.graph.nodes:
        if node.op == "call_function":
            yield node
    if depth < _MOST_DEPTH:
        for _, child in gm.named_children():
            if hasattr(child, "graph"):
                yield from _nodes(child, depth + 1)


def _note_operator(recorder: Recorder, operator: Any, calls: int) -> None:
    schema = operator._schema
    alias = [result.alias_info for result in schema.returns]
    tags = tuple(sorted(str(tag).rpartition(".")[2] for tag in operator.tags))
    recorder.note(
        CustomOperator(
            schema=str(schema),
            mutates=tuple(argument.name for argument in schema.arguments if argument.is_write),
            returns_alias=any(info is not None for info in alias),
            tags=tags,
            compliant="pt2_compliant_tag" in tags,
            defined_in=_definition(operator),
            fake=_fake(operator),
            kernels=_kernels(operator),
            calls=calls,
        ),
        str(operator),
    )


def _definition(operator: Any) -> str | None:
    """Return the place where an operator is defined, if torch knows it."""
    import torch
    from torch._library.custom_ops import OPDEFS

    found = OPDEFS.get(operator._schema.name)
    if found is not None:
        return describe(found._init_fn)
    lines = torch._C._dispatch_dump(operator.name()).splitlines()
    places = [line.removeprefix(_PLACE) for line in lines if line.startswith(_PLACE)]
    return places[0] if places else None


def _fake(operator: Any) -> str | None:
    """Return the place where the fake kernel of an operator was registered."""
    from torch._library.simple_registry import singleton

    kernel = singleton.find(operator._schema.name).fake_impl.kernel
    return None if kernel is None else str(kernel.source)


_PLACE = "debug: registered at "
"""Beginning of the dispatcher's line on where a schema was registered (dumpState)."""
_KEYS = (
    "CPU", "CUDA", "Meta", "AutogradCPU", "Autograd", "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
)  # fmt: skip


def _kernels(operator: Any) -> tuple[str, ...]:
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return tuple(key for key in _KEYS if has(operator.name(), key))


def _note_inputs(recorder: Recorder, gm: Any) -> None:
    """Look at the inputs unseen by the program's modes and subclasses."""
    import torch

    from torchreel.torch_compat.tensors.fake_tensors import no_dispatch

    with no_dispatch(), torch._C.DisableTorchFunctionSubclass():
        for node in gm.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                _note_input(recorder, node)


def _note_input(recorder: Recorder, node: Any) -> None:
    import torch
    from torch._library.fake_class_registry import FakeScriptObject

    from torchreel.torch_compat.tensors.fake_tensors import is_wrapper_subclass

    value = node.meta.get("example_value")
    source = getattr(node.meta.get("grapharg"), "source", None)
    expression = None if source is None else source.name
    if isinstance(value, (FakeScriptObject, torch.ScriptObject)):
        _note_script_object(recorder, node.name, value, expression)
    elif isinstance(value, torch.Tensor) and is_wrapper_subclass(value):
        _note_subclass(recorder, node.name, value, expression)


def _note_script_object(recorder: Recorder, name: str, value: Any, expression: str | None) -> None:
    import torch

    fake = None if isinstance(value, torch.ScriptObject) else value
    if fake is None:
        recorder.note(
            ScriptObject(
                class_=_script_name(value),
                how="real",
                fake_class=None,
                attributes=None,
                expression=expression,
            ),
            name,
        )
        return
    real, wrapped = fake.real_obj, fake.wrapped_obj
    how = "fake" if isinstance(real, torch.ScriptObject) else "opaque"
    members = getattr(wrapped, "__dict__", {}) if how == "fake" else {}
    attributes = {key: type_name(type(item)) for key, item in members.items()}
    fake_class = None if wrapped is None or how == "opaque" else type_name(type(wrapped))
    recorder.note(
        ScriptObject(
            class_=fake.script_class_name,
            how=how,
            fake_class=fake_class,
            attributes=attributes,
            expression=expression,
        ),
        name,
    )


def _script_name(value: Any) -> str:
    return str(value._type().qualified_name())


def _note_subclass(recorder: Recorder, name: str, value: Any, expression: str | None) -> None:
    tensors, context = value.__tensor_flatten__()
    recorder.note(
        SubclassInput(
            class_=type_name(type(value)),
            size=_sizes(value.size()),
            stride=_sizes(value.stride()),
            dtype=value.dtype,
            inner={name: _inner(getattr(value, name), 1) for name in tensors},
            context=type_name(type(context)),
            values=_plain(context),
            expression=expression,
        ),
        name,
    )


def _inner(tensor: Any, depth: int) -> dict[str, object]:
    """Return a tensor within, described: never its values."""
    import torch

    from torchreel.torch_compat.tensors.fake_tensors import is_wrapper_subclass

    if not isinstance(tensor, torch.Tensor):
        return {"class": type_name(type(tensor))}  # the mesh of devices of a DTensor
    found: dict[str, object] = {
        "class": type_name(type(tensor)),
        "size": _sizes(tensor.size()),
        "stride": _sizes(tensor.stride()),
        "dtype": tensor.dtype,
        "device": str(tensor.device),
    }
    if depth < _MOST_DEPTH and is_wrapper_subclass(tensor):
        names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        found["inner"] = {name: _inner(getattr(tensor, name), depth + 1) for name in names}
        found["context"] = type_name(type(context))
    return found


def _sizes(sizes: Any) -> tuple[object, ...]:
    """Return numbers, or their expressions: a SymInt would hold its ShapeEnv."""
    return tuple(size if isinstance(size, int) else size.node._expr for size in sizes)


def _plain(context: Any) -> dict[str, object] | None:
    """Return the members of a context that are built-in values: no code of theirs runs."""
    import torch

    members = context if isinstance(context, dict) else getattr(context, "__dict__", {})
    kinds = (bool, int, float, str, torch.dtype)
    return {
        str(name): item for name, item in members.items() if item is None or isinstance(item, kinds)
    }


PROBES = (Probe(GRAPH, _graph),)
